//! ServiceExports and the conditions that both kinds of the API have. Objects of v1alpha1 turn into
//! those of v1beta1 before they come here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as K8sCondition, Time};
use mcs_api::v1beta1::{ServiceExport, ServiceExportSpec, ServiceExportStatus};
use tombolo_model::object::{Condition, ExportObject, Kind};

use super::meta::{labels, write_labels};
use super::{Rejected, Strings, meta};

/// A ServiceExport as the model sees it.
pub fn observe_export(
    object: &ServiceExport,
    strings: &mut Strings,
) -> Result<ExportObject, Rejected> {
    let status = object.status.as_ref();
    let conditions = status.map(|s| s.conditions.as_slice()).unwrap_or_default();
    Ok(ExportObject {
        meta: meta::observe(Kind::ServiceExport, &object.metadata, strings)?,
        labels: labels(Some(&object.spec.exported_labels), strings),
        annotations: labels(Some(&object.spec.exported_annotations), strings),
        conditions: observe_conditions(conditions, strings),
    })
}

pub(super) fn observe_conditions(
    conditions: &[K8sCondition],
    strings: &mut Strings,
) -> Vec<Condition> {
    let read = |condition: &K8sCondition| Condition {
        kind: strings.share(&condition.type_),
        status: strings.share(&condition.status),
        reason: strings.share(&condition.reason),
        message: condition.message.as_str().into(),
        observed_generation: condition.observed_generation,
        last_transition: condition.last_transition_time.0,
    };
    conditions.iter().map(read).collect()
}

/// A ServiceExport to send or to show.
pub fn write_export(object: &ExportObject) -> ServiceExport {
    let ExportObject {
        meta,
        labels,
        annotations,
        conditions,
    } = object;
    ServiceExport {
        metadata: meta::write(meta),
        spec: ServiceExportSpec {
            exported_labels: write_labels(labels).unwrap_or_default(),
            exported_annotations: write_labels(annotations).unwrap_or_default(),
        },
        status: (!conditions.is_empty()).then(|| ServiceExportStatus {
            conditions: write_conditions(conditions),
        }),
    }
}

pub(crate) fn write_conditions(conditions: &[Condition]) -> Vec<K8sCondition> {
    let write = |condition: &Condition| {
        let Condition {
            kind,
            status,
            reason,
            message,
            observed_generation,
            last_transition,
        } = condition;
        K8sCondition {
            type_: kind.to_string(),
            status: status.to_string(),
            reason: reason.to_string(),
            message: message.to_string(),
            observed_generation: *observed_generation,
            last_transition_time: Time(*last_transition),
        }
    };
    conditions.iter().map(write).collect()
}
