//! Names in wire format: length-prefixed labels, lower case, ending with the root.
//!
//! [`WireName`] is a name that the server owns (a zone, the name of an offline query);
//! [`QueryName`] the one of a packet, folded into a fixed buffer so that reading it allocates
//! nothing.

use std::fmt;

/// The longest label (RFC 1035 §2.3.4).
pub(crate) const LABEL_LEN_MAX: usize = 63;

/// The longest name in wire format, the root's octet included (RFC 1035 §2.3.4).
pub(crate) const NAME_LEN_MAX: usize = 255;

/// Labels of the longest name: each takes at least two octets.
const LABELS_MAX: usize = NAME_LEN_MAX / 2;

/// Why a text is no domain name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainNameError {
    /// Two dots side by side, or one at the start.
    #[error("the name {0:?} has an empty label")]
    EmptyLabel(String),
    /// A label of more than 63 octets.
    #[error("the name {0:?} has a label of more than 63 octets")]
    LabelTooLong(String),
    /// More than 255 octets in all.
    #[error("the name {0:?} is longer than 255 octets")]
    NameTooLong(String),
    /// Something that is no printable ASCII character.
    #[error("the name {0:?} has a character that cannot stand in it")]
    BadCharacter(String),
}

/// A domain name: lower case, uncompressed, with the root at its end.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireName(Box<[u8]>);

impl WireName {
    /// Reads a name as people write it, with or without the dot at its end.
    pub fn parse(text: &str) -> Result<Self, DomainNameError> {
        let mut wire = Vec::with_capacity(text.len() + 2);
        let body = text.strip_suffix('.').unwrap_or(text);
        if !body.is_empty() {
            for label in body.split('.') {
                push_label(&mut wire, label).map_err(|error| error(text.to_owned()))?;
            }
        }
        wire.push(0);
        if wire.len() > NAME_LEN_MAX {
            return Err(DomainNameError::NameTooLong(text.to_owned()));
        }
        Ok(Self(wire.into()))
    }

    /// The octets, root included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many labels it has, the root not counted.
    pub(crate) fn label_count(&self) -> usize {
        labels(&self.0).count()
    }
}

impl fmt::Display for WireName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(&self.0, f)
    }
}

impl fmt::Debug for WireName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(&self.0, f)
    }
}

/// Adds a label, folded to lower case.
fn push_label(wire: &mut Vec<u8>, label: &str) -> Result<(), fn(String) -> DomainNameError> {
    if label.is_empty() {
        return Err(DomainNameError::EmptyLabel);
    }
    if !label.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(DomainNameError::BadCharacter);
    }
    let length = label.len().min(usize::from(u8::MAX));
    if length > LABEL_LEN_MAX {
        return Err(DomainNameError::LabelTooLong);
    }
    wire.push(u8::try_from(length).unwrap_or(u8::MAX));
    wire.extend(label.bytes().map(|b| b.to_ascii_lowercase()));
    Ok(())
}

/// One dotted text as labels without the root; `None` where it cannot be one.
pub(crate) fn relative_labels(text: &str) -> Option<Box<[u8]>> {
    let mut wire = Vec::with_capacity(text.len() + 1);
    for label in text.split('.') {
        push_label(&mut wire, label).ok()?;
    }
    Some(wire.into())
}

/// One label with its length; `None` where `text` cannot be one.
pub(crate) fn single_label(text: &str) -> Option<Box<[u8]>> {
    if text.contains('.') {
        return None;
    }
    relative_labels(text)
}

/// The labels of uncompressed octets, the root left out.
pub(crate) fn labels(mut wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&length, rest) = wire.split_first()?;
        if length == 0 || rest.len() < usize::from(length) {
            return None;
        }
        let (label, rest) = rest.split_at(usize::from(length));
        wire = rest;
        Some(label)
    })
}

/// Writes octets as text with a dot at the end.
fn write_text(wire: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut empty = true;
    for label in labels(wire) {
        empty = false;
        for &byte in label {
            match byte {
                b'.' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                _ if byte.is_ascii_graphic() => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\{byte:03}")?,
            }
        }
        f.write_str(".")?;
    }
    if empty { f.write_str(".") } else { Ok(()) }
}

/// Octets as text with a dot at the end.
pub(crate) fn to_text(wire: &[u8]) -> String {
    struct Text<'a>(&'a [u8]);
    impl fmt::Display for Text<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write_text(self.0, f)
        }
    }
    Text(wire).to_string()
}

/// The name of a question, folded to lower case, with the places of its labels.
pub(crate) struct QueryName {
    bytes: [u8; NAME_LEN_MAX],
    starts: [u8; LABELS_MAX],
    len: usize,
    count: usize,
}

impl QueryName {
    /// Reads the name at the start of `wire`. `None` for one that is cut off, too long, or
    /// compressed: nothing stands before a question that it could point to.
    pub(crate) fn read(wire: &[u8]) -> Option<Self> {
        let mut name = Self {
            bytes: [0; NAME_LEN_MAX],
            starts: [0; LABELS_MAX],
            len: 0,
            count: 0,
        };
        let mut at = 0;
        loop {
            let length = usize::from(*wire.get(at)?);
            let next = at + 1 + length;
            if length > LABEL_LEN_MAX || next > NAME_LEN_MAX || next > wire.len() {
                return None;
            }
            if length == 0 {
                name.len = next;
                break;
            }
            *name.starts.get_mut(name.count)? = u8::try_from(at).ok()?;
            name.count += 1;
            at = next;
        }
        // The lengths are at most 63, below the letters, so folding leaves them as they are.
        name.bytes[..name.len].copy_from_slice(&wire[..name.len]);
        name.bytes[..name.len].make_ascii_lowercase();
        Some(name)
    }

    /// Octets in all, the root included.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// How many labels there are.
    pub(crate) const fn label_count(&self) -> usize {
        self.count
    }

    /// Where label `index` starts; for `index == label_count()` where the root stands.
    pub(crate) fn start(&self, index: usize) -> usize {
        if index < self.count {
            usize::from(self.starts[index])
        } else {
            self.len - 1
        }
    }

    /// The octets from label `index` to the end.
    pub(crate) fn suffix(&self, index: usize) -> &[u8] {
        &self.bytes[self.start(index)..self.len]
    }

    /// The octets of the labels `from..to`, lengths included.
    pub(crate) fn span(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[self.start(from)..self.start(to)]
    }

    /// A label without its length.
    pub(crate) fn label(&self, index: usize) -> &[u8] {
        &self.bytes[self.start(index) + 1..self.start(index + 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_round_trips_in_lower_case() {
        let name = WireName::parse("ShopAPI.Shop.svc.clusterset.local").unwrap();
        assert_eq!(name.to_string(), "shopapi.shop.svc.clusterset.local.");
        assert_eq!(WireName::parse("a.").unwrap().as_bytes(), b"\x01a\x00");
        assert_eq!(WireName::parse(".").unwrap().to_string(), ".");
    }

    #[test]
    fn names_beyond_the_limits_are_refused() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(WireName::parse(&longest).unwrap().0.len(), 255);
        let too_long = format!("{longest}a");
        assert!(matches!(
            WireName::parse(&too_long),
            Err(DomainNameError::NameTooLong(_))
        ));
        for bad in ["a..b", ".a", "a b", "ä"] {
            assert!(WireName::parse(bad).is_err(), "{bad}");
        }
        assert!(WireName::parse(&"a".repeat(64)).is_err());
    }

    #[test]
    fn a_question_knows_its_labels() {
        let name = QueryName::read(b"\x03WWW\x02ns\x00rest").unwrap();
        assert_eq!((name.len(), name.label_count()), (8, 2));
        assert_eq!(name.label(0), b"www");
        assert_eq!(name.label(1), b"ns");
        assert_eq!(name.suffix(1), b"\x02ns\x00");
        assert_eq!(name.span(0, 1), b"\x03www");
        assert_eq!(name.suffix(2), b"\x00");
    }

    #[test]
    fn a_question_cut_off_or_compressed_is_refused() {
        for bad in [&b""[..], b"\x03ab", b"\x01a", b"\xc0\x0c", b"\x40a"] {
            assert!(QueryName::read(bad).is_none(), "{bad:?}");
        }
    }
}
