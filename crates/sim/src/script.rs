//! Scripted transcripts: commands that drive a small world without random faults, and under each what
//! came of it. The language is described in the README beside this crate.

mod args;
mod show;

use crate::faults::Faults;
use crate::machine::{AttemptKey, Machine, Word};
use crate::promises::bases;
use crate::trace::Trace;
use crate::world::{Happening, Heard, MS, S, World};
use args::Args;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{Answer, Event, Submit};
use windlass_core::ids::AllocId;
use windlass_core::job::TaskResult;
use windlass_core::limits;
use windlass_core::{Epoch, JobId, RequestId, TaskId, WorkerId};

/// Virtual time that each command takes: enough for a commit, a message and its answer.
const COMMAND: u64 = 10 * MS;
/// How much later the scheduler sees that a link is gone that was cut unseen.
const UNSEEN: u64 = 10 * S;

/// Why a script stopped.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// A line that is no command.
    #[error("line {line}: {what}")]
    Command {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A promise broke.
    #[error("line {line}: a promise broke: {what}")]
    Violation {
        /// From 1.
        line: usize,
        /// Which.
        what: String,
    },
}

/// Runs the commands of a transcript, the lines that start with `> `, and returns the transcript as it
/// should be: commands, comments and blank lines as they were, and under each command its output.
///
/// # Errors
///
/// A line that is no command, or a broken promise, with the number of its line.
pub fn run_script(text: &str) -> Result<String, ScriptError> {
    let mut stage = Stage::new();
    let mut output = String::new();
    for (number, line) in text.lines().enumerate() {
        let line_number = number + 1;
        let Some(command) = line.strip_prefix("> ") else {
            // Everything else is the output of an earlier run.
            if line.is_empty() || line.starts_with('#') {
                output.push_str(line);
                output.push('\n');
            }
            continue;
        };
        let args = Args::parse(command).map_err(|what| ScriptError::Command { line: line_number, what })?;
        stage.command(&args).map_err(|what| ScriptError::Command { line: line_number, what })?;
        if let Some(what) = stage.world.violation.take() {
            return Err(ScriptError::Violation { line: line_number, what });
        }
        output.push_str(line);
        output.push('\n');
        for line in stage.lines.drain(..) {
            output.push_str(&line);
            output.push('\n');
        }
    }
    Ok(output)
}

/// The world of one script.
struct Stage {
    world: World,
    lines: Vec<String>,
    next_request: u64,
    /// What was asked, for the line that tells the answer.
    asked: BTreeMap<RequestId, String>,
    failed_commits: u64,
}

impl Stage {
    fn new() -> Self {
        let world = World::new(0, Faults::none(), Trace::new(false));
        let mut stage =
            Stage { world, lines: Vec::new(), next_request: 0, asked: BTreeMap::new(), failed_commits: 0 };
        stage.pass(COMMAND);
        stage.lines.clear();
        stage
    }

    fn command(&mut self, args: &Args) -> Result<(), String> {
        match args.verb() {
            "advance" => return args.duration_ns(0).map(|ns| self.pass(ns)),
            "worker" => self.worker(args)?,
            "submit" => self.submit(args)?,
            "finish" => self.finish(args)?,
            "report" => self.report(args)?,
            "cancel" | "hold" | "release" | "retry" => self.steer(args)?,
            "settings" => self.settings(args)?,
            "drain" | "undrain" => self.drain(args)?,
            "forget" => self.forget(args)?,
            "lend" | "reclaim" => self.lend(args)?,
            "alloc" => self.alloc(args)?,
            "free" => {
                let alloc = AllocId(args.number(0)?);
                self.world.tell(Event::Release { alloc });
            }
            "kill-keeper" | "start-keeper" | "cut" | "connect" => self.machine(args)?,
            "kill-scheduler" => self.world.kill_scheduler(),
            "start-scheduler" => self.world.start_scheduler(),
            "fail-next-commit" => self.world.disk_full = true,
            "lose-next-message" => self.world.lose_next += 1,
            "why" | "jobs" | "tasks" | "workers" | "queues" | "history" => {
                return show::show(&self.world, args).map(|lines| self.lines.extend(lines));
            }
            other => return Err(format!("'{other}' is no command")),
        }
        // A fault that waits for something to happen to takes no time.
        if !matches!(args.verb(), "fail-next-commit" | "lose-next-message") {
            self.pass(COMMAND);
        }
        Ok(())
    }

    /// Lets virtual time pass.
    fn pass(&mut self, by_ns: u64) {
        let until = self.world.now_ns + by_ns;
        loop {
            while let Some(heard) = self.world.heard.pop_front() {
                self.hear(heard);
            }
            if self.world.tally.failed_commits > self.failed_commits {
                self.failed_commits = self.world.tally.failed_commits;
                self.world.disk_full = false;
            }
            if self.world.next_ns().is_none_or(|at| at > until) {
                break;
            }
            self.world.step();
        }
        self.world.pass_to(until);
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Answer(request, answer) => {
                let asked = self.asked.remove(&request).unwrap_or_default();
                self.lines.push(show::answer(&self.world, &asked, &answer));
                if let Answer::Submitted { job, existing: false, .. } = answer {
                    let checked = self.world.store.records(&BTreeSet::from([job])).pop().map(|record| {
                        self.world.promises.accepted(&self.world.store, job, &record.spec, false)
                    });
                    if checked.is_none_or(|checked| checked.is_err()) {
                        self.world.broken(format!("job {job} is accepted and not in the store"));
                    }
                }
                if asked.starts_with("reclaim ")
                    && let Ok(task) = asked["reclaim ".len()..].parse::<TaskId>()
                    && let Some((machine, key)) = self.running(task)
                {
                    self.world.promises.waits(key, false);
                    self.world.check_machine(machine);
                }
            }
            Heard::Unavailable(request) => {
                let asked = self.asked.remove(&request).unwrap_or_default();
                self.lines.push(format!("{asked}: unavailable, the store takes no writes"));
            }
            Heard::Note(note) => self.lines.extend(show::note(&self.world, &note)),
            Heard::Starts(machine, key) => self.starts(machine, key),
            Heard::SchedulerDied => self.lines.push("the scheduler is dead".to_owned()),
            Heard::Ends(..) | Heard::Alarm(_) => {}
        }
    }

    /// A process started; it ends by itself where its step says after which time.
    fn starts(&mut self, machine: usize, key: AttemptKey) {
        let name = &self.world.machines[machine].label;
        let again = if key.1 > 1 { format!(", attempt {}", key.1) } else { String::new() };
        self.lines.push(format!("{} starts on {name}{again}", key.0));
        let Some(job) = self.world.store.job(key.0.job) else { return };
        let step = bases(&job.spec).partition_point(|base| *base <= key.0.index) - 1;
        let body = self.world.store.body(key.0.job, step as u16).unwrap_or_default();
        if let Some((delay_ns, end)) = args::read_body(&body) {
            let incarnation = self.world.machines[machine].keepers;
            self.world.after(delay_ns, Happening::TaskEnds(machine, incarnation, key, end));
        }
    }

    fn ask(&mut self, asked: String) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.asked.insert(request, asked);
        request
    }

    /// Gives the engine an event; says so where there is none.
    fn tell(&mut self, event: Event) {
        if !self.world.tell(event) {
            self.lines.push("no scheduler answers".to_owned());
        }
    }

    fn machine_named(&self, name: &str) -> Result<usize, String> {
        let found = self.world.machines.iter().position(|machine| machine.label == name);
        found.ok_or_else(|| format!("there is no worker '{name}'"))
    }

    fn worker_id(&self, name: &str) -> Result<WorkerId, String> {
        let engine = self.world.engine().ok_or("there is no scheduler")?;
        engine.workers().by_name(name).map(|w| w.id).ok_or_else(|| format!("there is no worker '{name}'"))
    }

    /// Where a task runs.
    fn running(&self, task: TaskId) -> Option<(usize, AttemptKey)> {
        self.world.machines.iter().enumerate().find_map(|(number, machine)| {
            let mut running = machine.keeper.as_ref()?.running();
            running.find(|(key, ..)| key.0 == task).map(|(key, ..)| (number, key))
        })
    }

    fn worker(&mut self, args: &Args) -> Result<(), String> {
        let name = args.word(0)?;
        let label = args.named("machine").unwrap_or(name);
        let mut machine = Machine::new(label, name, args.amounts()?, args.attributes());
        machine.fences = args.has("fences");
        self.world.add_machine(machine);
        Ok(())
    }

    fn submit(&mut self, args: &Args) -> Result<(), String> {
        let spec = args.job()?;
        let request = self.ask("submit".to_owned());
        let store = &self.world.store;
        let existing = spec.key.as_ref().and_then(|key| store.job_by_key(&spec.user, key));
        let outcomes = spec.after.iter().filter_map(|id| Some((*id, store.job(*id)?.state))).collect();
        let placeable_only = args.has("placeable-only");
        self.tell(Event::Submit(Box::new(Submit { request, spec, placeable_only, existing, outcomes })));
        Ok(())
    }

    fn finish(&mut self, args: &Args) -> Result<(), String> {
        let task = args.task(0)?;
        let (machine, key) = self.running(task).ok_or_else(|| format!("{task} does not run"))?;
        self.world.end_attempt(machine, key, args.end()?);
        Ok(())
    }

    /// A worker says that an attempt ended, whatever is true.
    fn report(&mut self, args: &Args) -> Result<(), String> {
        let machine = self.machine_named(args.word(0)?)?;
        let link = self.world.machines[machine].link.ok_or("the worker is not connected")?;
        let key = (args.task(1)?, args.named_number("attempt")?.unwrap_or(1) as u32);
        let epoch = Epoch(args.named_number("epoch")?.unwrap_or(1));
        let result = TaskResult::bare(args.end()?);
        self.world.transmit(Happening::ToScheduler(link, machine, Word::Finished(key, epoch, result)));
        Ok(())
    }

    fn steer(&mut self, args: &Args) -> Result<(), String> {
        let job = JobId(args.number(0)?);
        let request = self.ask(format!("{} {job}", args.verb()));
        self.tell(match args.verb() {
            "cancel" => Event::Cancel { request, job },
            "retry" => {
                let record = self.world.store.records(&BTreeSet::from([job])).pop().map(Box::new);
                Event::Retry { request, job, record }
            }
            verb => Event::Hold { request, job, held: verb == "hold" },
        });
        Ok(())
    }

    fn drain(&mut self, args: &Args) -> Result<(), String> {
        let worker = self.worker_id(args.word(0)?)?;
        let request = self.ask(format!("{} {}", args.verb(), args.word(0)?));
        self.tell(Event::Drain { request, worker, draining: args.verb() == "drain" });
        Ok(())
    }

    fn forget(&mut self, args: &Args) -> Result<(), String> {
        let worker = self.worker_id(args.word(0)?)?;
        let request = self.ask(format!("forget {}", args.word(0)?));
        self.tell(Event::Forget { request, worker });
        Ok(())
    }

    /// Another scheduler starts, set up so.
    fn settings(&mut self, args: &Args) -> Result<(), String> {
        self.world.settings.lease_ns = args.named_duration_ns("lease")?;
        self.world.settings.suspect_ns = args.named_duration_ns("suspect")?.unwrap_or(limits::SUSPECT_NS);
        self.world.kill_scheduler();
        self.world.start_scheduler();
        Ok(())
    }

    fn lend(&mut self, args: &Args) -> Result<(), String> {
        let task = args.task(0)?;
        let (_, key) = self.running(task).ok_or_else(|| format!("{task} does not run"))?;
        if args.verb() == "lend" {
            self.world.promises.waits(key, true);
            self.tell(Event::Lend { task });
        } else {
            let request = self.ask(format!("reclaim {task}"));
            self.tell(Event::Reclaim { request, task });
        }
        Ok(())
    }

    fn alloc(&mut self, args: &Args) -> Result<(), String> {
        let request = self.ask("alloc".to_owned());
        self.tell(Event::Alloc { request, amounts: args.amounts()?, needs: args.needs() });
        Ok(())
    }

    fn machine(&mut self, args: &Args) -> Result<(), String> {
        let machine = self.machine_named(args.word(0)?)?;
        let seen_ns = if args.has("unseen") { UNSEEN } else { 0 };
        match args.verb() {
            "kill-keeper" => self.world.kill_keeper(machine, seen_ns),
            "cut" => self.world.cut_link(machine, seen_ns),
            "start-keeper" => self.world.after(0, Happening::KeeperStarts(machine)),
            _ => self.world.after(0, Happening::Connects(machine)),
        }
        Ok(())
    }
}
