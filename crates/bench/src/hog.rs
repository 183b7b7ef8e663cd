//! Two real workers with a core each, each in control groups of its own, and a hog beside one: how soon real
//! compiles are done when pressure counts, and when bookings alone do.

use super::core_group::{CoreGroup, Hog};
use super::figures::median;
use super::server_process::{ServerProcess, Setup};
use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use windlass_api::client::{Client, TasksQuery};
use windlass_api::{JobState, StepRequest, SubmitRequest};

/// Functions of a file that is compiled.
const FUNCTIONS: u32 = 20;
/// How long a hog runs before the first compile.
const SETTLE: Duration = Duration::from_secs(4);
/// Files that are compiled in turn.
const SOURCES: usize = 20;

/// The compiles of a run.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub compiles: usize,
    /// Compiles at a time.
    pub width: usize,
}

/// A run: how long its compiles took, and how many of them ran beside the hog.
#[derive(Default)]
struct Run {
    took: Duration,
    beside: usize,
}

/// Pairs of runs with each kind of hog and without, for each width.
pub async fn run(
    setup: &Setup,
    compiles: usize,
    widths: &[usize],
    hogs: &[Hog],
    pairs: u32,
) -> anyhow::Result<()> {
    let cc = ["/usr/bin/cc", "/bin/cc"].into_iter().find(|cc| Path::new(cc).exists());
    if let Some(why) = CoreGroup::pair(true).err().or(cc.is_none().then(|| "there is no cc".to_owned())) {
        println!("SKIP a hog beside a worker: {why}");
        return Ok(());
    }
    sources(&setup.dir)?;
    println!(
        "{compiles} compiles (cc -O2) by two workers with a core each; a hog beside each for half of them; \
         pressure against booking counts"
    );
    // A signal must not leave servers and control groups behind, which are dropped at the end of this.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        done = all(setup, compiles, widths, hogs, pairs) => done,
        _ = terminate.recv() => anyhow::bail!("interrupted"),
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
    }
}

async fn all(
    setup: &Setup,
    compiles: usize,
    widths: &[usize],
    hogs: &[Hog],
    pairs: u32,
) -> anyhow::Result<()> {
    for &hog in hogs {
        for &width in widths {
            let work = Work { compiles, width };
            let what = match hog {
                Hog::None => "without a hog",
                Hog::Cpu => "cpu hog",
                Hog::Memory => "memory hog",
            };
            println!("  {what}, {width} at a time");
            let mut ratios = Vec::new();
            for pair in 1..=pairs {
                let mut both = BTreeMap::new();
                for pressure in [pair % 2 == 0, pair % 2 == 1] {
                    both.insert(pressure, whole_run(setup, work, hog, pressure).await?);
                }
                let (booked, pressed) = (&both[&false], &both[&true]);
                let ratio = pressed.took.as_secs_f64() / booked.took.as_secs_f64();
                println!(
                    "    pair {pair}: pressure {:.1} s, bookings {:.1} s, ratio {ratio:.2}; beside the hog {} and {}",
                    pressed.took.as_secs_f64(),
                    booked.took.as_secs_f64(),
                    pressed.beside,
                    booked.beside
                );
                ratios.push(ratio);
            }
            println!("    median ratio {:.2}", median(&mut ratios));
        }
    }
    Ok(())
}

/// Half of the compiles with the hog beside the one worker, half with it beside the other. Among equal workers the
/// name decides, and must not decide the result.
async fn whole_run(setup: &Setup, work: Work, hog: Hog, pressure: bool) -> anyhow::Result<Run> {
    let mut run = Run::default();
    for place in [0, 1] {
        let half = Work { compiles: work.compiles / 2, ..work };
        let Run { took, beside } = half_run(setup, half, hog, place, pressure).await?;
        run.took += took;
        run.beside += beside;
    }
    Ok(run)
}

async fn half_run(setup: &Setup, work: Work, hog: Hog, place: usize, pressure: bool) -> anyhow::Result<Run> {
    let dir = setup.dir.as_path();
    let mut groups = CoreGroup::pair(hog == Hog::Memory).map_err(anyhow::Error::msg)?;
    let counts = format!("load.pressure={pressure}");
    let flags = ["--store", "memory", "--set", "score.policy=pressure", "--set", counts.as_str()];
    let server = ServerProcess::without_worker(setup, &flags).await?;
    for (number, group) in groups.iter_mut().enumerate() {
        let name = format!("w{number}");
        let (access, state) = ((server.listen.as_str(), server.token.as_str()), server.state.join(&name));
        let started = group.start_worker(&setup.windlass, access, &name, &state);
        started.context("cannot start a worker")?;
    }
    server.wait_for_workers(groups.len()).await?;
    let bench = std::env::current_exe()?;
    let _hog = hog.start(&bench, &groups[place], &dir.join("pages")).context("cannot start the hog")?;
    tokio::time::sleep(SETTLE).await;
    let clock = Instant::now();
    let jobs: Vec<u64> = stream::iter(0..work.compiles)
        .map(|number| compile(&server.client, dir, number))
        .buffer_unordered(work.width)
        .try_collect()
        .await?;
    let mut run = Run { took: clock.elapsed(), beside: 0 };
    let hogged = format!("w{place}");
    for job in jobs {
        let tasks = server.client.tasks(job, &TasksQuery::default()).await?.items;
        run.beside += tasks.iter().filter(|task| task.attempt.worker.as_ref() == Some(&hogged)).count();
    }
    Ok(run)
}

/// Compiles one file and waits for it, as a build tool does.
async fn compile(client: &Client, dir: &Path, number: usize) -> anyhow::Result<u64> {
    let object = dir.join(format!("{number}.o"));
    let words = ["cc", "-O2", "-c"].map(str::to_owned).into_iter();
    let files = [source(dir, number), PathBuf::from("-o"), object];
    let step = StepRequest {
        command: words.chain(files.iter().map(|path| path.display().to_string())).collect(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        ..StepRequest::default()
    };
    let job = client.submit(&SubmitRequest { steps: vec![step], ..Default::default() }).await?.job;
    let ended = client.wait(job, None).await?;
    anyhow::ensure!(ended.state == JobState::Succeeded, "a compile ended as {:?}", ended.state);
    Ok(job)
}

fn source(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("{}.c", number % SOURCES))
}

/// Writes files that take a compiler about a tenth of a second.
fn sources(dir: &Path) -> anyhow::Result<()> {
    for number in 0..SOURCES {
        let mut text = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
        for f in 0..FUNCTIONS {
            writeln!(
                text,
                "int f{f}(int *a, int n) {{ int s = {number}; for (int j = 0; j < n; j++) {{ \
                 if (a[j] % {} == 0) s += a[j] * {f}; else s ^= a[j] << {}; \
                 for (int k = 0; k < 4; k++) a[(j + k) % n] += s >> k; }} return s; }}",
                f + 2,
                f % 7
            )?;
        }
        std::fs::write(source(dir, number), text)?;
    }
    Ok(())
}
