//! The hook's side of the conversation with the server.

use crate::wire::{BUILDS_PATH, BuildEvent, BuildRequest, Outcome, Report, TRY_PATH, TryAnswer, TryRequest};
use futures_util::StreamExt as _;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass_api::ErrorCode;
use windlass_api::client::{Client, ClientError};

/// How long a build waits while the server is away. After that Nix's own hook builds on the client's own machines.
const OUTAGE_MAX: Duration = Duration::from_secs(60);
/// The pause between attempts to reach the server.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The pause after a temporary refusal.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// How long one report may take, and how long the hook tries to report an end.
const REPORT_MAX: Duration = Duration::from_secs(2);
const REPORTS_MAX: Duration = Duration::from_secs(4);
/// Events that wait for the hook.
const EVENTS_MAX: usize = 64;

/// The server's side of the conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// A message of the server.
    Event(BuildEvent),
    /// The server has been away for [`OUTAGE_MAX`].
    Away,
}

/// Asks whether a derivation may be accepted.
pub async fn ask(client: &Client, request: &TryRequest) -> Result<TryAnswer, ClientError> {
    client.post(TRY_PATH, request).await
}

/// Asks for a place, and asks again after a lost connection. Events follow until the job has ended.
pub fn converse(client: Client, request: BuildRequest) -> mpsc::Receiver<Told> {
    let (events, told) = mpsc::channel(EVENTS_MAX);
    tokio::spawn(async move {
        let (mut away, mut pause) = (None::<Instant>, PAUSE_MIN);
        loop {
            let stream = client.post_lines(BUILDS_PATH, &request).await;
            let mut refused = false;
            if let Ok(stream) = stream {
                tokio::pin!(stream);
                while let Some(line) = stream.next().await {
                    let line = match line {
                        Ok(line) => line,
                        Err(error) => {
                            client.pass(&error);
                            break;
                        }
                    };
                    let Ok(event) = serde_json::from_slice::<BuildEvent>(&line) else { continue };
                    (away, pause) = (None, PAUSE_MIN);
                    refused = matches!(event, BuildEvent::Refused { is_temporary: true, .. });
                    let is_last = matches!(
                        event,
                        BuildEvent::End { .. } | BuildEvent::Refused { is_temporary: false, .. }
                    );
                    if events.send(Told::Event(event)).await.is_err() || is_last {
                        return;
                    }
                }
            } else if let Err(ClientError::Refused(detail)) = stream
                && detail.code != ErrorCode::Unavailable
            {
                let refused = BuildEvent::Refused { why: detail.message, is_temporary: false };
                _ = events.send(Told::Event(refused)).await;
                return;
            }
            if away.get_or_insert_with(Instant::now).elapsed() > OUTAGE_MAX {
                // A build that runs goes on without the server.
                _ = events.send(Told::Away).await;
                away = None;
            }
            tokio::time::sleep(if refused { REFUSED_PAUSE } else { pause }).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    });
    told
}

/// Reports attempts' progress one after the other, in a task of its own.
pub struct Reporter {
    reports: mpsc::UnboundedSender<(u64, Report)>,
    task: tokio::task::JoinHandle<()>,
}

impl Reporter {
    /// Starts the task that reports to this server.
    pub fn new(client: Client) -> Reporter {
        let (reports, mut waiting) = mpsc::unbounded_channel::<(u64, Report)>();
        let task = tokio::spawn(async move {
            while let Some((job, report)) = waiting.recv().await {
                say(&client, job, &report).await;
            }
        });
        Reporter { reports, task }
    }

    /// Queues a report about a job.
    pub fn say(&self, job: u64, report: Report) {
        // The task ends with the hook.
        _ = self.reports.send((job, report));
    }

    /// Waits until all reports are sent, for a bounded time, because Nix waits for the hook.
    pub async fn finish(self) {
        drop(self.reports);
        _ = tokio::time::timeout(REPORTS_MAX, self.task).await;
    }
}

/// Repeats a report until the server has it.
async fn say(client: &Client, job: u64, report: &Report) {
    let path = format!("{BUILDS_PATH}/{job}/report");
    let is_worth_it = !matches!(report.outcome, Outcome::Began | Outcome::Canceled);
    let began = Instant::now();
    let mut pause = PAUSE_MIN;
    while began.elapsed() < REPORTS_MAX {
        let said = tokio::time::timeout(REPORT_MAX, client.post_only(&path, report)).await;
        match said {
            Ok(Err(error)) if error.is_temporary() => {}
            // A restarted server may not know its attempts yet.
            Ok(Err(error)) if error.code() == Some(ErrorCode::Conflict) && is_worth_it => {}
            Err(_) => {}
            _ => return,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
