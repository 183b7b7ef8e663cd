use super::*;
use crate::figures::StartEstimate;
use crate::link::Delivery;
use std::sync::{Mutex, OnceLock};
use windlass_api::StepBody;
use windlass_core::engine::{CheckedHello, Hello, Report, Submit};
use windlass_core::job::{JobSpec, StepSpec};
use windlass_core::{Resources, TaskId};

/// A worker's connection that notes, when starts come, how many commits the store has begun with and how many have ended.
struct NotingLink {
    id: u64,
    shell: OnceLock<Handle>,
    noted: Mutex<Vec<(u64, u64)>>,
}

impl WorkerLink for NotingLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn deliver(&self, parcel: Vec<Delivery>) {
        if let (Some(shell), true) = (self.shell.get(), parcel.iter().any(|order| order.start.is_some())) {
            let text = shell.parts().metrics.encode(None, 0, &Vec::new());
            let counts = (count(&text, "batch_writes"), count(&text, "commit_seconds"));
            self.noted.lock().unwrap().push(counts);
        }
    }

    fn refuse(&self, _why: &str) {}
}

/// How often a histogram was observed.
fn count(metrics: &str, name: &str) -> u64 {
    let start = format!("windlass_{name}_count ");
    metrics.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
}

/// A server with one worker of this number of cpus, which does nothing by itself.
async fn farm_of_one(cpus: u32) -> (tempfile::TempDir, Handle, Arc<NotingLink>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&format!("sqlite:{}", dir.path().join("farm.db").display())).unwrap();
    let handle = start(store, ShellOptions::default()).await.unwrap();
    let id = handle.next_link();
    let link = Arc::new(NotingLink { id, shell: OnceLock::new(), noted: Mutex::default() });
    _ = link.shell.set(handle.clone());
    let hello = CheckedHello::of_agent(Hello::new("w", 1, Resources::new(cpus * 100, 0)), &[]).unwrap();
    handle.worker_tells(id, vec![WorkerMessage::Hello { hello, link: link.clone() }]).await;
    (dir, handle, link)
}

/// Submits a job of tasks of one cpu.
async fn submit(handle: &Handle, tasks: u32) -> JobId {
    let body = StepBody { command: vec!["true".to_owned()], cwd: "/".to_owned(), ..StepBody::default() };
    let step = StepSpec {
        name: "main".to_owned(),
        tasks,
        request: Resources::new(100, 0),
        body: serde_json::to_vec(&body).unwrap().into(),
        ..StepSpec::default()
    };
    let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
    let submit = |request| Event::Submit(Box::new(Submit::new(request, spec)));
    match handle.request(submit).await.unwrap() {
        Reply::Submitted { job, .. } => job,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_store_begins_with_the_next_batch_before_the_durable_one_goes_out() {
    let tasks = 3 * ROUND_BUDGET as u32;
    let (_dir, handle, link) = farm_of_one(tasks).await;
    submit(&handle, tasks).await;
    // The end of the engine's thread comes after all that it had to deliver.
    handle.stop().await;
    let noted = link.noted.lock().unwrap().clone();
    assert!(noted.len() > 1 && noted.iter().any(|(begun, ended)| begun > ended), "{noted:?}");
}

#[tokio::test]
async fn the_start_of_a_task_judges_what_was_expected_of_it() {
    let (_dir, handle, _link) = farm_of_one(1).await;
    let task = TaskId { job: submit(&handle, 1).await, index: 0 };
    let asked = handle.now();
    let estimate = StartEstimate { asked, starts: asked.after(60_000_000_000) };
    handle.parts().estimates.keep(task, estimate);
    let by = loop {
        let report = move |engine: &Engine| {
            let attempt = engine.attempt(task)?;
            Some(Report { worker: attempt.worker, epoch: attempt.epoch, task, attempt: attempt.number })
        };
        if let Some(by) = handle.query(report).await.unwrap() {
            break by;
        }
        tokio::task::yield_now().await;
    };
    handle.tell(Event::Started { by, at: handle.now() }).await;
    handle.stop().await;
    let text = handle.parts().metrics.encode(None, 0, &Vec::new());
    assert_eq!(count(&text, "start_estimate_error"), 1);
}
