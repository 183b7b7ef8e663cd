//! Invalid messages of workers must not disturb a real worker.

use super::golden::{orders, reports};
use super::place::{Agent, Server};
use super::stream::open;
use crate::support::Random;
use prost::Message as _;
use windlass_api::wire::{
    Amounts, Attribute, Beat, Cached, Caches, Cpus, DiskSpace, Finished, FromWorker, Held, Hello, Inventory,
    Load, LogPart, Lost, Pressure, Pressures, Progress, Reclaimed, Report, Stall, Started, Task, finished,
    order, report,
};
use windlass_api::{JobState, StepRequest, SubmitRequest, TaskState};

/// Messages that are sent in all, and the streams that send them at a time.
const MESSAGES: usize = 100_000;
const THROWERS: u64 = 4;
/// How much the server's memory may grow meanwhile.
const GROWTH_BYTES_MAX: u64 = 256 << 20;

impl Random {
    /// A small number, one at the end of its range, or any.
    fn number(&mut self) -> u64 {
        match self.next() % 4 {
            0 => u64::MAX - self.next() % 2,
            1 => self.next(),
            _ => self.next() % 4,
        }
    }

    fn task(&mut self) -> Option<Task> {
        let (job, index, attempt) = (self.number(), self.number() as u32, self.number() as u32);
        (!self.next().is_multiple_of(16)).then_some(Task { job, index, attempt })
    }

    fn text(&mut self) -> String {
        (0..self.next() % 40).map(|_| char::from_u32(self.next() as u32 % 0x300).unwrap_or('x')).collect()
    }

    fn inventory(&mut self) -> Option<Inventory> {
        let held = (0..self.next() % 8).map(|_| Held {
            task: self.task(),
            phase: self.next() as i32 % 7,
            started: self.number(),
        });
        let held = held.collect();
        Some(Inventory { seq: self.next() % 5, held })
    }

    /// A name of a worker, which may be taken or not.
    fn hello(&mut self, good: bool) -> Hello {
        let number = |random: &mut Random| if good { 1 + random.next() % 9 } else { random.number() };
        let name = if good || !self.next().is_multiple_of(3) { "stranger".to_owned() } else { self.text() };
        Hello {
            version: self.text(),
            name: format!("{name}{}", if good { self.0 % 4 } else { self.number() }),
            identity: number(self),
            incarnation: number(self),
            fences: self.next().is_multiple_of(2),
            sent: self.number(),
            capacity: Some(Amounts { cpu: u32::MAX, memory: self.number(), ..Amounts::default() }),
            attributes: vec![Attribute { key: self.text(), values: vec![self.text()] }],
            inventory: self.inventory(),
        }
    }

    fn finished(&mut self) -> Finished {
        let end = match self.next() % 6 {
            0 => None,
            1 => Some(finished::End::NotStarted(self.text())),
            2 => Some(finished::End::Exited(self.next() as i32)),
            3 => Some(finished::End::Signaled(self.next() as i32)),
            4 => Some(finished::End::OutputsLost(self.text())),
            _ => Some(finished::End::Other(self.next() as i32 % 9)),
        };
        let (started, finished) = (Some(self.number()), Some(self.number()));
        let (cpu_ms, peak_memory) = (Some(self.number()), Some(self.number()));
        let (out_bytes, err_bytes, message) = (self.number(), self.number(), Some(self.text()));
        let (task, epoch, disk_bytes) = (self.task(), self.number(), Some(self.number()));
        Finished {
            task,
            epoch,
            end,
            started,
            finished,
            cpu_ms,
            peak_memory,
            out_bytes,
            err_bytes,
            message,
            disk_bytes,
            job_at_fault: self.next().is_multiple_of(2),
            token_cpu_ms: Some(self.number()),
            process_memory: Some(self.number()),
        }
    }

    /// A number that may be NaN or infinite.
    fn space(&mut self) -> Option<DiskSpace> {
        let (free_bytes, total_bytes) = (self.next(), self.next());
        self.next().is_multiple_of(2).then_some(DiskSpace { free_bytes, total_bytes })
    }

    fn float(&mut self) -> Option<f64> {
        match self.next() % 4 {
            0 => None,
            1 => Some(f64::from_bits(self.next())),
            2 => Some(f64::from_bits(self.next()).abs() % 1e9),
            _ => Some((self.next() % 101) as f64),
        }
    }

    fn pressures(&mut self) -> Option<Pressures> {
        let mut stall = || {
            let (avg10, window) = (self.float().unwrap_or(0.0), self.float());
            Some(Stall { avg10, total_us: self.number(), window, ..Stall::default() })
        };
        let mut pressure = || Some(Pressure { some: stall(), full: stall() });
        Some(Pressures { cpu: pressure(), memory: pressure(), io: None })
    }

    fn load(&mut self) -> Load {
        Load {
            confined: self.next().is_multiple_of(2),
            machine: self.pressures(),
            own: self.pressures(),
            load_average: (0..self.next() % 5).filter_map(|_| self.float()).collect(),
            memory_available: Some(self.number()),
            memory_own: Some(self.number()),
            cpu_used: self.float(),
            cpu_foreign: self.float(),
            disk_mb_s: self.float(),
            network_mbit_s: self.float(),
            core_score: self.float(),
            network_in_mbit_s: self.float(),
            network_out_mbit_s: self.float(),
            network_percent: self.float(),
            state_space: self.space(),
            session_space: self.space(),
            cache_space: self.space(),
        }
    }

    fn caches(&mut self) -> Caches {
        let count = if self.next().is_multiple_of(512) { 5_000 } else { self.next() % 4 };
        Caches { entries: (0..count).map(|_| Cached { key: self.text(), bytes: self.number() }).collect() }
    }

    fn cpus(&mut self, task: Option<Task>, epoch: u64) -> Cpus {
        let (share, used) = (self.number() as u32, self.number() as u32);
        let (wants, held_back) = (self.next().is_multiple_of(2), self.next() as i32 % 5);
        Cpus { task, epoch, share, used, wants, held_back }
    }

    fn report(&mut self) -> report::What {
        let (task, epoch) = (self.task(), self.number());
        match self.next() % 11 {
            0 => report::What::Beat(Beat { sent: self.number(), inventory: self.inventory() }),
            1 => report::What::Started(Started { task, epoch, at: self.number() }),
            2 => report::What::Reclaimed(Reclaimed { task, epoch }),
            3 => report::What::Progress(Progress {
                task,
                epoch,
                percent: Some(f64::from_bits(self.next())),
                status: Some(self.text()),
            }),
            4 => report::What::Log(LogPart { id: self.number(), next: self.number(), ..LogPart::default() }),
            8 => report::What::Load(self.load()),
            9 => report::What::Caches(self.caches()),
            10 => report::What::Cpus(self.cpus(task, epoch)),
            5 if self.next().is_multiple_of(512) => report::What::Hello(self.hello(false)),
            6 if self.next().is_multiple_of(512) => report::What::Lost(Lost {}),
            _ => report::What::Finished(self.finished()),
        }
    }

    /// A message, or now and then bytes that are not a message.
    fn message(&mut self) -> Vec<u8> {
        if self.next().is_multiple_of(2_000) {
            return (0..self.next() % 64).map(|_| self.next() as u8).collect();
        }
        say((0..1 + self.next() % 3).map(|_| self.report()).collect())
    }
}

pub fn say(what: Vec<report::What>) -> Vec<u8> {
    let reports = what.into_iter().map(|what| Report { what: Some(what) }).collect();
    FromWorker { reports }.encode_to_vec()
}

/// Sends its part, on a new stream whenever the last one was closed. Half of the streams send a hello first.
async fn throw(url: String, seed: u64) {
    let mut random = Random(seed);
    let mut left = MESSAGES / THROWERS as usize;
    while left > 0 {
        let mut end = open(&url).await;
        if random.next().is_multiple_of(2) {
            let hello = random.hello(true);
            end.out.send(say(vec![report::What::Hello(hello)])).await.unwrap();
        }
        loop {
            tokio::select! {
                biased;
                heard = end.incoming.message() => if !matches!(heard, Ok(Some(_))) { break },
                sent = end.out.send(random.message()) => {
                    left -= usize::from(left > 0);
                    if sent.is_err() || left == 0 {
                        break;
                    }
                }
            }
        }
    }
}

/// A job for the one real worker.
fn job(command: &[&str]) -> SubmitRequest {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    let step = StepRequest { command, workers: vec!["w1".to_owned()], ..StepRequest::default() };
    SubmitRequest { steps: vec![step], ..SubmitRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_random_messages_disturb_nobody() {
    let server = Server::start(&[]);
    let agent = Agent::start(&server.url, "w1");
    let run = async || {
        let submitted = server.client.submit(&job(&["true"])).await.unwrap();
        let ended = server.client.wait(submitted.job, None).await.unwrap();
        assert_eq!(ended.state, JobState::Succeeded, "{}\n{}", server.log(), agent.log());
    };
    run().await;
    let before = server.resident_bytes();
    let mut throwers = tokio::task::JoinSet::new();
    for number in 1..=THROWERS {
        throwers.spawn(throw(server.url.clone(), 0x9e37_79b9_7f4a_7c15 ^ number));
    }
    while !throwers.is_empty() {
        run().await;
        while let Some(ended) = throwers.try_join_next() {
            ended.unwrap();
        }
    }
    run().await;
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "the server holds {grown} bytes more");
    let log = server.log();
    assert!(log.contains("refused 127.0.0.1:") && log.contains("decode"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
    assert!(log.len() < 1 << 20, "garbage filled the log with {} bytes", log.len());
}

fn hello(name: &str) -> Vec<u8> {
    let capacity = Some(Amounts { cpu: 100, ..Amounts::default() });
    let (name, inventory) = (name.to_owned(), Some(Inventory::default()));
    let hello =
        Hello { name, identity: 77, incarnation: 78, fences: true, capacity, inventory, ..Hello::default() };
    say(vec![report::What::Hello(hello)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lies_about_anothers_task_changes_nothing() {
    let server = Server::start(&[]);
    let _agent = Agent::start(&server.url, "w1");
    server.client.submit(&job(&["sleep", "1011"])).await.unwrap();
    let started = async || server.client.task("1.0").await.unwrap().attempt.started_ms.is_some();
    server.until("it runs", async |_| started().await).await;
    let mut liar = open(&server.url).await;
    liar.out.send(hello("liar")).await.unwrap();
    let task = |job, attempt| Some(Task { job, index: 0, attempt });
    // Its own epoch, an earlier and a later one; another attempt; a missing job, a missing task.
    let lies = [(task(1, 1), 1), (task(1, 1), 0), (task(1, 1), 9), (task(1, 2), 0), (task(99, 1), 0)];
    let end = Some(finished::End::Exited(0));
    for (task, epoch) in lies {
        let lie = vec![
            report::What::Started(Started { task, epoch, at: 1 }),
            report::What::Progress(Progress { task, epoch, percent: Some(99.0), status: None }),
            report::What::Cpus(Cpus { task, epoch, share: 99, used: 99, wants: true, held_back: 0 }),
            report::What::Reclaimed(Reclaimed { task, epoch }),
            report::What::Finished(Finished { task, epoch, end: end.clone(), ..Finished::default() }),
        ];
        assert_eq!(reports(&say(lie.clone())).len(), 5);
        liar.out.send(say(lie)).await.unwrap();
    }
    let mut acks = 0;
    while acks < lies.len() {
        let heard = orders(&liar.incoming.message().await.unwrap().unwrap());
        acks += heard.iter().filter(|order| matches!(order.what, Some(order::What::Ack(_)))).count();
    }
    let task = server.client.task("1.0").await.unwrap();
    assert_eq!((task.state, task.attempt.attempt, task.progress), (TaskState::Running, 1, None));
    assert_eq!(task.jobserver, None);
    assert_eq!(task.attempt.worker.as_deref(), Some("w1"));
    let late: Vec<_> =
        task.history.iter().map(|late| (late.late, late.attempt, late.worker.clone())).collect();
    assert_eq!(late, [(true, 1, Some("liar".to_owned()))]);
    // A stream is one worker's.
    liar.out.send(hello("another")).await.unwrap();
    server.until("it is refused", async |_| server.log().contains("a stream is one worker's")).await;
    assert_eq!(server.client.workers(false).await.unwrap().len(), 2);
    server.client.act(1, "cancel").await.unwrap();
    assert_eq!(server.client.wait(1, None).await.unwrap().state, JobState::Canceled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_number_is_refused_by_its_field_and_the_next_report_is_taken() {
    let server = Server::start(&[]);
    let stall = |avg10| Some(Stall { avg10, ..Stall::default() });
    let cpu = |avg10| {
        let pressure = Pressure { some: stall(avg10), full: None };
        Some(Pressures { cpu: Some(pressure), ..Pressures::default() })
    };
    let bad = [
        (Load { machine: cpu(f64::NAN), ..Load::default() }, "machine.cpu.some.avg10: NaN"),
        (Load { own: cpu(-1.0), ..Load::default() }, "own.cpu.some.avg10: -1"),
        (Load { cpu_foreign: Some(f64::INFINITY), ..Load::default() }, "cpu_foreign: inf"),
        (Load { load_average: vec![1.0, 2.0], ..Load::default() }, "load_average has 2 numbers"),
    ];
    let long = Caches { entries: vec![Cached { key: "k".repeat(513), bytes: 1 }] };
    let entries = vec![Cached { key: "nix/a".to_owned(), bytes: 7 }];
    let good = Load { machine: cpu(42.5), cpu_used: Some(1.5), ..Load::default() };
    for (n, (bad, _)) in bad.iter().enumerate() {
        let name = format!("w{n}");
        let worker = open(&server.url).await;
        worker.out.send(hello(&name)).await.unwrap();
        let all = [report::What::Load(bad.clone()), report::What::Caches(long.clone())];
        let all = all.into_iter().chain([
            report::What::Load(good.clone()),
            report::What::Caches(Caches { entries: entries.clone() }),
        ]);
        worker.out.send(say(all.collect())).await.unwrap();
        server
            .until("the good ones are taken", async |client| {
                client.worker(&name).await.is_ok_and(|worker| worker.cache_keys == Some(1))
            })
            .await;
        let shown = server.client.worker(&name).await.unwrap();
        let load = shown.load.unwrap();
        assert_eq!((load.cpu_used, load.cpu_foreign, load.memory_own), (Some(1.5), None, None));
        assert_eq!(load.machine.cpu.unwrap().some.unwrap().avg10, 42.5);
        assert_eq!(shown.connected, Some(true));
    }
    let log = server.log();
    bad.iter().for_each(|(_, named)| assert!(log.contains(named), "{named} is not in {log}"));
    assert!(log.contains("a key has 513 bytes"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_read_is_let_go_and_so_is_one_that_says_too_much() {
    let server = Server::start(&[]);
    let before = server.resident_bytes();
    let deaf = open(&server.url).await;
    deaf.out.send(hello("deaf")).await.unwrap();
    let beat = report::What::Beat(Beat { sent: 1, inventory: Some(Inventory::default()) });
    let beats = say(vec![beat; 50_000]);
    // Each beat is answered. The stream ends long before all of them are.
    for _ in 0..16 {
        _ = deaf.out.send(beats.clone()).await;
    }
    server.until("it is let go", async |_| server.log().contains("does not read what it is sent")).await;
    let mut loud = open(&server.url).await;
    loud.out.send(vec![0; (16 << 20) + 1]).await.unwrap();
    while let Ok(Some(_)) = loud.incoming.message().await {}
    server.until("it is told", async |_| server.log().contains("message length too large")).await;
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "the server holds {grown} bytes more");
}
