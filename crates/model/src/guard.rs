//! Addresses of other clusters that mean something else in this one (BEHAVIOUR §7): traffic for
//! them would never leave it. Unlike what every reader refuses, this is each cluster's own view.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::Config;
use crate::fleet::Rule;
use crate::object::SliceEndpoint;

/// The addresses of this cluster's Pods, as its own EndpointSlices say: how often each is there.
#[derive(Debug, Default)]
pub(crate) struct Pods(HashMap<IpAddr, u32>);

impl Pods {
    /// Takes the endpoints of a slice in, in place of those that it had; says which addresses
    /// have become a Pod's, or are none's any more.
    pub(crate) fn replace(&mut self, old: &[SliceEndpoint], new: &[SliceEndpoint]) -> Vec<IpAddr> {
        let mut changed = Vec::new();
        // What stays is never gone in between.
        for address in of_pods(new) {
            let count = self.0.entry(address).or_insert(0);
            *count += 1;
            if *count == 1 {
                changed.push(address);
            }
        }
        for address in of_pods(old) {
            if let Some(count) = self.0.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(&address);
                    changed.push(address);
                }
            }
        }
        changed
    }
}

fn of_pods(endpoints: &[SliceEndpoint]) -> impl Iterator<Item = IpAddr> {
    let is_pod = |endpoint: &&SliceEndpoint| {
        let target = endpoint.target.as_deref();
        target.is_some_and(|target| target.kind.as_ref() == "Pod")
    };
    endpoints.iter().filter(is_pod).map(|e| e.address)
}

/// What an address is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard<'a> {
    pub(crate) config: &'a Config,
    /// The networks of this cluster's Services.
    pub(crate) service_cidrs: &'a [IpNet],
    pub(crate) pods: &'a Pods,
}

impl Guard<'_> {
    /// The rule by which a peer's endpoint at this address is refused, if any.
    pub(crate) fn refuses(self, address: IpAddr) -> Option<Rule> {
        let is_in = |cidrs: &[IpNet]| cidrs.iter().any(|cidr| cidr.contains(&address));
        let Config {
            pod_cidrs,
            shared_cidrs,
            ..
        } = self.config;
        if is_in(self.service_cidrs) {
            Some(Rule::ServiceCidr)
        } else if self.pods.0.contains_key(&address) {
            Some(Rule::LocalPod)
        } else if is_in(pod_cidrs) && !is_in(shared_cidrs) {
            Some(Rule::PodCidr)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::endpoint::Conditions;
    use crate::names::ClusterName;
    use crate::object::TargetRef;

    fn endpoint(address: &str, kind: &str) -> SliceEndpoint {
        SliceEndpoint {
            address: address.parse().unwrap(),
            conditions: Conditions::READY,
            hostname: None,
            zone: None,
            node: None,
            target: Some(Arc::new(TargetRef {
                kind: kind.into(),
                namespace: "shop".into(),
                name: "web".into(),
                uid: "1".into(),
            })),
            hints: None,
        }
    }

    #[test]
    fn an_address_is_a_pods_while_any_slice_says_so() {
        let mut pods = Pods::default();
        let one = [endpoint("10.0.0.1", "Pod")];
        let two = [endpoint("10.0.0.1", "Pod"), endpoint("10.0.0.2", "Node")];
        let address = one[0].address;
        assert_eq!(pods.replace(&[], &one), [address]);
        assert!(pods.replace(&[], &two).is_empty());
        assert!(pods.replace(&one, &two).is_empty(), "it stays");
        assert!(pods.replace(&two, &[]).is_empty());
        assert_eq!(pods.replace(&two, &[]), [address]);
        assert!(pods.0.is_empty());
    }

    #[test]
    fn pod_networks_are_this_clusters_own_unless_shared() {
        let mut config = Config::new(ClusterName::try_new("east").unwrap());
        config.pod_cidrs = vec!["10.0.0.0/8".parse().unwrap()];
        config.shared_cidrs = vec!["10.1.0.0/16".parse().unwrap()];
        let mut pods = Pods::default();
        pods.replace(&[], &[endpoint("10.1.0.9", "Pod")]);
        let service_cidrs = ["10.1.2.0/24".parse().unwrap()];
        let guard = Guard {
            config: &config,
            service_cidrs: &service_cidrs,
            pods: &pods,
        };
        for (address, rule) in [
            ("10.2.0.1", Some(Rule::PodCidr)),
            ("10.1.0.1", None),
            ("10.1.0.9", Some(Rule::LocalPod)),
            ("10.1.2.1", Some(Rule::ServiceCidr)),
            ("192.0.2.1", None),
            ("fd00::1", None),
        ] {
            assert_eq!(guard.refuses(address.parse().unwrap()), rule, "{address}");
        }
    }
}
