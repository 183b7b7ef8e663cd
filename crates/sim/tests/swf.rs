//! Recorded workloads: how they are read, what plain schedulers make of them, and what the engine does.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use windlass_core::engine::Settings;
use windlass_core::plan::PlanSettings;
use windlass_core::queues::{Charge, TurnSettings};
use windlass_core::worker::Saturation;
use windlass_sim::swf::{
    self, Baseline, Farm, Figures, MachineGroup, Omitted, Record, Schedule, Trace, TraceError, Turns, Work,
    Workload,
};

const LCG: &str = include_str!("swf/lcg.swf");
const NASA: &str = include_str!("swf/nasa.swf");
const WAGAP: &str = include_str!("swf/wagap.swf");
const WAGAP_MACHINES: &str = include_str!("swf/wagap.machines");

fn trace(text: &str) -> Trace {
    Trace::parse(text.as_bytes()).unwrap()
}

/// A job of one line: when, how long, cpus, the time asked for, the user.
fn job(submit_s: u64, run_s: u64, cpus: u32, asked_s: i64, user: u32) -> String {
    format!("1 {submit_s} -1 {run_s} {cpus} -1 -1 {cpus} {asked_s} -1 1 {user} 1 -1 -1 -1 -1 -1\n")
}

fn workload(text: &str, slots: u32) -> Workload {
    Workload::new(&trace(text), Farm::slots(slots).unwrap(), false)
}

/// Seconds at which jobs start, in the order of the trace.
fn starts(workload: &Workload, schedule: &Schedule) -> Vec<u64> {
    workload.jobs.iter().map(|job| job.start_ms(schedule).unwrap() / 1000).collect()
}

#[test]
fn traces_are_read_as_their_format_says() {
    let lcg = trace(LCG);
    assert_eq!((lcg.jobs.len(), lcg.header["MaxProcs"].as_str()), (150, "24515"));
    let second = &lcg.jobs[1];
    assert_eq!(
        (second.submit_ms, second.run_ms, second.asked_ms),
        (3_000, Some(3_611_000), Some(116_400_000))
    );
    assert_eq!((second.cpus, second.asked_cpus, second.wait_ms, second.user), (Some(1), None, None, Some(2)));
    let nasa = trace(NASA);
    assert_eq!(nasa.queues[&1], "batch");
    assert_eq!((nasa.jobs[0].cpus, nasa.jobs.len()), (Some(128), 40));
    let wagap = trace(WAGAP);
    let [nodes] = &wagap.jobs[0].nodes[..] else { panic!() };
    assert_eq!((nodes.nodes, nodes.cpu, nodes.exclusive), (1, Some(6_400), true));
    assert_eq!(wagap.jobs[0].asked_memory, Some(64 << 30));
}

#[test]
fn a_packed_trace_is_the_same_trace() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(NASA.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(Trace::parse(&packed), Ok(trace(NASA)));
    assert!(Trace::parse(&packed[..packed.len() / 2]).is_err(), "cut off");
}

#[test]
fn bad_lines_are_refused_with_their_place_and_a_remedy() {
    let good = "1 0 -1 5 1 -1 -1 1 -1 -1 1 1 1 -1 -1 -1 -1 -1";
    let with = |place: usize, field: &str| {
        let mut fields: Vec<&str> = good.split(' ').collect();
        fields[place - 1] = field;
        fields.join(" ")
    };
    let cases = [
        ("1 2 3".to_owned(), "has 3 fields; a job has 18"),
        (format!("{good} 7"), "has 19 fields"),
        (with(4, "soon"), "field 4 (run time): 'soon' is neither a number of seconds"),
        (with(2, "nan"), "field 2 (submit time): 'nan'"),
        (with(2, "1e300"), "field 2 (submit time)"),
        (with(2, "-7"), "field 2 (submit time): '-7' must be known"),
        (with(2, "-1"), "field 2 (submit time): '-1' must be known"),
        (with(8, "1.5"), "field 8 (processors asked for): '1.5' is neither a whole number"),
        (with(12, "99999999999999999999"), "field 12 (user)"),
        (with(17, "x"), "field 17 (preceding job)"),
        (with(5, &"9".repeat(500)), "field 5 (processors): '9999"),
        (format!("{good} {{1}} q 0:ppn=1"), "field 21 (node specification): '0:ppn=1' asks for no machine"),
        (format!("{good}{}", " ".repeat(2 << 20)), "longer than"),
    ];
    for (line, says) in cases {
        let error = Trace::parse(format!("; a comment\n{good}\n{line}\n").as_bytes()).unwrap_err();
        assert_eq!(error.line, 3, "{error}");
        let error = error.to_string();
        assert!(error.contains(says) && error.contains("mend the line") && error.len() < 300, "{error}");
    }
    let odd = trace(&with(4, "-1359980917"));
    assert_eq!(odd.jobs[0].run_ms, None, "archived traces have such");
    let missing = Trace::open(&PathBuf::from("/nowhere/x.swf"), false).unwrap_err();
    assert!(matches!(&missing, TraceError::File { .. }) && missing.to_string().contains("/nowhere/x.swf"));
}

/// Whatever the bytes are, they are a trace or an error of one of their lines.
#[test]
fn no_bytes_break_the_reader() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let pieces: [&[u8]; 12] = [
        b"-1",
        b"99999999999999999999",
        b"\n",
        b";",
        b"\0",
        b"1e999",
        b"nan",
        b" ",
        b"\xff\xfe",
        b"{",
        b"1:ppn=",
        b"\x1f\x8b",
    ];
    let (mut read, mut refused) = (0, 0);
    for round in 0..3_000 {
        let lines = [LCG, NASA, WAGAP][round % 3].split_inclusive('\n').skip(next(30)).take(12);
        let mut bytes = lines.collect::<String>().into_bytes();
        for _ in 0..next(4) {
            let (at, piece) = (next(bytes.len()), pieces[next(pieces.len())]);
            let to = (at + next(6)).min(bytes.len());
            bytes.splice(at..to, piece.iter().copied());
        }
        if next(10) == 0 {
            bytes.splice(0..0, [0x1f, 0x8b]);
        }
        let lines = bytes.split(|byte| *byte == b'\n').count();
        match Trace::parse(&bytes) {
            Ok(trace) => {
                read += 1;
                assert!(trace.jobs.is_sorted_by_key(|job| job.submit_ms));
                let workload = Workload::new(&trace, Farm::parse_machines(WAGAP_MACHINES).unwrap(), false);
                assert!(workload.jobs.len() <= trace.jobs.len());
            }
            Err(bad) => {
                refused += 1;
                assert!(bad.line <= lines, "{bad}");
            }
        }
    }
    assert!(read > 300 && refused > 300, "{read} read, {refused} refused");
}

#[test]
fn what_is_written_is_read_again() {
    let mut first = trace(LCG);
    first.jobs.iter_mut().enumerate().for_each(|(place, job)| job.line = place);
    for fractions in [false, true] {
        let mut second = first.clone();
        second.users.insert(2, "ann\nbob".to_owned());
        second.programs.insert(1, "cc -c".to_owned());
        if fractions {
            second.jobs[0].run_ms = Some(1_250);
        }
        let mut bytes = Vec::new();
        swf::write(&second, fractions, &mut bytes).unwrap();
        let mut third = Trace::parse(&bytes).unwrap();
        third.jobs.iter_mut().enumerate().for_each(|(place, job)| job.line = place);
        second.users.insert(2, "ann bob".to_owned());
        assert_eq!(third, second);
    }
    let half = Trace { jobs: vec![Record { run_ms: Some(1_500), ..Record::default() }], ..Trace::default() };
    let mut bytes = Vec::new();
    swf::write(&half, false, &mut bytes).unwrap();
    assert!(bytes.starts_with(b"0 0 -1 2 -1 "), "whole seconds");
}

#[test]
fn jobs_become_tasks_of_machines() {
    let text = [
        "1 50 -1 10 4 2 1024 2 60 2048 1 7 1 3 1 -1 -1 -1",
        "2 50 -1 -1 4 -1 -1 2 60 2048 1 7 1 3 1 -1 -1 -1",
        "3 51 -1 10 -1 -1 -1 -1 60 2048 1 7 1 3 1 -1 -1 -1",
        "4 60 -1 0 3 -1 -1 -1 -1 -1 1 8 1 3 1 -1 -1 -1",
        "5 61 -1 0 4000000000 -1 -1 -1 -1 -1 1 8 1 3 1 -1 -1 -1",
    ];
    let farm = Farm::new(vec![MachineGroup {
        name: "m".to_owned(),
        count: 2,
        cpu: 400,
        memory: Some(1 << 30),
        tags: vec!["arch=x86_64".to_owned()],
    }]);
    let workload =
        Workload::new(&trace(&format!("; User: 8 eve\n{}", text.join("\n"))), farm.unwrap(), false);
    assert_eq!(workload.users, ["user7", "eve"]);
    let left_out = [(Omitted::RunTime, 1), (Omitted::Processors, 1), (Omitted::Amount, 1)];
    assert_eq!(workload.left_out, left_out.into());
    let [first, second] = &workload.jobs[..] else { panic!("{workload:?}") };
    let of = |work: &Work| work.parts[0].clone();
    assert_eq!((first.submit_ms, second.submit_ms, first.limit_ms), (0, 10_000, Some(60_000)));
    // 2,048 KiB for each of two; 1,024 were held by each, and two seconds each of the processor.
    assert_eq!((of(first).request.cpu, of(first).request.memory), (200, 4 << 20));
    assert_eq!((of(first).peak_memory, of(first).cpu_ms), (Some(2 << 20), Some(4_000)));
    assert_eq!((of(second).request.cpu, of(second).request.memory, second.limit_ms), (300, 0, None));
    assert_eq!((first.queue.as_str(), first.name.as_str(), first.fits), ("user7", "program3", true));
}

#[test]
fn tags_and_names_of_machines_are_met() {
    let line = |spec: &str| format!("1 0 -1 10 4 -1 -1 4 60 1000000000 1 7 1 3 1 -1 -1 -1 {{5}} q {spec}\n");
    let specs = [
        "2:ppn=8:x86_64:cl_zegox",
        "1:ppn=2:cl_zewura#excl",
        "1:ppn=2#excl",
        "1:ppn=1:^zewura12.cerit-sc.cz:^cl_zegox",
        "1:host=zegox7.cerit-sc.cz",
        "1:ppn=13:cl_zegox",
        "1:ppn=1:^cl_zegox:^cl_zewura",
    ];
    let text: String = specs.iter().map(|spec| line(spec)).collect();
    let workload = Workload::new(&trace(&text), Farm::parse_machines(WAGAP_MACHINES).unwrap(), false);
    let of = |work: &Work| (work.tasks, work.parts[0].request.cpu, work.fits);
    let all: Vec<_> = workload.jobs.iter().map(of).collect();
    let (pair, whole, smallest, not_there, named) =
        ((2, 800, true), (1, 8_000, true), (1, 1_200, true), (1, 100, true), (1, 400, true));
    assert_eq!(all, [pair, whole, smallest, not_there, named, (1, 1_300, false), (1, 100, false)]);
    let [need] = &workload.jobs[3].parts[0].needs[..] else {
        panic!("{:?}", workload.jobs[3].parts[0].needs)
    };
    assert_eq!((need.any_of.len(), need.any_of.contains("zewura12")), (19, false));
    assert_eq!(workload.jobs[4].parts[0].needs[0].to_string(), "host=zegox7");
    assert_eq!(workload.ignored_tags, [("x86_64".to_owned(), 1)].into());
}

#[test]
fn a_job_may_ask_for_machines_of_several_kinds() {
    let line = |spec: &str| format!("1 0 -1 10 8 -1 -1 8 60 1000000000 1 7 1 3 1 -1 -1 -1 {{5}} q {spec}\n");
    let text = line("2:ppn=1:cl_zegox+3:ppn=2:cl_zewura") + &line("1:ppn=1:cl_zegox+1:ppn=81");
    let workload = Workload::new(&trace(&text), Farm::parse_machines(WAGAP_MACHINES).unwrap(), false);
    let parts: Vec<_> = workload.jobs[0].parts.iter().map(|part| (part.tasks, part.request.cpu)).collect();
    assert_eq!((workload.jobs[0].tasks, parts), (5, vec![(2, 100), (3, 200)]));
    assert_eq!((workload.jobs[0].fits, workload.jobs[1].fits), (true, false), "one part fits nowhere");
    let engine = swf::replay(&workload, Settings::default(), Turns::Shares);
    let backfill = swf::reference(&workload, Baseline::Backfill);
    assert_eq!(workload.jobs[0].start_ms(&backfill), Some(0));
    for schedule in [engine, backfill] {
        assert!(workload.jobs[0].starts_ms(&schedule).iter().all(Option::is_some));
        assert_eq!(workload.jobs[1].starts_ms(&schedule), [None, None]);
    }
}

#[test]
fn lines_that_are_no_job_can_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swf");
    let text = job(0, 5, 1, -1, 1) + "1 2 3\n" + &job(1, 5, 1, -1, 1) + "x\n";
    std::fs::write(&path, text).unwrap();
    assert!(Trace::open(&path, false).unwrap_err().to_string().contains("--skip-bad"));
    let trace = Trace::open(&path, true).unwrap();
    let (lines, first) = trace.skipped.unwrap();
    assert_eq!((trace.jobs.len(), lines, first.line), (2, 2, 2));
}

#[test]
fn without_turns_jobs_start_in_the_order_of_submission() {
    // Two users, one slot: by shares they alternate, in one line the first user's jobs come first.
    let text: String =
        (0..3).map(|_| job(0, 10, 1, 20, 1)).chain((0..3).map(|_| job(1, 10, 1, 20, 2))).collect();
    let workload = workload(&text, 1);
    let in_line = swf::replay(&workload, Settings::default(), Turns::Submission);
    assert_eq!(starts(&workload, &in_line), [0, 10, 20, 30, 40, 50]);
    let shares = swf::replay(&workload, Settings::default(), Turns::Shares);
    assert_ne!(starts(&workload, &shares), [0, 10, 20, 30, 40, 50]);
}

#[test]
fn first_come_first_served_lets_no_job_pass_another() {
    // Of four cpus: three for 100 s, then all, then two jobs that would fit beside the first.
    let text = [job(0, 100, 3, 100, 1), job(1, 10, 4, 10, 2), job(2, 50, 1, 50, 3), job(3, 200, 1, 200, 4)];
    let workload = workload(&text.concat(), 4);
    let fifo = swf::reference(&workload, Baseline::Fifo);
    assert_eq!(starts(&workload, &fifo), [0, 100, 110, 110]);
    // The third is done when the second is due; the fourth would not be.
    let backfill = swf::reference(&workload, Baseline::Backfill);
    assert_eq!(starts(&workload, &backfill), [0, 100, 2, 110]);
}

#[test]
fn backfill_uses_what_the_first_leaves_and_trusts_no_unknown_time() {
    // The second wants two of four: one more may run for ever beside it, another may not.
    let text = [
        job(0, 100, 3, 100, 1),
        job(1, 10, 3, -1, 2),
        job(2, 500, 1, -1, 3),
        job(3, 5, 1, -1, 4),
        job(4, 5, 9, 5, 5),
    ];
    let workload = workload(&text.concat(), 4);
    let backfill = swf::reference(&workload, Baseline::Backfill);
    let started: Vec<_> =
        workload.jobs.iter().map(|job| job.start_ms(&backfill).map(|ms| ms / 1000)).collect();
    assert_eq!(started, [Some(0), Some(100), Some(2), Some(110), None]);
    let figures = Figures::of(&workload, &backfill, 0);
    assert_eq!((figures.unplaceable, figures.starved, figures.placed), (1, 0, 4));
}

#[test]
fn figures_are_those_of_the_schedule() {
    // One slot: user 1 runs 20 s at once and then for 1 s; user 2 waits for the first.
    let text = [job(0, 20, 1, -1, 1), job(0, 20, 1, -1, 2), job(40, 1, 1, -1, 1)];
    let workload = workload(&text.concat(), 1);
    let figures = Figures::of(&workload, &swf::reference(&workload, Baseline::Fifo), 1);
    assert_eq!((figures.wait_s.count, figures.wait_s.max, figures.wait_s.p50), (3, 20.0, 0.0));
    assert_eq!((figures.light_wait_s.count, figures.light_wait_s.mean), (1, 20.0));
    // User 1: 1 and 1; user 2: (20 + 20) / 20.
    assert_eq!((figures.slowdown.p50, figures.slowdown.max), (1.0, 2.0));
    assert_eq!(figures.fairness, Some(1.5 * 1.5 / (2.0 * 1.25)));
    assert_eq!((figures.utilisation, figures.makespan_h * 3600.0), (Some(1.0), 41.0));
    // For the first half of the time both want the slot, user 1 holds it, and half of it is user 2's.
    let short = figures.short_of_share.unwrap();
    assert!((0.24..0.26).contains(&short), "{short}");
}

#[test]
fn the_engine_runs_all_that_fits_and_never_too_much() {
    for (text, farm) in
        [(LCG, Farm::slots(7)), (NASA, Farm::slots(128)), (WAGAP, Farm::parse_machines(WAGAP_MACHINES))]
    {
        let workload = Workload::new(&trace(text), farm.unwrap(), false);
        let schedule = swf::replay(&workload, Settings::default(), Turns::Shares);
        assert_eq!(schedule.starts_ms, swf::replay(&workload, Settings::default(), Turns::Shares).starts_ms);
        let mut changes = Vec::new();
        for job in &workload.jobs {
            assert_eq!(job.start_ms(&schedule).is_some(), job.fits, "{job:?}");
            for (task, start_ms) in (0..).zip(job.starts_ms(&schedule)) {
                let Some(start_ms) = start_ms else { continue };
                assert!(*start_ms >= job.submit_ms);
                let cpu = i64::from(job.part_of(task).request.cpu);
                changes.extend([(*start_ms, cpu), (start_ms + job.run_ms, -cpu)]);
            }
        }
        // Ends before starts of the same moment.
        changes.sort_by_key(|(at_ms, cpu)| (*at_ms, *cpu));
        let mut held = 0;
        for (_, cpu) in changes {
            held += cpu;
            assert!(held <= workload.farm.cpu() as i64);
        }
    }
}

#[test]
fn a_user_who_comes_late_gets_the_next_slot() {
    let mut text: String = (0..200).map(|_| job(0, 100, 1, -1, 1)).collect();
    text += &job(150, 100, 1, -1, 2);
    let workload = workload(&text, 4);
    let late = |schedule: &Schedule| workload.jobs[200].start_ms(schedule).unwrap() / 1000;
    assert_eq!(late(&swf::replay(&workload, Settings::default(), Turns::Shares)), 200);
    assert_eq!(late(&swf::reference(&workload, Baseline::Fifo)), 5_000);
}

#[test]
fn a_backlog_larger_than_the_cache_is_worked_off() {
    let text: String = (0..12_000).map(|place| job(place / 4_000, 10, 1, 30, place as u32 % 7)).collect();
    let workload = workload(&text, 4_000);
    let figures = Figures::of(&workload, &swf::replay(&workload, Settings::default(), Turns::Shares), 0);
    assert_eq!((figures.starved, figures.placed), (0, 12_000));
}

/// One user's equal jobs on one slot. The first ends at 100 s, and until then nothing tells how long the others take.
#[test]
fn starts_are_expected_when_they_come_once_the_length_of_jobs_is_known() {
    let text: String =
        [0; 5].into_iter().chain([150; 6]).map(|submit_s| job(submit_s, 100, 1, -1, 1)).collect();
    let workload = workload(&text, 1);
    let replay = |every| {
        swf::replay_estimating(&workload, Settings::default(), Turns::Shares, NonZeroUsize::new(every))
    };
    let schedule = replay(1);
    let figures = Figures::of(&workload, &schedule, 0);
    assert_eq!((figures.without_estimate, figures.estimate_error.count), (4, 6));
    assert!(figures.estimate_error.max < 1e-9, "{:?}", schedule.estimates);
    assert_eq!(schedule.estimates[4].asked_ms, 150_000);
    // Questions change nothing.
    let plain = swf::replay(&workload, Settings::default(), Turns::Shares);
    assert_eq!((&schedule.starts_ms, plain.estimates.len()), (&plain.starts_ms, 0));
    assert_eq!(replay(4).estimates.len(), 2, "every fourth of the ten that wait");
}

/// Jobs of which a half runs for 50 s, and the other one for 150 s. They are expected to run for the mean of both.
#[test]
fn the_error_of_expected_starts_is_that_of_the_lengths() {
    let text: String = (0..40).map(|n| job(n * 10, if n % 2 == 0 { 50 } else { 150 }, 1, -1, 1)).collect();
    let workload = workload(&text, 1);
    let schedule =
        swf::replay_estimating(&workload, Settings::default(), Turns::Shares, NonZeroUsize::new(1));
    let error = Figures::of(&workload, &schedule, 0).estimate_error;
    assert!(error.count > 30 && error.p50 > 0.0 && error.p50 < 0.5, "{error:?}");
}

/// A trace of the collection that is kept beside the project; a debug build reads only `jobs` of its jobs.
fn recorded(name: &str, jobs: usize) -> Option<Trace> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().map(|dir| dir.join("shared/traces").join(name)).find(|path| path.exists());
    let Some(path) = found else {
        println!("SKIP replay of {name}: there is no ../shared/traces");
        return None;
    };
    let mut trace = Trace::open(&path, false).unwrap();
    if cfg!(debug_assertions) {
        trace.jobs.truncate(jobs);
    }
    Some(trace)
}

fn turns(charge: Charge) -> Settings {
    Settings {
        plan: PlanSettings {
            turn: TurnSettings { charge, ..TurnSettings::default() },
            ..PlanSettings::default()
        },
        ..Settings::default()
    }
}

#[test]
fn a_grid_of_short_and_long_jobs_is_shared() {
    let Some(trace) = recorded("LCG-first70.swf.gz", 6_000) else { return };
    let slots = if cfg!(debug_assertions) { 150 } else { 1_300 };
    let workload = Workload::new(&trace, Farm::slots(slots).unwrap(), false);
    let of = |schedule| Figures::of(&workload, &schedule, 200);
    let fifo = of(swf::reference(&workload, Baseline::Fifo));
    let (time, task) = (
        of(swf::replay(&workload, turns(Charge::Time), Turns::Shares)),
        of(swf::replay(&workload, turns(Charge::Task), Turns::Shares)),
    );
    for figures in [&fifo, &time, &task] {
        assert_eq!((figures.starved, figures.unplaceable, figures.placed), (0, 0, workload.jobs.len()));
    }
    println!("{fifo:?}\n{time:?}\n{task:?}");
    assert!(time.wait_s.mean < fifo.wait_s.mean && time.wait_s.mean < task.wait_s.mean);
    assert!(time.slowdown.p50 * 5.0 < fifo.slowdown.p50 && time.slowdown.p90 * 3.0 < fifo.slowdown.p90);
    assert!(time.fairness > fifo.fairness && time.fairness > task.fairness);
    assert!(time.short_of_share < fifo.short_of_share && time.utilisation > Some(0.8));
    if !cfg!(debug_assertions) {
        assert!((fifo.wait_s.mean - 38_922.0).abs() < 2.0, "{}", fifo.wait_s.mean);
        assert!(time.wait_s.mean <= 17_000.0, "{}", time.wait_s.mean);
        assert!(time.slowdown.p50 <= 1.4 && time.slowdown.p90 <= 7.0, "{:?}", time.slowdown);
    }
}

#[test]
fn jobs_with_memory_and_tags_are_not_starved_on_machines_of_two_kinds() {
    let Some(trace) = recorded("wagap-2013-first70.swf.gz", 3_000) else { return };
    let workload = Workload::new(&trace, Farm::parse_machines(WAGAP_MACHINES).unwrap(), false);
    assert_eq!(workload.left_out.values().sum::<usize>(), if cfg!(debug_assertions) { 0 } else { 2 });
    let filling = Saturation { cores: true, memory: false };
    let settings = Settings {
        plan: PlanSettings { saturation: filling, ..PlanSettings::default() },
        ..Settings::default()
    };
    let of = |schedule| Figures::of(&workload, &schedule, 200);
    let (fifo, time) =
        (of(swf::reference(&workload, Baseline::Fifo)), of(swf::replay(&workload, settings, Turns::Shares)));
    println!("{fifo:?}\n{time:?}");
    assert_eq!((time.starved, time.unplaceable), (0, 0));
    // Whole machines run jobs of up to two weeks; no job waits longer than for one of these.
    let longest_s = workload.jobs.iter().map(|job| job.run_ms / 1000).max().unwrap() as f64;
    assert!(time.wait_s.max < longest_s, "{} {longest_s}", time.wait_s.max);
    assert!(time.wait_s.mean * 5.0 < fifo.wait_s.mean && time.wait_s.p99 < fifo.wait_s.p99);
    assert!(time.utilisation.unwrap() > fifo.utilisation.unwrap() - 0.01);
    if cfg!(debug_assertions) {
        let backfill = of(swf::reference(&workload, Baseline::Backfill));
        let order = of(swf::replay(&workload, settings, Turns::Submission));
        println!("{backfill:?}\n{order:?}");
        for engine in [&time, &order] {
            assert!(engine.wait_s.mean <= backfill.wait_s.mean && engine.wait_s.max <= backfill.wait_s.max);
            // Unlike backfill the engine lets a few tasks of an unknown profile go first, for up to a minute.
            assert!(engine.light_wait_s.mean <= backfill.light_wait_s.mean + 60.0);
            assert!(engine.slowdown.max <= backfill.slowdown.max * 1.05, "{:?}", engine.slowdown);
        }
    } else {
        assert_engine_is_level_with_backfill(&trace, settings);
    }
}

/// Some jobs ask for one host by its name, and some hosts are held by one job for weeks. Which of 20 equal hosts these
/// are is luck, and decides the figures of one replay. So the trace is replayed 20 times, each time with other names,
/// and the medians are compared. Over the 20 replays the mean wait of one scheduler differs by a factor of three, so
/// medians that differ by less than a twentieth are level.
fn assert_engine_is_level_with_backfill(trace: &Trace, settings: Settings) {
    let mut figures: [Vec<Figures>; 3] = Default::default();
    for by in 0..20 {
        let farm = Farm::parse_machines(WAGAP_MACHINES).unwrap();
        let workload = Workload::new(&with_other_hosts(trace, by), farm, false);
        let schedules = [
            swf::reference(&workload, Baseline::Backfill),
            swf::replay(&workload, settings, Turns::Shares),
            swf::replay(&workload, settings, Turns::Submission),
        ];
        for (all, schedule) in figures.iter_mut().zip(schedules) {
            all.push(Figures::of(&workload, &schedule, 200));
        }
    }
    let median = |scheduler: usize, of: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = figures[scheduler].iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        (values[9] + values[10]) / 2.0
    };
    let [mean, p99, max, worst]: [fn(&Figures) -> f64; 4] =
        [|f| f.wait_s.mean, |f| f.wait_s.p99, |f| f.wait_s.max, |f| f.slowdown.max];
    for engine in [1, 2] {
        for of in [mean, p99, max, worst] {
            let (engine, backfill) = (median(engine, of), median(0, of));
            println!("{engine} {backfill}");
            assert!(engine <= backfill * 1.05, "{engine} {backfill}");
        }
    }
}

/// The trace with its hosts renamed: each host of the two kinds of machines has the name of the one `by` places
/// further.
fn with_other_hosts(trace: &Trace, by: u32) -> Trace {
    let mut trace = trace.clone();
    for spec in trace.jobs.iter_mut().flat_map(|job| &mut job.nodes) {
        for tag in spec.tags.iter_mut().chain(&mut spec.without) {
            for (kind, hosts) in [("zewura", 20), ("zegox", 48)] {
                let host =
                    tag.split('.').next().and_then(|host| host.strip_prefix(kind)?.parse::<u32>().ok());
                if let Some(host) = host {
                    *tag = format!("{kind}{}", (host - 1 + by) % hosts + 1);
                }
            }
        }
    }
    trace
}
