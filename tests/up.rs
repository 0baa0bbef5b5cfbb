//! `tombolo up` as a user runs it: files change while it runs, and the objects and the lines that
//! it prints follow. That it comes to the same results as `plan` is shown by `tests/cases.rs`.
//!
//! Nothing here waits for a length of time: each test looks until it sees what has to come, with a
//! deadline far away.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use rustix::io::ioctl_fionbio;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tombolo_testkit::command::{Binary, Finished, Running};
use tombolo_testkit::files::{Tree, contents, snapshot};
use tombolo_testkit::manifest;

fn tombolo() -> Binary {
    Binary::new(env!("CARGO_BIN_EXE_tombolo"))
}

/// East exports shop/web; west has the namespace.
fn two_clusters() -> Tree {
    Tree::with(&[
        (
            "clusters/east/web.yaml",
            manifest::exported("shop", "web", 5, "10.1.0.1"),
        ),
        ("clusters/west/shop.yaml", manifest::namespace("shop")),
    ])
    .unwrap()
}

/// Starts `up` on the clusters of a tree, with output.
fn up(tree: &Tree) -> Running {
    let logs = tree.path("logs");
    fs::create_dir(&logs).unwrap();
    tombolo()
        .start(
            ["up", &tree.arg("clusters"), "--out", &tree.arg("out")],
            &logs,
        )
        .unwrap()
}

/// The objects that west holds, by kind and name.
fn west(tree: &Tree) -> Result<BTreeMap<(String, String), Value>> {
    let mut objects = BTreeMap::new();
    for (path, bytes) in contents(&tree.path("out/west"))? {
        let text = String::from_utf8(bytes)?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| path.display().to_string())?;
        for document in documents {
            let text = |pointer: &str| {
                document
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            objects.insert((text("/kind"), text("/metadata/name")), document);
        }
    }
    Ok(objects)
}

/// The addresses of west's slices, when every object of shop/web is there.
fn addresses(tree: &Tree) -> Result<Vec<String>> {
    let objects = west(tree)?;
    let kind = |kind: &'static str| objects.iter().filter(move |((k, _), _)| k == kind);
    ensure!(
        kind("ServiceImport").count() == 1,
        "no ServiceImport: {objects:?}"
    );
    ensure!(
        kind("Service").count() == 1,
        "no derived Service: {objects:?}"
    );
    let mut addresses = Vec::new();
    for (_, slice) in kind("EndpointSlice") {
        for endpoint in slice["endpoints"].as_array().context("no endpoints")? {
            addresses.push(
                endpoint["addresses"][0]
                    .as_str()
                    .context("no address")?
                    .to_owned(),
            );
        }
    }
    addresses.sort();
    Ok(addresses)
}

/// The addresses of an import of west.
fn ips(tree: &Tree, name: &str) -> Result<Vec<String>> {
    let objects = west(tree)?;
    let key = ("ServiceImport".to_owned(), name.to_owned());
    let import = objects.get(&key).context("no ServiceImport")?;
    let ips = import["spec"]["ips"].as_array().context("no ips")?;
    Ok(ips
        .iter()
        .map(|ip| ip.as_str().unwrap_or_default().to_owned())
        .collect())
}

fn expect_addresses(up: &mut Running, tree: &Tree, expected: &[&str]) {
    up.eventually(|_| {
        let found = addresses(tree)?;
        ensure!(
            found == expected,
            "west has {found:?}, expected {expected:?}"
        );
        Ok(())
    })
    .unwrap();
}

fn expect_end(up: Running) -> Finished {
    up.interrupt().unwrap();
    let finished = up.finish().unwrap();
    assert_eq!(finished.code, Some(0), "{finished:?}");
    finished
}

#[test]
fn a_changed_file_changes_the_output_and_prints_lines() {
    let tree = two_clusters();
    let mut up = up(&tree);
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    let before = up.stdout().unwrap();
    let more = manifest::slice("shop", "web", &["10.1.0.2"]).replace("web-1", "web-2");
    tree.put("clusters/east/more.yaml", &more).unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.1", "10.1.0.2"]);
    let printed = up
        .eventually(|up| {
            let printed = up.stdout()?;
            ensure!(printed.len() > before.len(), "nothing new was printed");
            Ok(printed)
        })
        .unwrap();
    assert!(
        printed.starts_with(&before),
        "plain lines are not taken back"
    );
    assert!(printed.contains("shop/web"), "{printed}");
    assert!(
        !printed.contains('\u{1b}'),
        "no terminal, so no escape codes: {printed:?}"
    );
    expect_end(up);
}

/// The directory is named as most people name it, which is not how the system names what changed.
#[test]
fn a_change_is_seen_whatever_the_directory_is_called() {
    for sources in [
        &["clusters"][..],
        &["./clusters/"],
        &["clusters/east", "clusters/west"],
        &["link"],
    ] {
        let tree = two_clusters();
        symlink("clusters", tree.path("link")).unwrap();
        fs::create_dir(tree.path("logs")).unwrap();
        let args = [&["up", "--out", "out"], sources].concat();
        let mut up = tombolo()
            .within(tree.path(""))
            .start(args, &tree.path("logs"))
            .unwrap();
        expect_addresses(&mut up, &tree, &["10.1.0.1"]);
        // More than one, as the first may be found for another reason.
        for address in ["10.1.0.2", "10.1.0.3", "10.1.0.4"] {
            let text = manifest::exported("shop", "web", 5, address);
            tree.put("clusters/east/web.yaml", &text).unwrap();
            expect_addresses(&mut up, &tree, &[address]);
        }
        expect_end(up);
    }
}

#[test]
fn files_and_directories_come_and_go() {
    let tree = two_clusters();
    let mut up = up(&tree);
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    let slice = manifest::slice("shop", "web", &["10.1.0.7"]).replace("web-1", "web-2");
    tree.put("clusters/east/new/deep/slice.yaml", &slice)
        .unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.1", "10.1.0.7"]);
    // The way editors save: another file takes the place.
    tree.put(
        "clusters/east/new/deep/.slice.tmp",
        &slice.replace("0.7", "0.8"),
    )
    .unwrap();
    let saved = tree.path("clusters/east/new/deep/slice.yaml");
    fs::rename(tree.path("clusters/east/new/deep/.slice.tmp"), saved).unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.1", "10.1.0.8"]);
    tree.remove("clusters/east/new").unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    tree.remove("clusters/east/web.yaml").unwrap();
    up.eventually(|_| {
        let left = west(&tree).unwrap_or_default();
        ensure!(left.is_empty(), "left: {left:?}");
        Ok(())
    })
    .unwrap();
    expect_end(up);
}

#[test]
fn a_namespace_that_comes_later_gets_its_imports() {
    let tree = two_clusters();
    tree.put("clusters/west/shop.yaml", &manifest::namespace("bank"))
        .unwrap();
    let mut up = up(&tree);
    up.eventually(|_| {
        let written = contents(&tree.path("out/east"))?
            .into_values()
            .flatten()
            .collect();
        ensure!(
            String::from_utf8(written)?.contains("kind: ServiceImport"),
            "not yet"
        );
        Ok(())
    })
    .unwrap();
    assert!(west(&tree).unwrap_or_default().is_empty());
    tree.put("clusters/west/more.yaml", &manifest::namespace("shop"))
        .unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    expect_end(up);
}

#[test]
fn a_file_that_breaks_withdraws_nothing() {
    let tree = two_clusters();
    let mut up = up(&tree);
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    let before = snapshot(&tree.path("out/west")).unwrap();
    let text = manifest::exported("shop", "web", 5, "10.1.0.1");
    tree.put("clusters/east/web.yaml", &text.replace("spec:", "spec: ["))
        .unwrap();
    up.eventually(|up| {
        let said = format!("{}{}", up.stderr()?, up.stdout()?);
        ensure!(
            said.contains("web.yaml"),
            "nobody says anything about the file"
        );
        Ok(())
    })
    .unwrap();
    assert_eq!(snapshot(&tree.path("out/west")).unwrap(), before);
    // Another file still counts, and so does this one once it is whole again.
    let slice = manifest::slice("shop", "web", &["10.1.0.7"]).replace("web-1", "web-2");
    tree.put("clusters/east/slice.yaml", &slice).unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.1", "10.1.0.7"]);
    tree.put(
        "clusters/east/web.yaml",
        &text.replace("10.1.0.1", "10.1.0.2"),
    )
    .unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.2", "10.1.0.7"]);
    expect_end(up);
}

#[test]
fn a_file_that_is_written_again_and_again_withdraws_nothing() {
    let tree = two_clusters();
    let mut up = up(&tree);
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    let imported: Vec<PathBuf> = contents(&tree.path("out/west"))
        .unwrap()
        .into_iter()
        .filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains("kind: ServiceImport"))
        .map(|(path, _)| tree.path("out/west").join(path))
        .collect();
    assert_eq!(imported.len(), 1);
    for round in 0..500 {
        let address = format!("10.1.1.{}", round % 250 + 1);
        // Emptied first and then filled, in the same file: what `cp` and most programs do.
        tree.put(
            "clusters/east/web.yaml",
            &manifest::exported("shop", "web", 5, &address),
        )
        .unwrap();
        assert!(imported[0].exists(), "withdrawn in round {round}");
    }
    tree.put(
        "clusters/east/web.yaml",
        &manifest::exported("shop", "web", 5, "10.1.0.9"),
    )
    .unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.9"]);
    expect_end(up);
}

#[test]
fn a_clusterset_address_stays_while_its_import_exists() {
    let tree = two_clusters();
    let mut up = up(&tree);
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    let before = ips(&tree, "web").unwrap();
    assert_eq!(before.len(), 1);
    let more = manifest::exported("shop", "aaa", 4, "10.1.0.3");
    tree.put("clusters/east/aaa.yaml", &more).unwrap();
    let others = up.eventually(|_| ips(&tree, "aaa")).unwrap();
    assert_ne!(others, before);
    assert_eq!(ips(&tree, "web").unwrap(), before);
    // Headless and back: the address is asked for again.
    let text = manifest::exported("shop", "web", 5, "10.1.0.1");
    tree.put(
        "clusters/east/web.yaml",
        &text.replace("spec:\n", "spec:\n  clusterIP: None\n"),
    )
    .unwrap();
    up.eventually(|_| {
        ensure!(
            ips(&tree, "web").unwrap_or_default().is_empty(),
            "still not headless"
        );
        Ok(())
    })
    .unwrap();
    tree.put("clusters/east/web.yaml", &text).unwrap();
    let after = up.eventually(|_| {
        let ips = ips(&tree, "web")?;
        ensure!(!ips.is_empty(), "still headless");
        Ok(ips)
    });
    assert_eq!(after.unwrap(), before);
    expect_end(up);
}

#[test]
fn addresses_come_from_the_range_that_is_given() {
    let tree = two_clusters();
    let out = tree.arg("out");
    let args = ["up", "--once", "--vip-cidr", "10.250.7.0/24", "--out", &out];
    let run = tombolo()
        .run(args.iter().copied().chain([&*tree.arg("clusters")]))
        .unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let ip: Ipv4Addr = ips(&tree, "web").unwrap()[0].parse().unwrap();
    assert_eq!(ip.octets()[..3], [10, 250, 7], "{ip}");
    assert!(
        ![0, 255].contains(&ip.octets()[3]),
        "{ip} is no address of a Service"
    );
}

#[test]
fn a_directory_that_is_replaced_from_above_is_read_anew() {
    let tree = two_clusters();
    let mut up = up(&tree);
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    for (file, text) in [
        (
            "next/east/web.yaml",
            manifest::exported("shop", "web", 5, "10.1.0.9"),
        ),
        ("next/west/shop.yaml", manifest::namespace("shop")),
    ] {
        tree.put(file, &text).unwrap();
    }
    fs::rename(tree.path("clusters"), tree.path("last")).unwrap();
    fs::rename(tree.path("next"), tree.path("clusters")).unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.9"]);
    // And that one is followed.
    let more = manifest::slice("shop", "web", &["10.1.0.2"]).replace("web-1", "web-2");
    tree.put("clusters/east/more.yaml", &more).unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.2", "10.1.0.9"]);
    expect_end(up);
}

#[test]
fn directories_that_come_and_go_are_told_and_nothing_is_withdrawn() {
    let tree = two_clusters();
    let mut up = up(&tree);
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    fs::rename(tree.path("clusters/east"), tree.path("away")).unwrap();
    let mut expect_line = |text: &str| {
        up.eventually(|up| {
            let told = up.stderr()?;
            ensure!(told.contains(text), "no {text:?} in {told}");
            Ok(())
        })
        .unwrap();
    };
    expect_line("clusters/east: the directory cannot be listed");
    tree.put("clusters/rome/shop.yaml", &manifest::namespace("shop"))
        .unwrap();
    expect_line("clusters/rome is new");
    assert_eq!(addresses(&tree).unwrap(), ["10.1.0.1"]);
    expect_end(up);
}

#[test]
fn output_that_is_taken_away_is_written_again() {
    let tree = two_clusters();
    let mut up = up(&tree);
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    fs::remove_dir_all(tree.path("out")).unwrap();
    let more = manifest::slice("shop", "web", &["10.1.0.2"]).replace("web-1", "web-2");
    tree.put("clusters/east/more.yaml", &more).unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.1", "10.1.0.2"]);
    // Where that cannot be, it is told, and the rest goes on.
    fs::remove_dir_all(tree.path("out")).unwrap();
    tree.put("out", "a file").unwrap();
    tree.put("clusters/east/more.yaml", "").unwrap();
    up.eventually(|up| {
        let told = up.stderr()?;
        ensure!(told.contains("--out: "), "{told}");
        Ok(())
    })
    .unwrap();
    fs::remove_file(tree.path("out")).unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    expect_end(up);
}

#[test]
fn once_prints_and_writes_what_there_is_and_ends() {
    let tree = two_clusters();
    let args = [
        "up",
        "--once",
        &tree.arg("clusters"),
        "--out",
        &tree.arg("out"),
    ];
    let run = tombolo().run(args).unwrap();
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for word in ["east", "west", "shop/web"] {
        assert!(run.stdout.contains(word), "no {word} in:\n{}", run.stdout);
    }
    assert_eq!(addresses(&tree).unwrap(), ["10.1.0.1"]);
}

#[test]
fn output_of_an_earlier_run_is_taken_over() {
    let tree = two_clusters();
    let clusters = tree.arg("clusters");
    let args = ["up", "--once", &clusters, "--out", &tree.arg("out")];
    assert_eq!(tombolo().run(args).unwrap().code, Some(0));
    let before = ips(&tree, "web").unwrap();
    tree.remove("clusters/east/web.yaml").unwrap();
    tree.put(
        "clusters/east/pay.yaml",
        &manifest::exported("shop", "pay", 5, "10.1.0.4"),
    )
    .unwrap();
    assert_eq!(tombolo().run(args).unwrap().code, Some(0));
    assert!(
        ips(&tree, "web").is_err(),
        "what is no longer wanted is removed"
    );
    assert_eq!(ips(&tree, "pay").unwrap().len(), before.len());
}

#[test]
fn on_a_terminal_the_table_is_updated_in_place() {
    let tree = two_clusters();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    ioctl_fionbio(&terminal, true).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let stdout = fs::OpenOptions::new()
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    fs::create_dir(tree.path("logs")).unwrap();
    let args = ["up", &tree.arg("clusters"), "--out", &tree.arg("out")];
    let mut up = tombolo()
        .start_with(args, &tree.path("logs"), Stdio::from(stdout))
        .unwrap();
    expect_addresses(&mut up, &tree, &["10.1.0.1"]);
    // The objects are written and the table is drawn in either order.
    let mut seen = String::new();
    up.eventually(|_| {
        let mut buffer = [0; 4096];
        while let Ok(count) = rustix::io::read(&terminal, &mut buffer) {
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        let drawn = ["east", "west", "web", "\u{1b}["]
            .iter()
            .all(|part| seen.contains(part));
        ensure!(drawn, "no table, or no movement of the cursor: {seen:?}");
        Ok(())
    })
    .unwrap();
    expect_end(up);
}
