//! Listings, changes and the signal.

use std::sync::Arc;

use tombolo_model::record::{Member, Record, RecordKey, Settings};
use tombolo_registry::event::{Event, ListCause, State};
use tombolo_registry::registry::{Registry, Selection};
use tombolo_registry::value::{encode_member, encode_settings};

use super::{
    Backend, TCP, View, at, east, endpoint_key, entries, export, ip, opened, service, west,
};

pub(crate) async fn a_listing_comes_first_then_changes<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    let written = east_side
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    let mut view = View::new(west_side.subscribe());
    assert_eq!(view.next().await, Event::ListBegan(ListCause::Start));
    let last = loop {
        match view.next().await {
            Event::ListEnded { revision } => break revision,
            event => assert!(matches!(event, Event::Record { .. }), "{event:?}"),
        }
    };
    assert!(last >= written);
    assert!(
        view.records
            .contains_key(&(east(), RecordKey::Export(service("checkout"))))
    );

    let changed = east_side
        .set_export(&service("checkout"), export("uid-2"))
        .await
        .unwrap();
    let deleted = east_side.unset_export(&service("checkout")).await.unwrap();
    let told = |state, revision| Event::Record {
        origin: east(),
        key: RecordKey::Export(service("checkout")),
        state,
        revision,
    };
    let second = Record::Export(export("uid-2"));
    assert_eq!(view.next().await, told(State::Present(second), changed));
    assert_eq!(view.next().await, told(State::Gone, deleted));
}

pub(crate) async fn a_subscription_and_the_lists_agree<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    let mut early = View::new(west_side.subscribe());
    for i in 0_u8..50 {
        let name = format!("service-{}", i % 7);
        let side = if i % 3 == 0 { &west_side } else { &east_side };
        let address = ip(&format!("10.0.0.{}", i % 11));
        side.set_export(&service(&name), export(&format!("uid-{i}")))
            .await
            .unwrap();
        side.register_endpoint(&service(&name), TCP, address, entries(80 + u16::from(i)))
            .await
            .unwrap();
        if i % 5 == 0 {
            side.unset_export(&service(&name)).await.unwrap();
            side.unregister_endpoint(&service(&name), address)
                .await
                .unwrap();
        }
        if i == 25 {
            early.listed().await;
        }
    }
    let marker = RecordKey::Export(service("marker"));
    east_side
        .set_export(&service("marker"), export("uid-end"))
        .await
        .unwrap();
    early
        .until(&east(), &marker, Some(&Record::Export(export("uid-end"))))
        .await;
    let mut late = View::new(east_side.subscribe());
    late.listed().await;
    assert_eq!(early.records, late.records);

    let exports = east_side.list_exports(Selection::All).await.unwrap().items;
    let told = early
        .records
        .iter()
        .filter_map(|((origin, key), record)| match (key, record) {
            (RecordKey::Export(service), Record::Export(export)) => Some((origin, service, export)),
            _ => None,
        });
    let listed: Vec<_> = exports
        .iter()
        .map(|e| (&e.origin, &e.service, &e.export))
        .collect();
    assert_eq!(told.collect::<Vec<_>>(), listed);
    let endpoints = east_side.list_all_endpoints(TCP).await.unwrap().items;
    let told = early
        .records
        .values()
        .filter(|r| matches!(r, Record::Endpoint(_)));
    assert_eq!(told.count(), endpoints.len());
}

pub(crate) async fn what_does_not_decode_is_told_and_stops_nothing<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let checkout = format!("{}ns/shop/exports/checkout", registry.own_prefix());
    let stray = format!("{}nonsense", registry.own_prefix());
    backend.put_raw(&checkout, Some(b"\xff\xff")).await;
    backend.put_raw(&stray, Some(b"1")).await;
    let mut view = View::new(registry.subscribe());
    let mut told = Vec::new();
    while view.listings == 0 {
        match view.next().await {
            Event::Record {
                key,
                state: State::Rejected(rejection),
                ..
            } => {
                assert_eq!(key, RecordKey::Export(service("checkout")));
                told.push(rejection.kind);
            }
            Event::Stray { key, rejection, .. } => {
                assert_eq!(*key, *stray);
                told.push(rejection.unwrap().kind);
            }
            _ => {}
        }
    }
    told.sort_unstable();
    assert_eq!(told, ["key-unknown", "value-malformed"]);

    backend.put_raw(&stray, None).await;
    backend
        .put_raw(&checkout, Some(&vec![0; 512 * 1024 + 1]))
        .await;
    registry
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    let gone = view.next().await;
    assert!(
        matches!(
            gone,
            Event::Stray {
                rejection: None,
                ..
            }
        ),
        "{gone:?}"
    );
    let too_long = view.next().await;
    let Event::Record {
        state: State::Rejected(rejection),
        ..
    } = too_long
    else {
        panic!("a value that is too long is rejected: {too_long:?}");
    };
    assert_eq!(rejection.kind, "value-too-long");
    let key = RecordKey::Export(service("checkout"));
    view.until(&east(), &key, Some(&Record::Export(export("uid-1"))))
        .await;
}

pub(crate) async fn members_and_settings_are_told<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    let member = Member {
        joined: at(10),
        cidrs: vec!["10.0.0.0/8".parse().unwrap()],
        namespaces: vec![service("x").namespace],
        drained: true,
    };
    let settings = Settings {
        precedence_from_join: true,
    };
    let root = registry.layout().region_prefix(&east().region);
    backend
        .put_raw(&format!("{root}replicator"), Some(b"not for readers"))
        .await;
    let key = format!("{root}members/east");
    backend
        .put_raw(&key, Some(&encode_member(&member).unwrap()))
        .await;
    backend.put_raw(&key, None).await;
    backend
        .put_raw(
            &format!("{root}settings"),
            Some(&encode_settings(&settings)),
        )
        .await;
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(match view.next().await {
            Event::Member { origin, state, .. } => (Some(origin), Some(state), None),
            Event::Settings { state, .. } => (None, None, Some(state)),
            event => panic!("nothing else is told: {event:?}"),
        });
    }
    assert_eq!(
        told,
        [
            (Some(east()), Some(State::Present(member)), None),
            (Some(east()), Some(State::Gone), None),
            (None, None, Some(State::Present(settings))),
        ]
    );
}

pub(crate) async fn a_reader_that_was_too_slow_misses_nothing<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let mut view = View::new(registry.subscribe());
    let gone = endpoint_key("checkout", TCP, "10.0.0.1");
    registry
        .register_endpoint(&service("checkout"), TCP, ip("10.0.0.1"), entries(80))
        .await
        .unwrap();
    view.until(&east(), &gone, Some(&Record::Endpoint(entries(80))))
        .await;
    // Not read while it is deleted and much else happens, and then the history is gone.
    registry
        .unregister_endpoint(&service("checkout"), ip("10.0.0.1"))
        .await
        .unwrap();
    for i in 0..500 {
        registry
            .set_export(&service("checkout"), export(&format!("uid-{i}")))
            .await
            .unwrap();
    }
    backend.compact().await;
    let key = RecordKey::Export(service("checkout"));
    view.until(&east(), &key, Some(&Record::Export(export("uid-499"))))
        .await;
    assert!(!view.records.contains_key(&(east(), gone)));
}

pub(crate) async fn many_changes_make_one_signal<B: Backend>(backend: &B) {
    let (east_side, west_side) = (opened(backend, &east()).await, backend.registry(&west()));
    let mut changes = west_side.changes();
    changes.mark_unchanged();
    let mut last = 0;
    for i in 0..20 {
        last = east_side
            .set_config(&service("checkout"), "retries", Arc::new([i]))
            .await
            .unwrap();
    }
    let seen = changes.wait_for(|revision| *revision >= last);
    tokio::time::timeout(super::PATIENCE, seen)
        .await
        .unwrap()
        .unwrap();
    changes.mark_unchanged();
    assert!(!changes.has_changed().unwrap());
}

pub(crate) async fn keys_outside_the_root_are_nothing<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    backend
        .put_raw("/tombolo/v1/regions-too/local/settings", Some(b"1"))
        .await;
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    backend.put_raw("/something/else", Some(b"1")).await;
    backend.put_raw("/tombolo/v1/regions", Some(b"1")).await;
    registry
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    let event = view.next().await;
    assert!(
        matches!(
            &event,
            Event::Record {
                key: RecordKey::Export(_),
                ..
            }
        ),
        "{event:?}"
    );
}
