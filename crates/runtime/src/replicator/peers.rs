//! The peers of `tombolo replicator` as they are typed: a region, its etcd, and who is asking there.

use std::collections::BTreeMap;

use clap::Args;
use tombolo_model::names::Region;

use crate::registry::Credentials;

/// Where it is copied to. What begins with `--to-` may be given once for each region.
#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// A peer region and its etcd: REGION=https://HOST:PORT, with a comma between members. May be
    /// given several times.
    #[arg(long, value_name = "REGION=URL", required = true)]
    pub(crate) to: Vec<String>,

    /// The certificate of who signed those of a peer's etcd servers. A peer for which any of the
    /// --to-… options is given has those and no others; else those of --registry-….
    #[arg(long, value_name = "REGION=FILE")]
    pub(crate) to_ca: Vec<String>,

    /// The own certificate at a peer. Read again when it changes.
    #[arg(long, value_name = "REGION=FILE")]
    pub(crate) to_cert: Vec<String>,

    /// The key of the own certificate at a peer.
    #[arg(long, value_name = "REGION=FILE")]
    pub(crate) to_key: Vec<String>,

    /// The name that a peer's certificates are for, if not that of its URLs.
    #[arg(long, value_name = "REGION=NAME")]
    pub(crate) to_server_name: Vec<String>,

    /// The user at a peer, where certificates do not say who it is.
    #[arg(long, value_name = "REGION=NAME")]
    pub(crate) to_user: Vec<String>,

    /// A file whose first line is that user's password. Read again when it changes.
    #[arg(long, value_name = "REGION=FILE")]
    pub(crate) to_password_file: Vec<String>,
}

/// Sets one of the credentials.
type Set = fn(&mut Credentials, String);

/// How a peer is reached.
#[derive(Debug, Default)]
pub(super) struct Reached {
    pub(super) urls: Vec<String>,
    /// `None`: with those of the own region.
    pub(super) credentials: Option<Credentials>,
}

// === impl PeerArgs ===

impl PeerArgs {
    /// All peers, as far as they can be understood.
    pub(super) fn read(&self, wrong: &mut Vec<String>) -> BTreeMap<Region, Reached> {
        let Self {
            to,
            to_ca,
            to_cert,
            to_key,
            to_server_name,
            to_user,
            to_password_file,
        } = self;
        let mut peers = BTreeMap::new();
        for (region, urls) in pairs(("--to", "URL"), to, wrong) {
            let reached = Reached {
                urls: urls.split(',').map(str::to_owned).collect(),
                credentials: None,
            };
            if peers.insert(region.clone(), reached).is_some() {
                wrong.push(format!("--to: {region} is given twice"));
            }
        }
        let options: [(_, _, Set); 6] = [
            ("--to-ca", to_ca, |c, text| c.ca = Some(text.into())),
            ("--to-cert", to_cert, |c, text| c.cert = Some(text.into())),
            ("--to-key", to_key, |c, text| c.key = Some(text.into())),
            ("--to-server-name", to_server_name, |c, text| {
                c.server_name = Some(text);
            }),
            ("--to-user", to_user, |c, text| c.user = Some(text)),
            ("--to-password-file", to_password_file, |c, text| {
                c.password_file = Some(text.into());
            }),
        ];
        for (flag, given, set) in options {
            for (region, text) in pairs((flag, "VALUE"), given, wrong) {
                match peers.get_mut(&region) {
                    Some(peer) => set(peer.credentials.get_or_insert_default(), text),
                    None => wrong.push(format!("{flag}: there is no --to {region}=URL")),
                }
            }
        }
        for (region, peer) in &peers {
            wrong.extend(peer.credentials.iter().flat_map(|c| halves(region, c)));
        }
        peers
    }
}

/// What goes together and is not there.
fn halves(region: &Region, credentials: &Credentials) -> Vec<String> {
    let Credentials {
        ca: _,
        cert,
        key,
        server_name: _,
        user,
        password_file,
    } = credentials;
    let pairs = [
        (
            ("--to-cert", "FILE", cert.is_some()),
            ("--to-key", "FILE", key.is_some()),
        ),
        (
            ("--to-user", "NAME", user.is_some()),
            ("--to-password-file", "FILE", password_file.is_some()),
        ),
    ];
    let missing = pairs.into_iter().filter_map(|pair| match pair {
        ((one, _, true), (other, value, false)) | ((other, value, false), (one, _, true)) => Some(
            format!("{one} {region}: {other} {region}={value} is missing"),
        ),
        (_, _) => None,
    });
    missing.collect()
}

/// Each REGION=VALUE.
fn pairs(
    (flag, value): (&str, &str),
    given: &[String],
    wrong: &mut Vec<String>,
) -> Vec<(Region, String)> {
    let parsed = given.iter().filter_map(|text| {
        let Some((region, text)) = text.split_once('=') else {
            wrong.push(format!("{flag}: {text:?} is not REGION={value}"));
            return None;
        };
        match Region::try_new(region) {
            Ok(region) => Some((region, text.to_owned())),
            Err(error) => {
                wrong.push(format!("{flag}: {error}"));
                None
            }
        }
    });
    parsed.collect()
}
