//! Who may do what: roles and users of etcd (DESIGN §2.2, Access).
//!
//! A cluster may write its own prefix and read the root, nothing else. A replicator may write its
//! own region at the peer, and read its region where it copies from.

use etcd_client::{Permission, RoleRevokePermissionOptions, UserAddOptions};

use tombolo_model::names::Region;
use tombolo_model::record::Origin;

use super::connection::{CALL_DEADLINE, Connection, Repeat};
use super::failure::Failure;
use crate::error::Error;
use crate::key::{KeyRange, Layout};

/// Who is given access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grantee {
    /// A cluster, at the etcd of its region.
    Cluster(Origin),
    /// The replicator of this region, at a peer, where it writes.
    ReplicatorTo(Region),
    /// The replicator of this region, at the region's own etcd, where it reads.
    ReplicatorFrom(Region),
}

/// How a user shows who it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// By this password.
    Password(String),
    /// By a client certificate with its name as common name.
    Certificate,
}

/// A role as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name, and that of its user unless another is chosen.
    pub name: String,
    /// What it may write, and read.
    pub writes: Option<KeyRange>,
    /// What it may read.
    pub reads: KeyRange,
}

// === impl Role ===

impl Role {
    /// What someone needs, and nothing else.
    pub fn of(layout: &Layout, grantee: &Grantee) -> Self {
        match grantee {
            Grantee::Cluster(origin) => Self {
                name: format!("tombolo-cluster-{}", origin.cluster),
                writes: Some(KeyRange::of_prefix(&layout.own_prefix(origin))),
                reads: KeyRange::of_prefix(&layout.root_prefix()),
            },
            Grantee::ReplicatorTo(region) => {
                let range = KeyRange::of_prefix(&layout.region_prefix(region));
                Self {
                    name: format!("tombolo-replicator-{region}"),
                    writes: Some(range.clone()),
                    reads: range,
                }
            }
            Grantee::ReplicatorFrom(region) => Self {
                name: format!("tombolo-replicator-{region}"),
                writes: None,
                reads: KeyRange::of_prefix(&layout.region_prefix(region)),
            },
        }
    }

    fn permissions(&self) -> Vec<Permission> {
        let Self {
            name: _,
            writes,
            reads,
        } = self;
        let mut permissions = Vec::new();
        if let Some(range) = writes {
            let write = Permission::read_write(range.start.clone());
            permissions.push(write.with_range_end(range.end.clone()));
        }
        if writes.as_ref() != Some(reads) {
            let read = Permission::read(reads.start.clone());
            permissions.push(read.with_range_end(reads.end.clone()));
        }
        permissions
    }

    /// The `etcdctl` commands that make it by hand.
    pub fn commands(&self, user: &str) -> Vec<String> {
        let Self {
            name,
            writes,
            reads,
        } = self;
        let shown = |range: &KeyRange| String::from_utf8_lossy(&range.start).into_owned();
        let mut commands = vec![format!("etcdctl role add {name}")];
        if let Some(range) = writes {
            let prefix = shown(range);
            commands.push(format!(
                "etcdctl role grant-permission --prefix {name} readwrite {prefix}"
            ));
        }
        if writes.as_ref() != Some(reads) {
            let prefix = shown(reads);
            commands.push(format!(
                "etcdctl role grant-permission --prefix {name} read {prefix}"
            ));
        }
        commands.push(format!("etcdctl user add --no-password {user}"));
        commands.push(format!("etcdctl user grant-role {user} {name}"));
        commands
    }
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Password(_) => "Password",
            Self::Certificate => "Certificate",
        })
    }
}

/// Makes role and user, or makes them what they should be.
pub(super) async fn grant(
    connection: &Connection,
    role: &Role,
    user: &str,
    proof: &Proof,
) -> Result<(), Error> {
    grant_role(connection, role)
        .await
        .map_err(Failure::of_write)?;
    grant_user(connection, role, user, proof)
        .await
        .map_err(Failure::of_write)
}

async fn grant_role(connection: &Connection, role: &Role) -> Result<(), Failure> {
    let name = role.name.as_str();
    let listed = call(connection, |client| async move {
        client.auth_client().role_list().await
    });
    if !listed.await?.roles().iter().any(|known| known == name) {
        call(connection, |client| async move {
            client.auth_client().role_add(name).await
        })
        .await?;
    }
    let wanted = role.permissions();
    let found = call(connection, |client| async move {
        client.auth_client().role_get(name).await
    });
    let found = found.await?.permissions();
    for permission in &wanted {
        if !found.contains(permission) {
            call(connection, |client| {
                let permission = permission.clone();
                async move {
                    client
                        .auth_client()
                        .role_grant_permission(name, permission)
                        .await
                }
            })
            .await?;
        }
    }
    // What the role may do beyond that, it may no longer.
    let of_other_keys = |permission: &&Permission| {
        wanted.iter().all(|wanted| {
            (wanted.key(), wanted.range_end()) != (permission.key(), permission.range_end())
        })
    };
    for permission in found.iter().filter(of_other_keys) {
        call(connection, |client| {
            let key = permission.key().to_vec();
            let options =
                RoleRevokePermissionOptions::new().with_range_end(permission.range_end().to_vec());
            async move {
                client
                    .auth_client()
                    .role_revoke_permission(name, key, Some(options))
                    .await
            }
        })
        .await?;
    }
    Ok(())
}

async fn grant_user(
    connection: &Connection,
    role: &Role,
    user: &str,
    proof: &Proof,
) -> Result<(), Failure> {
    let listed = call(connection, |client| async move {
        client.auth_client().user_list().await
    });
    let known = listed.await?.users().iter().any(|known| known == user);
    match proof {
        Proof::Password(password) if known => {
            call(connection, |client| async move {
                client
                    .auth_client()
                    .user_change_password(user, password.as_str())
                    .await
            })
            .await?;
        }
        Proof::Password(password) => {
            call(connection, |client| async move {
                client
                    .auth_client()
                    .user_add(user, password.as_str(), None)
                    .await
            })
            .await?;
        }
        Proof::Certificate if known => {}
        Proof::Certificate => {
            call(connection, |client| async move {
                let options = UserAddOptions::new().with_no_pwd();
                client.auth_client().user_add(user, "", Some(options)).await
            })
            .await?;
        }
    }
    let found = call(connection, |client| async move {
        client.auth_client().user_get(user).await
    });
    let found = found.await?;
    let name = role.name.as_str();
    if !found.roles().iter().any(|known| known == name) {
        call(connection, |client| async move {
            client.auth_client().user_grant_role(user, name).await
        })
        .await?;
    }
    for other in found.roles().iter().filter(|known| *known != name) {
        tracing::warn!(user, role = %other, "this user has another role too");
    }
    Ok(())
}

async fn call<T, F>(
    connection: &Connection,
    send: impl Fn(etcd_client::Client) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, etcd_client::Error>>,
{
    connection
        .call("a change of users", CALL_DEADLINE, Repeat::IfNotSent, send)
        .await
}
