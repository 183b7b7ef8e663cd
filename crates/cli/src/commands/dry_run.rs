//! `run --dry-run` and `submit --dry-run`: what would be accepted, where it would run now, and what it would wait for.

use crate::client::context::Context;
use crate::commands::args::TaskArgs;
use crate::commands::files::gather::GatheredFiles;
use crate::commands::files::upload::{self, UploadPlan};
use crate::commands::show::step_text;
use crate::commands::why::{change_line, ruled_out_line, turn_lines};
use crate::ui::error::{CANNOT_BE_PLACED, CliError, Doing, end_with};
use crate::ui::output::{Format, count, fit, print_one};
use crate::ui::quantity::now_ms;
use serde::Serialize;
use std::fmt::Write as _;
use windlass_api::client::{self, Client};
use windlass_api::{DryRun, DryRunStep, SubmitRequest};

/// What a submission would do, and what would be uploaded for it.
#[derive(Serialize)]
struct TriedSubmission {
    #[serde(flatten)]
    tried: DryRun,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<UploadPlan>,
}

/// Asks a server what the submission would do, and prints it.
pub async fn dry_run(
    context: &Context,
    tasks: &TaskArgs,
    mut request: SubmitRequest,
    files: &GatheredFiles,
    client: &Client,
) -> Result<(), CliError> {
    tasks.complete(&mut request, client, false).await?;
    let mut planned = None;
    if !files.is_empty() {
        let plan = upload::plan(client, files).await.doing("ask which files would be uploaded")?;
        if !plan.is_there {
            // The server refuses files that it does not have.
            for of_step in request.steps.iter_mut().filter_map(|step| step.files.as_mut()) {
                (of_step.root, of_step.stdin) = (None, None);
            }
        }
        planned = Some(plan);
    }
    let tried = client::dry_run(client, &request).await.doing("try the submission")?;
    let code = if tried.unplaceable.is_empty() { 0 } else { CANNOT_BE_PLACED };
    // A job that is not submitted has no id.
    if context.format != Format::Name || tried.existing.is_some() {
        let id = |of: &TriedSubmission| of.tried.existing.map(|job| job.to_string()).unwrap_or_default();
        let text = |of: &TriedSubmission| {
            text_of(&of.tried, now_ms()) + &of.upload.as_ref().map(UploadPlan::text).unwrap_or_default()
        };
        print_one(context.format, &TriedSubmission { tried, upload: planned }, id, text)?;
    }
    end_with(code)
}

/// What a submission would do, as lines of text.
pub fn text_of(tried: &DryRun, now_ms: u64) -> String {
    let name = fit(&tried.name, None);
    if let Some(job) = tried.existing {
        return format!("nothing would be submitted: job {job} has this key\n");
    }
    let tasks = tried.steps.iter().map(|step| u64::from(step.step.tasks)).sum();
    let new = if tried.queue_created { ", which would be created" } else { "" };
    let mut text = format!(
        "job '{name}' of {} ({}) would be accepted in queue {}{new}\n",
        fit(&tried.user, None),
        count(tasks, "task"),
        fit(&tried.queue, None)
    );
    for step in &tried.steps {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", step_text(&step.step));
        for line in lines_of(step, now_ms) {
            let _ = writeln!(text, "  {}", fit(&line, None));
        }
    }
    text
}

fn lines_of(step: &DryRunStep, now_ms: u64) -> Vec<String> {
    let mut lines = Vec::new();
    let starting: u32 = step.starts.iter().map(|on| on.tasks).sum();
    if starting > 0 {
        let places: Vec<String> =
            step.starts.iter().map(|on| format!("{} on {}", on.tasks, on.worker)).collect();
        lines.push(format!("would start now: {}", places.join(", ")));
    }
    if step.waiting == 0 {
        return lines;
    }
    let waiting = count(step.waiting.into(), "task");
    let Some(why) = &step.why else {
        lines.push(format!(
            "{waiting} would wait in the store until those before it in its queue have started"
        ));
        return lines;
    };
    // A job that comes after one that has ended otherwise ends at once.
    let would = if why.state.is_end() { "would be skipped at once" } else { "would wait" };
    lines.push(format!("{waiting} {would}: {}", why.message));
    lines.extend(why.turn.iter().flat_map(|turn| turn_lines(turn, now_ms)).map(|line| format!("  {line}")));
    lines.extend(why.ruled_out.iter().map(|reason| format!("  {}", ruled_out_line(reason))));
    lines.extend(why.changes.iter().map(|change| format!("  {}", change_line(change))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::TaskState;

    #[test]
    fn what_starts_and_what_waits_is_said_by_step() {
        let tried = serde_json::json!({
            "name": "film", "queue": "flim", "user": "ann", "priority": 0, "queue_created": true,
            "steps": [{
                "step": {"name": "render", "first_task": 0, "tasks": 9, "retries": 0,
                         "resources": {"cpus": 2.0, "memory": 0}},
                "starts": [{"worker": "a", "tasks": 3}, {"worker": "b", "tasks": 1}],
                "waiting": 5,
                "why": {"task": "7.4", "state": "ready", "reason": "full", "message": "all are busy", "open_workers": 0,
                        "changes": [{"steps": ["release it"], "by": "submitter"}]},
            }],
        });
        let tried: DryRun = serde_json::from_value(tried).unwrap();
        let said = anstream::adapter::strip_str(&text_of(&tried, 0)).to_string();
        let begins = "job 'film' of ann (9 tasks) would be accepted in queue flim, which would be created\nrender: 9 tasks";
        assert!(said.starts_with(begins), "{said}");
        let ends = "\n  would start now: 3 on a, 1 on b\n  5 tasks would wait: all are busy\n    to run it: release it\n";
        assert!(said.ends_with(ends), "{said}");
        let mut skipped = tried.clone();
        skipped.steps[0].why.as_mut().unwrap().state = TaskState::Skipped;
        let said = anstream::adapter::strip_str(&text_of(&skipped, 0)).to_string();
        assert!(said.contains("\n  5 tasks would be skipped at once: all are busy\n"), "{said}");
        let existing = DryRun { existing: Some(4), ..tried };
        assert_eq!(text_of(&existing, 0), "nothing would be submitted: job 4 has this key\n");
    }
}
