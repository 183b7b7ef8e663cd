//! The addresses of notices. A user names one, and the server calls it: without rules a user could reach what only the
//! server reaches, such as a program on its loopback address or the credentials that a cloud gives its machines.

use reqwest::Url;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of one address.
const ADDRESS_BYTES_MAX: usize = 2_048;
/// Bytes of a mail address (RFC 5321).
const MAIL_BYTES_MAX: usize = 254;
/// The beginning of the address of a mail.
const MAILTO: &str = "mailto:";

/// Where a notice goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoticeAddress {
    /// A webhook of http or https.
    Web(Url),
    /// A mail address, without `mailto:`.
    Mail(String),
}

/// Why an address is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadAddress {
    #[error("'{0}' is neither a URL with https:// or http:// nor mailto:NAME@HOST")]
    Unknown(String),
    #[error("an address of a notice has {is} bytes, more than the limit of {}", ADDRESS_BYTES_MAX)]
    TooLong { is: usize },
    #[error("'{0}' has a user or a password; put a secret into the path of the URL, or check the signature")]
    Credentials(String),
    #[error("'{0}' is in the server's own network; an administrator may list it in the setting notify.allow")]
    OwnNetwork(String),
    #[error("'{0}' is not a plain mail address; write mailto:NAME@HOST")]
    Mail(String),
    #[error("this server sends no mail; an administrator may set notify.sendmail")]
    NoMail,
    #[error("the job names {is} addresses to be told of its end, more than the limit of {max}")]
    TooMany { is: usize, max: usize },
}

impl NoticeAddress {
    /// Reads an address. Whether a URL leads to the server's own network is checked when it is used, too: a name may
    /// lead elsewhere then.
    pub fn parse(text: &str) -> Result<NoticeAddress, BadAddress> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(BadAddress::TooLong { is: text.len() });
        }
        let unknown = || BadAddress::Unknown(text.to_owned());
        if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(unknown());
        }
        if let Some(mail) = text.strip_prefix(MAILTO) {
            return match is_mail(mail) {
                true => Ok(NoticeAddress::Mail(mail.to_owned())),
                false => Err(BadAddress::Mail(text.to_owned())),
            };
        }
        let url = Url::parse(text).map_err(|_| unknown())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(unknown());
        }
        if !url.username().is_empty() || url.password().is_some() {
            // The message must not repeat the password.
            return Err(BadAddress::Credentials(host_and_port(&url)));
        }
        Ok(NoticeAddress::Web(url))
    }
}

/// The host of a URL and its port, as an administrator lists them: `hooks.example:443`.
pub(crate) fn host_and_port(url: &Url) -> String {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    format!("{host}:{port}")
}

/// The address of a URL whose host is a number, in whatever notation it was written.
pub(super) fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// True of a name that means this machine by convention.
pub(super) fn is_localhost(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    host == "localhost" || host.ends_with(".localhost")
}

/// A local part of letters, digits and a few signs, and a host of letters, digits, dots and dashes: nothing by which a
/// header could end, or an argument begin.
fn is_mail(mail: &str) -> bool {
    let Some((name, host)) = mail.split_once('@') else { return false };
    let is_plain = |text: &str, signs: &[u8]| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || signs.contains(&byte))
            && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
    };
    mail.len() <= MAIL_BYTES_MAX && is_plain(name, b"._%+-=") && is_plain(host, b".-")
}

/// True of an address that is not of the public internet: this machine, private networks, the metadata addresses of
/// clouds, and all that stands for one of them.
pub(crate) fn is_own_network(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_own_v4(address),
        IpAddr::V6(address) => is_own_v6(address),
    }
}

/// By the registry of special addresses (RFC 6890).
fn is_own_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    matches!(
        (a, b, c),
        (0 | 10 | 127, ..)
            | (224.., ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (198, 18..=19, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 51, 100)
            | (203, 0, 113)
    )
}

/// Of version 6 only global unicast is public. Addresses that hold one of version 4 are what that one is.
fn is_own_v6(address: Ipv6Addr) -> bool {
    if let Some(held) = address.to_ipv4_mapped() {
        return is_own_v4(held);
    }
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b) {
        // NAT64, by which a network without version 4 reaches it.
        (0x64, 0xff9b) if (c, d, e, f) == (0, 0, 0, 0) => is_own_v4(v4(g, h)),
        (0x2002, _) => is_own_v4(v4(b, c)),
        (0x2001, 0..=0x1ff | 0xdb8) => true,
        (0x3fff, 0..=0xfff) => true,
        (0x2000..=0x3fff, _) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_mail_addresses_are_read() {
        let web = |text: &str| match NoticeAddress::parse(text) {
            Ok(NoticeAddress::Web(url)) => host_and_port(&url),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(web("https://hooks.example/a?b=c"), "hooks.example:443");
        assert_eq!(web("http://Hooks.Example:8080/a"), "hooks.example:8080");
        assert_eq!(web("http://[2606:4700::1]/"), "[2606:4700::1]:80");
        let mail = NoticeAddress::parse("mailto:ann.lee+farm@post.example").unwrap();
        assert_eq!(mail, NoticeAddress::Mail("ann.lee+farm@post.example".to_owned()));
    }

    #[test]
    fn what_is_not_an_address_is_refused() {
        let refused = |text: &str| NoticeAddress::parse(text).expect_err(text);
        for text in [
            "",
            "hooks.example/a",
            "ftp://hooks.example/a",
            "file:///etc/passwd",
            "https://",
            "unix:/run/x",
            "https://hooks.example/a b",
            "https://hooks.example/\r\nX: y",
            "javascript:alert(1)",
        ] {
            assert_eq!(refused(text), BadAddress::Unknown(text.to_owned()));
        }
        for text in ["https://ann@hooks.example/", "https://ann:secret@hooks.example/a"] {
            let why = refused(text);
            assert_eq!(why, BadAddress::Credentials("hooks.example:443".to_owned()));
            assert!(!why.to_string().contains("ann:secret"));
        }
        for text in [
            "mailto:",
            "mailto:ann",
            "mailto:@host",
            "mailto:ann@",
            "mailto:-f@host",
            "mailto:ann@host?bcc=eve@host",
            "mailto:ann@host,eve@host",
            "mailto:\"ann\"@host",
            "mailto:ann@host%0aBcc:eve",
        ] {
            assert_eq!(refused(text), BadAddress::Mail(text.to_owned()));
        }
        let long = format!("https://hooks.example/{}", "a".repeat(ADDRESS_BYTES_MAX));
        assert!(matches!(refused(&long), BadAddress::TooLong { .. }));
    }

    #[test]
    fn only_the_public_internet_is_not_the_own_network() {
        for own in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(is_own_network(own.parse().unwrap()), "{own}");
        }
        for public in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.0.1",
            "8.8.8.8",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::",
            "2606:4700:4700::1111",
            "2a00:1450::1",
        ] {
            assert!(!is_own_network(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn a_number_is_known_in_every_notation() {
        for text in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[0:0:0:0:0:ffff:7f00:1]/",
        ] {
            let Ok(NoticeAddress::Web(url)) = NoticeAddress::parse(text) else { panic!("{text}") };
            assert!(literal(&url).is_some_and(is_own_network), "{text}");
        }
        let Ok(NoticeAddress::Web(url)) = NoticeAddress::parse("http://a.LOCALHOST./") else { panic!() };
        assert!(is_localhost(&url));
    }
}
