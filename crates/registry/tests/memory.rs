//! The memory backend: the battery, and the faults that only it can inject.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test crate")]

use std::sync::Arc;

use tombolo_model::record::Origin;
use tombolo_registry::key::Layout;
use tombolo_registry::memory::{MemoryRegistry, MemoryStore};

#[path = "battery/suite.rs"]
mod battery;

use self::battery::Backend;

struct Memory(Arc<MemoryStore>);

impl Backend for Memory {
    type Registry = MemoryRegistry;

    async fn start() -> Self {
        Self(MemoryStore::new(Layout::default()))
    }

    fn registry(&self, origin: &Origin) -> MemoryRegistry {
        self.0.registry(origin.clone())
    }

    async fn put_raw(&self, key: &str, value: Option<&[u8]>) {
        self.0.put_raw(key.as_bytes(), value);
    }

    async fn compact(&self) {
        self.0.compact();
    }

    async fn expire(&self, origin: &Origin) {
        self.0.expire_session(origin);
    }
}

battery::battery!(crate::Memory, #[tokio::test(start_paused = true)]);

mod faults {
    //! What a fault does to a writer and to a reader.

    use std::time::Duration;

    use futures::FutureExt;
    use tokio::time::Instant;
    use tombolo_model::record::{Record, RecordKey};
    use tombolo_registry::error::Error;
    use tombolo_registry::event::{Event, ListCause};
    use tombolo_registry::key::{KeyRange, Layout};
    use tombolo_registry::memory::{ApplyFault, LogLimits, MemoryRegistry, MemoryStore};
    use tombolo_registry::registry::{Registry, Selection};

    use crate::Memory;
    use crate::battery::{
        Backend, View, delete, east, export, opened, opening, put, service, west,
    };

    async fn write(registry: &MemoryRegistry, uid: &str) -> Result<u64, Error> {
        registry.set_export(&service("checkout"), export(uid)).await
    }

    async fn stored(registry: &MemoryRegistry) -> usize {
        registry
            .list_exports(Selection::All)
            .await
            .unwrap()
            .items
            .len()
    }

    async fn listed_because(view: &mut View, cause: ListCause) {
        loop {
            if let Event::ListBegan(told) = view.next().await {
                assert_eq!(told, cause);
                return view.listed().await;
            }
        }
    }

    fn exported(view: &View, uid: &str) -> bool {
        let key = (east(), RecordKey::Export(service("checkout")));
        view.records.get(&key) == Some(&Record::Export(export(uid)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_before_is_not_done() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        store.fail_applies(2, ApplyFault::Before);
        for _ in 0..2 {
            let error = write(&registry, "uid-1").await.unwrap_err();
            assert!(error.is_retryable() && !error.may_have_written(), "{error}");
        }
        assert_eq!(stored(&registry).await, 0);
        write(&registry, "uid-1").await.unwrap();
        assert_eq!(stored(&registry).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_after_is_done() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        store.fail_applies(1, ApplyFault::After);
        let error = write(&registry, "uid-1").await.unwrap_err();
        assert!(error.is_retryable() && error.may_have_written(), "{error}");
        assert_eq!(stored(&registry).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_fails_in_the_middle_says_how_far_it_came() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        let key = |i| RecordKey::Export(service(&format!("service-{i}")));
        let batch: Vec<_> = (0..300)
            .map(|i| put(key(i), Record::Export(export("uid-1"))))
            .collect();
        // The first transaction passes, as the second is delayed until the store is away.
        store.delay(Duration::from_secs(1));
        let away = async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            store.go_away();
        };
        let (result, ()) = tokio::join!(registry.apply(batch.clone()), away);
        let error = result.unwrap_err();
        let Error::Partial { written, total, .. } = error else {
            panic!("part of it was done: {error}");
        };
        assert_eq!((written, total), (128, 300));
        assert!(error.is_retryable() && error.may_have_written());
        assert_eq!(error.kind(), "unavailable");
        store.delay(Duration::ZERO);
        store.come_back();
        assert_eq!(stored(&registry).await, 128);
        registry.apply(batch).await.unwrap();
        assert_eq!(stored(&registry).await, 300);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_reads_all_pages() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        for i in 0..20 {
            let name = service(&format!("service-{i}"));
            registry.set_export(&name, export("uid-1")).await.unwrap();
        }
        for len_max in [1, 2, 3, 7, 22, 23] {
            store.shorten_pages(len_max);
            assert_eq!(stored(&registry).await, 20, "{len_max}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_is_waited_for() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        store.delay(Duration::from_secs(3));
        let start = Instant::now();
        write(&registry, "uid-1").await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_freezes_its_readers() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        let mut view = View::new(store.subscribe());
        view.listed().await;
        write(&registry, "uid-1").await.unwrap();
        store.go_away();
        assert_eq!(
            write(&registry, "uid-2").await.unwrap_err().kind(),
            "unavailable"
        );
        let list = registry.list_exports(Selection::All).await;
        assert_eq!(list.unwrap_err().kind(), "unavailable");
        assert!(view.next().now_or_never().is_none(), "nothing is told");
        let mut late = View::new(store.subscribe());
        assert!(late.next().now_or_never().is_none(), "no listing begins");
        store.come_back();
        view.next().await;
        assert!(exported(&view, "uid-1"));
        late.listed().await;
        assert_eq!((view.listings, &late.records), (1, &view.records));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_subscription_lists_again() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        let mut view = View::new(store.subscribe());
        view.listed().await;
        store.drop_subscriptions();
        listed_because(&mut view, ListCause::Interrupted).await;
        write(&registry, "uid-1").await.unwrap();
        view.next().await;
        assert!(exported(&view, "uid-1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_compaction_is_only_felt_by_who_is_behind() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        let (mut prompt, mut slow) = (View::new(store.subscribe()), View::new(store.subscribe()));
        prompt.listed().await;
        slow.listed().await;
        write(&registry, "uid-1").await.unwrap();
        prompt.next().await;
        store.compact();
        listed_because(&mut slow, ListCause::Behind).await;
        write(&registry, "uid-2").await.unwrap();
        prompt.next().await;
        slow.next().await;
        assert!(exported(&prompt, "uid-2") && exported(&slow, "uid-2"));
        assert_eq!((prompt.listings, slow.listings), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_keeps_no_more_than_its_limits() {
        for limits in [
            LogLimits {
                len_max: 10,
                bytes_max: usize::MAX,
            },
            LogLimits {
                len_max: usize::MAX,
                bytes_max: 1_000,
            },
        ] {
            let memory = Memory(MemoryStore::with_limits(Layout::default(), limits));
            let (store, registry) = (&memory.0, opened(&memory, &east()).await);
            let mut view = View::new(store.subscribe());
            view.listed().await;
            for i in 0..100 {
                write(&registry, &format!("uid-{i}")).await.unwrap();
            }
            listed_because(&mut view, ListCause::Behind).await;
            assert!(exported(&view, "uid-99"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_within_a_listing_is_not_told_what_is_newer() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        let revision = write(&registry, "uid-1").await.unwrap();
        let mut view = View::new(store.subscribe());
        assert_eq!(view.next().await, Event::ListBegan(ListCause::Start));
        registry
            .apply(vec![delete(RecordKey::Export(service("checkout")))])
            .await
            .unwrap();
        loop {
            if let Event::ListEnded { revision: shown } = view.next().await {
                assert_eq!(shown, revision);
                break;
            }
        }
        assert!(exported(&view, "uid-1"));
        view.next().await;
        assert!(!exported(&view, "uid-1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_restored_store_ends_sessions_and_is_listed_as_a_regress() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        write(&registry, "uid-1").await.unwrap();
        let backup = store.snapshot();
        let later = write(&registry, "uid-2").await.unwrap();
        let epoch = registry.session().borrow().unwrap();
        let mut view = View::new(store.subscribe());
        view.listed().await;
        store.regress(&backup);
        assert!(*store.changes().borrow() < later, "revisions go back");
        assert_eq!(*registry.session().borrow(), None);
        listed_because(&mut view, ListCause::Regress).await;
        assert!(exported(&view, "uid-1"));

        // The backup has the session of then, which is nobody's now: only the leader gets past it.
        let error = write(&registry, "uid-3").await.unwrap_err();
        assert_eq!(error.kind(), "session-replaced");
        let next = registry
            .open(opening("uid-of-east", "holder-1"))
            .await
            .unwrap();
        assert!(next > epoch);
        write(&registry, "uid-3").await.unwrap();
        view.until(
            &east(),
            &RecordKey::Export(service("checkout")),
            Some(&Record::Export(export("uid-3"))),
        )
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_put_by_a_stranger_is_not_the_writers() {
        let memory = Memory::start().await;
        let (store, registry) = (&memory.0, opened(&memory, &east()).await);
        let key = format!("{}session", registry.own_prefix());
        let bytes = store.get_raw(&KeyRange::of_key(&key)).remove(0).value;
        store.put_raw(key.as_bytes(), Some(&bytes));
        assert_eq!(*registry.session().borrow(), None);
        assert_eq!(
            write(&registry, "uid-1").await.unwrap_err().kind(),
            "session-replaced"
        );
        // What cannot be read is someone's too.
        store.put_raw(key.as_bytes(), Some(b"\xff"));
        let error = write(&registry, "uid-1").await.unwrap_err();
        assert_eq!(error.kind(), "session-replaced");
        let owner = format!("{}owner", registry.own_prefix());
        store.put_raw(owner.as_bytes(), Some(b"\xff"));
        assert_eq!(
            write(&registry, "uid-1").await.unwrap_err().kind(),
            "name-taken"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn many_clusters_share_one_subscription() {
        let memory = Memory::start().await;
        let store = &memory.0;
        let (east_side, west_side) = (
            opened(&memory, &east()).await,
            opened(&memory, &west()).await,
        );
        let mut view = View::new(store.subscribe());
        write(&east_side, "uid-1").await.unwrap();
        write(&west_side, "uid-2").await.unwrap();
        view.listed().await;
        assert_eq!(
            view.records.len(),
            2 * 3,
            "owner, session and export of each"
        );
        store.close();
        assert_eq!(write(&east_side, "uid-3").await.unwrap_err(), Error::Closed);
        east_side.drive().await.unwrap();
    }
}
