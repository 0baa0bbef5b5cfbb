//! `tombolo up --registry`: directories that join a clusterset through a real etcd, or only look
//! on.

#![expect(clippy::unwrap_used, reason = "test crate")]

use std::fs;

use anyhow::{Result, ensure};
use etcd_client::{Client, GetOptions};
use tokio::runtime::Runtime;
use tombolo_testbed::{Etcd, EtcdSpec, Spec, Testbed};
use tombolo_testkit::command::{Binary, Running};
use tombolo_testkit::files::{Tree, contents};
use tombolo_testkit::manifest;

struct Registry {
    etcd: Etcd,
    runtime: Runtime,
    _testbed: Testbed,
}

/// A directory that is a cluster, and what runs on it.
struct Laptop<'a> {
    tree: Tree,
    cluster: &'a str,
}

impl Registry {
    fn start() -> Self {
        let mut testbed = Testbed::start(&Spec::default()).unwrap();
        let etcd = testbed.start_etcd("registry", &EtcdSpec::default());
        Self {
            etcd: etcd.unwrap(),
            runtime: Runtime::new().unwrap(),
            _testbed: testbed,
        }
    }

    fn url(&self) -> String {
        self.etcd.first().endpoint()
    }

    /// Writes a key as somebody else might.
    fn put(&self, key: &str, value: &str) {
        self.runtime.block_on(async {
            let mut client = Client::connect(self.etcd.endpoints(), None).await.unwrap();
            let key = format!("{ROOT}{key}");
            client.put(key, value, None).await.unwrap();
        });
    }

    /// All keys, without the root, and the revision.
    fn keys(&self) -> (Vec<String>, i64) {
        self.runtime.block_on(async {
            let mut client = Client::connect(self.etcd.endpoints(), None).await.unwrap();
            let all = GetOptions::new().with_prefix().with_keys_only();
            let found = client.get("/", Some(all)).await.unwrap();
            let keys = found.kvs().iter().map(|kv| kv.key_str().unwrap());
            let keys = keys.map(|key| key.replace(ROOT, "")).collect();
            (keys, found.header().unwrap().revision())
        })
    }
}

impl<'a> Laptop<'a> {
    fn new(cluster: &'a str, yaml: &str) -> Self {
        let file = format!("{cluster}/all.yaml");
        let tree = Tree::with(&[(&*file, yaml)]).unwrap();
        fs::create_dir(tree.path("logs")).unwrap();
        Self { tree, cluster }
    }

    fn up(&self, registry: &Registry, more: &[&str]) -> Running {
        let (source, out) = (self.tree.arg(self.cluster), self.tree.arg("out"));
        let url = registry.url();
        let args = ["up", &source, "--out", &out, "--registry", &url];
        let args = [&args[..], more].concat();
        tombolo().start(args, &self.tree.path("logs")).unwrap()
    }

    /// Everything that was written out for it.
    fn out(&self) -> Result<String> {
        let files = contents(&self.tree.path("out"))?;
        let texts = files.into_values().map(String::from_utf8);
        Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
    }
}

fn tombolo() -> Binary {
    Binary::new(env!("CARGO_BIN_EXE_tombolo"))
}

fn until_out(running: &mut Running, laptop: &Laptop<'_>, part: &str) {
    running
        .eventually(|_| {
            let out = laptop.out()?;
            ensure!(out.contains(part), "no {part} in {out}");
            Ok(())
        })
        .unwrap();
}

fn end(running: Running) -> String {
    running.interrupt().unwrap();
    let finished = running.finish().unwrap();
    assert_eq!(finished.code, Some(0), "{finished:?}");
    finished.stdout
}

const ROOT: &str = "/tombolo/v1/regions/local/clusters/";
const IMPORT: &str = "kind: ServiceImport";

#[test]
fn etcd_directories_join_a_clusterset_and_leave_it_as_they_end() {
    let registry = Registry::start();
    let east = Laptop::new("east", &manifest::exported("shop", "web", 5, "10.1.0.1"));
    let west = Laptop::new("west", &manifest::namespace("shop"));
    let mut at_east = east.up(&registry, &[]);
    let mut at_west = west.up(&registry, &[]);
    until_out(&mut at_west, &west, "10.1.0.1");
    assert!(west.out().unwrap().contains(IMPORT));
    until_out(&mut at_east, &east, IMPORT);
    let changed = manifest::exported("shop", "web", 5, "10.1.0.2");
    east.tree.put("east/all.yaml", &changed).unwrap();
    until_out(&mut at_west, &west, "10.1.0.2");
    let stands = |key: &str| registry.keys().0.iter().any(|known| known == key);
    for key in ["east/session", "east/ns/shop/exports/web", "west/session"] {
        at_west
            .eventually(|_| {
                ensure!(stands(key), "no {key}");
                Ok(())
            })
            .unwrap();
    }

    // The registry goes and comes back; what is imported stays.
    registry.etcd.first().part().kill().unwrap();
    let changed = manifest::exported("shop", "web", 5, "10.1.0.3");
    east.tree.put("east/all.yaml", &changed).unwrap();
    until_out(&mut at_east, &east, "10.1.0.3");
    assert!(west.out().unwrap().contains("10.1.0.2"));
    registry.etcd.restart_all().unwrap();
    until_out(&mut at_west, &west, "10.1.0.3");

    end(at_east);
    assert!(!stands("east/session") && stands("east/ns/shop/exports/web"));
    // Who comes back is let in at once.
    let mut at_east = east.up(&registry, &[]);
    at_east
        .eventually(|_| {
            ensure!(stands("east/session"), "no session");
            Ok(())
        })
        .unwrap();
    end(at_east);
    end(at_west);
}

#[test]
fn etcd_who_only_looks_on_writes_nothing() {
    let registry = Registry::start();
    let east = Laptop::new("east", &manifest::exported("shop", "web", 5, "10.1.0.1"));
    let mut at_east = east.up(&registry, &[]);
    until_out(&mut at_east, &east, IMPORT);
    at_east
        .eventually(|_| {
            let synced = registry.keys().0.iter().any(|key| key == "east/synced");
            ensure!(synced, "not synced");
            Ok(())
        })
        .unwrap();
    let before = registry.keys();

    let north = manifest::exported("shop", "db", 7, "10.3.0.1");
    let north = Laptop::new("north", &north);
    let mut looks = north.up(&registry, &["--read-only"]);
    until_out(&mut looks, &north, "10.1.0.1");
    // Its own exports are there for itself, and only for itself.
    until_out(&mut looks, &north, "10.3.0.1");
    looks
        .eventually(|up| {
            let said = up.stdout()?;
            ensure!(
                said.contains("export shop/db Valid=True (Valid) Ready=False"),
                "{said}"
            );
            Ok(())
        })
        .unwrap();
    let source = north.tree.arg("north");
    let url = registry.url();
    let once = tombolo()
        .run(["up", &source, "--once", "--registry", &url, "--read-only"])
        .unwrap();
    assert!(once.stdout.contains("shop/web"), "{once:?}");
    end(looks);
    assert_eq!(registry.keys(), before, "north has written");
    end(at_east);
}

#[test]
fn etcd_what_is_refused_of_the_registry_is_shown() {
    let registry = Registry::start();
    registry.put("west/ns/shop/exports/web", "{}");
    let east = Laptop::new("east", &manifest::namespace("shop"));
    let mut looks = east.up(&registry, &["--read-only"]);
    looks
        .eventually(|up| {
            let said = up.stdout()?;
            let warning = "west warning in the registry unreadable: refused, 1 so far";
            ensure!(said.contains(warning), "{said}");
            Ok(())
        })
        .unwrap();
    end(looks);
}

#[test]
fn etcd_a_name_that_another_cluster_has_is_not_published() {
    let registry = Registry::start();
    let exported = manifest::exported("shop", "web", 5, "10.1.0.1");
    let (first, second) = (
        Laptop::new("east", &exported),
        Laptop::new("east", &exported),
    );
    let mut at_first = first.up(&registry, &[]);
    at_first
        .eventually(|_| {
            ensure!(registry.keys().0.iter().any(|key| key == "east/synced"));
            Ok(())
        })
        .unwrap();
    let mut at_second = second.up(&registry, &[]);
    at_second
        .eventually(|up| {
            let said = up.stderr()?;
            ensure!(said.contains("not published"), "{said}");
            ensure!(said.contains(&first.tree.arg("east")), "{said}");
            Ok(())
        })
        .unwrap();
    end(at_second);
    // Another process of the same directory does not disturb the first.
    let mut again = first.up(&registry, &[]);
    again
        .eventually(|up| {
            let said = up.stderr()?;
            ensure!(said.contains("not published"), "{said}");
            Ok(())
        })
        .unwrap();
    end(again);
    end(at_first);
    // By a word of the operator.
    let mut taken = second.up(&registry, &["--take-over"]);
    taken
        .eventually(|_| {
            ensure!(registry.keys().0.iter().any(|key| key == "east/session"));
            Ok(())
        })
        .unwrap();
    end(taken);
}

#[test]
fn etcd_a_registry_is_joined_by_a_word_on_the_command_line_only() {
    let east = Laptop::new("east", &manifest::exported("shop", "web", 5, "10.1.0.1"));
    let source = east.tree.arg("east");
    let run = |args: &[&str]| {
        tombolo()
            .run([&["up", &source][..], args].concat())
            .unwrap()
    };
    let refused = run(&["--once", "--read-only"]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.stderr.contains("--read-only: only with --registry"));
    let url = "http://127.0.0.1:1";
    let refused = run(&["--once", "--registry", url]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    let refused = run(&["--read-only", "--take-over", "--registry", url]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    let mut alone = std::process::Command::new(env!("CARGO_BIN_EXE_tombolo"));
    let alone = alone.args(["up", &source, "--once"]);
    let alone = alone.env("TOMBOLO_REGISTRY", url).output().unwrap();
    assert_eq!(alone.status.code(), Some(0), "{alone:?}");
}
