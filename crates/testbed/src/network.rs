//! The network between nodes: one bridge per testbed, a veth to each node, and routes to the pods
//! of every node, so that all pods of all clusters reach one another without translation.

use std::{fs, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    addresses::{NodeNumber, Slot},
    command, record,
    spec::Family,
};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn bridge(id: &str) -> String {
    format!("tb-{id}")
}

/// The machine's end of a node's cable.
pub(crate) fn cable(id: &str, node: NodeNumber) -> String {
    format!("t{id}-{:x}", node.get())
}

fn option(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

/// Makes the bridge, with the machine's own addresses on it.
pub(crate) fn create(id: &str, slot: Slot) -> Result<()> {
    let bridge = bridge(id);
    command::run(&format!("ip link add {bridge} type bridge"))?;
    for family in FAMILIES {
        let (address, len) = (slot.gateway(family), Slot::bridge_prefix_len(family));
        let nodad = if family == Family::V6 { "nodad" } else { "" };
        command::run(&format!("ip addr add {address}/{len} dev {bridge} {nodad}"))?;
    }
    command::run(&format!("ip link set {bridge} up"))?;
    Ok(())
}

/// Plugs a node (the name spaces of process `pid`) into the bridge. `others` are the numbers of
/// all other nodes of the testbed.
pub(crate) fn plug(
    id: &str,
    slot: Slot,
    node: NodeNumber,
    pid: i32,
    others: &[NodeNumber],
) -> Result<()> {
    let (bridge, cable) = (bridge(id), cable(id, node));
    command::run(&format!(
        "ip link add {cable} type veth peer name eth0 netns {pid}"
    ))?;
    command::run(&format!("ip link set {cable} master {bridge} up"))?;
    let mut inside = vec!["link set lo up".to_owned()];
    for family in FAMILIES {
        let (address, len) = (slot.node(family, node), Slot::bridge_prefix_len(family));
        let nodad = if family == Family::V6 { "nodad" } else { "" };
        inside.push(format!("addr add {address}/{len} dev eth0 {nodad}"));
    }
    inside.push("link set eth0 up".to_owned());
    for family in FAMILIES {
        inside.push(format!("route add default via {}", slot.gateway(family)));
        for other in others {
            let (pods, via) = (slot.pods(family, *other), slot.node(family, *other));
            inside.push(format!("route add {pods} via {via}"));
        }
        let (pods, via) = (slot.pods(family, node), slot.node(family, node));
        command::run(&format!("ip {} route add {pods} via {via}", option(family)))?;
    }
    let batch = inside.join("\n") + "\n";
    let ip = command::find("ip").context("ip is missing: apt-get install iproute2")?;
    command::output_with_input(record::enter(pid).arg(ip).args(["-batch", "-"]), &batch)?;
    Ok(())
}

/// Pulls a node's cable, or puts it back.
pub(crate) fn set_cable(id: &str, node: NodeNumber, up: bool) -> Result<()> {
    let state = if up { "up" } else { "down" };
    command::run(&format!("ip link set {} {state}", cable(id, node)))?;
    Ok(())
}

/// Removes the bridge (its routes go with it) and what is left of the nodes' cables; the rest went
/// with the nodes' processes.
pub(crate) fn remove(id: &str) -> Result<()> {
    for device in devices() {
        let is_cable = device.strip_prefix(&format!("t{id}-")).is_some();
        if is_cable || device == bridge(id) {
            // A cable goes by itself a moment after its node.
            drop(command::run(&format!("ip link del {device}")));
        }
    }
    anyhow::ensure!(
        !devices().contains(&bridge(id)),
        "cannot remove the bridge {}",
        bridge(id)
    );
    Ok(())
}

/// Whether someone else uses the addresses of a slot.
pub(crate) fn is_taken(slot: Slot) -> bool {
    let Some(ip) = command::find("ip") else {
        return false;
    };
    let routes = command::output(Command::new(ip).args(["-4", "route", "show"]));
    let prefix = format!("172.30.{}.", slot.0);
    routes.is_ok_and(|routes| routes.lines().any(|route| route.starts_with(&prefix)))
}

fn devices() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}
