//! The contents of an import's slices as they are where no slice is there yet. Every cluster that
//! only imports a service wants the same, so the clusters of a process compute and hold them once.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::mirror::Mirrored;
use crate::names::ClusterName;
use crate::object::SliceEndpoint;
use crate::packing::{Content, Packed, Ports, Present, pack};
use crate::service::IpFamily;

#[cfg(test)]
mod tests;

/// The slices of an import, by source cluster and family.
pub(crate) type Contents = BTreeMap<(ClusterName, IpFamily), Vec<Content>>;

/// Packs endpoints into new slices.
pub(crate) fn contents(mirrored: Mirrored) -> Contents {
    let all = mirrored.into_iter();
    all.map(|(source, endpoints)| {
        let packed = pack::<()>(&[], endpoints);
        let contents = packed.into_iter().map(|packed| packed.content);
        (source, contents.collect())
    })
    .collect()
}

/// Splits what is wanted over present slices, as [`pack`] does.
pub(crate) fn fit(present: &[Present<'_, usize>], wanted: Vec<Content>) -> Vec<Packed<usize>> {
    let is_as_wanted = present.len() == wanted.len()
        && present.iter().zip(&wanted).all(|((_, ports, there), new)| {
            *ports == new.ports
                && (std::ptr::eq(*there, &raw const *new.endpoints) || **there == *new.endpoints)
        });
    if is_as_wanted || present.is_empty() {
        let names = present.iter().map(|(name, _, _)| Some(*name));
        let names = names.chain(std::iter::repeat(None));
        return names
            .zip(wanted)
            .map(|(name, content)| Packed { name, content })
            .collect();
    }
    let endpoints = wanted.iter().flat_map(|Content { ports, endpoints }| {
        let endpoints = endpoints.iter().cloned();
        endpoints.map(move |endpoint| (Arc::clone(ports), endpoint))
    });
    let mut packed = pack(present, endpoints.collect());
    // Most of them are the same all the same.
    for Packed { content, .. } in &mut packed {
        if let Some(same) = wanted.iter().find(|wanted| *wanted == content) {
            content.clone_from(same);
        }
    }
    packed
}

/// The contents that several clusters want, by the families that these use. Nothing is held
/// longer than an object holds it.
#[derive(Debug, Default)]
pub(crate) struct SharedContents(Mutex<Vec<(Vec<IpFamily>, Held)>>);

type Held = BTreeMap<(ClusterName, IpFamily), Vec<(Ports, Weak<[SliceEndpoint]>)>>;

impl SharedContents {
    /// The contents for clusters of these families; `make` computes them where nobody holds them.
    pub(crate) fn get(&self, families: &[IpFamily], make: impl FnOnce() -> Mirrored) -> Contents {
        let mut all = self.0.lock();
        let known = all.iter().position(|(of, _)| of == families);
        if let Some(contents) = known.and_then(|at| upgrade(&all[at].1)) {
            return contents;
        }
        let contents = contents(make());
        let held = contents
            .iter()
            .map(|(source, contents)| {
                let weak = |c: &Content| (Arc::clone(&c.ports), Arc::downgrade(&c.endpoints));
                (source.clone(), contents.iter().map(weak).collect())
            })
            .collect();
        match known {
            Some(at) => all[at].1 = held,
            None => all.push((families.to_vec(), held)),
        }
        contents
    }
}

/// The contents, if all of them are still there.
fn upgrade(held: &Held) -> Option<Contents> {
    let sources = held.iter().map(|(source, contents)| {
        let contents = contents.iter().map(|(ports, endpoints)| {
            Some(Content {
                ports: Arc::clone(ports),
                endpoints: endpoints.upgrade()?,
            })
        });
        Some((source.clone(), contents.collect::<Option<Vec<_>>>()?))
    });
    sources.collect()
}
