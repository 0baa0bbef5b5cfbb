//! What a cluster's network can do: its ServiceCIDR objects say which families and networks its
//! Services have; where there are none, a Service that is only tried says the families.

use std::time::Duration;

use futures::AsyncBufReadExt as _;
use http::Method;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tombolo_model::io::Input;
use tombolo_model::own::{FIELD_MANAGER, LABEL_MANAGED_BY, MANAGED_BY};
use tombolo_model::service::IpFamily;
use tracing::{debug, warn};

use super::call::{Call, CallError, Server};
use super::decode::Line;
use super::report::Report;
use crate::convert::families_named;

/// How often a network is looked at that cannot be watched: one without `ServiceCIDR`s changes only
/// when its API server starts anew.
const LOOK_EVERY: Duration = Duration::from_mins(5);
/// How long one watch of `ServiceCIDR`s lasts.
const WATCH_SECS: u64 = 300;
/// Longer than a watch lasts: its connection is dead.
const WATCH_MAX: Duration = Duration::from_secs(WATCH_SECS + 30);
/// Objects that change together are looked at once.
const TOGETHER: Duration = Duration::from_millis(100);
/// After a failure.
const RETRY: Duration = Duration::from_secs(2);
/// The ServiceCIDR that the API server makes of its own configuration; its order is the network's.
const FIRST: &str = "kubernetes";

#[derive(Deserialize)]
struct Cidrs {
    metadata: ListMeta,
    items: Vec<Cidr>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
struct Cidr {
    metadata: CidrMeta,
    #[serde(default)]
    spec: CidrSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CidrMeta {
    name: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
struct CidrSpec {
    #[serde(default)]
    cidrs: Vec<String>,
}

/// What a network can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) families: Vec<IpFamily>,
    cidrs: Vec<IpNet>,
}

/// Where changes of what was seen can be watched.
struct Place {
    path: &'static str,
    revision: String,
}

/// Reports the families and service networks of a cluster whenever they change, until nobody
/// listens.
pub async fn watch_network(server: Server, reports: mpsc::Sender<Report>) {
    let mut known = Network::default();
    while !reports.is_closed() {
        let place = match look_at(&server).await {
            Ok((network, place)) => {
                if network != known {
                    let Network { families, cidrs } = network.clone();
                    let inputs = vec![Input::ServiceCidrs(cidrs), Input::Families(families)];
                    if reports.send(Report::Inputs(inputs)).await.is_err() {
                        return;
                    }
                    known = network;
                }
                Ok(place)
            }
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot find out the families of the network"
                );
                Err(error)
            }
        };
        tokio::select! {
            biased;
            () = reports.closed() => return,
            () = wait(&server, place) => {}
        }
    }
}

/// Until it is time to look again.
async fn wait(server: &Server, place: Result<Option<Place>, CallError>) {
    let time = match place {
        Ok(Some(place)) => match changed(server, &place).await {
            Ok(()) => TOGETHER,
            // Not allowed: then as often as where there is nothing to watch.
            Err(error) if matches!(error.code(), Some(403 | 404)) => LOOK_EVERY,
            Err(error) => {
                debug!(
                    error = &error as &dyn std::error::Error,
                    "watch of ServiceCIDRs stopped"
                );
                RETRY
            }
        },
        Ok(None) => LOOK_EVERY,
        Err(_) => RETRY,
    };
    sleep(time).await;
}

/// Waits for a change, or until the server ends the watch.
async fn changed(server: &Server, place: &Place) -> Result<(), CallError> {
    let Place { path, revision } = place;
    let path = format!(
        "{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECS}&resourceVersion={revision}"
    );
    let mut stream = std::pin::pin!(server.stream(&path).await?);
    let read = async {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = stream.read_until(b'\n', &mut line).await;
            let read = read.map_err(|error| CallError::from(kube::Error::ReadEvents(error)))?;
            let is_bookmark =
                serde_json::from_slice::<Line<'_>>(&line).is_ok_and(|line| line.kind == "BOOKMARK");
            // What else it says is seen by looking.
            if read == 0 || !is_bookmark {
                return Ok(());
            }
        }
    };
    timeout(WATCH_MAX, read)
        .await
        .map_err(|_| CallError::Deadline(WATCH_MAX))?
}

pub(super) async fn look(server: &Server) -> Result<Network, CallError> {
    let (network, _) = look_at(server).await?;
    Ok(network)
}

async fn look_at(server: &Server) -> Result<(Network, Option<Place>), CallError> {
    for path in [
        "/apis/networking.k8s.io/v1/servicecidrs",
        "/apis/networking.k8s.io/v1beta1/servicecidrs",
    ] {
        match server.read::<Cidrs>(Call::get(path)).await {
            Ok(cidrs) => {
                let revision = cidrs.metadata.resource_version.clone();
                let network = of_cidrs(cidrs);
                if !network.families.is_empty() {
                    return Ok((network, Some(Place { path, revision })));
                }
            }
            Err(error) if matches!(error.code(), Some(403 | 404)) => {
                debug!(
                    path,
                    error = &error as &dyn std::error::Error,
                    "no ServiceCIDRs"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok((try_service(server).await?, None))
}

fn of_cidrs(cidrs: Cidrs) -> Network {
    let mut objects = cidrs.items;
    objects.retain(|object| object.metadata.deletion_timestamp.is_none());
    objects.sort_by_key(|object| (object.metadata.name != FIRST, object.metadata.name.clone()));
    let texts = objects.iter().flat_map(|object| &object.spec.cidrs);
    let cidrs: Vec<IpNet> = texts.filter_map(|text| text.parse().ok()).collect();
    let mut families = Vec::new();
    for cidr in &cidrs {
        let family = IpFamily::of(cidr.addr());
        if !families.contains(&family) {
            families.push(family);
        }
    }
    Network { families, cidrs }
}

/// Asks for a Service of all families without making it.
async fn try_service(server: &Server) -> Result<Network, CallError> {
    let path =
        format!("/api/v1/namespaces/default/services?dryRun=All&fieldManager={FIELD_MANAGER}");
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"generateName": "tombolo-families-", "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
        "spec": {"ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80}]},
    });
    let service: Service = server
        .read(Call::with_body(Method::POST, &path, &body))
        .await?;
    // In its order, which the sorted helper would lose.
    let in_order = service
        .spec
        .iter()
        .flat_map(|spec| spec.ip_families.iter().flatten());
    let mut families: Vec<IpFamily> = in_order.filter_map(|f| IpFamily::parse(f)).collect();
    if families.is_empty() {
        families = families_named(&service);
    }
    Ok(Network {
        families,
        cidrs: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_api_servers_own_networks() {
        let cidrs = json!({"metadata": {"resourceVersion": "7"}, "items": [
            {"metadata": {"name": "extra"}, "spec": {"cidrs": ["10.2.0.0/16"]}},
            {"metadata": {"name": "gone", "deletionTimestamp": "2026-01-01T00:00:00Z"},
             "spec": {"cidrs": ["10.3.0.0/16"]}},
            {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["fd00::/112", "10.1.0.0/16"]}},
        ]});
        let network = of_cidrs(serde_json::from_value(cidrs).unwrap());
        assert_eq!(network.families, [IpFamily::V6, IpFamily::V4]);
        let cidrs: Vec<String> = network.cidrs.iter().map(ToString::to_string).collect();
        assert_eq!(cidrs, ["fd00::/112", "10.1.0.0/16", "10.2.0.0/16"]);
    }
}
