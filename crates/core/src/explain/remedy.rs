//! Advice in words: whole commands, with names in them.

use super::explanation::{Advice, Change, Edit, Starts};
use crate::plan::placement::Ineligible;
use crate::resources::{Bytes, Cpus};
use crate::tags::Need;

impl Ineligible {
    /// What an administrator could do about it on that worker. Advice is made only of what has such an answer.
    fn remedy(&self, worker: &str) -> String {
        match self {
            Ineligible::Attribute(need) => {
                format!("start {worker} with the tag: 'windlass worker start --tag {}'", shell_word(need))
            }
            Ineligible::TooFew { tasks, could } => {
                format!("connect {} more workers like {worker}", tasks.saturating_sub(*could))
            }
            Ineligible::Suspect => format!("bring {worker} back: it has not been heard from"),
            Ineligible::Draining(_) => format!("resume {worker}: 'windlass worker resume {worker}'"),
            Ineligible::LowSpace { directory, free, needs } => format!(
                "delete files in the file system of the {directory} directory of {worker} until {} are free ({} are)",
                Bytes(*needs),
                Bytes(*free)
            ),
            Ineligible::UnderPressure(what) => format!("reduce the {what} pressure on {worker}"),
            Ineligible::Limit { name, max } => format!(
                "raise what one worker may hold of the limit '{name}': 'windlass limit set {name} --per-worker {}'",
                max.saturating_add(1)
            ),
            Ineligible::Foreign(_) => format!("end other processes that hold memory on {worker}"),
            other => format!("{worker}: {other}"),
        }
    }
}

/// A need as `--tag` takes it: of several values the first.
fn shell_word(need: &Need) -> String {
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
            Edit::Queue(name) => format!("--queue {name}"),
            Edit::Target(name) => format!("--worker {name}"),
            Edit::Without(need) => format!("no --tag {need}"),
        }
    }
}

impl Advice {
    /// The worker that it is about, if it is about one.
    pub fn worker(&self) -> Option<&str> {
        match (&self.change, &self.starts) {
            (Change::Worker { worker, .. } | Change::Resubmit { worker, .. }, _) => Some(worker),
            (Change::Wait, Starts::WhenFree(worker)) => Some(worker),
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
            (_, Starts::WhenFree(worker)) => {
                if let Some(last) = steps.last_mut() {
                    last.push_str(&format!("; it is then next on {worker}"));
                }
            }
            _ => {}
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
            Change::Resume(queue) => format!("resume the queue: 'windlass queue resume {queue}'"),
            Change::Quota(queue, cpu) => {
                let cpus = Cpus(*cpu);
                format!("raise the quota of queue {queue}: 'windlass queue set {queue} --quota {cpus}'")
            }
            Change::Limit(name, max) => format!("raise the limit: 'windlass limit set {name} {max}'"),
            Change::TryAgain(name, back_off_ms) => {
                format!("end the back-off now: 'windlass limit set {name} --back-off {back_off_ms}ms'")
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
            Change::Pause(queue) => format!("pause queue {queue}: 'windlass queue pause {queue}'"),
            Change::Weight(queue, weight) => {
                format!("give queue {queue} more weight: 'windlass queue set {queue} --weight {weight}'")
            }
            Change::Band(queue, band) => {
                format!("move queue {queue} to another band: 'windlass queue set {queue} --band {band}'")
            }
            Change::UserWeight { queue, user, weight } => format!(
                "give {user} more weight in the queue: 'windlass queue set {queue} --user-weight {user}={weight}'"
            ),
        };
        vec![step]
    }
}
