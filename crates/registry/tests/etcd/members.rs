//! Three members: restarted, killed, paused, leaderless.

use std::time::Duration;

use etcd_client::Client;
use tombolo_model::record::{Record, RecordKey};
use tombolo_registry::etcd::EtcdRegistry;
use tombolo_registry::event::Event;
use tombolo_registry::registry::{Registry, Selection};
use tombolo_testbed::{EtcdSpec, Member};

use crate::battery::{View, east, export, opening, service, west};
use crate::server::{Server, driven, until};

fn checkout() -> RecordKey {
    RecordKey::Export(service("checkout"))
}

async fn leader(server: &Server) -> &Member {
    for member in server.etcd.members() {
        let mut client = Client::connect([member.endpoint()], None).await.unwrap();
        let status = client.status().await.unwrap();
        if status.header().unwrap().member_id() == status.leader() {
            return member;
        }
    }
    panic!("one of the members leads");
}

async fn write(registry: &EtcdRegistry, uid: &str) {
    until("a write is done", || async {
        let written = registry.set_export(&service("checkout"), export(uid)).await;
        written
            .inspect_err(|error| assert!(error.is_retryable(), "{error}"))
            .is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r09_members_restart_one_by_one_leader_first_and_nothing_is_lost() {
    let server = Server::start(&EtcdSpec::members(3));
    let (east_side, west_side) = (
        driven(server.config(), &east()),
        driven(server.config(), &west()),
    );
    let epoch = east_side.open(opening("uid-east", "east-1")).await.unwrap();
    let mut view = View::new(west_side.subscribe());
    view.listed().await;
    for round in 0..3 {
        let leader = leader(&server).await;
        leader.part().kill().unwrap();
        let uid = format!("uid-{round}");
        write(&east_side, &uid).await;
        view.until(&east(), &checkout(), Some(&Record::Export(export(&uid))))
            .await;
        leader.part().restart().unwrap();
        leader.wait_healthy().unwrap();
    }
    assert_eq!(view.listings, 1, "nothing is listed again");
    assert_eq!(*east_side.session().borrow(), Some(epoch));
    let counts = (east_side.counts(), west_side.counts());
    assert_eq!((counts.0.regresses, counts.1.regresses), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_hangs_is_left() {
    let server = Server::start(&EtcdSpec::members(3));
    let registry = driven(server.config(), &east());
    registry.open(opening("uid-east", "east-1")).await.unwrap();
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    // Where all connections are.
    let member = server.member();
    member.part().pause().unwrap();
    write(&registry, "uid-1").await;
    view.until(&east(), &checkout(), Some(&Record::Export(export("uid-1"))))
        .await;
    member.part().resume().unwrap();
    assert_eq!(registry.counts().regresses, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_the_world_is_frozen() {
    let server = Server::start(&EtcdSpec::members(3));
    let registry = driven(server.config(), &east());
    registry.open(opening("uid-east", "east-1")).await.unwrap();
    write(&registry, "uid-1").await;
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    let [first, second, _] = server.etcd.members() else {
        panic!("three members");
    };
    first.part().kill().unwrap();
    second.part().kill().unwrap();
    let list = registry.list_exports(Selection::All).await.unwrap_err();
    assert_eq!(list.kind(), "unavailable");
    // All that is told is that nothing can be heard.
    assert_eq!(view.next().await, Event::Heard(false));
    let told = tokio::time::timeout(Duration::from_secs(3), view.next()).await;
    assert!(told.is_err(), "nothing is told: {told:?}");
    first.part().restart().unwrap();
    second.part().restart().unwrap();
    server.etcd.wait_healthy().unwrap();
    write(&registry, "uid-2").await;
    assert_eq!(view.next().await, Event::Heard(true));
    view.until(&east(), &checkout(), Some(&Record::Export(export("uid-2"))))
        .await;
    assert_eq!(view.listings, 1);
}
