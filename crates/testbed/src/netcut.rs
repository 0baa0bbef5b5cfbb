//! Cutting a process off the network with nftables.
//!
//! What it sends is known by its group id, what is sent to it by the ports it listens on and by
//! the connections it has open at that time; new ones it cannot open. So both directions are
//! silent, as with a pulled cable, also between processes that share the loopback device.

use std::{collections::HashSet, fs, process::Command};

use anyhow::{Context as _, Result};

use crate::command;

/// All tables of the testbed start with this.
const TABLE_PREFIX: &str = "tombolo_testbed_";

/// A connection: own port and the other side's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Connection {
    local: u16,
    remote: u16,
}

/// The table for a part of a testbed.
pub(crate) fn table_name(id: &str, part: &str) -> String {
    format!("{TABLE_PREFIX}{}_{}", word(id), word(part))
}

fn word(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

/// One side of a cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'a> {
    /// Group id that its process runs with.
    pub(crate) gid: u32,
    /// Its process, if it runs: connections that are open are cut too.
    pub(crate) pid: Option<u32>,
    /// What it listens on.
    pub(crate) ports: &'a [u16],
}

/// Rules for packets that leave a process of this machine, and for those that reach one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rules {
    output: Vec<String>,
    input: Vec<String>,
}

/// Cuts a process off from everything.
pub(crate) fn cut(table: &str, side: Side<'_>) -> Result<()> {
    let connections = side.pid.map_or_else(|| Ok(Vec::new()), connections)?;
    let mut rules = Rules::default();
    rules.output.push(format!("meta skgid {} drop", side.gid));
    for port in side.ports {
        rules.output.push(format!("tcp sport {port} drop"));
        rules.input.push(format!("tcp dport {port} drop"));
    }
    rules.drop_connections(&connections);
    load(table, &rules)
}

/// Cuts two processes off from each other.
pub(crate) fn cut_between(table: &str, one: Side<'_>, other: Side<'_>) -> Result<()> {
    let mut rules = Rules::default();
    for (from, to) in [(one, other), (other, one)] {
        let mut connections = from.pid.map_or_else(|| Ok(Vec::new()), connections)?;
        connections.retain(|connection| to.ports.contains(&connection.remote));
        rules.drop_new(from.gid, to.ports);
        rules.drop_connections(&connections);
    }
    load(table, &rules)
}

impl Rules {
    /// No connection from a process to these ports can be opened.
    fn drop_new(&mut self, gid: u32, ports: &[u16]) {
        self.output.extend(
            ports
                .iter()
                .map(|port| format!("meta skgid {gid} tcp dport {port} drop")),
        );
    }

    /// Nothing passes on these any more, either way.
    fn drop_connections(&mut self, connections: &[Connection]) {
        for Connection { local, remote } in connections {
            self.output
                .push(format!("tcp sport {local} tcp dport {remote} drop"));
            self.input
                .push(format!("tcp dport {local} tcp sport {remote} drop"));
        }
    }

    /// As nft reads it.
    fn text(&self, table: &str) -> String {
        // Before the machine's own filters, so that none of them can accept a packet first.
        let chain = |hook: &str, rules: &[String]| {
            let head = format!("type filter hook {hook} priority -300; policy accept;");
            format!("chain {hook} {{ {head}\n{}\n}}", rules.join("\n"))
        };
        format!(
            "add table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n{}\n{}\n}}\n",
            chain("output", &self.output),
            chain("input", &self.input)
        )
    }
}

fn load(table: &str, rules: &Rules) -> Result<()> {
    command::output_with_input(nft()?.args(["-f", "-"]), &rules.text(table))?;
    Ok(())
}

/// Removes the table, if it is there.
pub(crate) fn mend(table: &str) -> Result<()> {
    // Adding what is there already does nothing, so that deleting never fails.
    let text = format!("add table inet {table}\ndelete table inet {table}\n");
    command::output_with_input(nft()?.args(["-f", "-"]), &text)?;
    Ok(())
}

/// Removes all tables of a testbed.
pub(crate) fn mend_all(id: &str) -> Result<()> {
    let prefix = format!("{TABLE_PREFIX}{}_", word(id));
    let Ok(mut nft) = nft() else {
        return Ok(());
    };
    for line in command::output(nft.args(["list", "tables"]))?.lines() {
        if let Some(table) = line
            .split_whitespace()
            .nth(2)
            .filter(|t| t.starts_with(&prefix))
        {
            mend(table)?;
        }
    }
    Ok(())
}

fn nft() -> Result<Command> {
    Ok(Command::new(
        command::find("nft").context("nft is missing: apt-get install nftables")?,
    ))
}

/// The open TCP connections of a process.
fn connections(pid: u32) -> Result<Vec<Connection>> {
    let mut inodes = HashSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor may be closed meanwhile.
        let Ok(target) = fs::read_link(entry?.path()) else {
            continue;
        };
        let target = target.to_string_lossy();
        if let Some(inode) = target
            .strip_prefix("socket:[")
            .and_then(|t| t.strip_suffix(']'))
        {
            inodes.insert(inode.to_owned());
        }
    }
    let mut all = Vec::new();
    for file in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        all.extend(table.lines().filter_map(|line| connection(line, &inodes)));
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Reads a line of /proc/net/tcp, if it is a connection with one of the inodes.
fn connection(line: &str, inodes: &HashSet<String>) -> Option<Connection> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    let (local, remote) = (port(fields.get(1)?)?, port(fields.get(2)?)?);
    (inodes.contains(*fields.get(9)?) && remote != 0).then_some(Connection { local, remote })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_from_proc() {
        let inodes = HashSet::from(["77".to_owned()]);
        let line =
            " 1: 0100007F:4E20 0100007F:C350 01 00000000:00000000 00:00000000 00000000 0 0 77 1";
        assert_eq!(
            connection(line, &inodes),
            Some(Connection {
                local: 20000,
                remote: 50000
            })
        );
        assert_eq!(connection(&line.replace(" 77 ", " 78 "), &inodes), None);
        let listening = line.replace("0100007F:C350", "00000000:0000");
        assert_eq!(connection(&listening, &inodes), None);
    }

    #[test]
    fn connections_are_dropped_in_both_directions() {
        let mut rules = Rules::default();
        rules.drop_new(9, &[80]);
        rules.drop_connections(&[Connection {
            local: 5,
            remote: 6,
        }]);
        let text = rules.text("t");
        let output = "meta skgid 9 tcp dport 80 drop\ntcp sport 5 tcp dport 6 drop\n";
        assert!(text.contains(output), "{text}");
        assert!(
            text.contains("accept;\ntcp dport 5 tcp sport 6 drop\n"),
            "{text}"
        );
    }
}
