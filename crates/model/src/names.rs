//! Names: of clusters, regions, namespaces and services, and the key that most of the model is
//! about. Each is checked where it enters; inside, a name is known to be good.
//!
//! An [`ObjectName`] of a local object was checked by its API server for what that kind allows, so
//! it is taken as it is; what comes from another cluster goes through [`check_service_name`] and
//! [`Namespace::try_new`].

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use data_encoding::BASE32HEX_NOPAD;
use sha2::{Digest, Sha256};

/// The longest DNS label, and so the longest Service, namespace and cluster name (RFC 1123).
pub const LABEL_LEN_MAX: usize = 63;

/// Why a name cannot be used. The text names the name and says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {name:?} {problem}")]
pub struct NameError {
    what: &'static str,
    name: String,
    problem: String,
}

impl NameError {
    fn new(what: &'static str, name: &str, problem: impl Into<String>) -> Self {
        // A hostile name may be long: its head is enough to find it.
        let name = name.chars().take(2 * LABEL_LEN_MAX).collect();
        Self {
            what,
            name,
            problem: problem.into(),
        }
    }
}

/// What is wrong with a DNS label of RFC 1123, if anything.
fn label_problem(label: &str) -> Option<String> {
    if label.is_empty() {
        return Some("has an empty label".to_owned());
    }
    if label.len() > LABEL_LEN_MAX {
        return Some(format!(
            "has {} characters, at most 63 are allowed",
            label.len()
        ));
    }
    let bad: Vec<&str> = [
        (label.bytes().any(|b| b.is_ascii_uppercase()), "upper case"),
        (label.contains('_'), "underscore"),
        (
            label
                .chars()
                .any(|c| !c.is_ascii_alphanumeric() && c != '-' && c != '_'),
            "any other character but a-z, 0-9 and '-'",
        ),
    ]
    .into_iter()
    .filter_map(|(found, word)| found.then_some(word))
    .collect();
    if !bad.is_empty() {
        let verb = if bad.len() == 1 { "is" } else { "are" };
        return Some(format!(
            "is not an RFC 1123 label: {} {verb} not allowed in it",
            bad.join(" and ")
        ));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Some(
            "is not an RFC 1123 label: it must start and end with a letter or digit".to_owned(),
        );
    }
    None
}

/// A cluster's id in the clusterset: one DNS label, or two (`name.registry`), at most 63
/// characters in all as it is used as a label value (KEP-2149).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterName(Arc<str>);

impl ClusterName {
    /// Checks and takes a name.
    pub fn try_new(name: &str) -> Result<Self, NameError> {
        let error = |problem: String| Err(NameError::new("cluster name", name, problem));
        if name.is_empty() {
            return error("is empty: give the cluster a name".to_owned());
        }
        if name.len() > LABEL_LEN_MAX {
            return error(format!(
                "has {} characters, at most 63 are allowed",
                name.len()
            ));
        }
        if name.split('.').count() > 2 {
            return error(
                "has too many labels: at most two labels are allowed (name, or name.registry)"
                    .to_owned(),
            );
        }
        match name.split('.').find_map(label_problem) {
            Some(problem) => error(problem),
            None => Ok(Self(name.into())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A region: the clusters that share one etcd. One DNS label.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Region(Arc<str>);

impl Region {
    /// Checks and takes a name.
    pub fn try_new(name: &str) -> Result<Self, NameError> {
        match label_problem(name) {
            Some(problem) => Err(NameError::new("region", name, problem)),
            None => Ok(Self(name.into())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A namespace: one DNS label.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks and takes a name.
    pub fn try_new(name: &str) -> Result<Self, NameError> {
        match label_problem(name) {
            Some(problem) => Err(NameError::new("namespace", name, problem)),
            None => Ok(Self(name.into())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a namespaced Kubernetes object, as its API server accepted it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName(Arc<str>);

impl ObjectName {
    /// Takes a name that an API server accepted, or that this crate built.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a Service of Kubernetes 1.33 can have this name: an RFC 1035 label, which starts with a
/// letter.
pub fn check_service_name(name: &str) -> Result<(), NameError> {
    if let Some(problem) = label_problem(name) {
        return Err(NameError::new("service name", name, problem));
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(NameError::new(
            "service name",
            name,
            "is not an RFC 1035 label: it must start with a letter",
        ));
    }
    Ok(())
}

/// Whether an endpoint can have this host name: an RFC 1123 label.
pub fn check_hostname(name: &str) -> Result<(), NameError> {
    match label_problem(name) {
        Some(problem) => Err(NameError::new("host name", name, problem)),
        None => Ok(()),
    }
}

/// Whether a tool may store its configuration of a service under this kind: one DNS label.
pub fn check_config_kind(kind: &str) -> Result<(), NameError> {
    match label_problem(kind) {
        Some(problem) => Err(NameError::new("configuration kind", kind, problem)),
        None => Ok(()),
    }
}

macro_rules! text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}

text!(ClusterName, Region, Namespace, ObjectName);

/// Names a service of the clusterset, and every object that has its name: `namespace/name`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// The namespace, the same in every cluster (namespace sameness, KEP-1645).
    pub namespace: Namespace,
    /// The Service's name. A ServiceExport may carry a name that no Service can have.
    pub name: ObjectName,
}

impl ServiceKey {
    /// The key of `name` in `namespace`.
    pub fn new(namespace: Namespace, name: ObjectName) -> Self {
        Self { namespace, name }
    }

    /// The same namespace, another name.
    #[must_use]
    pub fn sibling(&self, name: &ObjectName) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: name.clone(),
        }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// How the derived Service of an import is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DerivedNaming {
    /// `derived-` and the first 10 characters of the lower-case base32hex SHA-256 of
    /// `namespace/name`: always short enough.
    #[default]
    Hash,
    /// `<name>-clusterset`: readable, impossible for names longer than 52 characters.
    Suffix,
}

impl DerivedNaming {
    /// The derived Service's name for `key`.
    pub fn name(self, key: &ServiceKey) -> Result<ObjectName, NameError> {
        match self {
            Self::Hash => {
                let hash = Sha256::digest(format!("{key}"));
                let text = BASE32HEX_NOPAD.encode(&hash).to_ascii_lowercase();
                Ok(ObjectName(format!("derived-{}", &text[..10]).into()))
            }
            Self::Suffix => {
                let name = format!("{}-clusterset", key.name);
                if name.len() > LABEL_LEN_MAX {
                    let problem = "is too long for a derived Service called <name>-clusterset: \
                                   at most 52 characters are allowed with that naming";
                    return Err(NameError::new("service name", key.name.as_str(), problem));
                }
                Ok(ObjectName(name.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_names_are_one_or_two_labels() {
        for good in ["east", "east.prod", "c-1", "0", &"a".repeat(63)] {
            assert!(ClusterName::try_new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-a",
            "a-",
            "a.",
            ".a",
            "a.b.c",
            "a..b",
            "ä",
            "a b",
            &"a".repeat(64),
        ] {
            assert!(ClusterName::try_new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_cluster_name_is_named_with_the_reason() {
        let text = |name| ClusterName::try_new(name).unwrap_err().to_string();
        assert_eq!(
            text("East_1"),
            "cluster name \"East_1\" is not an RFC 1123 label: upper case and underscore are not \
             allowed in it"
        );
        assert!(text("a.b.c").contains("at most two labels are allowed (name, or name.registry)"));
    }

    #[test]
    fn a_service_name_starts_with_a_letter() {
        assert!(check_service_name("a1").is_ok());
        assert!(check_service_name("1a").is_err());
        assert!(check_service_name("a.b").is_err());
    }

    #[test]
    fn the_derived_name_is_that_of_the_other_implementations() {
        let key = ServiceKey::new(
            Namespace::try_new("shop").unwrap(),
            ObjectName::new("checkout"),
        );
        assert_eq!(
            DerivedNaming::Hash.name(&key).unwrap().as_str(),
            "derived-3nu2t9bf4f"
        );
        assert_eq!(
            DerivedNaming::Suffix.name(&key).unwrap().as_str(),
            "checkout-clusterset"
        );
        let long = ServiceKey::new(key.namespace, ObjectName::new(&"a".repeat(53)));
        assert!(DerivedNaming::Suffix.name(&long).is_err());
    }
}
