//! The CRDs as manifests.

use anyhow::Context as _;
use serde_json::Value;

use super::File;

/// One manifest for each CRD.
pub(super) fn files() -> anyhow::Result<Vec<File>> {
    mcs_api::crds()
        .iter()
        .map(|crd| {
            let plural = &crd.spec.names.plural;
            let mut crd = serde_json::to_value(crd).context("a CRD is JSON")?;
            integers(&mut crd);
            let yaml = serde_saphyr::to_string(&crd).context("a CRD is YAML")?;
            Ok(File {
                path: format!("deploy/crds/{plural}.yaml"),
                contents: format!(
                    "# Made by `cargo xtask generate` from crates/mcs-api; do not edit.\n{yaml}"
                ),
            })
        })
        .collect()
}

/// Writes whole numbers as such: the limits in a schema are floating-point in the Rust types.
fn integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            #[expect(clippy::cast_possible_truncation, reason = "the fraction is zero")]
            if let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0) {
                *number = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(integers),
        Value::Object(fields) => fields.values_mut().for_each(integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    use super::*;

    #[test]
    fn manifests_hold_the_crds() {
        let files = files().unwrap();
        for (file, crd) in files.iter().zip(mcs_api::crds()) {
            let read: CustomResourceDefinition = serde_saphyr::from_str(&file.contents).unwrap();
            assert_eq!(read, crd, "{}", file.path);
        }
    }
}
