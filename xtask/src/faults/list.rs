//! The mistakes. Each is one that somebody could make, or has made; the text must be in its file
//! once. Add one for every bug that a test was written for.

use super::Fault;

const fn fault(
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
) -> Fault {
    Fault {
        name,
        file,
        from,
        to,
    }
}

const MERGE: &str = "crates/model/src/merge.rs";
const ENDPOINT: &str = "crates/model/src/endpoint.rs";
const EXPORT: &str = "crates/model/src/export.rs";
const CHECK: &str = "crates/model/src/check.rs";
const CONTENTS: &str = "crates/model/src/contents.rs";
const IMPORT: &str = "crates/model/src/import.rs";
const MIRROR: &str = "crates/model/src/mirror.rs";
const PACKING: &str = "crates/model/src/packing.rs";
const FLEET: &str = "crates/model/src/fleet.rs";
const WORLD: &str = "crates/model/src/world.rs";
const WRITES: &str = "crates/model/src/writes.rs";
const PRESENCE: &str = "crates/model/src/presence.rs";
const STATUS: &str = "crates/model/src/status.rs";
const GUARD: &str = "crates/model/src/guard.rs";
const ENGINE: &str = "crates/model/src/engine.rs";
const IMPORTS: &str = "crates/model/src/engine/imports.rs";
const SLICES: &str = "crates/model/src/engine/slices.rs";
const PUBLISH: &str = "crates/model/src/engine/publish.rs";
const PARTITION: &str = "crates/model/src/fleet/partition.rs";
const REGRESS: &str = "crates/model/src/fleet/regress.rs";

/// All of them.
pub(super) const FAULTS: [Fault; 54] = [
    fault(
        "wrong tie-break: of equal times the greater cluster name is older",
        MERGE,
        "by_age.then_with(|| a.cluster.cmp(b.cluster))",
        "by_age.then_with(|| b.cluster.cmp(a.cluster))",
    ),
    fault(
        "joining counts whatever the settings say",
        MERGE,
        "self.joined.filter(|joined| joined.counts)",
        "self.joined",
    ),
    fault(
        "published what the operator does not allow",
        EXPORT,
        "self.member.is_some_and(|member| !member.may_use(address))",
        "self.member.is_some_and(|member| member.cidrs.is_empty() && !member.may_use(address))",
    ),
    fault(
        "dropped port still served",
        MERGE,
        "return (None, Some(PortDifference::NameTaken(port.clone(), index)));",
        "return (Some(index), Some(PortDifference::NameTaken(port.clone(), index)));",
    ),
    fault(
        "unnamed port accepted beside others",
        MERGE,
        "if needs_name || self.by_name",
        "if self.by_name",
    ),
    fault(
        "families not narrowed",
        MERGE,
        "            families = shared;\n",
        "",
    ),
    fault(
        "timeouts compared although the affinity differs",
        MERGE,
        "|a, b| a.affinity == b.affinity || a.affinity.as_str() != b.affinity.as_str(),",
        "|a, b| a.affinity == b.affinity,",
    ),
    fault(
        "conditions joined wrongly: terminating if any is",
        ENDPOINT,
        "self.terminating && other.terminating",
        "self.terminating || other.terminating",
    ),
    fault(
        "entries of one protocol joined",
        ENDPOINT,
        "pair[0].0 != pair[1].0",
        "pair[0].0 <= pair[1].0",
    ),
    fault(
        "a slice's ports taken whatever their protocol",
        EXPORT,
        ".any(|s| s.name == p.name && s.protocol == p.protocol)",
        ".any(|s| s.name == p.name)",
    ),
    fault(
        "managed-by exported",
        CHECK,
        "if key == \"app.kubernetes.io/managed-by\" {",
        "if key == \"app.kubernetes.io/managed\" {",
    ),
    fault(
        "loopback addresses exported",
        CHECK,
        "if address.is_loopback() {",
        "if false {",
    ),
    fault(
        "affinity not applied to the derived Service",
        IMPORT,
        "affinity: merged.affinity,\n        internal_traffic_policy: merged.internal_traffic_policy,\n        traffic_distribution: merged\n            .traffic_distribution",
        "affinity: crate::service::Affinity::None,\n        internal_traffic_policy: merged.internal_traffic_policy,\n        traffic_distribution: merged\n            .traffic_distribution",
    ),
    fault(
        "annotation kept that no export has any more",
        IMPORT,
        ".any(|prefix| key.starts_with(prefix))",
        ".any(|prefix| !key.is_empty() || key.starts_with(prefix))",
    ),
    fault(
        "annotations of other tools dropped",
        IMPORT,
        ".any(|prefix| key.starts_with(prefix))",
        ".any(|prefix| key.is_empty() && key.starts_with(prefix))",
    ),
    fault(
        "addresses forgotten",
        IMPORT,
        "if addresses.is_empty() {",
        "if true {",
    ),
    fault(
        "labels that are not wanted any more kept",
        IMPORT,
        "present.len() == given().count() + own.len()\n            && given()",
        "given()",
    ),
    fault(
        "slices told apart by their endpoints alone",
        CONTENTS,
        "*ports == new.ports\n                && (std",
        "(std",
    ),
    fault(
        "addresses in another order than families",
        IMPORT,
        "    families\n        .iter()\n        .filter_map(|family| {",
        "    families\n        .iter()\n        .rev()\n        .filter_map(|family| {",
    ),
    fault(
        "a stranger's Service taken for ours",
        IMPORT,
        "    marked\n        || service",
        "    marked\n        || service.meta.owners.is_empty()\n        || service",
    ),
    fault(
        "unknown trafficDistribution written",
        IMPORT,
        ".filter(|value| known_distributions.contains(&value.as_ref()))",
        ".filter(|value| !value.is_empty() || known_distributions.contains(&value.as_ref()))",
    ),
    fault(
        "owner not pointed at the present UID",
        IMPORT,
        "    if !meta.owners.contains(&owner) {",
        "    if meta.owners.is_empty() {",
    ),
    fault(
        "hint missing on one endpoint",
        MIRROR,
        ".filter(|s| s.endpoint.conditions.ready)",
        ".filter(|s| s.endpoint.conditions.ready)\n        .skip(1)",
    ),
    fault(
        "one address in two clusters with two minds",
        MIRROR,
        "    join_conditions(&mut all);\n",
        "",
    ),
    fault(
        "endpoints used of a cluster that shares no family",
        MIRROR,
        "part.filter(|part| part.endpoints_used)\n",
        "part.filter(|part| part.endpoints_used || !part.serves.is_empty())\n",
    ),
    fault(
        "the last endpoints withdrawn with the hold",
        MIRROR,
        "Usage::Last => Some(&spoken_for),",
        "Usage::Last => continue,",
    ),
    fault(
        "endpoints of a missing cluster used for ever",
        PRESENCE,
        "if !hold.is_over && hold.counted(now) >= self.hold {",
        "if hold.is_over && hold.counted(now) >= self.hold {",
    ),
    fault(
        "slices too long",
        PACKING,
        "pub const SLICE_LEN_MAX: usize = 100;",
        "pub const SLICE_LEN_MAX: usize = 101;",
    ),
    fault(
        "sparse slices left alone",
        PACKING,
        "> SPARSE_LEN_MAX {",
        "> 1 {",
    ),
    fault(
        "endpoints move when a slice is written",
        PACKING,
        "            if kept.len() == SLICE_LEN_MAX {",
        "            if kept.len() == SLICE_LEN_MAX / 2 {",
    ),
    fault(
        "absence taken for withdrawal",
        PARTITION,
        "|| (is_said && synced == epoch)",
        "|| is_said",
    ),
    fault(
        "the last region counts",
        FLEET,
        "r.iter().next().filter(|(_, p)| !p.has_left())",
        "r.iter().next_back().filter(|(_, p)| !p.has_left())",
    ),
    fault(
        "an older event replaces a newer one",
        WORLD,
        "(Ok(new), Ok(old)) => new > old,",
        "(Ok(new), Ok(old)) => new != old,",
    ),
    fault(
        "a listing forgets nothing",
        WORLD,
        ".filter(|key| !seen.contains(key))",
        ".filter(|key| !seen.contains(key) && key.name.as_str().is_empty())",
    ),
    fault(
        "slices of other meshes exported again",
        WORLD,
        "    if foreign_manager\n",
        "    if foreign_manager && slice.endpoints.is_empty()\n",
    ),
    fault(
        "another manager fought for ever",
        WRITES,
        "const CONTEST_COUNT: usize = 3;",
        "const CONTEST_COUNT: usize = 30;",
    ),
    fault(
        "failed writes repeated without back-off",
        WRITES,
        "let base = doubled.min(RETRY_MAX);",
        "let base = doubled.min(RETRY_MIN);",
    ),
    fault(
        "pruned fields written again and again",
        WRITES,
        "self.bent.insert(target.clone(), pair);",
        "drop(pair);",
    ),
    fault(
        "lastTransitionTime moves with every message",
        STATUS,
        ".filter(|c| c.status.as_ref() == wanted.status_text())",
        ".filter(|c| c.message == wanted.message)",
    ),
    fault(
        "a stale answer removes a new object",
        ENGINE,
        "| Effect::Delete(old) => old.resource_version(),",
        "| Effect::Delete(old) => &old.resource_version()[..0],",
    ),
    fault(
        "a taken address asked for again and again",
        ENGINE,
        "RefusalKind::Invalid => asks_more,",
        "RefusalKind::Invalid => false,",
    ),
    fault(
        "a namespace that goes away becomes global",
        ENGINE,
        "            // Going away makes",
        "            _ if object.terminating => return Participation::Terminating,\n            // Going away makes",
    ),
    fault(
        "slices kept while a stranger has the derived name",
        IMPORTS,
        "            && !matches!(derived, Derived::Foreign)\n",
        "",
    ),
    fault(
        "address lost when derived Services are renamed",
        IMPORTS,
        "if self.is_held_by_stray(service, &object.cluster_ips) {",
        "if false {",
    ),
    fault(
        "imports changed on missing records",
        IMPORTS,
        "        if !is_managed(import) {\n            return false;",
        "        if is_managed(import) {\n            return false;",
    ),
    fault(
        "endpoints of peers used at addresses of own Pods",
        GUARD,
        "} else if self.pods.0.contains_key(&address) {",
        "} else if self.pods.0.get(&address) == Some(&0) {",
    ),
    fault(
        "a Pod that comes later changes nothing",
        ENGINE,
        "        dirty.services.extend(self.claimed(&dirty.addresses));\n",
        "",
    ),
    fault(
        "slice kept after unexport",
        SLICES,
        "wanted.keys().chain(slices.keys()).cloned().collect()",
        "wanted.keys().cloned().collect()",
    ),
    fault(
        "endpoint published after its export",
        PUBLISH,
        "puts.sort_by_key(|write| matches!(write.key, RecordKey::Export(_)));",
        "puts.sort_by_key(|write| !matches!(write.key, RecordKey::Export(_)));",
    ),
    fault(
        "synced before everything is published",
        PUBLISH,
        "            || !self.published.unpublished.is_empty()\n",
        "",
    ),
    fault(
        "revisions of before a restore are compared with those after it",
        PUBLISH,
        "record.revision = 0;",
        "",
    ),
    fault(
        "what was written before a restore counts as written",
        PUBLISH,
        "self.of_another.is_some_and(|last| id <= last)",
        "false",
    ),
    fault(
        "a backup's session is believed",
        REGRESS,
        "session.map(|held| held.value.epoch)",
        "session.map(|_| 0)",
    ),
    fault(
        "a session that is put back as it was is overlooked",
        PARTITION,
        "!held.present || held.value != value",
        "held.value != value",
    ),
];
