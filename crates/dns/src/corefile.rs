//! The stub zone in the Corefile of a cluster's CoreDNS: put in, brought up to date, taken out.
//!
//! The stub is a server block of its own between two comments, at the beginning of the file, so
//! that taking it out leaves every other byte as it was. A file that is not understood to its end
//! is refused: a mistake here would take the whole cluster's DNS away.

mod read;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::Range;

use read::{Block, Corefile};

use crate::name::WireName;

/// The comments around the stub.
const BEGIN: &str =
    "# tombolo: begin stub zone (made by `tombolo dns-stub`, which also removes it)";
const END: &str = "# tombolo: end stub zone";

/// Why a Corefile is left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorefileError {
    /// It has something that is not understood.
    #[error("the Corefile is not understood: line {line}: {what}")]
    Unclear {
        /// Where, from 1 on.
        line: usize,
        /// What.
        what: String,
    },
    /// One of the zones is there already, not made by this.
    #[error("the Corefile has a server block for {zone} already, in line {line}; remove it first")]
    Taken {
        /// Which zone.
        zone: String,
        /// Where, from 1 on.
        line: usize,
    },
    /// Nothing says where the stub has to listen.
    #[error(
        "the Corefile has {count} server blocks for the root zone where one is needed, as the stub \
         zone listens where it does"
    )]
    NoRoot {
        /// How many there are.
        count: usize,
    },
}

/// A stub zone: who is asked for which zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stub {
    /// The zones.
    pub zones: Vec<WireName>,
    /// The servers that answer for them.
    pub servers: Vec<SocketAddr>,
    /// For how long answers are kept; 0 for not at all.
    pub cache_secs: u32,
}

impl Stub {
    /// The Corefile with this stub and no other of ours.
    ///
    /// # Errors
    /// When the file is not understood, or has one of the zones already.
    pub fn add_to(&self, text: &str) -> Result<String, CorefileError> {
        let rest = remove_stub(text)?;
        let corefile = Corefile::read(&rest)?;
        for block in &corefile.blocks {
            self.ensure_free(block)?;
        }
        let roots: Vec<&Block> = corefile.blocks.iter().filter(|b| b.is_root()).collect();
        let &[root] = roots.as_slice() else {
            return Err(CorefileError::NoRoot { count: roots.len() });
        };
        let port = root.root_port().unwrap_or_default();
        Ok(format!("{}{rest}", self.block(port, &root.binds)))
    }

    /// The stub alone, for a file that somebody else keeps; it listens on port 53.
    pub fn stanza(&self) -> String {
        self.block(":53", &[])
    }

    fn ensure_free(&self, block: &Block) -> Result<(), CorefileError> {
        for key in &block.keys {
            let zone = WireName::parse(&key.zone).ok();
            if let Some(zone) = zone.filter(|zone| key.is_dns && self.zones.contains(zone)) {
                return Err(CorefileError::Taken {
                    zone: zone.to_string(),
                    line: block.line,
                });
            }
        }
        Ok(())
    }

    fn block(&self, port: &str, binds: &[String]) -> String {
        let Self {
            zones,
            servers,
            cache_secs,
        } = self;
        let keys: Vec<String> = zones
            .iter()
            .map(|zone| format!("{}{port}", zone.to_string().trim_end_matches('.')))
            .collect();
        let mut lines = vec![BEGIN.to_owned(), format!("{} {{", keys.join(" "))];
        lines.extend(binds.iter().map(|bind| format!("    {bind}")));
        lines.push("    errors".to_owned());
        if *cache_secs > 0 {
            lines.push(format!("    cache {cache_secs}"));
            // What is kept is handed out in another order each time.
            lines.push("    loadbalance".to_owned());
        }
        let mut forward = "    forward .".to_owned();
        for server in servers {
            // Writing to a String cannot fail.
            let _infallible = write!(forward, " {server}");
        }
        lines.extend([forward, "}".to_owned(), END.to_owned()]);
        lines.join("\n") + "\n"
    }
}

/// The Corefile without our stub; the same where there is none.
///
/// # Errors
/// When the file is not understood, or somebody edited the comments around the stub.
pub fn remove_stub(text: &str) -> Result<String, CorefileError> {
    Corefile::read(text)?;
    let Some(range) = stub_range(text)? else {
        return Ok(text.to_owned());
    };
    let rest = format!("{}{}", &text[..range.start], &text[range.end..]);
    Corefile::read(&rest)?;
    Ok(rest)
}

/// Where our stub is, the comments' lines included.
fn stub_range(text: &str) -> Result<Option<Range<usize>>, CorefileError> {
    let mut begin: Option<usize> = None;
    let mut range = None;
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let next = at + line.len();
        let unclear = |what: &str| CorefileError::Unclear {
            line: index + 1,
            what: what.to_owned(),
        };
        match line.trim() {
            BEGIN if begin.is_some() || range.is_some() => {
                return Err(unclear("a second stub zone of tombolo begins"));
            }
            BEGIN => begin = Some(at),
            END => {
                let start = begin
                    .take()
                    .ok_or_else(|| unclear("a stub zone of tombolo ends that did not begin"))?;
                let inner = Corefile::read(&text[start..next])?;
                if inner.blocks.len() != 1 {
                    return Err(unclear("the stub zone of tombolo is not one server block"));
                }
                range = Some(start..next);
            }
            _ => {}
        }
        at = next;
    }
    if begin.is_some() {
        return Err(CorefileError::Unclear {
            line: text.lines().count(),
            what: "the stub zone of tombolo has no end".to_owned(),
        });
    }
    Ok(range)
}

#[cfg(test)]
mod tests;
