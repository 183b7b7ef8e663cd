//! The paths of the interface, and what the server lets pass on each before a handler looks.

use axum::http::Method;

/// Where the interface is.
const PATHS: [&str; 9] = [
    "/scheduler/v1/",
    "/boot.ipxe/",
    "/boot.grub/",
    "/boot.native/",
    "/boot.libvirt/",
    "/submit_job",
    "/srv/",
    "/result/",
    "/job_initrd_tmpfs/",
];

/// True of paths on which the handlers ask who it is: a client may show its token in the body, and anybody may
/// ask whether the scheduler is there.
pub(crate) fn is_open(path: &str) -> bool {
    path == "/" || PATHS.iter().any(|ours| path.starts_with(ours))
}

/// True where a token may come as a password: whoever boots a machine or opens a list in a browser has no other way.
/// Nothing changes there, so it does no harm that browsers repeat a password for every page.
pub(crate) fn takes_password(method: &Method, path: &str) -> bool {
    const PATHS: [&str; 9] = [
        "/boot.ipxe/",
        "/boot.grub/",
        "/boot.native/",
        "/boot.libvirt/",
        "/srv/",
        "/scheduler/v1/jobs/dispatch",
        "/scheduler/v1/dashboard/",
        "/scheduler/v1/debug/",
        "/scheduler/v1/hosts/",
    ];
    (method == Method::GET || method == Method::HEAD) && PATHS.iter().any(|ours| path.starts_with(ours))
}

/// True where the fields in the body may show a token: those of a job, and an administrator's for a new account. What a job
/// tells of itself stands in the query.
pub(crate) fn takes_token_in_body(path: &str) -> bool {
    let has_fields = path.starts_with("/scheduler/v1/jobs/") && !path.ends_with("/update");
    has_fields || path == "/submit_job" || path.starts_with("/scheduler/v1/accounts/")
}

/// The token that the beginning of a job's fields shows as `my_token`, in JSON or YAML. It is searched for, not
/// parsed: the fields themselves are looked at only once it is known.
pub(crate) fn token_in(start: &[u8]) -> Option<&str> {
    const KEY: &[u8] = b"my_token";
    let at = start.windows(KEY.len()).position(|word| word == KEY)? + KEY.len();
    let rest = &start[at..];
    let between = rest.iter().take_while(|byte| b"\"': \t\r\n".contains(byte)).count();
    let token = &rest[between..];
    let bytes = token.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    std::str::from_utf8(&token[..bytes]).ok().filter(|token| !token.is_empty())
}

/// True of files, whose bodies are read as they come.
pub(crate) fn is_file(path: &str) -> bool {
    path.starts_with("/srv/") || path.starts_with("/result/")
}

/// True of requests that tell or ask how far a job is, and change nothing for people.
pub(crate) fn is_report(path: &str) -> bool {
    if is_file(path) {
        return true;
    }
    let Some(rest) = path.strip_prefix("/scheduler/v1/jobs/") else { return false };
    rest == "wait" || rest.ends_with("/update")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_before_the_fields_are_parsed() {
        let cases: [(&[u8], Option<&str>); 6] = [
            (b"{\"my_token\": \"wl_a_b\", \"x\": [", Some("wl_a_b")),
            (b"my_token: wl_a_b\nother: 1", Some("wl_a_b")),
            (b"my_token: 'wl_a_b'", Some("wl_a_b")),
            (b"{\"my_token\": \xff", None),
            (b"my_token", None),
            (b"{\"a\": 1}", None),
        ];
        for (start, token) in cases {
            assert_eq!(token_in(start), token, "{:?}", String::from_utf8_lossy(start));
        }
    }

    #[test]
    fn passwords_are_for_looking() {
        assert!(takes_password(&Method::GET, "/boot.ipxe/mac/00-11-22-33-44-55"));
        assert!(!takes_password(&Method::POST, "/scheduler/v1/hosts/h"));
        assert!(!takes_password(&Method::GET, "/api/v1/jobs"));
        assert!(!takes_password(&Method::GET, "/scheduler/v1/client"));
    }
}
