use super::*;
use crate::link::Delivery;
use std::sync::{Mutex, OnceLock};
use windlass_api::StepBody;
use windlass_core::Resources;
use windlass_core::engine::{CheckedHello, Hello, Submit};
use windlass_core::job::{JobSpec, StepSpec};

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

#[tokio::test]
async fn the_store_begins_with_the_next_batch_before_the_durable_one_goes_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&format!("sqlite:{}", dir.path().join("farm.db").display())).unwrap();
    let handle = start(store, ShellOptions::default()).await.unwrap();
    let tasks = 3 * ROUND_BUDGET as u32;
    let id = handle.next_link();
    let link = Arc::new(NotingLink { id, shell: OnceLock::new(), noted: Mutex::default() });
    _ = link.shell.set(handle.clone());
    let hello = CheckedHello::of_agent(Hello::new("w", 1, Resources::new(tasks * 100, 0)), &[]).unwrap();
    handle.worker_tells(id, vec![WorkerMessage::Hello { hello, link: link.clone() }]).await;
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
    assert!(matches!(handle.request(submit).await.unwrap(), Reply::Submitted { .. }));
    // The end of the engine's thread comes after all that it had to deliver.
    handle.stop().await;
    let noted = link.noted.lock().unwrap().clone();
    assert!(noted.len() > 1 && noted.iter().any(|(begun, ended)| begun > ended), "{noted:?}");
}
