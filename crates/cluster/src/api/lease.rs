//! Leadership by a Lease of `coordination.k8s.io`, and the fence that ends with it.
//!
//! ```text
//!            ┌─ free, released, or not renewed for as long as it lasts ─┐
//! Following ─┘                                                          ▼
//!     ▲                                                              Leading
//!     └── taken by another, or not renewed before the deadline ─────────┘
//! ```
//!
//! The deadline is shorter than the lease and measured on the boot clock from before the last
//! renewal was sent, so that it has passed here before anybody else may take over, whatever the
//! clocks of the machines say and however long this process was stopped.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::sync::watch;
use tokio::time::sleep;
use tombolo_model::own::FIELD_MANAGER;
use tracing::{info, warn};

use super::call::{Call, CallError, Server};
use super::clock::Clock;

/// How a Lease is held.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who this process is; no other process has this identity.
    pub identity: String,
    /// How long it lasts after a renewal.
    pub duration: Duration,
    /// How long after a renewal this process still acts.
    pub deadline: Duration,
    /// How often it is renewed, or looked at.
    pub period: Duration,
}

impl LeaseConfig {
    /// Fifteen seconds, as Kubernetes' own components have it; looked at every second, so that a
    /// released one is taken within a second.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            period: Duration::from_secs(1),
        }
    }

    fn path(&self) -> String {
        let (namespace, name) = (&self.namespace, &self.name);
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    }

    /// A leader renews at a fifth of its deadline, so that four renewals may fail.
    fn renewal(&self) -> Duration {
        self.deadline / 5
    }
}

/// Whether this process may still write. Falls by itself when the deadline passes.
pub struct Fence {
    clock: Arc<dyn Clock>,
    /// Nanoseconds of the boot clock; 0: fallen.
    until: AtomicU64,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").finish_non_exhaustive()
    }
}

impl Fence {
    /// One that does not stand yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            until: AtomicU64::new(0),
        }
    }

    /// Whether this process may send a write now.
    pub fn stands(&self) -> bool {
        nanos(self.clock.since_boot()) < self.until.load(Ordering::Acquire)
    }

    /// Lets it stand until then.
    pub fn extend(&self, until: Duration) {
        self.until.store(nanos(until), Ordering::Release);
    }

    /// Ends it at once.
    pub fn fall(&self) {
        self.until.store(0, Ordering::Release);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where this process stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It leads.
    Leading,
    /// Another leads, or nobody yet.
    Following {
        /// Who, as far as known.
        holder: Arc<str>,
    },
}

/// Takes and renews a Lease.
pub struct LeaseKeeper {
    server: Server,
    config: LeaseConfig,
    clock: Arc<dyn Clock>,
    fence: Arc<Fence>,
    standing: watch::Sender<Standing>,
    /// The Lease as it was last written by this process.
    held: Option<Lease>,
    observed: Option<Observation>,
}

impl fmt::Debug for LeaseKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseKeeper").finish_non_exhaustive()
    }
}

/// Another's Lease, and since when it was seen like this.
#[derive(Clone, Debug, PartialEq)]
struct Observation {
    spec: LeaseSpec,
    since: Duration,
}

/// What to do about a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    Take,
    /// It is another's, and may be taken after this time.
    Wait(Duration),
}

// === impl LeaseKeeper ===

impl LeaseKeeper {
    /// A keeper that has not called yet.
    pub fn new(
        server: Server,
        config: LeaseConfig,
        clock: Arc<dyn Clock>,
        fence: Arc<Fence>,
    ) -> Self {
        let holder = "".into();
        Self {
            server,
            config,
            clock,
            fence,
            standing: watch::Sender::new(Standing::Following { holder }),
            held: None,
            observed: None,
        }
    }

    /// Follows where this process stands.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Takes the Lease when it is free and renews it, until this future is dropped. Call
    /// [`Self::release`] then.
    pub async fn keep(&mut self) {
        loop {
            let wait = match self.round().await {
                Ok(wait) => wait,
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "lease not renewed"
                    );
                    self.check_deadline();
                    self.config.period
                }
            };
            sleep(wait).await;
        }
    }

    /// Takes the Lease unless another process renews it: then it is returned who.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn take_unless_held(&mut self) -> Result<Option<Arc<str>>, CallError> {
        loop {
            let before = self.observed.clone();
            let wait = self.round().await?;
            match (&*self.standing.borrow(), &before, &self.observed) {
                (Standing::Leading, _, _) => return Ok(None),
                (Standing::Following { holder }, Some(before), Some(now)) if before != now => {
                    return Ok(Some(Arc::clone(holder)));
                }
                (Standing::Following { .. }, _, _) => {}
            }
            sleep(wait.min(self.config.period)).await;
        }
    }

    /// Gives the Lease back, so that another process can take it at once.
    pub async fn release(&mut self) {
        self.fence.fall();
        let Some(mut lease) = self.held.take() else {
            return;
        };
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.clock.wall()));
        }
        if let Err(error) = self.write(&lease).await {
            warn!(
                error = &error as &dyn std::error::Error,
                "lease not released"
            );
        }
        self.stand(Standing::Following { holder: "".into() });
    }

    /// One look or renewal; says when the next is due.
    async fn round(&mut self) -> Result<Duration, CallError> {
        let began = self.clock.since_boot();
        if let Some(lease) = &self.held {
            let lease = self.renewed(lease.clone());
            return match self.write(&lease).await {
                Ok(written) => {
                    self.lead(written, began);
                    Ok(self.config.renewal())
                }
                // Another process wrote it: it is looked at in the next round.
                Err(error) if matches!(error.code(), Some(404 | 409)) => {
                    self.held = None;
                    self.check_deadline();
                    Ok(Duration::ZERO)
                }
                Err(error) => Err(error),
            };
        }
        let present = match self.read().await {
            Ok(lease) => Some(lease),
            Err(error) if error.code() == Some(404) => None,
            Err(error) => return Err(error),
        };
        let spec = present.as_ref().and_then(|lease| lease.spec.as_ref());
        match self.decide(spec, began) {
            Decision::Wait(time) => {
                let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
                self.fence.fall();
                self.stand(Standing::Following {
                    holder: holder.unwrap_or_default().into(),
                });
                Ok(time.min(self.config.period))
            }
            Decision::Take => {
                let lease = self.taken(present);
                match self.write(&lease).await {
                    Ok(written) => {
                        self.lead(written, began);
                        Ok(self.config.renewal())
                    }
                    Err(error) if error.code() == Some(409) => Ok(self.config.period),
                    Err(error) => Err(error),
                }
            }
        }
    }

    fn lead(&mut self, lease: Lease, began: Duration) {
        self.held = Some(lease);
        self.observed = None;
        self.fence.extend(began + self.config.deadline);
        self.stand(Standing::Leading);
    }

    /// A leader that could not renew in time leads no more.
    fn check_deadline(&mut self) {
        if !self.fence.stands() {
            self.stand(Standing::Following { holder: "".into() });
        }
    }

    fn stand(&self, standing: Standing) {
        self.standing.send_if_modified(|present| {
            if *present == standing {
                return false;
            }
            match &standing {
                Standing::Leading => info!("leading"),
                Standing::Following { holder } => info!(%holder, "following"),
            }
            *present = standing;
            true
        });
    }

    /// Whether a Lease may be taken. Another's counts from when it was first seen as it is, so
    /// that clocks need not agree; less the time that may have passed unseen since it was renewed.
    fn decide(&mut self, spec: Option<&LeaseSpec>, now: Duration) -> Decision {
        let Some(spec) = spec else {
            return Decision::Take;
        };
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == self.config.identity {
            return Decision::Take;
        }
        let since = match &self.observed {
            Some(observed) if observed.spec == *spec => observed.since,
            Some(_) | None => {
                self.observed = Some(Observation {
                    spec: spec.clone(),
                    since: now,
                });
                now
            }
        };
        let secs = spec
            .lease_duration_seconds
            .and_then(|secs| u64::try_from(secs).ok());
        let lasts = secs.map_or(self.config.duration, Duration::from_secs);
        let ends = since + lasts.saturating_sub(self.config.period);
        match ends.checked_sub(now) {
            Some(left) if !left.is_zero() => Decision::Wait(left),
            Some(_) | None => Decision::Take,
        }
    }

    fn renewed(&self, mut lease: Lease) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(MicroTime(self.clock.wall()));
        lease
    }

    fn taken(&self, present: Option<Lease>) -> Lease {
        let mut lease = present.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                namespace: Some(self.config.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let now: Timestamp = self.clock.wall();
        let spec = lease.spec.get_or_insert_default();
        let is_new = spec.holder_identity.is_none();
        spec.lease_transitions =
            Some(spec.lease_transitions.unwrap_or_default() + i32::from(!is_new));
        spec.holder_identity = Some(self.config.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.config.duration.as_secs()).ok();
        spec.acquire_time = Some(MicroTime(now));
        spec.renew_time = Some(MicroTime(now));
        lease
    }

    async fn read(&self) -> Result<Lease, CallError> {
        let path = self.config.path();
        self.send(Call::get(&path)).await
    }

    async fn write(&self, lease: &Lease) -> Result<Lease, CallError> {
        let json = serde_json::to_value(lease).expect("a Lease has string keys only");
        let path = self.config.path();
        let is_new = lease.metadata.resource_version.is_none();
        let (method, path) = if is_new {
            let end = path.rfind('/').unwrap_or(path.len());
            (Method::POST, path[..end].to_owned())
        } else {
            (Method::PUT, path)
        };
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.send(Call::with_body(method, &path, &json)).await
    }

    /// Gives up early enough that a second try fits before the deadline.
    async fn send(&self, call: Call<'_>) -> Result<Lease, CallError> {
        let body = self
            .server
            .call_within(call, self.config.deadline / 3)
            .await?;
        serde_json::from_slice(&body).map_err(|source| CallError::Answer { source })
    }
}
