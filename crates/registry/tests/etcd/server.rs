//! Real etcd servers for tests, on free loopback ports; they end with the tests.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_client::{Client, GetOptions};
use parking_lot::Mutex;
use tombolo_model::record::Origin;
use tombolo_registry::etcd::{EtcdConfig, EtcdRegistry};
use tombolo_registry::key::Layout;
use tombolo_registry::registry::Registry;
use tombolo_testbed::{Etcd, EtcdSpec, Member, Spec, Testbed};

/// An etcd of one or more members.
pub(crate) struct Server {
    pub(crate) etcd: Etcd,
    /// Ends it when it is dropped.
    _testbed: Testbed,
}

/// The one that tests share as long as any of them runs, so that it ends with the last.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

impl Server {
    pub(crate) fn start(spec: &EtcdSpec) -> Self {
        let mut testbed = Testbed::start(&Spec::default()).unwrap();
        let etcd = testbed.start_etcd("registry", spec).unwrap();
        Self {
            etcd,
            _testbed: testbed,
        }
    }

    pub(crate) fn alone() -> Self {
        Self::start(&EtcdSpec::default())
    }

    pub(crate) fn with_args(args: &[&str]) -> Self {
        let mut spec = EtcdSpec::default();
        spec.args.extend(args.iter().map(ToString::to_string));
        Self::start(&spec)
    }

    pub(crate) fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock();
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::alone());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    pub(crate) fn config(&self) -> EtcdConfig {
        EtcdConfig::new(self.etcd.endpoints())
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect([self.etcd.first().endpoint()], None)
            .await
            .unwrap()
    }

    pub(crate) fn member(&self) -> &Member {
        self.etcd.first()
    }

    /// Ends the only member, replaces its data and starts it again.
    pub(crate) fn swap_data(&self, change: impl FnOnce(&Path)) {
        let member = self.member();
        member.part().kill().unwrap();
        change(member.data_folder());
        self.etcd.restart_all().unwrap();
    }
}

/// A registry whose work is done for as long as the test runs.
#[expect(clippy::disallowed_methods, reason = "a test has no supervisor")]
pub(crate) fn driven(config: EtcdConfig, origin: &Origin) -> EtcdRegistry {
    let registry = EtcdRegistry::try_new(config, origin.clone()).unwrap();
    let driven = registry.clone();
    tokio::spawn(async move { driven.drive().await });
    registry
}

/// A root that no other test has.
#[expect(clippy::disallowed_methods, reason = "only to be different")]
pub(crate) fn fresh_root() -> Layout {
    static COUNT: Mutex<u64> = Mutex::new(0);
    let mut count = COUNT.lock();
    *count += 1;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Layout::try_new(&format!("/test-{:x}-{count}/regions", now.as_nanos())).unwrap()
}

/// Compacts at the current revision.
pub(crate) async fn compact(client: &mut Client) {
    let now = client.get("/", Some(GetOptions::new().with_count_only()));
    let revision = now.await.unwrap().header().unwrap().revision();
    client.compact(revision, None).await.unwrap();
}

/// Waits until something holds, for as long as a busy machine may need.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    for _ in 0..600 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited for a minute: {what}");
}
