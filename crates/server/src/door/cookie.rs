//! The cookie that holds a session.

use super::sessions::SESSION_MS;
use axum::http::HeaderMap;
use axum::http::header::COOKIE;

/// The cookie's name, followed by `_` and the port where the address has one: a browser sends cookies to all ports of
/// a host, and two servers behind ports of one host must not overwrite each other's.
const NAME: &str = "windlass_session";
/// Bytes of cookies that are looked at. A browser sends several of the name if a page of a parent domain set some, and
/// garbage among them must not hide the session.
const LOOKED_AT_BYTES_MAX: usize = 16 << 10;

fn name(host: &str) -> String {
    match port(host) {
        Some(port) => format!("{NAME}_{port}"),
        None => NAME.to_owned(),
    }
}

/// The port of `HOST:PORT`, `[V6]:PORT`.
fn port(host: &str) -> Option<u16> {
    let (before, port) = host.rsplit_once(':')?;
    let whole = !before.contains(':') || before.ends_with(']');
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|_| whole && digits)
}

/// The sessions that a request shows, for the host that it addresses.
pub(crate) fn shown<'a>(headers: &'a HeaderMap, host: &str) -> impl Iterator<Item = &'a str> {
    let name = name(host);
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut bytes = 0;
    let looked_at = texts.flat_map(|text| text.split(';')).take_while(move |pair| {
        // With the semicolon.
        bytes += pair.len() + 1;
        bytes <= LOOKED_AT_BYTES_MAX
    });
    let pairs = looked_at.filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(key, _)| *key == name).map(|(_, value)| value)
}

pub(crate) fn set(host: &str, value: &str, is_tls: bool) -> String {
    written(host, value, SESSION_MS / 1000, is_tls)
}

/// The `Set-Cookie` that takes it away.
pub(crate) fn clear(host: &str, is_tls: bool) -> String {
    written(host, "", 0, is_tls)
}

fn written(host: &str, value: &str, max_age_s: u64, is_tls: bool) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    format!("{}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age_s}{secure}", name(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(cookies: &[&str], host: &str) -> Vec<String> {
        let mut headers = HeaderMap::new();
        cookies.iter().for_each(|cookie| _ = headers.append(COOKIE, cookie.parse().unwrap()));
        shown(&headers, host).map(str::to_owned).collect()
    }

    #[test]
    fn a_cookie_is_of_one_port() {
        let cookies = "a=b; windlass_session=none; windlass_session_7117=one;windlass_session_7118=two";
        assert_eq!(of(&[cookies], "127.0.0.1:7117"), ["one"]);
        assert_eq!(of(&[cookies], "[::1]:7118"), ["two"]);
        assert_eq!(of(&[cookies], "farm.example"), ["none"]);
        assert_eq!(of(&[cookies], "[::1]"), ["none"]);
        assert!(of(&[cookies], "farm.example:7119").is_empty());
        assert_eq!(of(&["x=1", "windlass_session=v"], "farm"), ["v"]);
    }

    #[test]
    fn garbage_of_the_name_does_not_hide_a_session_and_no_more_than_the_bound_is_looked_at() {
        let garbage = "windlass_session=x; ";
        let behind = |times: usize| format!("{}windlass_session=v", garbage.repeat(times));
        for times in [4, 100, 800] {
            assert_eq!(of(&[behind(times).as_str()], "farm").last().unwrap(), "v", "{times}");
        }
        assert_eq!(of(&[garbage.repeat(100).as_str(), "windlass_session=v"], "farm").last().unwrap(), "v");
        let many = of(&[behind(10_000).as_str()], "farm");
        assert!(many.len() <= LOOKED_AT_BYTES_MAX / garbage.len() && !many.contains(&"v".to_owned()));
    }

    #[test]
    fn no_script_and_no_other_site_has_it() {
        let plain = set("127.0.0.1:80", "v", false);
        assert_eq!(plain, "windlass_session_80=v; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200");
        assert!(set("farm", "v", true).ends_with("; Secure"));
        assert!(
            clear("farm", false).starts_with("windlass_session=; ")
                && clear("farm", false).contains("Max-Age=0")
        );
    }

    proptest! {
        #[test]
        fn what_was_set_is_found_among_anything(before in "[!-~ ]{0,80}", value in "[0-9a-f_]{1,80}", host in "[ -~]{0,30}") {
            let cookie = set(&host, &value, true);
            let pair = cookie.split(';').next().unwrap();
            let found = of(&[before.as_str(), pair], &host);
            prop_assert!(found.contains(&value));
        }

        #[test]
        fn garbage_is_no_session(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = axum::http::HeaderValue::from_bytes(&bytes) {
                headers.insert(COOKIE, value);
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            prop_assert!(text.contains(NAME) || shown(&headers, &text).next().is_none());
        }
    }
}
