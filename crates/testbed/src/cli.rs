//! The command line.

mod up;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use tombolo_testbed::{
    Builder, Cache, Cancel, EtcdSpec, ImageSpec, KubernetesVersion, Part, Progress, Spec, Summary,
    Testbed, Tls,
};

use self::up::Up;
use crate::report;

/// Real etcd and Kubernetes clusters on this machine, without Docker
#[derive(Debug, Parser)]
#[command(name = "testbed", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start clusters, and stop them on Ctrl-C
    Up(Up),
    /// Start a stand-alone etcd, and stop it on Ctrl-C
    Etcd(Etcd),
    /// Stop what runs detached or was left behind, and remove all of it
    Down(Down),
    /// Show what runs
    Status,
    /// Kill, pause, cut off or restart a part
    Part(PartArgs),
    /// Build the programs into the cache
    Build(Build),
    /// Pack an image from programs of this machine and give it to all nodes
    Image(Image),
    /// Print the CRDs of the Multi-Cluster Services API
    Crds {
        /// Release of sigs.k8s.io/mcs-api, without the v
        #[arg(long)]
        version: Option<String>,
    },
}

#[derive(Debug, ClapArgs)]
struct Etcd {
    /// Number of members
    #[arg(long, default_value_t = 1)]
    members: u8,
    /// The members have certificates
    #[arg(long)]
    tls: bool,
    /// Clients need certificates too
    #[arg(long)]
    mutual_tls: bool,
    /// Further arguments of each member
    #[arg(last = true)]
    args: Vec<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, ClapArgs)]
struct Place {
    /// Its name on this machine [default: random]
    #[arg(long)]
    id: Option<String>,
    /// State folder, new or empty [default: one per id in /tmp/tombolo-testbed]
    #[arg(long)]
    state: Option<PathBuf>,
    /// Leave it running: `testbed down` stops it
    #[arg(long)]
    detach: bool,
}

#[derive(Debug, ClapArgs)]
struct Down {
    /// State folder of the one to stop, whoever started it
    #[arg(long)]
    state: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
struct PartArgs {
    /// Name of the part, as in `testbed status`
    name: String,
    action: Action,
    /// State folder [default: that of the only testbed]
    #[arg(long)]
    state: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Action {
    Kill,
    Restart,
    Pause,
    Resume,
    Cut,
    Mend,
    Log,
}

#[derive(Debug, ClapArgs)]
struct Build {
    /// Kubernetes versions
    #[arg(long, value_delimiter = ',', default_values_t = [KubernetesVersion::DEFAULT])]
    kubernetes: Vec<KubernetesVersion>,
    /// CoreDNS too
    #[arg(long)]
    coredns: bool,
}

#[derive(Debug, ClapArgs)]
struct Image {
    /// Its name, with tag
    name: String,
    /// Programs to pack, with the libraries that they load
    #[arg(required = true)]
    programs: Vec<PathBuf>,
    /// What pods run unless they say otherwise
    #[arg(last = true)]
    command: Vec<String>,
    /// State folder [default: that of the only testbed]
    #[arg(long)]
    state: Option<PathBuf>,
}

impl Args {
    /// Does what the arguments say.
    pub(crate) fn run(self) -> Result<()> {
        cancel_on_signals()?;
        match self.command {
            Command::Up(up) => up.run(),
            Command::Etcd(etcd) => etcd.run(),
            Command::Down(down) => down.run(),
            Command::Status => {
                report::status(&Testbed::list());
                Ok(())
            }
            Command::Part(part) => part.run(),
            Command::Build(build) => build.run(),
            Command::Image(image) => image.run(),
            Command::Crds { version } => {
                let crds = Builder::new(Cache::from_env()?, Progress::stderr());
                report::text(&crds.mcs_crds(version.as_deref())?);
                Ok(())
            }
        }
    }
}

impl Etcd {
    fn run(self) -> Result<()> {
        let spec = Spec {
            id: self.place.id,
            state: self.place.state,
            ..Spec::default()
        };
        let mut testbed = Testbed::start_with(&spec, Cache::from_env()?, Progress::stderr())?;
        let tls = match (self.tls, self.mutual_tls) {
            (_, true) => Tls::Mutual,
            (true, false) => Tls::Server,
            (false, false) => Tls::Off,
        };
        let etcd_spec = EtcdSpec {
            members: self.members,
            tls,
            args: self.args,
        };
        let etcd = testbed.start_etcd("registry", &etcd_spec)?;
        if let Some(authority) = etcd.authority() {
            report::identity(authority, &authority.issue("root")?);
        }
        report::etcd(&testbed, &etcd);
        hold(testbed, self.place.detach)
    }
}

/// Leaves it running, or waits for Ctrl-C and stops it.
fn hold(testbed: Testbed, detach: bool) -> Result<()> {
    if detach {
        let folder = testbed.detach()?;
        report::line(&format!(
            "running; to stop it: testbed down --state {}",
            folder.display()
        ));
        return Ok(());
    }
    report::line("running; Ctrl-C stops it");
    Cancel::wait();
    testbed.stop()
}

impl Down {
    fn run(self) -> Result<()> {
        if let Some(folder) = self.state {
            return Testbed::remove(&folder);
        }
        for summary in Testbed::list() {
            if summary.is_owned {
                report::line(&format!("{}: left, its owner runs", summary.id));
            } else {
                Testbed::remove(&summary.folder)?;
                report::line(&format!("{}: removed", summary.id));
            }
        }
        Ok(())
    }
}

impl PartArgs {
    fn run(self) -> Result<()> {
        let part = Part::attach(&state_folder(self.state)?, &self.name)?;
        match self.action {
            Action::Kill => part.kill(),
            Action::Restart => part.restart(),
            Action::Pause => part.pause(),
            Action::Resume => part.resume(),
            Action::Cut => part.cut(),
            Action::Mend => part.mend(),
            Action::Log => {
                report::line(&part.log_file().display().to_string());
                report::line(&part.log_tail());
                Ok(())
            }
        }
    }
}

impl Build {
    fn run(self) -> Result<()> {
        let builder = Builder::new(Cache::from_env()?, Progress::stderr());
        report::line(&builder.etcd()?.display().to_string());
        for version in self.kubernetes {
            report::line(&builder.kubernetes(version)?.display().to_string());
        }
        if self.coredns {
            report::line(&builder.coredns()?.display().to_string());
        }
        Ok(())
    }
}

impl Image {
    fn run(self) -> Result<()> {
        let image = ImageSpec {
            name: self.name,
            programs: self.programs,
            scripts: Vec::new(),
            entrypoint: Vec::new(),
            command: self.command,
        };
        Testbed::attach(&state_folder(self.state)?)?.import(&image)
    }
}

/// The given folder, or that of the only testbed that runs.
fn state_folder(given: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(folder) = given {
        return Ok(folder);
    }
    let mut all: Vec<Summary> = Testbed::list();
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only.folder),
        (None, _) => bail!("no testbed runs"),
        (Some(_), false) => bail!("several testbeds run: say which by --state"),
    }
}

/// Ctrl-C and SIGTERM end waits, so that the way out cleans up.
fn cancel_on_signals() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let mut term =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            tokio::select! {
                signal = tokio::signal::ctrl_c() => signal?,
                _ = term.recv() => {}
            }
            Cancel::set();
            anyhow::Ok(())
        })
    });
    Ok(())
}
