//! How loaded a worker is for one more task, when its pressure holds it, and how many compile slots it has.

use super::pressure::{BadNumber, DiskSpace, LoadReport, Pressure};
use crate::time::NS_PER_S;

/// The load of a worker without a core: above any other, and finite.
pub const LOAD_NO_CORES: f64 = 1e300;
/// Hundredths of a core that a worker counts as having at least, however much others use of it.
const CORES_LEFT_MIN: f64 = 5.0;
/// The smallest threshold: at 0 a worker that nothing stalls would be held for ever.
const PERCENT_MIN: f64 = 1.0;
/// The smallest release; at 0 a worker once held would stay so.
const RELEASE_MIN: f64 = 0.1;
/// The largest weight of a pressure.
const WEIGHT_MAX: f64 = 100.0;
/// The shortest and the longest time between two reports, and the longest until one is stale.
const REPORT_NS_MIN: f64 = 1e8;
const REPORT_NS_MAX: f64 = 6e10;
const STALE_NS_MAX: f64 = 3.6e12;

/// Bytes that a worker keeps free on a large disk, by cutting old output of tasks.
const KEPT_FREE_BYTES: u64 = 1 << 30;
/// On a small disk, one part in this many.
const KEPT_FREE_PART: u64 = 20;

/// Bytes that a worker keeps free on a disk of this size, by cutting old output of tasks.
pub fn kept_free_bytes(total_bytes: u64) -> u64 {
    KEPT_FREE_BYTES.min(total_bytes / KEPT_FREE_PART)
}

/// What load and pressure do, the table `[load]` of the settings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadSettings {
    /// Pressure and foreign cpu count; otherwise bookings alone do.
    pub pressure: bool,
    /// Percent of cpu pressure from which a worker gets no work.
    pub max_cpu_pressure: f64,
    /// Percent of memory pressure from which a worker gets no work.
    pub max_memory_pressure: f64,
    /// Percent of io pressure from which a worker gets no work.
    pub max_io_pressure: f64,
    /// Percent of a link's speed in use from which a worker gets no network-bound work.
    pub max_network_use: f64,
    /// Free bytes of its state and of its sessions below which a worker gets no work; 0: it always does. `None`: by the
    /// size of the disk, see [`LoadSettings::free_floor_bytes`].
    pub min_free_bytes: Option<u64>,
    /// Part of a threshold below which the worker gets work again.
    pub release: f64,
    /// How much all of the time stalled for cpu adds to the load, as a multiple of it.
    pub cpu_pressure_weight: f64,
    /// The same for memory.
    pub memory_pressure_weight: f64,
    /// The same for input and output.
    pub io_pressure_weight: f64,
    /// Nanoseconds between two reports.
    pub report_ns: u64,
    /// Nanoseconds after which a report says nothing any more: the pressure is unknown then.
    pub stale_ns: u64,
}

impl Default for LoadSettings {
    fn default() -> Self {
        LoadSettings::DEFAULT
    }
}

impl LoadSettings {
    /// The settings of a farm that sets none of them.
    pub const DEFAULT: LoadSettings = LoadSettings {
        pressure: true,
        max_cpu_pressure: 80.0,
        max_memory_pressure: 50.0,
        max_io_pressure: 75.0,
        max_network_use: 90.0,
        min_free_bytes: None,
        release: 0.8,
        cpu_pressure_weight: 2.0,
        memory_pressure_weight: 2.0,
        io_pressure_weight: 0.5,
        report_ns: NS_PER_S,
        stale_ns: 3 * NS_PER_S,
    };

    /// Bytes that must be free on a disk of this size for new work. Where no setting says it, half of what the worker
    /// keeps free by cutting output: that comes first, and frees enough for new work to come again.
    pub fn free_floor_bytes(&self, total_bytes: u64) -> u64 {
        self.min_free_bytes.unwrap_or(kept_free_bytes(total_bytes) / 2)
    }

    /// Refuses a setting that is not between its smallest and its largest value, by its key.
    pub fn check(&self) -> Result<(), BadNumber> {
        for (key, value, min, max) in [
            ("max_cpu_pressure", self.max_cpu_pressure, PERCENT_MIN, 100.0),
            ("max_memory_pressure", self.max_memory_pressure, PERCENT_MIN, 100.0),
            ("max_io_pressure", self.max_io_pressure, PERCENT_MIN, 100.0),
            ("max_network_use", self.max_network_use, PERCENT_MIN, 100.0),
            ("release", self.release, RELEASE_MIN, 1.0),
            ("cpu_pressure_weight", self.cpu_pressure_weight, 0.0, WEIGHT_MAX),
            ("memory_pressure_weight", self.memory_pressure_weight, 0.0, WEIGHT_MAX),
            ("io_pressure_weight", self.io_pressure_weight, 0.0, WEIGHT_MAX),
            ("report_ns", self.report_ns as f64, REPORT_NS_MIN, REPORT_NS_MAX),
            ("stale_ns", self.stale_ns as f64, self.report_ns as f64, STALE_NS_MAX),
        ] {
            BadNumber::check(key, value, min, max)?;
        }
        Ok(())
    }
}

/// The terms of a worker's load that a new task does not change.
///
/// The load is how many hundredths of a core are booked with that task for each that there is, made larger by pressure:
/// `(booked + task) / (cores - foreign) * product(1 + weight * pressure)`. Finite, not negative; lower is better. The task
/// itself is in it: an idle worker under full pressure would otherwise have load 0 and win.
///
/// Tasks with a jobserver use more than they book: all that is not booked beside them, and up to one process more for
/// each of them. So as much counts as booked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadTerms {
    /// With what tasks with a jobserver use beyond their bookings.
    booked_cpu: f64,
    /// Tasks with a jobserver, and the hundredths of a core that nothing else holds or uses.
    jobservers: f64,
    shared_cpu: f64,
    /// Hundredths of a core that nothing else uses; `None` without any core.
    left_cpu: Option<f64>,
    factor: f64,
}

impl LoadTerms {
    /// `cores` are hundredths of a core. A worker is `idle` while the farm runs nothing there. Cpu
    /// pressure counts only then, because otherwise the farm's own tasks make most of it. A number that is unknown adds
    /// nothing; a stale report is `None`.
    pub fn of(
        cores: u32,
        booked: CpuBooked,
        report: Option<&LoadReport>,
        idle: bool,
        settings: &LoadSettings,
    ) -> Self {
        let report = report.filter(|_| settings.pressure);
        let foreign = report.and_then(|report| report.cpu_foreign);
        let foreign_cpu = foreign.map_or(0.0, |cores| cores.max(0.0) * 100.0);
        let left_cpu = (cores > 0).then(|| (f64::from(cores) - foreign_cpu).max(CORES_LEFT_MIN));
        let factor = report.map_or(1.0, |report| pressure_factor(report, idle, settings));
        let others_cpu = f64::from(booked.sum.saturating_sub(booked.of_jobservers));
        let jobservers = f64::from(booked.jobservers);
        let booked_cpu = match booked.jobservers {
            0 => f64::from(booked.sum),
            _ => f64::from(cores.max(booked.sum)) + 100.0 * jobservers,
        };
        let shared_cpu = (f64::from(cores) - others_cpu - foreign_cpu).max(CORES_LEFT_MIN);
        LoadTerms { booked_cpu, jobservers, shared_cpu, left_cpu, factor }
    }

    /// The load after one more task. `task_cpu` is in hundredths of a core.
    pub fn load_with(&self, task_cpu: u32) -> f64 {
        let Some(left_cpu) = self.left_cpu else { return LOAD_NO_CORES };
        (self.booked_cpu + f64::from(task_cpu)) / left_cpu * self.factor
    }

    /// The load after one more task with a jobserver: one divided by the cpus that would be its share, times the same
    /// factor. So of alike workers an idle one has the least load, and then the one with the fewest such tasks.
    pub fn load_with_jobserver(&self) -> f64 {
        if self.left_cpu.is_none() {
            return LOAD_NO_CORES;
        }
        (self.jobservers + 1.0) * 100.0 / self.shared_cpu * self.factor
    }
}

/// What is booked of a worker's cpus, in hundredths of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuBooked {
    /// By all tasks and places.
    pub sum: u32,
    /// Of that, by tasks with a jobserver.
    pub of_jobservers: u32,
    /// The number of these tasks.
    pub jobservers: u32,
}

/// `product(1 + weight * pressure)` over the resources whose pressure is known and counts.
fn pressure_factor(report: &LoadReport, idle: bool, settings: &LoadSettings) -> f64 {
    let pressures = report.pressures();
    let factors = [
        (pressures.cpu.filter(|_| idle), settings.cpu_pressure_weight),
        (pressures.memory, settings.memory_pressure_weight),
        (pressures.io, settings.io_pressure_weight),
    ];
    factors.into_iter().map(|(pressure, weight)| 1.0 + weight * part(pressure)).product()
}

/// The part of the time, 0 to 1, in which some task stalled: what the last second says if that is more than
/// the mean of ten. So it rises at once and falls slowly.
fn part(pressure: Option<Pressure>) -> f64 {
    let Some(stall) = pressure.and_then(|pressure| pressure.some) else { return 0.0 };
    // `max` passes NaN over.
    let percent = [stall.avg10, stall.window.unwrap_or(0.0)].into_iter().fold(0.0, f64::max);
    percent.min(100.0) / 100.0
}

/// Compile slots of a worker with this number of whole cores: a few more than cores, to make up for the time that
/// compiles spend on the network and the disk. Jobs handed out by alloc never exceed it, whatever the pressure.
pub fn slots(cores: u32) -> u32 {
    cores.saturating_add(1).saturating_add(cores / 8)
}

/// Hundredths of a core that one compile slot takes of a worker with `cpu` hundredths: all slots together take what there
/// is, and no slot less than half a core.
pub fn slot_cpu(cpu: u32) -> u32 {
    cpu / slots(cpu / 100)
}

/// What a worker has too little of for new work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saturated {
    /// Its tasks wait too long for a cpu.
    pub cpu: bool,
    /// Its tasks wait too long for memory.
    pub memory: bool,
    /// Its tasks wait too long for input and output.
    pub io: bool,
    /// Its network is in use: it gets no network-bound work, and all other.
    pub network: bool,
    /// Free bytes that its state must have before it gets work again, where it has too few.
    pub state: Option<u64>,
    /// The same for the directories of sessions.
    pub session: Option<u64>,
}

impl Saturated {
    /// True if pressure keeps all work from it.
    pub fn is_pressed(self) -> bool {
        self.cpu || self.memory || self.io
    }

    /// True if it has too little free space for new work.
    pub fn lacks_space(self) -> bool {
        self.state.is_some() || self.session.is_some()
    }

    /// What a new report makes of it. What is unknown does not saturate; a report that is stale is `None`.
    ///
    /// - A resource saturates when its mean of ten seconds reaches the threshold, and stays so until it is below the
    ///   threshold's `release`. Cpu saturates only while the worker is `idle`, as in [`LoadTerms::of`].
    /// - Space is too little below the floor, until as much is free of which `release` would be the floor. That holds
    ///   although pressure does not count: tasks fail on a full disk.
    pub fn update(self, report: Option<&LoadReport>, idle: bool, settings: &LoadSettings) -> Saturated {
        let Some(report) = report else { return Saturated::default() };
        let space = Saturated {
            state: lacking(self.state, report.state_space, settings),
            session: lacking(self.session, report.session_space, settings),
            ..Saturated::default()
        };
        if !settings.pressure {
            return space;
        }
        let pressures = report.pressures();
        let over = |was: bool, percent: Option<f64>, max: f64| {
            let from = if was { max * settings.release } else { max };
            percent.is_some_and(|percent| percent >= from)
        };
        let mean = |pressure: Option<Pressure>| Some(pressure?.some?.avg10);
        Saturated {
            cpu: idle && over(self.cpu, mean(pressures.cpu), settings.max_cpu_pressure),
            memory: over(self.memory, mean(pressures.memory), settings.max_memory_pressure),
            io: over(self.io, mean(pressures.io), settings.max_io_pressure),
            network: over(self.network, report.network_percent, settings.max_network_use),
            ..space
        }
    }
}

/// Free bytes that there must be before the worker gets work again, where there are too few.
fn lacking(was: Option<u64>, space: Option<DiskSpace>, settings: &LoadSettings) -> Option<u64> {
    let DiskSpace { free_bytes, total_bytes } = space?;
    let floor = settings.free_floor_bytes(total_bytes);
    // A file system that is smaller than the floor could never be free enough.
    let until = ((floor as f64 / settings.release) as u64).clamp(floor, total_bytes.max(floor));
    (free_bytes < if was.is_some() { until } else { floor }).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::super::pressure::{Pressures, Stall};
    use super::*;

    const ON: LoadSettings = LoadSettings::DEFAULT;

    fn load(
        cores: u32,
        booked_cpu: u32,
        task_cpu: u32,
        report: Option<&LoadReport>,
        idle: bool,
        settings: &LoadSettings,
    ) -> f64 {
        let booked = CpuBooked { sum: booked_cpu, ..CpuBooked::default() };
        LoadTerms::of(cores, booked, report, idle, settings).load_with(task_cpu)
    }

    /// The load of a worker with these cores and `jobservers` tasks with a jobserver beside what others book: with one
    /// more such task, and with another task of one core.
    fn shared(cores: u32, others_cpu: u32, jobservers: u32, report: Option<&LoadReport>) -> (f64, f64) {
        let of_jobservers = 10 * jobservers;
        let booked = CpuBooked { sum: others_cpu + of_jobservers, of_jobservers, jobservers };
        let terms = LoadTerms::of(cores, booked, report, false, &ON);
        (terms.load_with_jobserver(), terms.load_with(100))
    }

    fn stall(avg10: f64) -> Option<Pressure> {
        Some(Pressure { some: Some(Stall { avg10, ..Stall::default() }), full: None })
    }

    fn report(cpu: f64, memory: f64, io: f64) -> LoadReport {
        let machine = Pressures { cpu: stall(cpu), memory: stall(memory), io: stall(io) };
        LoadReport { machine, ..LoadReport::default() }
    }

    /// Of a worker with 8 cores and `jobs` jobs of a core each, idle if there are none.
    fn of_eight(jobs: u32, report: &LoadReport) -> f64 {
        load(800, jobs * 100, 100, Some(report), jobs == 0, &ON)
    }

    #[test]
    fn the_settings_are_those_of_the_documents() {
        assert_eq!(LoadSettings { pressure: true, ..LoadSettings::default() }, ON);
        assert_eq!(ON.check(), Ok(()));
    }

    #[test]
    fn a_bad_setting_is_named() {
        type Set = fn(&mut LoadSettings, f64);
        let keys: [(&str, f64, f64, Set); 8] = [
            ("max_cpu_pressure", 1.0, 100.0, |s, v| s.max_cpu_pressure = v),
            ("max_memory_pressure", 1.0, 100.0, |s, v| s.max_memory_pressure = v),
            ("max_io_pressure", 1.0, 100.0, |s, v| s.max_io_pressure = v),
            ("max_network_use", 1.0, 100.0, |s, v| s.max_network_use = v),
            ("release", 0.1, 1.0, |s, v| s.release = v),
            ("cpu_pressure_weight", 0.0, 100.0, |s, v| s.cpu_pressure_weight = v),
            ("memory_pressure_weight", 0.0, 100.0, |s, v| s.memory_pressure_weight = v),
            ("io_pressure_weight", 0.0, 100.0, |s, v| s.io_pressure_weight = v),
        ];
        for (key, min, max, set) in keys {
            let check = |value| {
                let mut settings = ON;
                set(&mut settings, value);
                settings.check()
            };
            assert_eq!((check(min), check(max)), (Ok(()), Ok(())), "{key}");
            for bad in [f64::NAN, f64::INFINITY, min - 0.1, max + 0.5] {
                assert_eq!(check(bad).unwrap_err().field, key);
            }
        }
        for report_ns in [0, 61 * NS_PER_S] {
            assert_eq!(LoadSettings { report_ns, ..ON }.check().unwrap_err().field, "report_ns");
        }
        for stale_ns in [ON.report_ns - 1, u64::MAX] {
            assert_eq!(LoadSettings { stale_ns, ..ON }.check().unwrap_err().field, "stale_ns");
        }
    }

    #[test]
    fn the_factors_of_pressure() {
        // Each alone, at 0, 50 and 100 percent.
        for (at, cpu, memory, io) in [(0.0, 1.0, 1.0, 1.0), (50.0, 2.0, 2.0, 1.25), (100.0, 3.0, 3.0, 1.5)] {
            assert_eq!(of_eight(0, &report(at, 0.0, 0.0)), cpu / 8.0);
            assert_eq!(of_eight(0, &report(0.0, at, 0.0)), memory / 8.0);
            assert_eq!(of_eight(0, &report(0.0, 0.0, at)), io / 8.0);
        }
        // Together they multiply: 50 and 50 percent make four times the load.
        assert_eq!(of_eight(0, &report(50.0, 50.0, 0.0)), 4.0 / 8.0);
        assert_eq!(of_eight(0, &report(100.0, 100.0, 100.0)), 13.5 / 8.0);
    }

    #[test]
    fn cpu_pressure_of_our_own_making_does_not_count() {
        // Repaired: it was counted always, so a worker that was busy with our own tasks looked overloaded.
        assert_eq!(of_eight(3, &report(50.0, 50.0, 0.0)), 4.0 / 8.0 * 2.0);
    }

    #[test]
    fn an_idle_worker_under_full_memory_pressure_does_not_win() {
        // Repaired: without the task itself its load was 0 times 3.
        let pressed = of_eight(0, &report(0.0, 100.0, 0.0));
        let busy = of_eight(1, &report(0.0, 0.0, 0.0));
        assert!(pressed > busy, "{pressed} {busy}");
        assert!(Saturated::default().update(Some(&report(0.0, 100.0, 0.0)), true, &ON).memory);
    }

    #[test]
    fn slots_are_cores_and_a_little_slack() {
        let vectors = [(1, 2), (2, 3), (4, 5), (8, 10), (16, 19), (64, 73)];
        for (cores, expected) in vectors {
            assert_eq!(slots(cores), expected);
        }
        assert_eq!(slots(u32::MAX), u32::MAX);
    }

    #[test]
    fn slots_share_the_cores_and_each_takes_half_a_core_or_more() {
        assert_eq!([100, 200, 800, 6_400].map(slot_cpu), [50, 66, 80, 87]);
        for cores in 1..=4_096 {
            let slot = slot_cpu(cores * 100);
            assert!(slot >= 50 && slot * slots(cores) <= cores * 100, "{cores} cores");
        }
        assert_eq!((slot_cpu(0), slot_cpu(50), slot_cpu(150)), (0, 50, 75));
    }

    #[test]
    fn slots_cap_a_worker_without_any_pressure() {
        // Repaired: where metrics were known the slack was skipped and all below load 2 accepted, 128 jobs on
        // 64 cores. The load of the 74th is well below 2 still; it is the number of slots that refuses it.
        let calm = report(0.0, 0.0, 0.0);
        assert!(load(6400, 7300, 100, Some(&calm), false, &ON) < 2.0);
        assert!(slots(64) < 74);
    }

    #[test]
    fn numbers_that_cannot_be_are_unknown_to_the_formula() {
        // Repaired: a NaN turned into the largest load, by the order of two calls. Here it is refused at the
        // door, and would add nothing.
        for bad in [f64::NAN, f64::NEG_INFINITY, -5.0] {
            let report = LoadReport { cpu_foreign: Some(bad), ..report(bad, bad, bad) };
            assert!(report.check().is_err());
            assert_eq!(of_eight(0, &report), 1.0 / 8.0);
            assert!(!Saturated::default().update(Some(&report), true, &ON).is_pressed());
        }
        assert_eq!(of_eight(0, &report(f64::INFINITY, 1e9, 1e9)), 13.5 / 8.0);
    }

    #[test]
    fn the_last_second_counts_if_it_is_worse_than_the_mean() {
        let both = |avg10, window| {
            let some = Some(Stall { avg10, window: Some(window), ..Stall::default() });
            let memory = Some(Pressure { some, full: None });
            let machine = Pressures { memory, ..Pressures::default() };
            of_eight(0, &LoadReport { machine, ..LoadReport::default() })
        };
        assert_eq!(both(0.0, 50.0), 2.0 / 8.0);
        assert_eq!(both(50.0, 0.0), 2.0 / 8.0);
    }

    #[test]
    fn what_others_use_is_not_there() {
        let foreign = |cores| LoadReport { cpu_foreign: Some(cores), ..report(0.0, 0.0, 0.0) };
        assert_eq!(of_eight(1, &foreign(4.0)), 2.0 / 4.0);
        assert_eq!(of_eight(1, &foreign(8.0)), 2.0 / 0.05, "a twentieth of a core is left");
        assert_eq!(of_eight(1, &foreign(1e6)), 2.0 / 0.05);
    }

    #[test]
    fn a_task_with_a_jobserver_counts_for_what_it_would_use() {
        let with_jobserver = |cores, others, jobservers| shared(cores, others, jobservers, None).0;
        assert_eq!(with_jobserver(800, 0, 0), 1.0 / 8.0);
        assert_eq!(with_jobserver(800, 0, 1), 1.0 / 4.0, "half of the worker");
        assert_eq!(with_jobserver(800, 600, 0), 1.0 / 2.0, "what others hold is not shared");
        assert_eq!(with_jobserver(1_600, 0, 1), with_jobserver(800, 0, 0));
        let foreign = LoadReport { cpu_foreign: Some(4.0), ..LoadReport::default() };
        assert_eq!(shared(800, 0, 0, Some(&foreign)).0, 1.0 / 4.0);
        assert_eq!(with_jobserver(0, 0, 0), LOAD_NO_CORES);
        assert!(with_jobserver(800, 800, 3).is_finite());
        let other = |others, jobservers| shared(800, others, jobservers, None).1;
        assert_eq!(other(0, 0), 1.0 / 8.0);
        assert!(other(700, 0) < other(0, 1), "idle cpus come before those that builds use");
        assert!(other(0, 1) < other(0, 2) && other(0, 2) < other(0, 9));
        assert_eq!(other(0, 1), other(300, 1), "they have what others leave");
    }

    #[test]
    fn the_load_is_finite() {
        assert_eq!(load(0, 0, 100, None, true, &ON), LOAD_NO_CORES);
        let heavy = LoadSettings {
            cpu_pressure_weight: 100.0,
            memory_pressure_weight: 100.0,
            io_pressure_weight: 100.0,
            ..ON
        };
        let worst = LoadReport { cpu_foreign: Some(1e6), ..report(100.0, 100.0, 100.0) };
        let most = load(1, u32::MAX, u32::MAX, Some(&worst), true, &heavy);
        assert!(most > 1e9 && most < LOAD_NO_CORES, "{most}");
    }

    #[test]
    fn without_a_report_or_when_switched_off_bookings_alone_count() {
        let worst = LoadReport { cpu_foreign: Some(7.0), ..report(100.0, 100.0, 100.0) };
        let off = LoadSettings { pressure: false, ..ON };
        assert_eq!(load(800, 0, 100, None, true, &ON), 1.0 / 8.0);
        assert_eq!(load(800, 0, 100, Some(&LoadReport::default()), true, &ON), 1.0 / 8.0);
        assert_eq!(load(800, 0, 100, Some(&worst), true, &off), 1.0 / 8.0);
        let all = Saturated { cpu: true, memory: true, io: true, network: true, ..Saturated::default() };
        assert!(!all.update(Some(&worst), true, &off).is_pressed());
        assert!(!all.update(None, true, &ON).is_pressed());
        assert!(!all.update(Some(&LoadReport::default()), true, &ON).is_pressed());
    }

    #[test]
    fn a_confined_worker_is_held_by_its_own_pressure() {
        let machine = report(0.0, 90.0, 0.0);
        let confined = LoadReport { confined: true, ..machine };
        assert!(Saturated::default().update(Some(&machine), true, &ON).is_pressed());
        assert!(!Saturated::default().update(Some(&confined), true, &ON).is_pressed());
        assert_eq!(of_eight(0, &confined), 1.0 / 8.0);
    }

    #[test]
    fn a_saturated_worker_is_released_at_four_fifths() {
        let mut memory = Saturated::default();
        let mut seen = Vec::new();
        for at in [49.9, 50.0, 45.0, 40.0, 39.9, 49.9, 50.0] {
            memory = memory.update(Some(&report(0.0, at, 0.0)), false, &ON);
            assert_eq!(memory.is_pressed(), memory.memory);
            seen.push(memory.memory);
        }
        assert_eq!(seen, [false, true, true, true, false, false, true]);
        let io = Saturated::default().update(Some(&report(79.9, 49.9, 75.0)), true, &ON);
        assert_eq!(io, Saturated { io: true, ..Saturated::default() });
        assert_eq!(io.update(Some(&report(0.0, 0.0, 60.0)), true, &ON), io);
        assert!(!io.update(Some(&report(0.0, 0.0, 59.9)), true, &ON).is_pressed());
    }

    #[test]
    fn cpu_saturates_an_idle_worker_only() {
        let busy = report(97.0, 0.0, 0.0);
        let held = Saturated::default().update(Some(&busy), true, &ON);
        assert_eq!(held, Saturated { cpu: true, ..Saturated::default() });
        assert!(held.update(Some(&report(64.0, 0.0, 0.0)), true, &ON).cpu);
        assert!(!held.update(Some(&busy), false, &ON).is_pressed());
    }

    const MIB: u64 = 1 << 20;

    /// A report of a disk of 100 GiB with `free_mib` MiB free for sessions.
    fn free(free_mib: u64) -> LoadReport {
        let session_space = Some(DiskSpace { free_bytes: free_mib * MIB, total_bytes: 100 << 30 });
        LoadReport { session_space, ..LoadReport::default() }
    }

    #[test]
    fn a_worker_gets_no_work_below_half_of_what_it_keeps_free() {
        assert_eq!(ON.free_floor_bytes(100 << 30), 512 * MIB);
        assert_eq!(ON.free_floor_bytes(400 * MIB), 10 * MIB, "a fortieth of a small disk");
        let set = LoadSettings { min_free_bytes: Some(3 << 30), ..ON };
        assert_eq!((set.free_floor_bytes(100 << 30), set.free_floor_bytes(1)), (3 << 30, 3 << 30));
        let mut held = Saturated::default();
        let mut seen = Vec::new();
        for mib in [512, 511, 512, 639, 640, 600, 0, 1_000] {
            held = held.update(Some(&free(mib)), true, &ON);
            seen.push(held.session.map(|until| until / MIB));
            assert_eq!(
                (held.lacks_space(), held.state, held.is_pressed()),
                (held.session.is_some(), None, false)
            );
        }
        assert_eq!(seen, [None, Some(640), Some(640), Some(640), None, None, Some(640), None]);
        assert!(640 * MIB < kept_free_bytes(100 << 30), "cutting output frees enough");
    }

    #[test]
    fn space_counts_without_pressure_and_not_when_it_is_unknown_or_asked_for_none() {
        let full = free(0);
        let off = LoadSettings { pressure: false, ..ON };
        assert!(Saturated::default().update(Some(&full), true, &off).lacks_space());
        let any = LoadSettings { min_free_bytes: Some(0), ..ON };
        let held = Saturated::default().update(Some(&full), true, &ON);
        assert!(!held.update(Some(&full), true, &any).lacks_space());
        assert!(!held.update(None, true, &ON).lacks_space());
        assert!(!held.update(Some(&LoadReport::default()), true, &ON).lacks_space());
    }

    #[test]
    fn a_file_system_smaller_than_the_floor_is_let_go_on_when_it_is_empty() {
        let settings = LoadSettings { min_free_bytes: Some(80), ..ON };
        let of_90 = |free_bytes| LoadReport {
            state_space: Some(DiskSpace { free_bytes, total_bytes: 90 }),
            ..LoadReport::default()
        };
        let held = Saturated::default().update(Some(&of_90(79)), true, &settings);
        assert_eq!(held.state, Some(90), "and not 100");
        assert_eq!(held.update(Some(&of_90(90)), true, &settings).state, None);
    }

    #[test]
    fn a_network_in_use_is_no_pressure_and_is_released_at_four_fifths() {
        let used = |network_percent| LoadReport { network_percent, ..LoadReport::default() };
        let mut held = Saturated::default();
        let mut seen = Vec::new();
        for percent in [Some(89.9), Some(90.0), Some(72.0), Some(71.9), Some(89.0), Some(95.0), None] {
            held = held.update(Some(&used(percent)), true, &ON);
            seen.push(held.network);
            assert!(!held.is_pressed() && !held.lacks_space());
        }
        assert_eq!(seen, [false, true, true, false, false, true, false]);
    }
}
