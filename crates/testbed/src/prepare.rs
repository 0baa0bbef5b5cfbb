//! Everything that has to be there before a testbed can start.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    cache::Cache,
    gobuild::Builder,
    image::{ImageFile, ImageSpec},
    programs,
    progress::Progress,
    spec::Spec,
};

/// The programs of a testbed.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) etcd: PathBuf,
    /// Kubernetes and kubelet of each cluster.
    pub(crate) kubernetes: Vec<(PathBuf, PathBuf)>,
    pub(crate) coredns: PathBuf,
    pub(crate) images: Vec<ImageFile>,
}

impl Programs {
    /// Installs, builds and packs what is missing.
    pub(crate) fn prepare(spec: &Spec, cache: &Cache, progress: &Progress) -> Result<Self> {
        let builder = Builder::new(cache.clone(), progress.clone());
        if !spec.clusters.is_empty() {
            programs::ensure(programs::FOR_CLUSTERS, cache, progress)?;
        }
        let images = if spec.has_nodes() {
            programs::ensure(programs::FOR_NODES, cache, progress)?;
            vec![
                ImageSpec::pause().pack(cache, progress)?,
                ImageSpec::test()?.pack(cache, progress)?,
            ]
        } else {
            Vec::new()
        };
        let kubernetes = spec.clusters.iter().map(|cluster| {
            let programs = builder.kubernetes(cluster.kubernetes)?;
            let kubelet = if cluster.nodes > 0 {
                builder.kubernetes(cluster.kubernetes.kubelet())?
            } else {
                programs.clone()
            };
            Ok((programs, kubelet))
        });
        Ok(Self {
            etcd: builder.etcd()?,
            kubernetes: kubernetes.collect::<Result<_>>()?,
            coredns: if spec.clusters.iter().any(|cluster| cluster.dns) {
                builder.coredns()?
            } else {
                PathBuf::new()
            },
            images,
        })
    }
}
