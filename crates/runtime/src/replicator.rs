//! The command `tombolo replicator`.

use std::fs;
use std::sync::Arc;

use clap::Args;
use futures::future::join_all;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tombolo_registry::replicator::{Replicator, Route};

use crate::exit::Exit;
use crate::input::{Refusal, chain};
use crate::print;
use crate::registry::{RegistryArgs, failed};

/// Copies the own region's part of the registry into the etcd of each peer region.
///
/// The etcd that is copied from is that of --registry, of the region --region. Run one, or several
/// of which one copies, in each region. Credentials are the same at all of them. Ctrl-C ends it.
#[derive(Debug, Args)]
pub(crate) struct ReplicatorArgs {
    /// A peer region and its etcd: NAME=https://HOST:PORT, with a comma between members. May be
    /// given several times.
    #[arg(long, value_name = "NAME=URL", required = true)]
    pub(crate) to: Vec<String>,

    #[command(flatten)]
    pub(crate) from: RegistryArgs,
}

/// Runs the command.
pub(crate) async fn run(args: ReplicatorArgs) -> Result<Exit, Refusal> {
    let (from, region) = (args.from.config()?, args.from.region()?);
    let holder: Arc<str> = holder().into();
    let mut replicators = Vec::new();
    let mut wrong = Vec::new();
    for peer in &args.to {
        let Some((name, urls)) = peer.split_once('=') else {
            wrong.push(format!("--to: {peer:?} is not NAME=URL"));
            continue;
        };
        if name == region.to_string() {
            wrong.push(format!("--to: {name} is the own region"));
        }
        let mut to = from.clone();
        to.endpoints = urls.split(',').map(str::to_owned).collect();
        let route = Route {
            region: region.clone(),
            from: from.clone(),
            to,
            holder: Arc::clone(&holder),
        };
        match Replicator::try_new(route) {
            Ok(replicator) => replicators.push((name.to_owned(), replicator)),
            Err(error) => wrong.push(format!("--to: {}", chain(&error))),
        }
    }
    if !wrong.is_empty() {
        return Err(Refusal::usage(wrong));
    }
    let stop = CancellationToken::new();
    let copies = replicators
        .iter()
        .map(|(_, replicator)| replicator.run(stop.clone()));
    let mut copies = std::pin::pin!(join_all(copies));
    let tells = replicators
        .iter()
        .map(|(name, replicator)| tell(name, replicator));
    let mut terminate = failed(signal(SignalKind::terminate()))?;
    tokio::select! {
        biased;
        told = tokio::signal::ctrl_c() => failed(told)?,
        _ = terminate.recv() => {}
        _ = &mut copies => return Ok(Exit::Well),
        _ = join_all(tells) => {}
    }
    stop.cancel();
    copies.await;
    Ok(Exit::Well)
}

/// One line for each change of what it does. Ends when nobody reads them.
async fn tell(name: &str, replicator: &Replicator) {
    let mut progress = replicator.progress();
    let mut last = None;
    loop {
        let line = {
            let progress = progress.borrow_and_update();
            let (phase, error) = (progress.phase, progress.error.clone());
            let news = last.as_ref() != Some(&(phase, error.clone()));
            last = Some((phase, error.clone()));
            let error = error.map(|error| format!(": {error}")).unwrap_or_default();
            let revision = progress.revision;
            news.then(|| format!("to {name}: {phase:?} at revision {revision}{error}\n"))
        };
        if line.is_some_and(|line| print::out(&line).is_err()) || progress.changed().await.is_err()
        {
            return;
        }
    }
}

/// A name for this process that no other has.
fn holder() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), std::process::id())
}
