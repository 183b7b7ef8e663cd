//! Addresses of servers, alone and in lists.

use std::path::PathBuf;

/// Most addresses in a list. A farm has a handful of servers; more is a mistake.
pub const ADDRESSES_MAX: usize = 32;

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// The path of a unix socket.
    Unix(PathBuf),
    /// `http://HOST:PORT` or `https://HOST:PORT`, without a slash at the end.
    Http(String),
}

impl Address {
    /// Reads `unix:PATH`, a path with a slash, `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`. The last is
    /// `http` on this machine and `https` elsewhere: a token crosses a network in plain text only if the user wrote
    /// `http`.
    pub fn parse(text: &str) -> Address {
        match text.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None if text.starts_with('/') => Address::Unix(text.into()),
            None if text.contains("://") => Address::Http(text.trim_end_matches('/').to_owned()),
            None if is_loopback(text) => Address::Http(format!("http://{text}")),
            None => Address::Http(format!("https://{text}")),
        }
    }

    /// True if the address is on this machine; behind it may be a tunnel.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Http(_) => is_loopback(self.host_and_port().unwrap_or_default()),
        }
    }

    /// `HOST:PORT` of an address over TCP, without the scheme.
    pub fn host_and_port(&self) -> Option<&str> {
        match self {
            Address::Unix(_) => None,
            Address::Http(base) => {
                let rest = base.split_once("://").map_or(base.as_str(), |(_, rest)| rest);
                rest.split('/').next()
            }
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Http(base) => f.write_str(base),
        }
    }
}

/// True if `HOST:PORT` is on this machine.
fn is_loopback(text: &str) -> bool {
    let host = match text.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => text.split_once(':').map_or(text, |(host, _)| host),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The servers of one farm in the order in which they are tried. There is at least one, and each is there once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses(Vec<Address>);

/// Why a list of addresses is refused.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadAddresses {
    #[error("'{0}' names no server: write HOST:PORT, or several separated by commas")]
    Empty(String),
    #[error("{0} addresses are too many: at most {ADDRESSES_MAX}")]
    TooMany(usize),
}

impl Addresses {
    /// Reads addresses separated by commas, with spaces around them or without. A comma belongs to the path of a unix
    /// socket unless an address with its port, its scheme or a slash follows.
    pub fn parse(text: &str) -> Result<Addresses, BadAddresses> {
        let mut parts: Vec<String> = Vec::new();
        for part in text.split(',') {
            let begins = begins_an_address(part.trim());
            match parts.last_mut().filter(|last| is_path(last) && !begins) {
                Some(path) => path.push_str(&format!(",{part}")),
                None => parts.push(part.trim_start().to_owned()),
            }
        }
        let mut all: Vec<Address> = Vec::new();
        for part in parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
            let address = Address::parse(part);
            if !all.contains(&address) {
                all.push(address);
            }
        }
        match all.len() {
            0 => Err(BadAddresses::Empty(text.to_owned())),
            n if n > ADDRESSES_MAX => Err(BadAddresses::TooMany(n)),
            _ => Ok(Addresses(all)),
        }
    }

    /// In the order in which they are tried.
    pub fn iter(&self) -> std::slice::Iter<'_, Address> {
        self.0.iter()
    }

    /// The only one; `None` if there are several.
    pub fn only(&self) -> Option<&Address> {
        Some(&self.0[0]).filter(|_| self.0.len() == 1)
    }

    /// True if one of them is this.
    pub fn contains(&self, address: &Address) -> bool {
        self.0.contains(address)
    }
}

impl From<Address> for Addresses {
    fn from(address: Address) -> Self {
        Addresses(vec![address])
    }
}

impl std::fmt::Display for Addresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, address) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

/// True if a part of a list is the path of a socket, which may go on behind a comma.
fn is_path(part: &str) -> bool {
    part.starts_with('/') || part.starts_with("unix:")
}

/// True if the text behind a comma begins another address, even where a path could go on.
fn begins_an_address(part: &str) -> bool {
    if part.is_empty() || is_path(part) || part.contains("://") {
        return true;
    }
    let port = part.rsplit_once(':').map(|(_, port)| port);
    port.is_some_and(|port| port.parse::<u16>().is_ok()) && !part.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_plain_only_on_this_machine_or_by_word() {
        let parsed = |text: &str| Address::parse(text).to_string();
        assert_eq!(parsed("127.0.0.1:7117"), "http://127.0.0.1:7117");
        assert_eq!(parsed("[::1]:7117"), "http://[::1]:7117");
        assert_eq!(parsed("localhost:1"), "http://localhost:1");
        assert_eq!(parsed("farm:7117"), "https://farm:7117");
        assert_eq!(parsed("http://farm:7117/"), "http://farm:7117");
        assert_eq!(parsed("/run/w.sock"), "unix:/run/w.sock");
    }

    fn listed(text: &str) -> String {
        Addresses::parse(text).map_or_else(|bad| bad.to_string(), |all| all.to_string())
    }

    #[test]
    fn a_list_is_separated_by_commas_and_one_address_is_a_list() {
        assert_eq!(listed("farm:7117"), "https://farm:7117");
        assert_eq!(
            listed("farm:7117, http://b:1/ ,unix:/run/w.sock"),
            "https://farm:7117,http://b:1,unix:/run/w.sock"
        );
        assert_eq!(listed("a:1,,b:2,"), "https://a:1,https://b:2");
        assert_eq!(listed("a:1,https://a:1,b:2"), "https://a:1,https://b:2", "each is tried once");
        assert_eq!(listed("[::1]:1,[fe80::1]:2"), "http://[::1]:1,https://[fe80::1]:2");
    }

    #[test]
    fn a_path_may_have_a_comma() {
        assert_eq!(listed("unix:/home/a,b/w.sock"), "unix:/home/a,b/w.sock");
        assert_eq!(listed("/home/a,b/w.sock,farm:7117"), "unix:/home/a,b/w.sock,https://farm:7117");
        assert_eq!(listed("/a.sock,/b.sock"), "unix:/a.sock,unix:/b.sock");
    }

    #[test]
    fn a_list_names_a_server_and_not_too_many() {
        assert!(listed(" , ").contains("names no server"));
        let many: Vec<String> = (0..=ADDRESSES_MAX).map(|n| format!("h{n}:1")).collect();
        assert!(listed(&many.join(",")).contains("too many"));
        assert!(Addresses::parse(&many[1..].join(",")).is_ok());
    }

    #[test]
    fn the_only_address_is_the_one_of_a_list_of_one() {
        let address = Address::parse("a:1");
        assert_eq!(Addresses::from(address.clone()).only(), Some(&address));
        assert_eq!(Addresses::parse("a:1,b:1").unwrap().only(), None);
        assert!(Addresses::parse("b:1,a:1").unwrap().contains(&address));
    }

    proptest! {
        #[test]
        fn a_list_that_is_written_is_read_again(hosts in prop::collection::vec("[a-z]{1,8}:[1-9][0-9]{0,3}", 1..8)) {
            let all = Addresses::parse(&hosts.join(",")).unwrap();
            prop_assert_eq!(Addresses::parse(&all.to_string()), Ok(all));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}") {
            if let Ok(all) = Addresses::parse(&text) {
                prop_assert!((1..=ADDRESSES_MAX).contains(&all.iter().count()));
            }
        }
    }
}
