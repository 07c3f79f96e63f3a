//! Which addresses the controller connects to. Names of registries come from Secrets, which others may write. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Excludes the pod itself and link-local addresses, where clouds serve the credentials of machines. Registries may
/// have private addresses.
pub(crate) fn is_allowed(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_allowed_v4(address),
        IpAddr::V6(address) => is_allowed_v6(address),
    }
}

fn is_allowed_v4(address: Ipv4Addr) -> bool {
    !(address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        // "This network": Linux connects to itself.
        || address.octets()[0] == 0)
}

fn is_allowed_v6(address: Ipv6Addr) -> bool {
    // Amazon's metadata service.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    !(address.is_loopback()
        || address.is_unspecified()
        || address.is_unicast_link_local()
        || address.is_multicast()
        || address == METADATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_have_public_or_private_addresses_and_no_others() {
        for (address, expected) in [
            ("8.8.8.8", true),
            ("10.0.0.1", true),
            ("172.16.0.1", true),
            ("192.168.1.1", true),
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("169.254.169.254", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:10.0.0.1", true),
            ("fe80::1", false),
            ("ff02::1", false),
            ("fd00:ec2::254", false),
        ] {
            let parsed = address.parse().expect(address);
            assert_eq!(is_allowed(parsed), expected, "{address}");
        }
    }
}
