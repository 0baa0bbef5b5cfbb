//! The IP families that a directory cluster's network has, where nobody says.

use std::collections::BTreeMap;

use tombolo_model::names::ClusterName;
use tombolo_model::service::IpFamily;

/// The families of each cluster, from those that each cluster's own Services name: those; where
/// they name none, those that any Service of the run names; where none does, IPv4. IPv4 comes
/// first, as in most dual-stack clusters.
pub fn default_families(
    named: &BTreeMap<ClusterName, Vec<IpFamily>>,
) -> BTreeMap<ClusterName, Vec<IpFamily>> {
    let mut anywhere = ordered(named.values().flatten());
    if anywhere.is_empty() {
        anywhere.push(IpFamily::V4);
    }
    let of_cluster = |own: &Vec<IpFamily>| match ordered(own) {
        none if none.is_empty() => anywhere.clone(),
        own => own,
    };
    named
        .iter()
        .map(|(cluster, own)| (cluster.clone(), of_cluster(own)))
        .collect()
}

fn ordered<'a>(families: impl IntoIterator<Item = &'a IpFamily>) -> Vec<IpFamily> {
    let mut families: Vec<IpFamily> = families.into_iter().copied().collect();
    families.sort_unstable();
    families.dedup();
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(named: &[&[IpFamily]]) -> Vec<Vec<IpFamily>> {
        let cluster = |i| ClusterName::try_new(&format!("c{i}")).unwrap();
        let named = named.iter().enumerate();
        let named = named.map(|(i, own)| (cluster(i), own.to_vec())).collect();
        default_families(&named).into_values().collect()
    }

    #[test]
    fn own_services_decide_then_those_of_the_run_then_ipv4() {
        use IpFamily::{V4, V6};
        assert_eq!(
            defaults(&[&[V6], &[V6, V4, V6], &[]]),
            [vec![V6], vec![V4, V6], vec![V4, V6]]
        );
        assert_eq!(defaults(&[&[V6], &[]]), [[V6], [V6]]);
        assert_eq!(defaults(&[&[], &[]]), [[V4], [V4]]);
    }
}
