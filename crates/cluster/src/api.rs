//! A real Kubernetes cluster: its API server as inputs, actions as calls to it.
//!
//! ```text
//! watch ─decode─► reports ─► (the shell's engine) ─► effects ─writer─► calls
//!    network ───────┘                                    └─events─► calls
//! ```
//!
//! Everything here is driven by whoever holds it: nothing is spawned, so that the death of a task
//! is never unobserved. Objects are decoded straight into the model's; what Kubernetes sends beside
//! that is never kept. Pods and Nodes are never read.

mod access;
mod answer;
mod call;
mod clock;
mod config_map;
mod crds;
mod decode;
mod events;
mod exports;
mod identity;
mod lease;
mod mirror;
mod network;
mod patch;
mod removal;
mod report;
mod resource;
mod snapshot;
mod watch;
mod writer;

pub use access::{Access, AccessError, context_names};
pub use call::{CallError, Server};
pub use clock::{BootClock, Clock};
pub use config_map::{
    ConfigMapText, ConfigMapWrite, read_config_map, service_ips, write_config_map,
};
pub use crds::{CrdsError, Installed, Release, apply_crds};
pub use events::{EventSender, EventsDropped, Recorder, recorder};
pub use exports::{Resource, ResourceError, watch_exports};
pub use identity::{IdentityError, ensure_namespace, identify, system_uid};
pub use lease::{Fence, LeaseConfig, LeaseKeeper, Standing};
pub use mirror::mirror_imports;
pub use network::watch_network;
pub use removal::remove_managed;
pub use report::{Report, WatchState};
pub use resource::ApiVersion;
pub use snapshot::{Snapshot, SnapshotError, snapshot};
pub use watch::{watch, watch_selected};
pub use writer::{WRITES_MAX, Writer};
