//! Placement flags of `server start`; each overrides the config file.

use windlass_api::quantity::{parse_seconds, parse_size};
use windlass_server::{Charge, Config};

/// Placement flags.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Placement")]
pub struct PlacementFlags {
    /// What a queue is charged for a task: time of a worker (time), or one for each task (task) [default: time]
    #[arg(long, env = "WINDLASS_CHARGE", value_name = "time|task")]
    pub charge: Option<Charge>,
    /// At most one of N bookings in a band goes out of turn to a newly backlogged queue; 0 for none [default: 8]
    #[arg(long, env = "WINDLASS_EXPRESS", value_name = "N")]
    pub express: Option<u32>,
    /// Fill the worker with the fewest free cpus first
    #[arg(long, env = "WINDLASS_CORE_SATURATION")]
    pub core_saturation: bool,
    /// Fill the worker with the least free memory first
    #[arg(long, env = "WINDLASS_MEMORY_SATURATION")]
    pub memory_saturation: bool,
    /// Scoring policy: simple, resource-aware, pressure or packing [default: resource-aware]
    #[arg(long, env = "WINDLASS_SCORING_POLICY", value_name = "NAME")]
    pub scoring_policy: Option<String>,
    /// Target queueing delay of steps that give no --max-wait: 90s, 5m, or seconds [default: 60]
    #[arg(long, env = "WINDLASS_WAIT_DEADLINE_S", value_name = "TIME", value_parser = parse_seconds)]
    pub wait_deadline_s: Option<f64>,
    /// Count the pressure and foreign load that workers report, and not only bookings
    #[arg(
        long, env = "WINDLASS_PRESSURE", value_name = "true|false", num_args = 0..=1, require_equals = true,
        default_missing_value = "true"
    )]
    pub pressure: Option<bool>,
    /// Cpu pressure in percent from which a worker gets no work [default: 80]
    #[arg(long, env = "WINDLASS_MAX_CPU_PRESSURE", value_name = "PERCENT")]
    pub max_cpu_pressure: Option<f64>,
    /// Memory pressure in percent from which a worker gets no work [default: 50]
    #[arg(long, env = "WINDLASS_MAX_MEMORY_PRESSURE", value_name = "PERCENT")]
    pub max_memory_pressure: Option<f64>,
    /// Io pressure in percent from which a worker gets no work [default: 75]
    #[arg(long, env = "WINDLASS_MAX_IO_PRESSURE", value_name = "PERCENT")]
    pub max_io_pressure: Option<f64>,
    /// Use of a network link, in percent of its speed, from which a worker gets no network-bound work [default: 90]
    #[arg(long, env = "WINDLASS_MAX_NETWORK_USE", value_name = "PERCENT")]
    pub max_network_use: Option<f64>,
    /// Free space of a worker's state and session directories below which it gets no work; 0 for none [default: 512M,
    /// or a fortieth of a small disk]
    #[arg(long, env = "WINDLASS_MIN_FREE", value_name = "SIZE", value_parser = parse_size)]
    pub min_free: Option<u64>,
    /// How much full cpu pressure adds to a worker's load, as a multiple of the load [default: 2]
    #[arg(long, env = "WINDLASS_CPU_PRESSURE_WEIGHT", value_name = "N")]
    pub cpu_pressure_weight: Option<f64>,
    /// How much full memory pressure adds to a worker's load, as a multiple of the load [default: 2]
    #[arg(long, env = "WINDLASS_MEMORY_PRESSURE_WEIGHT", value_name = "N")]
    pub memory_pressure_weight: Option<f64>,
    /// How much full io pressure adds to a worker's load, as a multiple of the load [default: 0.5]
    #[arg(long, env = "WINDLASS_IO_PRESSURE_WEIGHT", value_name = "N")]
    pub io_pressure_weight: Option<f64>,
    /// Part of its threshold below which pressure must fall before a worker gets work again [default: 0.8]
    #[arg(long, env = "WINDLASS_PRESSURE_RELEASE", value_name = "PART")]
    pub pressure_release: Option<f64>,
    /// Milliseconds between two reports of a worker's load [default: 1000]
    #[arg(long, env = "WINDLASS_REPORT_MS", value_name = "MS")]
    pub report_ms: Option<u64>,
    /// Missing reports after which a worker's pressure is unknown [default: 3]
    #[arg(long, env = "WINDLASS_STALE_REPORTS", value_name = "N")]
    pub stale_reports: Option<u32>,
    /// Time that work is blocked before a worker is reserved: 90s, 5m, or seconds [default: 60]
    #[arg(long, env = "WINDLASS_RESERVATION_AFTER_S", value_name = "TIME", value_parser = parse_seconds)]
    pub reservation_after_s: Option<f64>,
    /// Workers that may be reserved at a time; 0 for none [default: 8]
    #[arg(long, env = "WINDLASS_RESERVATION_HOLDERS", value_name = "N")]
    pub reservation_holders: Option<u32>,
    /// Steps kept in memory before jobs are parked [default: 10000]
    #[arg(long, env = "WINDLASS_CACHE_STEPS", value_name = "STEPS")]
    pub cache_steps: Option<u32>,
}

impl PlacementFlags {
    /// Overrides the settings of the config file.
    pub fn override_config(self, config: &mut Config) {
        put(&mut config.turn.charge, self.charge);
        put(&mut config.turn.express, self.express);
        config.placement.core_saturation |= self.core_saturation;
        config.placement.memory_saturation |= self.memory_saturation;
        let (score, load, reservation) = (&mut config.score, &mut config.load, &mut config.reservation);
        put(&mut score.policy, self.scoring_policy);
        put(&mut score.wait_deadline_s, self.wait_deadline_s);
        put(&mut load.pressure, self.pressure);
        put(&mut load.max_cpu_pressure, self.max_cpu_pressure);
        put(&mut load.max_memory_pressure, self.max_memory_pressure);
        put(&mut load.max_io_pressure, self.max_io_pressure);
        put(&mut load.max_network_use, self.max_network_use);
        load.min_free_bytes = self.min_free.or(load.min_free_bytes);
        put(&mut load.cpu_pressure_weight, self.cpu_pressure_weight);
        put(&mut load.memory_pressure_weight, self.memory_pressure_weight);
        put(&mut load.io_pressure_weight, self.io_pressure_weight);
        put(&mut load.release, self.pressure_release);
        put(&mut load.report_ms, self.report_ms);
        put(&mut load.stale_reports, self.stale_reports);
        put(&mut reservation.after_s, self.reservation_after_s);
        put(&mut reservation.holders, self.reservation_holders);
        put(&mut config.cache.steps, self.cache_steps);
    }
}

fn put<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: PlacementFlags,
    }

    fn config(line: &str) -> Config {
        let mut config = Config::default();
        let words = std::iter::once("start").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().flags.override_config(&mut config);
        config
    }

    #[test]
    fn each_flag_sets_its_own_setting() {
        assert_eq!(config(""), Config::default());
        let set = config(
            "--core-saturation --memory-saturation --scoring-policy simple --wait-deadline-s 9 --pressure \
             --max-cpu-pressure 11 --max-memory-pressure 12 --max-io-pressure 13 --cpu-pressure-weight 14 \
             --max-network-use 23 --min-free 24M \
             --memory-pressure-weight 15 --io-pressure-weight 16 --pressure-release 0.17 --report-ms 180 \
             --stale-reports 19 --reservation-after-s 20 --reservation-holders 21 \
             --charge task --express 22 --cache-steps 22",
        );
        assert!(set.placement.core_saturation && set.placement.memory_saturation && set.load.pressure);
        assert_eq!((set.turn.charge, set.turn.express), (Charge::Task, 22));
        assert_eq!((&*set.score.policy, set.score.wait_deadline_s), ("simple", 9.0));
        let load = &set.load;
        let numbers = [load.max_cpu_pressure, load.max_memory_pressure, load.max_io_pressure];
        assert_eq!(numbers, [11.0, 12.0, 13.0]);
        assert_eq!((load.max_network_use, load.min_free_bytes), (23.0, Some(24 << 20)));
        let weights = [load.cpu_pressure_weight, load.memory_pressure_weight, load.io_pressure_weight];
        assert_eq!(weights, [14.0, 15.0, 16.0]);
        assert_eq!((load.release, load.report_ms, load.stale_reports), (0.17, 180, 19));
        assert_eq!((set.reservation.after_s, set.reservation.holders), (20.0, 21));
        assert_eq!(set.cache.steps, 22);
        assert!(!config("--pressure=false").load.pressure);
    }

    #[test]
    fn what_the_help_says_is_the_default() {
        let Config { turn, score, load, reservation, cache, .. } = Config::default();
        assert_eq!(turn.charge, Charge::Time, "the help of --charge");
        let help = |flag: &str| {
            let command = Line::command();
            let argument = command.get_arguments().find(|a| a.get_long() == Some(flag)).unwrap();
            argument.get_help().unwrap().to_string()
        };
        for (flag, default) in [
            ("charge", "time".to_owned()),
            ("express", turn.express.to_string()),
            ("scoring-policy", score.policy.clone()),
            ("wait-deadline-s", score.wait_deadline_s.to_string()),
            ("max-cpu-pressure", load.max_cpu_pressure.to_string()),
            ("max-memory-pressure", load.max_memory_pressure.to_string()),
            ("max-io-pressure", load.max_io_pressure.to_string()),
            ("max-network-use", load.max_network_use.to_string()),
            ("cpu-pressure-weight", load.cpu_pressure_weight.to_string()),
            ("memory-pressure-weight", load.memory_pressure_weight.to_string()),
            ("io-pressure-weight", load.io_pressure_weight.to_string()),
            ("pressure-release", load.release.to_string()),
            ("report-ms", load.report_ms.to_string()),
            ("stale-reports", load.stale_reports.to_string()),
            ("reservation-after-s", reservation.after_s.to_string()),
            ("reservation-holders", reservation.holders.to_string()),
            ("cache-steps", cache.steps.to_string()),
        ] {
            assert!(help(flag).ends_with(&format!("[default: {default}]")), "{flag}: {}", help(flag));
        }
        let floor_bytes = |total_bytes| load.settings().free_floor_bytes(total_bytes);
        assert_eq!(
            (floor_bytes(1 << 40), floor_bytes(40 << 20)),
            (512 << 20, 1 << 20),
            "the help of --min-free"
        );
    }
}
