//! What a job comes after, and after how many failures it stops.

use crate::commands::select::{JobRef, Jobs, resolve_all};
use crate::ui::error::{CliError, Doing};
use clap::Args;
use std::str::FromStr;
use windlass_api::client::Client;
use windlass_api::{FailFast, SubmitRequest, parse_fail_limit};

/// Jobs that come first and need not succeed, and what failures do.
#[derive(Args, Clone, Debug, Default)]
pub struct OrderArgs {
    /// Start when this job has ended, whatever way: 12, 3,4 or last; may be repeated
    #[arg(long, value_name = "JOB", help_heading = "Work")]
    pub after_any: Vec<Jobs>,
    /// Start when this job has failed or was cancelled: 12, 3,4 or last; may be repeated
    #[arg(long, value_name = "JOB", help_heading = "Work")]
    pub after_not_ok: Vec<Jobs>,
    /// Start each task when the task of its number of this job has succeeded: 12 or last. Both have as many tasks. It is
    /// Slurm's aftercorr
    #[arg(long, value_name = "JOB", help_heading = "Work")]
    pub after_each: Option<JobRef>,
    /// Start no more tasks once a task has failed, or N of them, or more than N% of all: finish lets running tasks
    /// finish, kill kills them, kill:5% or finish:3 says both, 3 or 5% is with finish
    #[arg(long, value_name = "finish|kill|N|N%", help_heading = "Work")]
    pub fail_fast: Option<FailFastArg>,
}

/// What failed tasks do to the rest of their job, and how many there are then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailFastArg {
    how: FailFast,
    /// As the server reads it; `None` is one task.
    limit: Option<String>,
}

impl FromStr for FailFastArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let how_of = |word: &str| match word {
            "finish" => Some(FailFast::Finish),
            "kill" => Some(FailFast::Kill),
            _ => None,
        };
        if let Some(how) = how_of(text) {
            return Ok(FailFastArg { how, limit: None });
        }
        let bad = || format!("'{text}' is not finish, kill, a number such as 3, 5%, or kill:3");
        let (how, limit) = match text.split_once(':') {
            Some((word, limit)) => (how_of(word).ok_or_else(bad)?, limit),
            None => (FailFast::Finish, text),
        };
        parse_fail_limit(limit).map_err(|_| bad())?;
        Ok(FailFastArg { how, limit: Some(limit.to_owned()) })
    }
}

impl OrderArgs {
    /// Puts on the request what failures do.
    pub fn put_on(&self, request: &mut SubmitRequest) {
        if let Some(FailFastArg { how, limit }) = self.fail_fast.clone() {
            (request.fail_fast, request.fail_limit) = (Some(how), limit);
        }
    }

    /// Fills in the jobs that come first. The server is asked for the last one, and whether they are there.
    pub async fn complete(&self, request: &mut SubmitRequest, client: &Client) -> Result<(), CliError> {
        let lists =
            [(&self.after_any, &mut request.after_any), (&self.after_not_ok, &mut request.after_not_ok)];
        for (jobs, list) in lists.into_iter().filter(|(jobs, _)| !jobs.is_empty()) {
            *list = resolve_all(client, jobs).await?.into_iter().map(|named| named.id).collect();
            for id in list.iter() {
                client.job(*id).await.doing(format_args!("submit a job after job {id}"))?;
            }
        }
        if let Some(first) = self.after_each {
            let id = first.resolve(client).await?;
            client.job(id).await.doing(format_args!("submit a job after the tasks of job {id}"))?;
            request.after_tasks = Some(id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_from_one_on() {
        let read = |text: &str| text.parse::<FailFastArg>().map(|asked| (asked.how, asked.limit));
        assert_eq!(read("finish"), Ok((FailFast::Finish, None)));
        assert_eq!(read("kill"), Ok((FailFast::Kill, None)));
        assert_eq!(read("3"), Ok((FailFast::Finish, Some("3".to_owned()))));
        assert_eq!(read("kill:5%"), Ok((FailFast::Kill, Some("5%".to_owned()))));
        for text in ["", "0", "100%", "stop", "kill:", "kill:finish", "3:kill", "-1"] {
            assert!(read(text).unwrap_err().contains("is not finish, kill"), "{text:?}");
        }
    }
}
