//! The etcd backend on real etcd: the battery, and what only etcd can do.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test crate")]

use etcd_client::Client;
use tokio::sync::{Mutex, RwLock, RwLockReadGuard};
use tombolo_model::record::Origin;
use tombolo_registry::etcd::{EtcdConfig, EtcdRegistry};
use tombolo_registry::key::Layout;

#[path = "battery/suite.rs"]
mod battery;
#[path = "etcd/access.rs"]
mod etcd_access;
#[path = "etcd/members.rs"]
mod etcd_members;
#[path = "etcd/replication.rs"]
mod etcd_replication;
#[path = "etcd/sessions.rs"]
mod etcd_sessions;
#[path = "etcd/watches.rs"]
mod etcd_watches;
#[path = "etcd/server.rs"]
mod server;

use self::battery::Backend;
use self::server::{Server, fresh_root};

/// A compaction is felt by all tests on one server: it waits for the others, and they for it.
static COMPACTION: RwLock<()> = RwLock::const_new(());

/// A root of its own on the shared server.
struct Etcd {
    server: std::sync::Arc<Server>,
    layout: Layout,
    undisturbed: Mutex<Option<RwLockReadGuard<'static, ()>>>,
}

impl Etcd {
    fn config(&self) -> EtcdConfig {
        let mut config = self.server.config();
        config.layout = self.layout.clone();
        config
    }

    async fn client(&self) -> Client {
        self.server.client().await
    }
}

impl Backend for Etcd {
    type Registry = EtcdRegistry;

    async fn start() -> Self {
        let undisturbed = COMPACTION.read().await;
        Self {
            server: Server::shared(),
            layout: fresh_root(),
            undisturbed: Mutex::new(Some(undisturbed)),
        }
    }

    fn registry(&self, origin: &Origin) -> EtcdRegistry {
        server::driven(self.config(), origin)
    }

    async fn put_raw(&self, key: &str, value: Option<&[u8]>) {
        let mut client = self.client().await;
        match value {
            Some(value) => drop(client.put(key, value, None).await.unwrap()),
            None => drop(client.delete(key, None).await.unwrap()),
        }
    }

    async fn compact(&self) {
        let mut undisturbed = self.undisturbed.lock().await;
        *undisturbed = None;
        let alone = COMPACTION.write().await;
        server::compact(&mut self.client().await).await;
        *undisturbed = Some(alone.downgrade());
    }

    async fn expire(&self, origin: &Origin) {
        let mut client = self.client().await;
        let key = format!("{}session", self.layout.own_prefix(origin));
        let found = client.get(key, None).await.unwrap();
        client.lease_revoke(found.kvs()[0].lease()).await.unwrap();
    }
}

mod etcd_battery {
    crate::battery::battery!(crate::Etcd, #[tokio::test(flavor = "multi_thread")]);
}
