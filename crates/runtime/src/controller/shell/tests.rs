//! When a shell wakes and what it writes, by whether it leads.

use std::fs;

use tokio::time::advance;
use tombolo_cluster::api::{Access, BootClock, Fence, recorder};
use tombolo_model::config::Config;
use tombolo_model::io::Source;
use tombolo_model::names::{ClusterName, Namespace, ObjectName, Region, ServiceKey};
use tombolo_model::object::{ExportObject, GlobalMark, Meta, NamespaceObject, Object};
use tombolo_model::presence::{Peer, PeerSession, Standing as Presence};
use tombolo_model::record::{Labels, Origin};
use tombolo_model::service::IpFamily;
use tombolo_registry::key::Layout;
use tombolo_registry::memory::{MemoryRegistry, MemoryStore};

use super::*;

fn name(text: &str) -> ClusterName {
    ClusterName::try_new(text).unwrap()
}

fn following() -> Standing {
    Standing::Following {
        holder: "another".into(),
    }
}

/// A shell, what tells it where it stands, and its fence, which stands. Nothing answers its writes.
async fn shell() -> (Shell<MemoryRegistry>, watch::Sender<Standing>, Arc<Fence>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let config = "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], \
                  clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], \
                  users: [{name: a, user: {}}]}";
    fs::write(&file, config).unwrap();
    let access = Access::Kubeconfig {
        file: Some(file),
        context: None,
    };
    let server = access.server().await.unwrap();
    let fence = Arc::new(Fence::new(Arc::new(BootClock)));
    fence.extend(Duration::MAX);
    let (events, _) = recorder(
        server.clone(),
        Arc::clone(&fence),
        Arc::new(BootClock),
        "me",
    );
    let origin = Origin {
        region: Region::try_new("local").unwrap(),
        cluster: name("east"),
    };
    let (tell, standing) = watch::channel(following());
    let shell = Shell {
        engine: Engine::new(Config::new(name("east"))),
        writer: Writer::new(server, Arc::clone(&fence)),
        events,
        registry: Arc::new(MemoryStore::new(Layout::default()).registry(origin)),
        reports: mpsc::channel(1).1,
        standing,
        network: watch::channel(Network::default()).0,
        status: Status::new(name("east"), clock::now()),
        metrics: ActionMetrics::default(),
        clock: Steady::new(clock::now()),
        unseen: BTreeMap::new(),
    };
    (shell, tell, fence)
}

fn lanes() -> Lanes {
    Lanes {
        objects: Lane::new(WRITES_MAX),
        records: Lane::new(PUBLISH_MAX),
    }
}

/// Everything listed, and a ServiceExport whose status is to be written.
fn listed(shell: &mut Shell<MemoryRegistry>) {
    let namespace = Namespace::try_new("shop").unwrap();
    let export = ExportObject {
        meta: Meta::to_create(ServiceKey::new(namespace.clone(), ObjectName::new("web"))),
        labels: Labels::new(),
        annotations: Labels::new(),
        conditions: Vec::new(),
    };
    let namespace = NamespaceObject {
        name: namespace,
        labels: Arc::default(),
        global: GlobalMark::Absent,
        terminating: false,
        resource_version: "1".into(),
    };
    let mut inputs = Vec::new();
    for kind in tombolo_cluster::store::KINDS {
        let source = Source::Objects(kind);
        inputs.push(Input::ListBegan(source));
        if kind == Kind::Namespace {
            inputs.push(Input::Applied(Object::Namespace(Arc::new(
                namespace.clone(),
            ))));
        }
        if kind == Kind::ServiceExport {
            inputs.push(Input::Applied(Object::ServiceExport(Arc::new(
                export.clone(),
            ))));
        }
        let revision = "1".into();
        inputs.push(Input::ListEnded { source, revision });
    }
    inputs.push(Input::Families(vec![IpFamily::V4]));
    let now = shell.clock.now();
    shell.take(now, Report::Inputs(inputs));
}

#[tokio::test(start_paused = true)]
async fn a_follower_sleeps_on_retries_and_makes_them_once_it_leads() {
    let (mut shell, tell, _) = shell().await;
    let mut lanes = lanes();
    listed(&mut shell);
    tell.send_replace(Standing::Leading);
    shell.act(shell.clock.now(), &mut lanes);
    assert_eq!(lanes.objects.len(), 1, "the status of the export");
    let done = lanes.objects.running.next().await.unwrap();
    shell.ended(shell.clock.now(), done);
    tell.send_replace(following());
    shell.act(shell.clock.now(), &mut lanes);
    advance(Duration::from_mins(2)).await;
    assert!(shell.engine.next_due().unwrap() <= shell.clock.now());
    assert_eq!(shell.until_due(), BEAT, "it may not write");
    shell.act(shell.clock.now(), &mut lanes);
    assert_eq!(lanes.objects.len(), 0);
    tell.send_replace(Standing::Leading);
    assert_eq!(shell.until_due(), Duration::ZERO);
    shell.act(shell.clock.now(), &mut lanes);
    assert_eq!(lanes.objects.len(), 1, "what was due");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_deadline_has_passed_asks_for_nothing_until_it_has_renewed() {
    let (mut shell, tell, fence) = shell().await;
    let mut lanes = lanes();
    listed(&mut shell);
    tell.send_replace(Standing::Leading);
    fence.fall();
    shell.act(shell.clock.now(), &mut lanes);
    assert_eq!(lanes.objects.len(), 0);
    assert_eq!(shell.until_due(), BEAT, "it may not write");
    fence.extend(Duration::MAX);
    shell.act(shell.clock.now(), &mut lanes);
    assert_eq!(lanes.objects.len(), 1, "the status of the export");
}

#[tokio::test(start_paused = true)]
async fn the_hold_is_measured_by_a_clock_that_nobody_sets() {
    let (mut shell, tell, _) = shell().await;
    listed(&mut shell);
    tell.send_replace(Standing::Leading);
    let west = Peer {
        session: PeerSession::Missing,
        drained: false,
    };
    let peers = Input::Peers(Arc::new([(name("west"), west)].into()));
    shell.take(shell.clock.now(), Report::Inputs(vec![peers]));
    let stop = CancellationToken::new();
    let status = Arc::clone(&shell.status);
    let (reports, inbox) = mpsc::channel(1);
    shell.reports = inbox;
    let run = shell.run(stop.clone());
    let look = async {
        // The time of day stands still meanwhile, as seen from here.
        sleep(Duration::from_millis(599_500)).await;
        let stands = status.peers_now();
        assert_eq!(stands, [(name("west"), Presence::Stale, 599)]);
        sleep(Duration::from_secs(1)).await;
        let stands = status.peers_now();
        assert_eq!(stands, [(name("west"), Presence::Over, 600)]);
        stop.cancel();
    };
    tokio::join!(run, look);
    drop(reports);
}
