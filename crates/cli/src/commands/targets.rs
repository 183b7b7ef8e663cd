//! `windlass job cancel` and `windlass job retry`: whole jobs, or tasks of one.

use crate::client::context::Context;
use crate::commands::select::{JobRef, Jobs, Named, Outcomes, resolve_all};
use crate::commands::verbs::{Verb, print_jobs};
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use crate::ui::output::Format;
use clap::Args;
use std::str::FromStr;
use windlass_api::TaskSet;
use windlass_api::client::task_sets;

/// The jobs and tasks to act on.
#[derive(Args, Debug)]
pub struct TargetsArgs {
    /// The jobs: 12, 1-5, 1,3 or last; or tasks of a job: 12.6, 12.3-9 or last.1,4-6
    #[arg(required = true, value_name = "JOB|TASKS")]
    targets: Vec<Target>,
}

/// The jobs and tasks to run again.
#[derive(Args, Debug)]
pub struct RetryArgs {
    #[command(flatten)]
    targets: TargetsArgs,
    /// Run a job that was skipped although the job that it comes after still has not ended as it asks for
    #[arg(long)]
    force: bool,
}

/// Jobs, or tasks of one job.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Target {
    Jobs(Jobs),
    Tasks(JobRef, TaskSet),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((job, tasks)) = text.split_once('.') else { return text.parse().map(Target::Jobs) };
        let tasks = tasks
            .parse::<TaskSet>()
            .map_err(|_| format!("'{text}' does not name tasks of a job: write 12.6, 12.3-9 or 12.1,4-6"))?;
        Ok(Target::Tasks(job.parse()?, tasks))
    }
}

/// Runs the command `windlass job cancel`.
pub async fn cancel(context: &Context, args: &TargetsArgs) -> Result<(), CliError> {
    act(context, args, Verb::Cancel, false).await
}

/// Runs the command `windlass job retry`.
pub async fn retry(context: &Context, args: &RetryArgs) -> Result<(), CliError> {
    act(context, &args.targets, Verb::Retry, args.force).await
}

async fn act(context: &Context, args: &TargetsArgs, verb: Verb, force: bool) -> Result<(), CliError> {
    let client = context.client().await?;
    let (mut outcomes, mut jobs, word) = (Outcomes::default(), Vec::new(), verb.word());
    let is_table = context.format == Format::Table;
    for target in &args.targets {
        match target {
            Target::Jobs(some) => {
                for named in resolve_all(&client, std::slice::from_ref(some)).await? {
                    let result = match verb {
                        Verb::Retry => task_sets::retry(&client, named.id, None, force).await,
                        _ => client.act(named.id, word).await,
                    };
                    let result = result.doing(format_args!("{word} job {}", named.id));
                    let Some(job) = outcomes.take(named, result, context.format.is_json()) else { continue };
                    if is_table {
                        message!("{}", verb.done(&job));
                    }
                    jobs.push(job);
                }
            }
            Target::Tasks(job, tasks) => {
                let named = Named { id: job.resolve(&client).await?, in_range: false };
                let what = match tasks.only() {
                    Some(index) => format!("task {}.{index}", named.id),
                    None => format!("tasks {}.{tasks}", named.id),
                };
                let result = match verb {
                    Verb::Retry => task_sets::retry(&client, named.id, Some(tasks), force).await,
                    _ => task_sets::act_on_tasks(&client, named.id, word, tasks).await,
                };
                let result = result.doing(format_args!("{word} {what}"));
                let Some(job) = outcomes.take(named, result, context.format.is_json()) else { continue };
                if is_table {
                    message!("{}", done(verb, &what, tasks.only().is_some()));
                }
                jobs.push(job);
            }
        }
    }
    jobs.dedup_by_key(|job| job.id);
    print_jobs(context.format, &jobs)?;
    outcomes.finish()
}

/// The message after success with some of a job's tasks.
pub fn done(verb: Verb, what: &str, is_one: bool) -> String {
    match (verb, is_one) {
        (Verb::Cancel, true) => format!("{what} is cancelled; if it runs, it is being killed"),
        (Verb::Cancel, false) => format!("{what} are cancelled; those that run are being killed"),
        (_, true) => format!("{what} runs again"),
        (_, false) => format!("{what}: those that failed or were cancelled run again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_jobs_or_tasks_of_one() {
        let tasks = |job: JobRef, tasks: &str| Ok::<_, String>(Target::Tasks(job, tasks.parse().unwrap()));
        assert_eq!("7.6".parse(), tasks(JobRef::Id(7), "6"));
        assert_eq!("7.1,4-6".parse(), tasks(JobRef::Id(7), "1,4-6"));
        assert_eq!("last.3-9".parse(), tasks(JobRef::Last, "3-9"));
        assert_eq!("1-5".parse(), "1-5".parse().map(Target::Jobs));
        for text in ["", "7.", ".6", "7.6-7.9", "7.6,8.2", "7.-1", "7.9-3", "x.1", "1-5.2"] {
            assert!(text.parse::<Target>().is_err(), "{text:?}");
        }
    }
}
