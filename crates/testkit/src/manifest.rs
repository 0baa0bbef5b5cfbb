//! Manifests as text, the way users write them: as little as works.

use std::fmt::Write as _;

/// A Namespace.
pub fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")
}

/// A Service with one TCP port `http`, whose pods listen at 8080.
pub fn service(namespace: &str, name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\n{}spec:\n  ports:\n  - name: http\n    port: {port}\n    \
         targetPort: 8080\n",
        metadata(namespace, name)
    )
}

/// A v1beta1 ServiceExport that was made at the start of a day of January 2026.
pub fn export(namespace: &str, name: &str, day: u8) -> String {
    format!(
        "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\n{}  creationTimestamp: \
         '2026-01-{day:02}T00:00:00Z'\n",
        metadata(namespace, name)
    )
}

/// An EndpointSlice `<service>-1` with ready endpoints.
pub fn slice(namespace: &str, service: &str, addresses: &[&str]) -> String {
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n{}  labels:\n    \
         kubernetes.io/service-name: {service}\naddressType: IPv4\nports:\n- name: http\n  \
         protocol: TCP\n  port: 8080\nendpoints:\n",
        metadata(namespace, &format!("{service}-1"))
    );
    for address in addresses {
        // Writing to a string cannot fail.
        let _written = writeln!(text, "- addresses:\n  - {address}");
    }
    if addresses.is_empty() {
        text.push_str("  []\n");
    }
    text
}

/// Documents of one file.
pub fn documents(documents: &[String]) -> String {
    documents.join("---\n")
}

/// An exported Service with one endpoint, in one file.
pub fn exported(namespace: &str, name: &str, day: u8, address: &str) -> String {
    documents(&[
        self::namespace(namespace),
        service(namespace, name, 80),
        slice(namespace, name, &[address]),
        export(namespace, name, day),
    ])
}

fn metadata(namespace: &str, name: &str) -> String {
    format!("metadata:\n  name: {name}\n  namespace: {namespace}\n")
}
