//! The scheduler's counts, for `/metrics`.

use crate::farm::Farm;
use crate::wire::ServerId;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

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

    /// Writes all counts in the format of OpenMetrics, without the last line.
    pub fn write(&self, farm: &Farm, waiting: usize, out: &mut String) {
        let farm_status = farm.status();
        gauge(out, "servers", "Build servers of sccache", farm_status.num_servers);
        gauge(out, "jobs", "Compiles that are allocated and not complete", farm_status.in_progress);
        gauge(out, "waiting", "Clients that wait for a place", waiting as u64);
        _ = writeln!(out, "# TYPE windlass_sccache_fallbacks counter");
        _ = writeln!(
            out,
            "# HELP windlass_sccache_fallbacks Clients that were told to compile by themselves"
        );
        _ = writeln!(out, "windlass_sccache_fallbacks_total {}", self.fallbacks);
        type Count = fn(&ServerCounts) -> f64;
        let families: [(&str, &str, Count); 4] = [
            ("taken", "Jobs that the build server took", |counts| counts.taken as f64),
            ("fallbacks_avoided", "Jobs whose clients waited for a place there", |counts| {
                counts.waited as f64
            }),
            ("wait_seconds", "How long these clients waited", |counts| counts.wait.as_secs_f64()),
            ("refused", "Jobs that the build server did not take", |counts| counts.failed as f64),
        ];
        for (name, help, count) in families {
            _ = writeln!(out, "# TYPE windlass_sccache_{name} counter");
            _ = writeln!(out, "# HELP windlass_sccache_{name} {help}");
            for (server, counts) in &self.servers {
                _ = writeln!(out, "windlass_sccache_{name}_total{{server=\"{server}\"}} {}", count(counts));
            }
            if self.others != ServerCounts::default() {
                _ = writeln!(
                    out,
                    "windlass_sccache_{name}_total{{server=\"others\"}} {}",
                    count(&self.others)
                );
            }
        }
        _ = writeln!(out, "# TYPE windlass_sccache_server_jobs gauge");
        _ = writeln!(out, "# HELP windlass_sccache_server_jobs Compiles of the build server");
        for (server, _) in farm.servers().take(SERVERS_MAX) {
            let jobs = farm.jobs_of(server).count();
            _ = writeln!(out, "windlass_sccache_server_jobs{{server=\"{server}\"}} {jobs}");
        }
    }
}

fn gauge(out: &mut String, name: &str, help: &str, value: u64) {
    _ = writeln!(out, "# TYPE windlass_sccache_{name} gauge");
    _ = writeln!(out, "# HELP windlass_sccache_{name} {help}");
    _ = writeln!(out, "windlass_sccache_{name} {value}");
}
