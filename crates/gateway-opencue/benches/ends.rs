//! Ends of frames on farms of a size: how much longer many short frames take than their commands, and how long a host
//! waits for the answer to an end. PostgreSQL has `fsync=on`, and shares the machine's cores. Each scenario fails if a
//! frame runs twice, an end is lost, or two transactions wait for each other. Names of scenarios may be given; none is
//! all but the one that takes ten minutes.

#[path = "../../cuebot/tests/farm/mod.rs"]
mod farm;
#[path = "../../cuebot/tests/support/postgres.rs"]
mod postgres;
#[path = "../tests/support/rqd.rs"]
mod rqd;
#[path = "../tests/support/running.rs"]
mod running;

use postgres::Cluster;
use running::{Chain, Lasting, Running};
use std::time::{Duration, Instant};

/// How long the frames of the first two scenarios run.
const SHORT: Duration = Duration::from_millis(200);

/// The scenario that runs only where it is named.
const ON_REQUEST: &str = "long";

/// A farm and what it runs.
struct Scenario {
    name: &'static str,
    hosts: (u32, i32),
    chain: Chain,
    lasts: fn() -> Lasting,
    /// How long a frame runs, of which the ideal time follows.
    frame: Duration,
}

fn short() -> Lasting {
    Box::pin(tokio::time::sleep(SHORT))
}

fn at_once() -> Lasting {
    Box::pin(std::future::ready(()))
}

async fn measure(cluster: &Cluster, scenario: &Scenario) {
    let Scenario { name, hosts, chain, lasts, frame } = *scenario;
    let running = Running::start(farm::farm_in(cluster).await, hosts, chain).await;
    let began = Instant::now();
    let mut answers = running.finish(chain, lasts).await;
    let took_s = began.elapsed().as_secs_f64();
    let frames = chain.all_frames();
    let cores = f64::from(hosts.0) * f64::from(hosts.1);
    let ideal_s = frames as f64 * frame.as_secs_f64() / cores;
    answers.sort();
    let at_ms = |part: f64| answers[((answers.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    let ideal = match ideal_s > 0.0 {
        true => format!(", {:.2} of the ideal", took_s / ideal_s),
        false => String::new(),
    };
    println!(
        "{name}: {frames} frames in {took_s:.2} s, {:.0} ends a second{ideal}; an end is answered in {:.1} ms (p50), \
         {:.1} ms (p99), {:.1} ms (longest)",
        frames as f64 / took_s,
        at_ms(0.5),
        at_ms(0.99),
        at_ms(1.0)
    );
    running.check(chain).await;
}

fn main() {
    let scenarios = [
        // Frames of five layers, each of which waits for the one before, on one host.
        Scenario {
            name: "layers",
            hosts: (1, 8),
            chain: Chain { jobs: 1, layers: 5, frames: 14 },
            lasts: short,
            frame: SHORT,
        },
        // A hundred ends a second, for a minute.
        Scenario {
            name: "steady",
            hosts: (5, 4),
            chain: Chain { jobs: 4, layers: 5, frames: 300 },
            lasts: short,
            frame: SHORT,
        },
        // A hundred ends a second and more, for ten minutes at most.
        Scenario {
            name: ON_REQUEST,
            hosts: (10, 4),
            chain: Chain { jobs: 40, layers: 5, frames: 300 },
            lasts: short,
            frame: SHORT,
        },
        // As fast as they can be booked.
        Scenario {
            name: "drain",
            hosts: (50, 16),
            chain: Chain { jobs: 10, layers: 5, frames: 200 },
            lasts: at_once,
            frame: Duration::ZERO,
        },
    ];
    let cluster = match Cluster::start(&["fsync=on", "shared_buffers=256MB", "max_wal_size=4GB"]) {
        Ok(cluster) => cluster,
        Err(why) => return println!("SKIP needs PostgreSQL: {why}"),
    };
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for scenario in &scenarios {
            let is_named = only.iter().any(|given| given == scenario.name);
            if is_named || only.is_empty() && scenario.name != ON_REQUEST {
                measure(&cluster, scenario).await;
            }
        }
    });
}
