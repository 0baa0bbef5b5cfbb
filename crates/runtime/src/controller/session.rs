//! The registry's session: open while this process leads, and opened again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tombolo_cluster::api::{Report, Standing};
use tombolo_model::io::Input;
use tombolo_model::record::Owner;
use tombolo_model::service::IpFamily;
use tombolo_registry::registry::Registry;
use tombolo_registry::session::{Claim, NewSession, Opening, TakeOver};
use tracing::{info, warn};

/// Between attempts to open a session.
const RETRY: Duration = Duration::from_secs(2);

/// What a cluster's network is like, once that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) families: Vec<IpFamily>,
    pub(crate) cidrs: Vec<IpNet>,
}

/// What the session says of its writer.
pub(crate) struct Writer {
    pub(crate) holder: Arc<str>,
    /// The UID of the cluster's kube-system namespace.
    pub(crate) owner: Arc<str>,
    pub(crate) started: Timestamp,
}

impl Writer {
    fn opening(&self, network: &Network) -> Opening {
        Opening {
            owner: Owner {
                uid: Arc::clone(&self.owner),
            },
            session: self.session(network),
            claim: Claim::Leader,
            take_over: TakeOver::Refuse,
        }
    }

    fn session(&self, network: &Network) -> NewSession {
        NewSession {
            holder: Arc::clone(&self.holder),
            started: self.started,
            software: env!("CARGO_PKG_VERSION").into(),
            families: network.families.clone(),
            service_cidrs: network.cidrs.clone(),
            blind_since: None,
        }
    }
}

/// Keeps a session while this process leads; tells the shell its epoch. Ends with the registry.
pub(crate) async fn keep<R: Registry>(
    registry: Arc<R>,
    writer: Writer,
    mut standing: watch::Receiver<Standing>,
    mut network: watch::Receiver<Network>,
    reports: mpsc::Sender<Report>,
) {
    let mut session = registry.session();
    let mut told = None;
    loop {
        let leads = *standing.borrow_and_update() == Standing::Leading;
        let here = network.borrow_and_update().clone();
        let mut epoch = *session.borrow_and_update();
        if leads && epoch.is_none() && !here.families.is_empty() {
            match registry.open(writer.opening(&here)).await {
                Ok(opened) => {
                    info!(epoch = opened, "registry session opened");
                    session.mark_unchanged();
                    epoch = Some(opened);
                }
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "no registry session"
                    );
                    sleep(RETRY).await;
                    continue;
                }
            }
        }
        let usable = epoch.filter(|_| leads);
        if told != usable {
            told = usable;
            let report = Report::Inputs(vec![Input::Session(usable)]);
            if reports.send(report).await.is_err() {
                return;
            }
        }
        tokio::select! {
            biased;
            changed = standing.changed() => if changed.is_err() { return },
            changed = session.changed() => if changed.is_err() { return },
            changed = network.changed() => {
                if changed.is_err() {
                    return;
                }
                let here = network.borrow_and_update().clone();
                if usable.is_some()
                    && let Err(error) = registry.amend(writer.session(&here)).await
                {
                    warn!(error = &error as &dyn std::error::Error, "registry session not amended");
                }
            }
        }
    }
}
