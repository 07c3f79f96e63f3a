//! A cluster's part of the machine's network: a bridge with an address, and a DNAT rule from the API server's service
//! address, because there is no kube-proxy.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::layout::{API_PORT, Layout, SERVICE_ADDRESS};
use crate::process::run;

pub(crate) fn create(layout: &Layout) -> Result<()> {
    let bridge = layout.bridge();
    raise("/proc/sys/net/ipv4/ip_forward", 1)?;
    // Every systemd, containerd and kubelet watches files: the default of 128 is enough for only four nodes.
    raise("/proc/sys/fs/inotify/max_user_instances", 8192)?;
    raise("/proc/sys/fs/inotify/max_user_watches", 524_288)?;
    // Fixed, because a bridge otherwise takes the MAC address of one of its ports. When that node is removed, the other
    // nodes lose the gateway until their neighbour caches expire.
    let mac = format!("02:67:70:73:00:{:02x}", layout.instance);
    ip(&["link", "add", &bridge, "address", &mac, "type", "bridge"])?;
    let address = format!("{}/24", layout.gateway());
    ip(&["address", "add", &address, "dev", &bridge])?;
    ip(&["link", "set", &bridge, "up"])?;
    let service = format!("{SERVICE_ADDRESS}/32");
    let server = format!("{}:{API_PORT}", layout.gateway());
    iptables(&[
        "-A",
        "PREROUTING",
        "-i",
        &bridge,
        "-d",
        &service,
        "-p",
        "tcp",
        "--dport",
        "443",
        "-j",
        "DNAT",
        "--to-destination",
        &server,
    ])?;
    Ok(())
}

/// Routes the pods of a node to the node's address.
pub(crate) fn route(layout: &Layout, index: u8) -> Result<()> {
    let subnet = layout.pod_subnet(index);
    let ip_of_node = layout.node_ip(index).to_string();
    ip(&["route", "replace", &subnet, "via", &ip_of_node])
}

/// Removes everything that a cluster on this bridge added; missing parts are not an error. The routes disappear with
/// the bridge.
pub(crate) fn remove(bridge: &str) -> Result<()> {
    let rules = iptables(&["-S", "PREROUTING"])?;
    for rule in rules_of(&rules, bridge) {
        iptables(&rule)?;
    }
    if fs::exists(format!("/sys/class/net/{bridge}"))? {
        ip(&["link", "delete", bridge])?;
    }
    Ok(())
}

/// The arguments that delete each rule for packets from this bridge.
fn rules_of<'a>(listing: &'a str, bridge: &str) -> Vec<Vec<&'a str>> {
    listing
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.first() == Some(&"-A"))
        .filter(|words| words.windows(2).any(|pair| pair == ["-i", bridge]))
        .map(|mut words| {
            words[0] = "-D";
            words
        })
        .collect()
}

/// Raises a kernel parameter to at least this number; never lowers it.
fn raise(path: &str, at_least: u64) -> Result<()> {
    let now: u64 = fs::read_to_string(path)
        .with_context(|| format!("could not read `{path}`"))?
        .trim()
        .parse()
        .with_context(|| format!("`{path}` does not contain a number"))?;
    if now < at_least {
        fs::write(path, at_least.to_string())
            .with_context(|| format!("could not raise `{path}` to {at_least}"))?;
    }
    Ok(())
}

fn ip(args: &[&str]) -> Result<()> {
    run(Command::new("ip").args(args)).map(drop)
}

fn iptables(args: &[&str]) -> Result<String> {
    // -w waits for the lock, because another cluster may use iptables too.
    run(Command::new("iptables")
        .args(["-w", "-t", "nat"])
        .args(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_rules_of_the_same_bridge_are_deleted() {
        let listing = "-P PREROUTING ACCEPT\n\
            -A PREROUTING -d 10.96.0.1/32 -i gps1 -p tcp -m tcp --dport 443 -j DNAT --to-destination 10.201.0.1:6443\n\
            -A PREROUTING -d 10.96.0.1/32 -i gps10 -p tcp -m tcp --dport 443 -j DNAT --to-destination 10.210.0.1:6443\n\
            -A PREROUTING -i docker0 -j DOCKER\n";
        let rules = rules_of(listing, "gps1");
        assert_eq!(rules.len(), 1);
        assert_eq!(
            rules[0].join(" "),
            "-D PREROUTING -d 10.96.0.1/32 -i gps1 -p tcp -m tcp --dport 443 -j DNAT --to-destination 10.201.0.1:6443"
        );
        assert!(rules_of(listing, "gps2").is_empty());
    }
}
