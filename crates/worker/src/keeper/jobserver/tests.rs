//! Real pipes, simulated clients, and points in time that the tests choose.

use super::*;
use crate::protocol::JobserverForm;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const MIB: u64 = 1 << 20;

/// What the keeper would find out of tasks.
#[derive(Default)]
struct View {
    held_bytes: BTreeMap<TaskRef, u64>,
    workers: BTreeMap<TaskRef, u32>,
    memory: MemoryRoom,
}

impl TaskView for View {
    fn held_bytes(&mut self, task: TaskRef) -> Option<u64> {
        self.held_bytes.get(&task).copied()
    }

    fn workers(&mut self, task: TaskRef) -> Option<u32> {
        self.workers.get(&task).copied()
    }

    fn memory(&mut self) -> MemoryRoom {
        self.memory
    }
}

/// A client that never waits.
struct Client {
    pipe: File,
    holds: Vec<u8>,
}

impl Client {
    fn of(jobservers: &Jobservers, task: TaskRef) -> Client {
        let mut options = OpenOptions::new();
        let pipe = options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        Client { pipe: pipe.open(jobservers.path(task)).unwrap(), holds: Vec::new() }
    }

    /// Takes up to that many tokens, and returns how many it holds then.
    fn take(&mut self, count: usize) -> usize {
        let mut tokens = vec![0; count];
        let taken = self.pipe.read(&mut tokens).unwrap_or(0);
        self.holds.extend(&tokens[..taken]);
        self.holds.len()
    }

    fn put_back(&mut self, count: usize) {
        let rest = self.holds.split_off(self.holds.len() - count);
        assert_eq!(self.pipe.write(&rest).unwrap(), count);
    }
}

struct Machine {
    _dir: tempfile::TempDir,
    jobservers: Jobservers,
    view: View,
    now: Instant,
    cpus: u32,
}

fn task(job: u64) -> TaskRef {
    TaskRef { job, index: 0, attempt: 1 }
}

fn body(env: &[&str]) -> Body {
    Body {
        command: vec!["make".to_owned()],
        env: env.iter().map(|name| ((*name).to_owned(), "-k".to_owned())).collect(),
        cwd: "/".to_owned(),
        umask: None,
        session: None,
        run_as: None,
        refused: None,
        refused_now: false,
        files: None,
    }
}

impl Machine {
    /// A machine with tasks of these weights, numbered from 1.
    fn with(cpus: u32, weights: &[u32]) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine {
            jobservers: Jobservers::new(dir.path()),
            _dir: dir,
            view: View::default(),
            now: Instant::now(),
            cpus,
        };
        let spec = JobserverSpec::default();
        for (job, _) in (1..).zip(weights) {
            machine.jobservers.open((task(job), 7), spec, &body(&[]), cpus, machine.now).unwrap();
        }
        machine.weigh(cpus, weights);
        machine
    }

    fn weigh(&mut self, cpus: u32, weights: &[u32]) {
        let shares = (1..).zip(weights).map(|(job, weight)| TaskShare { task: task(job), weight: *weight });
        self.jobservers.set_shares(cpus * 100, &shares.collect::<Vec<_>>());
        self.pass(0);
    }

    /// Lets that many milliseconds pass, and returns what is reported at the end.
    fn pass(&mut self, ms: u64) -> Vec<FromKeeper> {
        self.now += Duration::from_millis(ms);
        self.jobservers.tick(self.now, self.cpus, &mut self.view).unwrap_or_default()
    }

    /// As [`Machine::pass`], in ticks as the keeper makes them.
    fn live(&mut self, ms: u64) {
        (0..ms / 50).for_each(|_| _ = self.pass(50));
    }

    fn client(&self, job: u64) -> Client {
        Client::of(&self.jobservers, task(job))
    }

    /// The tokens of a task, and how many of them lie in its pipe.
    fn tokens(&self, job: u64) -> (u32, u32) {
        let tokens = &self.jobservers.tasks[&task(job)];
        (tokens.given, tokens.fifo.idle())
    }
}

#[test]
fn a_task_has_nothing_until_the_server_names_it_and_then_all() {
    let mut machine = Machine::with(4, &[1]);
    assert_eq!(machine.tokens(1), (3, 3));
    let spec = JobserverSpec { processes_max: Some(2), ..JobserverSpec::default() };
    machine.jobservers.open((task(2), 7), spec, &body(&[]), 4, machine.now).unwrap();
    machine.pass(50);
    assert_eq!(machine.tokens(2), (0, 0));
    machine.weigh(4, &[1, 1]);
    assert_eq!((machine.tokens(1).0, machine.tokens(2).0), (2, 1), "the second may run two");
    machine.jobservers.close(task(1));
    machine.pass(0);
    assert_eq!(machine.tokens(2), (1, 1));
    assert!(!machine.jobservers.path(task(1)).exists());
}

#[test]
fn a_token_is_given_only_after_it_came_back() {
    let mut machine = Machine::with(4, &[1]);
    let mut build = machine.client(1);
    assert_eq!(build.take(9), 3);
    let spec = JobserverSpec::default();
    machine.jobservers.open((task(2), 7), spec, &body(&[]), 4, machine.now).unwrap();
    machine.weigh(4, &[1, 1]);
    assert_eq!((machine.tokens(1), machine.tokens(2)), ((3, 0), (0, 0)), "all are taken");
    assert_eq!(machine.jobservers.awaited().count(), 1, "the keeper waits for what comes back");
    build.put_back(1);
    // Its wake, between two ticks.
    machine.pass(0);
    assert_eq!((machine.tokens(1), machine.tokens(2)), ((2, 0), (0, 0)), "five processes ran on four cpus");
    build.put_back(1);
    machine.pass(0);
    assert_eq!((machine.tokens(1), machine.tokens(2)), ((1, 0), (1, 1)));
    assert_eq!(machine.jobservers.awaited().count(), 0);
    build.put_back(1);
    machine.pass(50);
    assert_eq!(machine.tokens(1), (1, 1), "what is within its share stays");
}

#[test]
fn a_pool_that_shrinks_withdraws_as_tokens_come_back() {
    let mut machine = Machine::with(4, &[1]);
    let mut build = machine.client(1);
    assert_eq!(build.take(2), 2);
    machine.weigh(1, &[1]);
    assert_eq!(machine.tokens(1), (2, 0), "the one that lay there is gone at once");
    build.put_back(2);
    machine.pass(0);
    assert_eq!(machine.tokens(1), (0, 0));
    machine.weigh(0, &[1]);
    assert_eq!(machine.tokens(1), (0, 0));
    machine.weigh(4, &[1]);
    assert_eq!(machine.tokens(1), (3, 3));
}

#[test]
fn what_one_build_leaves_the_other_gets_and_gives_back() {
    let mut machine = Machine::with(4, &[1, 1]);
    let [mut first, mut second] = [machine.client(1), machine.client(2)];
    assert_eq!((first.take(9), second.take(9)), (1, 1));
    machine.pass(50);
    first.put_back(1);
    machine.pass(50);
    let given = machine.tokens(1).0 + machine.tokens(2).0;
    assert!(machine.tokens(2).0 > 1 && given <= 4, "{:?} {:?}", machine.tokens(1), machine.tokens(2));
    second.take(9);
    // The first one wants its part again.
    assert!(first.take(9) >= 1);
    machine.pass(50);
    second.put_back(second.holds.len());
    machine.pass(0);
    machine.pass(50);
    first.take(9);
    assert!(first.holds.len() >= 2, "{:?}", machine.tokens(1));
}

#[test]
fn tokens_of_a_killed_client_are_back_within_a_second() {
    let mut machine = Machine::with(4, &[1]);
    let mut killed = machine.client(1);
    assert_eq!(killed.take(2), 2);
    drop(killed);
    machine.view.workers.insert(task(1), 1);
    machine.live(950);
    assert_eq!(machine.tokens(1), (3, 3));
    assert_eq!(machine.jobservers.tasks[&task(1)].used(), 1);
}

#[test]
fn a_process_that_some_looks_miss_keeps_its_token() {
    let mut machine = Machine::with(4, &[1]);
    let mut build = machine.client(1);
    assert_eq!(build.take(3), 3);
    for round in 0..40 {
        machine.view.workers.insert(task(1), if round % 5 == 0 { 4 } else { 2 });
        machine.pass(100);
        assert_eq!(machine.tokens(1), (3, 0));
    }
}

#[test]
fn a_client_that_was_taken_for_dead_cannot_give_more_than_was_given() {
    let mut machine = Machine::with(4, &[1]);
    let mut slow = machine.client(1);
    assert_eq!(slow.take(3), 3);
    machine.view.workers.insert(task(1), 1);
    machine.live(950);
    assert_eq!(machine.tokens(1), (3, 3), "they are given again");
    slow.put_back(3);
    machine.live(50 * 6);
    assert_eq!(machine.tokens(1), (3, 3), "and what it gives back is foreign");
}

#[test]
fn a_client_that_takes_and_never_gives_back_gets_no_more_than_its_share() {
    let mut machine = Machine::with(4, &[1, 1]);
    let (mut greedy, mut other) = (machine.client(1), machine.client(2));
    machine.view.workers.extend([(task(1), 9), (task(2), 9)]);
    for _ in 0..60 {
        greedy.take(9);
        other.take(9);
        machine.pass(50);
        assert!(machine.tokens(1).0 <= 1 && machine.tokens(2).0 <= 1);
    }
    assert_eq!((greedy.holds.len(), other.holds.len()), (1, 1));
}

#[test]
fn foreign_bytes_are_taken_out_and_never_given_on() {
    let mut machine = Machine::with(4, &[1, 1]);
    let mut odd = machine.client(1);
    while rustix::io::write(&odd.pipe, &[0; 4_096]).is_ok() {}
    machine.pass(50);
    assert_eq!((machine.tokens(1), machine.tokens(2)), ((1, 1), (1, 1)));
    odd.take(1);
    odd.pipe.write_all(b"xyz").unwrap();
    machine.pass(50);
    let (given, idle) = machine.tokens(1);
    assert!(idle <= given && given + machine.tokens(2).0 <= 4, "{given} {idle}");
}

#[test]
fn too_little_memory_adds_no_process_and_one_always_runs() {
    let mut machine = Machine::with(8, &[1]);
    machine.view.memory.free_bytes = Some(500 * MIB);
    machine.view.held_bytes.insert(task(1), 200 * MIB);
    machine.pass(300);
    assert_eq!(machine.tokens(1), (2, 2), "two more of 200 MiB fit into 500");
    let mut build = machine.client(1);
    assert_eq!(build.take(1), 1);
    machine.view.memory.free_bytes = Some(100 * MIB);
    let reports = machine.pass(1_000);
    assert_eq!(machine.tokens(1), (1, 0));
    let held_back = Some(HeldBack::Memory);
    let expected = FromKeeper::Cpus { task: task(1), epoch: 7, share: 2, used: 2, wants: true, held_back };
    assert_eq!(reports, [expected]);
    build.put_back(1);
    machine.pass(300);
    assert_eq!(machine.tokens(1), (0, 0));
    machine.view.memory =
        MemoryRoom { free_bytes: Some(8_000 * MIB), is_pressed: true, ..MemoryRoom::default() };
    let reports = machine.pass(1_000);
    assert!(
        matches!(&reports[..], [FromKeeper::Cpus { share: 1, held_back: Some(HeldBack::Pressure), .. }]),
        "{reports:?}"
    );
    machine.view.memory.is_pressed = false;
    machine.pass(300);
    assert_eq!(machine.tokens(1), (7, 7));
}

#[test]
fn what_was_free_is_given_once() {
    let mut machine = Machine::with(8, &[1]);
    machine.view.memory.free_bytes = Some(500 * MIB);
    machine.view.held_bytes.insert(task(1), 200 * MIB);
    machine.pass(300);
    let mut build = machine.client(1);
    assert_eq!(build.take(9), 2);
    for _ in 0..4 {
        // A tick between two readings.
        machine.jobservers.report_again();
        machine.pass(50);
        assert_eq!(machine.tokens(1), (2, 0));
    }
}

#[test]
fn what_runs_and_still_grows_counts() {
    let mut machine = Machine::with(8, &[1]);
    machine.view.memory.free_bytes = Some(1_000 * MIB);
    machine.view.held_bytes.insert(task(1), 300 * MIB);
    machine.pass(300);
    assert_eq!(machine.tokens(1), (3, 3), "three of 300 MiB fit");
    let mut build = machine.client(1);
    assert_eq!(build.take(3), 3);
    // They have just begun. Once they have grown, 100 MiB are left.
    machine.view.held_bytes.insert(task(1), 310 * MIB);
    machine.pass(300);
    assert_eq!(machine.tokens(1), (3, 0));
}

#[test]
fn what_is_kept_for_a_build_is_not_given_to_another() {
    let mut machine = Machine::with(8, &[1]);
    machine.view.memory.free_bytes = Some(2_000 * MIB);
    machine.view.held_bytes.insert(task(1), 200 * MIB);
    machine.pass(300);
    assert_eq!(machine.tokens(1), (7, 7));
    let spec = JobserverSpec { process_bytes: Some(1_500 * MIB), ..JobserverSpec::default() };
    machine.jobservers.open((task(2), 7), spec, &body(&[]), 8, machine.now).unwrap();
    machine.weigh(8, &[1, 1]);
    assert_eq!((machine.tokens(1), machine.tokens(2)), ((2, 2), (0, 0)), "500 MiB are left");
    // Its link has begun: what it holds is not kept a second time.
    machine.view.held_bytes.insert(task(2), 1_500 * MIB);
    machine.view.memory.free_bytes = Some(500 * MIB);
    machine.pass(300);
    assert_eq!((machine.tokens(1), machine.tokens(2)), ((2, 2), (0, 0)));
    assert_eq!(machine.jobservers.process_peak(task(2)), Some(1_500 * MIB));
    assert_eq!(machine.jobservers.process_peak(task(9)), None);
    // The link is over, and what a second one would need is forgotten as time passes. What is kept for one is not.
    machine.view.held_bytes.insert(task(2), 50 * MIB);
    machine.view.memory.free_bytes = Some(1_950 * MIB);
    machine.live(60_000);
    assert_eq!(machine.jobservers.process_peak(task(2)), Some(1_500 * MIB));
    let further = machine.tokens(1).0 * 200 + machine.tokens(2).0 * 50;
    assert!(machine.tokens(2).0 > 0 && further <= 500, "{:?} {:?}", machine.tokens(1), machine.tokens(2));
}

#[test]
fn what_a_build_may_need_holds_its_own_processes_back_until_it_is_seen_to_need_less() {
    let mut machine = Machine::with(8, &[]);
    machine.view.memory.free_bytes = Some(4_000 * MIB);
    machine.view.held_bytes.insert(task(1), 50 * MIB);
    let spec = JobserverSpec { process_bytes: Some(1_200 * MIB), ..JobserverSpec::default() };
    machine.jobservers.open((task(1), 7), spec, &body(&[]), 8, machine.now).unwrap();
    machine.weigh(8, &[1]);
    assert_eq!(machine.tokens(1), (2, 2), "one that is kept for it, and two more");
    machine.live(60_000);
    assert_eq!(machine.tokens(1), (7, 7));
}

#[test]
fn while_the_reserve_is_in_use_tokens_that_come_back_are_not_given_again() {
    let mut machine = Machine::with(4, &[1]);
    let mut build = machine.client(1);
    assert_eq!(build.take(9), 3);
    machine.view.held_bytes.insert(task(1), 400 * MIB);
    machine.view.memory =
        MemoryRoom { free_bytes: Some(0), lacking_bytes: 150 * MIB, ..MemoryRoom::default() };
    machine.pass(300);
    assert_eq!((machine.tokens(1), machine.jobservers.awaited().count()), ((3, 0), 1), "two are to end");
    build.put_back(1);
    machine.pass(0);
    assert_eq!((machine.tokens(1), build.take(1)), ((2, 0), 2), "no other process begins in its place");
    build.put_back(1);
    machine.pass(0);
    assert_eq!((machine.tokens(1), machine.jobservers.awaited().count()), ((1, 0), 0));
    machine.view.held_bytes.insert(task(1), 200 * MIB);
    machine.view.memory = MemoryRoom { free_bytes: Some(2_000 * MIB), ..MemoryRoom::default() };
    machine.pass(300);
    assert_eq!(machine.tokens(1), (3, 2), "there is memory again");
}

#[test]
fn reports_come_at_changes_and_not_more_often_than_each_second() {
    let mut machine = Machine::with(2, &[1]);
    let mut build = machine.client(1);
    assert_eq!(build.take(1), 1);
    assert_eq!(machine.pass(300), []);
    let reports = machine.pass(700);
    let held_back = None;
    let now = FromKeeper::Cpus { task: task(1), epoch: 7, share: 2, used: 2, wants: false, held_back };
    assert_eq!(reports, std::slice::from_ref(&now));
    assert_eq!(machine.pass(5_000), []);
    machine.jobservers.report_again();
    assert_eq!(machine.pass(0), [now]);
}

#[test]
fn the_time_of_tokens_is_counted_while_they_are_given() {
    let mut machine = Machine::with(4, &[1]);
    let start = machine.now;
    assert_eq!(machine.jobservers.token_ms(task(1), start + Duration::from_secs(2)), Some(6_000));
    machine.pass(2_000);
    machine.weigh(2, &[1]);
    machine.pass(1_000);
    assert_eq!(machine.jobservers.token_ms(task(1), machine.now), Some(7_000));
    assert_eq!(machine.jobservers.token_ms(task(9), start), None);
}

/// The other program has nothing but what was written, and the same open pipes.
#[test]
fn an_upgrade_loses_no_token_and_gives_none_twice() {
    let mut machine = Machine::with(4, &[1, 1]);
    let [mut first, mut second] = [machine.client(1), machine.client(2)];
    assert_eq!([first.take(1), second.take(1)], [1, 1]);
    machine.jobservers.note_make(Some([4, 4]));
    let text = serde_json::to_string(&machine.jobservers).unwrap();
    let saved: Jobservers = serde_json::from_str(&text).unwrap();
    machine.jobservers.take_over(Jobservers::default());
    assert_eq!(machine.tokens(1), (1, 0), "a program that knew no jobservers had nothing to hand over");
    machine.jobservers.take_over(saved);
    assert!(machine.jobservers.make_takes_path);
    assert_eq!(machine.pass(50).len(), 2, "both are reported again");
    assert_eq!([machine.tokens(1), machine.tokens(2)], [(1, 0); 2]);
    first.put_back(1);
    second.put_back(1);
    machine.pass(50);
    assert_eq!([machine.tokens(1), machine.tokens(2)], [(1, 1); 2]);
}

#[test]
fn a_task_with_flags_of_its_own_keeps_them() {
    let mut machine = Machine::with(4, &[1]);
    let names = |machine: &Machine, job| -> Vec<&'static str> {
        machine.jobservers.variables(task(job)).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(&machine, 1), ["MAKEFLAGS", "CARGO_MAKEFLAGS"]);
    assert!(machine.jobservers.ends(task(1)).unwrap().is_some(), "the release of make is unknown");
    let spec = JobserverSpec { form: JobserverForm::Fifo, ..JobserverSpec::default() };
    machine.jobservers.open((task(2), 7), spec, &body(&["MAKEFLAGS"]), 4, machine.now).unwrap();
    assert!(!machine.jobservers.has(task(2)) && names(&machine, 2).is_empty());
    machine.jobservers.open((task(3), 7), spec, &body(&["CARGO_MAKEFLAGS"]), 4, machine.now).unwrap();
    assert_eq!(names(&machine, 3), ["MAKEFLAGS"]);
    assert!(machine.jobservers.ends(task(3)).unwrap().is_none(), "it has the path");
    let mut nested = body(&["MAKEFLAGS"]);
    nested.env.insert("MAKEFLAGS".to_owned(), " -j4 --jobserver-auth=3,4".to_owned());
    machine.jobservers.open((task(4), 7), spec, &nested, 4, machine.now).unwrap();
    assert!(machine.jobservers.has(task(4)), "the jobserver of another task is of no use");
}

#[test]
fn cpu_time_is_divided_by_weight() {
    let machine = Machine::with(2, &[3, 1]);
    assert_eq!(machine.jobservers.entitled(), BTreeMap::from([(task(1), 150), (task(2), 50)]));
}

/// Clients that wait in reads, and a keeper that moves what they take from one task to the other and back.
#[test]
fn readers_that_wait_never_run_more_than_cpus_and_tasks() {
    const READERS: usize = 6;
    let mut machine = Machine::with(4, &[1, 1]);
    machine.view.workers.extend([(task(1), 9), (task(2), 9)]);
    let (running, most, is_over) =
        (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let mut readers = Vec::new();
    for job in [1, 2] {
        let path = machine.jobservers.path(task(job));
        for _ in 0..READERS {
            let [mut read, mut write] = Fifo::ends(&path).unwrap();
            let (running, most, is_over) = (running.clone(), most.clone(), is_over.clone());
            readers.push(std::thread::spawn(move || {
                let mut token = [0];
                while read.read_exact(&mut token).is_ok() && !is_over.load(Ordering::SeqCst) {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    write.write_all(&token).unwrap();
                }
            }));
        }
    }
    let mut seen = [false; 2];
    let deadline = Instant::now() + Duration::from_secs(60);
    while !(seen[0] && seen[1]) && Instant::now() < deadline {
        for (place, weights) in [[9, 1], [1, 9]].iter().enumerate() {
            machine.weigh(4, weights);
            for _ in 0..200 {
                machine.pass(50);
                seen[place] |= machine.tokens(place as u64 + 1).0 >= 3;
            }
        }
    }
    is_over.store(true, Ordering::SeqCst);
    for job in [1, 2] {
        let [_, mut write] = Fifo::ends(&machine.jobservers.path(task(job))).unwrap();
        write.write_all(&[b'+'; READERS]).unwrap();
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(seen, [true; 2], "tokens move to where the weight is, however many wait for them");
    // Two processes need no token.
    assert!(most.load(Ordering::SeqCst) <= 4, "{} tokens were taken at a time", most.load(Ordering::SeqCst));
}
