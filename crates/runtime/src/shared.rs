//! The registry through which the clusters of a process meet: in its memory, or the etcd of a real
//! clusterset.

use std::sync::Arc;

use futures::stream::BoxStream;
use tombolo_model::names::{ClusterName, Region};
use tombolo_model::record::Origin;
use tombolo_registry::any::AnyRegistry;
use tombolo_registry::etcd::{EtcdConfig, EtcdRegistry};
use tombolo_registry::event::Event;
use tombolo_registry::key::Layout;
use tombolo_registry::memory::MemoryStore;
use tombolo_registry::registry::{REGION_DEFAULT, Registry as _};

use crate::input::{Refusal, chain};
use crate::registry::RegistryArgs;

/// The registry of the clusters of this process.
pub(crate) enum Shared {
    /// Of nobody else.
    Memory(Arc<MemoryStore>),
    /// Of others too.
    Etcd {
        /// How it is reached.
        config: Box<EtcdConfig>,
        /// The region that this process is in.
        region: Region,
    },
}

impl Shared {
    /// One of this process alone.
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryStore::new(Layout::default()))
    }

    /// The one that the command line names; without one, one of this process alone.
    pub(crate) fn of(args: &RegistryArgs) -> Result<Self, Refusal> {
        if args.registry.is_empty() {
            return Ok(Self::memory());
        }
        Ok(Self::Etcd {
            config: Box::new(args.config()?),
            region: args.region()?,
        })
    }

    /// Whether others read and write it too.
    pub(crate) fn is_of_others(&self) -> bool {
        matches!(self, Self::Etcd { .. })
    }

    /// A cluster's place in it.
    pub(crate) fn registry(&self, cluster: ClusterName) -> Result<AnyRegistry, Refusal> {
        match self {
            Self::Memory(store) => {
                let region = Region::try_new(REGION_DEFAULT);
                let region = region.map_err(|error| Refusal::failed(chain(&error)))?;
                Ok(store.registry(Origin { region, cluster }).into())
            }
            Self::Etcd { config, region } => {
                let region = region.clone();
                let config = (**config).clone();
                let etcd = EtcdRegistry::try_new(config, Origin { region, cluster });
                let etcd = etcd.map_err(|error| Refusal::usage(vec![error.to_string()]))?;
                Ok(etcd.into())
            }
        }
    }

    /// Everything in it and what changes, for all clusters of the process.
    pub(crate) fn subscribe(&self) -> Result<BoxStream<'static, Event>, Refusal> {
        match self {
            Self::Memory(store) => Ok(store.subscribe()),
            Self::Etcd { .. } => {
                let reader = ClusterName::try_new("reader");
                let reader = reader.map_err(|error| Refusal::failed(chain(&error)))?;
                Ok(self.registry(reader)?.subscribe())
            }
        }
    }
}
