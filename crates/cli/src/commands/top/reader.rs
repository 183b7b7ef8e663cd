//! Sends requests to the server, and passes its answers to the state.

use crate::client::connect::connect;
use crate::client::link::hung_up;
use crate::commands::top::jobs::query_of;
use crate::commands::top::log::TAIL_BYTES;
use crate::commands::top::message::{Answer, Deed, LogNews, Message, Read, Subject};
use crate::commands::top::rows::{QueueRow, TaskRow, WorkerRow};
use crate::commands::why::telling_task;
use crate::ui::error::CliError;
use futures_util::StreamExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::task::AbortHandle;
use windlass_api::client::task_sets::{act_on_tasks, retry};
use windlass_api::client::{Client, ClientError, LogQuery, TasksQuery};
use windlass_api::{DrainRequest, SetQueue, TaskSet};

/// How long a read may take.
const READ_MAX: Duration = Duration::from_secs(30);
/// Tasks in a page.
const TASKS_PAGE: usize = 200;
/// Pages of loads: a server has at most some tens of thousands of workers.
const LOAD_PAGES_MAX: usize = 10;
/// The states of tasks whose output is looked for first, in this order. A booked task is about to write; it may start
/// between two requests, so running ones are asked for with it.
const LOGGED: [&str; 4] = ["running", "booked,running", "failed", "succeeded,canceled"];

/// The handle that stops a task of this program.
type Stopper = Arc<Mutex<Option<AbortHandle>>>;

/// Sends requests to the server, and its answers to the state.
pub struct Reader {
    client: Client,
    /// True if the server is the user's own, which is started when it is gone.
    is_own: bool,
    sender: Sender<Message>,
    listening: Stopper,
    following: Option<AbortHandle>,
}

impl Reader {
    /// Answers go to `sender`.
    pub fn new(client: Client, is_own: bool, sender: Sender<Message>) -> Self {
        Reader { client, is_own, sender, listening: Stopper::default(), following: None }
    }

    /// Reads something. There is always an answer.
    pub fn read(&self, read: Read) {
        let (client, sender, listening) = (self.client.clone(), self.sender.clone(), self.listening.clone());
        tokio::spawn(async move {
            let answered = tokio::time::timeout(READ_MAX, answer(&client, &read)).await;
            let answer = match answered {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => {
                    let is_gone =
                        matches!(&error, CliError::Request { source, .. } if source.is_unreachable());
                    let why = error.message();
                    // A machine that vanished does not end its streams.
                    if is_gone && stop(&listening) {
                        _ = sender.send(Message::Unheard(why.clone())).await;
                    }
                    Err(why)
                }
                Err(_) => Err(format!("no answer within {} s", READ_MAX.as_secs())),
            };
            _ = sender.send(Message::Answer(read, answer)).await;
        });
    }

    /// Opens the stream of events after a pause, and tells what comes.
    pub fn listen(&self, after_ms: u64) {
        stop(&self.listening);
        let (client, sender, is_own) = (self.client.clone(), self.sender.clone(), self.is_own);
        let listening = self.listening.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            if is_own && after_ms > 0 {
                // If it cannot be started, the stream cannot be opened.
                _ = connect(None).await;
            }
            let why = match client.brief_events().await {
                Err(error) => told(error),
                Ok(events) => {
                    let (mut events, address) = (Box::pin(events), client.address().clone());
                    if sender.send(Message::At(address.to_string())).await.is_err() {
                        return;
                    }
                    if sender.send(Message::Listening).await.is_err() {
                        return;
                    }
                    loop {
                        match events.next().await {
                            None => {
                                client.pass(&hung_up(&address));
                                break "the server closed the stream of events".to_owned();
                            }
                            Some(Err(error)) => {
                                client.pass(&error);
                                break told(error);
                            }
                            Some(Ok(event)) => {
                                if sender.send(Message::Event(event)).await.is_err() {
                                    return;
                                }
                            }
                        }
                    }
                }
            };
            // The caller that takes this handle reports the lost stream, once for each opening.
            if listening.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
                _ = sender.send(Message::Unheard(why)).await;
            }
        });
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
    }

    /// Follows the output of a task, and nothing else any more.
    pub fn follow(&mut self, number: u64, task: String) {
        if let Some(earlier) = self.following.take() {
            earlier.abort();
        }
        let (client, sender) = (self.client.clone(), self.sender.clone());
        let followed = tokio::spawn(async move {
            let (out, err) = tokio::join!(
                stream(&client, &sender, number, &task, false),
                stream(&client, &sender, number, &task, true)
            );
            let news = LogNews::End(out.and(err).err().map(told));
            _ = sender.send(Message::Output(number, news)).await;
        });
        self.following = Some(followed.abort_handle());
    }

    /// Asks the server for a change, such as a cancel.
    pub fn act(&self, deed: Deed) {
        let (client, sender) = (self.client.clone(), self.sender.clone());
        tokio::spawn(async move {
            let pause = |note: Option<String>| SetQueue { paused: Some(note), ..SetQueue::default() };
            let done = match &deed {
                Deed::Drain(worker, note) => {
                    let note = Some(note.clone()).filter(|note| !note.is_empty());
                    client.drain_worker(worker, &DrainRequest { note }).await.map(|_| ())
                }
                Deed::ResumeWorker(worker) => client.act_on_worker(worker, "resume").await.map(|_| ()),
                Deed::Cancel(job) => client.act(*job, "cancel").await.map(|_| ()),
                Deed::Retry(job) => retry(&client, *job, None, false).await.map(|_| ()),
                Deed::Hold(job) => client.act(*job, "hold").await.map(|_| ()),
                Deed::Release(job) => client.act(*job, "release").await.map(|_| ()),
                Deed::Task(task, verb) => {
                    let tasks = TaskSet::one(task.index);
                    act_on_tasks(&client, task.job.0, verb.word(), &tasks).await.map(|_| ())
                }
                Deed::Pause(queue, note) => {
                    client.set_queue(queue, &pause(Some(note.clone()))).await.map(|_| ())
                }
                Deed::ResumeQueue(queue) => client.set_queue(queue, &pause(None)).await.map(|_| ()),
            };
            _ = sender.send(Message::Acted(deed, done.map_err(told))).await;
        });
    }
}

/// Stops what is listening; true if it was.
fn stop(listening: &Stopper) -> bool {
    let handle = listening.lock().unwrap_or_else(PoisonError::into_inner).take();
    handle.is_some_and(|handle| {
        handle.abort();
        true
    })
}

/// The text of an error, without the request's purpose.
fn told(error: ClientError) -> String {
    match error {
        ClientError::Refused(detail) => match detail.hint {
            Some(hint) => format!("{}; {hint}", detail.message),
            None => detail.message,
        },
        other => CliError::from(other).message().trim_start_matches("cannot reach the server: ").to_owned(),
    }
}

async fn stream(
    client: &Client,
    sender: &Sender<Message>,
    number: u64,
    task: &str,
    is_error: bool,
) -> Result<(), ClientError> {
    let name = if is_error { "stderr" } else { "stdout" };
    let query = LogQuery { stream: name, offset: Some(-TAIL_BYTES), follow: true, ..LogQuery::default() };
    let mut parts = Box::pin(client.log(task, &query).await?.1);
    while let Some(part) = parts.next().await {
        if sender.send(Message::Output(number, LogNews::Bytes(is_error, part?))).await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn answer(client: &Client, read: &Read) -> Result<Answer, CliError> {
    Ok(match read {
        Read::Overview => Answer::Overview(Box::new(client.overview().await?)),
        Read::Series => Answer::Series(Box::new(client.farm_series().await?)),
        Read::Workers => Answer::Workers(workers(client).await?),
        Read::Jobs(part) => Answer::Jobs(client.jobs(&query_of(part)).await?),
        Read::Queues => Answer::Queues(client.queues().await?.into_iter().map(QueueRow).collect()),
        Read::Job(id, cursor) => {
            let job = client.job(*id).await?;
            let query = TasksQuery { state: None, limit: Some(TASKS_PAGE), cursor: cursor.clone() };
            let page = client.tasks(*id, &query).await?;
            Answer::Job(Box::new(job), page.items.into_iter().map(TaskRow::from).collect(), page.next)
        }
        Read::Worker(name) => {
            let (worker, series) = tokio::try_join!(client.worker(name), client.worker_series(name))?;
            Answer::Worker(Box::new(worker), Box::new(series))
        }
        Read::Why(Subject::Worker(name)) => Answer::WorkerWhy(Box::new(client.worker_why(name).await?)),
        Read::Why(Subject::Task(task)) => task_why(client, task).await?,
        Read::Why(Subject::Job(job)) => {
            let task = telling_task(client, *job).await?;
            task_why(client, &task).await?
        }
        Read::LogTask(job) => Answer::LogTask(logged(client, *job).await?),
    })
}

async fn workers(client: &Client) -> Result<Vec<WorkerRow>, ClientError> {
    let seen = client.board_workers().await?;
    let (mut loads, mut cursor) = (Vec::new(), None);
    for _ in 0..LOAD_PAGES_MAX {
        let part = client.server_loads(cursor).await?;
        loads.extend(part.servers);
        cursor = part.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(WorkerRow::join(seen, loads))
}

async fn task_why(client: &Client, task: &str) -> Result<Answer, ClientError> {
    let why = client.why(task).await?;
    let job = task.split_once('.').and_then(|(job, _)| job.parse().ok()).unwrap_or_default();
    Ok(Answer::TaskWhy(Box::new(why), Box::new(client.job(job).await?)))
}

async fn logged(client: &Client, job: u64) -> Result<Option<String>, ClientError> {
    for states in LOGGED {
        if let Some(task) = client.first_task(job, states).await? {
            return Ok(Some(task.id));
        }
    }
    Ok(None)
}
