//! The record of a job that a host has or had, and how updates change it. The store keeps it as JSON.

use crate::format::{Fields, Health, Readiness, Stage, TboxType};
use crate::time::time_text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use subtle::ConstantTimeEq as _;
use windlass_core::JobId;
use windlass_server::{Handle, Unavailable};

/// Milestones of one job.
const MILESTONES_MAX: usize = 256;
/// Bytes of one word of an update.
const WORD_BYTES_MAX: usize = 4_096;
/// Seconds by which one request may prolong the use of a machine: thirty days.
const RENEW_S_MAX: u64 = 30 * 86_400;
/// Seconds within which the results of an ended job must arrive.
const RESULTS_S_MAX: u64 = 3_600;
/// The parameters of an update, in the order in which they are applied. Health comes before stage, so that the last
/// successful stage is noted correctly.
const PARAMETERS: &str = "job_state job_health job_stage job_data_readiness job_step milestones \
    renew_seconds ssh_port ip";

/// The parameters of an update, from a query or a message.
pub(crate) type Params = BTreeMap<String, String>;

/// A job's progress, and the host that has it. Times are in seconds since the Unix epoch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    pub stage: Stage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    pub readiness: Readiness,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_stage: Option<Stage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub milestones: Vec<String>,
    /// The time at which the job reached each stage and readiness, by their words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub times: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_port: Option<String>,
    /// The machine's address, for the other nodes of its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// True if the user ended this node of a cluster. Its host may not know yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminated: bool,
    /// The time before which no time limit ends the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_to: Option<u64>,
    /// The fields of the jobs that it waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Fields>,
    /// The host that has or had the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<BookedHost>,
    /// The fields that were filled in for that host. `None` until then; no host is told of the job before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<Fields>,
    /// Why the job could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The addresses at which a host reaches the scheduler.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reached {
    /// The `HOST:PORT` that the host's request named; empty if unknown.
    #[serde(default)]
    pub server: String,
    /// The services that the host itself names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, String>,
    /// The address from which a bare machine booted, if the settings identify machines by it. `None` for a provider,
    /// whose guests share its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::IpAddr>,
}

/// A job's attempt at a host.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BookedHost {
    pub host: String,
    pub hw: bool,
    pub dc: bool,
    pub attempt: u32,
    /// The host's epoch when the engine sent the attempt.
    pub epoch: u64,
    /// Bytes of memory that are booked for the job.
    pub memory: u64,
    /// The token by which the job identifies itself.
    pub token: String,
    /// Seconds that the job's program may run.
    pub timeout_s: u64,
    /// How the host reaches the scheduler.
    #[serde(default)]
    pub reached: Reached,
}

/// Why an update is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadUpdate {
    #[error("Error: Job not found")]
    NoJob,
    #[error("Warning: Job closed, cannot update")]
    Closed,
    #[error("Error: Unknown {0}={1}")]
    Unknown(&'static str, String),
    #[error("Error: {what} cannot go back from {from} to {to}")]
    Back { what: &'static str, from: &'static str, to: &'static str },
    #[error("Error: no machine has the job; its stage is submit")]
    NotDispatched,
    #[error("Warning: Only running jobs can renew, your job stage is: {0}")]
    NotRunning(Stage),
    #[error("Error: {0} must be {1}")]
    Bad(&'static str, &'static str),
    #[error("Error: the job is at another host, or this is not its job_token")]
    NotYours,
    #[error("{0}")]
    Unavailable(String),
}

impl BookedHost {
    /// True if this is the job's token.
    pub fn has_token(&self, token: &str) -> bool {
        token.as_bytes().ct_eq(self.token.as_bytes()).into()
    }
}

impl Record {
    /// The stored record of a job. One that cannot be read counts as none.
    pub async fn kept(handle: &Handle, job: JobId) -> Result<Option<Record>, Unavailable> {
        let kept = handle.store().foreign_job(job).await.map_err(|error| Unavailable::from_store(&error))?;
        Ok(kept.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// The record of a job that the engine just gave to a host.
    pub fn dispatched(place: BookedHost, waited: Option<Fields>, now: u64) -> Record {
        let mut record = Record { waited, place: Some(place), ..Record::default() };
        record.enter(Stage::Dispatch, now);
        record
    }

    /// The record of a job of which no host has reported.
    pub fn untold(stage: Stage, health: Option<Health>, readiness: Readiness) -> Record {
        Record { stage, health, readiness, ..Record::default() }
    }

    /// The record as JSON.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("words and numbers always serialize")
    }

    /// True once the record does not change any more.
    pub fn is_closed(&self) -> bool {
        self.stage.is_end() && self.readiness >= Readiness::Complete
    }

    /// The kind of machine that has the job.
    pub fn kind(&self) -> Option<TboxType> {
        self.place.as_ref().map(|place| match (place.hw, place.dc) {
            (true, _) => TboxType::Hw,
            (_, true) => TboxType::Dc,
            _ => TboxType::Vm,
        })
    }

    /// The time at which the job reached its stage, or 0.
    pub fn since(&self) -> u64 {
        self.times.get(self.stage.as_str()).copied().unwrap_or(0)
    }

    /// The time at which the stage's time limit ends the job, not before the user's prolongation; `None` if the stage
    /// has no limit.
    pub fn deadline(&self) -> Option<u64> {
        let kind = self.kind()?;
        let limit = match (self.stage, kind) {
            (Stage::Dispatch, _) => 3_600,
            (Stage::Boot, TboxType::Hw) => 1_200,
            (Stage::Boot, TboxType::Vm) => 600,
            (Stage::Boot, TboxType::Dc) => 180,
            (Stage::Setup, _) => 600,
            (Stage::WaitPeer, _) => 7_200,
            (Stage::Running | Stage::Renew, _) => self.place.as_ref().map_or(3_600, |place| place.timeout_s),
            (Stage::PostRun, _) => 1_800,
            (Stage::ManualCheck, _) => 36_000,
            _ => return None,
        };
        Some(self.since().saturating_add(limit).max(self.renew_to.unwrap_or(0)))
    }

    /// Enters a stage, and notes the time.
    pub fn enter(&mut self, stage: Stage, now: u64) {
        self.stage = stage;
        self.times.entry(stage.as_str().to_owned()).or_insert(now);
        if stage >= Stage::Cancel {
            self.readiness = Readiness::Norun;
        }
    }

    /// Sets a bad health.
    pub fn suffer(&mut self, health: Health) {
        self.health = Some(health);
        self.last_success_stage = Some(self.stage);
    }

    /// Ends the job, whatever its host reports later.
    pub fn end(&mut self, health: Health, now: u64) {
        if self.health.is_none_or(|known| known < Health::Cancel) {
            self.suffer(health);
        }
        self.enter(Stage::Finish, now);
        self.readiness = self.readiness.max(Readiness::Incomplete);
    }

    /// True while results may be uploaded: the job runs, or it ended and its results have not arrived.
    pub fn takes_results(&self) -> bool {
        self.stage >= Stage::Dispatch && self.readiness < Readiness::Uploaded
    }

    /// True while the provider may upload the console's output after the job declared its own results complete.
    pub fn takes_console(&self, now: u64) -> bool {
        let complete = self.times.get(Readiness::Complete.as_str());
        self.readiness == Readiness::Complete
            && complete.is_some_and(|at| at.saturating_add(RESULTS_S_MAX) > now)
    }

    /// True while the machine boots. The archive is served only then, because logs of machines show its URL.
    pub fn is_booting(&self) -> bool {
        matches!(self.stage, Stage::Dispatch | Stage::Boot)
    }

    /// True if an ended job's results do not arrive: it was not updated for an hour.
    pub fn lacks_results(&self, now: u64) -> bool {
        let told = self.times.values().copied().max().unwrap_or(0);
        self.stage.is_end() && !self.is_closed() && told.saturating_add(RESULTS_S_MAX) <= now
    }

    /// Applies an update, all of it or nothing. Returns the text of the answer.
    pub fn update(&mut self, params: &Params, now: u64) -> Result<String, BadUpdate> {
        if self.is_closed() {
            return Err(BadUpdate::Closed);
        }
        let (mut next, mut answer) = (self.clone(), String::new());
        for name in PARAMETERS.split_whitespace() {
            let Some(value) = params.get(name).filter(|value| !value.is_empty()) else { continue };
            if value.len() > WORD_BYTES_MAX {
                return Err(BadUpdate::Bad(name, "shorter"));
            }
            match name {
                "job_step" => next.step = Some(value.clone()),
                "ssh_port" => next.ssh_port = Some(value.clone()),
                "ip" => next.ip = Some(value.clone()),
                "milestones" => next.reach(value)?,
                "renew_seconds" => answer = next.renew(value, now)?,
                name => next.set(name, value, now)?,
            }
        }
        *self = next;
        Ok(answer)
    }

    /// Sets the stage, health or readiness that the word names. For words that name several, the parameter decides.
    fn set(&mut self, name: &'static str, word: &str, now: u64) -> Result<(), BadUpdate> {
        let (stage, health) = (Stage::parse(word), Health::parse(word));
        match (Readiness::parse(word), stage, health) {
            (Some(readiness), ..) => self.set_readiness(readiness, now),
            (None, stage, Some(health)) if name == "job_health" || stage.is_none() => {
                self.suffer_unless_well(health);
                Ok(())
            }
            (None, Some(stage), _) => self.set_stage(stage, now),
            (None, None, _) => Err(BadUpdate::Unknown(name, word.chars().take(64).collect())),
        }
    }

    fn suffer_unless_well(&mut self, health: Health) {
        match health {
            Health::Unknown | Health::Success => self.health = Some(health),
            _ => self.suffer(health),
        }
    }

    fn set_stage(&mut self, stage: Stage, now: u64) -> Result<(), BadUpdate> {
        let back = stage < self.stage || (self.stage.is_end() && stage != self.stage);
        if back {
            let (from, to) = (self.stage.as_str(), stage.as_str());
            return Err(BadUpdate::Back { what: "job_stage", from, to });
        }
        self.enter(stage, now);
        Ok(())
    }

    /// Uploaded results are complete at once, because no service evaluates them here. A job with complete results has
    /// ended.
    fn set_readiness(&mut self, readiness: Readiness, now: u64) -> Result<(), BadUpdate> {
        if readiness < self.readiness {
            let (from, to) = (self.readiness.as_str(), readiness.as_str());
            return Err(BadUpdate::Back { what: "job_data_readiness", from, to });
        }
        self.times.entry(readiness.as_str().to_owned()).or_insert(now);
        self.readiness = if readiness == Readiness::Uploaded { Readiness::Complete } else { readiness };
        if self.readiness >= Readiness::Complete {
            self.times.entry("complete".to_owned()).or_insert(now);
            if !self.stage.is_end() {
                self.enter(Stage::Finish, now);
            }
        }
        Ok(())
    }

    fn reach(&mut self, value: &str) -> Result<(), BadUpdate> {
        for milestone in value.split([' ', ',']).filter(|word| !word.is_empty()) {
            if !self.milestones.iter().any(|known| known == milestone) {
                self.milestones.push(milestone.to_owned());
            }
        }
        if self.milestones.len() > MILESTONES_MAX {
            return Err(BadUpdate::Bad("milestones", "256 words at most"));
        }
        Ok(())
    }

    fn renew(&mut self, value: &str, now: u64) -> Result<String, BadUpdate> {
        if self.stage.is_end() || self.stage < Stage::Dispatch {
            return Err(BadUpdate::NotRunning(self.stage));
        }
        let seconds = value.parse::<u64>().ok().filter(|seconds| *seconds <= RENEW_S_MAX);
        let seconds =
            seconds.ok_or(BadUpdate::Bad("renew_seconds", "a whole number of seconds, 30 days at most"))?;
        let until = now.saturating_add(seconds);
        self.renew_to = Some(until);
        Ok(time_text(until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Record {
        let place = BookedHost {
            host: "h".to_owned(),
            dc: true,
            attempt: 1,
            timeout_s: 900,
            ..BookedHost::default()
        };
        Record::dispatched(place, None, 100)
    }

    fn say(record: &mut Record, text: &str) -> Result<String, BadUpdate> {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        let params = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        record.update(&params, 200)
    }

    #[test]
    fn stages_go_forward_and_may_be_skipped() {
        let mut job = running();
        say(&mut job, "job_stage=boot").unwrap();
        say(&mut job, "job_stage=running&job_step=smoke").unwrap();
        say(&mut job, "job_stage=running").unwrap();
        let back = say(&mut job, "job_step=other&job_stage=boot").unwrap_err();
        assert_eq!(back.to_string(), "Error: job_stage cannot go back from running to boot");
        assert_eq!(job.step.as_deref(), Some("smoke"), "nothing of a bad update is taken");
        say(&mut job, "job_stage=finish").unwrap();
        assert!(matches!(say(&mut job, "job_stage=cancel"), Err(BadUpdate::Back { .. })));
        assert!(!job.is_closed());
        say(&mut job, "job_data_readiness=uploading").unwrap();
        say(&mut job, "job_data_readiness=uploaded").unwrap();
        assert_eq!(job.readiness, Readiness::Complete);
        assert_eq!(say(&mut job, "job_step=x"), Err(BadUpdate::Closed));
    }

    #[test]
    fn results_are_waited_for_an_hour() {
        let mut job = running();
        say(&mut job, "job_stage=finish&job_data_readiness=uploading").unwrap();
        assert!(!job.lacks_results(200 + 3_599) && job.lacks_results(200 + 3_600));
        say(&mut job, "job_data_readiness=uploaded").unwrap();
        assert!(!job.lacks_results(200 + 3_600));
    }

    #[test]
    fn complete_results_end_a_job_and_what_never_ran_has_none() {
        let mut job = running();
        say(&mut job, "job_data_readiness=uploaded").unwrap();
        assert_eq!((job.stage, job.readiness), (Stage::Finish, Readiness::Complete));
        let mut job = running();
        say(&mut job, "job_stage=abort_provider&job_health=abort_provider&job_data_readiness=norun").unwrap();
        assert_eq!((job.stage, job.health), (Stage::AbortProvider, Some(Health::AbortProvider)));
        assert_eq!((job.readiness, job.last_success_stage), (Readiness::Norun, Some(Stage::Dispatch)));
        assert!(job.is_closed());
    }

    #[test]
    fn words_stand_for_what_they_are_whatever_they_are_said_as() {
        let mut job = running();
        say(&mut job, "job_state=running").unwrap();
        say(&mut job, "job_state=oom").unwrap();
        assert_eq!((job.stage, job.health), (Stage::Running, Some(Health::Oom)));
        let unknown = say(&mut job, "job_state=dancing").unwrap_err();
        assert_eq!(unknown.to_string(), "Error: Unknown job_state=dancing");
    }

    #[test]
    fn a_machine_may_be_kept_longer() {
        let mut job = running();
        say(&mut job, "job_stage=running").unwrap();
        assert_eq!(job.deadline(), Some(200 + 900));
        say(&mut job, "renew_seconds=5000&milestones=a,b%20").unwrap();
        assert_eq!(job.deadline(), Some(5_200));
        for bad in ["renew_seconds=-1", "renew_seconds=99999999999", "renew_seconds=x"] {
            assert!(matches!(say(&mut job, bad), Err(BadUpdate::Bad("renew_seconds", _))), "{bad}");
        }
        let text = job.to_text();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), job);
    }

    #[test]
    fn stages_have_limits() {
        let mut job = running();
        assert_eq!(job.deadline(), Some(100 + 3_600));
        say(&mut job, "job_stage=boot").unwrap();
        assert_eq!(job.deadline(), Some(200 + 180));
        job.end(Health::TimeoutBoot, 400);
        assert_eq!((job.stage, job.last_success_stage), (Stage::Finish, Some(Stage::Boot)));
        assert_eq!(job.deadline(), None);
    }
}
