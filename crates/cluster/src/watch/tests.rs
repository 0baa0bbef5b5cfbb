//! Over real files: what an operating system tells cannot be made up.

use std::os::unix::fs::symlink;

use jiff::Timestamp;
use tokio::time::timeout;

use super::*;
use crate::convert::Strings;
use crate::manifest::{Manifests, Tree};

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n";

/// Long enough for any machine: only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

async fn changed(watch: &mut Watch) -> Vec<usize> {
    timeout(PATIENCE, watch.changed(false))
        .await
        .expect("a change is told")
}

/// Waits for changes until the directory is read as it should be.
async fn until(watch: &mut Watch, tree: &mut Tree, objects: usize) {
    let mut strings = Strings::default();
    let later = Timestamp::from_second(1 << 36).unwrap();
    let all = async {
        loop {
            tree.rescan(later, &mut strings);
            if Manifests::of(tree).0.objects().count() == objects {
                return;
            }
            watch.changed(false).await;
        }
    };
    timeout(PATIENCE, all).await.expect("the change is seen");
}

fn tree(root: &Path) -> Tree {
    fs::write(root.join("a.yaml"), SERVICE).unwrap();
    Tree::read(root, Timestamp::UNIX_EPOCH, &mut Strings::default()).unwrap()
}

#[tokio::test]
async fn only_the_directory_with_the_change_is_named() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut watch = Watch::new(&[a.path().to_owned(), b.path().to_owned()]);
    assert!(watch.is_complete());
    fs::write(b.path().join("x.yaml"), SERVICE).unwrap();
    assert_eq!(changed(&mut watch).await, [1]);
    // Reading is no change.
    tree(b.path());
    changed(&mut watch).await;
    Tree::read(b.path(), Timestamp::UNIX_EPOCH, &mut Strings::default()).unwrap();
    assert!(timeout(4 * QUIET, watch.changed(false)).await.is_err());
    assert_eq!(watch.changed(true).await, [0, 1]);
}

#[tokio::test]
async fn a_directory_may_be_named_by_a_relative_path() {
    let root = tempfile::tempdir().unwrap();
    let up: PathBuf = std::env::current_dir()
        .unwrap()
        .iter()
        .skip(1)
        .map(|_| "..")
        .collect();
    let relative = up.join(root.path().strip_prefix("/").unwrap());
    let mut watch = Watch::new(&[relative]);
    fs::write(root.path().join("x.yaml"), SERVICE).unwrap();
    assert_eq!(changed(&mut watch).await, [0]);
}

#[tokio::test]
async fn a_change_is_not_lost_with_a_future_that_is_dropped() {
    let root = tempfile::tempdir().unwrap();
    let mut watch = Watch::new(&[root.path().to_owned()]);
    fs::write(root.path().join("x.yaml"), SERVICE).unwrap();
    let dropped = timeout(Duration::from_millis(1), watch.changed(false)).await;
    // On a machine that stalls it may have ended all the same.
    let told = match dropped {
        Ok(told) => told,
        Err(_) => changed(&mut watch).await,
    };
    assert_eq!(told, [0]);
}

#[tokio::test]
async fn files_that_are_renamed_over_and_directories_that_come_and_go_are_seen() {
    let root = tempfile::tempdir().unwrap();
    let mut tree = tree(root.path());
    let mut watch = Watch::new(&[root.path().to_owned()]);
    let new = root.path().join(".a.yaml.swp");
    fs::write(
        &new,
        format!("{SERVICE}---\n{}", SERVICE.replace("web", "api")),
    )
    .unwrap();
    fs::rename(new, root.path().join("a.yaml")).unwrap();
    until(&mut watch, &mut tree, 3).await;
    fs::create_dir_all(root.path().join("b/c")).unwrap();
    fs::write(
        root.path().join("b/c/d.yaml"),
        SERVICE.replace("web", "pay"),
    )
    .unwrap();
    until(&mut watch, &mut tree, 4).await;
    fs::remove_dir_all(root.path().join("b")).unwrap();
    until(&mut watch, &mut tree, 3).await;
}

#[tokio::test]
async fn links_that_are_swapped_as_in_a_config_map_are_seen() {
    let root = tempfile::tempdir().unwrap();
    for (version, name) in [("..1", "web"), ("..2", "api")] {
        fs::create_dir(root.path().join(version)).unwrap();
        let text = format!("{SERVICE}---\n{}", SERVICE.replace("web", name));
        fs::write(root.path().join(version).join("s.yaml"), text).unwrap();
    }
    symlink("..1", root.path().join("..data")).unwrap();
    symlink("..data/s.yaml", root.path().join("s.yaml")).unwrap();
    let mut tree = Tree::read(root.path(), Timestamp::UNIX_EPOCH, &mut Strings::default()).unwrap();
    assert_eq!(Manifests::of(&tree).0.objects().count(), 2);
    let mut watch = Watch::new(&[root.path().to_owned()]);
    symlink("..2", root.path().join("..data_tmp")).unwrap();
    fs::rename(root.path().join("..data_tmp"), root.path().join("..data")).unwrap();
    until(&mut watch, &mut tree, 3).await;
}

#[tokio::test]
async fn another_directory_in_the_same_place_is_watched_instead() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("east");
    fs::create_dir(&root).unwrap();
    let mut tree = tree(&root);
    let mut watch = Watch::new(std::slice::from_ref(&root));
    fs::rename(&root, parent.path().join("old")).unwrap();
    changed(&mut watch).await;
    fs::create_dir(&root).unwrap();
    fs::write(
        root.join("b.yaml"),
        format!("{SERVICE}---\n{}", SERVICE.replace("web", "api")),
    )
    .unwrap();
    until(&mut watch, &mut tree, 3).await;
    while !watch.is_complete() {
        changed(&mut watch).await;
    }
    fs::write(root.join("c.yaml"), SERVICE.replace("web", "pay")).unwrap();
    assert_eq!(changed(&mut watch).await, [0]);
    until(&mut watch, &mut tree, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_not_there_is_polled() {
    let parent = tempfile::tempdir().unwrap();
    let mut watch = Watch::new(&[parent.path().join("later")]);
    assert!(!watch.is_complete());
    assert_eq!(watch.changed(false).await, [0]);
    fs::create_dir(parent.path().join("later")).unwrap();
    assert_eq!(watch.changed(false).await, [0]);
    assert!(watch.is_complete());
}

#[tokio::test(start_paused = true)]
async fn without_a_watcher_all_are_polled_and_not_more_often() {
    let root = tempfile::tempdir().unwrap();
    let mut watch = Watch::new(&[root.path().to_owned()]);
    watch.watcher = None;
    let begin = Instant::now();
    for polls in 1..4 {
        assert_eq!(watch.changed(false).await, [0]);
        assert!(begin.elapsed() >= (polls - 1) * POLL, "{polls}");
    }
}
