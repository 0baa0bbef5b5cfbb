//! A node: name spaces of their own for network, mounts and processes, and in them containerd,
//! a kubelet and a kube-proxy.
//!
//! The first process of the node ends with everything in it, containers and mounts too, however
//! it ends: nothing has to be taken down piece by piece.

use std::{fs, net::IpAddr, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result};

use crate::{
    addresses::NodeNumber,
    clock::wait_for,
    command,
    control_plane::Place,
    image::ImageFile,
    network, node_config,
    part::Part,
    record::{self, Launch, Place as PartPlace},
};

/// Until a part of a node answers, on a busy machine.
const PARTS_TIMEOUT: Duration = Duration::from_mins(1);
/// Of kubelet and kube-proxy, on the node.
const HEALTH_URLS: [&str; 2] = [
    "http://127.0.0.1:10248/healthz",
    "http://localhost:10256/healthz",
];

/// A node of a running cluster.
#[derive(Debug)]
pub struct Node {
    name: String,
    number: NodeNumber,
    testbed: String,
    addresses: Vec<IpAddr>,
    /// The first process of the node's name spaces.
    init: Part,
    containerd: Part,
    kubelet: Part,
    kube_proxy: Part,
    /// `CoreDNS`, on the first node of a cluster that has it.
    dns: Option<Part>,
}

/// How a node is to be made.
#[derive(Debug)]
pub(crate) struct NodePlan<'a> {
    pub(crate) place: &'a Place<'a>,
    pub(crate) name: String,
    pub(crate) number: NodeNumber,
    /// From 0.
    pub(crate) index: u8,
}

/// A node without what needs the API server.
#[derive(Debug)]
pub(crate) struct PreparedNode {
    init: Part,
    containerd: Part,
}

impl<'a> NodePlan<'a> {
    /// The nodes of a cluster.
    pub(crate) fn all(place: &'a Place<'a>) -> Vec<Self> {
        (0..place.spec.nodes)
            .map(|index| Self {
                place,
                name: place.part_name(&format!("node{}", index + 1)),
                number: NodeNumber::new(place.number, index),
                index,
            })
            .collect()
    }

    /// The node's files.
    pub(crate) fn folder(&self) -> PathBuf {
        self.place.folder().join(&self.name)
    }

    /// Makes the name spaces, plugs them into the network and starts containerd.
    pub(crate) fn prepare(&self) -> Result<PreparedNode> {
        let state = self.place.state;
        let folder = self.folder();
        fs::create_dir_all(folder.join("cni"))?;
        node_config::write(self)?;
        let init = Part::start(&state.folder, self.init())?;
        let ready = folder.join("ready");
        wait_for(&format!("{} is made", self.name), PARTS_TIMEOUT, || {
            init.check_running()?;
            Ok(ready.exists().then_some(()))
        })?;
        let pid = i32::try_from(init.pid().context("it ended")?)?;
        network::plug(&state.id, state.slot, self.number, pid, &self.others())?;
        let containerd = Part::start(&state.folder, self.containerd())?;
        wait_for(&format!("{}: containerd", self.name), PARTS_TIMEOUT, || {
            containerd.check_running()?;
            Ok(command::output(ctr(pid).arg("version")).ok().map(drop))
        })?;
        for image in self.place.images {
            import(pid, image)?;
        }
        Ok(PreparedNode { init, containerd })
    }

    /// Starts what needs the API server.
    pub(crate) fn start(&self, prepared: PreparedNode) -> Result<Node> {
        self.node(prepared, |launch| {
            Part::start(&self.place.state.folder, launch)
        })
    }

    /// A node that another process started.
    pub(crate) fn attach(&self) -> Result<Node> {
        let part = |launch: Launch| Part::attach(&self.place.state.folder, &launch.name);
        let prepared = PreparedNode {
            init: part(self.init())?,
            containerd: part(self.containerd())?,
        };
        self.node(prepared, part)
    }

    fn node(&self, prepared: PreparedNode, part: impl Fn(Launch) -> Result<Part>) -> Result<Node> {
        let Place { state, spec, .. } = self.place;
        let PreparedNode { init, containerd } = prepared;
        Ok(Node {
            name: self.name.clone(),
            number: self.number,
            testbed: state.id.clone(),
            addresses: spec
                .families
                .iter()
                .map(|f| state.slot.node(f, self.number))
                .collect(),
            init,
            containerd,
            kubelet: part(self.kubelet())?,
            kube_proxy: part(self.kube_proxy())?,
            dns: (spec.dns && self.index == 0)
                .then(|| part(self.dns()))
                .transpose()?,
        })
    }

    /// The numbers of all other nodes of the testbed.
    fn others(&self) -> Vec<NodeNumber> {
        let clusters = (1..).zip(&self.place.state.spec.clusters);
        clusters
            .flat_map(|(number, cluster)| {
                (0..cluster.nodes).map(move |index| NodeNumber::new(number, index))
            })
            .filter(|number| *number != self.number)
            .collect()
    }

    fn init(&self) -> Launch {
        let script = node_config::init_script(&self.folder());
        self.launch("", "unshare", PartPlace::NewNode).with(
            "--net --mount --pid --fork --kill-child=KILL --mount-proc --propagation=slave -- bash -c"
                .split(' ')
                .map(str::to_owned)
                .chain([script]),
        )
    }

    fn containerd(&self) -> Launch {
        let config = self.folder().join("containerd.toml");
        self.inside("containerd")
            .with(["--config".into(), config.display().to_string()])
    }

    fn kubelet(&self) -> Launch {
        let (folder, spec) = (self.folder(), self.place.spec);
        let addresses = spec
            .families
            .join(|family| self.place.state.slot.node(family, self.number));
        let mut launch = self.inside("kubelet");
        launch.program = self.place.kubelet.join("kubelet");
        launch.with([
            format!("--config={}", folder.join("kubelet.yaml").display()),
            format!("--kubeconfig={}", self.place.kubeconfig_file().display()),
            format!("--root-dir={}", folder.join("kubelet").display()),
            format!("--hostname-override={}", self.name),
            format!("--node-ip={addresses}"),
            // A zone per node, for topology hints.
            format!(
                "--node-labels=topology.kubernetes.io/zone=zone{}",
                self.index + 1
            ),
            "--v=1".into(),
        ])
    }

    fn kube_proxy(&self) -> Launch {
        let Place {
            state,
            spec,
            number,
            ..
        } = self.place;
        let pods = spec
            .families
            .join(|family| state.slot.pods_of_cluster(family, *number));
        let mut launch = self.inside("kube-proxy");
        launch.program = self.place.programs.join("kube-proxy");
        launch.with([
            format!("--kubeconfig={}", self.place.kubeconfig_file().display()),
            format!("--hostname-override={}", self.name),
            "--proxy-mode=nftables".into(),
            format!("--cluster-cidr={pods}"),
            // The limits of the machine are not the node's to set.
            "--conntrack-max-per-core=0".into(),
        ])
    }

    fn dns(&self) -> Launch {
        let mut launch = self.inside("coredns");
        launch.program.clone_from(self.place.coredns);
        launch.with(["-conf".into(), self.place.corefile().display().to_string()])
    }

    fn inside(&self, part: &str) -> Launch {
        self.launch(
            &format!("-{part}"),
            part,
            PartPlace::Node(self.name.clone()),
        )
    }

    fn launch(&self, suffix: &str, program: &str, place: PartPlace) -> Launch {
        let program = command::find(program).unwrap_or_else(|| program.into());
        let name = format!("{}{suffix}", self.name);
        Launch {
            place,
            gid: None,
            ..self.place.state.launch(&name, program, &[])
        }
    }
}

impl Node {
    /// Its name in Kubernetes, and the start of the names of its parts.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses, the primary one first.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// containerd.
    pub fn containerd(&self) -> &Part {
        &self.containerd
    }

    /// The kubelet.
    pub fn kubelet(&self) -> &Part {
        &self.kubelet
    }

    /// The kube-proxy.
    pub fn kube_proxy(&self) -> &Part {
        &self.kube_proxy
    }

    /// `CoreDNS`, on the first node of a cluster that was asked to have it.
    pub fn dns(&self) -> Option<&Part> {
        self.dns.as_ref()
    }

    /// Pulls its network cable: no packet leaves or enters, until [`Node::plug`].
    ///
    /// # Errors
    /// When the device cannot be set.
    pub fn unplug(&self) -> Result<()> {
        network::set_cable(&self.testbed, self.number, false)
    }

    /// Puts the cable back.
    ///
    /// # Errors
    /// When the device cannot be set.
    pub fn plug(&self) -> Result<()> {
        network::set_cable(&self.testbed, self.number, true)
    }

    /// Runs a command on the node, in its network, mounts and processes, and returns what it
    /// prints.
    ///
    /// # Errors
    /// When the node is not running, or the command fails.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        command::output(record::enter(self.pid()?).args(args))
    }

    /// A command that runs its further arguments on the node: for long ones.
    ///
    /// # Errors
    /// When the node is not running.
    pub fn command(&self) -> Result<Command> {
        Ok(record::enter(self.pid()?))
    }

    /// Makes an image known to containerd.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn import(&self, image: &ImageFile) -> Result<()> {
        import(self.pid()?, image)
    }

    /// # Errors
    /// When one of its parts does not run.
    pub fn check_running(&self) -> Result<()> {
        let parts = [
            &self.init,
            &self.containerd,
            &self.kubelet,
            &self.kube_proxy,
        ];
        parts
            .into_iter()
            .chain(&self.dns)
            .try_for_each(Part::check_running)
    }

    /// Waits until containerd, kubelet and kube-proxy say that they are well: after a restart,
    /// when the API server still holds what they said before.
    ///
    /// # Errors
    /// When that takes long, or a part ended.
    pub fn wait_ready(&self) -> Result<()> {
        wait_for(
            &format!("{}: parts ready", self.name),
            PARTS_TIMEOUT,
            || {
                self.check_running()?;
                let is_ready = command::output(ctr(self.pid()?).arg("version")).is_ok()
                    && HEALTH_URLS
                        .iter()
                        .all(|url| self.run(&["curl", "-sf", url]).is_ok());
                Ok(is_ready.then_some(()))
            },
        )
    }

    fn pid(&self) -> Result<i32> {
        let pid = self
            .init
            .pid()
            .with_context(|| format!("{} does not run", self.name))?;
        Ok(i32::try_from(pid)?)
    }
}

fn ctr(pid: i32) -> Command {
    let mut command = record::enter(pid);
    command.args(["ctr", "--namespace", "k8s.io"]);
    command
}

fn import(pid: i32, image: &ImageFile) -> Result<()> {
    command::output(ctr(pid).args(["images", "import"]).arg(image.path()))
        .with_context(|| format!("cannot import {}", image.path().display()))?;
    Ok(())
}
