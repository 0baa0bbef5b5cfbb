//! Two regions with an etcd each, and replicators between them.

use std::fs;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tombolo_model::record::{Origin, Record, RecordKey};
use tombolo_registry::etcd::{EtcdRegistry, Grantee, Operator, Proof};
use tombolo_registry::registry::{Registry, Selection};
use tombolo_registry::replicator::{Phase, Progress, Replicator, Route};

use crate::battery::{TCP, View, entries, export, ip, opening, origin, put, service};
use crate::etcd_watches::copy;
use crate::server::{Server, driven, until};

fn eu() -> Origin {
    origin("eu", "east")
}

fn us() -> Origin {
    origin("us", "west")
}

struct Running {
    stop: CancellationToken,
    progress: tokio::sync::watch::Receiver<Progress>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "a test has no supervisor")]
    fn start(region: &Origin, from: &Server, to: &Server, holder: &str) -> Self {
        let replicator = Replicator::try_new(Route {
            region: region.region.clone(),
            from: from.config(),
            // Only a name for logs.
            peer: origin("peer", "none").region,
            to: to.config(),
            holder: holder.into(),
        })
        .unwrap();
        let (stop, progress) = (CancellationToken::new(), replicator.progress());
        let stopped = stop.clone();
        let task = tokio::spawn(Box::pin(
            async move { Box::pin(replicator.run(stopped)).await },
        ));
        Self {
            stop,
            progress,
            task,
        }
    }

    async fn copies(&mut self) {
        let copying = self.progress.wait_for(|p| p.phase == Phase::Copying);
        tokio::time::timeout(Duration::from_mins(1), copying)
            .await
            .expect("it copies in time")
            .unwrap();
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

async fn opened(server: &Server, origin: &Origin) -> EtcdRegistry {
    let registry = driven(server.config(), origin);
    let uid = format!("uid-of-{}", origin.cluster);
    registry.open(opening(&uid, "holder-1")).await.unwrap();
    registry
}

async fn synced(registry: &EtcdRegistry) {
    let epoch = registry.session().borrow().unwrap();
    let write = put(RecordKey::Synced, Record::Synced(epoch));
    registry.apply(vec![write]).await.unwrap();
}

fn exported(name: &str) -> RecordKey {
    RecordKey::Export(service(name))
}

/// Everything of a region at a server: keys, values, and whether under a lease.
async fn subtree(server: &Server, region: &str) -> Vec<(String, Vec<u8>, bool)> {
    let prefix = format!("/tombolo/v1/regions/{region}/");
    let options = etcd_client::GetOptions::new().with_prefix();
    let found = server
        .client()
        .await
        .get(prefix, Some(options))
        .await
        .unwrap();
    let keys = found.kvs().iter().map(|kv| {
        let key = kv.key_str().unwrap().to_owned();
        (key, kv.value().to_vec(), kv.lease() != 0)
    });
    keys.filter(|(key, ..)| !key.ends_with("/replicator"))
        .collect()
}

async fn until_equal(from: &Server, to: &Server, region: &str) {
    until("both have the same", || async {
        subtree(from, region).await == subtree(to, region).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_is_copied_key_for_key_and_its_deletes_too() {
    let (eu_etcd, us_etcd) = (Server::alone(), Server::alone());
    let east = opened(&eu_etcd, &eu()).await;
    let west = opened(&us_etcd, &us()).await;
    let mut raw = eu_etcd.client().await;
    for key in [
        "members/east",
        "settings",
        "clusters/east/stray",
        "replicator",
    ] {
        let key = format!("/tombolo/v1/regions/eu/{key}");
        raw.put(key, "as it is", None).await.unwrap();
    }
    east.set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    east.register_endpoint(&service("checkout"), TCP, ip("10.0.0.1"), entries(80))
        .await
        .unwrap();
    synced(&east).await;
    let mut there = Running::start(&eu(), &eu_etcd, &us_etcd, "a");
    let mut back = Running::start(&us(), &us_etcd, &eu_etcd, "b");
    there.copies().await;
    back.copies().await;
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    until_equal(&us_etcd, &eu_etcd, "us").await;
    let mut peer = us_etcd.client().await;
    let lock = peer.get("/tombolo/v1/regions/eu/replicator", None);
    assert_eq!(
        lock.await.unwrap().kvs()[0].value(),
        b"a",
        "the lock is not copied"
    );

    // Changes, deletes, a batch; seen by a reader at the peer.
    let mut view = View::new(west.subscribe());
    view.listed().await;
    east.set_export(&service("search"), export("uid-2"))
        .await
        .unwrap();
    view.until(
        &eu(),
        &exported("search"),
        Some(&Record::Export(export("uid-2"))),
    )
    .await;
    east.unset_export(&service("checkout")).await.unwrap();
    view.until(&eu(), &exported("checkout"), None).await;
    raw.delete("/tombolo/v1/regions/eu/members/east", None)
        .await
        .unwrap();
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    east.leave().await.unwrap();
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    let progress = there.progress.borrow().clone();
    // Owner, session, synced, member, settings, stray, two exports, an endpoint, and `left`.
    assert!(progress.put >= 10, "{progress:?}");
    // All of them but `left`, settings and the stray key are gone again; a key that came and went
    // between two transactions is none.
    assert!(progress.deleted >= 5, "{progress:?}");
    there.stop().await;
    back.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicators_for_one_region_do_not_fight() {
    let (eu_etcd, us_etcd) = (Server::alone(), Server::alone());
    let east = opened(&eu_etcd, &eu()).await;
    synced(&east).await;
    let mut first = Running::start(&eu(), &eu_etcd, &us_etcd, "first");
    first.copies().await;
    let second = Running::start(&eu(), &eu_etcd, &us_etcd, "second");
    for i in 0..20 {
        let name = format!("service-{i}");
        east.set_export(&service(&name), export("uid-1"))
            .await
            .unwrap();
    }
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    let mut second = second;
    let waits = second.progress.wait_for(|p| p.phase == Phase::Standby);
    waits.await.unwrap();
    assert_eq!(second.progress.borrow().put, 0);
    assert_eq!(
        second.progress.borrow().behind(Instant::now()),
        Duration::ZERO
    );
    // One goes, and takes the sessions with it until the other has come.
    let written = first.progress.borrow().put;
    assert!(written >= 20, "{written}");
    first.stop().await;
    second.copies().await;
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    let again = second.progress.borrow().put;
    assert!(again <= 2, "only sessions are put again: {again}");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_an_emptied_region_withdraws_nothing_until_its_clusters_say_so() {
    let (eu_etcd, us_etcd) = (Server::alone(), Server::alone());
    let west = opened(&us_etcd, &us()).await;
    for name in ["kept", "gone"] {
        west.set_export(&service(name), export("uid-1"))
            .await
            .unwrap();
    }
    synced(&west).await;
    let mut running = Running::start(&us(), &us_etcd, &eu_etcd, "a");
    running.copies().await;
    until_equal(&us_etcd, &eu_etcd, "us").await;
    let reader = driven(eu_etcd.config(), &eu());
    let mut view = View::new(reader.subscribe());
    view.listed().await;
    us_etcd.swap_data(|data| fs::remove_dir_all(data).unwrap());
    view.until(&us(), &RecordKey::Session, None).await;
    for name in ["kept", "gone"] {
        assert!(view.records.contains_key(&(us(), exported(name))));
    }
    // The empty region is filled by its own cluster, by nobody else.
    assert_eq!(subtree(&us_etcd, "us").await, []);
    until("the writer notices", || async {
        west.list_exports(Selection::All).await.is_ok() && west.session().borrow().is_none()
    })
    .await;
    west.open(opening("uid-of-west", "holder-1")).await.unwrap();
    west.set_export(&service("kept"), export("uid-1"))
        .await
        .unwrap();
    let session = west.session().borrow().unwrap();
    until("the new session is copied", || async {
        running.progress.borrow().kept > 0 && subtree(&eu_etcd, "us").await.iter().any(|k| k.2)
    })
    .await;
    let listed = reader.list_exports(Selection::All).await.unwrap();
    assert_eq!(listed.items.len(), 2, "not synced yet: session {session}");
    synced(&west).await;
    view.until(&us(), &exported("gone"), None).await;
    until_equal(&us_etcd, &eu_etcd, "us").await;
    assert_eq!(running.progress.borrow().kept, 0);
    running.stop().await;
}

/// What a replicator has written so far.
fn written(running: &Running) -> (u64, u64) {
    let progress = running.progress.borrow();
    (progress.put, progress.deleted)
}

/// Waits until a region that is cut off has no sessions any more at a peer.
async fn until_unheard(at: &Server, region: &str) {
    until("its sessions end", || async {
        !subtree(at, region).await.iter().any(|(.., leased)| *leased)
    })
    .await;
}

/// Whether all keys are of one cluster.
fn assert_all_of(keys: &[(String, Vec<u8>, bool)], cluster: &str) {
    let prefix = format!("/clusters/{cluster}/");
    assert!(!keys.is_empty());
    for (key, ..) in keys {
        assert!(key.contains(&prefix), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_with_replicators_both_ways_nothing_goes_round_and_nothing_deleted_comes_back() {
    let (eu_etcd, us_etcd) = (Server::alone(), Server::alone());
    let east = opened(&eu_etcd, &eu()).await;
    let west = opened(&us_etcd, &us()).await;
    east.set_export(&service("eu-only"), export("uid-e"))
        .await
        .unwrap();
    for name in ["kept", "gone"] {
        west.set_export(&service(name), export("uid-w"))
            .await
            .unwrap();
    }
    synced(&east).await;
    synced(&west).await;
    let mut there = Running::start(&eu(), &eu_etcd, &us_etcd, "a");
    let mut back = Running::start(&us(), &us_etcd, &eu_etcd, "b");
    there.copies().await;
    back.copies().await;
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    until_equal(&us_etcd, &eu_etcd, "us").await;

    // The etcd of us is lost for longer than its sessions last elsewhere.
    let reader = driven(eu_etcd.config(), &eu());
    let mut view = View::new(reader.subscribe());
    view.listed().await;
    let eu_before = subtree(&eu_etcd, "eu").await;
    us_etcd.member().part().kill().unwrap();
    until_unheard(&eu_etcd, "us").await;
    view.until(&us(), &RecordKey::Session, None).await;
    assert!(
        view.records.contains_key(&(us(), exported("gone"))),
        "nothing is withdrawn by it"
    );
    assert_eq!(
        subtree(&eu_etcd, "eu").await,
        eu_before,
        "eu goes on as it was"
    );

    // It comes back empty, and its own cluster no longer exports one of the services.
    us_etcd.swap_data(|data| fs::remove_dir_all(data).unwrap());
    until("the writer notices", || async {
        west.list_exports(Selection::All).await.is_ok() && west.session().borrow().is_none()
    })
    .await;
    west.open(opening("uid-of-west", "holder-1")).await.unwrap();
    west.set_export(&service("kept"), export("uid-w"))
        .await
        .unwrap();
    synced(&west).await;
    view.until(&us(), &exported("gone"), None).await;
    until_equal(&us_etcd, &eu_etcd, "us").await;
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    for etcd in [&us_etcd, &eu_etcd] {
        let keys = subtree(etcd, "us").await;
        assert!(
            !keys.iter().any(|(key, ..)| key.ends_with("/gone")),
            "{keys:?}"
        );
    }

    // One change in eu, then one in us: each is written once at the peer, and never at home.
    let (eu_writes, us_writes) = (written(&there), written(&back));
    east.set_export(&service("another"), export("uid-e"))
        .await
        .unwrap();
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    west.unset_export(&service("kept")).await.unwrap();
    until_equal(&us_etcd, &eu_etcd, "us").await;
    assert_eq!(written(&there), (eu_writes.0 + 1, eu_writes.1));
    assert_eq!(written(&back), (us_writes.0, us_writes.1 + 1));
    assert_all_of(&subtree(&us_etcd, "eu").await, "east");
    assert_all_of(&subtree(&eu_etcd, "us").await, "west");
    there.stop().await;
    back.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_comes_back_empty_gets_everything_again() {
    let (eu_etcd, us_etcd) = (Server::alone(), Server::alone());
    let east = opened(&eu_etcd, &eu()).await;
    east.set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    synced(&east).await;
    let mut running = Running::start(&eu(), &eu_etcd, &us_etcd, "a");
    running.copies().await;
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    let before = written(&running).0;
    us_etcd.swap_data(|data| fs::remove_dir_all(data).unwrap());
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    assert_eq!(before, 4, "owner, session, export, synced");
    assert_eq!(written(&running).0, 2 * before);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_restored_from_a_backup_gets_what_it_lacks() {
    let (eu_etcd, us_etcd) = (Server::alone(), Server::alone());
    let east = opened(&eu_etcd, &eu()).await;
    synced(&east).await;
    let mut running = Running::start(&eu(), &eu_etcd, &us_etcd, "a");
    running.copies().await;
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    // The backup has the lock, under the lease that is still kept alive.
    let backup = us_etcd.member().data_folder().with_extension("backup");
    us_etcd.swap_data(|data| copy(data, &backup));
    east.set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    us_etcd.swap_data(|data| {
        fs::remove_dir_all(data).unwrap();
        fs::rename(&backup, data).unwrap();
    });
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_that_is_not_heard_lapses_at_the_peer_and_comes_back() {
    let (eu_etcd, us_etcd) = (Server::alone(), Server::alone());
    let west = opened(&us_etcd, &us()).await;
    west.set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    synced(&west).await;
    let mut running = Running::start(&us(), &us_etcd, &eu_etcd, "a");
    running.copies().await;
    let reader = driven(eu_etcd.config(), &eu());
    let mut view = View::new(reader.subscribe());
    view.listed().await;
    us_etcd.member().part().kill().unwrap();
    until_unheard(&eu_etcd, "us").await;
    view.until(&us(), &RecordKey::Session, None).await;
    assert!(view.records.contains_key(&(us(), exported("checkout"))));
    us_etcd.etcd.restart_all().unwrap();
    running.copies().await;
    until_equal(&us_etcd, &eu_etcd, "us").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_peer_delays_no_other() {
    let (eu_etcd, us_etcd, ap_etcd) = (Server::alone(), Server::alone(), Server::alone());
    let east = opened(&eu_etcd, &eu()).await;
    synced(&east).await;
    let mut to_us = Running::start(&eu(), &eu_etcd, &us_etcd, "a");
    let mut to_ap = Running::start(&eu(), &eu_etcd, &ap_etcd, "a");
    to_us.copies().await;
    to_ap.copies().await;
    us_etcd.member().part().kill().unwrap();
    east.set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    until_equal(&eu_etcd, &ap_etcd, "eu").await;
    us_etcd.etcd.restart_all().unwrap();
    until_equal(&eu_etcd, &us_etcd, "eu").await;
    to_us.stop().await;
    to_ap.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s03_a_replicator_writes_its_region_and_nothing_else() {
    let server = Server::alone();
    let operator = Operator::try_new(server.config()).unwrap();
    let password = Proof::Password("secret".to_owned());
    let to = Grantee::ReplicatorTo(eu().region);
    let name = "tombolo-replicator-eu";
    operator.grant(&to, name, &password).await.unwrap();
    let mut client = server.client().await;
    client.user_add("root", "root", None).await.unwrap();
    client.role_add("root").await.ok();
    client.user_grant_role("root", "root").await.unwrap();
    client.auth_enable().await.unwrap();
    let options = etcd_client::ConnectOptions::new().with_user(name, "secret");
    let endpoint = [server.member().endpoint()];
    let mut user = etcd_client::Client::connect(endpoint, Some(options))
        .await
        .unwrap();
    let root = "/tombolo/v1/regions";
    user.put(format!("{root}/eu/clusters/east/left"), "x", None)
        .await
        .unwrap();
    for key in ["us/clusters/west/left", "us/replicator", "eu0"] {
        let error = user
            .put(format!("{root}/{key}"), "x", None)
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("permission denied"),
            "{key}: {error}"
        );
    }
}
