//! The paths of the interface, and what the server admits on each before a handler checks the request.

use axum::http::Method;

/// The beginnings of the interface's paths.
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

const UPDATE: &str = "POST /scheduler/v1/jobs/ID/update?job_stage=…";
const CANCEL: &str = "POST /scheduler/v1/jobs/ID/cancel";
const RENEW: &str = "POST /scheduler/v1/jobs/ID/update?renew_seconds=…";
const SHOW: &str = "GET /scheduler/v1/jobs/ID";
const HOST: &str = "GET /scheduler/v1/hosts/HOST";
const REGISTER: &str = "POST /scheduler/v1/hosts/HOST";
const PROVIDE: &str = "the WebSocket /scheduler/v1/vm-container-provider/HOST";
const LISTS: &str = "GET /scheduler/v1/dashboard/jobs/pending or running";
const WATCH: &str = "the WebSocket /scheduler/v1/client";

/// Below this the proxy of a laboratory of 2022 shows the scheduler's own paths.
pub(crate) const PROXIED: &str = "/scheduler";

/// Paths of the clients of 2022 and before, as the router has them, and what is asked today instead. Those that do not
/// begin with [`PROXIED`] are served below it, too.
pub(crate) const MOVED: [(&str, &str); 28] = [
    ("/cancel_jobs", CANCEL),
    ("/scheduler/cancel-jobs", CANCEL),
    ("/scheduler/submit-job", "POST /scheduler/v1/jobs/submit"),
    ("/scheduler/stop-job/{job}", "POST /scheduler/v1/jobs/ID/terminate"),
    ("/scheduler/wait-jobs", "POST /scheduler/v1/jobs/wait"),
    ("/renew_deadline", RENEW),
    ("/scheduler/renew-deadline", RENEW),
    ("/get_deadline", SHOW),
    ("/scheduler/get-deadline", SHOW),
    ("/get_testbox", HOST),
    ("/scheduler/get-testbox", HOST),
    ("/register-host", REGISTER),
    ("/set_host_mac", REGISTER),
    ("/del_host_mac", REGISTER),
    ("/set_host2queues", REGISTER),
    ("/del_host2queues", REGISTER),
    ("/heart-beat", PROVIDE),
    ("/ws/{*boot}", PROVIDE),
    ("/scheduler/vm-container-provider/{host}", PROVIDE),
    ("/scheduler/client", WATCH),
    ("/filter", WATCH),
    ("/report_event", UPDATE),
    ("/scheduler/report-event", UPDATE),
    ("/~lkp/cgi-bin/{*report}", UPDATE),
    ("/scheduler/lkp/{*report}", UPDATE),
    ("/data_api/{*query}", LISTS),
    ("/web_backend/{*query}", LISTS),
    ("/scheduler/job-initrd-tmpfs/{job}/{file}", "GET /srv/scheduler/pending-jobs/ID/job.cgz"),
];

/// True for paths whose handlers check the caller themselves. A client may show its token in the body, and anybody may
/// ask whether the scheduler runs, and where an older path has gone.
pub(crate) fn is_open(path: &str) -> bool {
    path == "/" || PATHS.iter().any(|start| path.starts_with(start)) || is_moved(path)
}

fn is_moved(path: &str) -> bool {
    let below = path.strip_prefix(PROXIED).filter(|rest| !rest.starts_with(PROXIED));
    MOVED.iter().any(|(pattern, _)| fits(path, pattern) || below.is_some_and(|path| fits(path, pattern)))
}

fn fits(path: &str, pattern: &str) -> bool {
    match pattern.split_once('{') {
        Some((start, _)) => path.starts_with(start),
        None => path == pattern,
    }
}

/// True if a token may come as a password, because boot loaders and browsers can show no other. Requests there change
/// nothing, so it does no harm that browsers repeat a password on every page.
pub(crate) fn takes_password(method: &Method, path: &str) -> bool {
    const LOOKS: [&str; 9] = [
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
    (method == Method::GET || method == Method::HEAD) && LOOKS.iter().any(|start| path.starts_with(start))
}

/// True if the fields in the body may show a token: those of a job, and those of a new account, which show an
/// administrator's. Updates of jobs show one in the query.
pub(crate) fn takes_token_in_body(path: &str) -> bool {
    let has_fields = path.starts_with("/scheduler/v1/jobs/") && !path.ends_with("/update");
    has_fields || path == "/submit_job" || path.starts_with("/scheduler/v1/accounts/")
}

/// The token in `my_token` at the beginning of a job's fields, in JSON or YAML. The text is searched and not parsed,
/// because parsing comes after the check of the token.
pub(crate) fn token_in(start: &[u8]) -> Option<&str> {
    const KEY: &[u8] = b"my_token";
    let at = start.windows(KEY.len()).position(|word| word == KEY)? + KEY.len();
    let rest = &start[at..];
    let between = rest.iter().take_while(|byte| b"\"': \t\r\n".contains(byte)).count();
    let token = &rest[between..];
    let bytes = token.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    std::str::from_utf8(&token[..bytes]).ok().filter(|token| !token.is_empty())
}

/// True for files, whose bodies are streamed.
pub(crate) fn is_file(path: &str) -> bool {
    path.starts_with("/srv/") || path.starts_with("/result/")
}

/// True for requests that report or ask for a job's progress, and change nothing for people.
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
    fn older_paths_are_the_gateway_s_and_their_neighbours_are_not() {
        for path in [
            "/cancel_jobs",
            "/scheduler/cancel_jobs",
            "/~lkp/cgi-bin/lkp-post-run",
            "/scheduler/~lkp/cgi-bin/lkp-wtmp",
            "/scheduler/stop-job/7",
            "/filter",
            "/web_backend/get_jobs",
        ] {
            assert!(is_open(path), "{path}");
        }
        for path in [
            "/cancel_jobs/1",
            "/filters",
            "/scheduler",
            "/~lkp/x",
            "/scheduler/scheduler/client",
            "/api/v1/jobs",
        ] {
            assert!(!is_open(path), "{path}");
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
