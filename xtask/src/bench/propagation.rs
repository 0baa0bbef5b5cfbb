//! How long changes take from one real cluster to another: from the write in the exporting cluster
//! to the event that a watcher in the importing one gets, beside the same for a write that no
//! controller is in between of.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tombolo_cluster::api::{
    Access, BootClock, Fence, Report, Server, WatchState, Writer, apply_crds, ensure_namespace,
    watch,
};
use tombolo_model::endpoint::Conditions;
use tombolo_model::io::{Effect, Input, Outcome};
use tombolo_model::names::{Namespace, ObjectName, ServiceKey};
use tombolo_model::object::{
    AddressType, ExportObject, Kind, Meta, Object, ServiceKind, ServiceObject, SliceEndpoint,
    SliceObject, SlicePort,
};
use tombolo_model::own::{LABEL_SLICE_SERVICE, import_of};
use tombolo_model::record::Labels;
use tombolo_model::service::{Affinity, InternalTrafficPolicy, IpFamily, Port, Protocol};
use tombolo_testbed::{Cache, Progress, Spec, Testbed, wait_for};

mod writes;

pub(super) use self::writes::{Counters, free_address};

/// Services whose writes are counted.
const COUNTED: u32 = 20;
/// The namespace that the probe works in.
const NAMESPACE: &str = "probe";
/// Nothing that is measured takes as long.
const LOST_AFTER: Duration = Duration::from_secs(30);

/// Options.
#[derive(clap::Args)]
pub(super) struct Args {
    /// How often each change is made.
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// The program to be measured; it is built if it is not given.
    #[arg(long)]
    tombolo: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let tombolo = match &args.tombolo {
        Some(path) => path.clone(),
        None => built()?,
    };
    let spec = Spec::clusters(2, |cluster| cluster);
    let testbed = Testbed::start_with(&spec, Cache::from_env()?, Progress::stderr())?;
    let runtime = tokio::runtime::Runtime::new()?;
    let kubeconfig = testbed.kubeconfig_file();
    let (east, west) = runtime.block_on(async {
        let mut servers = Vec::new();
        for cluster in testbed.clusters() {
            let access = Access::Kubeconfig {
                file: Some(kubeconfig.clone()),
                context: Some(cluster.name().to_owned()),
            };
            let server = access.server().await?;
            apply_crds(&server).await?;
            ensure_namespace(&server, NAMESPACE).await?;
            servers.push(server);
        }
        let west = servers.pop().context("two clusters")?;
        Ok::<_, anyhow::Error>((servers.pop().context("two clusters")?, west))
    })?;
    let admin = free_address()?;
    let mut command = Command::new(&tombolo);
    command.args(["up", "context:c1", "context:c2", "--log", "warn", "--admin"]);
    command.arg(admin.to_string());
    command.arg("--kubeconfig").arg(&kubeconfig);
    let part = testbed.start_program("tombolo", &command, None)?;
    wait_for("the leases", LOST_AFTER, || {
        part.check_running()?;
        let holder = ["-o", "jsonpath={.spec.holderIdentity}"];
        let args = [
            &["get", "lease", "-n", "tombolo-system", "tombolo-controller"],
            &holder[..],
        ];
        let held =
            |c: &tombolo_testbed::Cluster| c.kubectl(&args.concat()).is_ok_and(|h| !h.is_empty());
        Ok(testbed.clusters().iter().all(held).then_some(()))
    })?;
    runtime.block_on(measure(&east, &west, args.rounds, Counters(admin)))
}

/// The release build of the program, made now.
pub(super) fn built() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["build", "--release", "--locked", "--bin", "tombolo"];
    let status = Command::new(cargo).args(args).status()?;
    ensure!(status.success(), "cargo build: {status}");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(target.join("release/tombolo"))
}

/// The times of one kind of change.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    /// Milliseconds at a percentile; the times are sorted.
    fn at(&self, percent: usize) -> f64 {
        let index = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        let time = self.0.get(index);
        time.map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    }

    /// Prints the times, and what they have beyond the time of as many plain writes as follow
    /// from each other in them.
    fn print(&self, what: &Measured, floor: &Self) {
        let numbers = [50, 90, 99, 100].map(|percent| format!("{:7.1}", self.at(percent)));
        let beyond = |percent: usize| {
            let plain = f64::from(what.writes) * floor.at(percent);
            format!("{:7.1}", self.at(percent) - plain)
        };
        report(&format!(
            "{:<42} {} {:>3} {} {}",
            what.name,
            numbers.join(" "),
            what.writes,
            beyond(50),
            beyond(99)
        ));
    }
}

/// What is measured: its name, and how many writes follow from each other in it.
struct Measured {
    name: &'static str,
    writes: u32,
}

/// In the order in which a round takes them. The first is what the others are compared with: one
/// write of etcd; a Service takes its addresses with further ones.
const MEASURED: [Measured; 6] = [
    Measured {
        name: "an EndpointSlice to its own watch",
        writes: 1,
    },
    Measured {
        name: "a Service to its own watch",
        writes: 1,
    },
    // ServiceExport, ServiceImport, derived Service, the import's addresses.
    Measured {
        name: "ServiceExport to import with addresses",
        writes: 4,
    },
    // ServiceExport, ServiceImport, slice.
    Measured {
        name: "ServiceExport to slice",
        writes: 3,
    },
    Measured {
        name: "changed endpoint to changed slice",
        writes: 2,
    },
    Measured {
        name: "ServiceExport deleted to import gone",
        writes: 2,
    },
];

#[expect(clippy::print_stdout, reason = "the result")]
pub(super) fn report(line: &str) {
    println!("{line}");
}

/// What happens in a cluster, with the moment at which it was heard.
struct Events(mpsc::Receiver<Report>);

impl Events {
    /// The moment of the first input for which this holds.
    async fn until(
        &mut self,
        what: &str,
        mut is_it: impl FnMut(&Input) -> bool,
    ) -> Result<Instant> {
        let find = async {
            loop {
                let report = self.0.recv().await.context("the watch has ended")?;
                let now = Instant::now();
                if let Report::Inputs(inputs) = &report
                    && inputs.iter().any(&mut is_it)
                {
                    return Ok(now);
                }
            }
        };
        timeout(LOST_AFTER, find)
            .await
            .with_context(|| format!("{what} never came"))?
    }
}

async fn measure(east: &Server, west: &Server, rounds: usize, counters: Counters) -> Result<()> {
    let fence = Arc::new(Fence::new(Arc::new(BootClock)));
    fence.extend(Duration::MAX);
    let (tx, rx) = mpsc::channel(4096);
    let kinds = [Kind::Service, Kind::ServiceImport, Kind::EndpointSlice];
    let watches = kinds.map(|kind| watch(west.clone(), kind, tx.clone()));
    let watches = futures::future::join_all(watches);
    let probe = Probe {
        east: Writer::new(east.clone(), Arc::clone(&fence)),
        west: Writer::new(west.clone(), fence),
        events: Events(rx),
    };
    tokio::select! {
        _ = watches => bail!("the watches have ended"),
        result = probe.run(rounds, counters) => result,
    }
}

struct Probe {
    east: Writer,
    west: Writer,
    events: Events,
}

impl Probe {
    async fn run(mut self, rounds: usize, counters: Counters) -> Result<()> {
        let mut live = 0;
        while live < 3 {
            let report = self.events.0.recv().await.context("no watch")?;
            if matches!(
                report,
                Report::Watch {
                    state: WatchState::Live,
                    ..
                }
            ) {
                live += 1;
            }
        }
        // The first changes are those of a start: connections, lists.
        self.round(usize::MAX, &mut Default::default()).await?;
        let mut all: [Times; MEASURED.len()] = Default::default();
        for round in 0..rounds {
            self.round(round, &mut all)
                .await
                .with_context(|| format!("round {round}"))?;
        }
        report(&format!(
            "{:<42} {:>7} {:>7} {:>7} {:>7} {:>3} {:>15}",
            "ms", "p50", "p90", "p99", "max", "k", "beyond k writes"
        ));
        for times in &mut all {
            times.0.sort();
        }
        for (times, what) in all.iter().zip(&MEASURED) {
            times.print(what, &all[0]);
        }
        let Self {
            east, mut events, ..
        } = self;
        // What the watches tell meanwhile is nobody's.
        let drain = async { while events.0.recv().await.is_some() {} };
        tokio::select! {
            result = count(&east, counters) => result,
            () = drain => bail!("the watches have ended"),
        }
    }

    /// How long the making of an object takes to its own watch, with no controller between.
    async fn plain(&mut self, object: Object) -> Result<Duration> {
        let reference = object.reference();
        let began = Instant::now();
        let made = write(&self.west, Effect::Create(object), "plain").await?;
        let is_it =
            |input: &Input| matches!(input, Input::Applied(o) if o.reference() == reference);
        let time = self.events.until("its own event", is_it).await? - began;
        write(&self.west, Effect::Delete(made), "plain").await?;
        Ok(time)
    }

    async fn round(&mut self, round: usize, all: &mut [Times; MEASURED.len()]) -> Result<()> {
        let [floor, floor_service, with_ips, sliced, changed, gone] = all;
        let (plain, key) = (key(&format!("floor{round}"))?, key(&format!("s{round}"))?);
        let plain_slice = slice(&plain, &["10.77.0.1"])?;
        floor.0.push(self.plain(plain_slice).await?);
        floor_service.0.push(self.plain(service(&plain)).await?);

        write(&self.east, Effect::Create(service(&key)), "Service").await?;
        let slice = Effect::Create(slice(&key, &["10.77.0.1"])?);
        let slice_made = write(&self.east, slice, "EndpointSlice").await?;
        let began = Instant::now();
        let export = write(&self.east, Effect::Create(export(&key)), "ServiceExport").await?;
        let (mut ips_at, mut slice_at) = (None, None);
        while ips_at.is_none() || slice_at.is_none() {
            let mut saw_ips = false;
            let at = self.events.until("import and slice", |input| {
                saw_ips = has_ips(input, &key);
                saw_ips || endpoints_of(input, &key).is_some()
            });
            let at = at.await?;
            if saw_ips { &mut ips_at } else { &mut slice_at }.get_or_insert(at);
        }
        with_ips.0.extend(ips_at.map(|at| at - began));
        sliced.0.extend(slice_at.map(|at| at - began));

        let Object::EndpointSlice(old) = &slice_made else {
            bail!("no slice");
        };
        let new = slice_with(old, &["10.77.0.1", "10.77.0.2"])?;
        let began = Instant::now();
        let update = Effect::Update {
            old: slice_made.clone(),
            new,
        };
        write(&self.east, update, "EndpointSlice").await?;
        let two = |input: &Input| endpoints_of(input, &key) == Some(2);
        changed
            .0
            .push(self.events.until("the changed slice", two).await? - began);

        // Its status was written since, so this shows how it stands now, and deletes nothing.
        let export = match self.east.execute(&Effect::Delete(export)).await {
            Some(Outcome::Outdated(Some(current))) => current,
            other => bail!("its status was not written: {other:?}"),
        };
        let began = Instant::now();
        delete_now(&self.east, export).await?;
        let is_gone = |input: &Input| {
            matches!(input, Input::Deleted { object, .. }
                if object.kind == Kind::ServiceImport && object.key == key)
        };
        gone.0
            .push(self.events.until("the end of the import", is_gone).await? - began);
        Ok(())
    }
}

/// Counts what a few services cost.
async fn count(east: &Writer, counters: Counters) -> Result<()> {
    let mut made = Vec::new();
    for n in 0..COUNTED {
        let key = key(&format!("counted{n}"))?;
        write(east, Effect::Create(service(&key)), "Service").await?;
        let slice = Effect::Create(slice(&key, &["10.77.0.1"])?);
        made.push((key, write(east, slice, "EndpointSlice").await?));
    }
    let before = counters.at_rest().await?;
    let mut exports = Vec::new();
    for (key, _) in &made {
        let export = Effect::Create(export(key));
        exports.push(write(east, export, "ServiceExport").await?);
    }
    let before = counters.print("an export", COUNTED, &before).await?;
    for (_, old) in made {
        let Object::EndpointSlice(slice) = &old else {
            bail!("no slice");
        };
        let new = slice_with(slice, &["10.77.0.1", "10.77.0.2"])?;
        write(east, Effect::Update { old, new }, "EndpointSlice").await?;
    }
    let before = counters
        .print("a changed endpoint", COUNTED, &before)
        .await?;
    for export in exports {
        delete_now(east, export).await?;
    }
    counters
        .print("the end of an export", COUNTED, &before)
        .await?;
    Ok(())
}

async fn delete_now(east: &Writer, mut object: Object) -> Result<()> {
    for _ in 0..10 {
        match east.execute(&Effect::Delete(object)).await {
            Some(Outcome::Deleted) => return Ok(()),
            Some(Outcome::Outdated(Some(current))) => object = current,
            other => bail!("not deleted: {other:?}"),
        }
    }
    bail!("it changes all the time")
}

async fn write(writer: &Writer, effect: Effect, what: &str) -> Result<Object> {
    match writer.execute(&effect).await {
        Some(Outcome::Written(object)) => Ok(object),
        // What was deleted is not looked at again.
        Some(Outcome::Deleted) => match effect {
            Effect::Delete(object) => Ok(object),
            _ => bail!("{what}: deleted"),
        },
        other => bail!("{what}: {other:?}"),
    }
}

fn key(name: &str) -> Result<ServiceKey> {
    Ok(ServiceKey::new(
        Namespace::try_new(NAMESPACE)?,
        ObjectName::new(name),
    ))
}

fn has_ips(input: &Input, key: &ServiceKey) -> bool {
    let Input::Applied(Object::ServiceImport(import)) = input else {
        return false;
    };
    let spec = import.spec.as_ref();
    import.meta.key == *key && spec.is_some_and(|spec| !spec.ips.is_empty())
}

/// The number of endpoints of an import's slice.
fn endpoints_of(input: &Input, key: &ServiceKey) -> Option<usize> {
    let Input::Applied(Object::EndpointSlice(slice)) = input else {
        return None;
    };
    (import_of(slice).as_ref() == Some(key)).then_some(slice.endpoints.len())
}

fn service(key: &ServiceKey) -> Object {
    Object::Service(Arc::new(ServiceObject {
        meta: Meta::to_create(key.clone()),
        kind: ServiceKind::ClusterIp,
        headless: false,
        cluster_ips: Vec::new(),
        families: vec![IpFamily::V4],
        ports: vec![Port {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            app_protocol: None,
        }],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        has_selector: false,
    }))
}

fn slice(key: &ServiceKey, addresses: &[&str]) -> Result<Object> {
    let mut meta = Meta::to_create(key.sibling(&ObjectName::new(&format!("{}-1", key.name))));
    let service = key.name.as_str();
    meta.labels = Arc::new(Labels::from_iter([(
        LABEL_SLICE_SERVICE.into(),
        service.into(),
    )]));
    let slice = SliceObject {
        meta,
        address_type: AddressType::Ip(IpFamily::V4),
        ports: Arc::new([SlicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 8080,
            app_protocol: None,
        }]),
        endpoints: Arc::default(),
    };
    slice_with(&slice, addresses)
}

/// The slice with other endpoints.
fn slice_with(slice: &SliceObject, addresses: &[&str]) -> Result<Object> {
    let endpoint = |address: &&str| {
        Ok(SliceEndpoint {
            address: address.parse()?,
            conditions: Conditions::READY,
            hostname: None,
            zone: None,
            node: None,
            target: None,
            hints: None,
        })
    };
    let endpoints: Result<Vec<SliceEndpoint>> = addresses.iter().map(endpoint).collect();
    Ok(Object::EndpointSlice(Arc::new(SliceObject {
        endpoints: endpoints?.into(),
        ..slice.clone()
    })))
}

fn export(key: &ServiceKey) -> Object {
    Object::ServiceExport(Arc::new(ExportObject {
        meta: Meta::to_create(key.clone()),
        labels: Labels::new(),
        annotations: Labels::new(),
        conditions: Vec::new(),
    }))
}
