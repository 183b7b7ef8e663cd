//! What is charted of the engine: numbers that it keeps, in a walk over workers, queues and the steps in memory. What is
//! parked counts by sums, so a backlog of a million jobs costs as much as one of ten thousand.

use super::answers::worker_row;
use super::charts::{QUEUES_MAX, QueueRow, WORKERS_MAX, WorkerRow};
use std::collections::BTreeMap;
use std::time::Instant;
use windlass_api::board::Percents;
use windlass_core::explain::entitlements;
use windlass_core::load::formula::LOAD_NO_CORES;
use windlass_core::load::pressure::DiskSpace;
use windlass_core::worker::{Worker, WorkerState};
use windlass_core::{Engine, WorkerId};

/// The engine's state at one time, in numbers. Cpus are cores, pressures are percent.
#[derive(Debug, Default)]
pub struct EngineLook {
    pub running: f64,
    pub waiting: f64,
    pub busy_cpus: f64,
    pub total_cpus: f64,
    /// Means over the workers that say them: cpu, memory, io.
    pub pressures: [Option<f64>; 3],
    pub queues: Vec<(String, QueueRow)>,
    pub workers: Vec<(WorkerId, WorkerRow)>,
}

/// Looks at the engine. `entitled` is what queues were entitled to when that was computed last.
pub fn look(engine: &Engine, entitled: &BTreeMap<String, f32>) -> EngineLook {
    let mut seen = EngineLook { waiting: engine.counts().ready.into(), ..EngineLook::default() };
    let mut sums = [(0.0, 0u32); 3];
    for worker in engine.workers().present() {
        seen.running += worker.booked.running().len() as f64;
        seen.busy_cpus += f64::from(worker.booked.sum().cpu) / 100.0;
        seen.total_cpus += if worker.record.state == WorkerState::Up {
            f64::from(worker.record.capacity.cpu) / 100.0
        } else {
            0.0
        };
        let percents = percents(worker);
        for ((sum, count), percent) in sums.iter_mut().zip(percents) {
            if let Some(percent) = percent {
                (*sum, *count) = (*sum + percent, *count + 1);
            }
        }
        if seen.workers.len() < WORKERS_MAX {
            seen.workers.push((worker.record.id, row_of(engine, worker, percents)));
        }
    }
    seen.pressures = sums.map(|(sum, count)| (count > 0).then(|| sum / f64::from(count)));
    seen.queues = busiest(engine, entitled);
    seen
}

fn percents(worker: &Worker) -> [Option<f64>; 3] {
    let Percents { cpu, memory, io, .. } = Percents::of(worker);
    [cpu, memory, io]
}

fn row_of(engine: &Engine, worker: &Worker, percents: [Option<f64>; 3]) -> WorkerRow {
    let whole = f64::from(worker.record.capacity.cpu);
    let part = (whole > 0.0).then(|| f64::from(worker.booked.sum().cpu) / whole);
    let load = worker.load_with(100, engine.workers().load_settings());
    let report = worker.reported.load();
    let network = report.and_then(|report| Some(report.network_in_mbit_s? + report.network_out_mbit_s?));
    let cache = report.and_then(|report| report.cache_space).and_then(used_percent);
    let [cpu, memory, io] = percents;
    let load = Some(load).filter(|load| *load < LOAD_NO_CORES);
    worker_row(part, load, [cpu, memory, io, cache], network)
}

/// The part of a file system that is in use.
fn used_percent(space: DiskSpace) -> Option<f64> {
    let DiskSpace { free_bytes, total_bytes } = space;
    (total_bytes > 0).then(|| 100.0 - free_bytes as f64 * 100.0 / total_bytes as f64)
}

/// Queues that hold cpus or are entitled to some.
fn busiest(engine: &Engine, entitled: &BTreeMap<String, f32>) -> Vec<(String, QueueRow)> {
    let mut queues: Vec<(u64, &str)> = engine
        .queues()
        .iter()
        .filter(|queue| queue.booked_cpu > 0 || entitled.get(queue.name()).is_some_and(|cpus| *cpus > 0.0))
        .map(|queue| (queue.booked_cpu, queue.name()))
        .collect();
    queues.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.cmp(other)));
    queues.truncate(QUEUES_MAX);
    let row = |(booked, name): (u64, &str)| {
        // A queue that came since is entitled to something, and nobody knows yet to what.
        let entitled = entitled.get(name).copied().unwrap_or(f32::NAN);
        (name.to_owned(), [booked as f32 / 100.0, entitled])
    };
    queues.into_iter().map(row).collect()
}

/// The computing of entitlements takes one part in this number of the engine's time at most.
const ENTITLED_PART: u32 = 1_000;

/// The cpus to which queues are entitled, computed as often as its cost allows: it looks at each class of waiting work, and at
/// workers until one fits.
#[derive(Clone, Debug, Default)]
pub struct Entitled {
    /// Cores that each queue is entitled to.
    pub cpus: BTreeMap<String, f32>,
    /// When it may be computed again; `None` of one that never was.
    due: Option<Instant>,
}

impl Entitled {
    /// True if it may be computed again.
    pub fn is_due(&self) -> bool {
        self.due.is_none_or(|due| due <= Instant::now())
    }

    /// Computes the cpus to which each queue is entitled.
    pub fn compute(engine: &Engine) -> Entitled {
        let began = Instant::now();
        let cpus = entitlements(engine)
            .into_iter()
            .filter(|own| own.demand_cpu > 0)
            .map(|own| (engine.queues().get(own.queue).name().to_owned(), (own.entitled_cpu / 100.0) as f32));
        let cpus = cpus.collect();
        let pause = began.elapsed().saturating_mul(ENTITLED_PART);
        Entitled { cpus, due: Instant::now().checked_add(pause) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::charts::{
        CACHE_COLUMN, Charts, FarmColumn, NETWORK_COLUMN, PARTS_OF_CPUS, PARTS_OF_PERCENT, Sample, Scaled,
    };
    use super::*;
    use std::time::Duration;
    use windlass_core::engine::{Event, Hello, Outbox, Settings, Submit};
    use windlass_core::job::{JobSpec, StepSpec};
    use windlass_core::load::formula::LoadSettings;
    use windlass_core::load::pressure::{LoadReport, Pressure, Pressures, Stall};
    use windlass_core::plan::PlanSettings;
    use windlass_core::{RequestId, Resources, Time};

    /// A farm of workers of eight cpus under ten percent of pressure, with a backlog of tasks.
    fn farm(workers: u64, tasks: u32) -> Engine {
        let load = LoadSettings { pressure: true, ..LoadSettings::default() };
        let mut engine = Engine::new(Settings {
            plan: PlanSettings { load, ..PlanSettings::default() },
            ..Settings::default()
        });
        let (now, mut out) = (Time(1 << 40), Outbox::default());
        for n in 1..=workers {
            let hello = Hello::new(&format!("w{n}"), n, Resources::new(800, 64 << 30));
            engine.handle(now, Event::Hello(Box::new(hello)), &mut out);
            let some = Some(Stall { avg10: 10.0, ..Stall::default() });
            let machine = Pressures { cpu: Some(Pressure { some, full: None }), ..Pressures::default() };
            let (network_in_mbit_s, network_out_mbit_s) = (Some(20.0), Some(11.0));
            let cache_space = Some(DiskSpace { free_bytes: 1 << 30, total_bytes: 4 << 30 });
            let speeds = LoadReport { network_in_mbit_s, network_out_mbit_s, ..LoadReport::default() };
            let report = Box::new(LoadReport { machine, cache_space, ..speeds });
            let worker = windlass_core::WorkerId(n);
            engine.handle(now, Event::Load { worker, report }, &mut out);
        }
        let step =
            StepSpec { name: "s".to_owned(), tasks, request: Resources::new(100, 0), ..StepSpec::default() };
        let spec = JobSpec {
            queue: "films".to_owned(),
            user: "anna".to_owned(),
            steps: vec![step],
            ..JobSpec::default()
        };
        engine.handle(now, Event::Submit(Box::new(Submit::new(RequestId(1), spec))), &mut out);
        while engine.round(now, 1024, &mut out) == 1024 {
            out = Outbox::default();
        }
        engine
    }

    #[test]
    fn what_is_charted_is_what_the_engine_has() {
        let engine = farm(3, 30);
        let entitled = Entitled::compute(&engine);
        let seen = look(&engine, &entitled.cpus);
        assert_eq!((seen.running, seen.busy_cpus, seen.total_cpus), (24.0, 24.0, 24.0));
        assert_eq!(seen.pressures, [Some(10.0), None, None]);
        assert_eq!(seen.queues, [("films".to_owned(), [24.0, 24.0])]);
        assert_eq!((seen.workers.len(), seen.workers[0].0), (3, WorkerId(1)));
        assert_eq!(Scaled(seen.workers[0].1[0]).value(PARTS_OF_CPUS), Some(1.0));
        assert_eq!(Scaled(seen.workers[0].1[2]).value(PARTS_OF_PERCENT), Some(10.0));
        assert_eq!(Scaled(seen.workers[0].1[NETWORK_COLUMN]).speed_mbit_s(), Some(31.0));
        assert_eq!(Scaled(seen.workers[0].1[CACHE_COLUMN]).value(PARTS_OF_PERCENT), Some(75.0));
        // Some of the others were sent ahead.
        assert!((0.0..=6.0).contains(&seen.waiting), "{}", seen.waiting);
    }

    /// Shows what a look costs and what series take, which is printed; the bytes are held where the rows are defined.
    #[test]
    fn ten_thousand_workers_and_a_million_tasks_are_charted() {
        let engine = farm(10_000, 1_000_000);
        let mut charts = Charts::default();
        let before = resident_bytes();
        let (mut looks, mut adds) = (Duration::MAX, Duration::MAX);
        let began = Instant::now();
        let entitled = Entitled::compute(&engine);
        let entitling = began.elapsed();
        for step in 0..5 {
            let began = Instant::now();
            let seen = look(&engine, &entitled.cpus);
            looks = looks.min(began.elapsed());
            assert_eq!((seen.running, seen.workers.len()), (80_000.0, 10_000));
            let farm = super::super::answers::farm_row(&[(FarmColumn::Running, Some(seen.running))]);
            let began = Instant::now();
            charts
                .add(step, Sample { farm, queues: seen.queues, workers: seen.workers, day_waits: [0.0; 2] });
            adds = adds.min(began.elapsed());
        }
        let grown = resident_bytes().saturating_sub(before);
        println!("a look {looks:?}, taking it in {adds:?}, entitlements {entitling:?}, series {grown} bytes");
        assert_eq!(charts.farm.hour.get(2)[FarmColumn::Running as usize], 80_000.0);
    }

    fn resident_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}
