//! The scheduler's counts, for `/metrics`.

use crate::farm::Farm;
use crate::wire::ServerId;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_server::MetricFamily;

/// Build servers with counts of their own. Further ones are counted together.
const SERVERS_MAX: usize = 1_000;

/// Counts since the scheduler started.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Counts {
    servers: BTreeMap<ServerId, ServerCounts>,
    others: ServerCounts,
    /// Clients that were told to compile by themselves.
    pub fallbacks: u64,
}

/// The counts of one build server.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ServerCounts {
    /// Jobs that the build server took.
    pub taken: u64,
    /// Jobs whose clients waited. A stock scheduler lets such clients compile by themselves.
    pub waited: u64,
    /// The sum of these clients' waiting times.
    pub wait: Duration,
    /// Jobs that the build server did not take.
    pub failed: u64,
}

impl Counts {
    /// The counts of a build server.
    pub fn of(&mut self, server: ServerId) -> &mut ServerCounts {
        if self.servers.len() >= SERVERS_MAX && !self.servers.contains_key(&server) {
            return &mut self.others;
        }
        self.servers.entry(server).or_default()
    }

    /// Adds the lines of all counts to the text of metrics.
    pub fn write(&self, farm: &Farm, waiting: usize, out: &mut String) {
        let status = farm.status();
        MetricFamily::gauge("windlass_sccache_servers", "Build servers of sccache")
            .write_one(out, status.num_servers as f64);
        MetricFamily::gauge("windlass_sccache_jobs", "Compiles that are allocated and not complete")
            .write_one(out, status.in_progress as f64);
        MetricFamily::gauge("windlass_sccache_waiting", "Clients that wait for a place")
            .write_one(out, waiting as f64);
        MetricFamily::counter(
            "windlass_sccache_fallbacks",
            "Clients that were told to compile by themselves",
        )
        .write_one(out, self.fallbacks as f64);
        self.write_each(
            out,
            MetricFamily::counter("windlass_sccache_taken", "Jobs that the build server took"),
            |counts| counts.taken as f64,
        );
        let avoided = MetricFamily::counter(
            "windlass_sccache_fallbacks_avoided",
            "Jobs whose clients waited for a place there",
        );
        self.write_each(out, avoided, |counts| counts.waited as f64);
        let wait = MetricFamily::counter("windlass_sccache_wait_seconds", "How long these clients waited");
        self.write_each(out, wait, |counts| counts.wait.as_secs_f64());
        let refused =
            MetricFamily::counter("windlass_sccache_refused", "Jobs that the build server did not take");
        self.write_each(out, refused, |counts| counts.failed as f64);
        let jobs: Vec<(String, f64)> = farm
            .servers()
            .take(SERVERS_MAX)
            .map(|(server, _)| (server.to_string(), farm.jobs_of(server).count() as f64))
            .collect();
        MetricFamily::gauge("windlass_sccache_server_jobs", "Compiles of the build server").write(
            out,
            "server",
            jobs.iter().map(|(server, jobs)| (server.as_str(), *jobs)),
        );
    }

    /// A line for each build server, and one for those without counts of their own.
    fn write_each(&self, out: &mut String, family: MetricFamily, count: fn(&ServerCounts) -> f64) {
        let mut samples: Vec<(String, f64)> =
            self.servers.iter().map(|(server, counts)| (server.to_string(), count(counts))).collect();
        if self.others != ServerCounts::default() {
            samples.push(("others".to_owned(), count(&self.others)));
        }
        family.write(out, "server", samples.iter().map(|(server, value)| (server.as_str(), *value)));
    }
}
