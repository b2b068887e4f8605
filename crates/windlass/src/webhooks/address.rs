//! Which addresses a webhook may reach: those of the public internet, and the networks that its section names.
//!
//! The URL of a webhook is configuration, but the addresses of its host name come from DNS, which somebody else may control. A
//! request to an address of the server's own network would pass firewalls (server-side request forgery). Each
//! connection resolves the name by [`CheckedDns`], which returns permitted addresses only, so an answer of DNS that
//! changes between a check and a connection has no effect.

use std::{
    error::Error,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// IPv4 networks outside the public internet: those of IANA's special-purpose registry, multicast, reserved ones.
const NOT_PUBLIC_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    (Ipv4Addr::new(255, 255, 255, 255), 32),
];

/// The IPv6 addresses of the public internet.
const PUBLIC_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Networks in there that are not: protocol assignments with Teredo, documentation.
const NOT_PUBLIC_V6: [(Ipv6Addr, u8); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0x0db8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// 6to4: the IPv4 address is in bits 16 to 47.
const SIX_TO_FOUR: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);

/// NAT64 and IPv4-mapped addresses: the IPv4 address is in the last 32 bits.
const WITH_V4: [(Ipv6Addr, u8); 2] =
    [(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96), (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96)];

/// A network, such as `10.1.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Its first address.
    fn first(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & mask_v4(self.prefix)).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & mask_v6(self.prefix)).into(),
        }
    }

    fn has(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => in_v4((network, self.prefix), address),
            (IpAddr::V6(network), IpAddr::V6(address)) => in_v6((network, self.prefix), address),
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("invalid network {text:?}: write for example 10.1.0.0/16 or fd00::/8");
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= most).ok_or_else(invalid)?;
        let network = Self { address, prefix };
        let begins = network.first();
        if begins == address {
            Ok(network)
        } else {
            Err(format!("invalid network {text:?}: the network of this address is {begins}/{prefix}"))
        }
    }
}

fn in_v4((network, prefix): (Ipv4Addr, u8), address: Ipv4Addr) -> bool {
    (network.to_bits() ^ address.to_bits()) & mask_v4(prefix) == 0
}

fn in_v6((network, prefix): (Ipv6Addr, u8), address: Ipv6Addr) -> bool {
    (network.to_bits() ^ address.to_bits()) & mask_v6(prefix) == 0
}

fn mask_v4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn mask_v6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

/// Whether an address is one of the public internet. An address that contains an IPv4 address is as public as that.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NOT_PUBLIC_V4.iter().any(|network| in_v4(*network, address)),
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            if WITH_V4.iter().any(|network| in_v6(*network, address)) {
                return is_public(Ipv4Addr::new(a, b, c, d).into());
            }
            if in_v6(SIX_TO_FOUR, address) {
                let [_, _, a, b, c, d, ..] = address.octets();
                return is_public(Ipv4Addr::new(a, b, c, d).into());
            }
            in_v6(PUBLIC_V6, address) && !NOT_PUBLIC_V6.iter().any(|network| in_v6(*network, address))
        }
    }
}

/// What a webhook may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Networks beside the public internet.
    pub(super) networks: Vec<Network>,
}

impl Reach {
    /// Whether a webhook may connect to this address.
    pub(super) fn permits(&self, address: IpAddr) -> bool {
        is_public(address) || self.networks.iter().any(|network| network.has(address))
    }
}

/// Why a host cannot be reached.
#[derive(Debug)]
pub(super) struct NotPermitted {
    pub(super) host: String,
    pub(super) address: IpAddr,
}

impl fmt::Display for NotPermitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address } = self;
        write!(
            f,
            "{host} has the address {address}, which is not of the public internet: add its network to `networks` \
             if this webhook may reach it"
        )
    }
}

impl Error for NotPermitted {}

/// Resolves host names by the system, and returns the permitted addresses.
#[derive(Debug)]
pub(super) struct CheckedDns(pub(super) Arc<Reach>);

impl Resolve for CheckedDns {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            permitted(&reach, name.as_str(), found)
        })
    }
}

/// Those of these addresses that may be reached.
fn permitted(
    reach: &Reach,
    host: &str,
    found: Vec<SocketAddr>,
) -> Result<Addrs, Box<dyn Error + Send + Sync>> {
    let refused = found.iter().map(SocketAddr::ip).find(|address| !reach.permits(*address));
    let permitted: Vec<SocketAddr> =
        found.into_iter().filter(|address| reach.permits(address.ip())).collect();
    match refused {
        Some(address) if permitted.is_empty() => Err(NotPermitted { host: host.to_owned(), address }.into()),
        _ => Ok(Box::new(permitted.into_iter())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that a webhook must not reach, in each notation that a URL or DNS may have them in.
    const FORGED: [&str; 96] = [
        "0.0.0.0",
        "0.0.0.1",
        "0.255.255.255",
        "10.0.0.0",
        "10.0.0.1",
        "10.10.10.10",
        "10.255.255.255",
        "100.64.0.0",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.0",
        "127.0.0.1",
        "127.0.0.2",
        "127.1.1.1",
        "127.255.255.254",
        "127.255.255.255",
        "169.254.0.0",
        "169.254.0.1",
        "169.254.169.253",
        "169.254.169.254",
        "169.254.170.2",
        "169.254.255.255",
        "172.16.0.0",
        "172.16.0.1",
        "172.17.0.1",
        "172.20.10.1",
        "172.31.255.255",
        "192.0.0.0",
        "192.0.0.1",
        "192.0.0.170",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.0",
        "192.168.0.1",
        "192.168.1.1",
        "192.168.255.255",
        "198.18.0.0",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "224.0.0.251",
        "239.255.255.250",
        "240.0.0.1",
        "250.1.2.3",
        "255.255.255.254",
        "255.255.255.255",
        "::",
        "::1",
        "::2",
        "::7f00:1",
        "::127.0.0.1",
        "::ffff:0.0.0.0",
        "::ffff:10.0.0.1",
        "::ffff:100.64.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:172.16.0.1",
        "::ffff:192.168.0.1",
        "::ffff:198.18.0.1",
        "::ffff:224.0.0.1",
        "::ffff:7f00:1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b::c0a8:1",
        "64:ff9b:1::1",
        "64:ff9b:1::7f00:1",
        "100::1",
        "2001::1",
        "2001:0:7f00:1::",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:1ff::1",
        "2001:db8::1",
        "2001:db8:ffff::1",
        "2002:7f00:1::",
        "2002:7f00:1::1",
        "2002:a00:1::",
        "2002:a9fe:a9fe::",
        "2002:c0a8:1::1",
        "3fff::1",
        "3fff:fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ];

    /// The same hosts in URLs: the parser of URLs knows these notations, so a check of the text would not.
    const FORGED_URLS: [&str; 36] = [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://0177.1/",
        "http://127.0.0.1./",
        "http://0/",
        "http://0.0.0.0/",
        "http://0x0/",
        "http://10.1/",
        "http://0x0a000001/",
        "http://167772161/",
        "http://192.168.1/",
        "http://0xc0a80001/",
        "http://3232235521/",
        "http://169.254.169.254/",
        "http://0xa9fea9fe/",
        "http://2852039166/",
        "http://0251.0376.0251.0376/",
        "http://[::1]/",
        "http://[::]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fd00:ec2::254]/",
        "http://user@127.0.0.1/",
        "http://example.com@127.0.0.1/",
        "http://①②⑦.⓪.⓪.①/",
    ];

    const PUBLIC: [&str; 14] = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "93.184.216.34",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "2606:4700:4700::1111",
    ];

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn no_address_of_a_network_of_ones_own_is_public() {
        let reached: Vec<IpAddr> =
            addresses(&FORGED).into_iter().filter(|address| is_public(*address)).collect();
        assert!(reached.is_empty(), "{reached:?}");
        let unreached: Vec<IpAddr> =
            addresses(&PUBLIC).into_iter().filter(|address| !is_public(*address)).collect();
        assert!(unreached.is_empty(), "{unreached:?}");
    }

    #[test]
    fn no_notation_of_an_address_passes_the_check_of_urls() {
        for text in FORGED_URLS {
            let url = reqwest::Url::parse(text).unwrap();
            let address = crate::outgoing::address_of(&url).unwrap_or_else(|| panic!("{text}"));
            assert!(!Reach::default().permits(address), "{text} is {address}");
        }
    }

    #[test]
    fn networks_are_permitted_by_name() {
        let reach = Reach { networks: vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()] };
        for (address, permitted) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("fd12::1", true),
            ("fe80::1", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(reach.permits(address.parse().unwrap()), permitted, "{address}");
        }
        for invalid in ["10.0.0.0", "10.0.0.0/33", "::/129", "host/8", "10.0.0.0/-1"] {
            assert!(invalid.parse::<Network>().is_err(), "{invalid}");
        }
        for (written, meant) in [("10.1.2.3/16", "10.1.0.0/16"), ("fd00::1/8", "fd00::/8")] {
            assert!(written.parse::<Network>().unwrap_err().ends_with(meant), "{written}");
        }
        assert!(Reach { networks: vec!["0.0.0.0/0".parse().unwrap()] }.permits([127, 0, 0, 1].into()));
    }

    #[test]
    fn of_an_answer_of_dns_the_permitted_addresses_remain() {
        let answer = |texts: &[&str]| -> Vec<SocketAddr> {
            addresses(texts).into_iter().map(|address| SocketAddr::new(address, 0)).collect()
        };
        let mixed = permitted(&Reach::default(), "h", answer(&["127.0.0.1", "8.8.8.8", "::1"])).unwrap();
        assert_eq!(mixed.collect::<Vec<_>>(), answer(&["8.8.8.8"]));
        let error = permitted(&Reach::default(), "h", answer(&["::1"])).err().unwrap().to_string();
        assert!(error.starts_with("h has the address ::1, which is not of the public internet"), "{error}");
    }
}
