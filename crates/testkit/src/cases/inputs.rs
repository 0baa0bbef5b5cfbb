//! The objects of a case's clusters before the product runs, read without the product.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Names an object: cluster, kind, namespace (empty for a Namespace), name.
type Key = (String, String, String, String);

/// The objects of every cluster.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    clusters: Vec<String>,
    objects: BTreeMap<Key, Value>,
}

/// One object of one cluster.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    /// The cluster that holds it.
    pub cluster: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace; empty for a Namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// All of it.
    pub value: &'a Value,
}

impl Inputs {
    /// Reads a folder with a directory per cluster.
    pub(crate) fn read(clusters_dir: &Path) -> Result<Self> {
        let mut inputs = Self::default();
        for (cluster, dir) in directories(clusters_dir)? {
            inputs.clusters.push(cluster.clone());
            for value in documents_below(&dir)? {
                inputs.objects.insert(key(&cluster, &value)?, value);
            }
        }
        Ok(inputs)
    }

    /// Applies a step's folder.
    pub(crate) fn change(&mut self, step_dir: &Path) -> Result<()> {
        for verb in ["delete", "apply"] {
            let dir = step_dir.join(verb);
            if !dir.exists() {
                continue;
            }
            for (cluster, dir) in directories(&dir)? {
                for value in documents_below(&dir)? {
                    let key = key(&cluster, &value)?;
                    if verb == "apply" {
                        self.objects.insert(key, value);
                    } else {
                        self.delete(&key)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A Namespace takes what it holds with it.
    fn delete(&mut self, key: &Key) -> Result<()> {
        ensure!(
            self.objects.remove(key).is_some(),
            "deletes what is not there: {key:?}"
        );
        let (cluster, kind, _, name) = key;
        if kind == "Namespace" {
            self.objects
                .retain(|(c, _, ns, _), _| (c, ns) != (cluster, name));
        }
        Ok(())
    }

    /// The clusters, in order of their names.
    pub fn clusters(&self) -> &[String] {
        &self.clusters
    }

    /// Every object.
    pub fn objects(&self) -> impl Iterator<Item = Object<'_>> {
        self.objects
            .iter()
            .map(|((cluster, kind, namespace, name), value)| Object {
                cluster,
                kind,
                namespace,
                name,
                value,
            })
    }

    /// One object.
    pub fn get(&self, cluster: &str, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let [cluster, kind, namespace, name] = [cluster, kind, namespace, name].map(str::to_owned);
        self.objects.get(&(cluster, kind, namespace, name))
    }
}

fn key(cluster: &str, value: &Value) -> Result<Key> {
    let text = |pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let kind = text("/kind").with_context(|| format!("an object without kind: {value}"))?;
    let name = text("/metadata/name").with_context(|| format!("no name: {value}"))?;
    let namespace = text("/metadata/namespace").unwrap_or_default();
    Ok((cluster.to_owned(), kind, namespace, name))
}

/// The directories directly below one, by name.
pub(crate) fn directories(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push((
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            ));
        }
    }
    found.sort();
    Ok(found)
}

/// Every document of the YAML files in a directory, in the order of the files' names.
pub(crate) fn documents_below(dir: &Path) -> Result<Vec<Value>> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .with_context(|| dir.display().to_string())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| file.display().to_string())?;
        all.extend(documents.into_iter().filter(|document| !document.is_null()));
    }
    Ok(all)
}
