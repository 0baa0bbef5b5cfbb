//! Kubeconfig files: one per cluster, and one with a context per cluster.

use std::fmt::Write as _;

/// How to reach one cluster as its administrator.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) name: String,
    pub(crate) server: String,
    /// PEM of the API server's own authority.
    pub(crate) authority: String,
    pub(crate) token: String,
}

/// A kubeconfig with a context for each cluster, of the cluster's name; the first is current.
pub(crate) fn kubeconfig(clusters: &[Access]) -> String {
    let mut text = String::from("apiVersion: v1\nkind: Config\n");
    if let Some(first) = clusters.first() {
        writeln!(text, "current-context: {}", first.name).expect(WRITES);
    }
    text.push_str("clusters:\n");
    for Access {
        name,
        server,
        authority,
        ..
    } in clusters
    {
        let authority = data_encoding::BASE64.encode(authority.as_bytes());
        writeln!(
            text,
            "- name: {name}\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {authority}"
        )
        .expect(WRITES);
    }
    text.push_str("users:\n");
    for Access { name, token, .. } in clusters {
        writeln!(text, "- name: {name}-admin\n  user:\n    token: {token}").expect(WRITES);
    }
    text.push_str("contexts:\n");
    for Access { name, .. } in clusters {
        writeln!(
            text,
            "- name: {name}\n  context:\n    cluster: {name}\n    user: {name}-admin"
        )
        .expect(WRITES);
    }
    text
}

const WRITES: &str = "writing to a String does not fail";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_per_cluster() {
        let access = |name: &str| Access {
            name: name.into(),
            server: "https://127.0.0.1:1".into(),
            authority: "pem".into(),
            token: "t".into(),
        };
        let text = kubeconfig(&[access("a"), access("b")]);
        assert!(text.starts_with("apiVersion: v1\nkind: Config\ncurrent-context: a\n"));
        assert!(text.contains("    certificate-authority-data: cGVt\n"));
        assert!(text.ends_with("- name: b\n  context:\n    cluster: b\n    user: b-admin\n"));
    }
}
