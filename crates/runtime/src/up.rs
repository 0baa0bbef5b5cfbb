//! `tombolo up`: a whole clusterset in this process, watching its files.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tombolo_cluster::convert::Strings;
use tombolo_cluster::manifest::{Manifests, Problem, Tree};
use tombolo_cluster::output::Output;
use tombolo_cluster::watch::Watch;
use tombolo_model::names::ClusterName;

use crate::args::{Format, UpArgs};
use crate::clock::{self, Steady};
use crate::clusterset::{Clusterset, Joining};
use crate::exit::Exit;
use crate::input::{Refusal, Setup, chain, error_view};
use crate::print;
use crate::screen::Screen;
use crate::up::dns::Servers;
use crate::view::{ErrorView, View};

mod dns;

/// How long it may take until a registry was read: a large one takes seconds.
const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// How often it is looked for new directories.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) async fn run(args: UpArgs) -> Result<Exit, Refusal> {
    let mut setup = Setup::try_from(&args.sources)?;
    setup.rules = setup.rules.with_hold(args.join.hold);
    let joining = args.join.joining()?;
    let directories = Directories::open(&args, setup, &joining).await?;
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
    /// Where it is listened for already.
    stop: Option<Stop>,
}

/// What tells the process to end.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn listen() -> Result<Self, Refusal> {
        let listen = |kind| signal(kind).map_err(|error| Refusal::failed(chain(&error)));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Directories {
    /// Reads all of them and brings them in order.
    pub(crate) async fn open(
        args: &UpArgs,
        setup: Setup,
        joining: &Joining,
    ) -> Result<Self, Refusal> {
        // Watched before they are read: a change in between is told, not lost.
        let directories: Vec<PathBuf> = setup.clusters.values().cloned().collect();
        let watch = Watch::new(&directories);
        let mut up = Up::start(setup, clock::now(), joining).await?;
        let mut stop = None;
        if joining.shared.is_of_others() {
            // From now on there are sessions to be ended.
            up.listed(stop.insert(Stop::listen()?)).await?;
        }
        // Only now, as an input that cannot be read leaves no trace.
        let output = args.sources.out.as_deref().map(Output::open).transpose();
        let output = output.map_err(|error| Refusal::failed(chain(&error)))?;
        up.output = output;
        up.settle(clock::now())?;
        match up.output_problem.take() {
            Some(problem) => Err(Refusal::failed(problem)),
            None => Ok(Self { up, watch, stop }),
        }
    }

    /// Follows them until the process is told to end.
    pub(crate) async fn run(self, args: &UpArgs) -> Result<Exit, Refusal> {
        let Self {
            mut up,
            watch,
            stop,
        } = self;
        if !args.no_dns {
            up.servers = Servers::start(args.dns, up.clusterset.names())?;
        }
        let stop = stop.map_or_else(Stop::listen, Ok)?;
        let ended = up.watch(watch, stop).await;
        up.servers.stop().await;
        up.close().await;
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
    /// What the engines' time is.
    clock: Steady,
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
        joining: &Joining,
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
        let mut clusterset = Clusterset::joined(joining, &setup, &families, zones, now).await?;
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
            clock: Steady::new(now),
        })
    }

    /// Waits until the registry is known: what it holds must not seem to be gone.
    async fn listed(&mut self, stop: &mut Stop) -> Result<(), Refusal> {
        let refusal = tokio::select! {
            biased;
            () = stop.told() => Refusal {
                exit: Exit::Well,
                messages: vec!["ended before everything was read".to_owned()],
            },
            listed = timeout(LISTED_WITHIN, self.clusterset.listed()) => {
                if listed.is_ok() {
                    return Ok(());
                }
                let seconds = LISTED_WITHIN.as_secs();
                Refusal::failed(format!("--registry: not read within {seconds} s"))
            }
        };
        self.close().await;
        Err(refusal)
    }

    /// Ends the sessions.
    async fn close(&self) {
        if let Err(error) = self.clusterset.close().await {
            print::complain(&format!("the registry: {}", chain(&error)));
        }
    }

    /// Runs until it is told to end.
    async fn watch(&mut self, mut watch: Watch, mut stop: Stop) -> Result<Exit, Refusal> {
        let mut screen = Screen::of_stdout();
        let printed = |result: Result<(), print::PrintError>| {
            result.map_err(|error| Refusal::failed(chain(&error)))
        };
        let mut look = tokio::time::interval(LOOK_AGAIN);
        printed(screen.open())?;
        loop {
            printed(screen.show(&self.view()))?;
            let look_again = self.is_unsettled();
            let wait = self.clusterset.next_due().map(|due| self.clock.until(due));
            tokio::select! {
                biased;
                () = stop.told() => break,
                failure = self.servers.failed() => return Err(failure),
                changed = watch.changed(look_again) => self.rescan(&changed, clock::now()),
                () = sleep(wait) => {}
                () = self.clusterset.changed() => {}
                _ = look.tick() => {
                    self.newcomers = self.setup.newcomers();
                    continue;
                }
            }
            self.settle(clock::now())?;
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

    /// Brings everything in order at this time of day, and writes it out.
    pub(crate) fn settle(&mut self, time_of_day: Timestamp) -> Result<(), Refusal> {
        if let Some(ahead) = self.clock.news(time_of_day) {
            self.clusterset.set_time_of_day(ahead);
        }
        let settled = self.clusterset.settle(self.clock.now());
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
        view.errors.extend(self.clusterset.problems());
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

/// Sleeps so long; for ever if it is not said how long.
async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
