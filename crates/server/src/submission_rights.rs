//! Rights to submit: to which queues a user may submit, at which priority, how often, and how much in all.

use crate::api_error::ApiError;
use crate::auth::{Caller, Role};
use crate::config::UserLimits;
use crate::handle::Handle;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use windlass_api::ErrorCode;
use windlass_core::job::OnEnd;
use windlass_core::queues::QueueRecord;
use windlass_core::resources::Bytes;

/// Users whose rate is remembered. Users that have not submitted for a minute are forgotten first.
const RATES_MAX: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

/// How often users did something lately, and how often they may within a minute.
pub(crate) struct Rates {
    per_minute: u32,
    users: Mutex<BTreeMap<String, Rate>>,
}

/// A bucket that fills by the minute.
#[derive(Clone, Copy)]
struct Rate {
    left: f64,
    at: Instant,
}

impl Rates {
    /// Lets each user do something `per_minute` times a minute.
    pub fn new(per_minute: u32) -> Rates {
        Rates { per_minute, users: Mutex::default() }
    }

    /// Counts one; false if the user has had all of a minute's.
    pub fn take(&self, user: &str) -> bool {
        self.take_at(user, Instant::now())
    }

    fn take_at(&self, user: &str, now: Instant) -> bool {
        let mut rates = self.users.lock();
        if rates.len() >= RATES_MAX && !rates.contains_key(user) {
            rates.retain(|_, rate| now.duration_since(rate.at) < MINUTE);
        }
        let full = f64::from(self.per_minute);
        let rate = rates.entry(user.to_owned()).or_insert(Rate { left: full, at: now });
        let passed = now.duration_since(rate.at).as_secs_f64() / MINUTE.as_secs_f64();
        (rate.left, rate.at) = ((rate.left + passed * full).min(full), now);
        let fits = rate.left >= 1.0;
        if fits {
            rate.left -= 1.0;
        }
        fits
    }
}

/// True where the caller may submit as the user to the queue, as far as the token says.
pub(crate) fn may_submit_as(caller: &Caller, user: &str, queue: &str) -> Result<(), ApiError> {
    if user.contains(char::is_control) {
        let why = "the name of a user contains control characters";
        return Err(ApiError::new(ErrorCode::BadRequest, why));
    }
    if caller.may_act_on(user, queue) {
        return Ok(());
    }
    let forbidden = |why: String, hint: &str| Err(ApiError::new(ErrorCode::Forbidden, why).hint(hint));
    if caller.role != Role::Submitter {
        let why = format!("'{}' may not submit as '{user}'", caller.user);
        return forbidden(why, "leave out 'user', or give your own");
    }
    let (users, own) =
        (caller.rights.for_users.join(", "), caller.rights.queue.as_deref().unwrap_or_default());
    let why = format!(
        "this token may not submit as '{user}' to queue '{queue}': it is for the users {users} and queue '{own}'"
    );
    forbidden(why, "an administrator makes another by 'windlass token create --role submitter'")
}

/// Decides what callers may submit.
pub(crate) struct SubmissionRights {
    handle: Handle,
    limits: UserLimits,
    rates: Rates,
}

impl SubmissionRights {
    /// Nothing was submitted yet.
    pub fn new(handle: Handle, limits: UserLimits) -> SubmissionRights {
        let rates = Rates::new(limits.submissions_per_minute);
        SubmissionRights { handle, limits, rates }
    }

    /// True where the caller may submit to the queue.
    pub async fn may_use_queue(&self, caller: &Caller, queue: &str) -> Result<(), ApiError> {
        let is_submitter_s = caller.role == Role::Submitter && caller.rights.queue.as_deref() == Some(queue);
        if caller.role == Role::Admin || is_submitter_s {
            return Ok(());
        }
        let (name, user) = (queue.to_owned(), caller.user.clone());
        let look = move |engine: &windlass_core::Engine| {
            let set = engine.queues().id(&name).map(|id| engine.queues().get(id).record.clone());
            let record = set.unwrap_or_else(|| QueueRecord::named(&name));
            (record.is_open_to(&user), record.users)
        };
        let (open, users) = self.handle.query(look).await?;
        if open {
            return Ok(());
        }
        let names: Vec<&str> = users.iter().take(10).map(String::as_str).collect();
        let whose = match names.as_slice() {
            [] => "no users are listed".to_owned(),
            names => format!("its users are {}", names.join(", ")),
        };
        let why = format!("'{}' may not submit to queue '{queue}': {whose}", caller.user);
        let hint = format!(
            "leave out the queue, or ask an administrator for 'windlass queue set {queue} --users …'"
        );
        Err(ApiError::new(ErrorCode::Forbidden, why).hint(hint))
    }

    /// Counts a submission, or a question that costs about as much.
    pub fn may_ask(&self, caller: &Caller) -> Result<(), ApiError> {
        if caller.role == Role::Admin || self.rates.take(&caller.user) {
            return Ok(());
        }
        let max = self.limits.submissions_per_minute;
        let why = format!("'{}' submitted {max} jobs within a minute", caller.user);
        Err(ApiError::new(ErrorCode::Unavailable, why).hint("submit many tasks as one job: --array, --each"))
    }

    /// Refuses a submission that is more than the caller may have.
    pub async fn may_submit(&self, caller: &Caller, priority: i32) -> Result<(), ApiError> {
        self.handle.parts().disk.may_submit()?;
        self.may_have_priority(caller, priority)?;
        // A submitter is another system, which has limits of its own for its users. One that is refused the job that takes
        // a frame back could not free the frame's worker.
        if matches!(caller.role, Role::Admin | Role::Submitter) {
            return Ok(());
        }
        let limits = &self.limits;
        let forbidden = |why: String, hint: &str| Err(ApiError::new(ErrorCode::Forbidden, why).hint(hint));
        self.may_ask(caller)?;
        let (jobs, bytes) = self.handle.store().user_totals(caller.user.clone()).await?;
        if jobs >= limits.jobs {
            let why =
                format!("'{}' has {jobs} jobs here, ended ones too, of {} at most", caller.user, limits.jobs);
            return forbidden(
                why,
                "submit many tasks as one job: --array, --each; old jobs go by themselves",
            );
        }
        if bytes >= limits.bytes {
            let (has, max) = (Bytes(bytes), Bytes(limits.bytes));
            let why = format!("the jobs of '{}' take {has} of the store, of {max} at most", caller.user);
            return forbidden(why, "put what is large into files; old jobs go by themselves");
        }
        Ok(())
    }

    /// Refuses addresses of notices to which this server may not send.
    pub fn may_tell(&self, on_end: &[OnEnd]) -> Result<(), ApiError> {
        let checked = self.handle.parts().notices.rules.check(on_end);
        checked.map_err(|why| ApiError::new(ErrorCode::BadRequest, format!("on_end: {why}")))
    }

    /// Refuses a priority that is more than the caller's jobs may have.
    pub fn may_have_priority(&self, caller: &Caller, priority: i32) -> Result<(), ApiError> {
        let max = self.limits.priority;
        if caller.role == Role::Admin || priority <= max {
            return Ok(());
        }
        let why = format!("a priority above {max} is for administrators, and {priority} was asked for");
        Err(ApiError::new(ErrorCode::Forbidden, why).hint("give a lower priority"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_s_rate_fills_by_the_minute_and_is_nobody_else_s() {
        let (rates, now) = (Rates::new(60), Instant::now());
        let taken = |user: &str, at| (0..100).filter(|_| rates.take_at(user, at)).count();
        assert_eq!((taken("ann", now), taken("bob", now)), (60, 60));
        assert_eq!(taken("ann", now + Duration::from_millis(900)), 0);
        assert_eq!(taken("ann", now + Duration::from_secs(11)), 11);
    }
}
