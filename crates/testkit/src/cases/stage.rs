//! What holds at each stage of a case: what the base says, with every step laid over it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::expect::{Blocked, Expect, Export, File, Query, Service};
use super::inputs::Inputs;

/// Namespace and name.
pub(crate) type Name = (String, String);

/// What must be true at one stage, in full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    /// By cluster, namespace and name.
    pub(crate) exports: BTreeMap<(String, String, String), Export>,
    pub(crate) services: BTreeMap<Name, Service>,
    /// Where a service has just gone from; in `services` it is absent from then on.
    pub(crate) gone: Vec<(String, Name)>,
    pub(crate) blocked: Option<Blocked>,
    /// Queries that belong to no single service.
    pub(crate) dns: Vec<Query>,
}

/// The stages of a case: the base, then one for each step.
pub(crate) fn all(file: &File, inputs: &[Inputs]) -> Result<Vec<Stage>> {
    let mut stages: Vec<Stage> = Vec::new();
    let said = std::iter::once(&file.expect).chain(file.steps.iter().map(|step| &step.expect));
    for (expect, inputs) in said.zip(inputs) {
        let before = stages.last().cloned().unwrap_or_default();
        let stage = before.then(expect, inputs);
        stage.ensure_readable(inputs)?;
        stages.push(stage);
    }
    Ok(stages)
}

impl Stage {
    fn then(mut self, expect: &Expect, inputs: &Inputs) -> Self {
        for service in self.services.values_mut() {
            service.dns.clear();
        }
        for service in &expect.services {
            self.services.insert(
                (service.namespace.clone(), service.name.clone()),
                service.clone(),
            );
        }
        self.gone.clear();
        for gone in &expect.gone {
            for name in gone.name.split(',').map(str::trim) {
                self.withdraw(&gone.namespace, name, &gone.clusters);
            }
        }
        self.exports.retain(|(cluster, namespace, name), _| {
            inputs
                .get(cluster, "ServiceExport", namespace, name)
                .is_some()
        });
        for export in &expect.exports {
            let key = (
                export.cluster.clone(),
                export.namespace.clone(),
                export.name.clone(),
            );
            self.exports.insert(key, export.clone());
        }
        self.blocked.clone_from(&expect.blocked);
        self.dns.clone_from(&expect.dns);
        self
    }

    fn withdraw(&mut self, namespace: &str, name: &str, clusters: &[String]) {
        let key = (namespace.to_owned(), name.to_owned());
        self.gone.extend(
            clusters
                .iter()
                .map(|cluster| (cluster.clone(), key.clone())),
        );
        if let Some(service) = self.services.get_mut(&key) {
            service
                .imported_in
                .retain(|cluster| !clusters.contains(cluster));
            service.absent_in.extend(clusters.iter().cloned());
        }
    }

    /// So that a mistake in `expect.yaml` shows when it is read, and not as a check that never
    /// fails.
    fn ensure_readable(&self, inputs: &Inputs) -> Result<()> {
        for service in self.services.values() {
            let named = service.imported_in.iter().chain(&service.absent_in);
            for cluster in named.chain(service.special_clusters()) {
                ensure!(inputs.clusters().contains(cluster), "no cluster {cluster}");
                service.content(cluster)?;
            }
        }
        for (cluster, namespace, name) in self.exports.keys() {
            ensure!(inputs.clusters().contains(cluster), "no cluster {cluster}");
            let export = inputs.get(cluster, "ServiceExport", namespace, name);
            ensure!(
                export.is_some(),
                "no ServiceExport {namespace}/{name} in {cluster}"
            );
        }
        Ok(())
    }
}
