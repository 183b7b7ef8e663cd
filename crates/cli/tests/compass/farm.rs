//! The engine with hosts of Compass CI in virtual time: the scheduler's decisions, without its sockets.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::{
    Engine, Event, Hello, Inventory, Outbox, Report, Settings, Submit, WorkerCommand,
};
use windlass_core::job::{End, TaskResult};
use windlass_core::load::pressure::LoadReport;
use windlass_core::plan::PlanSettings;
use windlass_core::queues::{Charge, QueueRecord, TurnSettings};
use windlass_core::time::NS_PER_S;
use windlass_core::worker::Origin;
use windlass_core::{JobId, RequestId, Resources, TaskId, Time, WorkerId};
use windlass_gateway_compass::format::{CompassJob, HostRequest};

/// A job that a host got: the time, the job, its queue, and the host.
#[derive(Clone, Debug)]
pub struct Boot {
    pub job: u64,
    pub queue: String,
    pub host: String,
}

pub struct Farm {
    engine: Engine,
    now: Time,
    /// Free bytes of each host, which it reports each second.
    free: BTreeMap<String, u64>,
    /// Run time in seconds of the jobs of each queue; without an entry they run until they are ended.
    seconds: BTreeMap<String, u64>,
    running: BTreeMap<TaskId, (u32, Time)>,
    pub boots: Vec<Boot>,
    seen: usize,
}

impl Farm {
    pub fn new(charge: Charge) -> Farm {
        let turn = TurnSettings { charge, express: None };
        Farm {
            engine: Engine::new(Settings {
                plan: PlanSettings { turn, ..PlanSettings::default() },
                ..Settings::default()
            }),
            now: Time(1_000_000 * NS_PER_S),
            free: BTreeMap::new(),
            seconds: BTreeMap::new(),
            running: BTreeMap::new(),
            boots: Vec::new(),
            seen: 0,
        }
    }

    fn tell(&mut self, event: Event) {
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        self.go_out(&out);
    }

    fn go_out(&mut self, out: &Outbox) {
        self.engine.committed(out);
        for send in &out.sends {
            let WorkerCommand::Start { task, attempt, .. } = &send.command else { continue };
            let epoch = self.engine.attempt(*task).expect("it is booked").epoch;
            let by = Report { worker: send.worker, epoch, task: *task, attempt: *attempt };
            let worker = self.engine.workers().get(send.worker).expect("it is there");
            let host = Origin::Compass.own_name(&worker.record.name).expect("a host").to_owned();
            let queue = self.engine.job(task.job).expect("it is active").spec.queue.clone();
            self.boots.push(Boot { job: task.job.0, queue, host });
            self.running.insert(*task, (*attempt, self.now));
            self.tell(Event::Started { by, at: self.now });
        }
    }

    /// A provider's host with these gibibytes, all free.
    pub fn host(&mut self, name: &str, gib: u64, more: &Value) {
        let mut said = json!({"hostname": name, "arch": "aarch64", "nr_cpu": 256, "tbox_type": "vm,dc", "freemem": gib << 10});
        for (key, value) in more.as_object().into_iter().flatten() {
            said[key] = value.clone();
        }
        let request = HostRequest::parse(said.as_object().unwrap()).unwrap();
        self.tell(Event::Hello(Box::new(Hello {
            name: Origin::Compass.worker_name(name),
            identity: 1,
            incarnation: 1 + self.free.len() as u64,
            fences: false,
            sent: 0,
            new_link: true,
            capacity: Resources::new(25_600, gib << 30),
            attributes: request.attributes(),
            inventory: Inventory::default(),
        })));
        let worker = self.worker(name);
        self.tell(Event::Caches { worker, keys: CacheKeys::of(request.cache_dirs.iter()) });
        self.say_free(name, gib);
    }

    fn worker(&self, name: &str) -> WorkerId {
        self.engine.workers().by_name(&Origin::Compass.worker_name(name)).expect("it said hello").record.id
    }

    /// A host reports its free gibibytes, with its running jobs counted.
    pub fn say_free(&mut self, name: &str, gib: u64) {
        self.free.insert(name.to_owned(), gib << 30);
        self.report(name);
    }

    fn report(&mut self, name: &str) {
        let worker = self.worker(name);
        let own = self.engine.workers().get(worker).expect("it is there").booked.sum().memory;
        let left = self.free[name].saturating_sub(own);
        let report =
            LoadReport { memory_available: Some(left), memory_own: Some(own), ..LoadReport::default() };
        self.tell(Event::Load { worker, report: Box::new(report) });
    }

    /// Sets the run time of the queue's jobs.
    pub fn lasts(&mut self, queue: &str, seconds: u64) {
        self.seconds.insert(queue.to_owned(), seconds);
    }

    pub fn weigh(&mut self, queue: &str, weight: u32) {
        let queue = QueueRecord { weight, ..QueueRecord::named(queue) };
        self.tell(Event::SetQueue { request: RequestId(1), queue });
    }

    /// Submits a job to the queue, with preferred machines.
    pub fn submit_to(&mut self, queue: &str, testbox: &str, more: &Value, preferred: &[&str]) -> u64 {
        let job = super::lab::job(testbox, more);
        let job = CompassJob::parse(job.as_object().unwrap().clone()).unwrap();
        let preferred: BTreeSet<String> = preferred.iter().map(|name| (*name).to_owned()).collect();
        let spec = job.into_spec(queue.to_owned(), preferred).unwrap();
        let request = RequestId(1);
        let submit = Submit::new(request, spec);
        self.tell(Event::Submit(Box::new(submit)));
        self.engine.jobs().last().expect("it was taken in").id.0
    }

    pub fn submit(&mut self, queue: &str, testbox: &str) -> u64 {
        self.submit_to(queue, testbox, &Value::Null, &[])
    }

    pub fn why(&self, job: u64) -> String {
        format!("{:?}", windlass_core::explain::task(&self.engine, TaskId { job: JobId(job), index: 0 }))
    }

    pub fn settle(&mut self) {
        loop {
            let mut out = Outbox::default();
            let booked = self.engine.round(self.now, 1_000, &mut out);
            self.go_out(&out);
            if booked == 0 {
                return;
            }
        }
    }

    /// The jobs that hosts got since the last call.
    pub fn booted(&mut self) -> Vec<Boot> {
        self.settle();
        let new = self.boots[self.seen..].to_vec();
        self.seen = self.boots.len();
        new
    }

    /// Ends a job successfully.
    pub fn end(&mut self, job: u64) {
        let task = TaskId { job: JobId(job), index: 0 };
        let (attempt, began) = self.running.remove(&task).expect("it runs");
        let held = self.engine.attempt(task).expect("it runs");
        let by = Report { worker: held.worker, epoch: held.epoch, task, attempt };
        let mut result = TaskResult::bare(End::Exited(0));
        (result.started, result.finished) = (Some(began), Some(self.now));
        self.tell(Event::Finished { by, result });
    }

    /// Lets time pass second by second: hosts report free memory, and jobs end when their run time is over.
    pub fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now.after(NS_PER_S);
            let names: Vec<String> = self.free.keys().cloned().collect();
            names.iter().for_each(|name| self.report(name));
            let over = |(task, (_, began)): (&TaskId, &(u32, Time))| {
                let queue = &self.engine.job(task.job)?.spec.queue;
                let seconds = *self.seconds.get(queue)?;
                (self.now.since(*began) >= seconds * NS_PER_S).then_some(task.job.0)
            };
            let over: Vec<u64> = self.running.iter().filter_map(over).collect();
            over.into_iter().for_each(|job| self.end(job));
            self.tell(Event::Tick);
            self.settle();
        }
    }

    /// Ends the running job that many times, so that another starts. Returns the queues in the order of their turns.
    pub fn turns(&mut self, n: usize) -> Vec<String> {
        let mut queues: Vec<String> = self.booted().into_iter().map(|boot| boot.queue).collect();
        while queues.len() < n {
            self.now = self.now.after(NS_PER_S);
            let runs = self.running.keys().next().expect("something runs").job.0;
            self.end(runs);
            queues.extend(self.booted().into_iter().map(|boot| boot.queue));
        }
        queues.truncate(n);
        queues
    }
}

/// How many turns each of the queues had.
pub fn counts(turns: &[String], queues: &[&str]) -> Vec<usize> {
    queues.iter().map(|queue| turns.iter().filter(|turn| turn == queue).count()).collect()
}
