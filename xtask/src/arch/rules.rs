//! Which crate may depend on which.
//!
//! `mcs-api` ← `model` ← {`registry`, `cluster`, `dns`} ← `runtime` ← the binary; the adapters in
//! the middle never see each other; `model` can do no I/O.

use super::graph::{Edge, Graph, Kind};

/// What one crate of the workspace may depend on, other crates of the workspace only.
struct Rule {
    name: &'static str,
    /// For building it.
    normal: &'static [&'static str],
    /// Also for its tests.
    dev: &'static [&'static str],
}

/// Crates for development only: nothing that is shipped is built with them.
const DEVELOPMENT: &[&str] = &["tombolo-testkit", "tombolo-testbed"];

/// Everything below the runtime.
const LIBRARIES: &[&str] = &[
    "mcs-api",
    "tombolo-model",
    "tombolo-registry",
    "tombolo-cluster",
    "tombolo-dns",
];

const RULES: &[Rule] = &[
    Rule {
        name: "mcs-api",
        normal: &[],
        dev: &[],
    },
    Rule {
        name: "tombolo-model",
        normal: &["mcs-api"],
        dev: DEVELOPMENT,
    },
    Rule {
        name: "tombolo-registry",
        normal: &["mcs-api", "tombolo-model"],
        dev: DEVELOPMENT,
    },
    Rule {
        name: "tombolo-cluster",
        normal: &["mcs-api", "tombolo-model"],
        dev: DEVELOPMENT,
    },
    Rule {
        name: "tombolo-dns",
        normal: &["mcs-api", "tombolo-model"],
        dev: DEVELOPMENT,
    },
    Rule {
        name: "tombolo-runtime",
        normal: LIBRARIES,
        dev: DEVELOPMENT,
    },
    // The tests of the binary know it from outside: its output, and the objects it writes.
    Rule {
        name: "tombolo",
        normal: &["tombolo-runtime"],
        dev: &["mcs-api", "tombolo-testkit", "tombolo-testbed"],
    },
    Rule {
        name: "tombolo-testkit",
        normal: LIBRARIES,
        dev: &[],
    },
    Rule {
        name: "tombolo-testbed",
        normal: LIBRARIES,
        dev: &["tombolo-testkit"],
    },
];

/// Crates that no rule limits.
const FREE: &[&str] = &["xtask"];

/// What `tombolo-model` must not reach: input and output, a clock's runtime, randomness.
const IMPURE: &[&str] = &[
    "async-std",
    "etcd-client",
    "fastrand",
    "getrandom",
    "hyper",
    "kube-client",
    "kube-runtime",
    "mio",
    "notify",
    "rand",
    "reqwest",
    "rustix",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "tonic",
];

/// Every edge of the graph that breaks a rule, in words.
pub(crate) fn check(graph: &Graph) -> Vec<String> {
    let unruled = graph
        .members()
        .filter(|name| !FREE.contains(name) && rule(name).is_none());
    let mut problems: Vec<_> = unruled
        .map(|name| format!("{name}: give it a place in xtask/src/arch/rules.rs"))
        .collect();
    problems.extend(graph.member_edges().filter_map(check_edge));
    for way in graph.ways_to("tombolo-model", |name| IMPURE.contains(&name)) {
        problems.push(format!(
            "{}: the model does no I/O, clock or random",
            way.join(" → ")
        ));
    }
    problems
}

fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

fn check_edge(edge: Edge<'_>) -> Option<String> {
    let Rule {
        name: _,
        normal,
        dev,
    } = rule(edge.from)?;
    let (use_, is_allowed) = match edge.kind {
        Kind::Normal => ("", normal.contains(&edge.to)),
        Kind::Build => (" in its build script", normal.contains(&edge.to)),
        Kind::Dev => (
            " in its tests",
            normal.contains(&edge.to) || dev.contains(&edge.to),
        ),
    };
    if is_allowed {
        return None;
    }
    let Edge { from, to, kind: _ } = edge;
    let allowed = if normal.is_empty() {
        "none".to_owned()
    } else {
        normal.join(", ")
    };
    Some(format!(
        "{from} → {to}{use_}: against the direction of dependencies; {from} may use {allowed}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: &[&str] = &[
        "mcs-api",
        "tombolo",
        "tombolo-cluster",
        "tombolo-dns",
        "tombolo-model",
        "tombolo-registry",
        "tombolo-runtime",
        "tombolo-testkit",
        "xtask",
    ];

    /// The problems of a graph of these edges, all crates being there.
    fn problems(edges: &[(&str, &str, Kind)]) -> Vec<String> {
        check(&Graph::of(MEMBERS, edges))
    }

    fn assert_one_problem(edges: &[(&str, &str, Kind)], start: &str) {
        let problems = problems(edges);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(start), "{problems:?}");
    }

    #[test]
    fn the_design_is_in_order() {
        let edges = [
            ("tombolo", "tombolo-runtime", Kind::Normal),
            ("tombolo", "tombolo-testkit", Kind::Dev),
            ("tombolo-runtime", "tombolo-registry", Kind::Normal),
            ("tombolo-runtime", "tombolo-cluster", Kind::Normal),
            ("tombolo-runtime", "tombolo-dns", Kind::Normal),
            ("tombolo-registry", "tombolo-model", Kind::Normal),
            ("tombolo-registry", "tokio", Kind::Normal),
            ("tombolo-model", "mcs-api", Kind::Normal),
            ("tombolo-model", "tombolo-testkit", Kind::Dev),
            ("tombolo-model", "proptest", Kind::Dev),
            ("proptest", "rand", Kind::Normal),
            ("tombolo-testkit", "tombolo-registry", Kind::Normal),
            ("xtask", "tombolo-runtime", Kind::Normal),
        ];
        assert_eq!(problems(&edges), Vec::<String>::new());
    }

    #[test]
    fn adapters_do_not_see_each_other() {
        for kind in [Kind::Normal, Kind::Build, Kind::Dev] {
            let edge = ("tombolo-dns", "tombolo-cluster", kind);
            assert_one_problem(&[edge], "tombolo-dns → tombolo-cluster");
        }
    }

    #[test]
    fn nothing_looks_upwards() {
        for (from, to) in [
            ("mcs-api", "tombolo-model"),
            ("tombolo-model", "tombolo-registry"),
            ("tombolo-cluster", "tombolo-runtime"),
            ("tombolo-runtime", "tombolo"),
            ("tombolo-testkit", "tombolo-runtime"),
        ] {
            assert_one_problem(
                &[(from, to, Kind::Normal)],
                &format!("{from} → {to}: against"),
            );
        }
    }

    #[test]
    fn development_crates_are_not_shipped() {
        let edge = ("tombolo-runtime", "tombolo-testkit", Kind::Normal);
        assert_one_problem(&[edge], "tombolo-runtime → tombolo-testkit: against");
    }

    #[test]
    fn the_model_reaches_no_io() {
        let edges = [
            ("tombolo-model", "mcs-api", Kind::Normal),
            ("mcs-api", "kube", Kind::Normal),
            ("kube", "kube-client", Kind::Normal),
        ];
        assert_one_problem(
            &edges,
            "tombolo-model → mcs-api → kube → kube-client: the model",
        );
        let edge = ("tombolo-model", "tokio", Kind::Build);
        assert_one_problem(&[edge], "tombolo-model → tokio: the model");
    }

    #[test]
    fn a_new_crate_needs_a_place() {
        let problems = check(&Graph::of(&["tombolo-extra"], &[]));
        assert_eq!(
            problems,
            ["tombolo-extra: give it a place in xtask/src/arch/rules.rs"]
        );
    }
}
