//! A `tombolo dns` that runs, and what its admin endpoint says.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tombolo_testkit::cases::Reply;
use tombolo_testkit::command::{Binary, Running};
use tombolo_testkit::dns::{self, Transport};
use tombolo_testkit::scripted_api::{ScriptedApi, kubeconfig};

/// Nobody listens there: the port of "tcpmux", which has gone out of use.
const NOBODY: &str = "127.0.0.1:1";

/// The process.
pub(crate) struct Dns {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    _files: tempfile::TempDir,
}

impl Dns {
    /// Starts one over an API server, or over none.
    pub(crate) fn start(api: Option<&ScriptedApi>, args: &[&str]) -> Result<Self> {
        let files = tempfile::tempdir()?;
        let config = match api {
            Some(api) => api.kubeconfig(),
            None => kubeconfig(NOBODY.parse()?),
        };
        let file = files.path().join("kubeconfig");
        fs::write(&file, config)?;
        let file = file.display().to_string();
        let fixed = ["dns", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let kubeconfig = ["--kubeconfig", &file, "--lame-duck", "0"];
        let args = [&fixed[..], &kubeconfig, args].concat();
        let mut running = Binary::new(env!("CARGO_BIN_EXE_tombolo")).start(args, files.path())?;
        let (address, admin) = running.eventually(|running| {
            let log = running.stderr()?;
            let find = |before: &str, after: char| {
                let (_, rest) = log.split_once(before)?;
                rest.split_once(after)?.0.parse::<SocketAddr>().ok()
            };
            let address = find("answering DNS address=", '\n');
            let admin = find("admin endpoint address=Ok(", ')');
            address.zip(admin).context("no addresses yet")
        })?;
        Ok(Self {
            running,
            address,
            admin,
            _files: files,
        })
    }

    /// Asks it.
    pub(crate) fn ask(&self, name: &str, kind: &str, transport: Transport) -> Result<Reply> {
        Ok(dns::reply(&dns::ask(self.address, name, kind, transport)?))
    }

    /// Waits for an answer.
    pub(crate) fn wait(
        &mut self,
        name: &str,
        kind: &str,
        rcode: &str,
        answers: &[&str],
    ) -> Result<()> {
        let address = self.address;
        self.running.eventually(|_| {
            let reply = dns::reply(&dns::ask(address, name, kind, Transport::Udp)?);
            let is_it = reply.rcode == rcode && reply.answers == answers;
            anyhow::ensure!(is_it, "{name} {kind}: {reply:?}");
            Ok(())
        })
    }

    /// The text of an answer of the admin endpoint, whatever its code.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        get(self.admin, path)
    }

    /// Waits until the admin endpoint answers with a text; all that it says then.
    pub(crate) fn wait_page(&mut self, path: &str, wanted: &str) -> Result<String> {
        let admin = self.admin;
        self.running.eventually(|_| {
            let page = get(admin, path)?;
            anyhow::ensure!(page.contains(wanted), "{path}: {page}");
            Ok(page)
        })
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> Result<u64> {
        let text = self.get("/metrics")?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        Ok(line.with_context(|| format!("no {name}"))?.parse()?)
    }

    /// Ends it as Ctrl-C does; nothing has panicked.
    pub(crate) fn finish(self) -> Result<()> {
        self.running.interrupt()?;
        let ended = self.running.finish()?;
        let is_well = ended.code == Some(0) && !ended.stderr.contains("panicked");
        anyhow::ensure!(is_well, "{ended:?}");
        Ok(())
    }
}

fn get(admin: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(admin)?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (_, body) = text.split_once("\r\n\r\n").context("no body")?;
    Ok(body.to_owned())
}

/// A ServiceImport with one address.
pub(crate) fn import(name: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
        "metadata": {"namespace": "shop", "name": name, "uid": name},
        "spec": {"type": "ClusterSetIP", "ips": [ip],
                 "ports": [{"name": "http", "protocol": "TCP", "port": 80}]},
    })
}

/// A headless ServiceImport.
pub(crate) fn headless(name: &str) -> Value {
    let mut import = import(name, "");
    import["spec"]["type"] = json!("Headless");
    import["spec"]["ips"] = json!([]);
    import
}

/// A slice of a headless import with these addresses; the last label is the host's name.
pub(crate) fn slice(name: &str, cluster: &str, addresses: &[String]) -> Value {
    let endpoint = |(n, address): (usize, &String)| json!({"addresses": [address], "hostname": format!("h-{n}"), "conditions": {"ready": true}});
    let endpoints: Vec<Value> = addresses.iter().enumerate().map(endpoint).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "shop", "name": format!("{name}-{cluster}"),
                     "uid": format!("{name}-{cluster}"), "labels": {
            "multicluster.kubernetes.io/service-name": name,
            "multicluster.kubernetes.io/source-cluster": cluster}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": endpoints,
    })
}
