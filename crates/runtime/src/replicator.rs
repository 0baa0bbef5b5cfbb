//! The command `tombolo replicator`.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use prometheus_client::registry::Registry as Metrics;
use tombolo_registry::replicator::{Replicator, Route};
use tracing::info;

use self::peers::PeerArgs;
use self::status::Status;
use crate::admin::{Admin, Told};
use crate::controller::settings::{AdminArgs, admin_address};
use crate::controller::{identity, serve, told_to_stop};
use crate::exit::Exit;
use crate::input::{Refusal, chain};
use crate::logging;
use crate::registry::RegistryArgs;
use crate::supervisor::Supervisor;

mod peers;
mod status;

/// How long the locks may take to be given back: the deadline of a call, and as much again.
const GRACE: Duration = Duration::from_secs(10);

/// Copies the own region's part of the registry into the etcd of each peer region.
///
/// The etcd that is copied from is that of --registry, of the region --region. Run one, or several
/// of which one copies, in each region. Ctrl-C ends it.
#[derive(Debug, Args)]
pub(crate) struct ReplicatorArgs {
    #[command(flatten)]
    pub(crate) peers: PeerArgs,

    #[command(flatten)]
    pub(crate) from: RegistryArgs,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Runs the command.
pub(crate) async fn run(args: ReplicatorArgs) -> Result<Exit, Refusal> {
    let routes = routes(&args)?;
    let admin = admin_address(&args.admin.admin);
    let admin = admin.map_err(|message| Refusal::usage(vec![message]))?;
    let level = logging::init(&args.admin)?;
    let told = told_to_stop()?;
    let mut supervisor = Supervisor::default();
    let mut metrics = Metrics::default();
    let mut parts: Vec<Arc<dyn Told>> = Vec::new();
    let mut replicators = Vec::new();
    for route in routes {
        let (peer, to) = (route.peer.clone(), &route.to.endpoints);
        info!(%peer, ?to, from = ?route.from.endpoints, region = %route.region, "tombolo replicator");
        let replicator = Replicator::try_new(route);
        let replicator = replicator.map_err(|error| Refusal::usage(vec![chain(&error)]))?;
        let replicator = Arc::new(replicator);
        let stop = supervisor.stop();
        replicators.push((peer.clone(), Arc::clone(&replicator)));
        parts.push(Arc::new(Status {
            peer: peer.clone(),
            replicator: Arc::clone(&replicator),
        }));
        supervisor.spawn(format!("replicate to {peer}"), async move {
            replicator.run(stop).await;
        });
    }
    status::register(&mut metrics, replicators);
    if let Some(address) = admin {
        let admin = Admin {
            parts,
            metrics,
            level,
        };
        serve(address, admin, &mut supervisor).await?;
    }
    let ended = supervisor.run(told, GRACE).await;
    ended.map_err(|error| Refusal::failed(chain(&error)))?;
    Ok(Exit::Well)
}

/// What is copied where; everything wrong is said at once.
fn routes(args: &ReplicatorArgs) -> Result<Vec<Route>, Refusal> {
    let ReplicatorArgs {
        peers,
        from,
        admin: _,
    } = args;
    let (from, region) = (from.config()?, from.region()?);
    let holder: Arc<str> = identity().into();
    let mut wrong = Vec::new();
    let peers = peers.read(&mut wrong);
    if peers.contains_key(&region) {
        wrong.push(format!("--to: {region} is the own region"));
    }
    let routes = peers.into_iter().map(|(peer, reached)| {
        let mut to = from.clone();
        to.endpoints = reached.urls;
        if let Some(credentials) = reached.credentials {
            credentials.set(&mut to);
        }
        if let Err(error) = to.check() {
            wrong.push(format!("--to {peer}: {error}"));
        }
        Route {
            region: region.clone(),
            from: from.clone(),
            peer,
            to,
            holder: Arc::clone(&holder),
        }
    });
    let routes: Vec<_> = routes.collect();
    if wrong.is_empty() {
        Ok(routes)
    } else {
        Err(Refusal::usage(wrong))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser as _;
    use tombolo_registry::etcd::{Password, TlsFiles};

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        replicator: ReplicatorArgs,
    }

    fn parsed(args: &[&str]) -> Result<Vec<Route>, Vec<String>> {
        let own = [
            "tombolo",
            "--region",
            "eu",
            "--registry",
            "https://etcd.eu:2379",
            "--registry-ca",
            "eu.crt",
            "--registry-user",
            "reader",
            "--registry-password-file",
            "reader.password",
        ];
        let cli = Cli::try_parse_from(own.iter().chain(args)).unwrap();
        routes(&cli.replicator).map_err(|refusal| refusal.messages)
    }

    #[test]
    fn a_peer_has_its_own_credentials_or_those_of_the_own_region() {
        let routes = parsed(&[
            "--to",
            "us=https://a.us:2379,https://b.us:2379",
            "--to",
            "ap=https://etcd.ap:2379",
            "--to-ca",
            "us=us.crt",
            "--to-cert",
            "us=eu-at-us.crt",
            "--to-key",
            "us=eu-at-us.key",
            "--to-server-name",
            "us=etcd.us",
        ])
        .unwrap();
        let [ap, us] = &routes[..] else {
            panic!("{routes:?}");
        };
        assert_eq!((&*ap.peer.to_string(), &*us.peer.to_string()), ("ap", "us"));
        assert_eq!(us.to.endpoints, ["https://a.us:2379", "https://b.us:2379"]);
        let own = TlsFiles {
            authority: Some("eu.crt".into()),
            ..TlsFiles::default()
        };
        assert_eq!((&ap.to.tls, &ap.from.tls), (&own, &own));
        assert_eq!(ap.to.user.as_ref().unwrap().name, "reader");
        let theirs = TlsFiles {
            authority: Some("us.crt".into()),
            identity: Some(("eu-at-us.crt".into(), "eu-at-us.key".into())),
            server_name: Some("etcd.us".to_owned()),
        };
        assert_eq!(us.to.tls, theirs);
        assert!(us.to.user.is_none(), "a password is shown to nobody else");
        assert_eq!(us.from.tls, own);
    }

    #[test]
    fn a_peer_has_a_user_of_its_own() {
        let routes = parsed(&[
            "--to",
            "us=http://etcd.us:2379",
            "--to-user",
            "us=eu",
            "--to-password-file",
            "us=us.password",
        ]);
        let routes = routes.unwrap();
        let user = routes[0].to.user.as_ref().unwrap();
        assert_eq!(user.name, "eu");
        let Password::File(file) = &user.password else {
            panic!("{user:?}");
        };
        assert_eq!(file, Path::new("us.password"));
        assert_eq!(routes[0].to.tls, TlsFiles::default());
    }

    #[test]
    fn everything_wrong_with_peers_is_said_at_once() {
        let wrong = parsed(&[
            "--to",
            "http://etcd.us",
            "--to",
            "eu=https://etcd.eu",
            "--to",
            "us=https://etcd.us",
            "--to",
            "us=https://other.us",
            "--to",
            "ap=http://etcd.ap",
            "--to-ca",
            "ap=ap.crt",
            "--to-ca",
            "sa=sa.crt",
            "--to-key",
            "us=us.key",
            "--to-user",
            "us=eu",
        ]);
        let expected = [
            "--to: \"http://etcd.us\" is not REGION=URL",
            "--to: us is given twice",
            "--to-ca: there is no --to sa=URL",
            "--to-key us: --to-cert us=FILE is missing",
            "--to-user us: --to-password-file us=FILE is missing",
            "--to: eu is the own region",
            "--to ap: certificates are given, but \"http://etcd.ap\" is not https://",
        ];
        assert_eq!(wrong.unwrap_err(), expected);
    }
}
