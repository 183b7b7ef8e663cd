use super::*;
use crate::keeper::env::KeeperEnv;
use crate::keeper::jobserver::Jobservers;
use crate::keeper::nodes::NodeFiles;
use crate::keeper::session::Sessions;
use crate::keeper::tasks::SavedTasks;
use crate::logs::LogDir;
use crate::protocol::{HeldPhase, Lines, Rider, TaskCommand, WireResult};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::net::{UnixListener, UnixStream};
use windlass_core::Resources;

/// The attempts of a keeper, and its agent. No process is started.
struct Bench {
    dir: tempfile::TempDir,
    tasks: Tasks,
    link: Link,
    agent: UnixStream,
    lines: Lines,
}

fn keeper_env(dir: &Path) -> KeeperEnv {
    KeeperEnv {
        cgroups: None,
        logs: LogDir::new(dir),
        log_bytes_max: 1 << 20,
        null: File::open("/dev/null").unwrap(),
        helpers: BTreeMap::new(),
        launcher: None,
        mask: None,
        exposed: None,
        stuck: Vec::new(),
        namespaced: false,
        incarnation: 1,
        tasks_max: 10,
        cpus: BTreeMap::new(),
        gpu_devices: None,
        devices: BTreeMap::new(),
        nodes: NodeFiles::new(dir),
        jobservers: Jobservers::new(dir),
    }
}

fn task(index: u32) -> TaskRef {
    TaskRef { job: 1, index, attempt: 1 }
}

fn directory(index: u32) -> String {
    format!("/w/files/1.{index}.1")
}

fn place(index: u32) -> FilesPlace {
    FilesPlace { directory: directory(index), stdin: None, outputs: true }
}

/// The answer that an attempt's directory is made.
fn prepared(index: u32) -> ToKeeper {
    ToKeeper::Prepared {
        task: task(index),
        epoch: 7,
        directory: Some(directory(index)),
        stdin: None,
        why: None,
        job_at_fault: false,
        passing: false,
    }
}

/// The answer that it is not.
fn refused(job_at_fault: bool, passing: bool) -> ToKeeper {
    let why = Some("no room".to_owned());
    ToKeeper::Prepared { task: task(0), epoch: 7, directory: None, stdin: None, why, job_at_fault, passing }
}

fn collected(why: Option<&str>, job_at_fault: bool) -> ToKeeper {
    ToKeeper::Collected { task: task(0), epoch: 7, why: why.map(str::to_owned), job_at_fault }
}

/// Task 0 with its rider 1 ended so, on one core.
fn ended(end: WireEnd) -> EndedAttempt {
    EndedAttempt {
        epoch: 7,
        held: Resources::new(100, 0),
        lent: false,
        started_ns: 50,
        riders: vec![Rider { index: 1, attempt: 1 }],
        place: Some(place(0)),
        result: WireResult { end, started: Some(50), finished: Some(90), ..WireResult::default() },
    }
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Tasks::new(keeper_env(dir.path()), Sessions::default());
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let agent = UnixStream::connect(dir.path().join("socket")).unwrap();
        agent.set_nonblocking(true).unwrap();
        let mut link = Link::resume(listener);
        link.accept();
        let mut bench = Bench { dir, tasks, link, agent, lines: Lines::default() };
        bench.tasks.capacity = Resources::new(200, 0);
        let body = json!({"body": {"job": 1, "step": 0, "command": ["true"], "env": {}, "cwd": "sub",
            "files": {"outputs": true}}});
        bench.hear(serde_json::from_value(body).unwrap());
        bench
    }

    fn hear(&mut self, message: ToKeeper) {
        self.tasks.handle(message, &mut self.link);
    }

    /// A start of a task, which needs one core.
    fn start(&mut self, index: u32) {
        let start = json!({"start": {"task": task(index), "step": 0, "epoch": 7, "seq": self.tasks.seq + 1,
            "request": {"cpu": 100}, "time_limit_ms": null, "value": null}});
        self.hear(serde_json::from_value(start).unwrap());
    }

    fn command(&self, index: u32) -> TaskCommand {
        TaskCommand { task: task(index), seq: self.tasks.seq + 1 }
    }

    /// An attempt that ended as [`ended`] says.
    fn end(&mut self, end: WireEnd) {
        let ended = ended(end);
        self.tasks.booked.add(&ended.held);
        self.tasks.report_end(task(0), ended, &mut self.link);
    }

    /// What the agent was told since this was called last.
    fn said(&mut self) -> Vec<FromKeeper> {
        self.link.flush();
        let mut buffer = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = self.agent.read(&mut buffer) {
            self.lines.push(&buffer[..bytes]);
        }
        self.lines.take().unwrap()
    }

    /// The same in words: questions, ends and directories that are given back.
    fn told(&mut self) -> Vec<String> {
        let told = self.said().into_iter().filter_map(|message| match message {
            FromKeeper::Prepare { task, .. } => Some(format!("prepare {}", task.index)),
            FromKeeper::Collect { task, directory, .. } => {
                Some(format!("collect {} in {directory}", task.index))
            }
            FromKeeper::Discard { directory } => Some(format!("discard {directory}")),
            FromKeeper::Finished { task, result, .. } => Some(format!("{} {:?}", task.index, result.end)),
            _ => None,
        });
        told.collect()
    }

    /// The first result that the agent was told since.
    fn result(&mut self) -> WireResult {
        let found = self.said().into_iter().find_map(|message| match message {
            FromKeeper::Finished { result, .. } => Some(result),
            _ => None,
        });
        found.expect("an attempt is over")
    }

    /// What the attempts are said to do.
    fn phases(&mut self) -> Vec<Option<String>> {
        let said = self.said().into_iter().filter_map(|message| match message {
            FromKeeper::Progress { status, .. } => Some(status),
            _ => None,
        });
        said.collect()
    }

    fn held(&self) -> Vec<(u32, HeldPhase)> {
        self.tasks.held().into_iter().map(|held| (held.task.index, held.phase)).collect()
    }

    fn booked_cpu(&self) -> u32 {
        self.tasks.booked.cpu
    }
}

#[test]
fn a_directory_is_asked_for_until_it_is_there() {
    let mut bench = Bench::new();
    bench.start(0);
    bench.start(1);
    assert_eq!(bench.told(), ["prepare 0", "prepare 1"]);
    bench.hear(prepared(1));
    bench.tasks.begin_again(&mut bench.link);
    assert_eq!(bench.told(), ["prepare 0"]);
    // A second hello came before the first answer: the answer is repeated, and the directory is in use.
    bench.hear(prepared(1));
    assert!(bench.told().is_empty());
    assert_eq!(bench.tasks.waiting[1].place, Some(place(1)));
    bench.hear(prepared(9));
    assert_eq!(bench.told(), ["discard /w/files/1.9.1"], "no attempt needs it");
}

#[test]
fn one_that_has_no_directory_when_its_turn_comes_holds_its_room() {
    let mut bench = Bench::new();
    bench.start(0);
    assert!(bench.phases().is_empty(), "it has no room yet");
    for _ in 0..2 {
        bench.tasks.start_waiting(&mut bench.link);
    }
    assert_eq!(bench.phases(), [Some("preparing its files".to_owned())]);
    assert_eq!((bench.booked_cpu(), bench.held()), (100, vec![(0, HeldPhase::Queued)]));
    let recall = ToKeeper::Recall(bench.command(0));
    bench.hear(recall);
    assert_eq!((bench.booked_cpu(), bench.told()), (0, vec!["0 Recalled".to_owned()]));
    bench.hear(prepared(0));
    assert_eq!(bench.told(), ["discard /w/files/1.0.1"]);
    bench.start(1);
    bench.tasks.start_waiting(&mut bench.link);
    assert_eq!(bench.booked_cpu(), 100);
    bench.tasks.fence(&mut bench.link);
    assert_eq!(bench.booked_cpu(), 0, "the room is free when there is a lease again");
}

#[test]
fn one_that_is_ended_before_its_start_gives_its_directory_back() {
    let enders: [fn(&mut Bench); 3] = [
        |bench| {
            let kill = ToKeeper::Kill(bench.command(0));
            bench.hear(kill);
        },
        |bench| bench.tasks.fence(&mut bench.link),
        |bench| {
            // The worker has become smaller.
            bench.tasks.capacity = Resources::default();
            bench.tasks.start_waiting(&mut bench.link);
        },
    ];
    for (ender, end) in enders.into_iter().zip(["Canceled", "Recalled", "Recalled"]) {
        let mut bench = Bench::new();
        bench.start(0);
        bench.hear(prepared(0));
        bench.told();
        ender(&mut bench);
        assert_eq!(bench.told(), [format!("0 {end}"), "discard /w/files/1.0.1".to_owned()]);
        assert_eq!(bench.held(), [(0, HeldPhase::Ended)]);
    }
}

#[test]
fn one_whose_directory_cannot_be_made_does_not_start_or_waits() {
    for at_fault in [false, true] {
        let mut bench = Bench::new();
        bench.start(0);
        bench.said();
        bench.hear(refused(at_fault, false));
        let result = bench.result();
        let expected = (WireEnd::NotStarted("no room".to_owned()), at_fault);
        assert_eq!((result.end, result.job_at_fault), expected);
    }
    let mut bench = Bench::new();
    bench.start(0);
    bench.said();
    bench.hear(refused(false, true));
    assert_eq!(bench.phases(), [Some("waits for its files: no room".to_owned())]);
    let due = bench.tasks.next_deadline().expect("it is asked for again");
    bench.tasks.settle(due - Duration::from_millis(1), &mut bench.link);
    assert!(bench.told().is_empty());
    bench.tasks.settle(due, &mut bench.link);
    assert_eq!((bench.told(), bench.tasks.next_deadline()), (vec!["prepare 0".to_owned()], None));
}

#[test]
fn a_result_is_held_back_until_the_outputs_are_kept() {
    let mut bench = Bench::new();
    bench.end(WireEnd::Exited(0));
    assert_eq!(bench.told(), ["collect 0 in /w/files/1.0.1"]);
    assert_eq!(bench.held(), [(0, HeldPhase::Running(50)), (1, HeldPhase::Queued)]);
    bench.start(0);
    assert!(bench.told().is_empty(), "the server does not know that its start arrived");
    bench.tasks.begin_again(&mut bench.link);
    assert_eq!((bench.told(), bench.booked_cpu()), (vec!["collect 0 in /w/files/1.0.1".to_owned()], 100));
    bench.hear(collected(None, false));
    assert_eq!(bench.told(), ["0 Exited(0)", "1 Exited(0)", "discard /w/files/1.0.1"]);
    assert_eq!((bench.booked_cpu(), bench.tasks.runs()), (0, false));
    bench.hear(collected(Some("late"), false));
    assert!(bench.told().is_empty());
}

#[test]
fn lost_outputs_are_the_end_of_one_that_succeeded_and_an_addition_to_one_that_failed() {
    for at_fault in [false, true] {
        let mut bench = Bench::new();
        bench.end(WireEnd::Exited(0));
        bench.said();
        bench.hear(collected(Some("no room"), at_fault));
        let result = bench.result();
        let expected = (WireEnd::OutputsLost("no room".to_owned()), at_fault);
        assert_eq!((result.end, result.job_at_fault), expected);
    }
    let mut bench = Bench::new();
    bench.end(WireEnd::Exited(3));
    bench.said();
    bench.hear(collected(Some("no room"), true));
    let result = bench.result();
    assert_eq!((result.end, result.job_at_fault), (WireEnd::Exited(3), false));
    assert_eq!(result.message.as_deref(), Some("its outputs could not be kept: no room"));
}

#[test]
fn a_kill_and_the_end_of_the_lease_wait_for_no_outputs() {
    let kill: fn(&mut Bench) = |bench| {
        // It rides with the other.
        let kill = ToKeeper::Kill(bench.command(1));
        bench.hear(kill);
    };
    let fence: fn(&mut Bench) = |bench| bench.tasks.fence(&mut bench.link);
    let cases = [
        (kill, WireEnd::Exited(0), "Canceled"),
        (kill, WireEnd::Exited(3), "Exited(3)"),
        (fence, WireEnd::Exited(0), "Fenced"),
        (fence, WireEnd::Exited(3), "Exited(3)"),
        (fence, WireEnd::Canceled, "Canceled"),
    ];
    for (ender, end, told) in cases {
        let mut bench = Bench::new();
        bench.end(end);
        bench.said();
        ender(&mut bench);
        let expected = [format!("0 {told}"), format!("1 {told}"), "discard /w/files/1.0.1".to_owned()];
        assert_eq!(bench.told(), expected);
        assert_eq!(bench.booked_cpu(), 0);
    }
    // The server repeats the kill of a task whose end it does not know.
    let mut bench = Bench::new();
    bench.end(WireEnd::Canceled);
    bench.said();
    kill(&mut bench);
    assert!(bench.told().is_empty());
    let mut bench = Bench::new();
    bench.end(WireEnd::Fenced);
    assert_eq!(bench.told().len(), 3, "nobody keeps its outputs: {:?}", bench.held());
}

#[test]
fn a_newer_keeper_goes_on_in_every_phase() {
    let mut bench = Bench::new();
    bench.start(2);
    bench.start(3);
    bench.hear(prepared(3));
    bench.end(WireEnd::Exited(0));
    let (saved, _) = bench.tasks.save();
    let saved: SavedTasks = serde_json::from_str(&serde_json::to_string(&saved).unwrap()).unwrap();
    bench.tasks = Tasks::new(keeper_env(bench.dir.path()), Sessions::default());
    bench.tasks.put_back(saved, None);
    bench.said();
    bench.tasks.begin_again(&mut bench.link);
    assert_eq!(bench.told(), ["prepare 2", "collect 0 in /w/files/1.0.1"]);
    assert_eq!(bench.tasks.waiting[1].place, Some(place(3)));
    bench.hear(collected(None, false));
    assert_eq!(bench.told(), ["0 Exited(0)", "1 Exited(0)", "discard /w/files/1.0.1"]);
}

#[test]
fn a_task_runs_in_its_directory() {
    let bench = Bench::new();
    let body = bench.tasks.body((1, 0)).unwrap();
    let body = place(4).body(&body);
    assert_eq!((&*body.cwd, &*body.env[VARIABLE]), ("/w/files/1.4.1/sub", "/w/files/1.4.1"));
}

#[test]
fn a_standard_input_is_a_file_and_nothing_that_leads_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let [file, link, none] = ["in", "link", "none"].map(|name| dir.path().join(name));
    std::fs::write(&file, "words").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let open = |path: &Path| {
        let stdin = Some(path.to_string_lossy().into_owned());
        FilesPlace { stdin, ..place(0) }.open_stdin()
    };
    let opened = open(&file).unwrap().expect("there is one");
    let mut text = String::new();
    (&*opened).read_to_string(&mut text).unwrap();
    assert_eq!(text, "words");
    for bad in [link.as_path(), none.as_path(), dir.path()] {
        assert!(matches!(open(bad), Err(Refused::Worker(_))), "{}", bad.display());
    }
    assert!(matches!(place(0).open_stdin(), Ok(None)));
}
