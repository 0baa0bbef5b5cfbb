//! Tombolo's own names: labels, annotations, managers (BEHAVIOUR, "Own names").

use mcs_api::well_known::LABEL_SERVICE_NAME;

use crate::names::{ObjectName, ServiceKey};
use crate::object::SliceObject;

/// Label on every object that Tombolo creates.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub const MANAGED_BY: &str = "tombolo";
/// Label that says which controller writes an EndpointSlice.
pub const LABEL_SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Its value on mirrored slices.
pub const SLICE_MANAGED_BY: &str = "controller.tombolo.dev";
/// Label that ties an EndpointSlice to its Service.
pub const LABEL_SLICE_SERVICE: &str = "kubernetes.io/service-name";
/// Label on the slices of headless Services.
pub const LABEL_HEADLESS: &str = "service.kubernetes.io/headless";
/// Label on the slices of a cluster that is not heard of, whose endpoints are kept because no live
/// cluster has any.
pub const LABEL_KEPT_LAST: &str = "tombolo.dev/kept-last";
/// Annotation on a ServiceImport: the addresses its derived Service had last, comma-joined.
pub const ANNOTATION_ADDRESSES: &str = "tombolo.dev/addresses";
/// Annotation on a Namespace: whether it takes part in the clusterset.
pub const ANNOTATION_GLOBAL: &str = "tombolo.dev/global";
/// Field manager of all writes.
pub const FIELD_MANAGER: &str = "tombolo";
/// The zone in hints for endpoints that have none: kube-proxy ignores all hints of a Service if
/// one endpoint has none.
pub const NO_ZONE: &str = "tombolo-no-zone";
/// The node in hints for endpoints that are on no node of this cluster: a valid name that no node
/// has.
pub const NO_NODE: &str = "no-node.tombolo.dev";

/// Managers of slices that stand for pods of other clusters, or repeat other slices: never
/// exported again. Those of Cilium (mesh and mirror), Lighthouse, Karmada and Liqo.
pub const FOREIGN_SLICE_MANAGERS: [&str; 5] = [
    "endpointslice-mesh-controller.cilium.io",
    "endpointslice-local-mcsapi-controller.cilium.io",
    "lighthouse-agent.submariner.io",
    "endpointslice-dispatch-controller.karmada.io",
    "endpointslice.reflection.liqo.io",
];

/// Prefixes of annotations that other tools keep on objects they do not own: left alone.
pub const OTHER_TOOLS_PREFIXES: [&str; 8] = [
    "kubectl.kubernetes.io/",
    "argocd.argoproj.io/",
    "cloud.google.com/",
    "config.kubernetes.io/",
    "helm.toolkit.fluxcd.io/",
    "internal.config.kubernetes.io/",
    "kustomize.toolkit.fluxcd.io/",
    "meta.helm.sh/",
];

/// The import that a slice of ours was made for; `None` for every other slice.
pub fn import_of(slice: &SliceObject) -> Option<ServiceKey> {
    if slice.meta.label(LABEL_SLICE_MANAGED_BY) != Some(SLICE_MANAGED_BY) {
        return None;
    }
    let name = slice.meta.label(LABEL_SERVICE_NAME)?;
    Some(slice.meta.key.sibling(&ObjectName::new(name)))
}
