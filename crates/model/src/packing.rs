//! Packing: how endpoints are split over EndpointSlices (BEHAVIOUR §3).
//!
//! Pure and stable: an endpoint stays in its slice, a change touches as few slices as possible,
//! and slices that became sparse are gathered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::object::{SliceEndpoint, SlicePort};

#[cfg(test)]
mod tests;

/// The most endpoints in a slice: the limit that the Kubernetes control plane uses by default, so
/// that a change is a small write for every kube-proxy.
pub const SLICE_LEN_MAX: usize = 100;

/// Two slices of the same ports that hold no more than this together become one. Half a slice, so
/// that a service that grows and shrinks by a few endpoints does not move any.
pub const SPARSE_LEN_MAX: usize = SLICE_LEN_MAX / 2;

/// The ports of all endpoints of a slice.
pub type Ports = Arc<[SlicePort]>;

/// What a slice holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its ports.
    pub ports: Ports,
    /// Its endpoints.
    pub endpoints: Arc<[SliceEndpoint]>,
}

/// A slice as it is wanted. `name` tells a present one; its meaning is the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed<N> {
    /// Which present slice this is; `None`: a new one.
    pub name: Option<N>,
    /// What it holds.
    pub content: Content,
}

/// A present slice: what tells it, its ports and its endpoints.
pub type Present<'a, N> = (N, Ports, &'a [SliceEndpoint]);

/// What makes an endpoint the same one over time.
type Identity<'a> = (IpAddr, Option<&'a str>);

fn identity(endpoint: &SliceEndpoint) -> Identity<'_> {
    (endpoint.address, endpoint.hostname.as_deref())
}

/// A slice while it is being packed.
struct Bin<N> {
    name: Option<N>,
    endpoints: Vec<SliceEndpoint>,
    /// Whether it will be written anyway.
    changed: bool,
}

impl<N> Bin<N> {
    fn room(&self) -> usize {
        SLICE_LEN_MAX.saturating_sub(self.endpoints.len())
    }
}

/// Splits `wanted` over slices, those in `present` first. A present slice that is not in the
/// result is not needed any more. No two wanted endpoints of one port set may share address and
/// host name.
pub fn pack<N: Clone>(
    present: &[Present<'_, N>],
    wanted: Vec<(Ports, SliceEndpoint)>,
) -> Vec<Packed<N>> {
    let mut groups: BTreeMap<Ports, Vec<SliceEndpoint>> = BTreeMap::new();
    for (ports, endpoint) in wanted {
        groups.entry(ports).or_default().push(endpoint);
    }
    let homes = assign(present, &groups);
    let mut packed = Vec::new();
    for ((ports, endpoints), homes) in groups.into_iter().zip(homes) {
        let bins: Vec<_> = homes
            .iter()
            .map(|&(index, same)| (&present[index], same))
            .collect();
        for bin in pack_group(&bins, endpoints) {
            let content = Content {
                ports: Arc::clone(&ports),
                endpoints: bin.endpoints.into(),
            };
            packed.push(Packed {
                name: bin.name,
                content,
            });
        }
    }
    packed
}

/// For each group the present slices that are its own, and whether their ports are already right.
/// A group of a new port set takes over a slice whose ports nobody wants any more: one write
/// instead of two.
fn assign<N>(
    present: &[Present<'_, N>],
    groups: &BTreeMap<Ports, Vec<SliceEndpoint>>,
) -> Vec<Vec<(usize, bool)>> {
    let mut homes: Vec<Vec<(usize, bool)>> = vec![Vec::new(); groups.len()];
    let mut orphans: Vec<usize> = Vec::new();
    let order: HashMap<&Ports, usize> = groups.keys().zip(0..).collect();
    for (index, (_, ports, _)) in present.iter().enumerate() {
        match order.get(ports) {
            Some(&group) => homes[group].push((index, true)),
            None => orphans.push(index),
        }
    }
    for (home, endpoints) in homes
        .iter_mut()
        .zip(groups.values())
        .filter(|(h, _)| h.is_empty())
    {
        let wanted: HashSet<Identity<'_>> = endpoints.iter().map(identity).collect();
        let shared = |index: usize| {
            present[index]
                .2
                .iter()
                .filter(|e| wanted.contains(&identity(e)))
                .count()
        };
        // The first of those that share most, so that the choice is the same every time.
        let best = orphans
            .iter()
            .enumerate()
            .rev()
            .max_by_key(|&(_, &index)| shared(index));
        if let Some((at, &index)) = best {
            orphans.remove(at);
            home.push((index, false));
        }
    }
    homes
}

/// Packs the endpoints of one port set.
fn pack_group<N: Clone>(
    homes: &[(&Present<'_, N>, bool)],
    endpoints: Vec<SliceEndpoint>,
) -> Vec<Bin<N>> {
    let mut waiting: Vec<Option<SliceEndpoint>> = endpoints.into_iter().map(Some).collect();
    let mut bins = keep(homes, &mut waiting);
    let mut new: Vec<SliceEndpoint> = waiting.into_iter().flatten().collect();
    new.sort_by(|a, b| identity(a).cmp(&identity(b)));
    place(&mut bins, new);
    bins.retain(|bin| !bin.endpoints.is_empty());
    gather(&mut bins);
    bins
}

/// Puts every endpoint that has a slice back into it, in the order it had there.
fn keep<N: Clone>(
    homes: &[(&Present<'_, N>, bool)],
    waiting: &mut [Option<SliceEndpoint>],
) -> Vec<Bin<N>> {
    let index: HashMap<(IpAddr, Option<Arc<str>>), usize> = waiting
        .iter()
        .enumerate()
        .filter_map(|(i, e)| e.as_ref().map(|e| ((e.address, e.hostname.clone()), i)))
        .collect();
    let mut bins = Vec::with_capacity(homes.len());
    for &((name, _, present), same_ports) in homes {
        let mut kept = Vec::with_capacity(present.len());
        for old in *present {
            if kept.len() == SLICE_LEN_MAX {
                break;
            }
            let at = index.get(&(old.address, old.hostname.clone()));
            kept.extend(at.and_then(|&at| waiting[at].take()));
        }
        let changed = !same_ports || kept.as_slice() != *present;
        bins.push(Bin {
            name: Some(name.clone()),
            endpoints: kept,
            changed,
        });
    }
    bins
}

/// Finds places for new endpoints: slices that are written anyway, then one that has room for all
/// that is left, then new slices.
fn place<N>(bins: &mut Vec<Bin<N>>, mut new: Vec<SliceEndpoint>) {
    let mut changed: Vec<&mut Bin<N>> = bins.iter_mut().filter(|bin| bin.changed).collect();
    changed.sort_by_key(|bin| bin.room());
    for bin in changed {
        let count = bin.room().min(new.len());
        bin.endpoints.extend(new.drain(..count));
    }
    while !new.is_empty() {
        let fits = bins.iter_mut().filter(|bin| bin.room() >= new.len());
        if let Some(bin) = fits.min_by_key(|bin| bin.room()) {
            bin.changed = true;
            bin.endpoints.append(&mut new);
        } else {
            let count = new.len().min(SLICE_LEN_MAX);
            let endpoints = new.drain(..count).collect();
            bins.push(Bin {
                name: None,
                endpoints,
                changed: true,
            });
        }
    }
}

/// Joins the two emptiest slices for as long as they are sparse.
fn gather<N>(bins: &mut Vec<Bin<N>>) {
    while let Some((from, into)) = two_emptiest(bins) {
        if bins[from].endpoints.len() + bins[into].endpoints.len() > SPARSE_LEN_MAX {
            break;
        }
        let moved = std::mem::take(&mut bins[from].endpoints);
        bins[into].endpoints.extend(moved);
        bins.remove(from);
    }
}

/// The slice with the fewest endpoints and the one to move them into. Of equal ones, a new slice
/// is given up before a present one, and a later one before an earlier one.
fn two_emptiest<N>(bins: &[Bin<N>]) -> Option<(usize, usize)> {
    let rank = |&index: &usize| {
        (
            bins[index].endpoints.len(),
            bins[index].name.is_some(),
            std::cmp::Reverse(index),
        )
    };
    let from = (0..bins.len()).min_by_key(rank)?;
    let into = (0..bins.len())
        .filter(|&index| index != from)
        .min_by_key(|&index| {
            (
                bins[index].endpoints.len(),
                bins[index].name.is_none(),
                index,
            )
        })?;
    Some((from, into))
}
