//! Advice in words: whole commands, with names in them.

use super::explanation::{Advice, Change, Edit, Starts};
use super::words::counted;
use crate::plan::placement::{Ineligible, VetoedUse};
use crate::resources::{Bytes, Cpus};
use crate::tags::Need;
use std::borrow::Cow;

impl Ineligible {
    /// What an administrator could do about it on that worker. Advice is made only of what has such an answer.
    fn remedy(&self, worker: &str) -> String {
        match self {
            Ineligible::Attribute(need) => {
                format!("start {worker} with the tag: 'windlass worker start --tag {}'", word(&tag(need)))
            }
            Ineligible::TooFew { tasks, could } => {
                let more = tasks.saturating_sub(*could);
                format!("connect {} like {worker}", counted(more, "more worker", "more workers"))
            }
            Ineligible::Suspect => format!("bring {worker} back: it has not been heard from"),
            Ineligible::Draining(_) => format!("resume {worker}: 'windlass worker resume {}'", word(worker)),
            Ineligible::LowSpace { directory, free, needs } => format!(
                "delete files in the file system of the {directory} directory of {worker} until {} are free ({} are)",
                Bytes(*needs),
                Bytes(*free)
            ),
            Ineligible::UnderPressure(what) => format!("reduce the {what} pressure on {worker}"),
            Ineligible::Limit { name, max } => format!(
                "raise what one worker may hold of the limit '{name}': 'windlass limit set {} --per-worker {}'",
                word(name),
                max.saturating_add(1)
            ),
            Ineligible::Vetoed { .. } if self.vetoed_use() == Some(VetoedUse::Cores) => {
                format!("end other processes that use the processors of {worker}")
            }
            Ineligible::Foreign(_) | Ineligible::Vetoed { .. } => {
                format!("end other processes that hold memory on {worker}")
            }
            other => format!("{worker}: {other}"),
        }
    }
}

/// A name as one word of a shell's command: names may have any characters, and a command that is copied must not run
/// them.
fn word(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.:/=@%+,".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) && !name.starts_with('-') {
        return Cow::Borrowed(name);
    }
    let mut quoted = String::from("\"");
    for c in name.chars() {
        if "\\\"$`".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    Cow::Owned(quoted)
}

/// A need as `--tag` takes it: of several values the first.
fn tag(need: &Need) -> String {
    match need.any_of.first() {
        Some(value) => format!("{}={value}", need.key),
        None => need.key.clone(),
    }
}

impl Edit {
    fn say(&self) -> String {
        match self {
            Edit::Less(name, have) if name == "cpu" => format!("--cpus {}", Cpus(*have)),
            Edit::Less(name, have) if name == "memory" => {
                format!("--memory {}", Bytes(*have).to_string().replace(' ', ""))
            }
            Edit::Less(name, have) if name == "gpus" => format!("--gpus {have}"),
            Edit::Less(name, have) if name == "gpu_memory" => {
                format!("--gpu-memory {}", Bytes(*have).to_string().replace(' ', ""))
            }
            Edit::Less(name, have) => format!("{have} of {name} or less"),
            Edit::Queue(name) => format!("--queue {}", word(name)),
            Edit::Target(name) => format!("--worker {}", word(name)),
            Edit::Without(need) => format!("no --tag {}", word(&need.to_string())),
        }
    }
}

impl Advice {
    /// The worker that it is about, if it is about one.
    pub fn worker(&self) -> Option<&str> {
        match (&self.change, &self.starts) {
            (Change::Worker { worker, .. } | Change::Resubmit { worker, .. }, _) => Some(worker),
            (
                Change::Wait,
                Starts::WhenFree(worker) | Starts::AfterSmaller(worker) | Starts::AfterTasks(worker),
            ) => Some(worker),
            _ => None,
        }
    }

    /// What to do, and what happens then. All of it is needed.
    pub fn steps(&self) -> Vec<String> {
        let mut steps = self.change.steps();
        match (&self.change, &self.starts) {
            (Change::Wait, Starts::WhenFree(worker)) => {
                steps.push(format!("it is next on {worker}, and starts there when enough is free"));
            }
            (Change::Wait, Starts::AfterSmaller(worker)) => steps.push(format!(
                "the first room on {worker} that is enough for it is its own; smaller tasks start there before"
            )),
            (Change::Wait, Starts::AfterTasks(worker)) => {
                steps.push(format!("it is next on {worker}, and starts there once tasks there have ended"));
            }
            (_, Starts::WhenFree(worker) | Starts::AfterTasks(worker)) => {
                if let Some(last) = steps.last_mut() {
                    last.push_str(&format!("; it is then next on {worker}"));
                }
            }
            (_, Starts::AfterSmaller(worker)) => {
                if let Some(last) = steps.last_mut() {
                    last.push_str(&format!("; the first room on {worker} that is enough for it is then its own"));
                }
            }
            (_, Starts::AtOnce) => {}
        }
        steps
    }
}

impl Change {
    fn steps(&self) -> Vec<String> {
        let step = match self {
            Change::Wait => return Vec::new(),
            Change::All(changes) => return changes.iter().flat_map(Change::steps).collect(),
            Change::Worker { worker, unmet } => {
                return unmet.iter().map(|reason| reason.remedy(worker)).collect();
            }
            Change::Resubmit { worker, edits } => {
                let edits: Vec<String> = edits.iter().map(Edit::say).collect();
                format!("submit it again with {}: {worker} could run it then", edits.join(" and "))
            }
            Change::Resume(queue) => format!("resume the queue: 'windlass queue resume {}'", word(queue)),
            Change::Quota(queue, cpu) => {
                let cpus = Cpus(*cpu);
                format!(
                    "raise the quota of queue {queue}: 'windlass queue set {} --quota {cpus}'",
                    word(queue)
                )
            }
            Change::Limit(name, max) => format!("raise the limit: 'windlass limit set {} {max}'", word(name)),
            Change::TryAgain(name, back_off_ms) => {
                format!(
                    "end the back-off now: 'windlass limit set {} --back-off {back_off_ms}ms'",
                    word(name)
                )
            }
            Change::Release(job) => format!("release its job: 'windlass job release {job}'"),
            Change::Connect { system, needs } if needs.is_empty() => {
                format!("connect a provider of {system}, or register a machine and boot it")
            }
            Change::Connect { system, needs } => {
                let needs = needs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                format!("connect a provider of {system}, or register a machine and boot it, with {needs}")
            }
            Change::Mate { step, targets } if targets.is_empty() => {
                format!("connect a worker for step '{step}', which starts together with it and fits none")
            }
            Change::Mate { step, targets } => {
                let targets = targets.join(" or ");
                format!(
                    "connect {targets} for step '{step}', which starts together with it and fits no worker"
                )
            }
            Change::Priority(job, priority) => {
                format!("move its job forward: 'windlass job priority {job} {priority}'")
            }
            Change::Pause(queue) => format!("pause queue {queue}: 'windlass queue pause {}'", word(queue)),
            Change::Weight(queue, weight) => {
                format!(
                    "give queue {queue} more weight: 'windlass queue set {} --weight {weight}'",
                    word(queue)
                )
            }
            Change::Band(queue, band) => {
                format!(
                    "move queue {queue} to another band: 'windlass queue set {} --band {band}'",
                    word(queue)
                )
            }
            Change::UserWeight { queue, user, weight } => format!(
                "give {user} more weight in the queue: 'windlass queue set {} --user-weight {}'",
                word(queue),
                word(&format!("{user}={weight}"))
            ),
        };
        vec![step]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_command_runs_no_name() {
        for plain in ["film", "box-1.farm", "gpu=a100", "ann@site", "größe"] {
            assert_eq!(word(plain), plain);
        }
        assert_eq!(word("two words"), "\"two words\"");
        assert_eq!(word("$(id) `x` \"y\" \\"), "\"\\$(id) \\`x\\` \\\"y\\\" \\\\\"");
        assert_eq!(word("it's; rm"), "\"it's; rm\"");
        assert_eq!(word(""), "\"\"");
        let advice = Advice { change: Change::Resume("$(id)".to_owned()), starts: Starts::AtOnce };
        assert_eq!(advice.steps(), ["resume the queue: 'windlass queue resume \"\\$(id)\"'"]);
    }
}
