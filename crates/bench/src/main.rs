//! `windlass-bench`: every figure that Windlass promises, beside its baseline from the same run on the same machine.
//! Machines differ and are shared, so compare ratios.

mod backlog;
mod by_hand;
mod cas;
mod cliffs;
mod core_group;
mod exec;
mod farm;
mod figures;
mod hog;
mod instant;
mod large;
mod place;
mod postgres;
mod rounds;
mod score;
mod server_process;
mod share;
mod work;
mod workers;

use clap::Parser;
use core_group::Hog;
use server_process::Setup;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures Windlass: each figure beside its baseline from the same run. Without a name all benches run
#[derive(Parser)]
#[command(name = "windlass-bench", version)]
struct BenchArgs {
    #[command(subcommand)]
    which: Option<Which>,
    /// Where to put files; on the kind of disk that is to be measured
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The program whose servers and workers are measured [default: windlass beside this program]
    #[arg(long, global = true, env = "WINDLASS", value_name = "PROGRAM")]
    windlass: Option<PathBuf>,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Which {
    /// Durable tasks a second with a worker that completes at once, beside raw SQLite commits
    Instant {
        /// Tasks of each run
        #[arg(long, default_value_t = 200_000)]
        tasks: u32,
        /// Slots of the worker; may be given again
        #[arg(long, default_values_t = [2, 64, 1000])]
        slots: Vec<u32>,
    },
    /// Real processes on two slots, beside xargs -P2; gaps on a slot
    Exec {
        /// Tasks of each run
        #[arg(long, default_value_t = 10_000)]
        tasks: u32,
        /// Pairs of runs, one of each side
        #[arg(long, default_value_t = 3)]
        pairs: u32,
    },
    /// From submission to the start of a process on an idle machine
    Latency {
        /// Submissions that are timed
        #[arg(long, default_value_t = 1_000)]
        submissions: u32,
    },
    /// An array of a million tasks: time to accept it, memory while it waits
    Array {
        /// Tasks of the array
        #[arg(long, default_value_t = 1_000_000)]
        tasks: u32,
    },
    /// Durable tasks a second with a worker on a loopback connection that starts nothing
    Farm {
        /// Tasks of the run
        #[arg(long, default_value_t = 200_000)]
        tasks: u32,
        /// Slots of the worker
        #[arg(long, default_value_t = 64)]
        slots: u32,
    },
    /// Processor time of the server for the beats of connected workers
    Beats {
        /// Workers that are connected
        #[arg(long, default_value_t = 1_000)]
        workers: u32,
        /// Length of the measurement
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
    /// Memory of connected idle workers, and how soon a task starts among them
    Idle {
        /// Workers that are connected
        #[arg(long, default_value_t = 10_000)]
        workers: u32,
        /// Submissions that are timed
        #[arg(long, default_value_t = 1_000)]
        submissions: u32,
    },
    /// The best of many candidates for one worker
    Score {
        /// Candidates for the worker
        #[arg(long, default_value_t = 10_000)]
        candidates: usize,
    },
    /// Real compiles on two real workers with a hog beside one, by pressure and by booking counts; takes half
    /// an hour, and is not among all
    Hog {
        /// Compiles of each run
        #[arg(long, default_value_t = 200)]
        compiles: usize,
        /// Compiles at a time; may be given again
        #[arg(long = "width", default_values_t = [1, 2])]
        widths: Vec<usize>,
        /// The process beside a worker; may be given again
        #[arg(long = "hog", value_enum, default_values_t = [Hog::None, Hog::Cpu, Hog::Memory])]
        hogs: Vec<Hog>,
        /// Pairs of runs, one of each side
        #[arg(long, default_value_t = 5)]
        pairs: u32,
        /// Be a hog until the input ends: `cpu`, or the file that one of memory reads
        #[arg(long, hide = true)]
        be: Option<PathBuf>,
    },
    /// Placements on a large farm of many queues and classes, and by packing, beside a scan of all workers
    Place {
        /// Workers of the large farm
        #[arg(long, default_value_t = 10_000)]
        workers: u64,
        /// Classes of work of such a run
        #[arg(long, hide = true, default_value_t = 1_000)]
        classes: u32,
        /// End this number of tasks on a full farm, for callgrind to count, and print nothing
        #[arg(long, hide = true)]
        count: Option<u32>,
    },
    /// Instructions of a scheduling round with few and with many tasks pending, by callgrind
    Rounds {
        /// Run this number of rounds alone, for callgrind to count, and print nothing
        #[arg(long, hide = true)]
        count: Option<u32>,
        /// Pending tasks of such a run, or of each class of the next
        #[arg(long, hide = true, default_value_t = 10)]
        pending: u32,
        /// Work out this number of times how many workers are wanted, for callgrind to count, and print nothing
        #[arg(long, hide = true)]
        surveys: Option<u32>,
        /// Classes of work of such a run
        #[arg(long, hide = true, default_value_t = 1)]
        classes: u32,
    },
    /// A database of far more ready jobs than the engine keeps resident: memory, users served, cost of a decision
    Backlog {
        /// Ready jobs of one task
        #[arg(long, default_value_t = 1_000_000)]
        jobs: u64,
        /// Users, each with a queue
        #[arg(long, default_value_t = 1_000)]
        users: u64,
        /// Steps that stay resident
        #[arg(long, default_value_t = 10_000)]
        cache_steps: usize,
        /// Tasks that are placed
        #[arg(long, default_value_t = 20_000)]
        decisions: u64,
        /// Measure alone, over this database
        #[arg(long, hide = true)]
        over: Option<PathBuf>,
        /// Place this number of tasks over a store in memory, for callgrind to count, and print nothing
        #[arg(long, hide = true)]
        count: Option<u64>,
    },
    /// Jobs with large bodies, and the restart over a job of many tasks that is nearly done
    Large {
        /// Tasks of that job
        #[arg(long, default_value_t = 10_000_000)]
        tasks: u32,
    },
    /// Tasks placed and booked on an empty PostgreSQL database, for workers that run nothing, beside statements
    /// written by hand; not among all
    Postgres {
        /// The work that is placed
        #[arg(value_enum)]
        what: postgres::PostgresWork,
        /// Address of the database: postgres://HOST/DATABASE
        #[arg(long, env = "WINDLASS_STORE", value_name = "STORE")]
        store: String,
        /// Workers; 1553 of mixed sizes have 57000 cores
        #[arg(long, default_value_t = 1_000)]
        workers: u32,
        /// Jobs of `jobs`, tasks of `step`
        #[arg(long, default_value_t = 100)]
        count: u32,
    },
    /// The store of files: which of 1,000 digests it lacks, and how fast blobs go in and out, beside plain ways
    Cas {
        /// Small blobs that the store has
        #[arg(long, default_value_t = 1_000_000)]
        blobs: u64,
        /// Size of each large blob, in MiB
        #[arg(long, default_value_t = 256)]
        large_mib: u64,
    },
    /// Entitlement of 10,000 queues and loads of 100,000 domains, beside plain ways to them
    Share {
        /// Runs, of which the median counts
        #[arg(long, default_value_t = 101)]
        runs: u32,
    },
}

/// The benches that run where none is named: those without a database, and without half an hour of compiles.
const ALL: [&str; 14] = [
    "instant", "exec", "latency", "array", "farm", "beats", "idle", "score", "place", "rounds", "share",
    "backlog", "large", "cas",
];

fn main() -> ExitCode {
    // Two providers could be linked in, and this one is used. No other was installed before.
    _ = rustls::crypto::ring::default_provider().install_default();
    let args = BenchArgs::parse();
    let measured = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let measured = runtime.block_on(run(args));
            // Blocking calls on other threads must not delay the exit.
            runtime.shutdown_background();
            measured
        }
        Err(error) => Err(anyhow::Error::new(error).context("cannot start")),
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: BenchArgs) -> anyhow::Result<()> {
    if let Some(Which::Hog { be: Some(what), .. }) = &args.which {
        return Ok(core_group::be(what)?);
    }
    let dir = match args.dir {
        Some(dir) => std::path::absolute(dir)?,
        None => std::env::temp_dir(),
    };
    let windlass = match args.windlass {
        Some(program) => std::path::absolute(program)?,
        None => std::env::current_exe()?.with_file_name("windlass"),
    };
    let dir = dir.join(format!("windlass-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let setup = Setup { dir, windlass };
    let benches = match args.which {
        Some(one) => vec![one],
        None => {
            ALL.into_iter().filter_map(|name| BenchArgs::parse_from(["windlass-bench", name]).which).collect()
        }
    };
    for which in benches {
        measure(&setup, which).await?;
    }
    _ = std::fs::remove_dir_all(&setup.dir);
    Ok(())
}

async fn measure(setup: &Setup, which: Which) -> anyhow::Result<()> {
    let dir = &setup.dir;
    match which {
        Which::Instant { tasks, slots } => instant::run(dir, tasks, &slots).await,
        Which::Exec { tasks, pairs } => exec::run(setup, tasks, pairs).await,
        Which::Latency { submissions } => exec::latency(setup, submissions).await,
        Which::Array { tasks } => instant::array(dir, tasks).await,
        Which::Farm { tasks, slots } => farm::tasks(setup, tasks, slots).await,
        Which::Beats { workers, seconds } => farm::beats(setup, workers, seconds).await,
        Which::Idle { workers, submissions } => farm::idle(dir, workers, submissions).await,
        Which::Score { candidates } => {
            score::run(candidates);
            Ok(())
        }
        Which::Hog { compiles, widths, hogs, pairs, .. } => {
            hog::run(setup, compiles, &widths, &hogs, pairs).await
        }
        Which::Place { workers, classes, count } => {
            match count {
                Some(count) => place::count(count, workers, classes),
                None => {
                    place::run(workers);
                    cliffs::run();
                }
            }
            Ok(())
        }
        Which::Rounds { surveys: Some(surveys), pending, classes, .. } => {
            rounds::count_surveys(surveys, pending, classes);
            Ok(())
        }
        Which::Rounds { count: Some(count), pending, .. } => {
            rounds::count(count, pending);
            Ok(())
        }
        Which::Rounds { count: None, .. } => rounds::run(),
        Which::Share { runs } => share::run(runs),
        Which::Postgres { what, store, workers, count } => postgres::run(&store, what, workers, count).await,
        Which::Large { tasks } => large::run(dir, tasks).await,
        Which::Cas { blobs, large_mib } => cas::run(dir, blobs, large_mib),
        Which::Backlog { jobs, users, cache_steps, decisions, over, count } => {
            let backlog = backlog::Backlog { jobs, users, cache_steps, decisions };
            match (over, count) {
                (Some(path), _) => backlog::over(path, backlog).await,
                (None, Some(decisions)) => {
                    backlog::count(decisions, backlog);
                    Ok(())
                }
                (None, None) => backlog::run(dir, backlog).await,
            }
        }
    }
}
