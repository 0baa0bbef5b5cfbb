//! What people and tools read: the metrics, and the table of flags in the reference.

use std::collections::BTreeMap;

use tombolo_testkit::command::Binary;
use tombolo_testkit::dns::Transport;
use tombolo_testkit::scripted_api::ScriptedApi;

use crate::process::{Dns, import};

const PAGE: &str = include_str!("../../docs/reference/dns.md");
const METRICS: &str = include_str!("metrics.txt");

/// Names, types, units, help and labels of all metrics are an API: `metrics.txt` holds them, with
/// the numbers of what is asked here. Of what depends on time it has no number.
#[test]
fn the_metrics_are_those_that_are_written_down() {
    let api = ScriptedApi::start().unwrap();
    api.install_crds();
    api.put("serviceimports", import("web", "10.96.7.1"));
    let mut dns = Dns::start(Some(&api), &["--zone", "clusterset.local,mesh.example"]).unwrap();
    dns.wait("web.shop.svc.mesh.example.", "A", "NOERROR", &["10.96.7.1"])
        .unwrap();
    dns.ask("nosuch.clusterset.local.", "AAAA", Transport::Tcp)
        .unwrap();
    dns.ask("a.example.", "PTR", Transport::Udp).unwrap();
    // Known from when both watches are alive.
    let text = dns
        .wait_page("/metrics", "\ntombolo_dns_staleness_seconds ")
        .unwrap();
    let of_time = [
        "tombolo_dns_answer_duration_seconds_",
        "tombolo_dns_serial ",
        "tombolo_dns_staleness_seconds ",
    ];
    let fixed = text.lines().filter_map(|line| {
        // How often it was asked until the first list was done is nobody's matter.
        if line.contains("SERVFAIL") {
            return None;
        }
        let is_of_time = of_time.iter().any(|start| line.starts_with(start));
        let (label, _) = line.rsplit_once(' ').unwrap();
        Some(if is_of_time { label } else { line })
    });
    assert_eq!(
        fixed.collect::<Vec<_>>(),
        METRICS.lines().collect::<Vec<_>>(),
        "{text}"
    );
    dns.finish().unwrap();
}

/// Every metric is in the reference, and nothing else is.
#[test]
fn the_reference_names_every_metric() {
    let (_, section) = PAGE.split_once("\n## Metrics\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    for line in METRICS
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP tombolo_dns_"))
    {
        let name = line.split(' ').next().unwrap();
        assert!(
            section.contains(name),
            "{name} is not in docs/reference/dns.md"
        );
    }
}

/// The table of flags says what `--help` says: each flag, its variable and its default.
#[test]
fn the_table_of_flags_is_that_of_the_help() {
    let (_, table) = PAGE
        .split_once("| flag | environment | default | |\n|---|---|---|---|\n")
        .unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let mut documented = BTreeMap::new();
    for row in table.lines() {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let flags: Vec<&str> = cells[0]
            .split(", ")
            .map(|flag| flag.trim_matches('`'))
            .collect();
        let variables = variables(cells[1]);
        let defaults: Vec<&str> = cells[2]
            .split(", ")
            .map(|text| text.trim_matches('`'))
            .collect();
        assert_eq!(flags.len(), variables.len(), "{row}");
        for (index, (flag, variable)) in flags.iter().zip(variables).enumerate() {
            let default = defaults.get(index).unwrap_or(&defaults[0]);
            let default = default.replace(',', "");
            documented.insert((*flag).to_owned(), (variable, default));
        }
    }
    let run = Binary::new(env!("CARGO_BIN_EXE_tombolo"))
        .run(["dns", "--help"])
        .unwrap();
    let mut told = 0;
    for (flag, variable, default) in flags_of(&run.stdout) {
        let (written, described) = documented
            .get(&flag)
            .unwrap_or_else(|| panic!("{flag} is not in docs/reference/dns.md"));
        assert_eq!(*written, variable, "{flag}");
        if let Some(default) = default {
            assert_eq!(*described, default, "{flag}");
        }
        told += 1;
    }
    assert_eq!(
        told,
        documented.len(),
        "the table has flags that are none: {documented:?}"
    );
}

/// The variables of a cell; `…` stands for the first one's name.
fn variables(cell: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in cell.split(", ").map(|text| text.trim_matches('`')) {
        let full = match (text.strip_prefix('…'), all.first()) {
            (Some(rest), Some(first)) => format!("{first}{rest}"),
            _ => text.to_owned(),
        };
        all.push(full);
    }
    all
}

/// Flag, variable and default of each option in a help text.
fn flags_of(help: &str) -> Vec<(String, String, Option<String>)> {
    let mut flags: Vec<(String, String, Option<String>)> = Vec::new();
    for line in help.lines().map(str::trim) {
        if let Some(at) = line.find("--").filter(|at| *at < 5)
            && line.starts_with('-')
        {
            let flag = line[at..].split([' ', '=']).next().unwrap_or_default();
            flags.push((flag.to_owned(), String::new(), None));
        }
        let between = |start: &str| {
            let (_, rest) = line.split_once(start)?;
            Some(
                rest.split(']')
                    .next()
                    .unwrap_or_default()
                    .trim_end_matches('=')
                    .to_owned(),
            )
        };
        if let Some(last) = flags.last_mut() {
            last.1 = between("[env: ").unwrap_or_else(|| last.1.clone());
            last.2 = between("[default: ").or_else(|| last.2.take());
        }
    }
    flags.retain(|(flag, _, _)| flag != "--help" && flag != "--version");
    flags
}
