//! A made-up farm, and a server that answers with it.

use crate::commands::top::jobs::PAGE;
use crate::commands::top::message::{
    Answer, Effect, Effects, JobsPart, LogNews, Message, Moment, Read, Subject,
};
use crate::commands::top::rows::{QueueRow, SeenWorker, TaskRow, WorkerRow};
use crate::commands::top::state::State;
use windlass_api::figures::{
    ActiveJobs, AttemptRates, FarmCpus, FarmSeries, Overview, Quantiles, QueueCpus, WorkerCounts,
    WorkerSeries,
};
use windlass_api::{
    Attempt, Change, Counts, End, IneligibleWorkers, Job, JobState, Page, Queue, Resources, Step, Task,
    TaskState, Turn, Why, Worker, WorkerState, WorkerWhy,
};
use windlass_core::explain::Word;

pub const WALL_MS: u64 = 1_700_000_000_000;
/// Jobs of the farm.
pub const JOBS: u64 = 450;

/// The moment `run_ms` after the start.
pub fn at(run_ms: u64) -> Moment {
    Moment { wall_ms: WALL_MS + run_ms, run_ms }
}

/// A state that was told all that its screen needs.
pub fn state(width: u16, height: u16) -> State {
    let mut state = State::new("unix:/run/user/1000/windlass/server.sock".to_owned(), (width, height), true);
    let effects = state.update(Message::Listening, at(0));
    answer_all(&mut state, effects, 0);
    state
}

/// Presses keys; the server answers at once.
pub fn press(state: &mut State, keys: &[crate::commands::top::keys::Key]) -> Vec<Effect> {
    let (mut others, run_ms) = (Vec::new(), state.now.run_ms);
    for key in keys {
        let effects = state.update(Message::Key(*key), at(run_ms));
        others.extend(answer_all(state, effects, run_ms));
    }
    others
}

/// Lets the server answer until nothing is read any more; the other effects come back.
pub fn answer_all(state: &mut State, effects: Effects, run_ms: u64) -> Vec<Effect> {
    let (mut open, mut others) = (effects, Vec::new());
    while let Some(effect) = open.pop_front() {
        match effect {
            Effect::Read(read) => {
                let answer = answer(&read);
                open.extend(state.update(Message::Answer(read, Ok(answer)), at(run_ms)));
            }
            Effect::Follow(number, task) => {
                others.push(Effect::Follow(number, task));
                for (is_error, text) in
                    [(false, "frame 1\nframe 2\n"), (true, "\u{1b}[31mwarning\u{1b}[0m: late\u{7}\n")]
                {
                    let news = LogNews::Bytes(is_error, text.as_bytes().to_vec());
                    open.extend(state.update(Message::Output(number, news), at(run_ms)));
                }
            }
            other => others.push(other),
        }
    }
    others
}

/// The answers of the server.
pub fn answer(read: &Read) -> Answer {
    match read {
        Read::Overview => Answer::Overview(Box::new(overview())),
        Read::Series => Answer::Series(Box::new(series())),
        Read::Workers => Answer::Workers(workers(14)),
        Read::Jobs(part) => Answer::Jobs(jobs(part)),
        Read::Queues => Answer::Queues(queues()),
        Read::Job(id, cursor) => {
            let from = cursor.as_ref().map_or(0, |cursor| cursor.parse().unwrap());
            let next = (from + 200 < 1_000).then(|| (from + 200).to_string());
            let tasks = (from..1_000).take(200).map(|index| TaskRow::from(task(*id, index)));
            Answer::Job(Box::new(job(*id)), tasks.collect(), next)
        }
        Read::Worker(name) => Answer::Worker(Box::new(worker(name)), Box::new(worker_series())),
        Read::Why(Subject::Worker(name)) => Answer::WorkerWhy(Box::new(worker_why(name))),
        Read::Why(Subject::Task(task)) => Answer::TaskWhy(Box::new(why(task)), Box::new(job(12))),
        Read::Why(Subject::Job(id)) => Answer::TaskWhy(Box::new(why(&format!("{id}.2"))), Box::new(job(*id))),
        Read::LogTask(id) => Answer::LogTask(Some(format!("{id}.3"))),
    }
}

fn overview() -> Overview {
    let holds = |queue: &str, cpus| QueueCpus { queue: queue.to_owned(), cpus };
    Overview {
        time_ms: WALL_MS,
        workers: WorkerCounts {
            total: 14,
            online: 11,
            draining: 1,
            suspect: 1,
            lost: 1,
            pressed: 2,
            ..WorkerCounts::default()
        },
        suffering: Vec::new(),
        cpus: FarmCpus {
            total: 88.0,
            booked: 52.5,
            usable: 21.5,
            out_of_service: 14.0,
            by_queue: vec![holds("ann", 30.0), holds("nightly", 14.5), holds("ci", 8.0)],
        },
        tasks: Counts {
            total: 9_000,
            waiting: 120,
            ready: 3_480,
            running: 51,
            succeeded: 5_000,
            ..Counts::default()
        },
        jobs: ActiveJobs { running: 7, waiting: 23, held: 1 },
        ended: None,
        waiting: Vec::new(),
        per_minute: AttemptRates { started: 310.0, succeeded: 300.0, failed: 4.0 },
        wait_ms: Quantiles::default(),
        holds: Vec::new(),
    }
}

fn wave(steps: usize, height: f64) -> Vec<Option<f64>> {
    let value = |n: usize| {
        (n % 40 != 7).then(|| height * ((n * 37 % 100) as f64 / 100.0 + n as f64 / steps as f64) / 2.0)
    };
    (0..steps).map(value).collect()
}

fn series() -> FarmSeries {
    FarmSeries {
        step_ms: 10_000,
        end_ms: WALL_MS,
        running: wave(360, 60.0),
        waiting: wave(360, 4_000.0),
        busy_cpus: wave(360, 80.0),
        ..FarmSeries::default()
    }
}

fn worker_series() -> WorkerSeries {
    WorkerSeries {
        step_ms: 10_000,
        end_ms: WALL_MS,
        busy_cpus: wave(360, 8.0),
        cpu_pressure: wave(360, 60.0),
        memory_pressure: vec![Some(0.0); 360],
        io_pressure: vec![None; 360],
        load: wave(360, 1.5),
        ..WorkerSeries::default()
    }
}

/// Workers of several kinds.
pub fn workers(count: usize) -> Vec<WorkerRow> {
    let queues = ["ann", "nightly", "ci"];
    let row = |n: usize| {
        let state = [WorkerState::Draining, WorkerState::Suspect, WorkerState::Expired].get(n).copied();
        let held = (n * 3 % 9) as f64;
        let note = (n == 0).then(|| "new disk on Tuesday".to_owned());
        let holds =
            |m: usize| QueueCpus { queue: queues[(n + m) % 3].to_owned(), cpus: held * [0.6, 0.4][m] };
        WorkerRow {
            seen: SeenWorker {
                name: format!("box{n:02}"),
                state: state.unwrap_or(WorkerState::Up),
                assigned_jobs: n,
                cpus: 8.0,
                heard_at: Some(WALL_MS - 400 * n as u64),
                queues: (0..2).map(holds).collect(),
                note,
            },
            booked: (n != 9).then_some(held),
            pressure: [Some(n as f64 * 7.0), (!n.is_multiple_of(4)).then_some(0.4), None],
            load: Some(held / 8.0),
            reason: match n {
                5 => Some("cpu pressure is 81%, and from 80% on it gets no new work".to_owned()),
                8 => Some("its cpus are all booked".to_owned()),
                _ => None,
            },
        }
    };
    (0..count).map(row).collect()
}

pub fn job(id: u64) -> Job {
    let states = [
        JobState::Running,
        JobState::Pending,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Held,
        JobState::Canceled,
    ];
    let state = states[id as usize % states.len()];
    let counts = match state {
        JobState::Running => {
            Counts { total: 1_000, ready: 600, running: 32, succeeded: 365, failed: 3, ..Counts::default() }
        }
        JobState::Succeeded => Counts { total: 26, succeeded: 26, ..Counts::default() },
        JobState::Failed => Counts { total: 4, succeeded: 3, failed: 1, ..Counts::default() },
        _ => Counts { total: 100, ready: 60, waiting: 40, ..Counts::default() },
    };
    let name = ["film", "nightly-build", "evil\u{1b}[2J\u{202e}name", "größe"][id as usize % 4];
    Job {
        id,
        name: name.to_owned(),
        queue: ["ann", "nightly", "ci"][id as usize % 3].to_owned(),
        user: ["ann", "bob"][id as usize % 2].to_owned(),
        priority: (id % 3) as i32 - 1,
        state,
        stopped: None,
        reason: None,
        created_ms: WALL_MS - (JOBS + 1).saturating_sub(id) * 47_000,
        ended_ms: state.is_end().then_some(WALL_MS - 1_000),
        expected_end_ms: None,
        max_running: None,
        after: Vec::new(),
        after_any: Vec::new(),
        after_not_ok: Vec::new(),
        after_tasks: None,
        on_end: Vec::new(),
        notice_failures: Vec::new(),
        parent: None,
        counts,
        steps: vec![Step {
            name: "render".to_owned(),
            first_task: 0,
            tasks: 1_000,
            processes: None,
            command: Vec::new(),
            cwd: None,
            umask: None,
            resources: Resources { cpus: 2.0, memory: 512 << 20, ..Resources::default() },
            tags: Vec::new(),
            workers: Vec::new(),
            time_limit_ms: None,
            max_running: None,
            nodes: None,
            with: None,
            retries: 0,
            depends: Vec::new(),
            limits: Vec::new(),
            hints: windlass_api::Hints::default(),
        }],
    }
}

fn jobs(part: &JobsPart) -> Page<Job> {
    let top = part.before.map_or(JOBS, |before| before - 1);
    let items: Vec<Job> = (1..=top).rev().take(PAGE).map(job).collect();
    let next = items.last().filter(|last| last.id > 1).map(|last| last.id.to_string());
    Page { items, next }
}

fn task(job: u64, index: u32) -> Task {
    let state = match index {
        0..3 => TaskState::Succeeded,
        3 => TaskState::Failed,
        4..8 => TaskState::Running,
        _ => TaskState::Ready,
    };
    let started = (index < 8).then(|| WALL_MS - 90_000 + u64::from(index) * 1_000);
    Task {
        id: format!("{job}.{index}"),
        job,
        index,
        step: "render".to_owned(),
        value: Some(format!("shot-{index:03}.blend")),
        state,
        progress: (state == TaskState::Running).then_some(12.5),
        status: None,
        jobserver: None,
        expected_end_ms: None,
        attempt: Attempt {
            attempt: u32::from(index < 8),
            worker: (index < 8).then(|| format!("box{index:02}")),
            started_ms: started,
            finished_ms: started.filter(|_| index < 4).map(|at| at + 21_300),
            end: (index < 4).then_some(if index == 3 { End::Oom } else { End::Exited }),
            exit_code: (index < 4).then_some(if index == 3 { 137 } else { 0 }),
            peak_memory: (index < 4).then_some(300 << 20),
            ..Attempt::default()
        },
        failure: None,
        history: Vec::new(),
    }
}

fn queues() -> Vec<QueueRow> {
    let queue = |name: &str, weight, running: u32, waiting, paused: Option<&str>| {
        QueueRow(Queue {
            name: name.to_owned(),
            band: 3,
            weight,
            quota_cpus: None,
            burst_cpus: None,
            paused: paused.map(str::to_owned),
            users: Default::default(),
            turns: Default::default(),
            user_weights: Default::default(),
            jobserver: None,
            running,
            running_cpus: f64::from(running) * 1.5,
            waiting,
            ready_steps: 1,
            parked_jobs: 0,
            booked: 0,
            charge: "time".to_owned(),
            share: None,
            demand_cpus: Some(f64::from(running) * 1.5 + waiting as f64),
            entitled_cpus: (weight > 50).then_some(29.3),
            effective_weight: None,
        })
    };
    vec![
        queue("ann", 100, 20, 1_200, None),
        queue("ci", 300, 5, 0, None),
        queue("nightly", 50, 10, 2_280, Some("until the disk is back")),
    ]
}

fn worker(name: &str) -> Worker {
    Worker {
        id: 1,
        name: name.to_owned(),
        state: WorkerState::Up,
        note: None,
        capacity: Resources { cpus: 8.0, memory: 32 << 30, ..Resources::default() },
        booked: Resources { cpus: 4.5, memory: 3 << 30, ..Resources::default() },
        attributes: Default::default(),
        running: 2,
        queued: 0,
        epoch: 1,
        connected: Some(true),
        heard_ms: Some(WALL_MS - 700),
        lease_until_ms: None,
        version: Some("0.1.0".to_owned()),
        token_expires_ms: None,
        token_ends_soon: false,
        load: None,
        core_score: None,
        cache_keys: None,
        tasks: Some(vec!["12.4".to_owned(), "12.5".to_owned()]),
    }
}

fn why(task: &str) -> Why {
    let busy = |message: &str, workers, examples: &[&str]| IneligibleWorkers {
        reason: Word::Busy.into(),
        message: message.to_owned(),
        workers,
        examples: examples.iter().map(|name| (*name).to_owned()).collect(),
    };
    Why {
        task: task.to_owned(),
        state: TaskState::Ready,
        reason: Word::Full.into(),
        message: "every worker that could run it is busy or takes no new work".to_owned(),
        failure: None,
        turn: Some(Turn {
            queue: "ann".to_owned(),
            band: 3,
            queues_ahead: 1,
            users_ahead: 0,
            steps_ahead: 0,
            tasks_ahead: 148,
            may_be_overtaken: false,
            weight: 100,
            pool_cpus: 88.0,
            demand_cpus: 3_500.0,
            held_cpus: 30.0,
            entitled_cpus: 29.3,
            contended: true,
            expected_start_ms: Some(WALL_MS + 200_000),
            earliest_start_ms: None,
            latest_start_ms: None,
        }),
        backs_off_until_ms: None,
        open_workers: 0,
        policy: "simple".to_owned(),
        judged: Vec::new(),
        decided_ms: None,
        ruled_out: vec![
            busy("busy, cpus: needs 2, has 0", 9, &["box03", "box04", "box06"]),
            busy("drained by an operator", 1, &["box00"]),
        ],
        changes: vec![
            Change {
                worker: "box03".to_owned(),
                steps: vec!["it is next on box03, and starts there when enough is free".to_owned()],
                by: None,
            },
            Change {
                worker: "box00".to_owned(),
                steps: vec!["resume box00: 'windlass worker resume box00'".to_owned()],
                by: Some(windlass_api::ChangeBy::Administrator),
            },
        ],
        jobserver: None,
    }
}

fn worker_why(name: &str) -> WorkerWhy {
    WorkerWhy {
        worker: name.to_owned(),
        state: WorkerState::Draining,
        reason: Word::Draining.into(),
        message: "an operator drained it".to_owned(),
        running: 2,
        booked_cpus: 4.5,
        cpus: 8.0,
        load: Some(0.6),
        pressure: Default::default(),
        thresholds: Default::default(),
        pressure_counts: true,
        saturated: Vec::new(),
        left_out_until_ms: None,
        left_out_for: None,
        reserved: None,
        waiting_queues: 1,
        steps: Vec::new(),
        lost: Vec::new(),
    }
}
