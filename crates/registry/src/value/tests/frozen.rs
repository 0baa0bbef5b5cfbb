//! What a release may write: nothing that the release before it does not read.
//!
//! These tables are the schema as the last release has it, written down apart from the one that is
//! compiled. A field or enum number may be read at once; it comes into these tables, and may be
//! written, one release later ("How the schema changes", docs/reference/registry.md). Nothing ever
//! leaves them or changes.

use super::*;

/// A message: its fields.
type Shape = &'static [(u32, Kind)];

/// What a field holds.
#[derive(Clone, Copy)]
enum Kind {
    /// A number or a bool.
    Number,
    /// An enum whose greatest number is this.
    Enum(u64),
    /// The same, several.
    Enums(u64),
    Text,
    Message(Shape),
}

use Kind::{Enum, Enums, Message as Sub, Number, Text};

const TIMESTAMP: Shape = &[(1, Number), (2, Number)];
const ORIGIN: Shape = &[(1, Text), (2, Text)];
const MAP: Shape = &[(1, Text), (2, Text)];
const OWNER: Shape = &[(1, Text), (14, Number), (15, Sub(ORIGIN))];
const SESSION: Shape = &[
    (1, Text),
    (2, Number),
    (3, Sub(TIMESTAMP)),
    (4, Text),
    (5, Number),
    (6, Enums(2)),
    (7, Text),
    (8, Sub(TIMESTAMP)),
    (14, Number),
    (15, Sub(ORIGIN)),
];
const SYNCED: Shape = &[(1, Number), (14, Number), (15, Sub(ORIGIN))];
const REPORTED_SERVICE: Shape = &[(1, Text), (2, Text), (3, Text), (4, Sub(TIMESTAMP))];
const REPORTED_CLUSTER: Shape = &[(1, Text), (2, Number)];
const REPORT: Shape = &[
    (1, Number),
    (2, Sub(REPORTED_SERVICE)),
    (3, Sub(REPORTED_CLUSTER)),
    (14, Number),
    (15, Sub(ORIGIN)),
];
const PORT: Shape = &[(1, Text), (2, Enum(3)), (3, Number), (4, Text)];
const EXPORT: Shape = &[
    (1, Sub(TIMESTAMP)),
    (2, Text),
    (3, Enum(2)),
    (4, Sub(PORT)),
    (5, Enums(2)),
    (6, Enum(2)),
    (7, Number),
    (8, Enum(2)),
    (9, Text),
    (10, Sub(MAP)),
    (11, Sub(MAP)),
    (14, Number),
    (15, Sub(ORIGIN)),
];
const ENTRY_PORT: Shape = &[(1, Text), (2, Number)];
const ENTRY: Shape = &[
    (1, Sub(ENTRY_PORT)),
    (2, Text),
    (3, Text),
    (4, Number),
    (5, Number),
    (6, Number),
];
const ENDPOINTS: Shape = &[(1, Sub(ENTRY)), (14, Number), (15, Sub(ORIGIN))];
const MEMBER: Shape = &[
    (1, Sub(TIMESTAMP)),
    (2, Text),
    (3, Text),
    (4, Number),
    (14, Number),
];
const SETTINGS: Shape = &[(1, Number), (14, Number)];

/// The number that begins here.
fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for at in 0.. {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 0x7f) << (7 * at);
        if first & 0x80 == 0 {
            break;
        }
    }
    number
}

/// The first thing in a message that the last release does not read, if any.
fn unread(shape: Shape, mut bytes: &[u8]) -> Option<String> {
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let (field, wire) = (u32::try_from(tag >> 3).unwrap(), tag & 7);
        let Some((_, kind)) = shape.iter().find(|(known, _)| *known == field) else {
            return Some(format!("field {field}"));
        };
        let number = varint(&mut bytes);
        let problem = match (kind, wire) {
            (Number, 0) => None,
            (Enum(max), 0) => (number > *max).then(|| format!("number {number} of an enum")),
            (Enums(_) | Text | Sub(_), 2) => {
                let (mut inner, rest) = bytes.split_at(usize::try_from(number).unwrap());
                bytes = rest;
                match kind {
                    Sub(shape) => unread(shape, inner),
                    Enums(max) => {
                        let mut numbers = Vec::new();
                        while !inner.is_empty() {
                            numbers.push(varint(&mut inner));
                        }
                        let other = numbers.into_iter().find(|number| number > max);
                        other.map(|number| format!("number {number} of an enum"))
                    }
                    Number | Enum(_) | Text => None,
                }
            }
            (_, _) => Some("another type".to_owned()),
        };
        if let Some(problem) = problem {
            return Some(format!("{problem} in field {field}"));
        }
    }
    None
}

fn shape(key: &RecordKey) -> Option<Shape> {
    match key {
        RecordKey::Owner | RecordKey::Left => Some(OWNER),
        RecordKey::Session => Some(SESSION),
        RecordKey::Synced => Some(SYNCED),
        RecordKey::Report => Some(REPORT),
        RecordKey::Export(_) => Some(EXPORT),
        RecordKey::Endpoint { .. } => Some(ENDPOINTS),
        // No message.
        RecordKey::Config { .. } => None,
    }
}

proptest! {
    #[test]
    fn nothing_is_written_that_the_last_release_does_not_read(
        (key, record) in arbitrary::records(),
        member in arbitrary::members(),
        precedence_from_join in any::<bool>(),
    ) {
        if let Some(shape) = shape(&key) {
            prop_assert_eq!(unread(shape, &encode_record(&key, &record).unwrap()), None);
        }
        prop_assert_eq!(unread(MEMBER, &encode_member(&member).unwrap()), None);
        let settings = Settings { precedence_from_join };
        prop_assert_eq!(unread(SETTINGS, &encode_settings(&settings)), None);
    }
}

#[test]
fn what_is_new_is_found() {
    let mut bytes = export().encode_to_vec();
    assert_eq!(unread(EXPORT, &bytes), None);
    bytes.extend_from_slice(&UNKNOWN_FIELDS[..3]);
    assert_eq!(unread(EXPORT, &bytes).as_deref(), Some("field 2003"));
    let mut other = export();
    other.r#type = 3;
    let found = unread(EXPORT, &other.encode_to_vec());
    assert_eq!(found.as_deref(), Some("number 3 of an enum in field 3"));
    let mut other = export();
    other.families = vec![1, 7];
    let found = unread(EXPORT, &other.encode_to_vec());
    assert_eq!(found.as_deref(), Some("number 7 of an enum in field 5"));
    let mut other = export();
    other.ports[0].protocol = 9;
    let found = unread(EXPORT, &other.encode_to_vec());
    let wanted = "number 9 of an enum in field 2 in field 4";
    assert_eq!(found.as_deref(), Some(wanted));
}
