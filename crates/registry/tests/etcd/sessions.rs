//! Leases as etcd has them, and a registry that takes nothing more.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tombolo_registry::error::Error;
use tombolo_registry::etcd::EtcdRegistry;
use tombolo_registry::registry::{Registry, Selection};
use tombolo_registry::session::{Claim, SessionEnd, TakeOver};

use crate::battery::{east, export, opened, opening, service, west};
use crate::server::{Server, driven, until};
use crate::{Backend, Etcd};

async fn session_stands(etcd: &Etcd, registry: &EtcdRegistry) -> bool {
    let key = format!("{}session", registry.own_prefix());
    let found = etcd.client().await.get(key, None).await.unwrap();
    !found.kvs().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_as_long_as_it_is_driven() {
    let etcd = Etcd::start().await;
    let kept = opened(&etcd, &east()).await;
    let left_alone = EtcdRegistry::try_new(etcd.config(), west()).unwrap();
    left_alone
        .open(opening("uid-of-west", "west-1"))
        .await
        .unwrap();
    let start = Instant::now();
    until("the session of west ends", || async {
        !session_stands(&etcd, &left_alone).await
    })
    .await;
    let lived = start.elapsed();
    assert!(lived > Duration::from_secs(28), "{lived:?}");
    sleep(Duration::from_secs(32).saturating_sub(lived)).await;
    assert!(session_stands(&etcd, &kept).await);
    assert!(kept.session().borrow().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_lost_is_noticed_and_opened_again() {
    let etcd = Etcd::start().await;
    let registry = opened(&etcd, &east()).await;
    let first = registry.session().borrow().unwrap();
    etcd.expire(&east()).await;
    let mut session = registry.session();
    let ended = session.wait_for(Option::is_none);
    tokio::time::timeout(Duration::from_secs(20), ended)
        .await
        .expect("noticed by the next sign of life")
        .unwrap();
    let mut again = opening("uid-of-east", "holder-1");
    again.claim = Claim::Vacant;
    assert_ne!(registry.open(again).await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_request_of_a_replaced_leader_is_refused() {
    let etcd = Etcd::start().await;
    let old = opened(&etcd, &east()).await;
    let new = etcd.registry(&east());
    new.open(opening("uid-of-east", "holder-2")).await.unwrap();
    let error = old
        .set_export(&service("checkout"), export("uid-old"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), "session-replaced");
    let listed = new.list_exports(Selection::All).await.unwrap();
    assert!(listed.items.is_empty());
    // The old one's lease is gone with it, and takes nothing of the new one along.
    old.close(SessionEnd::Revoke).await.unwrap();
    assert!(session_stands(&etcd, &new).await);
    new.set_export(&service("checkout"), export("uid-new"))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r07_a_second_cluster_of_one_name_is_refused_until_it_takes_over() {
    let etcd = Etcd::start().await;
    let first = opened(&etcd, &east()).await;
    first
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    first.close(SessionEnd::Revoke).await.unwrap();
    let second = etcd.registry(&east());
    let error = second.open(opening("uid-2", "holder-2")).await.unwrap_err();
    let text = error.to_string();
    for part in ["uid-of-east", "uid-2", "--take-over"] {
        assert!(text.contains(part), "{text}");
    }
    let mut opening = opening("uid-2", "holder-2");
    opening.take_over = TakeOver::Allow;
    second.open(opening).await.unwrap();
    second.unset_export(&service("checkout")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_registry_is_one_that_is_away() {
    let server = Server::with_args(&["--quota-backend-bytes=16777216"]);
    let registry = driven(server.config(), &east());
    registry.open(opening("uid-east", "east-1")).await.unwrap();
    let mut error = None;
    for i in 0..100 {
        let mut bytes = vec![7; 500 * 1024];
        bytes[0] = i;
        let kind = format!("large-{i}");
        let service = service("checkout");
        if let Err(full) = registry.set_config(&service, &kind, bytes.into()).await {
            error = Some(full);
            break;
        }
    }
    let error = error.expect("16 MiB are full at some time");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("space"), "{error}");
    assert!(error.is_retryable() && !error.may_have_written());
    // Reading goes on, and so does the session.
    let listed = registry.list_config(Selection::All).await.unwrap();
    assert!(!listed.items.is_empty());
    assert!(registry.session().borrow().is_some());
}
