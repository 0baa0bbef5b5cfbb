//! A generated fleet: clusters that export services to one another, as records and as manifests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tombolo_model::endpoint::{Conditions, Entry, EntryPort, EntryProtocol};
use tombolo_model::fleet::FleetInput;
use tombolo_model::names::{ClusterName, Namespace, ObjectName, Region, ServiceKey};
use tombolo_model::record::{ExportRecord, Origin, Record, RecordKey, Session};
use tombolo_model::service::{
    Affinity, ImportType, InternalTrafficPolicy, IpFamily, Port, Protocol,
};

/// How large a fleet is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) clusters: usize,
    pub(crate) services: usize,
    /// How many clusters export each service.
    pub(crate) exporters: usize,
    /// How many endpoints each of them has.
    pub(crate) endpoints: usize,
}

/// All services are spread over this many namespaces.
const NAMESPACES: usize = 20;

/// Creation times: one export a second from here.
const CREATED: &str = "2026-01-05T08:00:00Z";

impl Size {
    /// The clusters that export a service.
    fn exporters_of(self, service: usize) -> impl Iterator<Item = usize> {
        // Steps that share no factor with the number of clusters spread the services evenly.
        (0..self.exporters).map(move |i| (service * 7 + i * 61) % self.clusters)
    }

    fn address(self, service: usize, exporter: usize, endpoint: usize) -> IpAddr {
        let number = (service * self.exporters + exporter) * self.endpoints + endpoint;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number % (1 << 24)))
    }

    /// The registry's records, as a full listing.
    pub(crate) fn records(self) -> Result<Vec<FleetInput>> {
        let mut inputs = vec![FleetInput::ListBegan];
        for cluster in 0..self.clusters {
            let origin = origin(cluster)?;
            for (key, record) in [
                (RecordKey::Session, Record::Session(session()?)),
                (RecordKey::Synced, Record::Synced(1)),
            ] {
                let record = Some(record);
                inputs.push(FleetInput::Record {
                    origin: origin.clone(),
                    key,
                    record,
                });
            }
        }
        for service in 0..self.services {
            for (index, cluster) in self.exporters_of(service).enumerate() {
                for endpoint in 0..self.endpoints {
                    inputs.push(self.endpoint(service, index, endpoint, true)?);
                }
                let record = Some(Record::Export(Arc::new(export(service * 3 + index)?)));
                let key = RecordKey::Export(key(service)?);
                inputs.push(FleetInput::Record {
                    origin: origin(cluster)?,
                    key,
                    record,
                });
            }
        }
        inputs.push(FleetInput::ListEnded);
        Ok(inputs)
    }

    /// The record of one endpoint, ready or not.
    pub(crate) fn endpoint(
        self,
        service: usize,
        exporter: usize,
        endpoint: usize,
        ready: bool,
    ) -> Result<FleetInput> {
        let cluster = self
            .exporters_of(service)
            .nth(exporter)
            .context("no such exporter")?;
        let entry = Entry {
            ports: [EntryPort {
                name: "http".into(),
                port: 8080,
            }]
            .into(),
            hostname: None,
            zone: Some(format!("zone-{}", endpoint % 3).into()),
            conditions: Conditions {
                ready,
                serving: ready,
                terminating: false,
            },
        };
        Ok(FleetInput::Record {
            origin: origin(cluster)?,
            key: RecordKey::Endpoint {
                service: key(service)?,
                protocol: EntryProtocol::Some(Protocol::Tcp),
                address: self.address(service, exporter, endpoint),
            },
            record: Some(Record::Endpoint([entry].into())),
        })
    }

    /// Writes the fleet as directories of manifests.
    pub(crate) fn write(self, root: &Path) -> Result<()> {
        for cluster in 0..self.clusters {
            let directory = root.join(cluster_name(cluster));
            fs::create_dir_all(&directory)?;
            let mut text = String::new();
            for namespace in 0..NAMESPACES {
                writeln!(
                    text,
                    "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: ns-{namespace}}}"
                )?;
            }
            fs::write(directory.join("namespaces.yaml"), text)?;
        }
        for service in 0..self.services {
            for (index, cluster) in self.exporters_of(service).enumerate() {
                let path = root
                    .join(cluster_name(cluster))
                    .join(format!("service-{service}.yaml"));
                fs::write(path, self.manifest(service, index)?)?;
            }
        }
        Ok(())
    }

    fn manifest(self, service: usize, exporter: usize) -> Result<String> {
        let key = key(service)?;
        let (namespace, name) = (&key.namespace, &key.name);
        let created = export(service * 3 + exporter)?.created;
        let mut text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             spec:\n  ports: [{{name: http, port: 80, targetPort: 8080}}]\n---\n\
             apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\n\
             metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: '{created}'}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
             metadata:\n  name: {name}-0\n  namespace: {namespace}\n  labels: {{kubernetes.io/service-name: {name}}}\n\
             ports: [{{name: http, port: 8080, protocol: TCP}}]\nendpoints:\n"
        );
        for endpoint in 0..self.endpoints {
            let address = self.address(service, exporter, endpoint);
            writeln!(
                text,
                "- {{addresses: [{address}], conditions: {{ready: true}}, zone: zone-{}}}",
                endpoint % 3
            )?;
        }
        Ok(text)
    }
}

fn cluster_name(cluster: usize) -> String {
    format!("c{cluster:03}")
}

fn origin(cluster: usize) -> Result<Origin> {
    let cluster = ClusterName::try_new(&cluster_name(cluster))?;
    Ok(Origin {
        region: Region::try_new("local")?,
        cluster,
    })
}

/// The namespace of a service.
pub(crate) fn namespaces() -> Result<Vec<Namespace>> {
    (0..NAMESPACES)
        .map(|i| Ok(Namespace::try_new(&format!("ns-{i}"))?))
        .collect()
}

fn key(service: usize) -> Result<ServiceKey> {
    let namespace = Namespace::try_new(&format!("ns-{}", service % NAMESPACES))?;
    Ok(ServiceKey::new(
        namespace,
        ObjectName::new(&format!("service-{service}")),
    ))
}

fn session() -> Result<Session> {
    Ok(Session {
        holder: "bench".into(),
        epoch: 1,
        started: CREATED.parse()?,
        software: "0".into(),
        schema: 1,
        families: vec![IpFamily::V4],
        service_cidrs: Vec::new(),
        blind_since: None,
    })
}

fn export(number: usize) -> Result<ExportRecord> {
    let created: jiff::Timestamp = CREATED.parse()?;
    let seconds = i64::try_from(number)?;
    Ok(ExportRecord {
        created: created.checked_add(jiff::SignedDuration::from_secs(seconds))?,
        uid: format!("uid-{number}").into(),
        kind: ImportType::ClusterSetIp,
        ports: vec![Port {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            app_protocol: None,
        }],
        families: vec![IpFamily::V4],
        affinity: Affinity::None,
        internal_traffic_policy: InternalTrafficPolicy::Cluster,
        traffic_distribution: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    })
}
