//! Access checks. Where the server asks for tokens, clients of this interface show one in three ways: in the header,
//! where a boot loader sends it as a password; in a job's `my_token`; or, for what a job reports of itself, as the
//! `job_token` that its host was given.

use crate::answer::{Refused, say};
use crate::format::{Fields, text_of};
use crate::record::{BookedHost, Record};
use axum::http::StatusCode;
use std::net::IpAddr;
use windlass_core::JobId;
use windlass_server::auth::{Caller, Role};
use windlass_server::{Front, Handle, Unavailable};

/// True if the request may act as the job: it shows the job's token, or it comes from the host that has the job. A bare
/// machine is also known by the address from which it booted, where the settings allow that. A provider is not known by
/// its address, because its guests share that address.
fn speaks_for(
    place: &BookedHost,
    caller: Option<&Caller>,
    token: Option<&str>,
    address: Option<IpAddr>,
) -> bool {
    let knows = token.is_some_and(|token| place.has_token(token));
    let is_host = caller.is_some_and(|caller| {
        caller.role == Role::Worker && caller.worker.as_deref() == Some(place.host.as_str())
    });
    let is_machine = place.hw && address.is_some() && address == place.reached.address;
    knows || is_host || is_machine
}

/// [`speaks_for`], for a job by its number. Reads only the job's record, because the request is not trusted yet.
pub(crate) async fn speaks_for_job(
    handle: &Handle,
    job: JobId,
    caller: Option<&Caller>,
    token: Option<&str>,
    address: Option<IpAddr>,
) -> Result<bool, Unavailable> {
    let place = Record::kept(handle, job).await?.and_then(|record| record.place);
    Ok(place.is_some_and(|place| speaks_for(&place, caller, token, address)))
}

fn refuse(caller: Option<&Caller>) -> Refused {
    let response = match caller {
        None => say(StatusCode::UNAUTHORIZED, "this server asks for a token, and the request has none"),
        Some(caller) if caller.token.is_none() => {
            let (user, role) = (&caller.user, caller.role.as_str());
            say(
                StatusCode::FORBIDDEN,
                format!("user '{user}' has the role {role} here, which does not allow it"),
            )
        }
        Some(_) => say(StatusCode::FORBIDDEN, "this token's role does not allow it"),
    };
    response.into()
}

/// Admits callers that may look at jobs: administrators, users and viewers.
pub(crate) fn check_look(caller: Option<&Caller>) -> Result<&Caller, Refused> {
    match caller {
        Some(caller) if matches!(caller.role, Role::Admin | Role::User | Role::Viewer) => Ok(caller),
        _ => Err(refuse(caller)),
    }
}

/// Admits administrators, and no other caller.
pub(crate) fn check_admin(caller: Option<&Caller>) -> Result<(), Refused> {
    match caller {
        Some(Caller { role: Role::Admin, .. }) => Ok(()),
        _ => Err(refuse(caller)),
    }
}

/// Admits the host itself and administrators.
pub(crate) fn check_host(caller: Option<&Caller>, host: &str) -> Result<(), Refused> {
    match caller {
        Some(Caller { role: Role::Admin, .. }) => Ok(()),
        Some(caller) if caller.role == Role::Worker && caller.worker.as_deref() == Some(host) => Ok(()),
        _ => Err(refuse(caller)),
    }
}

/// Admits every host and administrators.
pub(crate) fn check_any_host(caller: Option<&Caller>) -> Result<(), Refused> {
    match caller {
        Some(Caller { role: Role::Admin | Role::Worker, .. }) => Ok(()),
        _ => Err(refuse(caller)),
    }
}

/// Admits callers that may act for the account.
pub(crate) fn check_owner(caller: Option<&Caller>, account: &str) -> Result<(), Refused> {
    if caller.is_some_and(|caller| caller.may_act_for(account)) { Ok(()) } else { Err(refuse(caller)) }
}

/// The submitter of these fields: the caller that the header shows, or the account that `my_account` and `my_token`
/// show. Clients of Compass CI know the texts of the refusals.
pub(crate) fn account_of(front: &Front, caller: Option<Caller>, fields: &Fields) -> Result<Caller, Refused> {
    let Some(account) = text_of(fields, "my_account").filter(|account| !account.is_empty()) else {
        let text = "Missing required job key: my_account\nPut my_account, my_token, my_email and my_name into \
                    ~/.config/compass-ci/defaults/account.yaml";
        return Err(say(StatusCode::BAD_REQUEST, text).into());
    };
    let token = text_of(fields, "my_token");
    let caller = match (caller, token) {
        (Some(caller), _) => Some(caller),
        (None, Some(token)) => front.auth().of_token(&token),
        (None, None) => None,
    };
    match caller {
        Some(caller) if caller.may_act_for(&account) => {
            front.known_as(&caller);
            Ok(caller)
        }
        // Without a valid token the answer does not tell which accounts exist.
        Some(_) if !front.auth().knows_user(&account) => {
            Err(say(StatusCode::NOT_FOUND, format!("Account {account} not found")).into())
        }
        _ => {
            let text = "Failed to verify the account: my_token is not one of my_account's that may submit";
            Err(say(StatusCode::UNAUTHORIZED, text).into())
        }
    }
}
