//! S03: users and certificates that may write their own prefix and nothing else; tokens that end.

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, DeleteOptions, PutOptions, Txn, TxnOp,
};
use tombolo_model::record::Origin;
use tombolo_model::record::{Record, RecordKey};
use tombolo_registry::etcd::{
    EtcdConfig, EtcdRegistry, Grantee, Malformed, Operator, Password, Proof, TlsFiles, User,
};
use tombolo_registry::registry::{Registry, Selection};
use tombolo_testbed::{EtcdSpec, Tls};

use crate::battery::TCP;
use crate::battery::{View, at, east, entries, export, ip, opening, service, west};
use crate::server::{Server, driven, until};

const ROOT: &str = "root-password";

/// A server with authentication, and users for east and west.
async fn guarded(args: &[&str]) -> Server {
    let server = Server::with_args(args);
    let operator = Operator::try_new(server.config()).unwrap();
    for origin in [east(), west()] {
        let proof = Proof::Password(format!("password-of-{}", origin.cluster));
        let grantee = Grantee::Cluster(origin.clone());
        let user = user(&origin);
        // Twice: it is made what it should be, not made again.
        operator.grant(&grantee, &user, &proof).await.unwrap();
        operator.grant(&grantee, &user, &proof).await.unwrap();
    }
    let mut client = server.client().await;
    client.user_add("root", ROOT, None).await.unwrap();
    client.role_add("root").await.ok();
    client.user_grant_role("root", "root").await.unwrap();
    client.auth_enable().await.unwrap();
    server
}

fn user(origin: &Origin) -> String {
    format!("tombolo-cluster-{}", origin.cluster)
}

fn config_of(server: &Server, origin: &Origin) -> EtcdConfig {
    let mut config = server.config();
    config.user = Some(User {
        name: user(origin),
        password: Password::Text(format!("password-of-{}", origin.cluster)),
    });
    config
}

async fn opened(server: &Server, origin: &Origin) -> EtcdRegistry {
    let registry = driven(config_of(server, origin), origin);
    let uid = format!("uid-of-{}", origin.cluster);
    registry.open(opening(&uid, "holder-1")).await.unwrap();
    registry
}

async fn client_of(server: &Server, user: &str, password: &str) -> Client {
    let options = ConnectOptions::new().with_user(user, password);
    let endpoints = [server.member().endpoint()];
    Client::connect(endpoints, Some(options)).await.unwrap()
}

fn refused<T: std::fmt::Debug>(what: &str, answer: Result<T, etcd_client::Error>) {
    let error = answer.expect_err(what).to_string();
    assert!(error.contains("permission denied"), "{what}: {error}");
}

/// One key of every kind that east may not write.
fn keys_of_others(other: &str, region: &str) -> Vec<String> {
    let mut keys: Vec<String> = [
        "owner",
        "session",
        "synced",
        "left",
        "report",
        "ns/shop/exports/checkout",
        "ns/shop/services/checkout/protocols/TCP/endpoints/10.0.0.1",
        "ns/shop/config/checkout/retries",
    ]
    .map(|key| format!("{other}{key}"))
    .into();
    keys.extend(
        ["members/east", "members/west", "settings", "replicator"].map(|k| format!("{region}{k}")),
    );
    keys.push("/elsewhere".to_owned());
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn s03_a_cluster_writes_its_own_prefix_and_nothing_else() {
    let server = Box::pin(guarded(&[])).await;
    let (east_side, west_side) = (
        opened(&server, &east()).await,
        opened(&server, &west()).await,
    );
    // The role is enough for everything that a cluster does.
    for side in [&east_side, &west_side] {
        side.set_export(&service("checkout"), export("uid-1"))
            .await
            .unwrap();
        side.register_endpoint(&service("checkout"), TCP, ip("10.0.0.1"), entries(80))
            .await
            .unwrap();
        let read = side.list_exports(Selection::All).await.unwrap();
        assert!(read.rejected.is_empty());
    }
    let mut view = View::new(east_side.subscribe());
    view.listed().await;
    assert_eq!(view.records.len(), 2 * 4);

    let mut intruder = client_of(&server, &user(&east()), "password-of-east").await;
    let (own, other) = (east_side.own_prefix(), west_side.own_prefix());
    let region = east_side.layout().region_prefix(&east().region);
    let keys = keys_of_others(&other, &region);
    for key in &keys {
        refused(key, intruder.put(key.as_str(), "x", None).await);
        refused(key, intruder.delete(key.as_str(), None).await);
        let put = Txn::new().and_then([TxnOp::put(key.as_str(), "x", None)]);
        refused(key, intruder.txn(put).await);
        let hidden = Txn::new()
            .when([Compare::version(
                format!("{own}owner"),
                CompareOp::Greater,
                0,
            )])
            .and_then([TxnOp::txn(
                Txn::new().and_then([TxnOp::delete(key.as_str(), None)]),
            )]);
        refused(key, intruder.txn(hidden).await);
    }
    let all = Some(DeleteOptions::new().with_from_key());
    refused("everything", intruder.delete("/", all).await);
    let wide = Some(DeleteOptions::new().with_range(format!("{other}zzz")));
    refused(
        "from its own into the other's",
        intruder.delete(own.as_str(), wide).await,
    );
    refused(
        "outside of the root",
        intruder.get("/elsewhere", None).await,
    );

    let lease = i64::try_from(west_side.session().borrow().unwrap()).unwrap();
    refused("the lease", intruder.lease_revoke(lease).await);
    let attached = Some(PutOptions::new().with_lease(lease));
    refused(
        "a key under it",
        intruder.put(format!("{own}ns/x"), "x", attached).await,
    );
    refused("a user", intruder.user_add("mallory", "x", None).await);
    assert!(west_side.session().borrow().is_some());
    assert_eq!(
        west_side
            .list_exports(Selection::All)
            .await
            .unwrap()
            .items
            .len(),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s03_a_record_that_claims_another_cluster_stays_that_of_its_key() {
    let server = Box::pin(guarded(&[])).await;
    let (east_side, west_side) = (
        opened(&server, &east()).await,
        opened(&server, &west()).await,
    );
    let mut forger = client_of(&server, &user(&east()), "password-of-east").await;
    // origin { region: "local" cluster: "west" }, as field 15.
    let claim = [&[122, 13, 10, 5][..], b"local", &[18, 4], b"west"].concat();
    let key = format!("{}ns/shop/exports/checkout", east_side.own_prefix());
    forger.put(key, claim, None).await.unwrap();
    let listed = west_side.list_exports(Selection::All).await.unwrap();
    assert!(listed.items.is_empty());
    assert_eq!(listed.rejected[0].rejection.kind, "value-origin");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_more_is_cut_back() {
    let server = Server::alone();
    let operator = Operator::try_new(server.config()).unwrap();
    let mut client = server.client().await;
    let name = user(&east());
    client.role_add(name.as_str()).await.unwrap();
    let all = etcd_client::Permission::read_write("/").with_from_key();
    client
        .role_grant_permission(name.as_str(), all)
        .await
        .unwrap();
    let grantee = Grantee::Cluster(east());
    operator
        .grant(&grantee, &name, &Proof::Certificate)
        .await
        .unwrap();
    let permissions = client.role_get(name.as_str()).await.unwrap().permissions();
    let keys: Vec<_> = permissions
        .iter()
        .map(|p| (p.get_type(), String::from_utf8_lossy(p.key()).into_owned()))
        .collect();
    // 0 reads, 2 reads and writes.
    let root = "/tombolo/v1/regions/";
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(keys.contains(&(0, root.to_owned())));
    assert!(keys.contains(&(2, format!("{root}local/clusters/east/"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_end_and_nobody_notices() {
    let server = Box::pin(guarded(&["--auth-token-ttl=2"])).await;
    let registry = opened(&server, &east()).await;
    let mut view = View::new(registry.subscribe());
    view.listed().await;
    let key = RecordKey::Export(service("checkout"));
    for round in 0..2 {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let uid = format!("uid-{round}");
        registry
            .set_export(&service("checkout"), export(&uid))
            .await
            .unwrap();
        view.until(&east(), &key, Some(&Record::Export(export(&uid))))
            .await;
        // The tokens of a member go with it.
        server.member().part().kill().unwrap();
        server.etcd.restart_all().unwrap();
    }
    // Users and roles change: all tokens are of an old revision.
    let mut root = client_of(&server, "root", ROOT).await;
    root.role_add("another").await.unwrap();
    registry
        .set_export(&service("checkout"), export("uid-9"))
        .await
        .unwrap();
    view.until(&east(), &key, Some(&Record::Export(export("uid-9"))))
        .await;
    assert_eq!(view.listings, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_denied_and_a_right_one_is_taken_up() {
    let server = Box::pin(guarded(&[])).await;
    let file = std::env::temp_dir().join(format!("tombolo-password-{}", std::process::id()));
    std::fs::write(&file, "wrong\n").unwrap();
    let mut config = config_of(&server, &east());
    config.user = Some(User {
        name: user(&east()),
        password: Password::File(file.clone()),
    });
    let registry = driven(config, &east());
    let error = registry
        .open(opening("uid-of-east", "holder-1"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), "denied", "{error}");
    std::fs::write(&file, "password-of-east\n").unwrap();
    registry
        .open(opening("uid-of-east", "holder-1"))
        .await
        .unwrap();
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_tls_names_the_user_and_new_certificates_are_read() {
    let server = Server::start(&EtcdSpec::default().tls(Tls::Mutual));
    let authority = server.etcd.authority().unwrap();
    let identity = authority.issue(&user(&east())).unwrap();
    let mut config = server.config();
    config.tls = TlsFiles {
        authority: Some(authority.certificate()),
        identity: Some((identity.certificate, identity.key)),
        server_name: None,
    };
    let operator = Operator::try_new(config.clone()).unwrap();
    let grantee = Grantee::Cluster(east());
    operator
        .grant(&grantee, &user(&east()), &Proof::Certificate)
        .await
        .unwrap();
    operator
        .grant(&grantee, "root", &Proof::Certificate)
        .await
        .unwrap();
    let member = operator
        .edit_member(&east(), Malformed::Kept, |known| {
            known.unwrap_or_else(|| tombolo_model::record::Member {
                joined: at(10),
                cidrs: Vec::new(),
                namespaces: Vec::new(),
                drained: false,
            })
        })
        .await
        .unwrap();
    assert_eq!(operator.member(&east()).await.unwrap(), Some(member));
    let registry = driven(config.clone(), &east());
    registry
        .open(opening("uid-of-east", "holder-1"))
        .await
        .unwrap();
    registry
        .set_export(&service("checkout"), export("uid-1"))
        .await
        .unwrap();
    let before = registry.counts().connections;
    authority.issue(&user(&east())).unwrap();
    until("the new certificate is used", || async {
        registry.list_exports(Selection::All).await.unwrap();
        registry.counts().connections > before
    })
    .await;
    // Without a certificate there is no connection.
    config.tls.identity = None;
    let nobody = driven(config, &west());
    let error = nobody.list_exports(Selection::All).await.unwrap_err();
    assert_eq!(error.kind(), "unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_newer_release_recorded_is_not_overwritten() {
    let server = Server::with_args(&[]);
    let operator = Operator::try_new(server.config()).unwrap();
    let mut client = server.client().await;
    // Field 14: it needs a reader of schema version 99.
    let newer = [0x70_u8, 99];
    let keys = [
        "/tombolo/v1/regions/local/members/east",
        "/tombolo/v1/regions/local/settings",
    ];
    for key in keys {
        client.put(key, newer, None).await.unwrap();
    }
    let never = |_| -> tombolo_model::record::Member { unreachable!("it is not to be edited") };
    for malformed in [Malformed::Kept, Malformed::Replaced] {
        let edited = operator.edit_member(&east(), malformed, never).await;
        assert_eq!(edited.unwrap_err().kind(), "value-schema");
    }
    let settings = tombolo_model::record::Settings::default();
    let set = operator.set_settings(&east().region, &settings).await;
    assert_eq!(set.unwrap_err().kind(), "value-schema");
    for key in keys {
        let found = client.get(key, None).await.unwrap();
        assert_eq!(found.kvs()[0].value(), newer);
    }
}
