//! The board's pages, which are in the program: one page for all of the board's paths, and the files that it loads.

use axum::body::{Body, HttpBody as _};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

/// The content security policy of the page: its own scripts and styles, and requests to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Said with every page and with every answer to a session: nothing of it is for other sites.
const HARDENING: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
/// For a file whose name changes with its content, and for all others.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
const ASK_AGAIN: &str = "no-cache";
/// Where files are whose names change with their content.
const HASHED_DIR: &str = "/assets/";
/// The first segments of the board's paths. Those with `true` have paths beneath them.
const VIEWS: [(&str, bool); 6] = [
    ("jobs", true),
    ("workers", true),
    ("queues", true),
    // Beneath it are paths of another interface.
    ("scheduler", false),
    ("history", false),
    ("", false),
];

pub(crate) struct EmbeddedFile {
    path: &'static str,
    kind: &'static str,
    /// Of the content, as hexadecimal digits.
    tag: &'static str,
    plain: &'static [u8],
    /// The same compressed, if that is smaller.
    gzip: Option<&'static [u8]>,
}

const FILES: &[EmbeddedFile] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// The file that a path of the board shows; `None` if it is none of the board's paths.
pub(crate) fn find(path: &str) -> Option<&'static EmbeddedFile> {
    let path = if is_view(path) { "/index.html" } else { path };
    FILES.iter().find(|file| file.path == path)
}

fn is_view(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let (first, beneath) = rest.split_once('/').unwrap_or((rest, ""));
    VIEWS.iter().any(|(view, deep)| *view == first && (*deep || beneath.is_empty()) && !rest.starts_with('/'))
}

pub(crate) fn answer(file: &'static EmbeddedFile, method: &Method, headers: &HeaderMap) -> Response<Body> {
    let packed = file.gzip.filter(|_| takes_gzip(headers));
    // Each form has a tag of its own.
    let tag = format!("\"{}{}\"", file.tag, if packed.is_some() { "-gzip" } else { "" });
    let known = values(headers, header::IF_NONE_MATCH).any(|value| names_tag(value, &tag));
    let bytes = packed.unwrap_or(file.plain);
    let body = if known || method == Method::HEAD { Body::empty() } else { Body::from(bytes) };
    let mut response = Response::new(body);
    let into = response.headers_mut();
    let caching = if file.path.starts_with(HASHED_DIR) { FOR_EVER } else { ASK_AGAIN };
    for (name, value) in [
        (header::CACHE_CONTROL, caching),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::VARY, "accept-encoding"),
    ] {
        into.insert(name, HeaderValue::from_static(value));
    }
    harden(into);
    into.insert(header::ETAG, HeaderValue::try_from(tag).expect("it has hexadecimal digits and quotes"));
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    into.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    into.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    if packed.is_some() {
        into.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    debug_assert!(response.body().size_hint().exact().is_some());
    response
}

/// Says that an answer is for the page of this server alone.
pub(crate) fn harden(headers: &mut HeaderMap) {
    for (name, value) in HARDENING {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn values(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
}

/// Whether one of the tags in an `If-None-Match` is this one. Weak and strong tags are compared alike there.
fn names_tag(value: &str, tag: &str) -> bool {
    let mut each = value.split(',').map(str::trim);
    each.any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

/// Whether the client says that it takes gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    values(headers, header::ACCEPT_ENCODING).any(|value| value.split(',').any(is_gzip))
}

fn is_gzip(coding: &str) -> bool {
    let mut parts = coding.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let refused = parts.any(|part| {
        let quality = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
        quality.is_some_and(|quality| quality.parse::<f32>().is_ok_and(|quality| quality == 0.0))
    });
    (name.eq_ignore_ascii_case("gzip") || name == "*") && !refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use proptest::prelude::*;
    use std::io::Read as _;

    fn ask(path: &str, headers: &[(HeaderName, &str)]) -> Response<Body> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.clone(), value.parse().unwrap());
        }
        answer(find(path).unwrap(), &Method::GET, &map)
    }

    fn text<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn asset() -> &'static str {
        FILES.iter().find(|file| file.path.ends_with(".js")).expect("the board has a script").path
    }

    #[test]
    fn every_path_of_the_board_is_one_page() {
        for path in [
            "/",
            "/jobs",
            "/jobs/12",
            "/jobs/12/why",
            "/workers/box%201",
            "/queues",
            "/scheduler",
            "/history",
        ] {
            assert_eq!(find(path).unwrap().path, "/index.html", "{path}");
        }
        let others = [
            "/api/v1/jobs",
            "/api",
            "/jobsx",
            "/scheduler/v1/health",
            "//",
            "/assets/none.js",
            "",
            "/openapi.json",
        ];
        for path in others {
            assert!(find(path).is_none(), "{path}");
        }
        assert_eq!(find(asset()).unwrap().path, asset());
    }

    #[test]
    fn a_page_is_asked_for_again_and_an_asset_never() {
        assert_eq!(text(&ask("/", &[]), "cache-control"), "no-cache");
        assert!(text(&ask(asset(), &[]), "cache-control").contains("immutable"));
        let page = ask("/jobs/1", &[]);
        assert_eq!(text(&page, "content-security-policy"), POLICY);
        assert_eq!(text(&page, "content-type"), "text/html; charset=utf-8");
        assert_eq!(text(&page, "x-content-type-options"), "nosniff");
        assert_eq!(text(&page, "cross-origin-resource-policy"), "same-origin");
    }

    #[test]
    fn a_known_tag_is_answered_without_a_body() {
        for encoding in ["gzip, br", "identity"] {
            let first = ask(asset(), &[(header::ACCEPT_ENCODING, encoding)]);
            let tag = text(&first, "etag").to_owned();
            assert!(tag.starts_with('"'), "{tag} is not strong");
            let with = [(header::ACCEPT_ENCODING, encoding), (header::IF_NONE_MATCH, tag.as_str())];
            let again = ask(asset(), &with);
            assert_eq!(
                (again.status(), again.body().size_hint().exact()),
                (StatusCode::NOT_MODIFIED, Some(0))
            );
            assert_eq!(text(&again, "etag"), tag);
        }
        let other = [(header::IF_NONE_MATCH, "\"x\"")];
        assert_eq!(ask(asset(), &other).status(), StatusCode::OK);
    }

    #[test]
    fn what_is_packed_is_the_file() {
        for file in FILES {
            let Some(packed) = file.gzip else { continue };
            let mut plain = Vec::new();
            GzDecoder::new(packed).read_to_end(&mut plain).unwrap();
            assert!(plain == file.plain, "{}", file.path);
        }
        let packed = ask("/", &[(header::ACCEPT_ENCODING, "gzip")]);
        let plain = ask("/", &[(header::ACCEPT_ENCODING, "gzip;q=0, br")]);
        assert_eq!((text(&packed, "content-encoding"), text(&plain, "content-encoding")), ("gzip", ""));
        assert_ne!(text(&packed, "etag"), text(&plain, "etag"));
    }

    /// The policy forbids what is written into the page itself.
    #[test]
    fn the_page_has_neither_inline_scripts_nor_styles() {
        let page = std::str::from_utf8(find("/").unwrap().plain).unwrap();
        let scripts = page.matches("<script").count();
        assert_eq!(page.matches("src=\"/assets/").count(), scripts, "a script is not a file");
        for banned in ["<style", " style=", " onload=", " onclick=", "javascript:"] {
            assert!(!page.contains(banned), "{banned}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_client_says_is_answered(value in "[ -~]{0,60}", path in "[ -~]{0,40}") {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
            headers.insert(header::IF_NONE_MATCH, value.parse().unwrap());
            let answer = answer(find("/").unwrap(), &Method::GET, &headers);
            prop_assert!(matches!(answer.status(), StatusCode::OK | StatusCode::NOT_MODIFIED));
            prop_assert!(find(&path).is_none_or(|file| file.path == "/index.html" || file.path == path));
            let beneath = format!("/api/{path}");
            prop_assert!(find(&beneath).is_none());
        }
    }
}
