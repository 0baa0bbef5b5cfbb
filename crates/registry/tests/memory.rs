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
