//! A watch that never loses: compaction, slow readers, restored and emptied servers.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tombolo_model::record::{Record, RecordKey};
use tombolo_registry::error::Error;
use tombolo_registry::etcd::EtcdRegistry;
use tombolo_registry::event::{Event, ListCause};
use tombolo_registry::registry::{Registry, Selection};

use crate::battery::{
    TCP, View, delete, east, endpoint_key, entries, export, ip, opened, opening, put, service, west,
};
use crate::server::{self, Server, compact, driven, until};
use crate::{Backend, Etcd};

fn checkout() -> RecordKey {
    RecordKey::Export(service("checkout"))
}

async fn write(registry: &EtcdRegistry, uid: &str) -> Result<u64, Error> {
    registry.set_export(&service("checkout"), export(uid)).await
}

/// Reads on to the next listing, which must be for this reason, and to its end.
async fn listed_because(view: &mut View, cause: ListCause) {
    loop {
        if let Event::ListBegan(told) = view.next().await {
            assert_eq!(told, cause);
            return view.listed().await;
        }
    }
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r01_a_reader_that_a_compaction_has_passed_lists_once_and_misses_nothing() {
    let server = Server::alone();
    let (east_side, west_side) = (
        driven(server.config(), &east()),
        driven(server.config(), &west()),
    );
    east_side.open(opening("uid-east", "east-1")).await.unwrap();
    write(&east_side, "uid-1").await.unwrap();
    let mut view = View::new(west_side.subscribe());
    view.listed().await;
    view.until(&east(), &checkout(), Some(&Record::Export(export("uid-1"))))
        .await;
    // The reader does not run while the connection breaks and history goes.
    server.member().part().kill().unwrap();
    server.etcd.restart_all().unwrap();
    east_side.unset_export(&service("checkout")).await.unwrap();
    let search = RecordKey::Export(service("search"));
    east_side
        .set_export(&service("search"), export("uid-2"))
        .await
        .unwrap();
    for round in 0..20 {
        let batch = (0..100_u8)
            .map(|i| {
                let key = endpoint_key("search", TCP, &format!("10.0.0.{i}"));
                put(key, Record::Endpoint(entries(1_000 + round)))
            })
            .collect();
        east_side.apply(batch).await.unwrap();
    }
    compact(&mut server.client().await).await;
    listed_because(&mut view, ListCause::Behind).await;
    assert!(!view.records.contains_key(&(east(), checkout())));
    assert!(view.records.contains_key(&(east(), search)));
    let counts = west_side.counts();
    assert_eq!((counts.lists_at_start, counts.lists_behind), (1, 1));
    assert_eq!(counts.regresses, 0);
    write(&east_side, "uid-3").await.unwrap();
    view.until(&east(), &checkout(), Some(&Record::Export(export("uid-3"))))
        .await;
    assert_eq!(view.listings, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_after_its_server_restarted() {
    let server = Server::alone();
    let registry = driven(server.config(), &east());
    registry.open(opening("uid-east", "east-1")).await.unwrap();
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    for round in 0..3 {
        server.member().part().kill().unwrap();
        server.etcd.restart_all().unwrap();
        let uid = format!("uid-{round}");
        until("a write is done", || async {
            write(&registry, &uid).await.is_ok()
        })
        .await;
        view.until(&east(), &checkout(), Some(&Record::Export(export(&uid))))
            .await;
    }
    assert_eq!(view.listings, 1, "nothing is listed again");
    // The first watch began after the first restart.
    assert!(registry.counts().watches_resumed >= 2);
    assert!(
        registry.session().borrow().is_some(),
        "the session outlives it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_server_is_a_regress_and_ends_the_session() {
    let server = Server::alone();
    let registry = driven(server.config(), &east());
    let epoch = registry.open(opening("uid-east", "east-1")).await.unwrap();
    write(&registry, "uid-1").await.unwrap();
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    server.swap_data(|data| fs::remove_dir_all(data).unwrap());
    listed_because(&mut view, ListCause::Regress).await;
    assert!(view.records.is_empty());
    let error = write(&registry, "uid-2").await.unwrap_err();
    assert_eq!(error.kind(), "session-expired");
    assert_eq!(*registry.session().borrow(), None);
    let next = registry.open(opening("uid-east", "east-1")).await.unwrap();
    assert_ne!(next, epoch);
    write(&registry, "uid-2").await.unwrap();
    view.until(&east(), &checkout(), Some(&Record::Export(export("uid-2"))))
        .await;
    assert_eq!(registry.counts().regresses, 1, "it is found once");
    assert_eq!(registry.counts().lists_at_regress, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_server_is_a_regress_although_the_old_session_stands_there() {
    let server = Server::alone();
    let registry = driven(server.config(), &east());
    registry.open(opening("uid-east", "east-1")).await.unwrap();
    write(&registry, "uid-1").await.unwrap();
    let backup = tempdir("restored");
    let kept = backup.clone();
    server.swap_data(move |data| copy(data, &kept));
    until("a write is done", || async {
        write(&registry, "uid-2").await.is_ok()
    })
    .await;
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    server.swap_data(|data| {
        fs::remove_dir_all(data).unwrap();
        copy(&backup, data);
    });
    fs::remove_dir_all(&backup).unwrap();
    listed_because(&mut view, ListCause::Regress).await;
    assert_eq!(
        view.records.get(&(east(), checkout())),
        Some(&Record::Export(export("uid-1")))
    );
    // The restored session has this very epoch, and is over all the same.
    until("it ends", || async {
        registry.session().borrow().is_none()
    })
    .await;
    let error = write(&registry, "uid-3").await.unwrap_err();
    assert_eq!(error.kind(), "session-replaced");
    registry.open(opening("uid-east", "east-1")).await.unwrap();
    write(&registry, "uid-3").await.unwrap();
}

fn tempdir(name: &str) -> std::path::PathBuf {
    let id = server::fresh_root().root().replace('/', "-");
    std::env::temp_dir().join(format!("tombolo-{name}{id}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_keys_are_few_transactions() {
    let etcd = Etcd::start().await;
    let registry = opened(&etcd, &east()).await;
    let batch: Vec<_> = (0..10_000_u32)
        .map(|i| {
            let address = format!("10.0.{}.{}", i >> 8, i & 255);
            put(
                endpoint_key("checkout", TCP, &address),
                Record::Endpoint(entries(8080)),
            )
        })
        .collect();
    let before = registry.counts();
    registry.apply(batch).await.unwrap();
    let after = registry.counts();
    assert_eq!(after.operations - before.operations, 10_000);
    assert_eq!(after.transactions - before.transactions, 79, "10,000 / 128");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_fill_a_message_are_listed_in_smaller_pages() {
    let server = Server::with_args(&["--snapshot-count=100"]);
    let registry = driven(server.config(), &east());
    registry.open(opening("uid-east", "east-1")).await.unwrap();
    let bytes: Arc<[u8]> = vec![7; 512 * 1024].into();
    for i in 0..150 {
        let kind = format!("large-{i}");
        registry
            .set_config(&service("checkout"), &kind, Arc::clone(&bytes))
            .await
            .unwrap();
    }
    let listed = registry.list_config(Selection::All).await.unwrap();
    assert_eq!(listed.items.len(), 150);
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    assert_eq!(view.records.len(), 152, "with owner and session");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_stalls_nobody() {
    let etcd = Etcd::start().await;
    let registry = opened(&etcd, &east()).await;
    let mut slow = View::new(registry.subscribe());
    slow.listed().await;
    let bytes: Arc<[u8]> = vec![7; 256 * 1024].into();
    for i in 0..80_u8 {
        let mut bytes = bytes.to_vec();
        bytes[0] = i;
        registry
            .set_config(&service("checkout"), "large", bytes.into())
            .await
            .unwrap();
    }
    write(&registry, "uid-1").await.unwrap();
    registry
        .register_endpoint(&service("checkout"), TCP, ip("10.0.0.1"), entries(80))
        .await
        .unwrap();
    registry
        .apply(vec![delete(endpoint_key("checkout", TCP, "10.0.0.1"))])
        .await
        .unwrap();
    slow.until(&east(), &checkout(), Some(&Record::Export(export("uid-1"))))
        .await;
}
