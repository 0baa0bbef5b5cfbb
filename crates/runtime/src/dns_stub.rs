//! `tombolo dns-stub`: tells a cluster's CoreDNS who answers for the zones of the clusterset, and
//! takes that back. What is done to the text is decided in `tombolo_dns`.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tombolo_cluster::api::{
    Access, ConfigMapWrite, Server, read_config_map, service_ips, write_config_map,
};
use tombolo_dns::{Stub, remove_stub};

use crate::controller::settings::AccessArgs;
use crate::dns::settings::{PORT, addresses};
use crate::exit::Exit;
use crate::input::{Refusal, chain};
use crate::print;
use crate::zones::ZoneArgs;

/// Attempts where others write the ConfigMap too.
const TRIES: usize = 5;

/// Puts the zones of the clusterset into CoreDNS' configuration, and takes them out again.
///
/// The stub is a server block of its own; everything else in the Corefile stays as it is, byte for
/// byte. A Corefile that is not understood is left alone.
#[derive(Debug, Args)]
pub(crate) struct DnsStubArgs {
    #[command(subcommand)]
    pub(crate) command: DnsStubCommand,
}

/// What is done with the stub.
#[derive(Debug, Subcommand)]
pub(crate) enum DnsStubCommand {
    /// Prints the stub alone, for a Corefile that somebody else keeps.
    Print {
        #[command(flatten)]
        stub: StubArgs,
        #[command(flatten)]
        access: AccessArgs,
    },
    /// Adds the stub, or brings it up to date.
    Add {
        #[command(flatten)]
        stub: StubArgs,
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Removes the stub.
    Remove {
        #[command(flatten)]
        target: TargetArgs,
    },
}

/// What the stub says.
#[derive(Debug, Args)]
pub(crate) struct StubArgs {
    #[command(flatten)]
    pub(crate) zones: ZoneArgs,

    /// Where `tombolo dns` answers. Without a port: 53. Default: the cluster IPs of --service.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TOMBOLO_DNS_STUB_SERVER",
        value_delimiter = ','
    )]
    pub(crate) server: Vec<String>,

    /// The Service of `tombolo dns`.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "TOMBOLO_DNS_STUB_SERVICE",
        default_value = "tombolo-system/tombolo-dns"
    )]
    pub(crate) service: String,
}

/// Where the Corefile is.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Change this file instead of a cluster's ConfigMap.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// The ConfigMap that holds the Corefile.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "TOMBOLO_DNS_STUB_CONFIG_MAP",
        default_value = "kube-system/coredns"
    )]
    pub(crate) config_map: String,

    /// The key of the Corefile in the ConfigMap.
    #[arg(
        long,
        value_name = "KEY",
        env = "TOMBOLO_DNS_STUB_KEY",
        default_value = "Corefile"
    )]
    pub(crate) key: String,

    /// Print the new Corefile and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// What becomes of a Corefile, or why nothing does.
type Edit = dyn Fn(&str) -> Result<String, Refusal> + Send + Sync;

/// Runs the command.
pub(crate) async fn run(args: DnsStubArgs) -> Result<Exit, Refusal> {
    match args.command {
        DnsStubCommand::Print { stub, access } => {
            let stub = stub.stub(&access).await?;
            print_all(&stub.stanza())?;
        }
        DnsStubCommand::Add { stub, target } => {
            let stub = stub.stub(&target.access).await?;
            let add = move |text: &str| {
                let added = stub.add_to(text);
                added.map_err(|error| Refusal::failed(chain(&error)))
            };
            target.edit(&add).await?;
        }
        DnsStubCommand::Remove { target } => {
            let remove = |text: &str| {
                let removed = remove_stub(text);
                removed.map_err(|error| Refusal::failed(chain(&error)))
            };
            target.edit(&remove).await?;
        }
    }
    Ok(Exit::Well)
}

fn print_all(text: &str) -> Result<(), Refusal> {
    print::out(text).map_err(|error| Refusal::failed(chain(&error)))
}

/// Reads `NAMESPACE/NAME`.
fn pair<'a>(flag: &str, text: &'a str) -> Result<(&'a str, &'a str), Refusal> {
    let is_plain = |part: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
        !part.is_empty() && part.bytes().all(inner)
    };
    text.split_once('/')
        .filter(|(namespace, name)| is_plain(namespace) && is_plain(name))
        .ok_or_else(|| {
            Refusal::usage(vec![format!(
                "{flag} {text}: it has the form NAMESPACE/NAME"
            )])
        })
}

async fn connect(access: &AccessArgs) -> Result<Server, Refusal> {
    let server = Access::from(access).server().await;
    server.map_err(|error| Refusal::failed(chain(&error)))
}

impl StubArgs {
    /// The stub; where no server is given, the Service is asked for.
    async fn stub(&self, access: &AccessArgs) -> Result<Stub, Refusal> {
        let Self {
            zones,
            server,
            service,
        } = self;
        let mut wrong = Vec::new();
        let mut servers = addresses("--server", server, &mut wrong);
        let ttl_secs = zones.ttl;
        let zones = zones.zones().unwrap_or_else(|messages| {
            wrong.extend(messages);
            tombolo_dns::Zones::new([], ttl_secs)
        });
        if !wrong.is_empty() {
            return Err(Refusal::usage(wrong));
        }
        if servers.is_empty() {
            let (namespace, name) = pair("--service", service)?;
            let ips = service_ips(&connect(access).await?, namespace, name).await;
            let ips = ips.map_err(|error| Refusal::failed(chain(&error)))?;
            servers.extend(ips.into_iter().map(|ip| SocketAddr::new(ip, PORT)));
        }
        if servers.is_empty() {
            return Err(Refusal::failed(format!(
                "there is no Service {service} with a cluster IP: install `tombolo dns` first, or \
                 give its address by --server"
            )));
        }
        Ok(Stub {
            zones: zones.names().cloned().collect(),
            servers,
            cache_secs: ttl_secs,
        })
    }
}

impl TargetArgs {
    /// Edits the Corefile where it is.
    async fn edit(&self, edit: &Edit) -> Result<(), Refusal> {
        match &self.file {
            Some(file) => self.edit_file(file, edit),
            None => self.edit_config_map(edit).await,
        }
    }

    fn edit_file(&self, file: &Path, edit: &Edit) -> Result<(), Refusal> {
        let failed = |what: &str, error: &std::io::Error| {
            Refusal::failed(format!("cannot {what} {}: {error}", file.display()))
        };
        let old = fs::read_to_string(file).map_err(|error| failed("read", &error))?;
        let new = edit(&old)?;
        if self.dry_run {
            return print_all(&new);
        }
        if new != old {
            replace(file, &new).map_err(|error| failed("write", &error))?;
        }
        print::say(&told(&file.display().to_string(), new != old));
        Ok(())
    }

    async fn edit_config_map(&self, edit: &Edit) -> Result<(), Refusal> {
        let (namespace, name) = pair("--config-map", &self.config_map)?;
        let server = connect(&self.access).await?;
        let place = format!("ConfigMap {namespace}/{name}, key {}", self.key);
        let failed = |error| Refusal::failed(format!("{place}: {}", chain(&error)));
        for _ in 0..TRIES {
            let read = read_config_map(&server, namespace, name, &self.key).await;
            let Some(old) = read.map_err(failed)? else {
                return Err(Refusal::failed(format!("{place}: there is no such text")));
            };
            let new = edit(&old.text)?;
            if self.dry_run {
                return print_all(&new);
            }
            if new == old.text {
                print::say(&told(&place, false));
                return Ok(());
            }
            let write = (&old, new.as_str());
            let written = write_config_map(&server, namespace, name, &self.key, write).await;
            if written.map_err(failed)? == ConfigMapWrite::Done {
                print::say(&told(&place, true));
                return Ok(());
            }
        }
        Err(Refusal::failed(format!(
            "{place}: others change it all the time, try again"
        )))
    }
}

fn told(place: &str, is_changed: bool) -> String {
    let what = if is_changed { "changed" } else { "unchanged" };
    format!("{place}: {what}")
}

/// Replaces a file as a whole, so that nobody reads half of it.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".tombolo");
    let beside = file.with_file_name(name);
    let mut new = fs::File::create(&beside)?;
    new.write_all(text.as_bytes())?;
    new.set_permissions(fs::metadata(file)?.permissions())?;
    new.sync_all()?;
    fs::rename(&beside, file)
}
