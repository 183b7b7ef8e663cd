//! Jobs of several machines in recorded workloads: their tasks start together, in the engine and in the baselines. Each
//! test is a small trace as text, and the seconds at which its jobs start as text.

use std::fmt::Write as _;
use windlass_core::engine::Settings;
use windlass_core::plan::PlanSettings;
use windlass_core::worker::Saturation;
use windlass_sim::swf::{self, Baseline, Farm, Omitted, Schedule, Trace, Turns, Workload};

/// Three machines of four cpus: `m1`, `m2` and `m3`.
const THREE: &str = "0 m 3 4 1 1024\n";
/// A machine `big` of four cpus, and a machine `small` of two.
const TWO_KINDS: &str = "0 big 1 4 1 1024\n1 small 1 2 1 1024\n";

/// A workload of lines `user submitted run asked nodes`, in seconds.
fn workload(jobs: &str, farm: Farm) -> Workload {
    let mut text = String::new();
    for (number, line) in jobs.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [user, submitted, run, asked, nodes] = fields[..] else { panic!("{line}") };
        let rest = format!("1 {user} 1 1 1 -1 -1 -1 {{1}} q {nodes}");
        writeln!(text, "{} {submitted} -1 {run} -1 -1 -1 1 {asked} -1 {rest}", number + 1).unwrap();
    }
    Workload::new(&Trace::parse(text.as_bytes()).unwrap(), farm, false)
}

fn on(machines: &str, jobs: &str) -> Workload {
    workload(jobs, Farm::parse_machines(machines).unwrap())
}

/// When each job started: the seconds at which its tasks did, without repetition.
fn starts(workload: &Workload, schedule: &Schedule) -> String {
    let jobs = workload.jobs.iter().map(|job| {
        let tasks = job.starts_ms(schedule).iter();
        let mut seconds: Vec<String> =
            tasks.map(|start| start.map_or("never".to_owned(), |ms| (ms / 1000).to_string())).collect();
        seconds.dedup();
        seconds.join("+")
    });
    jobs.collect::<Vec<_>>().join(" ")
}

/// A line for each scheduler.
fn all(workload: &Workload) -> String {
    let filling = Saturation { cores: true, memory: false };
    let settings = || Settings {
        plan: PlanSettings { saturation: filling, ..PlanSettings::default() },
        ..Settings::default()
    };
    let schedules = [
        ("fifo", swf::reference(workload, Baseline::Fifo)),
        ("backfill", swf::reference(workload, Baseline::Backfill)),
        ("time", swf::replay(workload, settings(), Turns::Shares)),
        ("order", swf::replay(workload, settings(), Turns::Submission)),
    ];
    let lines = schedules.iter().map(|(name, schedule)| format!("{name}: {}\n", starts(workload, schedule)));
    lines.collect()
}

#[test]
fn the_nodes_of_a_job_start_together_or_not_at_all() {
    // The second job finds two machines free, and needs three.
    let workload = on(
        THREE,
        "1 0 100 100 1:ppn=4
         2 1  10  10 3:ppn=4",
    );
    assert_eq!(all(&workload), "fifo: 0 100\nbackfill: 0 100\ntime: 0 100\norder: 0 100\n");
}

#[test]
fn each_node_is_on_a_machine_of_its_own() {
    // Two nodes would fit on one machine; the first job leaves room on two machines only.
    let workload = on(
        THREE,
        "1 0 100 100 1:ppn=4
         2 1  10  10 2:ppn=1
         3 2  10  10 3:ppn=1
         4 3  10  10 4:ppn=1",
    );
    let starts = "0 1 100 never\n";
    assert_eq!(all(&workload), format!("fifo: {starts}backfill: {starts}time: {starts}order: {starts}"));
}

#[test]
fn backfill_keeps_all_machines_for_the_first_job_that_waits() {
    // The second job can start at 100, on all machines. The third is done by then; the fourth would not be.
    let workload = on(
        THREE,
        "1 0 100 100 2:ppn=4
         2 1  50  50 3:ppn=4
         3 2  98  98 1:ppn=4
         4 3  10 200 1:ppn=1",
    );
    let backfill = swf::reference(&workload, Baseline::Backfill);
    assert_eq!(starts(&workload, &backfill), "0 100 2 150");
}

#[test]
fn backfill_leaves_machines_open_that_the_first_job_does_not_need() {
    // At 100 all three are free, and the third job needs two: the machine that is free now is open to the fourth.
    let workload = on(
        THREE,
        "1 0 100  100 1:ppn=4
         2 0 100  100 1:ppn=4
         3 1  50   50 2:ppn=4
         4 2 500 1000 1:ppn=4",
    );
    let backfill = swf::reference(&workload, Baseline::Backfill);
    assert_eq!(starts(&workload, &backfill), "0 0 100 2");
}

#[test]
fn backfill_uses_what_a_node_leaves_of_its_machine() {
    // The second job takes three of four cpus on each machine at 100: one cpu of each is open to long jobs, and no more.
    let workload = on(
        THREE,
        "1 0 100  100 1:ppn=4
         2 1  50   50 3:ppn=3
         3 2 500 1000 2:ppn=1
         4 3 500 1000 1:ppn=1",
    );
    let backfill = swf::reference(&workload, Baseline::Backfill);
    assert_eq!(starts(&workload, &backfill), "0 100 2 100");
}

#[test]
fn nodes_of_several_kinds_share_a_machine_that_has_room_for_both() {
    let workload = on(
        TWO_KINDS,
        "1 0 10 10 1:ppn=2:host=big+1:ppn=2:host=big
         2 1 10 10 1:ppn=3:host=big+1:ppn=2:host=big
         3 2 10 10 1:ppn=2+1:ppn=4
         4 3 10 10 1:ppn=2+1:ppn=2:host=small",
    );
    let starts = "0 never 10 20\n";
    assert_eq!(all(&workload), format!("fifo: {starts}backfill: {starts}time: {starts}order: {starts}"));
}

#[test]
fn on_slots_a_job_of_several_nodes_is_one_task() {
    let workload = workload(
        "1 0 10 10 2:ppn=3:big#excl
         2 1 10 10 2:ppn=2
         3 2 10 10 3:ppn=3",
        Farm::slots(8).unwrap(),
    );
    let tasks: Vec<_> = workload.jobs.iter().map(|job| (job.tasks, job.parts[0].request.cpu)).collect();
    assert_eq!(tasks, [(1, 600), (1, 400), (1, 900)]);
    let starts = "0 10 never\n";
    assert_eq!(all(&workload), format!("fifo: {starts}backfill: {starts}time: {starts}order: {starts}"));
    assert_eq!(workload.ignored_tags, [("big".to_owned(), 1)].into());
}

#[test]
fn a_job_on_more_machines_than_can_start_together_is_left_out() {
    let workload = on("0 m 300 4 1 1024\n", "1 0 10 10 256:ppn=1\n1 0 10 10 257:ppn=1");
    assert_eq!((workload.jobs.len(), workload.left_out), (1, [(Omitted::Nodes, 1)].into()));
}

/// Random small traces: every scheduler starts each job that fits the empty farm, all of its tasks at one moment, and
/// never uses more cpus than there are.
#[test]
fn every_job_that_fits_starts_at_one_moment() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for _ in 0..60 {
        let (mut jobs, mut submitted) = (String::new(), 0);
        for _ in 0..40 {
            submitted += next(30);
            let run = 1 + next(100);
            let mut nodes = format!("{}:ppn={}", 1 + next(4), 1 + next(4));
            if next(4) == 0 {
                write!(nodes, "+1:ppn={}:host=m{}", 1 + next(4), 1 + next(3)).unwrap();
            }
            writeln!(jobs, "{} {submitted} {run} {} {nodes}", next(3), run + next(200)).unwrap();
        }
        let workload = on(THREE, &jobs);
        for turns in [Some(Turns::Shares), Some(Turns::Submission), None] {
            let schedule = match turns {
                Some(turns) => swf::replay(&workload, Settings::default(), turns),
                None => swf::reference(&workload, Baseline::Backfill),
            };
            let mut changes = Vec::new();
            for job in &workload.jobs {
                let mut starts = job.starts_ms(&schedule).to_vec();
                for (task, start_ms) in (0..).zip(&starts) {
                    let cpu = i64::from(job.part_of(task).request.cpu);
                    changes.extend(start_ms.map(|ms| (ms, cpu)));
                    changes.extend(start_ms.map(|ms| (ms + job.run_ms, -cpu)));
                }
                starts.dedup();
                assert_eq!((starts.len(), starts[0].is_some()), (1, job.fits), "{turns:?} {job:?}\n{jobs}");
            }
            // Ends before starts of the same moment.
            changes.sort_unstable();
            let held = changes.iter().scan(0, |held, (_, cpu)| {
                *held += cpu;
                Some(*held)
            });
            assert!(held.max() <= Some(1_200), "{turns:?}\n{jobs}");
        }
    }
}
