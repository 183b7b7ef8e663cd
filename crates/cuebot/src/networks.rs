//! Networks of addresses, as `10.1.0.0/16`.

use std::net::IpAddr;
use std::str::FromStr;

/// Networks that one setting may name.
pub const NETWORKS_MAX: usize = 256;

/// A network of addresses: `ADDRESS/BITS`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: Bits,
    /// Leading bits that all its addresses share.
    prefix: u32,
}

/// The bits of an address from the first one on, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bits {
    value: u128,
    count: u32,
}

impl Bits {
    /// An address of version 4 inside of one of version 6 is that of version 4: a socket for both sees it so.
    fn of(address: IpAddr) -> Bits {
        match address.to_canonical() {
            IpAddr::V4(address) => Bits { value: u128::from(address.to_bits()) << 96, count: 32 },
            IpAddr::V6(address) => Bits { value: address.to_bits(), count: 128 },
        }
    }
}

impl Network {
    /// True for an address of the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let other = Bits::of(address);
        self.address.count == other.count && (self.address.value ^ other.value) & mask(self.prefix) == 0
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let refused = || format!("'{text}' is not a network, such as 10.1.0.0/16");
        let address = Bits::of(address.parse().map_err(|_| refused())?);
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| refused())?,
            None => address.count,
        };
        if prefix > address.count {
            return Err(refused());
        }
        if address.value & !mask(prefix) != 0 {
            return Err(format!("'{text}' has bits behind the {prefix} that count"));
        }
        Ok(Network { address, prefix })
    }
}

/// The first bits, up to 128 of them.
fn mask(prefix: u32) -> u128 {
    u128::MAX.checked_shl(128 - prefix).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        let cases: [(&str, &[&str], &[&str]); 6] = [
            ("10.1.0.0/16", &["10.1.0.0", "10.1.255.255", "::ffff:10.1.2.3"], &["10.2.0.0", "::1", "a01::"]),
            ("10.1.2.3", &["10.1.2.3"], &["10.1.2.2"]),
            ("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::", "::1"]),
            ("::/0", &["::", "fe80::1"], &["10.0.0.1"]),
            ("fd00:1::/32", &["fd00:1::", "fd00:1:ffff::1"], &["fd00:2::"]),
            ("::1/128", &["::1"], &["::2", "127.0.0.1"]),
        ];
        for (text, inside, outside) in cases {
            let network: Network = text.parse().unwrap();
            assert!(inside.iter().all(|ip| network.contains(ip.parse().unwrap())), "{text}");
            assert!(!outside.iter().any(|ip| network.contains(ip.parse().unwrap())), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_network_is_refused() {
        for text in
            ["", "farm", "10.1.0.0/", "10.1.0.0/33", "10.1.0.0/-1", "10.1.0.1/16", "::/129", "10.1/16"]
        {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,30}") {
            _ = text.parse::<Network>();
        }

        #[test]
        fn a_network_of_an_address_contains_it(bits in any::<u32>(), prefix in 0u32..=32) {
            let first = bits & u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            let text = format!("{}/{prefix}", std::net::Ipv4Addr::from(first));
            prop_assert!(text.parse::<Network>().unwrap().contains(std::net::Ipv4Addr::from(bits).into()));
        }
    }
}
