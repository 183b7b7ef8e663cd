//! How loaded a worker is for one more task, when its pressure holds it, and how many compile slots it has.

use super::pressure::{BadNumber, LoadReport, Pressure};
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
        LoadSettings {
            pressure: true,
            max_cpu_pressure: 80.0,
            max_memory_pressure: 50.0,
            max_io_pressure: 75.0,
            release: 0.8,
            cpu_pressure_weight: 2.0,
            memory_pressure_weight: 2.0,
            io_pressure_weight: 0.5,
            report_ns: NS_PER_S,
            stale_ns: 3 * NS_PER_S,
        }
    }
}

impl LoadSettings {
    /// Refuses a setting that is not between its smallest and its largest value, by its key.
    pub fn check(&self) -> Result<(), BadNumber> {
        for (key, value, min, max) in [
            ("max_cpu_pressure", self.max_cpu_pressure, PERCENT_MIN, 100.0),
            ("max_memory_pressure", self.max_memory_pressure, PERCENT_MIN, 100.0),
            ("max_io_pressure", self.max_io_pressure, PERCENT_MIN, 100.0),
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

/// How many hundredths of a core there are for each that is booked when one more task comes, made larger by
/// pressure: `(booked + task) / (cores - foreign) * product(1 + weight * pressure)`. Finite, not negative;
/// lower is better. The task itself is in it: an idle worker under full pressure would otherwise have load 0
/// and win.
///
/// Shapes: `cores`, `booked_cpu` and `task_cpu` in hundredths of a core. A worker is `idle` while nothing of
/// ours is booked there: only then does cpu pressure count, for otherwise it is mostly of our own making. What
/// is unknown adds nothing; a report that is stale is `None`.
pub fn load(
    cores: u32,
    booked_cpu: u32,
    task_cpu: u32,
    report: Option<&LoadReport>,
    idle: bool,
    settings: &LoadSettings,
) -> f64 {
    if cores == 0 {
        return LOAD_NO_CORES;
    }
    let booked = f64::from(booked_cpu) + f64::from(task_cpu);
    let report = report.filter(|_| settings.pressure);
    let foreign = report.and_then(|report| report.cpu_foreign).map_or(0.0, |cores| cores.max(0.0) * 100.0);
    let left = (f64::from(cores) - foreign).max(CORES_LEFT_MIN);
    booked / left * report.map_or(1.0, |report| pressure_factor(report, idle, settings))
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

/// Compile slots of a worker with so many whole cores: a few more than cores, to make up for the time that
/// compiles spend on the network and the disk. Jobs handed out by alloc never exceed it, whatever the pressure.
pub fn slots(cores: u32) -> u32 {
    cores.saturating_add(1).saturating_add(cores / 8)
}

/// The resources for whose pressure a worker gets no work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saturated {
    /// Waiting for a cpu.
    pub cpu: bool,
    /// Waiting for memory.
    pub memory: bool,
    /// Waiting for input and output.
    pub io: bool,
}

impl Saturated {
    /// Any of them.
    pub fn any(self) -> bool {
        self.cpu || self.memory || self.io
    }

    /// What a new report makes of it: a resource saturates when its mean of ten seconds reaches the threshold,
    /// and stays so until it is below the threshold's `release`. Cpu saturates only while the worker is `idle`,
    /// as in [`load`]. What is unknown does not saturate; a report that is stale is `None`.
    pub fn update(self, report: Option<&LoadReport>, idle: bool, settings: &LoadSettings) -> Saturated {
        let Some(report) = report.filter(|_| settings.pressure) else { return Saturated::default() };
        let pressures = report.pressures();
        let over = |was: bool, pressure: Option<Pressure>, max: f64| {
            let from = if was { max * settings.release } else { max };
            pressure.and_then(|pressure| pressure.some).is_some_and(|stall| stall.avg10 >= from)
        };
        Saturated {
            cpu: idle && over(self.cpu, pressures.cpu, settings.max_cpu_pressure),
            memory: over(self.memory, pressures.memory, settings.max_memory_pressure),
            io: over(self.io, pressures.io, settings.max_io_pressure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pressure::{Pressures, Stall};
    use super::*;

    const ON: LoadSettings = LoadSettings {
        pressure: true,
        max_cpu_pressure: 80.0,
        max_memory_pressure: 50.0,
        max_io_pressure: 75.0,
        release: 0.8,
        cpu_pressure_weight: 2.0,
        memory_pressure_weight: 2.0,
        io_pressure_weight: 0.5,
        report_ns: NS_PER_S,
        stale_ns: 3 * NS_PER_S,
    };

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
        let keys: [(&str, f64, f64, Set); 7] = [
            ("max_cpu_pressure", 1.0, 100.0, |s, v| s.max_cpu_pressure = v),
            ("max_memory_pressure", 1.0, 100.0, |s, v| s.max_memory_pressure = v),
            ("max_io_pressure", 1.0, 100.0, |s, v| s.max_io_pressure = v),
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
            assert!(!Saturated::default().update(Some(&report), true, &ON).any());
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
        let all = Saturated { cpu: true, memory: true, io: true };
        assert!(!all.update(Some(&worst), true, &off).any());
        assert!(!all.update(None, true, &ON).any());
        assert!(!all.update(Some(&LoadReport::default()), true, &ON).any());
    }

    #[test]
    fn a_confined_worker_is_held_by_its_own_pressure() {
        let machine = report(0.0, 90.0, 0.0);
        let confined = LoadReport { confined: true, ..machine };
        assert!(Saturated::default().update(Some(&machine), true, &ON).any());
        assert!(!Saturated::default().update(Some(&confined), true, &ON).any());
        assert_eq!(of_eight(0, &confined), 1.0 / 8.0);
    }

    #[test]
    fn a_saturated_worker_is_released_at_four_fifths() {
        let mut memory = Saturated::default();
        let mut seen = Vec::new();
        for at in [49.9, 50.0, 45.0, 40.0, 39.9, 49.9, 50.0] {
            memory = memory.update(Some(&report(0.0, at, 0.0)), false, &ON);
            assert_eq!(memory.any(), memory.memory);
            seen.push(memory.memory);
        }
        assert_eq!(seen, [false, true, true, true, false, false, true]);
        let io = Saturated::default().update(Some(&report(79.9, 49.9, 75.0)), true, &ON);
        assert_eq!(io, Saturated { io: true, ..Saturated::default() });
        assert_eq!(io.update(Some(&report(0.0, 0.0, 60.0)), true, &ON), io);
        assert!(!io.update(Some(&report(0.0, 0.0, 59.9)), true, &ON).any());
    }

    #[test]
    fn cpu_saturates_an_idle_worker_only() {
        let busy = report(97.0, 0.0, 0.0);
        let held = Saturated::default().update(Some(&busy), true, &ON);
        assert_eq!(held, Saturated { cpu: true, ..Saturated::default() });
        assert!(held.update(Some(&report(64.0, 0.0, 0.0)), true, &ON).cpu);
        assert!(!held.update(Some(&busy), false, &ON).any());
    }
}
