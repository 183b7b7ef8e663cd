//! Instructions of a scheduling round with few and with many tasks pending.

use anyhow::Context as _;
use std::hint::black_box;
use std::process::{Command, Stdio};
use windlass_core::engine::{Engine, Event, Hello, Outbox, Report, Settings, Submit, WorkerCommand};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult};
use windlass_core::scaling::{ScalingSettings, survey};
use windlass_core::{Epoch, RequestId, Resources, Time, WorkerId};

/// Rounds that are counted: fewer than the few tasks that are pending.
const ROUNDS: u32 = 8;
/// Slots of the worker.
const SLOTS: u32 = 2;

/// Counts with ten and with a million pending tasks and prints the ratio.
pub fn run() -> anyhow::Result<()> {
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !valgrind.is_ok_and(|status| status.success()) {
        println!("SKIP instructions of a round: valgrind is not installed");
        return Ok(());
    }
    let few = per_round(10)?;
    let many = per_round(1_000_000)?;
    println!("instructions of a round that ends one task and books another:");
    println!("  10 pending: {few:.0}; 1000000 pending: {many:.0}; ratio {:.2}", many / few);
    Ok(())
}

/// Instructions of one round, the set-up taken off by a run without rounds.
pub fn per_round(pending: u32) -> anyhow::Result<f64> {
    let (with, without) = (instructions(ROUNDS, pending)?, instructions(0, pending)?);
    Ok((with - without) / f64::from(ROUNDS))
}

fn instructions(rounds: u32, pending: u32) -> anyhow::Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["rounds", "--count", &rounds.to_string(), "--pending", &pending.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line =
        text.lines().find(|line| line.contains("Collected")).with_context(|| text.clone().into_owned())?;
    let count = line.rsplit(' ').next().context("callgrind says nothing")?;
    Ok(count.replace(',', "").parse()?)
}

/// What callgrind counts: an engine with that many tasks pending behind a full worker.
pub fn count(rounds: u32, pending: u32) {
    let mut engine = Engine::new(Settings::default());
    let mut out = Outbox::default();
    let hello = Hello { new_link: false, ..Hello::new("w", 1, Resources::new(SLOTS * 100, 0)) };
    engine.handle(Time(1), Event::Hello(Box::new(hello)), &mut out);
    let step = StepSpec {
        name: "main".to_owned(),
        tasks: pending + SLOTS,
        request: Resources::new(100, 0),
        ..StepSpec::default()
    };
    let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
    let submit = Submit::new(RequestId(1), spec);
    engine.handle(Time(2), Event::Submit(Box::new(submit)), &mut out);
    engine.round(Time(3), 100, &mut out);
    let mut starts: std::collections::VecDeque<_> = started(&out).collect();
    for round in 0..rounds {
        let Some((task, attempt)) = starts.pop_front() else { return };
        let mut out = Outbox::default();
        let by = Report { worker: WorkerId(1), epoch: Epoch(1), task, attempt };
        let now = Time(u64::from(round) + 4);
        engine.handle(now, Event::Finished { by, result: TaskResult::bare(End::Exited(0)) }, &mut out);
        engine.round(now, 100, &mut out);
        engine.committed(&out);
        starts.extend(started(&out));
    }
}

/// What callgrind counts: how many workers are wanted, where that many tasks wait of each of several classes of work.
pub fn count_surveys(surveys: u32, pending: u32, classes: u32) {
    let mut engine = Engine::new(Settings::default());
    let mut out = Outbox::default();
    let hello = Hello { new_link: false, ..Hello::new("w", 1, Resources::new(SLOTS * 100, 1 << 30)) };
    engine.handle(Time(1), Event::Hello(Box::new(hello)), &mut out);
    for class in 0..classes {
        let step = StepSpec {
            name: "main".to_owned(),
            tasks: pending,
            request: Resources::new(100, u64::from(class) + 1),
            ..StepSpec::default()
        };
        let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
        engine.handle(Time(2), Event::Submit(Box::new(Submit::new(RequestId(1), spec))), &mut out);
    }
    engine.round(Time(3), 100, &mut out);
    for _ in 0..surveys {
        black_box(survey(&engine, &ScalingSettings::default()));
    }
}

fn started(out: &Outbox) -> impl Iterator<Item = (windlass_core::TaskId, u32)> + '_ {
    out.sends.iter().filter_map(|send| match send.command {
        WorkerCommand::Start { task, attempt, .. } => Some((task, attempt)),
        _ => None,
    })
}
