//! A testbed: starting it, using its pieces, and its end.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    cache::Cache,
    clock::Stopwatch,
    cluster::Cluster,
    command,
    control_plane::{self, Place},
    etcd::{Etcd, EtcdSpec, Tls},
    gobuild::Builder,
    image::ImageSpec,
    kubeconfig::{Access, kubeconfig},
    network,
    node::Node,
    part::Part,
    prepare::Programs,
    programs,
    progress::Progress,
    record::Record,
    spec::Spec,
    state::{Registry, State},
};

/// Real etcd and Kubernetes clusters. Dropping it stops and removes all of it.
#[derive(Debug)]
pub struct Testbed {
    state: State,
    cache: Cache,
    progress: Progress,
    etcd: Option<Etcd>,
    clusters: Vec<Cluster>,
    /// Whether the end of this value is the end of the testbed.
    is_owner: bool,
}

/// A testbed of this machine.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Its name.
    pub id: String,
    /// Its state folder.
    pub folder: PathBuf,
    /// Whether the process that will stop it runs.
    pub is_owned: bool,
    /// Its parts.
    pub parts: Vec<PartSummary>,
}

/// A part of a [`Summary`].
#[derive(Debug, Clone)]
pub struct PartSummary {
    /// Its name.
    pub name: String,
    /// Its process, while it runs.
    pub pid: Option<u32>,
}

impl Testbed {
    /// Builds what is not built yet, starts everything and waits until it is ready.
    ///
    /// # Errors
    /// When something cannot be built or started; what was started is stopped again.
    pub fn start(spec: &Spec) -> Result<Self> {
        Self::start_with(spec, Cache::from_env()?, Progress::silent())
    }

    /// [`Testbed::start`] with a cache and reports of progress.
    ///
    /// # Errors
    /// As [`Testbed::start`].
    pub fn start_with(spec: &Spec, cache: Cache, progress: Progress) -> Result<Self> {
        spec.check()?;
        ensure!(
            !spec.has_nodes() || programs::is_root(),
            "nodes need root: for network name spaces, mounts and control groups"
        );
        let programs = Programs::prepare(spec, &cache, &progress)?;
        let watch = Stopwatch::start();
        let state = State::create(spec)?;
        // From here on, dropping the value cleans up.
        let mut testbed = Self {
            state,
            cache,
            progress,
            etcd: None,
            clusters: Vec::new(),
            is_owner: true,
        };
        if !spec.clusters.is_empty() {
            testbed.start_clusters(&programs)?;
            testbed.progress.say(format!(
                "{} clusters ready after {:.1} s",
                spec.clusters.len(),
                watch.elapsed().as_secs_f32()
            ));
        }
        Ok(testbed)
    }

    /// A testbed that another process started and that runs on: dropping this value leaves it.
    ///
    /// # Errors
    /// When there is none in this state folder.
    pub fn attach(folder: &Path) -> Result<Self> {
        let (cache, progress) = (Cache::from_env()?, Progress::silent());
        let state = State::read(folder)?;
        let programs = Programs::prepare(&state.spec, &cache, &progress)?;
        let etcd = (!state.spec.clusters.is_empty())
            .then(|| Etcd::attach(&state, &etcd_of_clusters()))
            .transpose()?;
        let clusters = places(&state, &programs, etcd.as_ref(), Cluster::attach)?;
        Ok(Self {
            state,
            cache,
            progress,
            etcd,
            clusters,
            is_owner: false,
        })
    }

    /// Stops a testbed by its state folder and removes all of it; nothing happens if it is gone.
    ///
    /// # Errors
    /// When the folder is no state folder, or something does not go.
    pub fn remove(folder: &Path) -> Result<()> {
        if folder.exists() {
            State::read(folder)?.remove()?;
        }
        Ok(())
    }

    /// All testbeds of this machine, but those with another state root.
    pub fn list() -> Vec<Summary> {
        let summary = |state: State| Summary {
            is_owned: !state.is_abandoned() && !state.is_detached(),
            parts: Record::read_all(&state.folder)
                .unwrap_or_default()
                .into_iter()
                .map(|record| PartSummary {
                    pid: record.pid(),
                    name: record.launch.name,
                })
                .collect(),
            id: state.id,
            folder: state.folder,
        };
        State::all().into_iter().map(summary).collect()
    }

    fn start_clusters(&mut self, programs: &Programs) -> Result<()> {
        let (state, progress) = (&self.state, &self.progress);
        write_secrets(state)?;
        if state.spec.has_nodes() {
            network::create(&state.id, state.slot)?;
        }
        progress.say(format!(
            "starting etcd, state in {}",
            state.folder.display()
        ));
        let etcd = Etcd::start(state, &etcd_of_clusters(), &programs.etcd)?;
        etcd.wait_healthy()?;
        self.clusters = places(state, programs, Some(&etcd), |place| {
            progress.say(format!(
                "starting {} (Kubernetes {}, {}, {} nodes)",
                place.spec.name, place.spec.kubernetes, place.spec.families, place.spec.nodes
            ));
            Cluster::start(place)
        })?;
        self.etcd = Some(etcd);
        let access: Vec<Access> = self.clusters.iter().map(|c| c.access().clone()).collect();
        fs::write(self.kubeconfig_file(), kubeconfig(&access))?;
        Ok(())
    }

    /// Starts an etcd for a registry and waits until it is healthy.
    ///
    /// # Errors
    /// When there is one of this name already, or it does not start.
    pub fn start_etcd(&mut self, name: &str, spec: &EtcdSpec) -> Result<Etcd> {
        let program = Builder::new(self.cache.clone(), self.progress.clone()).etcd()?;
        if spec.tls != Tls::Off {
            programs::ensure(programs::FOR_CLUSTERS, &self.cache, &self.progress)?;
        }
        let registry = self.state.add_registry(name, spec)?;
        let etcd = Etcd::start(&self.state, &registry, &program)?;
        etcd.wait_healthy()?;
        Ok(etcd)
    }

    /// An etcd that was started by [`Testbed::start_etcd`], maybe by another process.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn registry(&self, name: &str) -> Result<Etcd> {
        let registry = self
            .state
            .registries
            .iter()
            .find(|registry| registry.name == name);
        Etcd::attach(
            &self.state,
            registry.with_context(|| format!("no registry {name}"))?,
        )
    }

    /// Starts a program as a part of the testbed, on the machine or on a node: it can be killed,
    /// paused, cut off and restarted like any other, and ends with the testbed. Program,
    /// arguments and added variables of `command` count.
    ///
    /// # Errors
    /// When a part of this name runs already, or it does not start.
    pub fn start_program(
        &self,
        name: &str,
        command: &Command,
        node: Option<&Node>,
    ) -> Result<Part> {
        let launch = self.state.launch_of(name, command, node.map(Node::name))?;
        Part::start(&self.state.folder, launch)
    }

    /// The etcd behind the API servers, if there are clusters.
    pub fn etcd(&self) -> Option<&Etcd> {
        self.etcd.as_ref()
    }

    /// All clusters.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The cluster of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn cluster(&self, name: &str) -> Result<&Cluster> {
        let cluster = self.clusters.iter().find(|cluster| cluster.name() == name);
        cluster.with_context(|| format!("no cluster {name} in this testbed"))
    }

    /// A kubeconfig with a context for each cluster.
    pub fn kubeconfig_file(&self) -> PathBuf {
        self.state.folder.join("kubeconfig")
    }

    /// The state folder.
    pub fn folder(&self) -> &Path {
        &self.state.folder
    }

    /// Its name on this machine.
    pub fn id(&self) -> &str {
        &self.state.id
    }

    /// Packs an image and makes it known to every node.
    ///
    /// # Errors
    /// When it cannot be packed, or a node refuses it.
    pub fn import(&self, image: &ImageSpec) -> Result<()> {
        let file = image.pack(&self.cache, &self.progress)?;
        let mut nodes = self.clusters.iter().flat_map(Cluster::nodes);
        nodes.try_for_each(|node| node.import(&file))
    }

    /// Lets it run on after this process: [`Testbed::remove`] or `testbed down` ends it.
    ///
    /// # Errors
    /// When its state cannot be written.
    pub fn detach(mut self) -> Result<PathBuf> {
        self.state.detach()?;
        self.is_owner = false;
        Ok(self.state.folder.clone())
    }

    /// Stops and removes it: like dropping it, with the error if something does not go.
    ///
    /// # Errors
    /// When something does not go.
    pub fn stop(mut self) -> Result<()> {
        self.is_owner = false;
        self.state.remove()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if self.is_owner
            && let Err(error) = self.state.remove()
        {
            self.progress
                .say(format!("cannot clean up {}: {error:#}", self.state.id));
        }
    }
}

/// Does something for each cluster, all at the same time.
fn places(
    state: &State,
    programs: &Programs,
    etcd: Option<&Etcd>,
    make: impl Fn(&Place<'_>) -> Result<Cluster> + Sync,
) -> Result<Vec<Cluster>> {
    let Some(etcd) = etcd.map(|etcd| etcd.first().endpoint()) else {
        return Ok(Vec::new());
    };
    let places = (1..)
        .zip(&state.spec.clusters)
        .zip(&programs.kubernetes)
        .map(|((number, spec), (kubernetes, kubelet))| Place {
            state,
            spec,
            number,
            programs: kubernetes,
            kubelet,
            coredns: &programs.coredns,
            images: &programs.images,
            etcd: &etcd,
        });
    let places: Vec<_> = places.collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = places
            .iter()
            .map(|place| scope.spawn(|| make(place)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| bail!("starting a cluster panicked"))
            })
            .collect()
    })
}

fn etcd_of_clusters() -> Registry {
    Registry {
        name: "etcd".into(),
        spec: EtcdSpec::default(),
        port_offset: 0,
    }
}

/// The administrator's token and the key for service account tokens.
fn write_secrets(state: &State) -> Result<()> {
    let mut token = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut token)?;
    let token = data_encoding::HEXLOWER.encode(&token);
    let mut file = fs::File::options();
    let mut file = file
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(control_plane::token_file(state))?;
    std::io::Write::write_all(
        &mut file,
        format!("{token},admin,admin,\"system:masters\"\n").as_bytes(),
    )?;
    let openssl = command::find("openssl").context("openssl is missing")?;
    command::output(
        Command::new(openssl)
            .args([
                "ecparam",
                "-name",
                "prime256v1",
                "-genkey",
                "-noout",
                "-out",
            ])
            .arg(control_plane::service_account_key(state)),
    )?;
    Ok(())
}
