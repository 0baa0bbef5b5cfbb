//! Who may write, and what everyone else is told.

use futures::StreamExt;
use tombolo_model::record::{Record, RecordKey, Session};
use tombolo_registry::error::Error;
use tombolo_registry::registry::{Registry, Selection};
use tombolo_registry::session::{Claim, SessionEnd, TakeOver};
use tombolo_registry::value::encode_record;

use super::{
    Backend, TCP, View, at, east, entries, export, ip, opened, opening, owner, put, service, west,
};

async fn session_of<R: Registry>(registry: &R) -> Option<Session> {
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    match view
        .records
        .get(&(registry.origin().clone(), RecordKey::Session))
    {
        Some(Record::Session(session)) => Some(session.clone()),
        _ => None,
    }
}

pub(crate) async fn nothing_is_written_without_a_session<B: Backend>(backend: &B) {
    let registry = backend.registry(&east());
    let error = registry
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        Error::NoSession {
            cluster: east().cluster
        }
    );
    assert!(matches!(
        registry.leave().await,
        Err(Error::NoSession { .. })
    ));
    assert_eq!(*registry.session().borrow(), None);
    // Reading needs none.
    assert_eq!(
        registry.list_exports(Selection::All).await.unwrap().items,
        []
    );
}

pub(crate) async fn a_name_belongs_to_its_owner<B: Backend>(backend: &B) {
    let first = opened(backend, &east()).await;
    let second = backend.registry(&east());
    let error = second.open(opening("uid-2", "holder-2")).await.unwrap_err();
    assert_eq!(
        error,
        Error::NameTaken {
            cluster: east().cluster,
            theirs: "uid-of-east".into(),
            ours: "uid-2".into(),
        }
    );
    assert!(error.to_string().contains("uid-of-east") && error.to_string().contains("uid-2"));
    assert!(error.to_string().contains("--take-over"));
    // Also while the owner is away.
    backend.expire(&east()).await;
    let error = second.open(opening("uid-2", "holder-2")).await.unwrap_err();
    assert_eq!(error.kind(), "name-taken");
    drop(first);
}

pub(crate) async fn a_name_is_taken_over_on_purpose<B: Backend>(backend: &B) {
    let (first, second) = (opened(backend, &east()).await, backend.registry(&east()));
    let mut opening = opening("uid-2", "holder-2");
    opening.take_over = TakeOver::Allow;
    second.open(opening).await.unwrap();
    second
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    let error = first
        .set_export(&service("checkout"), export("uid-0"))
        .await
        .unwrap_err();
    let Error::NameTaken { theirs, ours, .. } = error else {
        panic!("the first is told whose the name is: {error}");
    };
    assert_eq!((&*theirs, &*ours), ("uid-2", "uid-of-east"));
    let listed = second.list_exports(Selection::All).await.unwrap().items;
    assert_eq!(listed[0].export, export("uid-1"));
}

pub(crate) async fn a_changed_owner_stops_the_writer<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let other = Record::Owner(owner("uid-2"));
    let bytes = encode_record(&RecordKey::Owner, &other).unwrap();
    let key = format!("{}owner", registry.own_prefix());
    backend.put_raw(&key, Some(&bytes)).await;
    let written = registry
        .set_export(&service("checkout"), export("uid-1"))
        .await;
    assert_eq!(written.unwrap_err().kind(), "name-taken");
    assert_eq!(*registry.session().borrow(), None);
}

pub(crate) async fn the_leader_replaces_the_session_of_its_cluster<B: Backend>(backend: &B) {
    let (first, second) = (opened(backend, &east()).await, backend.registry(&east()));
    let first_epoch = *first.session().borrow();
    let epoch = second
        .open(opening("uid-of-east", "holder-2"))
        .await
        .unwrap();
    assert_ne!(first_epoch, Some(epoch));
    assert_eq!(*second.session().borrow(), Some(epoch));
    let error = first
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        Error::SessionReplaced {
            cluster: east().cluster,
            holder: "holder-2".into(),
        }
    );
    assert_eq!(*first.session().borrow(), None);
    second
        .set_export(&service("checkout"), export("uid-2"))
        .await
        .unwrap();
    let session = session_of(&second).await.unwrap();
    assert_eq!((&*session.holder, session.epoch), ("holder-2", epoch));
}

pub(crate) async fn a_follower_opens_only_where_no_session_stands<B: Backend>(backend: &B) {
    let (first, second) = (opened(backend, &east()).await, backend.registry(&east()));
    let mut vacant = opening("uid-of-east", "holder-2");
    vacant.claim = Claim::Vacant;
    let error = second.open(vacant.clone()).await.unwrap_err();
    assert_eq!(
        error,
        Error::SessionHeld {
            cluster: east().cluster,
            holder: "holder-1".into(),
        }
    );
    first
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    backend.expire(&east()).await;
    second.open(vacant).await.unwrap();
}

pub(crate) async fn an_expired_session_is_opened_again<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    registry
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    let epoch = *registry.session().borrow();
    backend.expire(&east()).await;
    let error = registry
        .unset_export(&service("checkout"))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        Error::SessionExpired {
            cluster: east().cluster
        }
    );
    assert_eq!(*registry.session().borrow(), None);
    // Data outlives the session.
    assert_eq!(
        registry
            .list_exports(Selection::All)
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    let mut again = opening("uid-of-east", "holder-1");
    again.claim = Claim::Vacant;
    let next = registry.open(again).await.unwrap();
    assert_ne!(Some(next), epoch, "an epoch never comes again");
    registry.unset_export(&service("checkout")).await.unwrap();
}

pub(crate) async fn a_session_is_amended_under_its_epoch<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let epoch = registry.session().borrow().unwrap();
    let mut session = opening("uid-of-east", "holder-1").session;
    session.blind_since = Some(at(2_000));
    registry.amend(session.clone()).await.unwrap();
    assert_eq!(session_of(&registry).await, Some(session.at(epoch)));
    registry
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    // It is still the lease that ends it.
    backend.expire(&east()).await;
    assert_eq!(session_of(&registry).await, None);
}

pub(crate) async fn synced_is_only_that_of_the_own_session<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let epoch = registry.session().borrow().unwrap();
    let synced = |epoch| vec![put(RecordKey::Synced, Record::Synced(epoch))];
    let error = registry.apply(synced(epoch + 1)).await.unwrap_err();
    assert_eq!(error.kind(), "stale-epoch");
    registry.apply(synced(epoch)).await.unwrap();
}

pub(crate) async fn a_cluster_that_left_takes_everything_with_it<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    east_side
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    east_side
        .register_endpoint(&service("checkout"), TCP, ip("10.0.0.1"), entries(80))
        .await
        .unwrap();
    let stray = format!("{}zzz", east_side.own_prefix());
    backend.put_raw(&stray, Some(b"1")).await;
    east_side.leave().await.unwrap();
    assert_eq!(*east_side.session().borrow(), None);

    let mut view = View::new(west_side.subscribe());
    view.listed().await;
    let left: Vec<_> = view
        .records
        .iter()
        .filter(|((o, _), _)| *o == east())
        .collect();
    let expected = (
        (east(), RecordKey::Left),
        Record::Left(owner("uid-of-east")),
    );
    assert_eq!(left, [(&expected.0, &expected.1)]);
    assert!(view.records.contains_key(&(west(), RecordKey::Session)));

    let error = east_side
        .open(opening("uid-of-east", "holder-1"))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        Error::LeftForGood {
            cluster: east().cluster
        }
    );
    let mut again = opening("uid-of-east", "holder-1");
    again.take_over = TakeOver::Allow;
    east_side.open(again).await.unwrap();
    view.until(&east(), &RecordKey::Left, None).await;
}

pub(crate) async fn the_name_of_a_cluster_that_left_is_free_for_another<B: Backend>(backend: &B) {
    let (first, second) = (opened(backend, &east()).await, backend.registry(&east()));
    first.leave().await.unwrap();
    second.open(opening("uid-2", "holder-2")).await.unwrap();
    second
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
}

pub(crate) async fn a_closed_registry_refuses_and_ends_its_streams<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let mut events = registry.subscribe();
    let driven = registry.drive();
    registry.close(SessionEnd::Revoke).await.unwrap();
    driven.await.unwrap();
    while events.next().await.is_some() {}
    for error in [
        registry
            .set_export(&service("checkout"), export("uid-1"))
            .await
            .unwrap_err(),
        registry.list_exports(Selection::All).await.unwrap_err(),
        registry
            .open(opening("uid-of-east", "holder-1"))
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error, Error::Closed);
    }
    let other = backend.registry(&west());
    assert_eq!(other.list_exports(Selection::All).await.unwrap().items, []);
}

pub(crate) async fn a_revoked_session_goes_and_a_lapsing_one_stays<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    east_side.close(SessionEnd::Revoke).await.unwrap();
    west_side.close(SessionEnd::Lapse).await.unwrap();
    assert_eq!(session_of(&backend.registry(&east())).await, None);
    assert!(session_of(&backend.registry(&west())).await.is_some());
}
