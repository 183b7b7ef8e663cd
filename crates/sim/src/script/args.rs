//! Parsing of a script's commands into jobs, amounts, limits and ends. `script` calls it for each command.
//! Nothing here knows the world: names of workers and tasks are resolved by the caller.

use super::conduct::Conduct;
use crate::clock::{MS, S};
use std::collections::BTreeSet;
use windlass_core::bounds::BACK_OFF_MS_DEFAULT;
use windlass_core::job::{
    AfterEnd, Dependency, DependencyKind, End, FailFast, FailLimit, JobSpec, Jobserver, Kind, StepSpec,
};
use windlass_core::licences::{Busy, Limit};
use windlass_core::load::pressure::{DiskSpace, LoadReport, Pressure, Pressures, Stall};
use windlass_core::queues::QueueRecord;
use windlass_core::ranges::RangeSet;
use windlass_core::score::history::Signature;
use windlass_core::tags::{Attributes, Need};
use windlass_core::{JobId, Resources, TaskId};

/// A command: a verb, words, and `name=value` pairs in their order.
pub struct Args {
    words: Vec<String>,
    pairs: Vec<(String, String)>,
}

impl Args {
    /// Splits a line at blanks.
    pub fn parse(line: &str) -> Result<Args, String> {
        let (mut words, mut pairs) = (Vec::new(), Vec::new());
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => pairs.push((name.to_owned(), value.to_owned())),
                None => words.push(word.to_owned()),
            }
        }
        if words.is_empty() {
            Err("a command begins with a verb".to_owned())
        } else {
            Ok(Args { words, pairs })
        }
    }

    pub fn verb(&self) -> &str {
        &self.words[0]
    }

    /// Number of words after the verb.
    pub fn len(&self) -> usize {
        self.words.len() - 1
    }

    /// The word at this place after the verb, from 0.
    pub fn word(&self, place: usize) -> Result<&str, String> {
        let word = self.words.get(place + 1).map(String::as_str);
        word.ok_or_else(|| format!("{} needs {} word(s)", self.verb(), place + 1))
    }

    /// Whether the word is somewhere after the verb.
    pub fn has(&self, word: &str) -> bool {
        self.words[1..].iter().any(|w| w == word)
    }

    /// The word at this place as a number.
    pub fn number(&self, place: usize) -> Result<u64, String> {
        let word = self.word(place)?;
        word.parse().map_err(|_| format!("'{word}' is not a number"))
    }

    /// The word at this place as a task.
    pub fn task(&self, place: usize) -> Result<TaskId, String> {
        self.word(place)?.parse().map_err(|bad: windlass_core::ids::BadTaskId| bad.to_string())
    }

    /// The tasks that `tasks=` names: numbers and ranges such as `1,4-6`.
    pub fn tasks(&self) -> Result<Option<RangeSet>, String> {
        let Some(text) = self.named("tasks") else { return Ok(None) };
        let mut tasks = RangeSet::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number =
                |text: &str| text.parse::<u32>().map_err(|_| format!("tasks: '{text}' is not a number"));
            tasks.insert_range(number(first)?..number(last)? + 1);
        }
        Ok(Some(tasks))
    }

    /// The word at this place as a duration.
    pub fn duration_ns(&self, place: usize) -> Result<u64, String> {
        duration_ns(self.word(place)?)
    }

    /// The value with this name, the first one if there are several.
    pub fn named(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The value with this name as a number.
    pub fn named_number(&self, name: &str) -> Result<Option<u64>, String> {
        let value = self.named(name);
        value.map(|value| value.parse().map_err(|_| format!("{name}: '{value}' is not a number"))).transpose()
    }

    /// The value with this name as a duration.
    pub fn named_duration_ns(&self, name: &str) -> Result<Option<u64>, String> {
        self.named(name).map(duration_ns).transpose()
    }

    /// The amounts `cpus`, `memory` and `gpus`.
    pub fn amounts(&self) -> Result<Resources, String> {
        let mut amounts = Resources::default();
        for (name, value) in &self.pairs {
            amount(&mut amounts, name, value)?;
        }
        Ok(amounts)
    }

    /// All pairs, in their order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A report of load: percent of time stalled for `cpu`, `memory` and `io`, cores in `foreign` use, bytes
    /// of memory that are `available` and that the machine's `own` tasks hold, bytes that are free for `state` and
    /// `sessions` on a disk of a TiB, and percent of its `network` in use.
    pub fn load(&self) -> Result<LoadReport, String> {
        let mut report = LoadReport::default();
        for (name, value) in self.pairs() {
            let number = || value.parse::<f64>().map_err(|_| format!("{name}: '{value}' is not a number"));
            let stalled = || {
                let stall = Stall { avg10: number()?, ..Stall::default() };
                Ok::<_, String>(Some(Pressure { some: Some(stall), full: None }))
            };
            let Pressures { cpu, memory, io } = &mut report.machine;
            match name {
                "cpu" => *cpu = stalled()?,
                "memory" => *memory = stalled()?,
                "io" => *io = stalled()?,
                "foreign" => report.cpu_foreign = Some(number()?),
                "available" => report.memory_available = Some(bytes_of(value)?),
                "own" => report.memory_own = Some(bytes_of(value)?),
                "state" => report.state_space = Some(of_a_tib(bytes_of(value)?)),
                "sessions" => report.session_space = Some(of_a_tib(bytes_of(value)?)),
                "network" => report.network_percent = Some(number()?),
                _ => return Err(format!("'{name}' says nothing about a load")),
            }
        }
        report.check().map_err(|bad| bad.to_string())?;
        Ok(report)
    }

    /// The settings of a queue: `weight` (by default 100), `band`, `quota` and `burst` in cpus, and
    /// `paused=NOTE`.
    pub fn queue(&self) -> Result<QueueRecord, String> {
        let mut quota = Resources::default();
        if let Some(cpus) = self.named("quota") {
            amount(&mut quota, "cpus", cpus)?;
        }
        let mut burst = Resources::default();
        if let Some(cpus) = self.named("burst") {
            amount(&mut burst, "cpus", cpus)?;
        }
        Ok(QueueRecord {
            weight: self.named_number("weight")?.unwrap_or(100) as u32,
            band: self.named_number("band")?.map(|band| band as u8),
            quota_cpu: self.named("quota").map(|_| quota.cpu),
            burst_cpu: self.named("burst").map(|_| burst.cpu),
            paused: self.named("paused").map(str::to_owned),
            ..QueueRecord::named(self.word(0)?)
        })
    }

    /// A limit: how many over the farm, `per-worker`, `busy` exit codes, and their `back-off`.
    pub fn limit(&self) -> Result<Limit, String> {
        let max = if self.len() > 1 { Some(self.number(1)? as u32) } else { None };
        let per_worker = self.named_number("per-worker")?.map(|max| max as u32);
        let exits = self.named("busy").map(|codes| codes.split(',').map(str::parse).collect());
        let exits = exits.transpose().map_err(|_| "busy: exit codes are numbers".to_owned())?;
        let back_off_ms = self.named_duration_ns("back-off")?.map_or(BACK_OFF_MS_DEFAULT, |ns| ns / MS);
        Ok(Limit { max, per_worker, busy: exits.map(|exits| Busy { exits, back_off_ms }) })
    }

    /// Every `tag`, bare or with values: `tag=linux`, `tag=arch=x86_64|aarch64`.
    pub fn attributes(&self) -> Attributes {
        let needs = self.pairs.iter().filter(|(name, _)| name == "tag").map(|(_, value)| Need::parse(value));
        needs.map(|need| (need.key, need.any_of)).collect()
    }

    /// The shapes of an outside client's work in its queue, from exact to general: `shape=ld|a,ld`.
    pub fn shapes(&self) -> Vec<Signature> {
        let queue = self.named("queue").unwrap_or("clients");
        let shapes = self.named("shape").into_iter().flat_map(|shapes| shapes.split(','));
        let signature =
            |shape: &str| Signature { queue: queue.to_owned(), step: String::new(), shape: shape.to_owned() };
        shapes.map(signature).collect()
    }

    pub fn needs(&self) -> Vec<Need> {
        let needs = self.pairs.iter().filter(|(name, _)| name == "need");
        needs.map(|(_, value)| Need::parse(value)).collect()
    }

    /// `exit=N`, `signal=N` or the word `oom`; exit code 0 by default.
    pub fn end(&self) -> Result<End, String> {
        if self.has("oom") {
            return Ok(End::OutOfMemory);
        }
        if let Some(signal) = self.named_number("signal")? {
            return Ok(End::Signaled(signal as i32));
        }
        Ok(End::Exited(self.named_number("exit")?.unwrap_or(0) as i32))
    }

    /// A job. Pairs before the first `step=` are the job's, or apply to every step.
    pub fn job(&self) -> Result<JobSpec, String> {
        let first = self.pairs.iter().position(|(name, _)| name == "step").unwrap_or(self.pairs.len());
        let (common, steps) = self.pairs.split_at(first);
        let mut job = JobSpec {
            name: "job".to_owned(),
            queue: "default".to_owned(),
            user: "ann".to_owned(),
            ..JobSpec::default()
        };
        let mut default = StepSpec { name: "main".to_owned(), tasks: 1, ..StepSpec::default() };
        default.request.cpu = 100;
        for (name, value) in common {
            if !job_pair(&mut job, name, value)? {
                step_pair(&mut default, &[], name, value)?;
            }
        }
        if steps.is_empty() {
            job.steps.push(default);
            return Ok(job);
        }
        let names: Vec<String> =
            steps.iter().filter(|(name, _)| name == "step").map(|(_, value)| value.clone()).collect();
        for (name, value) in steps {
            if name == "step" {
                job.steps.push(StepSpec { name: value.clone(), ..default.clone() });
            } else if let Some(step) = job.steps.last_mut() {
                step_pair(step, &names, name, value)?;
            }
        }
        Ok(job)
    }
}

fn job_pair(job: &mut JobSpec, name: &str, value: &str) -> Result<bool, String> {
    match name {
        "name" => job.name = value.to_owned(),
        "queue" => job.queue = value.to_owned(),
        "user" => job.user = value.to_owned(),
        "priority" => job.priority = value.parse().map_err(|_| format!("'{value}' is not a priority"))?,
        "key" => job.key = Some(value.to_owned()),
        "parent" => {
            let parent = value.parse().map_err(|bad: windlass_core::ids::BadTaskId| bad.to_string())?;
            job.parent = Some(parent);
        }
        "after" => {
            for id in value.split(',') {
                job.after.push(JobId(id.parse().map_err(|_| format!("'{id}' is not a job"))?));
            }
        }
        "after-any" | "after-not-ok" => {
            let end = if name == "after-any" { AfterEnd::Any } else { AfterEnd::NotOk };
            for id in value.split(',') {
                let id = JobId(id.parse().map_err(|_| format!("'{id}' is not a job"))?);
                job.after.push(id);
                job.after_ends.insert(id, end);
            }
        }
        "after-each" => {
            job.after_tasks = Some(JobId(value.parse().map_err(|_| format!("'{value}' is not a job"))?));
        }
        "fail-limit" => {
            let (number, is_percent) =
                value.strip_suffix('%').map_or((value, false), |number| (number, true));
            let bad = || format!("'{value}' is neither a number of tasks nor a percentage");
            job.fail_limit = match is_percent {
                true => FailLimit::Percent(number.parse().map_err(|_| bad())?),
                false => FailLimit::Tasks(number.parse().map_err(|_| bad())?),
            };
        }
        "fail-fast" => {
            job.fail_fast = match value {
                "finish" => FailFast::Finish,
                "kill" => FailFast::Kill,
                other => return Err(format!("fail-fast is finish or kill, not '{other}'")),
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn step_pair(step: &mut StepSpec, names: &[String], name: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u32>().map_err(|_| format!("{name}: '{value}' is not a number"));
    match name {
        "tasks" => step.tasks = number()?,
        "retries" => step.retries = number()?,
        "need" => step.needs.push(Need::parse(value)),
        "target" => step.targets = value.split(',').map(str::to_owned).collect::<BTreeSet<_>>(),
        "runs" | "fails" | "holds" => step.body = conduct(Conduct::of(&step.body), name, value)?.body(),
        "limit" => step.limits = value.split(',').map(str::to_owned).collect(),
        "reads" => {
            for key in value.split(',') {
                let (key, bytes) = key.split_once(':').map_or((key, None), |(key, size)| (key, Some(size)));
                step.hints.caches.insert(key.to_owned(), bytes.map(bytes_of).transpose()?);
            }
        }
        "network-bound" => step.hints.network_bound = value == "yes",
        "jobserver" => {
            step.hints.jobserver = match value {
                "auto" => Some(Jobserver::Auto),
                "fifo" => Some(Jobserver::Fifo),
                "pipes" => Some(Jobserver::Pipes),
                other => return Err(format!("jobserver is auto, fifo or pipes, not '{other}'")),
            }
        }
        "shape" => step.hints.shape = value.to_owned(),
        "deadline" => step.hints.deadline_ms = Some(duration_ns(value)? / MS),
        "kind" => {
            step.hints.kind = match value {
                "build" => Kind::Build,
                "evaluation" => Kind::Evaluation,
                other => return Err(format!("kind is build or evaluation, not '{other}'")),
            }
        }
        "depends" | "depends-task" => {
            let kind = if name == "depends" { DependencyKind::Step } else { DependencyKind::Task };
            for on in value.split(',') {
                let place = names.iter().position(|n| n == on).ok_or_else(|| format!("no step '{on}'"))?;
                step.depends.push(Dependency { on: place as u16, kind });
            }
        }
        _ if amount(&mut step.request, name, value)? => {}
        _ => return Err(format!("'{name}' says nothing about a job or a step")),
    }
    Ok(())
}

/// Sets an amount; false if `name` is not an amount.
fn amount(amounts: &mut Resources, name: &str, value: &str) -> Result<bool, String> {
    let bad = || format!("{name}: '{value}' is not an amount");
    match name {
        "cpus" => {
            let (whole, part) = value.split_once('.').unwrap_or((value, "0"));
            let hundredths: u32 = format!("{part:0<2}").parse().map_err(|_| bad())?;
            amounts.cpu = whole.parse::<u32>().map_err(|_| bad())? * 100 + hundredths;
        }
        "memory" => amounts.memory = bytes_of(value).map_err(|_| bad())?,
        "gpus" => amounts.gpus = value.parse().map_err(|_| bad())?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Adds what `runs`, `fails` or `holds` says to the behaviour of a step's tasks.
fn conduct(mut conduct: Conduct, name: &str, value: &str) -> Result<Conduct, String> {
    if name == "holds" {
        conduct.holds = Some(bytes_of(value)?);
        return Ok(conduct);
    }
    let (least, most) = value.split_once("..").unwrap_or((value, value));
    conduct.runs_ns = Some((duration_ns(least)?, duration_ns(most)?));
    conduct.exit = u8::from(name == "fails");
    Ok(conduct)
}

/// Bytes of a size such as 4GiB.
pub fn bytes_of(text: &str) -> Result<u64, String> {
    let units = [("GiB", 30), ("MiB", 20)];
    let parsed =
        units.iter().find_map(|(unit, shift)| Some(text.strip_suffix(unit)?.parse::<u64>().ok()? << shift));
    parsed.ok_or_else(|| format!("'{text}' is not an amount of memory; one looks like 4GiB or 512MiB"))
}

fn duration_ns(text: &str) -> Result<u64, String> {
    let units = [("ms", MS), ("s", S), ("m", 60 * S)];
    let parsed = units.iter().find_map(|(unit, ns)| Some(text.strip_suffix(unit)?.parse::<u64>().ok()? * ns));
    parsed.ok_or_else(|| format!("'{text}' is not a time; one looks like 10ms, 5s or 2m"))
}

fn of_a_tib(free_bytes: u64) -> DiskSpace {
    DiskSpace { free_bytes, total_bytes: 1 << 40 }
}
