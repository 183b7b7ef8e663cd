//! Load and pressure of each worker as OpenMetrics text.

use crate::metric_text::MetricFamily;
use windlass_api::board::Percents;
use windlass_core::Engine;
use windlass_core::load::formula::LOAD_NO_CORES;

/// Workers that the text names, those of the smallest ids. Each is six lines.
pub const METRIC_WORKERS_MAX: usize = 10_000;

/// The figures of a worker; `None` is unknown, and has no line.
#[derive(Clone, Debug)]
pub struct WorkerGauges {
    name: String,
    cpus: f64,
    booked_cpus: f64,
    load: Option<f64>,
    pressures: Percents,
}

type WorkerGauge = (MetricFamily, fn(&WorkerGauges) -> Option<f64>);

const GAUGES: [WorkerGauge; 6] = [
    (MetricFamily::gauge("windlass_worker_cpus", "Cpus that a worker declares"), |worker| Some(worker.cpus)),
    (MetricFamily::gauge("windlass_worker_booked_cpus", "Cpus of a worker that are booked"), |worker| {
        Some(worker.booked_cpus)
    }),
    (
        MetricFamily::gauge("windlass_worker_load", "Load by which workers are compared: about 0 to 1"),
        |worker| worker.load,
    ),
    (
        MetricFamily::gauge(
            "windlass_worker_cpu_pressure_percent",
            "Time with a process that waited for a cpu",
        ),
        |worker| worker.pressures.cpu,
    ),
    (
        MetricFamily::gauge(
            "windlass_worker_memory_pressure_percent",
            "Time with a process that waited for memory",
        ),
        |worker| worker.pressures.memory,
    ),
    (
        MetricFamily::gauge(
            "windlass_worker_io_pressure_percent",
            "Time with a process that waited for input or output",
        ),
        |worker| worker.pressures.io,
    ),
];

const TOKEN_EXPIRES: MetricFamily = MetricFamily::gauge(
    "windlass_worker_token_expires_timestamp_seconds",
    "Unix time at which the token of a connected worker expires",
);

const JOBSERVER_PROCESSES: MetricFamily = MetricFamily::gauge(
    "windlass_jobserver_processes",
    "Processes that builds with a jobserver run on a worker",
);

/// Writes how many processes builds run, by the name of their worker.
pub fn write_jobserver_processes(text: &mut String, processes: &[(String, f64)]) {
    let samples = processes.iter().map(|(name, count)| (name.as_str(), *count));
    JOBSERVER_PROCESSES.write(text, "worker", samples);
}

/// Writes when the tokens of workers end; without such a token, nothing.
pub fn write_token_ends(text: &mut String, ends: &[(String, f64)]) {
    if !ends.is_empty() {
        TOKEN_EXPIRES.write(text, "worker", ends.iter().map(|(name, seconds)| (name.as_str(), *seconds)));
    }
}

pub fn read(engine: &Engine) -> Vec<WorkerGauges> {
    let workers = engine.workers().present().take(METRIC_WORKERS_MAX);
    let gauges = workers.map(|worker| {
        let load = worker.load_with(100, engine.workers().load_settings());
        WorkerGauges {
            name: worker.record.name.clone(),
            cpus: f64::from(worker.record.capacity.cpu) / 100.0,
            booked_cpus: f64::from(worker.booked.sum().cpu) / 100.0,
            load: Some(load).filter(|load| *load < LOAD_NO_CORES),
            pressures: Percents::of(worker),
        }
    });
    gauges.collect()
}

pub fn write(text: &mut String, workers: &[WorkerGauges]) {
    for (family, value) in GAUGES {
        let samples = workers.iter().filter_map(|worker| Some((&*worker.name, value(worker)?)));
        family.write(text, "worker", samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str, load: Option<f64>) -> WorkerGauges {
        let pressures = Percents { memory: Some(1.5), ..Percents::default() };
        WorkerGauges { name: name.into(), cpus: 8.0, booked_cpus: 2.5, load, pressures }
    }

    #[test]
    fn each_worker_has_a_line_for_what_is_known_and_no_name_breaks_the_text() {
        let mut text = String::new();
        write(&mut text, &[worker("a", Some(0.5)), worker("b\"} 1\n\\", None)]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.contains(&"windlass_worker_load{worker=\"a\"} 0.5"), "{text}");
        assert!(lines.contains(&"windlass_worker_memory_pressure_percent{worker=\"a\"} 1.5"));
        assert!(lines.contains(&"windlass_worker_booked_cpus{worker=\"b\\\"} 1\\n\\\\\"} 2.5"));
        assert_eq!(lines.iter().filter(|line| !line.starts_with('#')).count(), 7);
        assert_eq!(lines.iter().filter(|line| line.starts_with("# TYPE")).count(), GAUGES.len());
    }

    #[test]
    fn ten_thousand_workers_are_a_text_of_bounded_size() {
        let workers: Vec<WorkerGauges> =
            (0..METRIC_WORKERS_MAX).map(|n| worker(&format!("worker-{n:05}"), Some(0.123))).collect();
        let mut text = String::new();
        write(&mut text, &workers);
        println!("{} bytes", text.len());
        assert!(text.len() < 4 << 20);
    }
}
