//! Workers inside this process that run nothing. Their orders arrive in one channel, so one thread serves all of them.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use windlass_core::engine::{CheckedHello, Hello, WorkerCommand};
use windlass_core::job::{End, TaskResult};
use windlass_core::{Epoch, Resources, Time};
use windlass_server::{Delivery, Handle, WorkerLink, WorkerMessage};

/// How long workers may take to register.
const PATIENCE: Duration = Duration::from_secs(240);

/// The orders of all workers, each with the number of its connection.
pub type Orders = mpsc::Receiver<(u64, Vec<Delivery>)>;

/// Connects workers with these numbers of cores.
pub async fn connect(handle: &Handle, cores: &[u32]) -> Orders {
    let (sender, orders) = mpsc::channel();
    for (number, cores) in cores.iter().enumerate() {
        let id = handle.next_link();
        let hello = hello(&format!("bench-{number:05}"), id, *cores);
        let link = Arc::new(ThreadLink { id, sender: sender.clone() });
        handle.worker_tells(id, vec![WorkerMessage::Hello { hello, link }]).await;
    }
    orders
}

/// Waits until this number of workers has registered.
pub async fn registered(handle: &Handle, count: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while handle.query(|engine| engine.workers().iter().count()).await? < count {
        anyhow::ensure!(Instant::now() < deadline, "the workers did not register");
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Connects `count` workers that end at once what they start. Each message received says that tasks reached a worker and
/// have ended.
pub async fn connect_instant(
    handle: &Handle,
    count: usize,
    cores: u32,
) -> anyhow::Result<tokio::sync::mpsc::UnboundedReceiver<()>> {
    let (starts, started) = tokio::sync::mpsc::unbounded_channel();
    let orders = connect(handle, &vec![cores; count]).await;
    let up = handle.clone();
    std::thread::spawn(move || {
        let mut epoch = Epoch(0);
        while let Ok((id, parcel)) = orders.recv() {
            let ended = end_all(parcel, &mut epoch);
            if !ended.is_empty() {
                _ = starts.send(());
                up.worker_says(id, ended);
            }
        }
    });
    registered(handle, count).await?;
    Ok(started)
}

/// A connection to one of many workers that share a thread.
struct ThreadLink {
    id: u64,
    sender: mpsc::Sender<(u64, Vec<Delivery>)>,
}

impl WorkerLink for ThreadLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn deliver(&self, parcel: Vec<Delivery>) {
        _ = self.sender.send((self.id, parcel));
    }

    fn refuse(&self, why: &str) {
        panic!("the worker is refused: {why}");
    }
}

pub fn hello(name: &str, number: u64, cores: u32) -> CheckedHello {
    let hello = Hello::new(name, number, Resources::new(cores * 100, 0));
    CheckedHello::of_agent(hello, &[]).expect("the benchmark's names are valid")
}

/// Ends every task that starts.
pub fn end_all(parcel: Vec<Delivery>, epoch: &mut Epoch) -> Vec<WorkerMessage> {
    let mut ended = Vec::new();
    for delivery in parcel {
        match delivery.order {
            WorkerCommand::Registered { epoch: welcome } => *epoch = welcome,
            WorkerCommand::Start { task, attempt, .. } => {
                let now = Some(Time(1));
                let result = TaskResult { started: now, finished: now, ..TaskResult::bare(End::Exited(0)) };
                ended.push(WorkerMessage::Finished { task, attempt, epoch: *epoch, result });
            }
            _ => {}
        }
    }
    ended
}
