//! `tombolo up`: a whole clusterset in this process, watching its files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tombolo_cluster::convert::Strings;
use tombolo_cluster::manifest::{Manifests, Problem, Tree};
use tombolo_cluster::output::Output;
use tombolo_cluster::watch::Watch;
use tombolo_model::names::ClusterName;
use tombolo_registry::key::Layout;
use tombolo_registry::memory::MemoryStore;

use crate::args::{Format, UpArgs};
use crate::clock;
use crate::clusterset::Clusterset;
use crate::exit::Exit;
use crate::input::{Refusal, Setup, chain, error_view};
use crate::print;
use crate::screen::Screen;
use crate::up::dns::Servers;
use crate::view::{ErrorView, View};

mod dns;

/// How often it is looked for new directories.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) async fn run(args: UpArgs) -> Result<Exit, Refusal> {
    let setup = Setup::try_from(&args.sources)?;
    let registry = MemoryStore::new(Layout::default());
    let directories = Directories::open(&args, setup, &registry).await?;
    if args.once {
        let view = directories.up.view();
        for error in &view.errors {
            print::complain(&error.to_string());
        }
        print::view(&view, Format::Table).map_err(|error| Refusal::failed(chain(&error)))?;
        return Ok(if view.is_well() {
            Exit::Well
        } else {
            Exit::NotWell
        });
    }
    directories.run(&args).await
}

/// The clusters that are directories, with what watches them.
pub(crate) struct Directories {
    up: Up,
    watch: Watch,
}

impl Directories {
    /// Reads all of them and brings them in order.
    pub(crate) async fn open(
        args: &UpArgs,
        setup: Setup,
        registry: &Arc<MemoryStore>,
    ) -> Result<Self, Refusal> {
        // Watched before they are read: a change in between is told, not lost.
        let directories: Vec<PathBuf> = setup.clusters.values().cloned().collect();
        let watch = Watch::new(&directories);
        let mut up = Up::start(setup, clock::now(), registry).await?;
        // Only now, as an input that cannot be read leaves no trace.
        let output = args.sources.out.as_deref().map(Output::open).transpose();
        let output = output.map_err(|error| Refusal::failed(chain(&error)))?;
        up.output = output;
        up.settle(clock::now()).await?;
        match up.output_problem.take() {
            Some(problem) => Err(Refusal::failed(problem)),
            None => Ok(Self { up, watch }),
        }
    }

    /// Follows them until the process is told to end.
    pub(crate) async fn run(self, args: &UpArgs) -> Result<Exit, Refusal> {
        let Self { mut up, watch } = self;
        if !args.no_dns {
            up.servers = Servers::start(args.dns, up.clusterset.names())?;
        }
        let ended = up.watch(watch).await;
        up.servers.stop().await;
        ended
    }
}

/// The running clusterset.
pub(crate) struct Up {
    setup: Setup,
    clusterset: Clusterset,
    sources: Vec<Source>,
    strings: Strings,
    output: Option<Output>,
    /// Why the objects could not be written out the last time.
    output_problem: Option<String>,
    /// Directories of clusters that came after the start.
    newcomers: Vec<PathBuf>,
    servers: Servers,
}

/// A directory that is a cluster.
struct Source {
    cluster: ClusterName,
    tree: Tree,
    manifests: Manifests,
    problems: Vec<Problem>,
    /// Whether a file of it seemed to be being written when it was last read.
    is_unsettled: bool,
}

impl Up {
    /// Reads all directories.
    pub(crate) async fn start(
        setup: Setup,
        now: Timestamp,
        registry: &Arc<MemoryStore>,
    ) -> Result<Self, Refusal> {
        let mut strings = Strings::default();
        let mut sources = Vec::new();
        let mut refused = Vec::new();
        for (cluster, directory) in &setup.clusters {
            match Tree::read(directory, now, &mut strings) {
                Err(error) => refused.push(error),
                Ok(tree) => {
                    let (manifests, problems) = Manifests::of(&tree);
                    let cluster = cluster.clone();
                    sources.push(Source {
                        cluster,
                        tree,
                        manifests,
                        problems,
                        is_unsettled: true,
                    });
                }
            }
        }
        if !refused.is_empty() {
            return Err(Refusal::of(&refused));
        }
        let states = sources
            .iter()
            .map(|source| (&source.cluster, &source.manifests));
        let families = setup.families(states);
        let zones = Some(&setup.zones);
        let mut clusterset = Clusterset::beside(registry, &setup, &families, zones, now)
            .await
            .map_err(|error| Refusal::failed(chain(&error)))?;
        for source in &sources {
            clusterset.set_manifests(&source.cluster, &source.manifests, now);
        }
        Ok(Self {
            setup,
            clusterset,
            sources,
            strings,
            output: None,
            output_problem: None,
            newcomers: Vec::new(),
            servers: Servers::default(),
        })
    }

    /// Runs until it is told to end.
    async fn watch(&mut self, mut watch: Watch) -> Result<Exit, Refusal> {
        let stop = |kind| signal(kind).map_err(|error| Refusal::failed(chain(&error)));
        let (mut interrupt, mut terminate) = (
            stop(SignalKind::interrupt())?,
            stop(SignalKind::terminate())?,
        );
        let mut screen = Screen::of_stdout();
        let printed = |result: Result<(), print::PrintError>| {
            result.map_err(|error| Refusal::failed(chain(&error)))
        };
        let mut look = tokio::time::interval(LOOK_AGAIN);
        printed(screen.open())?;
        loop {
            printed(screen.show(&self.view()))?;
            let look_again = self.is_unsettled();
            tokio::select! {
                biased;
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                failure = self.servers.failed() => return Err(failure),
                changed = watch.changed(look_again) => self.rescan(&changed, clock::now()),
                () = sleep_until(self.clusterset.next_due()) => {}
                () = self.clusterset.changed() => {}
                _ = look.tick() => {
                    self.newcomers = self.setup.newcomers();
                    continue;
                }
            }
            self.settle(clock::now()).await?;
        }
        printed(screen.close())?;
        print::complain("ended; nothing was left behind but what --out wrote");
        Ok(Exit::Well)
    }

    /// Whether it is to be looked again although nothing is heard of any change: a file was being
    /// written, what a link leads to is not watched, output could not be written.
    fn is_unsettled(&self) -> bool {
        let mut sources = self.sources.iter();
        self.output_problem.is_some()
            || sources.any(|source| source.is_unsettled || source.tree.has_links())
    }

    /// Reads the directories again that changed.
    pub(crate) fn rescan(&mut self, changed: &[usize], now: Timestamp) {
        for &index in changed {
            let Some(source) = self.sources.get_mut(index) else {
                continue;
            };
            let scan = source.tree.rescan(now, &mut self.strings);
            source.is_unsettled = scan.unsettled;
            if scan.files_changed > 0 || scan.problems_changed {
                (source.manifests, source.problems) = Manifests::of(&source.tree);
                self.clusterset
                    .set_manifests(&source.cluster, &source.manifests, now);
            }
        }
        let states = self
            .sources
            .iter()
            .map(|source| (&source.cluster, &source.manifests));
        let families = self.setup.families(states);
        self.clusterset.set_families(&families, now);
    }

    /// Brings everything in order, and writes it out.
    pub(crate) async fn settle(&mut self, now: Timestamp) -> Result<(), Refusal> {
        let settled = self.clusterset.settle(now).await;
        settled.map_err(|error| Refusal::failed(chain(&error)))?;
        if let Some(output) = &mut self.output {
            let stores: Vec<_> = self.clusterset.stores().collect();
            // The directory may come back, and all that is there goes on without it.
            self.output_problem = output.write(&stores).err().map(|error| chain(&error));
        }
        Ok(())
    }

    fn view(&self) -> View {
        let mut view = self.clusterset.view();
        for cluster in &mut view.clusters {
            cluster.dns = self.servers.address(&cluster.name);
        }
        for source in &self.sources {
            let errors = source
                .problems
                .iter()
                .map(|problem| error_view(&source.cluster, problem));
            view.errors.extend(errors);
        }
        let problem = self.output_problem.iter();
        let problem = problem.map(|problem| ErrorView::of(&"--out", problem));
        view.errors.extend(problem);
        let new = self.newcomers.iter().map(|directory| {
            let problem = format!(
                "{} is new: end tombolo up and start it again, and it is a cluster too",
                directory.display()
            );
            ErrorView::of(&"SOURCE", &problem)
        });
        view.errors.extend(new);
        view
    }
}

/// Sleeps until a time; for ever if there is none.
async fn sleep_until(due: Option<Timestamp>) {
    match due {
        Some(due) => {
            let wait = due.duration_since(clock::now());
            tokio::time::sleep(wait.try_into().unwrap_or_default()).await;
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
