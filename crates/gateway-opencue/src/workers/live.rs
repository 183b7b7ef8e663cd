//! Jobs of the Windlass server that run frames, as far as this process knows, and their comparison with OpenCue's
//! tables.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use windlass_cuebot::FrameRun;

/// Ends that are remembered, the latest, because the answer to their submission has not come yet.
const EARLY_MAX: usize = 4_096;
/// Age in seconds before which a proc may belong to a launch that is under way.
const YOUNG_S: f64 = 15.0;
/// Seconds after a booking in which a frame must begin. Otherwise it waits for room that it was promised and does not
/// get, or its worker was lost.
const START_S: f64 = 60.0;

/// Jobs of frames that have not ended, as far as this process knows.
#[derive(Default)]
pub(super) struct Live {
    runs: BTreeMap<u64, FrameRun>,
    jobs: BTreeMap<String, u64>,
    early: VecDeque<u64>,
}

impl Live {
    /// A job runs a frame. True if its end was heard before.
    pub(super) fn add(&mut self, job: u64, run: FrameRun) -> bool {
        if self.runs.contains_key(&job) {
            return false;
        }
        self.jobs.insert(run.proc_id.clone(), job);
        self.runs.insert(job, run);
        let before = self.early.len();
        self.early.retain(|early| *early != job);
        self.early.len() < before
    }

    /// A job of the server ended. True if it is one of a frame.
    pub(super) fn end(&mut self, job: u64) -> bool {
        let is_known = self.runs.contains_key(&job);
        if !is_known {
            if self.early.len() >= EARLY_MAX {
                self.early.pop_front();
            }
            self.early.push_back(job);
        }
        is_known
    }

    /// Forgets a job whose end was reported to OpenCue.
    pub(super) fn remove(&mut self, job: u64) {
        if let Some(run) = self.runs.remove(&job) {
            self.jobs.remove(&run.proc_id);
        }
    }

    /// The frame and the proc that a job runs.
    pub(super) fn run(&self, job: u64) -> Option<FrameRun> {
        self.runs.get(&job).cloned()
    }

    pub(super) fn job(&self, proc_id: &str) -> Option<u64> {
        self.jobs.get(proc_id).copied()
    }

    pub(super) fn all(&self) -> BTreeSet<u64> {
        self.runs.keys().copied().collect()
    }
}

/// A proc on a worker, by the tables.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct HeldProc {
    pub proc_id: String,
    /// Its frame. `None` where a client killed that: the proc ends with its command.
    pub frame: Option<String>,
    /// Seconds since it was booked.
    pub age_s: f64,
}

/// A job of a frame that has not ended, by the Windlass server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FrameJob {
    pub job: u64,
    pub run: FrameRun,
    /// Its task is on no worker.
    pub is_pending: bool,
}

/// The outcome of a comparison.
#[derive(PartialEq, Debug, Default)]
pub(super) struct Compared {
    /// Procs whose frames run.
    pub running: Vec<String>,
    /// Jobs to be cancelled.
    pub cancel: Vec<u64>,
    /// Procs whose job ended unheard or was never submitted.
    pub missing: Vec<HeldProc>,
}

/// Compares the jobs of frames with the procs. Jobs must have been listed first: the proc of each is there before it.
pub(super) fn compare(jobs: &[FrameJob], procs: Vec<HeldProc>) -> Compared {
    let by_proc: BTreeMap<&str, &FrameJob> = jobs.iter().map(|job| (job.run.proc_id.as_str(), job)).collect();
    let mut compared = Compared::default();
    let mut has_proc = BTreeSet::new();
    for held in procs {
        let Some(job) = by_proc.get(held.proc_id.as_str()) else {
            if held.age_s >= YOUNG_S {
                compared.missing.push(held);
            }
            continue;
        };
        has_proc.insert(job.job);
        let is_stuck = job.is_pending && held.age_s >= START_S;
        if held.frame.is_none() || is_stuck {
            compared.cancel.push(job.job);
        } else {
            compared.running.push(held.proc_id);
        }
    }
    compared.cancel.extend(jobs.iter().map(|job| job.job).filter(|job| !has_proc.contains(job)));
    compared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(proc_id: &str) -> FrameRun {
        FrameRun { frame: format!("frame of {proc_id}"), proc_id: proc_id.to_owned() }
    }

    #[test]
    fn an_end_that_is_heard_before_its_job_is_known_is_not_lost() {
        let mut live = Live::default();
        assert!(!live.end(7), "it may be anybody's");
        assert!(live.add(7, run("p")) && live.end(7));
        assert!(!live.add(8, run("q")));
        assert_eq!((live.job("p"), live.run(7)), (Some(7), Some(run("p"))));
        live.remove(7);
        assert_eq!((live.job("p"), live.run(7), live.all()), (None, None, BTreeSet::from([8])));
        for job in 100..=100 + EARLY_MAX as u64 {
            live.end(job);
        }
        assert!(!live.add(100, run("r")) && live.add(101, run("s")), "the oldest is forgotten");
    }

    #[test]
    fn what_runs_is_told_and_what_the_tables_do_not_want_ends() {
        let held = |proc_id: &str, age_s: f64| HeldProc {
            proc_id: proc_id.to_owned(),
            frame: Some(format!("frame of {proc_id}")),
            age_s,
        };
        let job = |job: u64, proc_id: &str, is_pending: bool| FrameJob { job, run: run(proc_id), is_pending };
        let jobs = [
            job(1, "runs", false),
            job(2, "waits", true),
            job(3, "stuck", true),
            job(4, "killed", false),
            job(5, "cleared", false),
        ];
        let killed = HeldProc { frame: None, ..held("killed", 20.0) };
        let procs = vec![
            held("runs", 1e6),
            held("waits", START_S - 1.0),
            held("stuck", START_S),
            killed,
            held("ended", YOUNG_S),
            held("begins", YOUNG_S - 1.0),
        ];
        let compared = compare(&jobs, procs);
        assert_eq!(compared.running, ["runs", "waits"]);
        assert_eq!(compared.cancel, [3, 4, 5]);
        assert_eq!(compared.missing, [held("ended", YOUNG_S)]);
    }
}
