//! An API server for a process under test: plain HTTP on loopback, objects as JSON text, listed and
//! watched as a real one does (streaming lists, bookmarks, resource versions). It knows no schema,
//! no rights and no writes: a test puts what the process is to see.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use anyhow::{Context as _, Result};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

/// The group whose resources may be missing, as long as no CRD is installed.
const CUSTOM_GROUP: &str = "/apis/multicluster.x-k8s.io";

/// A server; it ends with this value.
#[derive(Debug)]
pub struct ScriptedApi {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    has_ended: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    has_crds: bool,
    /// Requests for these paths are refused.
    forbidden: Vec<String>,
    /// By the plural of the resource, then by namespace and name.
    objects: BTreeMap<String, BTreeMap<String, String>>,
    /// Resource, version and line of every change.
    log: Vec<(String, u64, String)>,
}

impl ScriptedApi {
    /// Starts one that has nothing, not even the CRDs.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &of_thread));
        Ok(Self { address, shared })
    }

    /// A kubeconfig that leads to it.
    pub fn kubeconfig(&self) -> String {
        kubeconfig(self.address)
    }

    /// From now on it serves ServiceImports.
    pub fn install_crds(&self) {
        self.shared.state.lock().has_crds = true;
    }

    /// Refuses what is asked below a path, or nothing more.
    pub fn forbid(&self, paths: &[&str]) {
        let paths = paths.iter().map(|&path| path.to_owned()).collect();
        self.shared.state.lock().forbidden = paths;
    }

    /// Makes or changes an object; its metadata get a version.
    pub fn put(&self, resource: &str, mut object: Value) {
        let mut state = self.shared.state.lock();
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let name = format!(
            "{}/{}",
            object["metadata"]["namespace"], object["metadata"]["name"]
        );
        let text = object.to_string();
        let line = format!(r#"{{"type":"MODIFIED","object":{text}}}"#);
        let of_kind = state.objects.entry(resource.to_owned()).or_default();
        of_kind.insert(name, text);
        state.log.push((resource.to_owned(), version, line));
        self.shared.changed.notify_all();
    }

    /// Makes objects before anybody watches: nothing is kept of them but themselves.
    pub fn fill(&self, resource: &str, objects: impl IntoIterator<Item = Value>) {
        for object in objects {
            self.put(resource, object);
            self.shared.state.lock().log.clear();
        }
    }
}

impl Drop for ScriptedApi {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Relaxed);
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
    }
}

/// A kubeconfig that leads to an address where an API server is, or is not.
pub fn kubeconfig(address: SocketAddr) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "scripted",
        "clusters": [{"name": "scripted", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "scripted", "user": {}}],
        "contexts": [{"name": "scripted",
                      "context": {"cluster": "scripted", "user": "scripted"}}],
    })
    .to_string()
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.has_ended.load(Relaxed) {
            return;
        }
        if let Ok(stream) = stream {
            let shared = Arc::clone(shared);
            // A client that has gone is no matter.
            thread::spawn(move || serve(&stream, &shared).ok());
        }
    }
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, shared: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut request = String::new();
        reader.read_line(&mut request)?;
        let target = request.split(' ').nth(1).context("no request")?.to_owned();
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            header.clear();
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        match shared.answer(path) {
            Some((code, body)) => respond(stream, code, &body)?,
            None if query.contains("watch=1") => return shared.watch(stream, path, query),
            None => respond(stream, 400, &status(400, "BadRequest"))?,
        }
    }
}

fn respond(mut stream: &TcpStream, code: u16, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {code} Told\r\nContent-Type: application/json\r\nContent-Length: \
         {length}\r\n\r\n{body}"
    )
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
           "reason": reason, "message": format!("it is {reason}")})
}

impl Shared {
    /// The answer to all but a watch that may be.
    fn answer(&self, path: &str) -> Option<(u16, Value)> {
        let state = self.state.lock();
        if state.forbidden.iter().any(|start| path.starts_with(start)) {
            return Some((403, status(403, "Forbidden")));
        }
        let below = path.strip_prefix(CUSTOM_GROUP)?;
        if !state.has_crds || !below.starts_with("/v1beta1") {
            return Some((404, status(404, "NotFound")));
        }
        let resources = json!([{"name": "serviceimports", "singularName": "serviceimport",
                                "namespaced": true, "kind": "ServiceImport", "verbs": ["watch"]}]);
        (below == "/v1beta1").then(|| {
            let list = json!({"kind": "APIResourceList", "apiVersion": "v1",
                              "groupVersion": "multicluster.x-k8s.io/v1beta1",
                              "resources": resources});
            (200, list)
        })
    }

    /// Streams what there is, if that is asked for, and then what changes.
    fn watch(&self, stream: &TcpStream, path: &str, query: &str) -> Result<()> {
        let resource = path.rsplit('/').next().unwrap_or_default();
        let mut chunks = Chunks::start(stream)?;
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .filter(|(key, _)| *key == name)
                .map(|(_, value)| value)
                .next()
        };
        let mut seen = match parameter("resourceVersion") {
            Some(version) => version.parse()?,
            None => self.initial(resource, &mut chunks)?,
        };
        let mut state = self.state.lock();
        while !self.has_ended.load(Relaxed) {
            let news = state
                .log
                .iter()
                .filter(|(of, version, _)| of == resource && *version > seen);
            let lines: Vec<String> = news.map(|(_, _, line)| line.clone()).collect();
            seen = state.version;
            if lines.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            drop(state);
            for line in lines {
                chunks.line(&line)?;
            }
            chunks.flush()?;
            state = self.state.lock();
        }
        Ok(())
    }

    /// The initial events of a streaming list; the version that they show.
    fn initial(&self, resource: &str, chunks: &mut Chunks<'_>) -> Result<u64> {
        let (version, objects) = {
            let state = self.state.lock();
            let objects = state.objects.get(resource);
            (state.version, objects.cloned().unwrap_or_default())
        };
        for object in objects.into_values() {
            chunks.line(&format!(r#"{{"type":"ADDED","object":{object}}}"#))?;
        }
        let end = json!({"type": "BOOKMARK", "object": {"metadata": {
            "resourceVersion": version.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }}});
        chunks.line(&end.to_string())?;
        chunks.flush()?;
        Ok(version)
    }
}

/// A body of chunks.
struct Chunks<'s> {
    stream: &'s TcpStream,
    /// Lines that were not sent yet.
    pending: Vec<u8>,
}

impl<'s> Chunks<'s> {
    /// Octets of a chunk, roughly.
    const LEN: usize = 256 * 1024;

    fn start(mut stream: &'s TcpStream) -> io::Result<Self> {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: \
              chunked\r\n\r\n",
        )?;
        Ok(Self {
            stream,
            pending: Vec::new(),
        })
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.pending.extend_from_slice(line.as_bytes());
        self.pending.push(b'\n');
        if self.pending.len() > Self::LEN {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.pending.is_empty() {
            let length = format!("{:x}\r\n", self.pending.len());
            self.pending.extend_from_slice(b"\r\n");
            self.stream
                .write_all(&[length.as_bytes(), &self.pending].concat())?;
            self.pending.clear();
        }
        Ok(())
    }
}
