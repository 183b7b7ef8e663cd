//! The rights that a new token may have beyond its role.

use windlass_api::{CacheRight, CreateToken, NAME_PATTERNS_MAX, Role, is_name_pattern};
use windlass_core::bounds::NAME_BYTES_MAX;
use windlass_core::engine::SERVABLE;

/// Refuses rights that are not of the role, and a submitter's token that leaves one out. The error says why.
pub(super) fn check_rights(request: &CreateToken) -> Result<(), String> {
    let bad = |why: &str| Err(why.to_owned());
    let CreateToken { role, serves, for_users, queue, cache, .. } = request;
    if !serves.is_empty() && *role != Role::Worker {
        return bad(
            "only a token of the role worker has the right that its worker serves other systems' clients",
        );
    }
    if let Some(system) = serves.iter().find(|system| !SERVABLE.contains(&system.as_str())) {
        return Err(format!("a worker serves clients of {}, not of '{system}'", SERVABLE.join(" and ")));
    }
    match (role, cache) {
        (_, None) | (Role::User, Some(_)) | (Role::Viewer, Some(CacheRight::Read)) => {}
        (Role::Viewer, Some(CacheRight::Write)) => {
            return bad("a token of the role viewer changes nothing; give --role user with --cache write");
        }
        _ => return bad("only tokens of the roles user and viewer have a right to the cache of their own"),
    }
    match (role, for_users.is_empty(), queue) {
        (Role::Submitter, true, _) => {
            return bad("a token of the role submitter needs the users that it submits for, such as film-*");
        }
        (Role::Submitter, false, None) => {
            return bad("a token of the role submitter needs the queue that it submits to");
        }
        (Role::Submitter, false, Some(_)) | (_, true, None) => {}
        _ => return bad("only a token of the role submitter names users and a queue to submit for"),
    }
    if for_users.len() > NAME_PATTERNS_MAX || !for_users.iter().all(|pattern| is_name_pattern(pattern)) {
        return Err(format!(
            "a token names {NAME_PATTERNS_MAX} patterns of users at most, each of 1 to {NAME_BYTES_MAX} bytes without blanks"
        ));
    }
    Ok(())
}
