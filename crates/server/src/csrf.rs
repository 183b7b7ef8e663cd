//! Protection against cross-site request forgery: which requests of a browser come from the board's own page.
//!
//! A browser sends a session's cookie with requests of the page that it belongs to, and of other ports of the same
//! host. So a request with a session must say by other means that the board's page makes it: by where it comes from
//! (`Origin`, `Sec-Fetch-Site`), and by a header and a kind of body that no other site's page can send without being
//! asked for, which the server never allows.

use crate::peer::{Entrance, Peer};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use windlass_api::BOARD_HEADER;

/// Why a request is not taken for the board's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CrossSite {
    #[error("this request does not come from the board's own page: its Origin is not the server's address")]
    Origin,
    #[error("this request does not come from the board's own page: its Sec-Fetch-Site says so")]
    FetchSite,
    #[error("a request that changes something with a session needs the header {BOARD_HEADER}: 1")]
    Mark,
    #[error("the body of a request with a session must be application/json")]
    ContentType,
    #[error("the board is not served under this name")]
    Host,
}

/// What a request says of the page that sends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestOrigin<'a> {
    pub method: &'a Method,
    /// The host and port that the client addressed.
    pub host: &'a str,
    pub headers: &'a HeaderMap,
    pub has_body: bool,
}

impl<'a> RequestOrigin<'a> {
    pub fn check_session(self) -> Result<(), CrossSite> {
        self.check_site()?;
        if self.method == Method::GET || self.method == Method::HEAD {
            return Ok(());
        }
        if self.headers.get(header::ORIGIN).is_none() {
            return Err(CrossSite::Origin);
        }
        if self.headers.get(BOARD_HEADER).is_none_or(|mark| mark != "1") {
            return Err(CrossSite::Mark);
        }
        self.check_body()
    }

    /// Checks a request that asks for a session, or gives one up.
    pub fn check_sign_in(self) -> Result<(), CrossSite> {
        self.check_site()?;
        self.check_body()
    }

    fn check_site(self) -> Result<(), CrossSite> {
        if self.is_foreign_origin() {
            return Err(CrossSite::Origin);
        }
        match self.site() {
            Some(site) if site != "same-origin" => Err(CrossSite::FetchSite),
            _ => Ok(()),
        }
    }

    /// Checks a request for a page: a link of another site may lead to the board, but no other site may load its files.
    pub fn check_page(self) -> Result<(), CrossSite> {
        let own = self.site().is_none_or(|site| site == "same-origin" || site == "none");
        let text = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        let by_link =
            text("sec-fetch-mode") == Some("navigate") && text("sec-fetch-dest") == Some("document");
        if own || by_link { Ok(()) } else { Err(CrossSite::FetchSite) }
    }

    fn check_body(self) -> Result<(), CrossSite> {
        let kind = self.headers.get(header::CONTENT_TYPE);
        let is_json = match kind {
            None => !self.has_body,
            Some(kind) => kind.to_str().is_ok_and(|kind| {
                let name = kind.split(';').next().unwrap_or_default();
                name.trim().eq_ignore_ascii_case("application/json")
            }),
        };
        if is_json { Ok(()) } else { Err(CrossSite::ContentType) }
    }

    fn is_foreign_origin(self) -> bool {
        let mut all = self.headers.get_all(header::ORIGIN).iter();
        all.any(|origin| !origin.to_str().is_ok_and(|origin| is_origin_of(origin, self.host)))
    }

    /// What `Sec-Fetch-Site` says; `?` if it is not text.
    fn site(self) -> Option<&'a str> {
        self.headers.get("sec-fetch-site").map(|site| site.to_str().unwrap_or("?"))
    }
}

/// How a request that signs in or out addressed the server. In its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Addressed {
    /// As the client wrote it: `HOST` or `HOST:PORT`.
    pub host: String,
    /// Whether the browser's way is encrypted; a proxy may do that.
    pub is_tls: bool,
}

impl Addressed {
    pub(crate) fn of(peer: &Peer, request: &Request) -> Addressed {
        let origin = request.headers().get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
        let by_proxy = origin.is_some_and(|origin| origin.starts_with("https://"));
        let is_tls = by_proxy || peer.entrance.is_some_and(|entrance| entrance.is_tls);
        Addressed { host: host_of(request), is_tls }
    }
}

/// The host and port that the client addressed: from the URI over HTTP/2, from the Host header over HTTP/1. A Host header
/// that is not text becomes `?`, which no check accepts.
pub(crate) fn host_of(request: &Request) -> String {
    let of_uri = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let of_header = || request.headers().get("host").map(|host| host.to_str().unwrap_or("?").to_owned());
    of_uri.or_else(of_header).unwrap_or_else(|| "localhost".to_owned())
}

/// Whether an `Origin` is that of the address under which the server was asked.
pub(crate) fn is_origin_of(origin: &str, host: &str) -> bool {
    let own = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    own.is_some_and(|own| own.eq_ignore_ascii_case(host))
}

/// Checks the name under which a browser asks for the board. Behind a loopback port the name of another site, which its
/// DNS led to this machine, is refused.
pub(crate) fn check_host(host: &str, entrance: Option<&Entrance>, more: &[String]) -> Result<(), CrossSite> {
    let Some(entrance) = entrance.filter(|entrance| entrance.address.ip().is_loopback()) else {
        return Ok(());
    };
    let usual = if entrance.is_tls { 443 } else { 80 };
    let listens = entrance.address;
    let own = |name: &str| {
        let with_port = format!("{name}:{}", listens.port());
        host.eq_ignore_ascii_case(&with_port) || (listens.port() == usual && host.eq_ignore_ascii_case(name))
    };
    let address = match listens.ip() {
        std::net::IpAddr::V4(v4) => v4.to_string(),
        std::net::IpAddr::V6(v6) => format!("[{v6}]"),
    };
    let is_own = ["localhost", "127.0.0.1", "[::1]", address.as_str()].into_iter().any(own);
    let is_own = is_own || more.iter().any(|name| name.eq_ignore_ascii_case(host));
    if is_own { Ok(()) } else { Err(CrossSite::Host) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Names and values of headers.
    type Said<'a> = &'a [(&'static str, &'a str)];

    fn headers(said: Said<'_>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        said.iter().for_each(|(name, value)| _ = headers.append(*name, value.parse().unwrap()));
        headers
    }

    fn request_origin<'a>(method: &'a Method, headers: &'a HeaderMap, has_body: bool) -> RequestOrigin<'a> {
        RequestOrigin { method, host: "farm:7117", headers, has_body }
    }

    const OWN: (&str, &str) = ("origin", "http://farm:7117");
    const MARK: (&str, &str) = ("x-windlass-board", "1");
    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
    const SAME: (&str, &str) = ("sec-fetch-site", "same-origin");

    #[test]
    fn a_request_with_a_session_is_the_board_s_own() {
        use CrossSite::{ContentType, FetchSite, Mark, Origin};
        let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
        let cases: [(&Method, Said<'_>, bool, Result<(), CrossSite>); 24] = [
            (&get, &[], false, Ok(())),
            (&get, &[SAME], false, Ok(())),
            (&get, &[OWN, SAME], false, Ok(())),
            (&Method::HEAD, &[SAME], false, Ok(())),
            (&get, &[("sec-fetch-site", "none")], false, Err(FetchSite)),
            (&get, &[("sec-fetch-site", "same-site")], false, Err(FetchSite)),
            (&get, &[("sec-fetch-site", "cross-site")], false, Err(FetchSite)),
            (&get, &[("origin", "http://farm:7118")], false, Err(Origin)),
            (&get, &[("origin", "null")], false, Err(Origin)),
            (&get, &[OWN, ("origin", "http://evil.example")], false, Err(Origin)),
            (&post, &[OWN, MARK, SAME], false, Ok(())),
            (&post, &[OWN, MARK, SAME, JSON], true, Ok(())),
            (&post, &[("origin", "https://farm:7117"), MARK], false, Ok(())),
            (&post, &[MARK, SAME], false, Err(Origin)),
            (&post, &[OWN, SAME], false, Err(Mark)),
            (&post, &[OWN, ("x-windlass-board", "0")], false, Err(Mark)),
            (&post, &[OWN, MARK, ("sec-fetch-site", "same-site")], false, Err(FetchSite)),
            (&post, &[OWN, MARK], true, Err(ContentType)),
            (&post, &[OWN, MARK, ("content-type", "text/plain")], true, Err(ContentType)),
            (
                &post,
                &[OWN, MARK, ("content-type", "application/x-www-form-urlencoded")],
                true,
                Err(ContentType),
            ),
            (&post, &[("origin", "ftp://farm:7117"), MARK], false, Err(Origin)),
            (&post, &[("origin", "http://farm:7117.evil.example"), MARK], false, Err(Origin)),
            (&delete, &[OWN], false, Err(Mark)),
            (&Method::PUT, &[OWN, MARK, JSON], true, Ok(())),
        ];
        for (method, said, has_body, answer) in cases {
            let headers = headers(said);
            assert_eq!(
                request_origin(method, &headers, has_body).check_session(),
                answer,
                "{method} {said:?} {has_body}"
            );
        }
    }

    #[test]
    fn nobody_is_signed_in_by_another_site() {
        let cases: [(Said<'_>, Result<(), CrossSite>); 6] = [
            (&[JSON], Ok(())),
            (&[JSON, OWN, SAME], Ok(())),
            (&[OWN], Err(CrossSite::ContentType)),
            (&[("content-type", "text/plain")], Err(CrossSite::ContentType)),
            (&[JSON, ("origin", "http://evil.example")], Err(CrossSite::Origin)),
            (&[JSON, ("sec-fetch-site", "cross-site")], Err(CrossSite::FetchSite)),
        ];
        for (said, answer) in cases {
            let headers = headers(said);
            assert_eq!(request_origin(&Method::POST, &headers, true).check_sign_in(), answer, "{said:?}");
        }
    }

    #[test]
    fn a_link_may_lead_to_the_board_and_nothing_else_may() {
        let link: Said<'_> = &[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let frame: Said<'_> =
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
        let script: Said<'_> =
            &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")];
        let cases: [(Said<'_>, bool); 5] =
            [(&[], true), (&[SAME], true), (link, true), (frame, false), (script, false)];
        for (said, fine) in cases {
            let headers = headers(said);
            assert_eq!(request_origin(&Method::GET, &headers, false).check_page().is_ok(), fine, "{said:?}");
        }
    }

    #[test]
    fn behind_a_loopback_port_only_names_of_this_machine_pass() {
        let at =
            |address: &str| Entrance { address: address.parse().unwrap(), is_tls: false, for_board: false };
        let here = at("127.0.0.1:7117");
        for host in ["localhost:7117", "127.0.0.1:7117", "[::1]:7117", "LOCALHOST:7117", "proxy.example"] {
            let more = ["proxy.example".to_owned()];
            assert_eq!(check_host(host, Some(&here), &more), Ok(()), "{host}");
        }
        let others = ["evil.example:7117", "localhost", "localhost:7118", "127.0.0.2:7117", "", "?"];
        for host in others {
            assert_eq!(check_host(host, Some(&here), &[]), Err(CrossSite::Host), "{host}");
        }
        assert_eq!(check_host("127.0.0.2:1", Some(&at("127.0.0.2:1")), &[]), Ok(()));
        assert_eq!(check_host("localhost", Some(&at("[::1]:80")), &[]), Ok(()));
        assert_eq!(check_host("farm.example", Some(&at("10.0.0.1:7117")), &[]), Ok(()));
        assert_eq!(check_host("localhost", None, &[]), Ok(()));
    }

    proptest! {
        /// Nothing but the four facts together lets a change pass.
        #[test]
        fn a_change_needs_origin_and_mark(
            origin in prop::option::of("[ -~]{0,30}"), mark in prop::option::of("[ -~]{0,3}"),
            site in prop::option::of("[ -~]{0,12}"), kind in prop::option::of("[ -~]{0,20}"), has_body: bool,
        ) {
            let all = [("origin", &origin), (BOARD_HEADER, &mark), ("sec-fetch-site", &site), ("content-type", &kind)];
            let mut headers = HeaderMap::new();
            for (name, value) in all {
                if let Some(value) = value {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            let passes = request_origin(&Method::POST, &headers, has_body).check_session().is_ok();
            let own = origin.as_deref().is_some_and(|origin| is_origin_of(origin, "farm:7117"));
            prop_assert!(!passes || (own && mark.as_deref() == Some("1")));
        }

        #[test]
        fn an_origin_is_of_one_host(host in "[a-z0-9.:\\[\\]]{1,30}", other in "[ -~]{0,30}") {
            let origin = format!("https://{}", host);
            prop_assert!(is_origin_of(&origin, &host));
            prop_assert_eq!(is_origin_of(&other, &host), other.to_lowercase() == format!("http://{}", host)
                || other.to_lowercase() == format!("https://{}", host));
        }
    }
}
