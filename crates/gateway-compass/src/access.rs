//! Who may do what. Where the server asks for tokens, those of this interface come in three ways: in the
//! header like everywhere (a boot loader sends it as a password), in a job's `my_token`, and, for what a job
//! tells of itself, as the `job_token` that its host was given.

use crate::App;
use crate::format::Fields;
use crate::format::text_of;
use crate::record::{BookedHost, Record};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use subtle::ConstantTimeEq as _;
use windlass_core::JobId;
use windlass_server::Unavailable;
use windlass_server::auth::{Caller, Role};

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
pub(super) fn is_open(path: &str) -> bool {
    path == "/" || PATHS.iter().any(|ours| path.starts_with(ours))
}

/// True where a token may come as a password: whoever boots a machine or opens a list in a browser has no other way.
/// Nothing changes there, so it does no harm that browsers repeat a password for every page.
pub(super) fn takes_password(method: &Method, path: &str) -> bool {
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
pub(super) fn takes_token_in_body(path: &str) -> bool {
    let has_fields = path.starts_with("/scheduler/v1/jobs/") && !path.ends_with("/update");
    has_fields || path == "/submit_job" || path.starts_with("/scheduler/v1/accounts/")
}

/// The token that the beginning of a job's fields shows as `my_token`, in JSON or YAML. It is searched for, not
/// parsed: the fields themselves are looked at only once it is known.
pub(super) fn token_in(start: &[u8]) -> Option<&str> {
    const KEY: &[u8] = b"my_token";
    let at = start.windows(KEY.len()).position(|word| word == KEY)? + KEY.len();
    let rest = &start[at..];
    let between = rest.iter().take_while(|byte| b"\"': \t\r\n".contains(byte)).count();
    let token = &rest[between..];
    let bytes = token.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    std::str::from_utf8(&token[..bytes]).ok().filter(|token| !token.is_empty())
}

/// True of files, whose bodies are read as they come.
pub(super) fn is_file(path: &str) -> bool {
    path.starts_with("/srv/") || path.starts_with("/result/")
}

/// True of requests that tell or ask how far a job is, and change nothing for people.
pub(super) fn is_report(path: &str) -> bool {
    if is_file(path) {
        return true;
    }
    let Some(rest) = path.strip_prefix("/scheduler/v1/jobs/") else { return false };
    rest == "wait" || rest.ends_with("/update")
}

/// True of whoever may act as a job: it shows the job's token, or it is the host that has the job. A bare machine is
/// also known by the address from which it booted, where that is allowed. A provider is not, because its guests come
/// from there, too.
fn speaks_for(
    place: &BookedHost,
    caller: Option<&Caller>,
    token: Option<&str>,
    address: Option<IpAddr>,
) -> bool {
    let knows = token.is_some_and(|token| bool::from(token.as_bytes().ct_eq(place.token.as_bytes())));
    let is_host = caller.is_some_and(|caller| {
        caller.role == Role::Worker && caller.worker.as_deref() == Some(place.host.as_str())
    });
    let is_machine = place.hw && address.is_some() && address == place.reached.address;
    knows || is_host || is_machine
}

/// The same of a job by its number. No more than what is kept of its host is read before that is known.
pub(super) async fn speaks_for_job(
    app: &App,
    job: JobId,
    caller: Option<&Caller>,
    token: Option<&str>,
    address: Option<IpAddr>,
) -> Result<bool, Unavailable> {
    let kept = app.handle.store().foreign_job(job).await.map_err(|error| Unavailable::from_store(&error))?;
    let record = kept.and_then(|text| serde_json::from_str::<Record>(&text).ok());
    let place = record.and_then(|record| record.place);
    Ok(place.is_some_and(|place| speaks_for(&place, caller, token, address)))
}

/// An answer that is not what was asked for.
pub(super) struct Refused(Box<Response>);

impl From<Response> for Refused {
    fn from(response: Response) -> Self {
        Refused(Box::new(response))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// An answer in plain text.
pub(super) fn say(status: StatusCode, text: impl Into<String>) -> Response {
    (status, text.into()).into_response()
}

fn refuse(caller: Option<&Caller>) -> Refused {
    let response = match caller {
        None => say(StatusCode::UNAUTHORIZED, "this server asks for a token, and the request has none"),
        Some(_) => say(StatusCode::FORBIDDEN, "this token's role does not allow it"),
    };
    response.into()
}

/// Whoever may look at jobs.
pub(super) fn check_look(caller: Option<&Caller>) -> Result<&Caller, Refused> {
    let looks = |caller: &&Caller| matches!(caller.role, Role::Admin | Role::User | Role::Viewer);
    caller.filter(looks).ok_or_else(|| refuse(caller))
}

/// The host itself, or an administrator.
pub(super) fn check_host(caller: Option<&Caller>, host: &str) -> Result<(), Refused> {
    let is_host = |caller: &Caller| {
        caller.role == Role::Admin || (caller.role == Role::Worker && caller.worker.as_deref() == Some(host))
    };
    if caller.is_some_and(is_host) { Ok(()) } else { Err(refuse(caller)) }
}

/// Any host, or an administrator.
pub(super) fn check_any_host(caller: Option<&Caller>) -> Result<(), Refused> {
    let is_host = |caller: &Caller| matches!(caller.role, Role::Admin | Role::Worker);
    if caller.is_some_and(is_host) { Ok(()) } else { Err(refuse(caller)) }
}

/// Whoever may act on what is an account's.
pub(super) fn check_owner(caller: Option<&Caller>, account: &str) -> Result<(), Refused> {
    if caller.is_some_and(|caller| caller.may_act_for(account)) { Ok(()) } else { Err(refuse(caller)) }
}

/// Who sends these fields: whoever the header says, or whom `my_account` and `my_token` show. The answers
/// are those that clients of Compass CI know.
pub(super) fn account_of(app: &App, caller: Option<Caller>, fields: &Fields) -> Result<Caller, Refused> {
    let Some(account) = text_of(fields, "my_account").filter(|account| !account.is_empty()) else {
        let text = "Missing required job key: my_account\nPut my_account, my_token, my_email and my_name into \
                    ~/.config/compass-ci/defaults/account.yaml";
        return Err(say(StatusCode::BAD_REQUEST, text).into());
    };
    let token = text_of(fields, "my_token");
    let caller = match (caller, token) {
        (Some(caller), _) => Some(caller),
        (None, Some(token)) => app.auth().of_token(&token),
        (None, None) => None,
    };
    match caller {
        Some(caller) if caller.may_act_for(&account) => {
            app.front.known_as(&caller);
            Ok(caller)
        }
        // Whoever shows no token that is known does not hear which accounts there are.
        Some(_) if !app.auth().knows_user(&account) => {
            Err(say(StatusCode::NOT_FOUND, format!("Account {account} not found")).into())
        }
        _ => {
            let text = "Failed to verify the account: my_token is not one of my_account's that may submit";
            Err(say(StatusCode::UNAUTHORIZED, text).into())
        }
    }
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
