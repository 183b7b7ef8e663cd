//! Scripted transcripts: commands that drive a small world without random faults, and under each command its
//! output. The README beside this crate describes the language. Tests compare the output with the script's own
//! text, so every printed word is part of a test.

mod args;
mod conduct;
mod meter;
mod show;

use crate::cache::Cache;
use crate::clock::{MS, S};
use crate::events::{Observation, SimEvent};
use crate::faults::Faults;
use crate::machine::{AttemptKey, BuildConduct, Defect, Effect, Machine, MachineMessage};
use crate::promises::bases;
use crate::trace::Transcript;
use crate::world::World;
use args::Args;
use conduct::Conduct;
use meter::Meter;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::bounds;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Event, Fact, Reply, Submit};
use windlass_core::ids::AllocId;
use windlass_core::job::{End, TaskResult};
use windlass_core::plan::Policy;
use windlass_core::score::history::Sample;
use windlass_core::score::policy::policy_by_name;
use windlass_core::time::NS_PER_MS;
use windlass_core::{Epoch, JobId, RequestId, TaskId, WorkerId};

/// Virtual time of a command in nanoseconds, enough for a commit, a message and its answer.
const COMMAND: u64 = 10 * MS;
/// Further virtual time of a retry, in which the job is read from the store.
const READ: u64 = 60 * MS;
/// Virtual time after which the scheduler notices a link that was cut unseen.
const UNSEEN: u64 = 10 * S;

/// The reason why a script stopped.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("line {line}: {what}")]
    Command { line: usize, what: String },
    #[error("line {line}: a promise broke: {what}")]
    Violation { line: usize, what: String },
}

/// Runs the commands of a transcript, the lines that start with `> `, and returns the transcript as it should
/// be: commands, comments and blank lines as they are, and under each command its output.
///
/// # Errors
///
/// A line that is not a valid command, or a broken promise, with its line number.
pub fn run_script(text: &str) -> Result<String, ScriptError> {
    let mut stage = ScriptWorld::new();
    let mut output = String::new();
    for (number, line) in text.lines().enumerate() {
        let line_number = number + 1;
        let Some(command) = line.strip_prefix("> ") else {
            // Every other line is the output of an earlier run.
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

/// The world of one script, and what it has printed so far.
struct ScriptWorld {
    world: World,
    lines: Vec<String>,
    next_request: u64,
    /// Text of each open request, for the line that prints its reply.
    asked: BTreeMap<RequestId, String>,
    failed_commits: u64,
    meter: Meter,
    /// Jobs of whose tasks no starts and ends are printed.
    quiet: BTreeSet<JobId>,
    /// Reserved workers: since when in virtual nanoseconds, and what ran there then.
    reserved: BTreeMap<WorkerId, (u64, BTreeSet<TaskId>)>,
}

impl ScriptWorld {
    fn new() -> Self {
        let world = World::new(0, Faults::none(), Transcript::new(false));
        let mut stage = ScriptWorld {
            world,
            lines: Vec::new(),
            next_request: 0,
            asked: BTreeMap::new(),
            failed_commits: 0,
            meter: Meter::default(),
            quiet: BTreeSet::new(),
            reserved: BTreeMap::new(),
        };
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
            "cancel" | "hold" | "release" | "retry" | "prioritize" => self.steer(args)?,
            "settings" => self.settings(args)?,
            "drain" | "undrain" => self.drain(args)?,
            "forget" => self.forget(args)?,
            "lend" | "reclaim" => self.lend(args)?,
            "alloc" => self.alloc(args)?,
            "free" | "holds" | "ended" => self.outside(args)?,
            "kill-keeper" | "start-keeper" | "cut" | "connect" => self.machine(args)?,
            "kill-scheduler" => self.world.kill_scheduler(),
            "start-scheduler" => self.world.start_scheduler(),
            "fail-next-commit" => self.world.disk_full = true,
            "lose-next-message" => self.world.lose_next += 1,
            "load" => self.load(args)?,
            "builds" => self.builds(args)?,
            "caches" => self.caches(args)?,
            "defect" => self.defect(args)?,
            "set-queue" => {
                let queue = args.queue()?;
                let request = self.ask(format!("set-queue {}", queue.name));
                self.tell(Event::SetQueue { request, queue });
            }
            "set-limit" => self.set_limit(args)?,
            "quiet" => {
                self.quiet =
                    (0..args.len()).map(|n| Ok(JobId(args.number(n)?))).collect::<Result<_, String>>()?;
                return Ok(());
            }
            "tally" => return self.tally(args),
            "why" | "waits" | "jobs" | "tasks" | "workers" | "queues" | "shares" | "history" => {
                return show::show(&self.world, args).map(|lines| self.lines.extend(lines));
            }
            other => return Err(format!("'{other}' is not a command")),
        }
        // Faults that wait for their cause take no time.
        if !matches!(args.verb(), "fail-next-commit" | "lose-next-message") {
            self.pass(COMMAND);
        }
        Ok(())
    }

    /// Lets virtual time pass, and prints what happens.
    fn pass(&mut self, by_ns: u64) {
        let until = self.world.now_ns + by_ns;
        loop {
            while let Some(observation) = self.world.observations.pop_front() {
                self.observe(observation);
            }
            if self.world.tally.failed_commits > self.failed_commits {
                self.failed_commits = self.world.tally.failed_commits;
                self.world.disk_full = false;
            }
            if self.world.next_ns().is_none_or(|at| at > until) {
                break;
            }
            self.world.step();
            self.watch_reservations();
        }
        self.world.pass_to(until);
        self.meter.turn(&self.world);
    }

    /// Prints which workers are reserved from now on, and the outcome of reservations that are over.
    fn watch_reservations(&mut self) {
        let Some(engine) = self.world.engine() else { return };
        let held: BTreeSet<WorkerId> =
            engine.planner().reservations().holders().map(|(worker, _)| worker).collect();
        if held.iter().eq(self.reserved.keys()) {
            return;
        }
        let now_ns = self.world.now_ns;
        let running = |id: &WorkerId| {
            engine.workers().get(*id).map_or_else(BTreeSet::new, |w| w.booked.running().clone())
        };
        let (mut lines, mut over) = (Vec::new(), Vec::new());
        for id in held.iter().filter(|id| !self.reserved.contains_key(id)) {
            let tasks = running(id);
            lines.push(format!(
                "{} is reserved, with {} task(s) there",
                show::worker_name(&self.world, *id),
                tasks.len()
            ));
            over.push((*id, Some((now_ns, tasks))));
        }
        for (id, (since_ns, tasks)) in self.reserved.iter().filter(|(id, _)| !held.contains(id)) {
            let left = tasks.intersection(&running(id)).count();
            lines.push(format!(
                "{} is reserved no more after {} s: {} of the {} task(s) ended",
                show::worker_name(&self.world, *id),
                (now_ns - since_ns) / S,
                tasks.len() - left,
                tasks.len()
            ));
            over.push((*id, None));
        }
        self.lines.extend(lines);
        for (id, reservation) in over {
            match reservation {
                Some(reservation) => _ = self.reserved.insert(id, reservation),
                None => _ = self.reserved.remove(&id),
            }
        }
    }

    fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Reply(request, answer) => {
                let asked = self.asked.remove(&request).unwrap_or_default();
                self.lines.push(show::answer(&self.world, &asked, &answer));
                if let Reply::Submitted { job, existing: false, .. } = answer {
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
            Observation::Unavailable(request) => {
                let asked = self.asked.remove(&request).unwrap_or_default();
                self.lines.push(format!("{asked}: unavailable, the store takes no writes"));
            }
            Observation::Fact(Fact::Ended { task, .. }) if self.quiet.contains(&task.job) => {}
            Observation::Fact(note) => self.lines.extend(show::note(&self.world, &note)),
            Observation::Starts(machine, key) => self.starts(machine, key),
            Observation::SchedulerDied => self.lines.push("the scheduler is dead".to_owned()),
            Observation::Ends(_, _, end) => {
                self.meter.turn(&self.world);
                self.meter.ends(&end);
            }
            Observation::Alarm(_) => {}
        }
    }

    /// Handles the start of a process. It ends after the time that its step names, and earlier if it comes to
    /// hold more memory than it may.
    fn starts(&mut self, machine: usize, key: AttemptKey) {
        let name = &self.world.machines[machine].label;
        let again = if key.1 > 1 { format!(", attempt {}", key.1) } else { String::new() };
        if !self.quiet.contains(&key.0.job) {
            self.lines.push(format!("{} starts on {name}{again}", key.0));
        }
        self.meter.turn(&self.world);
        let Some(job) = self.world.store.job(key.0.job) else { return };
        let step = bases(&job.spec).partition_point(|base| *base <= key.0.index) - 1;
        let keys = &job.spec.steps[step].hints.caches;
        let cold = self.world.read(machine, keys);
        self.meter.starts((!keys.is_empty()).then_some(cold));
        let conduct = Conduct::of(&self.world.store.body(key.0.job, step as u16).unwrap_or_default());
        let mut end = conduct.ends(key.0);
        let machine_state = &mut self.world.machines[machine];
        if machine_state.defect == Defect::FailsTasks {
            end = end.map(|(delay_ns, _)| (delay_ns, End::Exited(1)));
        }
        if conduct.holds.is_some_and(|bytes| machine_state.occupy(key, bytes)) {
            // It grows until it is killed.
            end = Some((end.map_or(S, |(delay_ns, _)| delay_ns / 10), End::OutOfMemory));
        }
        if let Some((delay_ns, end)) = end {
            let incarnation = self.world.machines[machine].keepers;
            self.world.after(delay_ns, SimEvent::TaskEnds(machine, incarnation, key, end));
        }
    }

    fn ask(&mut self, asked: String) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.asked.insert(request, asked);
        request
    }

    /// Gives the engine an event, or prints that the scheduler is dead.
    fn tell(&mut self, event: Event) {
        if !self.world.tell(event) {
            // What follows of that for a request need not be said as well.
            self.world.observations.retain(|observation| !matches!(observation, Observation::Unavailable(_)));
            self.lines.push("no scheduler answers".to_owned());
        }
    }

    fn machine_named(&self, name: &str) -> Result<usize, String> {
        let found = self.world.machines.iter().position(|machine| machine.label == name);
        found.ok_or_else(|| format!("there is no worker '{name}'"))
    }

    fn worker_id(&self, name: &str) -> Result<WorkerId, String> {
        let engine = self.world.engine().ok_or("there is no scheduler")?;
        engine
            .workers()
            .by_name(name)
            .map(|w| w.record.id)
            .ok_or_else(|| format!("there is no worker '{name}'"))
    }

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
        if let Some(room) = args.named_number("keeps")? {
            machine.cache = Some(Cache::new(room as usize, args.has("mute")));
        }
        self.world.add_machine(machine);
        Ok(())
    }

    /// Sets the load that a machine reports each second, or with `none` ends the reports.
    fn load(&mut self, args: &Args) -> Result<(), String> {
        let machine = self.machine_named(args.word(0)?)?;
        let report = if args.has("none") { None } else { Some(Box::new(args.load()?)) };
        self.world.machines[machine].load = report;
        Ok(())
    }

    /// Sets how many processes the tasks with a jobserver of a machine run, of which it reports each second.
    fn builds(&mut self, args: &Args) -> Result<(), String> {
        let machine = self.machine_named(args.word(0)?)?;
        self.world.machines[machine].builds = match args.word(1)? {
            "silent" => BuildConduct::Silent,
            "all" => BuildConduct::All,
            "one" => BuildConduct::One,
            other => return Err(format!("builds run all, one or silent, not '{other}'")),
        };
        Ok(())
    }

    /// Adds keys to a machine's caches.
    fn caches(&mut self, args: &Args) -> Result<(), String> {
        let machine = self.machine_named(args.word(0)?)?;
        let machine_state = &mut self.world.machines[machine];
        let cache = machine_state.cache.get_or_insert_with(|| Cache::new(usize::MAX, false));
        for (key, size) in args.pairs() {
            cache.put(key, args::bytes_of(size)?);
        }
        let message = machine_state.caches().map(Effect::Say);
        self.world.act(machine, message.into_iter().collect());
        Ok(())
    }

    fn defect(&mut self, args: &Args) -> Result<(), String> {
        let machine = self.machine_named(args.word(0)?)?;
        self.world.machines[machine].defect = match args.word(1)? {
            "fails-tasks" => Defect::FailsTasks,
            "starts-none" => Defect::StartsNone,
            "none" => Defect::None,
            other => return Err(format!("a defect is fails-tasks, starts-none or none, not '{other}'")),
        };
        Ok(())
    }

    fn set_limit(&mut self, args: &Args) -> Result<(), String> {
        let name = args.word(0)?.to_owned();
        let limit = if args.has("none") { None } else { Some(args.limit()?) };
        let request = self.ask(format!("set-limit {name}"));
        self.tell(Event::SetLimit { request, name, limit });
        Ok(())
    }

    /// Prints what the machines did since the last tally. A bound such as `busy>=95` must hold.
    fn tally(&mut self, args: &Args) -> Result<(), String> {
        for (name, wanted) in args.pairs() {
            let most = name.ends_with('<');
            let value = self.meter.value(name.trim_end_matches(['<', '>']));
            let value = value.ok_or_else(|| format!("'{name}' is not counted"))?;
            let bound: f64 = wanted.parse().map_err(|_| format!("{name}: '{wanted}' is not a number"))?;
            if (most && value > bound) || (name.ends_with('>') && value < bound) || value.is_nan() {
                return Err(format!("{name}={wanted} was expected, and it is {value:.1}"));
            }
        }
        self.lines.push(self.meter.read());
        Ok(())
    }

    fn submit(&mut self, args: &Args) -> Result<(), String> {
        let spec = args.job()?;
        let request = self.ask("submit".to_owned());
        let store = &self.world.store;
        let existing = spec.key.as_ref().and_then(|key| store.job_by_key(&spec.user, key));
        let outcomes = spec.after.iter().filter_map(|id| Some((*id, store.job(*id)?.state))).collect();
        let placeable_only = args.has("placeable-only");
        let read_before = store.next_job();
        let submit = Submit { placeable_only, existing, read_before, outcomes, ..Submit::new(request, spec) };
        self.tell(Event::Submit(Box::new(submit)));
        Ok(())
    }

    fn finish(&mut self, args: &Args) -> Result<(), String> {
        let task = args.task(0)?;
        let (machine, key) = self.running(task).ok_or_else(|| format!("{task} does not run"))?;
        self.world.end_attempt(machine, key, args.end()?);
        Ok(())
    }

    /// Sends a worker's report that an attempt ended, whether it did or not.
    fn report(&mut self, args: &Args) -> Result<(), String> {
        let machine = self.machine_named(args.word(0)?)?;
        let link = self.world.machines[machine].link.ok_or("the worker is not connected")?;
        let key = (args.task(1)?, args.named_number("attempt")?.unwrap_or(1) as u32);
        let epoch = Epoch(args.named_number("epoch")?.unwrap_or(1));
        let result = TaskResult::bare(args.end()?);
        self.world.transmit(SimEvent::ToScheduler(
            link,
            machine,
            MachineMessage::Finished(key, epoch, result),
        ));
        Ok(())
    }

    fn steer(&mut self, args: &Args) -> Result<(), String> {
        let job = JobId(args.number(0)?);
        let request = self.ask(format!("{} {job}", args.verb()));
        self.tell(match args.verb() {
            "cancel" => match args.tasks()? {
                Some(tasks) => Event::CancelTasks { request, job, tasks },
                None => Event::Cancel { request, job },
            },
            "retry" => match args.tasks()? {
                Some(tasks) => Event::RetryTasks { request, job, tasks },
                None => Event::Retry { request, job },
            },
            "prioritize" => {
                let priority = args.word(1)?.parse().map_err(|_| "no priority".to_owned())?;
                Event::Prioritize { request, job, priority }
            }
            verb => Event::Hold { request, job, held: verb == "hold" },
        });
        if args.verb() == "retry" {
            self.pass(READ);
        }
        Ok(())
    }

    fn drain(&mut self, args: &Args) -> Result<(), String> {
        let worker = self.worker_id(args.word(0)?)?;
        let request = self.ask(format!("{} {}", args.verb(), args.word(0)?));
        let note = args.named("note").map(str::to_owned);
        self.tell(Event::Drain { request, worker, draining: args.verb() == "drain", note });
        Ok(())
    }

    fn forget(&mut self, args: &Args) -> Result<(), String> {
        let worker = self.worker_id(args.word(0)?)?;
        let request = self.ask(format!("forget {}", args.word(0)?));
        self.tell(Event::Forget { request, worker, force: false });
        Ok(())
    }

    /// Starts another scheduler with these settings.
    fn settings(&mut self, args: &Args) -> Result<(), String> {
        self.world.settings.lease_ns = args.named_duration_ns("lease")?;
        self.world.settings.plan.suspect_ns =
            args.named_duration_ns("suspect")?.unwrap_or(bounds::SUSPECT_NS);
        self.world.settings.plan.load.pressure = args.has("pressure");
        self.world.settings.plan.policy = match args.named("policy").map(|name| (name, policy_by_name(name)))
        {
            Some((name, (_, false))) => return Err(format!("there is no policy '{name}'")),
            Some((_, (policy, true))) => Policy(policy),
            None => Policy::default(),
        };
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
        let queue = args.named("queue").unwrap_or("clients").to_owned();
        let turn_of = args.named("turn").map(str::to_owned);
        let request = self.ask(turn_of.clone().unwrap_or_else(|| queue.clone()));
        let place = PlaceRequest {
            queue,
            turn_of,
            amounts: args.amounts()?,
            shapes: args.shapes(),
            needs: args.needs(),
            wait_max_ms: args.named_duration_ns("wait")?.unwrap_or(0) / NS_PER_MS,
            ..PlaceRequest::default()
        };
        self.tell(Event::Alloc { request, place: Box::new(place) });
        Ok(())
    }

    /// What a client says of the work in its place, or of work that has ended.
    fn outside(&mut self, args: &Args) -> Result<(), String> {
        let event = match args.verb() {
            "free" => Event::Release { alloc: AllocId(args.number(0)?) },
            "holds" => Event::OutsideWorkHolds {
                alloc: AllocId(args.number(0)?),
                bytes: args::bytes_of(args.word(1)?)?,
            },
            _ => {
                let peak_memory = args.named("peak").map(args::bytes_of).transpose()?;
                let sample = Sample { peak_memory, oom: args.has("oom"), ..Sample::default() };
                Event::OutsideWorkEnded { signatures: args.shapes(), sample }
            }
        };
        self.world.tell(event);
        Ok(())
    }

    fn machine(&mut self, args: &Args) -> Result<(), String> {
        let machine = self.machine_named(args.word(0)?)?;
        let seen_ns = if args.has("unseen") { UNSEEN } else { 0 };
        match args.verb() {
            "kill-keeper" => self.world.kill_keeper(machine, seen_ns),
            "cut" => self.world.cut_link(machine, seen_ns),
            "start-keeper" => self.world.after(0, SimEvent::KeeperStarts(machine)),
            _ => self.world.after(0, SimEvent::Connects(machine)),
        }
        Ok(())
    }
}
