//! The registry's session: opened by the process that leads, opened again when it is lost, and
//! amended when what it says changes.
//!
//! A leader that cannot reach its own API server leads no more, but nobody else does either: it
//! keeps its session, and puts it back where there is none, so that its cluster is blind and not
//! gone (DESIGN §2.3).

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tombolo_cluster::api::{Report, Standing};
use tombolo_model::io::Input;
use tombolo_model::record::Owner;
use tombolo_model::service::IpFamily;
use tombolo_registry::error::Error;
use tombolo_registry::registry::Registry;
use tombolo_registry::session::{Claim, NewSession, Opening, TakeOver};
use tracing::{info, warn};

use super::status::Status;
use crate::clock;

/// Between attempts to open a session.
const RETRY: Duration = Duration::from_secs(2);
/// Likewise, where somebody has to do something first.
const REFUSED_RETRY: Duration = Duration::from_secs(10);
/// An API server that restarts makes no cluster blind.
const BLIND_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// What there is to say of a cluster, once that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) families: Vec<IpFamily>,
    pub(crate) cidrs: Vec<IpNet>,
    /// Since when something cannot be listed that is published from.
    pub(crate) blind_since: Option<Timestamp>,
}

/// What the session says of its writer.
pub(crate) struct Writer {
    pub(crate) holder: Arc<str>,
    /// The UID of the cluster's kube-system namespace.
    pub(crate) owner: Arc<str>,
    pub(crate) started: Timestamp,
    /// Whether the name may be taken from another owner: once.
    pub(crate) take_over: TakeOver,
    /// With what right it opens a session while it leads: as the leader if something sees to it
    /// that there is one at most.
    pub(crate) claim: Claim,
}

/// What the session follows.
pub(crate) struct Seen {
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) network: watch::Receiver<Network>,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) status: Arc<Status>,
}

/// With what right this process may open a session now.
fn claim(standing: &Standing, leader: Claim, has_led: bool) -> Option<Claim> {
    match standing {
        Standing::Leading => Some(leader),
        // Nobody leads, as far as this process can tell.
        Standing::Following { holder } if has_led && holder.is_empty() => Some(Claim::Vacant),
        Standing::Following { .. } => None,
    }
}

/// How long until blindness is to be told, if it is to be.
fn until_blind(blind_since: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let told_at = blind_since?.checked_add(BLIND_AFTER).ok()?;
    Duration::try_from(told_at.duration_since(now)).ok()
}

impl Writer {
    fn opening(&self, claim: Claim, session: NewSession) -> Opening {
        Opening {
            owner: Owner {
                uid: Arc::clone(&self.owner),
            },
            session,
            claim,
            take_over: self.take_over,
        }
    }

    fn session(&self, network: &Network, now: Timestamp) -> NewSession {
        let is_told = until_blind(network.blind_since, now).is_none();
        NewSession {
            holder: Arc::clone(&self.holder),
            started: self.started,
            software: env!("CARGO_PKG_VERSION").into(),
            families: network.families.clone(),
            service_cidrs: network.cidrs.clone(),
            blind_since: network.blind_since.filter(|_| is_told),
        }
    }
}

/// The session as this process keeps it.
struct Keeper<R> {
    registry: Arc<R>,
    writer: Writer,
    status: Arc<Status>,
    has_led: bool,
    /// What the session says at present.
    said: Option<NewSession>,
    /// Why there is none, as it was last logged.
    refusal: Option<String>,
}

/// Keeps a session while this process leads; tells the shell its epoch. Ends with the registry.
pub(crate) async fn keep<R: Registry>(registry: Arc<R>, writer: Writer, seen: Seen) {
    let Seen {
        mut standing,
        mut network,
        reports,
        status,
    } = seen;
    let mut session = registry.session();
    let mut keeper = Keeper {
        registry,
        writer,
        status,
        has_led: false,
        said: None,
        refusal: None,
    };
    let mut told = None;
    loop {
        let stands = standing.borrow_and_update().clone();
        let here = network.borrow_and_update().clone();
        let mut epoch = *session.borrow_and_update();
        let claim = claim(&stands, keeper.writer.claim, keeper.has_led);
        let mut wait = until_blind(here.blind_since, clock::now());
        match (epoch, claim) {
            (None, Some(claim)) if !here.families.is_empty() => {
                match keeper.open(claim, &here).await {
                    Ok(opened) => {
                        session.mark_unchanged();
                        epoch = Some(opened);
                    }
                    Err(retry) => wait = Some(retry),
                }
            }
            (Some(_), _) => wait = keeper.amend(&here).await.err().or(wait),
            (None, _) => {}
        }
        let leads = stands == Standing::Leading;
        keeper.has_led |= leads && epoch.is_some();
        let usable = epoch.filter(|_| leads);
        if told != usable {
            told = usable;
            let report = Report::Inputs(vec![Input::Session(usable)]);
            if reports.send(report).await.is_err() {
                return;
            }
        }
        let changed = async {
            tokio::select! {
                biased;
                changed = standing.changed() => changed.is_ok(),
                changed = session.changed() => changed.is_ok(),
                changed = network.changed() => changed.is_ok(),
            }
        };
        let goes_on = match wait {
            None => changed.await,
            Some(wait) => timeout(wait, changed).await.unwrap_or(true),
        };
        if !goes_on {
            return;
        }
    }
}

impl<R: Registry> Keeper<R> {
    /// Opens a session; else says when to try again.
    async fn open(&mut self, claim: Claim, network: &Network) -> Result<u64, Duration> {
        let session = self.writer.session(network, clock::now());
        let opening = self.writer.opening(claim, session.clone());
        match self.registry.open(opening).await {
            Ok(epoch) => {
                info!(epoch, "registry session opened");
                // Whoever takes the name from this cluster later is not to be fought.
                self.writer.take_over = TakeOver::Refuse;
                self.said = Some(session);
                self.refusal = None;
                self.status.no_session(None);
                Ok(epoch)
            }
            Err(error) => {
                self.refused(&error);
                Err(if error.is_retryable() {
                    RETRY
                } else {
                    REFUSED_RETRY
                })
            }
        }
    }

    fn refused(&mut self, error: &Error) {
        let text = crate::input::chain(error);
        if self.refusal.as_ref() != Some(&text) {
            warn!(reason = error.kind(), %error, "no registry session");
            self.status.no_session(Some(text.clone()));
            self.refusal = Some(text);
        }
    }

    /// Makes the session say what is so; else says when to try again.
    async fn amend(&mut self, network: &Network) -> Result<(), Duration> {
        let session = self.writer.session(network, clock::now());
        if self.said.as_ref() == Some(&session) {
            return Ok(());
        }
        match self.registry.amend(session.clone()).await {
            Ok(_) => {
                if let Some(since) = session.blind_since {
                    warn!(%since, "the registry is told that this cluster cannot see its objects");
                }
                self.said = Some(session);
                Ok(())
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                warn!(error, "registry session not amended");
                Err(RETRY)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_opened_by_who_leads_and_put_back_by_who_led() {
        let following = |holder: &str| Standing::Following {
            holder: holder.into(),
        };
        let claim = |standing, has_led| claim(&standing, Claim::Leader, has_led);
        assert_eq!(claim(Standing::Leading, false), Some(Claim::Leader));
        assert_eq!(claim(following(""), true), Some(Claim::Vacant));
        assert_eq!(claim(following(""), false), None);
        assert_eq!(claim(following("another"), true), None);
    }

    #[test]
    fn blindness_is_told_after_a_while() {
        let since = Timestamp::UNIX_EPOCH;
        let after = |secs| since + SignedDuration::from_secs(secs);
        assert_eq!(until_blind(None, after(100)), None);
        assert_eq!(
            until_blind(Some(since), after(4)),
            Some(Duration::from_secs(6))
        );
        assert_eq!(until_blind(Some(since), after(11)), None);
    }
}
