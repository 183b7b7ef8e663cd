//! Calls to hosts that Cuebot asks for: ends of commands, ends of strays, and the question what a host still runs.
//!
//! - On a Windlass worker the job of the frame is cancelled.
//! - No launch of another frame waits for strays or for that question: both have calls of their own, and a host has one
//!   of them at a time.
//! - A stray that a host does not end is in its next report, and is asked for again then. Nothing is kept for that.

use super::{FrameRun, Launcher, Shared};
use crate::scheduler::hosts::is_answer;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::Status;
use windlass_cuebot::{HostCalls, Victim};

/// Hosts that are asked at a time to end victims.
const HOSTS_AT_A_TIME: usize = 16;
/// Hosts that are asked at a time what they run, after a start.
const ASKED_AT_A_TIME: usize = 64;
/// Time for one host, with the connection. A host that does not answer is silent, and its procs are cleared for that.
/// A host that still reports the frame is asked again.
const HOST_TIME: Duration = Duration::from_secs(10);
/// Strays of all hosts that wait to be ended. Hosts report further ones again.
const STRAYS_MAX: usize = 8_192;
/// Time for all strays of one report. The next report comes after a minute.
const REPORT_TIME: Duration = Duration::from_secs(30);
const WHY: &str = "the host does not hold it any more";
const WHY_MISSING: &str = "the host does not say that it runs it";

impl HostCalls for Launcher {
    fn has_workers(&self) -> bool {
        self.hosts().has_workers()
    }

    fn is_worker(&self, host: &str) -> bool {
        self.hosts().is_worker(host)
    }

    fn end(&self, victims: Vec<Victim>, why: String) {
        if victims.is_empty() {
            return;
        }
        let launcher = self.clone();
        tokio::spawn(async move {
            let mut asked = JoinSet::new();
            for victim in victims {
                if asked.len() >= HOSTS_AT_A_TIME {
                    asked.join_next().await;
                }
                let (why, launcher) = (why.clone(), launcher.clone());
                asked.spawn(async move {
                    let answer = tokio::time::timeout(HOST_TIME, launcher.end_victim(&victim, &why)).await;
                    if !matches!(answer, Ok(Ok(()))) {
                        tracing::warn!(
                            host = victim.host,
                            frame = victim.frame,
                            "a host did not end a frame"
                        );
                    }
                });
            }
            asked.join_all().await;
        });
    }

    fn end_strays(&self, host: String, mut strays: Vec<FrameRun>) {
        let shared = self.shared.clone();
        {
            let mut waiting = shared.strays.lock();
            let others = waiting.iter().filter(|(other, _)| **other != host);
            let others: usize = others.map(|(_, strays)| strays.len()).sum();
            strays.truncate(STRAYS_MAX.saturating_sub(others));
            if let Some(earlier) = waiting.get_mut(&host) {
                *earlier = strays;
                return;
            }
            if strays.is_empty() {
                return;
            }
            waiting.insert(host.clone(), strays);
        }
        tokio::spawn(async move {
            while let Some(strays) = shared.next_strays(&host) {
                if tokio::time::timeout(REPORT_TIME, shared.end_strays(&host, &strays)).await.is_err() {
                    tracing::warn!(host, "a host is slow to end frames that it does not hold");
                }
            }
        });
    }

    /// A report alone does not say what a host runs: a launch may have reached it before the report came here.
    fn ask_about(&self, host: String, runs: Vec<FrameRun>) {
        // A host that is being asked is asked again after its next report, about what is still missing then.
        if runs.is_empty() || !self.shared.asking.lock().insert(host.clone()) {
            return;
        }
        let launcher = self.clone();
        tokio::spawn(async move {
            for run in &runs {
                // A launch that is under way is answered before the host is asked.
                drop(launcher.shared.turns.take(&host, &run.frame).await);
            }
            let missing = launcher.shared.hosts.missing(&host, runs).await;
            launcher.shared.asking.lock().remove(&host);
            match missing {
                Ok(missing) => missing.into_iter().for_each(|run| launcher.take_back(&host, run)),
                Err(status) => {
                    tracing::warn!(host, why = status.message(), "a host does not say what it runs");
                }
            }
        });
    }

    fn ask_all(&self, hosts: BTreeMap<String, Vec<FrameRun>>) {
        let launcher = self.clone();
        tokio::spawn(async move {
            let mut asked = JoinSet::new();
            for (host, runs) in hosts {
                // Workers are compared with the tables by themselves.
                if launcher.hosts().is_worker(&host) {
                    continue;
                }
                if asked.len() >= ASKED_AT_A_TIME {
                    asked.join_next().await;
                }
                let launcher = launcher.clone();
                asked.spawn(async move { launcher.take_back_lost(&host, runs).await });
            }
            asked.join_all().await;
        });
    }
}

impl Launcher {
    /// Takes back a run that its host does not have.
    fn take_back(&self, host: &str, run: FrameRun) {
        let frame = run.frame.clone();
        if self.undo(host.to_owned(), run) {
            tracing::warn!(host, frame, "a host does not run a frame that it holds; it waits again");
        }
    }

    /// Takes back the runs that a host does not have, as far as it will not tell their ends any more. The RQD in Python
    /// tells an end once. The one in Rust keeps an end until it is heard, for as long as the gateway was away: its
    /// runs are left to that, or to its reports.
    async fn take_back_lost(&self, host: &str, runs: Vec<FrameRun>) {
        let missing = match self.hosts().missing(host, runs).await {
            Ok(missing) => missing,
            Err(status) => {
                tracing::warn!(host, why = status.message(), "a host does not say what it runs");
                return;
            }
        };
        for run in missing {
            match self.shared.kill_once(host, &run, WHY_MISSING, &self.shared.calls).await {
                Ok(true) => self.take_back(host, run),
                // Its next reports decide.
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// Asks a host once to end a victim. RQD is not asked where another proc of the host holds the frame.
    async fn end_victim(&self, victim: &Victim, why: &str) -> Result<(), Status> {
        let Some(workers) = self.hosts().workers_of(&victim.host) else {
            let proc_id = victim.proc_id.clone().unwrap_or_default();
            let run = FrameRun { frame: victim.frame.clone(), proc_id };
            let asked = self.shared.kill_once(&victim.host, &run, why, &self.shared.calls).await;
            return asked.map(|_| ());
        };
        // Without a proc nothing of the frame is on the worker.
        let Some(proc_id) = victim.proc_id.clone() else { return Ok(()) };
        let run = FrameRun { frame: victim.frame.clone(), proc_id };
        workers.end(&run).await.map_err(|error| Status::unavailable(error.to_string()))
    }
}

impl Shared {
    async fn end_strays(&self, host: &str, strays: &[FrameRun]) {
        for stray in strays {
            let Err(status) = self.kill_once(host, stray, WHY, &self.stray_calls).await else { continue };
            let (frame, why) = (&stray.frame, status.message());
            tracing::warn!(host, frame, why, "a host does not end a frame that it does not hold");
            if !is_answer(&status) {
                return;
            }
        }
    }

    /// The waiting strays of a host. Without any, the host is forgotten.
    fn next_strays(&self, host: &str) -> Option<Vec<FrameRun>> {
        let mut waiting = self.strays.lock();
        let next = waiting.get_mut(host).map(std::mem::take).unwrap_or_default();
        if next.is_empty() {
            waiting.remove(host);
            return None;
        }
        Some(next)
    }
}
