//! Reads a Corefile as far as a stub zone needs it: its server blocks, what they are for and where
//! they listen.
//!
//! The syntax is that of Caddy 1: words and quoted words, comments, `keys {` at the end of a line
//! and `}` alone on one. What is not so is refused; what is inside a block is CoreDNS' affair.

use super::CorefileError;

/// A Corefile.
#[derive(Debug)]
pub(super) struct Corefile {
    pub(super) blocks: Vec<Block>,
}

/// A server block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) keys: Vec<Key>,
    /// The lines of its plugin `bind`, words joined by spaces.
    pub(super) binds: Vec<String>,
    /// Where it begins, from 1 on.
    pub(super) line: usize,
}

/// What a server block is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Whether it is plain DNS.
    pub(super) is_dns: bool,
    /// `.` is the root.
    pub(super) zone: String,
    /// With its colon; empty for the default.
    pub(super) port: String,
}

/// A word and where it stands.
struct Word {
    text: String,
    line: usize,
    is_quoted: bool,
}

fn unclear(line: usize, what: &str) -> CorefileError {
    let what = what.to_owned();
    CorefileError::Unclear { line, what }
}

impl Corefile {
    /// Reads a whole file.
    pub(super) fn read(text: &str) -> Result<Self, CorefileError> {
        if text.starts_with('\u{feff}') {
            return Err(unclear(1, "a byte order mark"));
        }
        let words = words(text)?;
        let lines: Vec<&[Word]> = words.chunk_by(|a, b| a.line == b.line).collect();
        let mut rest = lines.as_slice();
        let mut blocks = Vec::new();
        while let Some((first, tail)) = rest.split_first() {
            if first[0].text == "import" && !first[0].is_quoted {
                rest = tail;
                continue;
            }
            let (block, tail) = Block::read(rest)?;
            blocks.push(block);
            rest = tail;
        }
        Ok(Self { blocks })
    }
}

impl Block {
    /// Reads the block at the start of some lines, and says what lines are left.
    fn read<'a, 'b>(lines: &'a [&'b [Word]]) -> Result<(Self, &'a [&'b [Word]]), CorefileError> {
        let (keys, mut rest) = Self::head(lines)?;
        let line = lines[0][0].line;
        let mut binds = Vec::new();
        let mut depth = 1_usize;
        while let Some((&words, tail)) = rest.split_first() {
            rest = tail;
            let number = words[0].line;
            if words.iter().any(|word| is_brace(word, "}")) {
                if words.len() > 1 {
                    return Err(unclear(number, "a closing brace is not alone on its line"));
                }
                depth -= 1;
                if depth == 0 {
                    return Ok((Self { keys, binds, line }, rest));
                }
                continue;
            }
            let opens = words.iter().position(|word| is_brace(word, "{"));
            match opens {
                None if depth == 1 && words[0].text == "bind" => {
                    let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
                    binds.push(words.join(" "));
                }
                None => {}
                Some(_) if depth == 1 && words[0].text == "bind" => {
                    return Err(unclear(number, "a bind with a block"));
                }
                Some(at) if at + 1 == words.len() => depth += 1,
                Some(_) => {
                    return Err(unclear(
                        number,
                        "an opening brace is not the last on its line",
                    ));
                }
            }
        }
        Err(unclear(
            line,
            "the server block that begins here does not end",
        ))
    }

    /// The keys, up to the brace.
    fn head<'a, 'b>(
        lines: &'a [&'b [Word]],
    ) -> Result<(Vec<Key>, &'a [&'b [Word]]), CorefileError> {
        let mut keys = Vec::new();
        let mut rest = lines;
        while let Some((&words, tail)) = rest.split_first() {
            rest = tail;
            let number = words[0].line;
            let mut goes_on = false;
            for (index, word) in words.iter().enumerate() {
                if is_brace(word, "{") {
                    if index == 0 || index + 1 < words.len() {
                        return Err(unclear(number, "an opening brace is not where one belongs"));
                    }
                    return Ok((keys, rest));
                }
                if is_brace(word, "}") {
                    return Err(unclear(number, "a closing brace without an opening one"));
                }
                goes_on = word.text.ends_with(',');
                for text in word.text.split(',').filter(|text| !text.is_empty()) {
                    keys.extend(Key::read(text, number)?);
                }
            }
            if !goes_on {
                return Err(unclear(number, "not a server block, which is `keys {`"));
            }
        }
        let line = lines[0][0].line;
        Err(unclear(
            line,
            "the server block that begins here does not end",
        ))
    }

    /// Whether names of no other block come here.
    pub(super) fn is_root(&self) -> bool {
        self.root_port().is_some()
    }

    /// Where the root zone listens.
    pub(super) fn root_port(&self) -> Option<&str> {
        let root = self.keys.iter().find(|key| key.is_dns && key.zone == ".");
        root.map(|key| key.port.as_str())
    }
}

impl Key {
    /// Reads a key; `None` for the name of a snippet.
    fn read(text: &str, line: usize) -> Result<Option<Self>, CorefileError> {
        if text.starts_with('(') {
            return Ok(None);
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("dns", text));
        // A network instead of a reverse zone may have colons of its own.
        let (zone, port) = match rest.rfind(':') {
            Some(at) if !rest.contains('/') => rest.split_at(at),
            Some(_) | None => (rest, ""),
        };
        if zone.contains(['{', '%', '$', '*']) {
            return Err(unclear(line, &format!("the zone {zone:?} is no name")));
        }
        let zone = match zone.trim_end_matches('.') {
            "" => ".",
            zone => zone,
        };
        Ok(Some(Self {
            is_dns: scheme == "dns",
            zone: zone.to_ascii_lowercase(),
            port: port.to_owned(),
        }))
    }
}

fn is_brace(word: &Word, brace: &str) -> bool {
    !word.is_quoted && word.text == brace
}

/// The words of a file, without comments.
fn words(text: &str) -> Result<Vec<Word>, CorefileError> {
    let mut words = Vec::new();
    let mut line = 1;
    let mut chars = text.chars().peekable();
    while let Some(first) = chars.next() {
        match first {
            '\n' => line += 1,
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            '"' => {
                let begins = line;
                let mut text = String::new();
                loop {
                    match chars.next() {
                        None => return Err(unclear(begins, "a quote that does not end")),
                        Some('"') => break,
                        Some('\\') if chars.peek() == Some(&'"') => text.extend(chars.next()),
                        Some(c) => {
                            line += usize::from(c == '\n');
                            text.push(c);
                        }
                    }
                }
                words.push(Word {
                    text,
                    line: begins,
                    is_quoted: true,
                });
            }
            c if c.is_whitespace() => {}
            c => {
                let mut text = String::from(c);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
                    text.push(c);
                }
                words.push(Word {
                    text,
                    line,
                    is_quoted: false,
                });
            }
        }
    }
    Ok(words)
}
