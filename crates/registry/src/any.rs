//! A registry of whichever backend the command line named.

use futures::stream::BoxStream;
use tokio::sync::watch;
use tombolo_model::io::RecordWrite;
use tombolo_model::record::Origin;

use crate::error::Error;
use crate::etcd::{Counts, EtcdRegistry};
use crate::event::Event;
use crate::key::{KeyRange, Layout};
use crate::memory::MemoryRegistry;
use crate::registry::{Page, Registry};
use crate::session::{NewSession, Opening, SessionEnd};

/// One cluster's registry.
#[derive(Debug)]
pub enum AnyRegistry {
    /// Within this process.
    Memory(MemoryRegistry),
    /// In etcd.
    Etcd(EtcdRegistry),
}

impl AnyRegistry {
    /// What happened so far, for metrics; `None` where nothing is counted.
    pub fn counts(&self) -> Option<Counts> {
        match self {
            Self::Memory(_) => None,
            Self::Etcd(registry) => Some(registry.counts()),
        }
    }
}

impl From<MemoryRegistry> for AnyRegistry {
    fn from(registry: MemoryRegistry) -> Self {
        Self::Memory(registry)
    }
}

impl From<EtcdRegistry> for AnyRegistry {
    fn from(registry: EtcdRegistry) -> Self {
        Self::Etcd(registry)
    }
}

impl Registry for AnyRegistry {
    fn origin(&self) -> &Origin {
        match self {
            Self::Memory(registry) => registry.origin(),
            Self::Etcd(registry) => registry.origin(),
        }
    }

    fn layout(&self) -> &Layout {
        match self {
            Self::Memory(registry) => registry.layout(),
            Self::Etcd(registry) => registry.layout(),
        }
    }

    async fn open(&self, opening: Opening) -> Result<u64, Error> {
        match self {
            Self::Memory(registry) => registry.open(opening).await,
            Self::Etcd(registry) => registry.open(opening).await,
        }
    }

    async fn amend(&self, session: NewSession) -> Result<u64, Error> {
        match self {
            Self::Memory(registry) => registry.amend(session).await,
            Self::Etcd(registry) => registry.amend(session).await,
        }
    }

    async fn leave(&self) -> Result<u64, Error> {
        match self {
            Self::Memory(registry) => registry.leave().await,
            Self::Etcd(registry) => registry.leave().await,
        }
    }

    fn session(&self) -> watch::Receiver<Option<u64>> {
        match self {
            Self::Memory(registry) => registry.session(),
            Self::Etcd(registry) => registry.session(),
        }
    }

    async fn apply(&self, batch: Vec<RecordWrite>) -> Result<u64, Error> {
        match self {
            Self::Memory(registry) => registry.apply(batch).await,
            Self::Etcd(registry) => registry.apply(batch).await,
        }
    }

    fn subscribe(&self) -> BoxStream<'static, Event> {
        match self {
            Self::Memory(registry) => registry.subscribe(),
            Self::Etcd(registry) => registry.subscribe(),
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        match self {
            Self::Memory(registry) => registry.changes(),
            Self::Etcd(registry) => registry.changes(),
        }
    }

    async fn scan(&self, range: KeyRange, limit: usize) -> Result<Page, Error> {
        match self {
            Self::Memory(registry) => registry.scan(range, limit).await,
            Self::Etcd(registry) => registry.scan(range, limit).await,
        }
    }

    async fn drive(&self) -> Result<(), Error> {
        match self {
            Self::Memory(registry) => registry.drive().await,
            Self::Etcd(registry) => registry.drive().await,
        }
    }

    async fn close(&self, session: SessionEnd) -> Result<(), Error> {
        match self {
            Self::Memory(registry) => registry.close(session).await,
            Self::Etcd(registry) => registry.close(session).await,
        }
    }
}
