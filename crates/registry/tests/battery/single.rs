//! The single operations.

use std::sync::Arc;

use tombolo_model::endpoint::{Conditions, Entry, EntryProtocol};
use tombolo_model::record::Origin;
use tombolo_registry::event::Event;
use tombolo_registry::listing::{ConfigAt, EndpointAt, ExportAt, Listing};
use tombolo_registry::registry::{Registry, Selection};

use super::{Backend, TCP, UDP, View, east, entries, export, ip, opened, origin, service, west};

fn endpoint_at(
    origin: &Origin,
    protocol: EntryProtocol,
    address: &str,
    entries: &Arc<[Entry]>,
) -> EndpointAt {
    EndpointAt {
        origin: origin.clone(),
        service: service("checkout"),
        protocol,
        address: ip(address),
        entries: Arc::clone(entries),
    }
}

fn all_good<T>(listing: Listing<T>) -> Vec<T> {
    assert_eq!(listing.rejected, []);
    listing.items
}

pub(crate) async fn endpoints_are_registered_listed_and_unregistered<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    let checkout = service("checkout");
    let (web, dns) = (entries(8080), entries(53));
    east_side
        .register_endpoint(&checkout, TCP, ip("10.0.0.1"), Arc::clone(&web))
        .await
        .unwrap();
    east_side
        .register_endpoint(&checkout, UDP, ip("10.0.0.1"), Arc::clone(&dns))
        .await
        .unwrap();
    west_side
        .register_endpoint(&checkout, TCP, ip("fd00::1"), Arc::clone(&web))
        .await
        .unwrap();
    // Another service whose name begins the same, and an address that is replaced.
    east_side
        .register_endpoint(&service("checkout2"), TCP, ip("10.0.0.9"), Arc::clone(&web))
        .await
        .unwrap();
    east_side
        .register_endpoint(&checkout, UDP, ip("10.0.0.1"), Arc::clone(&web))
        .await
        .unwrap();

    let listed = all_good(west_side.list_endpoints(&checkout).await.unwrap());
    assert_eq!(
        listed,
        [
            endpoint_at(&east(), TCP, "10.0.0.1", &web),
            endpoint_at(&east(), UDP, "10.0.0.1", &web),
            endpoint_at(&west(), TCP, "fd00::1", &web),
        ]
    );

    east_side
        .unregister_endpoint(&checkout, ip("10.0.0.1"))
        .await
        .unwrap();
    let listed = all_good(east_side.list_endpoints(&checkout).await.unwrap());
    assert_eq!(listed, [endpoint_at(&west(), TCP, "fd00::1", &web)]);
}

pub(crate) async fn many_endpoints_are_unregistered_over_all_protocols<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let checkout = service("checkout");
    let without_ports: Arc<[Entry]> = Arc::new([Entry {
        ports: Arc::new([]),
        hostname: None,
        zone: None,
        conditions: Conditions::READY,
    }]);
    let web = entries(8080);
    for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        for protocol in [TCP, UDP] {
            registry
                .register_endpoint(&checkout, protocol, ip(address), Arc::clone(&web))
                .await
                .unwrap();
        }
        registry
            .register_endpoint(
                &checkout,
                EntryProtocol::None,
                ip(address),
                Arc::clone(&without_ports),
            )
            .await
            .unwrap();
    }
    let gone = [ip("10.0.0.1"), ip("10.0.0.3"), ip("10.0.0.4")];
    registry
        .unregister_endpoints(&checkout, &gone)
        .await
        .unwrap();
    assert_eq!(
        all_good(registry.list_endpoints(&checkout).await.unwrap()),
        [
            endpoint_at(&east(), EntryProtocol::None, "10.0.0.2", &without_ports),
            endpoint_at(&east(), TCP, "10.0.0.2", &web),
            endpoint_at(&east(), UDP, "10.0.0.2", &web),
        ]
    );
}

pub(crate) async fn all_endpoints_of_a_protocol_are_listed<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    let (checkout, web) = (service("checkout"), entries(8080));
    east_side
        .register_endpoint(&checkout, TCP, ip("10.0.0.1"), Arc::clone(&web))
        .await
        .unwrap();
    east_side
        .register_endpoint(&checkout, UDP, ip("10.0.0.1"), Arc::clone(&web))
        .await
        .unwrap();
    west_side
        .register_endpoint(&checkout, TCP, ip("10.0.0.2"), Arc::clone(&web))
        .await
        .unwrap();
    west_side
        .set_export(&checkout, export("uid-1"))
        .await
        .unwrap();
    assert_eq!(
        all_good(east_side.list_all_endpoints(TCP).await.unwrap()),
        [
            endpoint_at(&east(), TCP, "10.0.0.1", &web),
            endpoint_at(&west(), TCP, "10.0.0.2", &web),
        ]
    );
}

pub(crate) async fn exports_are_set_listed_and_unset<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    let (checkout, search) = (service("checkout"), service("search"));
    east_side
        .set_export(&checkout, export("uid-0"))
        .await
        .unwrap();
    east_side
        .set_export(&checkout, export("uid-1"))
        .await
        .unwrap();
    east_side
        .set_export(&search, export("uid-2"))
        .await
        .unwrap();
    west_side
        .set_export(&checkout, export("uid-3"))
        .await
        .unwrap();
    let at = |origin, service, uid| ExportAt {
        origin,
        service,
        export: export(uid),
    };
    let mine = at(east(), checkout.clone(), "uid-1");
    let other = at(east(), search.clone(), "uid-2");
    let theirs = at(west(), checkout.clone(), "uid-3");
    let all = all_good(west_side.list_exports(Selection::All).await.unwrap());
    assert_eq!(all, [mine.clone(), other.clone(), theirs.clone()]);
    let selected = west_side
        .list_exports(Selection::Service(&checkout))
        .await
        .unwrap();
    assert_eq!(all_good(selected), [mine, theirs.clone()]);

    east_side.unset_export(&checkout).await.unwrap();
    let all = all_good(west_side.list_exports(Selection::All).await.unwrap());
    assert_eq!(all, [other, theirs]);
}

pub(crate) async fn configuration_is_kept_to_the_byte<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    let (checkout, search) = (service("checkout"), service("search"));
    // Neither text nor a message, and as large as it may be.
    let bytes: Arc<[u8]> = (0..=255).cycle().take(512 * 1024).collect();
    east_side
        .set_config(&checkout, "retries", Arc::clone(&bytes))
        .await
        .unwrap();
    east_side
        .set_config(&checkout, "empty", Arc::new([]))
        .await
        .unwrap();
    west_side
        .set_config(&search, "retries", Arc::new([1]))
        .await
        .unwrap();
    let at = |origin, service, kind: &str, bytes| ConfigAt {
        origin,
        service,
        kind: kind.into(),
        bytes,
    };
    let empty = at(east(), checkout.clone(), "empty", Arc::new([]));
    let large = at(east(), checkout.clone(), "retries", bytes);
    let other = at(west(), search, "retries", Arc::new([1]));
    let all = all_good(west_side.list_config(Selection::All).await.unwrap());
    assert_eq!(all, [empty.clone(), large.clone(), other.clone()]);
    let selected = west_side
        .list_config(Selection::Service(&checkout))
        .await
        .unwrap();
    assert_eq!(all_good(selected), [empty.clone(), large]);

    east_side.unset_config(&checkout, "retries").await.unwrap();
    let all = all_good(west_side.list_config(Selection::All).await.unwrap());
    assert_eq!(all, [empty, other]);
}

pub(crate) async fn deleting_what_is_not_there_is_no_error<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let checkout = service("checkout");
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    let before = registry.unset_export(&checkout).await.unwrap();
    registry
        .unregister_endpoint(&checkout, ip("10.0.0.1"))
        .await
        .unwrap();
    registry.unset_config(&checkout, "retries").await.unwrap();
    let after = registry.unset_export(&checkout).await.unwrap();
    assert!(after >= before);
    let written = registry
        .set_export(&checkout, export("uid-1"))
        .await
        .unwrap();
    assert!(written > after);
    let told = view.next().await;
    assert!(
        matches!(told, Event::Record { revision, .. } if revision == written),
        "what changes nothing is not told: {told:?}"
    );
}

pub(crate) async fn each_cluster_writes_its_own_partition<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    let (checkout, web) = (service("checkout"), entries(8080));
    for side in [&east_side, &west_side] {
        side.set_export(&checkout, export("uid-1")).await.unwrap();
        side.register_endpoint(&checkout, TCP, ip("10.0.0.1"), Arc::clone(&web))
            .await
            .unwrap();
    }
    east_side.unset_export(&checkout).await.unwrap();
    east_side
        .unregister_endpoint(&checkout, ip("10.0.0.1"))
        .await
        .unwrap();
    let exports = all_good(east_side.list_exports(Selection::All).await.unwrap());
    assert_eq!(
        exports.iter().map(|e| &e.origin).collect::<Vec<_>>(),
        [&west()]
    );
    let endpoints = all_good(east_side.list_endpoints(&checkout).await.unwrap());
    assert_eq!(endpoints, [endpoint_at(&west(), TCP, "10.0.0.1", &web)]);
}

pub(crate) async fn the_own_prefix_is_that_of_the_keys<B: Backend>(backend: &B) {
    let registry = backend.registry(&origin("eu", "east.prod"));
    let root = registry.layout().root();
    assert_eq!(
        registry.own_prefix(),
        format!("{root}/eu/clusters/east.prod/")
    );
}

pub(crate) async fn lists_go_on_past_what_does_not_decode<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let (checkout, web) = (service("checkout"), entries(8080));
    registry
        .register_endpoint(&checkout, TCP, ip("10.0.0.2"), Arc::clone(&web))
        .await
        .unwrap();
    registry
        .set_export(&checkout, export("uid-1"))
        .await
        .unwrap();
    let prefix = format!("{}ns/shop/", registry.own_prefix());
    let endpoints = format!("{prefix}services/checkout/protocols/TCP/endpoints/");
    backend
        .put_raw(&format!("{endpoints}10.0.0.1"), Some(b"\xff\xff"))
        .await;
    backend
        .put_raw(&format!("{endpoints}010.0.0.1"), Some(b""))
        .await;
    backend
        .put_raw(&format!("{prefix}exports/search"), Some(b"\xff\xff"))
        .await;

    let listed = registry.list_endpoints(&checkout).await.unwrap();
    assert_eq!(listed.items, [endpoint_at(&east(), TCP, "10.0.0.2", &web)]);
    let rejected: Vec<_> = listed
        .rejected
        .iter()
        .map(|r| (&*r.key, r.rejection.kind))
        .collect();
    let (not_canonical, not_message) = (
        format!("{endpoints}010.0.0.1"),
        format!("{endpoints}10.0.0.1"),
    );
    assert_eq!(
        rejected,
        [
            (&*not_canonical, "key-address"),
            (&*not_message, "value-malformed")
        ]
    );
    let listed = registry
        .list_exports(Selection::Service(&service("search")))
        .await
        .unwrap();
    assert_eq!((listed.items, listed.rejected.len()), (vec![], 1));
}

pub(crate) async fn regions_are_listed_together<B: Backend>(backend: &B) {
    let mut expected = Vec::new();
    for (region, cluster) in [
        ("eu", "b"),
        ("eu", "b.x"),
        ("eu", "b-c"),
        ("eu-2", "a"),
        ("us", "z"),
    ] {
        let registry = opened(backend, &origin(region, cluster)).await;
        registry
            .set_export(&service("checkout"), export("uid-1"))
            .await
            .unwrap();
        expected.push(origin(region, cluster));
    }
    backend
        .put_raw("/tombolo/v1/regions/eu/settings", Some(b""))
        .await;
    let registry = backend.registry(&east());
    let checkout = service("checkout");
    for selection in [Selection::All, Selection::Service(&checkout)] {
        let listed = all_good(registry.list_exports(selection).await.unwrap());
        let mut origins: Vec<_> = listed.into_iter().map(|e| e.origin).collect();
        origins.sort();
        expected.sort();
        assert_eq!(origins, expected, "{selection:?}");
    }
}
