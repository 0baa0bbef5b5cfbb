//! The files below a directory, read once and again as they change.
//!
//! A file is read again when its length, time of change or inode is another. What a file held
//! last counts until it is read well again: a document that does not parse, or a file that is just
//! being written, withdraws nothing. Only a document or file that is really gone does.

mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tombolo_model::names::Namespace;
use tombolo_model::object::ObjectRef;

use self::walk::{Fingerprint, Walk};
use super::document::{self, Document};
use super::object::{Contents, Found, Read};
use super::{Declared, Place, Problem};
use crate::convert::Strings;

/// Longer files are not read: a cluster of 100,000 endpoints is a tenth of it.
const FILE_LEN_MAX: u64 = 256 << 20;

/// A file that is empty or does not parse so soon after its last change is still being written.
const SETTLE: SignedDuration = SignedDuration::from_secs(1);

/// A file whose length changes while it is read is read this often.
const READS_MAX: usize = 5;

/// Why a directory cannot be read as a cluster.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The directory is not there, or may not be listed.
    #[error("cannot read the directory {}", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path is that of a file.
    #[error("{} is not a directory: give a directory of manifests", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// There is no manifest.
    #[error("there is no *.yaml, *.yml or *.json below {}", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
}

impl TreeError {
    /// A word for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::List { .. } => "List",
            Self::NotADirectory { .. } => "NotADirectory",
            Self::Empty { .. } => "Empty",
        }
    }

    /// Whether it may go away by itself.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::List { .. } => true,
            Self::NotADirectory { .. } | Self::Empty { .. } => false,
        }
    }
}

/// What came of reading a directory again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// How many files were read, as they had changed, or are gone.
    pub files_changed: usize,
    /// Whether other directories than before cannot be listed.
    pub problems_changed: bool,
    /// Whether a file seems to be being written, so that another scan is needed soon even if
    /// nothing else happens.
    pub unsettled: bool,
}

/// A directory and what its files hold.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    files: BTreeMap<Arc<Path>, FileState>,
    /// Directories that could not be listed.
    problems: Vec<Problem>,
    links: bool,
}

/// What is known of one file.
#[derive(Debug)]
struct FileState {
    /// As it was when it was read; `None`: to be read again whatever it looks like.
    fingerprint: Option<Fingerprint>,
    objects: Vec<Found<Declared>>,
    /// The namespaces of its other objects.
    namespaces: BTreeSet<Namespace>,
    faults: Vec<Found<String>>,
    /// What is wrong with the file as a whole.
    unreadable: Option<String>,
}

impl Tree {
    /// Reads a directory for the first time.
    pub fn read(root: &Path, now: Timestamp, strings: &mut Strings) -> Result<Self, TreeError> {
        let error = |source| TreeError::List {
            path: root.to_owned(),
            source,
        };
        if !root.metadata().map_err(error)?.is_dir() {
            return Err(TreeError::NotADirectory {
                path: root.to_owned(),
            });
        }
        std::fs::read_dir(root).map_err(error)?;
        let mut tree = Self {
            root: root.to_owned(),
            files: BTreeMap::new(),
            problems: Vec::new(),
            links: false,
        };
        tree.rescan(now, strings);
        if tree.files.is_empty() && tree.problems.is_empty() {
            return Err(TreeError::Empty {
                path: root.to_owned(),
            });
        }
        Ok(tree)
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether symbolic links lead to files elsewhere, whose changes a watch of the directory does
    /// not show.
    pub fn has_links(&self) -> bool {
        self.links
    }

    /// Reads what has changed since the last time.
    pub fn rescan(&mut self, now: Timestamp, strings: &mut Strings) -> Scan {
        let walk = Walk::of(&self.root);
        let mut scan = Scan::default();
        let keep = |path: &Path| {
            walk.files.contains_key(path) || walk.unlisted.iter().any(|dir| path.starts_with(dir))
        };
        let before = self.files.len();
        self.files.retain(|path, _| keep(path));
        scan.files_changed += before - self.files.len();
        for (path, found) in walk.files {
            let state = self.files.get(&*path);
            let known = state.and_then(|state| state.fingerprint);
            if known.is_some() && known == found.as_ref().ok().copied() {
                continue;
            }
            scan.files_changed += 1;
            let mut new = FileState::read(&path, found, strings);
            let last = self.files.remove(&*path);
            scan.unsettled |= new.settle(last, now);
            self.files.insert(path, new);
        }
        scan.problems_changed = self.problems != walk.problems;
        self.problems = walk.problems;
        self.links = walk.links;
        scan
    }

    /// All objects, in the order of files and documents.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&Arc<Path>, &Found<Declared>)> {
        let files = self.files.iter();
        files.flat_map(|(path, state)| state.objects.iter().map(move |found| (path, found)))
    }

    /// The namespaces of the objects that nobody needs.
    pub(super) fn other_namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.files.values().flat_map(|state| &state.namespaces)
    }

    /// Everything that is wrong with files and directories themselves.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let files = self.files.iter();
        let of_files = files.flat_map(|(path, state)| state.problems(path));
        self.problems.iter().cloned().chain(of_files)
    }
}

impl Tree {
    /// Documents that were read elsewhere, as if they were those of a file of this name.
    pub fn of_documents(name: &str, documents: Vec<Value>, strings: &mut Strings) -> Self {
        let mut contents = Contents::<Declared>::new();
        for (document, json) in (1..).zip(documents) {
            contents.add(json, Place { document, line: 1 }, strings);
        }
        let state = FileState {
            fingerprint: None,
            objects: contents.found,
            namespaces: contents.namespaces,
            faults: contents.faults,
            unreadable: None,
        };
        let path: Arc<Path> = Path::new(name).into();
        Self {
            root: PathBuf::from(name),
            files: BTreeMap::from([(path, state)]),
            problems: Vec::new(),
            links: false,
        }
    }
}

// === impl FileState ===

impl FileState {
    fn read(path: &Path, found: io::Result<Fingerprint>, strings: &mut Strings) -> Self {
        let read = found.and_then(|_| read_stable(path));
        let (fingerprint, text) = match read {
            Ok(read) => read,
            Err(error) => {
                return Self {
                    fingerprint: None,
                    objects: Vec::new(),
                    namespaces: BTreeSet::new(),
                    faults: Vec::new(),
                    unreadable: Some(format!("cannot be read: {error}")),
                };
            }
        };
        let contents = parse::<Declared>(path, &text, strings);
        Self {
            fingerprint,
            objects: contents.found,
            namespaces: contents.namespaces,
            faults: contents.faults,
            unreadable: None,
        }
    }

    /// Whether documents may be missing here that are there once the file is written.
    fn is_broken(&self) -> bool {
        self.unreadable.is_some() || self.faults.iter().any(|fault| is_syntax(&fault.what))
    }

    /// Keeps of the file's last state what a broken or half-written one may be missing. Tells
    /// whether the file has to be looked at again soon.
    fn settle(&mut self, last: Option<Self>, now: Timestamp) -> bool {
        let is_young = self.fingerprint.is_none_or(|f| f.is_within(SETTLE, now));
        let is_blank = self.objects.is_empty() && self.faults.is_empty();
        let unsettled = is_young && (self.is_broken() || is_blank && last.is_some());
        if unsettled && self.unreadable.is_none() {
            self.fingerprint = None;
        }
        let Some(last) = last else { return unsettled };
        if self.is_broken() || unsettled {
            let have: BTreeSet<ObjectRef> =
                self.objects.iter().map(|f| f.what.reference()).collect();
            let missing = last.objects.into_iter();
            self.objects
                .extend(missing.filter(|f| !have.contains(&f.what.reference())));
            self.namespaces.extend(last.namespaces);
        }
        unsettled
    }

    fn problems(&self, path: &Arc<Path>) -> impl Iterator<Item = Problem> {
        let problem = |place: Option<Place>, reason: &String| Problem {
            file: Arc::clone(path),
            place,
            reason: reason.clone(),
        };
        let faults = self.faults.iter();
        let whole = self.unreadable.iter().map(move |r| problem(None, r));
        whole.chain(faults.map(move |fault| problem(Some(fault.place), &fault.what)))
    }
}

/// Whether a fault is one of syntax: then nobody knows which objects the document has.
fn is_syntax(reason: &str) -> bool {
    reason.starts_with("YAML: ") || reason.starts_with("JSON: ")
}

/// A file's text, and how the file looked while it did not change under the reader. Without a
/// fingerprint it did change.
fn read_stable(path: &Path) -> io::Result<(Option<Fingerprint>, String)> {
    let mut before = Fingerprint::of(path)?;
    let mut tries = 1;
    loop {
        if before.len > FILE_LEN_MAX {
            let text = format!("it is longer than {} MiB", FILE_LEN_MAX >> 20);
            return Err(io::Error::other(text));
        }
        let bytes = std::fs::read(path)?;
        let after = Fingerprint::of(path)?;
        let is_stable = before == after;
        if is_stable || tries == READS_MAX {
            let text =
                String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))?;
            return Ok((is_stable.then_some(after), text));
        }
        before = after;
        tries += 1;
    }
}

/// Reads all documents of a file.
fn parse<T: Read>(path: &Path, text: &str, strings: &mut Strings) -> Contents<T> {
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let documents = if is_json {
        document::json(text)
    } else {
        document::yaml(text)
    };
    let mut contents = Contents::new();
    for Document { place, value } in documents {
        match value {
            Ok(json) => contents.add(json, place, strings),
            Err(reason) => contents.fault(place, reason),
        }
    }
    contents
}

/// Something found, and the file it was found in.
pub(crate) type FoundIn<T> = (Arc<Path>, Found<T>);

/// Everything in a directory at once, for those who do not come back to see changes.
pub(crate) fn read_once<T: Read>(
    root: &Path,
    strings: &mut Strings,
) -> (Vec<FoundIn<T>>, Vec<Problem>) {
    let walk = Walk::of(root);
    let mut problems = walk.problems;
    let mut all = Vec::new();
    for (path, found) in walk.files {
        let problem = |place, reason| Problem {
            file: Arc::clone(&path),
            place,
            reason,
        };
        match found.and_then(|_| read_stable(&path)) {
            Err(error) => problems.push(problem(None, format!("cannot be read: {error}"))),
            Ok((_, text)) => {
                let Contents {
                    found,
                    faults,
                    namespaces: _,
                } = parse::<T>(&path, &text, strings);
                all.extend(found.into_iter().map(|found| (Arc::clone(&path), found)));
                let faults = faults.into_iter();
                problems.extend(faults.map(|fault| problem(Some(fault.place), fault.what)));
            }
        }
    }
    (all, problems)
}
