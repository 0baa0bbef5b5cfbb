//! `apply`: what one batch promises.

use std::sync::Arc;

use tombolo_model::record::{Record, RecordKey};
use tombolo_registry::error::Error;
use tombolo_registry::registry::{Registry, Selection};

use super::{
    Backend, TCP, View, delete, east, endpoint_key, entries, export, opened, owner, put, service,
    west,
};

pub(crate) async fn a_batch_is_written_in_its_order<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    let (endpoint, exported) = (
        endpoint_key("checkout", TCP, "10.0.0.1"),
        RecordKey::Export(service("checkout")),
    );
    let (first, second) = (
        Record::Export(export("uid-1")),
        Record::Export(export("uid-2")),
    );
    let batch = vec![
        put(endpoint.clone(), Record::Endpoint(entries(80))),
        put(exported.clone(), first.clone()),
        put(exported.clone(), second.clone()),
        delete(endpoint.clone()),
    ];
    let revision = registry.apply(batch).await.unwrap();
    view.until(&east(), &exported, Some(&first)).await;
    assert!(
        view.records.contains_key(&(east(), endpoint.clone())),
        "endpoints come first"
    );
    view.until(&east(), &endpoint, None).await;
    assert_eq!(view.records.get(&(east(), exported)), Some(&second));
    assert!(*registry.changes().borrow() >= revision);
}

pub(crate) async fn a_batch_over_the_limits_is_written_whole<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let bytes: Arc<[u8]> = vec![7; 400 * 1024].into();
    let config = |kind: String| RecordKey::Config {
        service: service("checkout"),
        kind: kind.into(),
    };
    let mut batch: Vec<_> = (0..5)
        .map(|i| {
            put(
                config(format!("large-{i}")),
                Record::Config(Arc::clone(&bytes)),
            )
        })
        .collect();
    batch
        .extend((0..400).map(|i| put(config(format!("small-{i}")), Record::Config(Arc::new([1])))));
    registry.apply(batch).await.unwrap();
    let listed = registry.list_config(Selection::All).await.unwrap();
    assert_eq!(listed.items.len(), 405);
}

pub(crate) async fn a_record_that_cannot_be_stored_refuses_the_whole_batch<B: Backend>(
    backend: &B,
) {
    let registry = opened(backend, &east()).await;
    let good = put(
        RecordKey::Export(service("checkout")),
        Record::Export(export("uid-1")),
    );
    let no_key = delete(RecordKey::Export(service("a/b")));
    let too_large = put(
        RecordKey::Config {
            service: service("checkout"),
            kind: "large".into(),
        },
        Record::Config(vec![0; 512 * 1024 + 1].into()),
    );
    let no_entries = put(
        endpoint_key("checkout", TCP, "10.0.0.1"),
        Record::Endpoint(Arc::new([])),
    );
    for (bad, kind) in [
        (no_key, "key-name"),
        (too_large, "value-too-long"),
        (no_entries, "value-missing"),
    ] {
        let error = registry.apply(vec![good.clone(), bad]).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (kind, false));
        assert!(!error.may_have_written());
    }
    assert_eq!(
        registry.list_exports(Selection::All).await.unwrap().items,
        []
    );
}

pub(crate) async fn a_batch_cannot_write_what_belongs_to_the_session<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    for write in [
        put(RecordKey::Owner, Record::Owner(owner("another"))),
        put(RecordKey::Left, Record::Left(owner("another"))),
        delete(RecordKey::Owner),
        delete(RecordKey::Session),
    ] {
        let error = registry.apply(vec![write]).await.unwrap_err();
        assert!(matches!(error, Error::Reserved { .. }), "{error}");
    }
}

pub(crate) async fn an_empty_batch_changes_nothing<B: Backend>(backend: &B) {
    let registry = opened(backend, &east()).await;
    let before = registry.apply(Vec::new()).await.unwrap();
    assert_eq!(registry.apply(Vec::new()).await.unwrap(), before);
}

pub(crate) async fn ten_thousand_keys<B: Backend>(backend: &B) {
    let (east_side, west_side) = (
        opened(backend, &east()).await,
        opened(backend, &west()).await,
    );
    let mut early = View::new(west_side.subscribe());
    early.listed().await;
    let batch: Vec<_> = (0..10_000_u32)
        .map(|i| {
            let address = format!("10.{}.{}.{}", i >> 16, (i >> 8) & 255, i & 255);
            let name = format!("service-{}", i / 100);
            put(
                endpoint_key(&name, TCP, &address),
                Record::Endpoint(entries(8080)),
            )
        })
        .collect();
    let last = batch.last().unwrap().clone();
    east_side.apply(batch).await.unwrap();
    assert_eq!(
        west_side.list_all_endpoints(TCP).await.unwrap().items.len(),
        10_000
    );
    assert_eq!(
        west_side
            .list_endpoints(&service("service-7"))
            .await
            .unwrap()
            .items
            .len(),
        100
    );
    let mut late = View::new(west_side.subscribe());
    late.listed().await;
    early.until(&east(), &last.key, last.record.as_ref()).await;
    assert_eq!(early.records, late.records);
}
