//! Settings of how places are chosen: the turns of queues, what load does, the policy that ranks workers, and what is
//! kept free for work that is hard to place.

use super::setting::{settings, words};
use serde::Deserialize;
use std::time::Duration;
use windlass_core::bounds;
use windlass_core::load::formula::LoadSettings;
use windlass_core::plan::Policy;
use windlass_core::queues::TurnSettings;
use windlass_core::score::policy::{self, DEFAULT_POLICY};
use windlass_core::time::NS_PER_MS;
use windlass_core::worker::Saturation;

/// Most bytes of a policy's name.
const POLICY_BYTES_MAX: usize = 64;

settings! {
    /// The queue that is served next.
    pub struct Turn {
        /// What a task is [charged](../queues.md#weights-and-what-a-task-costs): `time`, its share of the worker times its
        /// run time, or `task`, one each.
        charge: Charge = Charge::Time, formerly "charge";
        /// At most one of this number of bookings in a band goes out of turn, to a queue that has just become backlogged;
        /// 0 for none.
        express: u32 = 8, within 0..=1_000_000, formerly "express";
    }
}

/// What a booking costs its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Charge {
    /// The part of its worker that it holds, for as long as it does.
    Time,
    /// One, like every other.
    Task,
}

words!(Charge, "`\"time\"` or `\"task\"`");

impl Turn {
    /// The settings as the core has them.
    pub(super) fn settings(&self) -> TurnSettings {
        let charge = match self.charge {
            Charge::Time => windlass_core::queues::Charge::Time,
            Charge::Task => windlass_core::queues::Charge::Task,
        };
        TurnSettings { charge, express: Some(self.express).filter(|every| *every > 0) }
    }
}

settings! {
    /// Jobs that are kept in memory.
    pub struct Cache {
        /// Steps [kept in memory](../server.md#more-jobs-than-memory) before jobs are parked.
        steps: u32 = bounds::CACHE_STEPS as u32, within 1..=100_000_000;
    }
}

settings! {
    /// Bin packing instead of spreading tasks over workers.
    pub struct Placement {
        /// Fill the worker with the fewest free cpus first.
        core_saturation: bool = false, formerly "core_saturation";
        /// Fill the worker with the least free memory first.
        memory_saturation: bool = false, formerly "memory_saturation";
    }
}

impl Placement {
    /// The resources of which the fullest worker is filled first.
    pub(super) fn saturation(&self) -> Saturation {
        Saturation { cores: self.core_saturation, memory: self.memory_saturation }
    }
}

settings! {
    /// What the load of a worker's machine does, beyond bookings.
    pub struct LoadConfig {
        /// Whether pressure and foreign load count. Otherwise bookings alone do.
        pressure: bool = true, formerly "pressure";
        /// Percent of cpu pressure from which a worker gets no work. It counts only after no task has run on the worker
        /// for 30 seconds, because tasks cause cpu pressure themselves.
        max_cpu_pressure: f64 = 80.0, within 1..=100, formerly "max_cpu_pressure";
        /// Percent of memory pressure from which a worker gets no work. It always counts.
        max_memory_pressure: f64 = 50.0, within 1..=100, formerly "max_memory_pressure";
        /// Percent of io pressure from which a worker gets no work. It always counts.
        max_io_pressure: f64 = 75.0, within 1..=100, formerly "max_io_pressure";
        /// Percent of a network link's speed, as a mean of 10 seconds, from which a worker gets no network-bound work. Off
        /// where no link tells its speed.
        max_network_use: f64 = 90.0, within 1..=100, formerly "max_network_use";
        /// Free space of a worker's state and session directories below which it gets no work; 0: it always does. By
        /// default 512 MiB, or a fortieth of a disk of less than 20 GiB.
        min_free_bytes: Option<u64> = None, unit Bytes, formerly "min_free";
        /// How much a cpu pressure of 100 percent adds to a worker's load, as a multiple of the load.
        cpu_pressure_weight: f64 = 2.0, within 0..=100, formerly "cpu_pressure_weight";
        /// How much a memory pressure of 100 percent adds to a worker's load, as a multiple of the load.
        memory_pressure_weight: f64 = 2.0, within 0..=100, formerly "memory_pressure_weight";
        /// How much an io pressure of 100 percent adds to a worker's load, as a multiple of the load.
        io_pressure_weight: f64 = 0.5, within 0..=100, formerly "io_pressure_weight";
        /// Part of its threshold below which pressure must fall before a worker gets work again. Free space must rise to
        /// the floor divided by it.
        release: f64 = 0.8, within 0.1..=1.0, formerly "pressure_release";
        /// Milliseconds between two load reports of a worker.
        report_ms: u64 = 1_000, within 100..=60_000, formerly "report_ms";
        /// Missing reports after which a worker's pressure is unknown. Bookings count on.
        stale_reports: u32 = 3, within 1..=60, formerly "stale_reports";
    }
}

impl LoadConfig {
    /// The settings as the core has them.
    pub fn settings(&self) -> LoadSettings {
        let report_ns = self.report_ms.saturating_mul(NS_PER_MS);
        LoadSettings {
            pressure: self.pressure,
            max_cpu_pressure: self.max_cpu_pressure,
            max_memory_pressure: self.max_memory_pressure,
            max_io_pressure: self.max_io_pressure,
            max_network_use: self.max_network_use,
            min_free_bytes: self.min_free_bytes,
            release: self.release,
            cpu_pressure_weight: self.cpu_pressure_weight,
            memory_pressure_weight: self.memory_pressure_weight,
            io_pressure_weight: self.io_pressure_weight,
            report_ns,
            stale_ns: report_ns.saturating_mul(u64::from(self.stale_reports)),
        }
    }

    /// Time between two reports of a worker.
    pub fn report(&self) -> Duration {
        Duration::from_millis(self.report_ms)
    }
}

settings! {
    /// How workers with room are ranked.
    pub struct Score {
        /// The scoring policy: `simple`, `resource-aware`, `pressure` or `packing`. For an unknown name the server logs a
        /// warning and takes the default.
        policy: String = "resource-aware".to_owned(), formerly "scoring_policy";
        /// Target for the queueing delay of steps that give no `--max-wait`.
        wait_deadline_s: f64 = 60.0, unit Seconds, within 1.0..=1e7, formerly "wait_deadline_s";
        /// Time after which the means of the farm with which rules compare are computed again.
        interval_s: f64 = 30.0, unit Seconds, within 1.0..=3_600.0;
    }
}

impl Score {
    /// The policy; of `packing`, the one that fills what is to be filled.
    pub(super) fn policy(&self, saturation: Saturation) -> Policy {
        let (known, is_known) = policy::policy_by_name(&self.policy);
        if !is_known {
            tracing::warn!("there is no scoring policy '{}'; {DEFAULT_POLICY} is taken", self.policy);
        }
        Policy(if known.name() == "packing" { policy::packing(saturation) } else { known })
    }

    /// When a task that could start should have, in milliseconds.
    pub fn wait_deadline_ms(&self) -> u64 {
        (self.wait_deadline_s * 1000.0).round() as u64
    }

    /// Nanoseconds after which the means of the farm are computed again.
    pub fn means_ns(&self) -> u64 {
        Duration::from_secs_f64(self.interval_s).as_nanos() as u64
    }

    /// Says which setting makes no sense, beyond bounds.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.policy.len() {
            1..=POLICY_BYTES_MAX => Ok(()),
            _ => Err(format!("score.policy must have from 1 to {POLICY_BYTES_MAX} bytes")),
        }
    }
}

settings! {
    /// Room for wide work in a stream of narrow work.
    pub struct Reservation {
        /// Time for which work may be blocked, while other work is placed out of turn where it would fit, before a worker
        /// is reserved for it.
        after_s: f64 = 60.0, unit Seconds, within 0.0..=1e7;
        /// Workers that may be reserved at a time; 0 for none.
        holders: u32 = 8, within 0..=1_000;
    }
}

impl Reservation {
    /// For how long smaller work may be placed where blocked work would fit.
    pub fn after(&self) -> Duration {
        Duration::from_secs_f64(self.after_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use windlass_core::engine::Settings;
    use windlass_core::plan::ReservationSettings;

    fn refused(text: &str) -> String {
        Config::parse(text).unwrap_err()
    }

    #[test]
    fn defaults_are_those_of_the_core() {
        let config = Config::default();
        assert_eq!(config.load.settings(), LoadSettings::default());
        config.check().unwrap();
        assert_eq!((config.score.wait_deadline_ms(), config.reservation.after().as_secs()), (60_000, 60));
    }

    #[test]
    fn every_setting_reaches_the_core() {
        let config = Config::parse(
            "[load]\npressure = true\nmax_cpu_pressure = 1\nmax_memory_pressure = 2\nmax_io_pressure = 3\n\
             max_network_use = 8\nmin_free_bytes = 9\n\
             cpu_pressure_weight = 4\nmemory_pressure_weight = 5\nio_pressure_weight = 6\nrelease = 0.7\n\
             report_ms = 500\nstale_reports = 4\n[score]\npolicy = 'simple'\nwait_deadline_s = 1.5\n\
             [reservation]\nafter_s = 0.5\nholders = 0",
        )
        .unwrap();
        let expected = LoadSettings {
            pressure: true,
            max_cpu_pressure: 1.0,
            max_memory_pressure: 2.0,
            max_io_pressure: 3.0,
            max_network_use: 8.0,
            min_free_bytes: Some(9),
            cpu_pressure_weight: 4.0,
            memory_pressure_weight: 5.0,
            io_pressure_weight: 6.0,
            release: 0.7,
            report_ns: 500_000_000,
            stale_ns: 2_000_000_000,
        };
        assert_eq!(config.load.settings(), expected);
        assert_eq!((&*config.score.policy, config.score.wait_deadline_ms()), ("simple", 1_500));
        assert_eq!((config.reservation.after().as_millis(), config.reservation.holders), (500, 0));
    }

    #[test]
    fn the_engine_has_every_setting() {
        let settings = |text: &str| Config::parse(text).unwrap().engine_settings();
        assert_eq!(settings(""), Settings::default());
        let turn = |text: &str| settings(&format!("[turn]\n{text}")).plan.turn;
        let by_task = TurnSettings { charge: windlass_core::queues::Charge::Task, express: Some(3) };
        assert_eq!(turn("charge = 'task'\nexpress = 3"), by_task);
        assert_eq!(
            turn("charge = 'time'\nexpress = 0"),
            TurnSettings { express: None, ..TurnSettings::default() }
        );
        let set = settings(
            "lease = 3\n[load]\nmax_io_pressure = 3\n[score]\npolicy = 'simple'\nwait_deadline_s = 1.5\n\
             interval_s = 10\n[reservation]\nafter_s = 0.5\nholders = 7\n[cache]\nsteps = 21",
        );
        assert_eq!((set.lease_ns, set.plan.load.max_io_pressure), (Some(3_000_000_000), 3.0));
        assert_eq!((set.plan.policy.0.name(), set.plan.wait_deadline_ms), ("simple", 1_500));
        assert_eq!(set.plan.means_ns, 10_000_000_000);
        assert_eq!(
            set.plan.reserve,
            ReservationSettings { after_ns: 500_000_000, holders_max: 7, ..Default::default() }
        );
        assert_eq!(set.cache_steps, 21);
        assert_eq!(settings("[score]\npolicy = 'best'").plan.policy.0.name(), "resource-aware");
    }

    #[test]
    fn packing_fills_what_is_to_be_filled() {
        let rules = |text: &str| {
            let settings = Config::parse(text).unwrap().engine_settings();
            (settings.plan.saturation, settings.plan.policy.0.rules().as_ptr())
        };
        let packing = "[score]\npolicy = 'packing'\n";
        let cores = Saturation { cores: true, memory: false };
        assert_eq!(
            rules(&format!("{packing}[placement]\ncore_saturation = true")),
            (cores, policy::packing(cores).rules().as_ptr())
        );
        let none = Saturation::default();
        assert_eq!(rules(packing), (none, policy::packing(none).rules().as_ptr()));
        assert_ne!(policy::packing(cores).rules().as_ptr(), policy::packing(none).rules().as_ptr());
    }

    #[test]
    fn mistakes_are_named_by_their_key() {
        for (table, line) in [
            ("load", "max_cpu_pressure = nan"),
            ("load", "max_memory_pressure = 101"),
            ("load", "max_io_pressure = 0"),
            ("load", "max_network_use = 100.5"),
            ("load", "cpu_pressure_weight = -1"),
            ("load", "memory_pressure_weight = inf"),
            ("load", "io_pressure_weight = 1e9"),
            ("load", "release = 1.1"),
            ("load", "report_ms = 99"),
            ("load", "report_ms = 9223372036854775807"),
            ("load", "stale_reports = 0"),
            ("score", "wait_deadline_s = 0"),
            ("score", "wait_deadline_s = nan"),
            ("score", "interval_s = 0.5"),
            ("score", "policy = ''"),
            ("reservation", "after_s = -1"),
            ("reservation", "holders = 1001"),
            ("turn", "express = 1000001"),
            ("cache", "steps = 0"),
            ("cache", "steps = 100000001"),
        ] {
            let key = format!("{table}.{}", line.split(' ').next().unwrap());
            let why = refused(&format!("[{table}]\n{line}"));
            assert!(why.starts_with(&key), "{line}: {why}");
        }
        assert!(refused("[turn]\ncharge = 'core'").contains("charge"));
        assert!(refused("[load]\nmax_pressure = 1").contains("max_pressure"));
        assert!(refused("[load]\nmin_free_bytes = -1").contains("min_free_bytes"));
        assert!(refused("[score]\nsaturation = 1").contains("saturation"));
    }
}
