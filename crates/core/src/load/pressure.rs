//! What a worker reports of its load once a second. Unknown is `None`, never 0.

/// Percent that a mean may say. The kernel's fixed point can round the hundred up a little.
const PERCENT_MAX: f64 = 101.0;
/// Runnable tasks that a load average may say.
const LOAD_AVERAGE_MAX: f64 = 1e6;
/// Cores that a report may say.
const CORES_MAX: f64 = 1e6;
/// Speed that a report may say, in its own unit.
const SPEED_MAX: f64 = 1e9;
/// Core score that a report may say.
const CORE_SCORE_MAX: f64 = 1e6;

/// One line of a pressure file: the share of time, in percent from 0 to 100, in which tasks stalled.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stall {
    /// Mean of about 10 seconds.
    pub avg10: f64,
    /// Mean of about a minute.
    pub avg60: f64,
    /// Mean of about 5 minutes.
    pub avg300: f64,
    /// Microseconds stalled since the machine started.
    pub total_us: u64,
    /// The exact share since the reading before; `None` of a first reading.
    pub window: Option<f64>,
}

/// What one of the kernel's pressure files says.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pressure {
    /// Time in which at least one task stalled.
    pub some: Option<Stall>,
    /// All tasks that were not idle stalled. Older kernels do not say it of cpus.
    pub full: Option<Stall>,
}

/// The pressure files of a machine or of a control group; `None` where a file is absent.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pressures {
    /// Waiting for a cpu.
    pub cpu: Option<Pressure>,
    /// Tasks that wait for memory.
    pub memory: Option<Pressure>,
    /// Waiting for input and output.
    pub io: Option<Pressure>,
}

/// Room of the file system that holds a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskSpace {
    /// Bytes that a process without privileges may still write.
    pub free_bytes: u64,
    /// Bytes of the whole file system.
    pub total_bytes: u64,
}

/// The load of a worker's machine.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LoadReport {
    /// The worker has only a part of its machine: some of the cpus, or a limit on memory. Its own control
    /// group's pressure is then what counts.
    pub confined: bool,
    /// Of the whole machine.
    pub machine: Pressures,
    /// Of the control group in which the worker was started, with its tasks and whatever else is there.
    pub own: Pressures,
    /// Mean number of runnable tasks over 1, 5 and 15 minutes.
    pub load_average: Option<[f64; 3]>,
    /// Bytes that could be had without swapping, within the worker's own limit.
    pub memory_available: Option<u64>,
    /// Bytes that the worker's tasks hold.
    pub memory_own: Option<u64>,
    /// Cores in use, of those that the worker may use.
    pub cpu_used: Option<f64>,
    /// Of the cores that the worker declares, those that something else than its tasks takes.
    pub cpu_foreign: Option<f64>,
    /// Speed of the disks in MB/s, as tasks had it.
    pub disk_mb_s: Option<f64>,
    /// Speed of the network in Mbit/s, as transfers had it.
    pub network_mbit_s: Option<f64>,
    /// Speed of one core, as the agent measured it: 1000 is the reference core. `None` where it did not measure, or the
    /// machine was too busy.
    pub core_score: Option<f64>,
    /// What all links of the machine receive, in Mbit/s.
    pub network_in_mbit_s: Option<f64>,
    /// What all links of the machine send, in Mbit/s.
    pub network_out_mbit_s: Option<f64>,
    /// How much of its speed is in use on the busiest link: percent, mean of about 10 seconds. `None` where no link
    /// says how fast it is.
    pub network_percent: Option<f64>,
    /// Room for the worker's state: output of tasks, and what its agent and keeper write.
    pub state_space: Option<DiskSpace>,
    /// Room for the directories of sessions.
    pub session_space: Option<DiskSpace>,
    /// Room of the cache directory that has least.
    pub cache_space: Option<DiskSpace>,
}

/// A number that nothing can be computed with: not a number, infinite or beyond its limits.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{field}: {value} is not a number from {min} to {max}")]
pub struct BadNumber {
    /// Where it stands, such as `machine.cpu.some.avg10`.
    pub field: String,
    /// The number that was refused.
    pub value: f64,
    /// The smallest that is taken.
    pub min: f64,
    /// The largest that is taken.
    pub max: f64,
}

impl BadNumber {
    /// Refuses what is not between `min` and `max`.
    pub(super) fn check(field: &str, value: f64, min: f64, max: f64) -> Result<(), BadNumber> {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(BadNumber { field: field.to_owned(), value, min, max })
    }
}

impl LoadReport {
    /// The pressures that count for this worker.
    pub fn pressures(&self) -> &Pressures {
        if self.confined { &self.own } else { &self.machine }
    }

    /// Refuses a report with a number that cannot be.
    pub fn check(&self) -> Result<(), BadNumber> {
        for (scope, pressures) in [("machine", &self.machine), ("own", &self.own)] {
            for (resource, pressure) in
                [("cpu", pressures.cpu), ("memory", pressures.memory), ("io", pressures.io)]
            {
                let Some(Pressure { some, full }) = pressure else { continue };
                for (line, stall) in [("some", some), ("full", full)] {
                    let Some(stall) = stall else { continue };
                    stall.check(|name| format!("{scope}.{resource}.{line}.{name}"))?;
                }
            }
        }
        for (name, value) in ["load_average.1", "load_average.5", "load_average.15"]
            .into_iter()
            .zip(self.load_average.iter().flatten())
        {
            BadNumber::check(name, *value, 0.0, LOAD_AVERAGE_MAX)?;
        }
        for (name, value, max) in [
            ("cpu_used", self.cpu_used, CORES_MAX),
            ("cpu_foreign", self.cpu_foreign, CORES_MAX),
            ("disk_mb_s", self.disk_mb_s, SPEED_MAX),
            ("network_mbit_s", self.network_mbit_s, SPEED_MAX),
            ("core_score", self.core_score, CORE_SCORE_MAX),
            ("network_in_mbit_s", self.network_in_mbit_s, SPEED_MAX),
            ("network_out_mbit_s", self.network_out_mbit_s, SPEED_MAX),
            ("network_percent", self.network_percent, PERCENT_MAX),
        ] {
            value.map_or(Ok(()), |value| BadNumber::check(name, value, 0.0, max))?;
        }
        Ok(())
    }
}

impl Stall {
    fn check(&self, name: impl Fn(&str) -> String) -> Result<(), BadNumber> {
        let means = [("avg10", Some(self.avg10)), ("avg60", Some(self.avg60)), ("avg300", Some(self.avg300))];
        for (field, value) in means.into_iter().chain([("window", self.window)]) {
            let Some(value) = value else { continue };
            BadNumber::check(field, value, 0.0, PERCENT_MAX)
                .map_err(|bad| BadNumber { field: name(field), ..bad })?;
        }
        Ok(())
    }
}

/// A pressure file that is not one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum PressureError {
    /// A line lacks a field.
    #[error("{field}: missing")]
    Missing { field: String },
    /// A field is not a number in its range.
    #[error("{field}: '{text}' is not a number from 0 to {max}")]
    Number {
        field: String,
        text: String,
        /// The largest that is taken.
        max: u64,
    },
}

impl Pressure {
    /// Reads the text of a pressure file of Linux, of `/proc/pressure` or of a control group. Lines and fields
    /// that it does not know are passed over.
    ///
    /// `before` is the reading before, and how many microseconds ago that was: with it the total says exactly
    /// for how much of that time tasks stalled.
    pub fn parse(text: &str, before: Option<(&Pressure, u64)>) -> Result<Pressure, PressureError> {
        let mut pressure = Pressure::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (name, known, earlier) = match words.next() {
                Some("some") => ("some", &mut pressure.some, before.and_then(|(before, _)| before.some)),
                Some("full") => ("full", &mut pressure.full, before.and_then(|(before, _)| before.full)),
                _ => continue,
            };
            let mut stall = Stall::parse(name, words)?;
            let elapsed_us = before.map_or(0, |(_, elapsed_us)| elapsed_us);
            stall.window = earlier.and_then(|earlier| stall.window(earlier.total_us, elapsed_us));
            *known = Some(stall);
        }
        Ok(pressure)
    }
}

impl Stall {
    fn parse<'a>(line: &str, words: impl Iterator<Item = &'a str> + Clone) -> Result<Stall, PressureError> {
        let text = |name: &str| {
            let mut fields = words.clone().filter_map(|word| word.split_once('='));
            let found = fields.find(|(field, _)| *field == name);
            found
                .map(|(_, text)| text)
                .ok_or_else(|| PressureError::Missing { field: format!("{line}.{name}") })
        };
        let refused = |name: &str, text: &str, max| {
            let (field, text) = (format!("{line}.{name}"), text.to_owned());
            PressureError::Number { field, text, max }
        };
        let mean = |name: &str| {
            let text = text(name)?;
            let value = text.parse().ok().filter(|value| (0.0..=PERCENT_MAX).contains(value));
            value.map(|value| value.min(100.0)).ok_or_else(|| refused(name, text, 100))
        };
        let total = text("total")?;
        Ok(Stall {
            avg10: mean("avg10")?,
            avg60: mean("avg60")?,
            avg300: mean("avg300")?,
            total_us: total.parse().map_err(|_| refused("total", total, u64::MAX))?,
            window: None,
        })
    }

    /// Percent of the time since a reading before; unknown if no time has passed or the total ran backwards.
    fn window(&self, before_us: u64, elapsed_us: u64) -> Option<f64> {
        let stalled_us = self.total_us.checked_sub(before_us)?;
        (elapsed_us > 0).then(|| (100.0 * stalled_us as f64 / elapsed_us as f64).min(100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "some avg10=2.04 avg60=0.75 avg300=0.40 total=58761\n\
                        full avg10=1.23 avg60=0.58 avg300=0.32 total=38431\n";

    #[test]
    fn both_lines_are_read() {
        let pressure = Pressure::parse(TEXT, None).unwrap();
        let some = Stall { avg10: 2.04, avg60: 0.75, avg300: 0.40, total_us: 58761, window: None };
        let full = Stall { avg10: 1.23, avg60: 0.58, avg300: 0.32, total_us: 38431, window: None };
        assert_eq!(pressure, Pressure { some: Some(some), full: Some(full) });
    }

    #[test]
    fn what_is_unknown_is_passed_over_and_what_is_absent_is_unknown() {
        let text = "irq avg10=x\nsome avg5=1 avg10=100.00 avg60=100.42 avg300=0 total=1 color=red\n";
        let pressure = Pressure::parse(text, None).unwrap();
        let some = Stall { avg10: 100.0, avg60: 100.0, total_us: 1, ..Stall::default() };
        assert_eq!(pressure, Pressure { some: Some(some), full: None });
        assert_eq!(Pressure::parse("", None), Ok(Pressure::default()));
    }

    #[test]
    fn a_bad_field_is_named() {
        let refused =
            |from: &str, to: &str| Pressure::parse(&TEXT.replace(from, to), None).unwrap_err().to_string();
        for bad in ["NaN", "inf", "-inf", "-1.00", "101.01", "1,5", ""] {
            let expected = format!("some.avg10: '{bad}' is not a number from 0 to 100");
            assert_eq!(refused("2.04", bad), expected);
        }
        assert_eq!(refused("0.32", "x"), "full.avg300: 'x' is not a number from 0 to 100");
        for bad in ["-1", "1.5", "18446744073709551616"] {
            let expected = format!("full.total: '{bad}' is not a number from 0 to 18446744073709551615");
            assert_eq!(refused("38431", bad), expected);
        }
        assert_eq!(refused("avg60=0.58 ", ""), "full.avg60: missing");
        assert_eq!(refused(" total=58761", ""), "some.total: missing");
    }

    #[test]
    fn the_window_is_what_the_totals_say() {
        let some = |total: u64| format!("some avg10=0 avg60=0 avg300=0 total={total}\n");
        let window = |from: u64, to: u64, elapsed_us| {
            let before = Pressure::parse(&some(from), None).unwrap();
            Pressure::parse(&some(to), Some((&before, elapsed_us))).unwrap().some.unwrap().window
        };
        assert_eq!(window(1_000, 251_000, 1_000_000), Some(25.0));
        assert_eq!(window(1_000, 1_000, 1_000_000), Some(0.0));
        assert_eq!(window(0, 1_000_003, 1_000_000), Some(100.0), "clocks differ a little");
        assert_eq!(window(1_000, 0, 1_000_000), None, "another machine, or it was started again");
        assert_eq!(window(0, 1_000, 0), None);
        let before = Pressure::parse(&some(0), None).unwrap();
        let full = Pressure::parse(TEXT, Some((&before, 1_000_000))).unwrap().full.unwrap();
        assert_eq!(full.window, None, "the reading before had no such line");
    }

    fn stall(avg10: f64) -> Option<Pressure> {
        Some(Pressure { some: Some(Stall { avg10, ..Stall::default() }), full: None })
    }

    #[test]
    fn a_confined_worker_is_under_its_own_pressure() {
        let machine = Pressures { cpu: stall(1.0), ..Pressures::default() };
        let own = Pressures { cpu: stall(2.0), ..Pressures::default() };
        let report = LoadReport { machine, own, ..LoadReport::default() };
        assert_eq!(report.pressures(), &machine);
        assert_eq!(LoadReport { confined: true, ..report }.pressures(), &own);
    }

    /// Puts a value into a report.
    type Set = fn(&mut LoadReport, f64);

    #[test]
    fn a_number_that_cannot_be_is_refused_with_its_field() {
        let fields: [(&str, f64, Set); 13] = [
            ("machine.cpu.some.avg10", 101.0, |r, v| r.machine.cpu = stall(v)),
            ("own.memory.some.avg10", 101.0, |r, v| r.own.memory = stall(v)),
            ("machine.io.full.avg60", 101.0, |r, v| {
                let full = Some(Stall { avg60: v, ..Stall::default() });
                r.machine.io = Some(Pressure { some: None, full });
            }),
            ("own.cpu.some.window", 101.0, |r, v| {
                let some = Some(Stall { window: Some(v), ..Stall::default() });
                r.own.cpu = Some(Pressure { some, full: None });
            }),
            ("load_average.5", 1e6, |r, v| r.load_average = Some([0.0, v, 0.0])),
            ("cpu_used", 1e6, |r, v| r.cpu_used = Some(v)),
            ("cpu_foreign", 1e6, |r, v| r.cpu_foreign = Some(v)),
            ("disk_mb_s", 1e9, |r, v| r.disk_mb_s = Some(v)),
            ("network_mbit_s", 1e9, |r, v| r.network_mbit_s = Some(v)),
            ("core_score", 1e6, |r, v| r.core_score = Some(v)),
            ("network_in_mbit_s", 1e9, |r, v| r.network_in_mbit_s = Some(v)),
            ("network_out_mbit_s", 1e9, |r, v| r.network_out_mbit_s = Some(v)),
            ("network_percent", 101.0, |r, v| r.network_percent = Some(v)),
        ];
        assert_eq!(LoadReport::default().check(), Ok(()));
        for (field, max, set) in fields {
            let check = |value: f64| {
                let mut report = LoadReport::default();
                set(&mut report, value);
                report.check()
            };
            assert_eq!(check(0.0), Ok(()), "{field}");
            assert_eq!(check(max), Ok(()), "{field}");
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5, max * 1.001] {
                let error = check(bad).unwrap_err();
                assert_eq!((error.field.as_str(), error.max), (field, max));
                assert_eq!(error.value.to_bits(), bad.to_bits(), "{field}");
            }
        }
        let refused = LoadReport { cpu_used: Some(f64::NAN), ..LoadReport::default() }.check().unwrap_err();
        assert_eq!(refused.to_string(), "cpu_used: NaN is not a number from 0 to 1000000");
    }
}
