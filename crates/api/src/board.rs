//! The board: what waits, what was decided with which scores, and how loaded workers are. Every body of the
//! board is `{"error": false, "message": …}`. The names follow the boards of build farms. There, an evaluation or a
//! build stands for a job, an organisation for a queue, and the name of a package for that of a step.

use crate::figures::QueueCpus;
use crate::submit::Kind;
use crate::why::RulePoints;
use crate::word::WhyWord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_core::Time;
use windlass_core::load::formula::{LOAD_NO_CORES, LoadSettings};
use windlass_core::load::pressure::{DiskSpace, LoadReport, Pressure};
use windlass_core::plan::placement;
use windlass_core::resources::PLACES_SUFFIX;
use windlass_core::score::policy::Breakdown;
use windlass_core::worker as core;

/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;
/// Columns of a histogram.
const COLUMNS: usize = 12;

/// The envelope of every answer of the board.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Board<T> {
    /// Always false: errors have another body.
    pub error: bool,
    /// The answer to the request.
    pub message: T,
}

impl<T> Board<T> {
    /// The envelope around an answer.
    pub fn new(message: T) -> Self {
        Board { error: false, message }
    }
}

/// A part of the list of workers with their loads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServerLoads {
    /// Workers, ordered by id.
    pub servers: Vec<ServerLoad>,
    /// Give this as `cursor` for the next part; absent in the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// The load of a worker, by the names of build farms.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServerLoad {
    /// Name of the worker, unique on the farm.
    pub server_id: String,
    /// Cpus that it declares.
    pub num_cpus: f64,
    /// Tasks that run there, prefetched tasks, and allocations of outside clients.
    pub jobs_assigned: usize,
    /// Cpus that its tasks and allocations ask for, as a part of those that it declares; null for a worker without cpus. A
    /// compile asks for one. A build server takes a few more compiles than it has cpus, and may have more than 1.
    pub job_load: Option<f64>,
    /// Percent of the time in which some process waited for a cpu, mean of ten seconds; null is unknown.
    pub cpu_pressure: Option<f64>,
    /// The same for memory.
    pub memory_pressure: Option<f64>,
    /// The same for input and output.
    pub io_pressure: Option<f64>,
    /// Percent of its speed in use on its busiest network link, mean of ten seconds; null is unknown.
    pub network_use: Option<f64>,
    /// Free bytes of its state directory; null is unknown.
    pub state_free_bytes: Option<u64>,
    /// Free bytes of its session directory; null is unknown.
    pub session_free_bytes: Option<u64>,
    /// Free bytes of the cache directory that has least; null is unknown, and for a worker without caches.
    pub cache_free_bytes: Option<u64>,
    /// The load by which workers are compared: with one more task of one cpu, and weighted by pressure.
    pub effective_load: Option<f64>,
    /// True if it gets work that fits. False also where a rule vetoes what waits and would fit.
    pub accepting_jobs: bool,
    /// Why it gets no work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Percent of the time with stalls, by what was waited for, and of the network's use; null is unknown.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Percents {
    /// Of waits for a cpu.
    pub cpu: Option<f64>,
    /// Of waits for memory.
    pub memory: Option<f64>,
    /// Of waits for input and output.
    pub io: Option<f64>,
    /// Of its speed in use on the busiest network link.
    #[serde(default)]
    pub network: Option<f64>,
}

impl Percents {
    /// From the worker's last report, means of ten seconds.
    pub fn of(worker: &core::Worker) -> Self {
        let Some(report) = worker.reported.load() else { return Percents::default() };
        let pressures = report.pressures();
        let percent = |from: Option<Pressure>| from.and_then(|pressure| pressure.some).map(|some| some.avg10);
        Percents {
            cpu: percent(pressures.cpu),
            memory: percent(pressures.memory),
            io: percent(pressures.io),
            network: report.network_percent,
        }
    }
}

impl ServerLoad {
    /// A worker as the core has it.
    pub fn from_core(worker: &core::Worker, settings: &LoadSettings) -> Self {
        let Percents { cpu, memory, io, network } = Percents::of(worker);
        let free = |of: fn(&LoadReport) -> Option<DiskSpace>| Some(of(worker.reported.load()?)?.free_bytes);
        let effective = worker.load_with(100, settings);
        let worker_blockers = placement::worker_blockers(worker).next().map(|why| why.to_string());
        let full = (worker.room().cpu == 0).then(|| "its cpus are all booked".to_owned());
        let reason = worker_blockers.or_else(|| lacks_places(worker)).or(full);
        ServerLoad {
            server_id: worker.record.name.clone(),
            num_cpus: f64::from(worker.record.capacity.cpu) / 100.0,
            jobs_assigned: assigned(worker),
            job_load: part(asked_cpu(worker), worker.record.capacity.cpu.into()),
            cpu_pressure: cpu,
            memory_pressure: memory,
            io_pressure: io,
            network_use: network,
            state_free_bytes: free(|report| report.state_space),
            session_free_bytes: free(|report| report.session_space),
            cache_free_bytes: free(|report| report.cache_space),
            effective_load: Some(effective).filter(|load| *load < LOAD_NO_CORES),
            accepting_jobs: reason.is_none(),
            reason,
        }
    }
}

/// Hundredths of a core that tasks and allocations ask for. Places that are counted by a named amount ask for a core each,
/// and book a little less of it.
fn asked_cpu(worker: &core::Worker) -> f64 {
    let counted = worker.booked.places().values().filter(|amounts| !amounts.custom.is_empty());
    let beyond = counted.map(|amounts| 100.0 - f64::from(amounts.cpu));
    f64::from(worker.booked.sum().cpu) + beyond.sum::<f64>()
}

/// Why a worker that runs no tasks gives no place, where its places are counted.
fn lacks_places(worker: &core::Worker) -> Option<String> {
    let mut counted = worker.record.capacity.custom.iter().filter(|(name, _)| name.ends_with(PLACES_SUFFIX));
    let (name, offered) = counted.next().filter(|_| worker.flags.class.is_exclusive)?;
    if *offered == 0 {
        return Some("it gives no places for a while, because it did not take jobs".to_owned());
    }
    let is_full = worker.free().custom.get(name).is_none_or(|left| *left == 0);
    is_full.then(|| "its places are all taken".to_owned())
}

fn assigned(worker: &core::Worker) -> usize {
    worker.booked.running().len() + worker.booked.backlog().len() + worker.booked.places().len()
}

fn part(of: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| of / whole)
}

/// A rule of the scoring policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RuleEntry {
    /// Name of the scoring rule.
    pub rule: String,
    /// What the rule rewards or vetoes.
    pub description: String,
}

/// A summary of the winners' scores in recent placement decisions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScoringSummary {
    /// Number of decisions that are summarized.
    pub sample_size: usize,
    /// The fewest points of a winner; null without decisions.
    pub score_min: Option<f64>,
    /// The most points of a winner.
    pub score_max: Option<f64>,
    /// The mean of the winners' points.
    pub score_avg: Option<f64>,
    /// Histogram of the winners' points, in twelve columns of equal width; empty without decisions.
    pub histogram: Vec<Column>,
    /// The points that each rule gave winners, the rule with the largest mean first.
    pub rules: Vec<RuleSummary>,
}

/// A column of the histogram.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Column {
    /// The least points, inclusive.
    pub lo: f64,
    /// The most points, exclusive but in the last column.
    pub hi: f64,
    /// Winners with points in between.
    pub count: usize,
}

/// The points that a rule gave winners.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RuleSummary {
    /// Name of the scoring rule.
    pub rule: String,
    /// The mean of its points.
    pub avg: f64,
    /// The fewest of its points.
    pub min: f64,
    /// The most of its points.
    pub max: f64,
}

/// The points of the worker that won a decision.
#[derive(Clone, PartialEq, Debug)]
pub struct WinnerPoints {
    /// The sum of the rules.
    pub total: f64,
    /// The points of each rule.
    pub rules: Vec<(String, f64)>,
}

impl WinnerPoints {
    /// Those of a breakdown.
    pub fn from_core(winner: &Breakdown) -> Self {
        let rules = winner.rules.iter().map(|(rule, says)| ((*rule).to_owned(), says.value()));
        WinnerPoints { total: winner.total, rules: rules.collect() }
    }

    /// Those of a decision, unless none of its candidates won.
    pub fn of(decision: &BoardDecision) -> Option<Self> {
        let winner = decision.candidates.iter().find(|candidate| candidate.won)?;
        let rules = winner.rules.iter().map(|says| (says.rule.clone(), says.points));
        Some(WinnerPoints { total: winner.score, rules: rules.collect() })
    }
}

impl ScoringSummary {
    /// Summarizes the points of winners.
    pub fn of(winners: &[WinnerPoints]) -> Self {
        let scores: Vec<f64> = winners.iter().map(|winner| winner.total).collect();
        let spread = Spread::of(&scores);
        let mut rules: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (rule, points) in winners.iter().flat_map(|winner| &winner.rules) {
            rules.entry(rule).or_default().push(*points);
        }
        let rules = rules.into_iter().filter_map(|(rule, points)| {
            let Spread { min, max, avg } = Spread::of(&points)?;
            Some(RuleSummary { rule: rule.to_owned(), avg, min, max })
        });
        let mut rules: Vec<RuleSummary> = rules.collect();
        // Stable: rules with equal means stay by name.
        rules.sort_by(|a, b| b.avg.abs().total_cmp(&a.avg.abs()));
        ScoringSummary {
            sample_size: scores.len(),
            score_min: spread.as_ref().map(|spread| spread.min),
            score_max: spread.as_ref().map(|spread| spread.max),
            score_avg: spread.as_ref().map(|spread| spread.avg),
            histogram: spread.map_or_else(Vec::new, |spread| spread.columns(&scores)),
            rules,
        }
    }
}

struct Spread {
    min: f64,
    max: f64,
    avg: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Spread> {
        let (first, rest) = values.split_first()?;
        let (min, max) = rest.iter().fold((*first, *first), |(min, max), v| (min.min(*v), max.max(*v)));
        Some(Spread { min, max, avg: values.iter().sum::<f64>() / values.len() as f64 })
    }

    /// The histogram. If all values are equal, they are in the first column, and all columns together are one point
    /// wide.
    fn columns(&self, values: &[f64]) -> Vec<Column> {
        let width =
            if self.max > self.min { (self.max - self.min) / COLUMNS as f64 } else { 1.0 / COLUMNS as f64 };
        let at = |n: usize| self.min + width * n as f64;
        let mut columns: Vec<Column> =
            (0..COLUMNS).map(|n| Column { lo: at(n), hi: at(n + 1), count: 0 }).collect();
        for value in values {
            let place = ((value - self.min) / width) as usize;
            columns[place.min(COLUMNS - 1)].count += 1;
        }
        columns
    }
}

/// Steps that have ready tasks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PendingJobs {
    /// Steps with ready tasks, queue by queue in the order of turns, and inside a queue in its own order.
    pub jobs: Vec<PendingJob>,
    /// Ready tasks that are not in `jobs`.
    pub other_pending: u64,
}

/// A step with ready tasks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PendingJob {
    /// The step's kind of work.
    pub kind: Kind,
    /// Name of the job's queue.
    pub queue: String,
    /// Id of the step's job.
    pub job_id: u64,
    /// Name of the job.
    pub job_name: String,
    /// User who submitted the job.
    pub user: String,
    /// Name of the step, unique in its job.
    pub name: String,
    /// Id of its first ready task.
    pub task_id: String,
    /// Number of its ready tasks.
    pub tasks: u32,
    /// Since when it has ready tasks.
    pub queued_at: u64,
    /// Number of steps that it depends on.
    pub dependency_count: usize,
    /// Tasks that depend on it, those on the longest path weighted more.
    pub dependents: f64,
    /// The reason for which its first ready task waits, in one word.
    pub reason: WhyWord,
    /// The same as a sentence, as the explanation of that task has it.
    pub message: String,
}

/// A placement decision. The candidates are workers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BoardDecision {
    /// When it was made.
    pub at: u64,
    /// The task that was placed.
    pub task: String,
    /// The kind of work of the task's step. It is known, like queue, user and names, for as long as the decision is
    /// remembered, whether the job has ended or not.
    pub kind: Option<Kind>,
    /// Name of the job's queue.
    pub queue: Option<String>,
    /// The name of the task's step.
    pub name: Option<String>,
    /// Name of the job, for people.
    #[serde(default)]
    pub job_name: Option<String>,
    /// The user who submitted the job.
    #[serde(default)]
    pub user: Option<String>,
    /// Id of the task's job.
    pub job_id: u64,
    /// Name of the scoring policy.
    pub policy: String,
    /// The id of the worker that won.
    pub worker_id: Option<u64>,
    /// Name of the worker that won.
    pub winner: Option<String>,
    /// The winner and the next best, best first.
    pub candidates: Vec<BoardCandidate>,
}

/// A worker that was scored for a task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BoardCandidate {
    /// Number of the worker, unique on the farm.
    pub id: u64,
    /// Name of the worker, unique on the farm.
    pub name: String,
    /// The worker's points; may be negative.
    pub score: f64,
    /// The worker's load with the task.
    pub load: f64,
    /// True for the worker that got the task.
    pub won: bool,
    /// The points of each rule.
    pub rules: Vec<RulePoints>,
}

/// A worker as boards show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BoardWorker {
    /// Number of the worker, unique on the farm.
    pub id: u64,
    /// Name of the worker, unique on the farm.
    pub name: String,
    /// Whether it gets new work.
    pub state: crate::worker::WorkerState,
    /// True if an operator drained it.
    pub draining: bool,
    /// Tasks that run there, prefetched tasks, and allocations of outside clients.
    pub assigned_jobs: usize,
    /// Cpus that it declares.
    pub cpus: f64,
    /// True if it has the tag `fetch`.
    pub fetch: bool,
    /// The values of its tag `arch`.
    pub architectures: Vec<String>,
    /// Percent of its cpus in use; null is unknown.
    pub cpu_usage_pct: Option<f64>,
    /// MiB of available memory; null is unknown.
    pub ram_free_mb: Option<u64>,
    /// MiB of memory that it declares; null for a worker that declares none.
    pub ram_total_mb: Option<u64>,
    /// When it was last heard from; null for a worker without heartbeats.
    pub heard_at: Option<u64>,
    /// The queues that hold most of its cpus, the most first, at most four.
    #[serde(default)]
    pub queues: Vec<QueueCpus>,
    /// Why it is drained, as the operator noted; null without a note.
    #[serde(default)]
    pub note: Option<String>,
}

impl BoardWorker {
    /// A worker as the core has it.
    pub fn from_core(worker: &core::Worker) -> Self {
        let report = worker.reported.load();
        let architectures = worker.record.attributes.get("arch").into_iter().flatten().cloned();
        let used = report.and_then(|report| report.cpu_used);
        let usage = used.and_then(|cores| part(cores * 10_000.0, worker.record.capacity.cpu.into()));
        BoardWorker {
            id: worker.record.id.0,
            name: worker.record.name.clone(),
            state: worker.record.state.into(),
            draining: worker.record.draining,
            assigned_jobs: assigned(worker),
            cpus: f64::from(worker.record.capacity.cpu) / 100.0,
            fetch: worker.flags.fetches,
            architectures: architectures.collect(),
            // A worker may use more cpus than it declares.
            cpu_usage_pct: usage.map(|percent| percent.min(100.0)),
            ram_free_mb: report.and_then(|report| report.memory_available).map(|bytes| bytes / MIB),
            ram_total_mb: Some(worker.record.capacity.memory / MIB).filter(|mib| *mib > 0),
            heard_at: worker.link.heard.map(Time::as_ms),
            queues: Vec::new(),
            note: worker.record.note.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::score::rule::Contribution;

    fn winner(points: &[(&'static str, f64)]) -> WinnerPoints {
        let rules: Vec<_> =
            points.iter().map(|(rule, value)| (*rule, Contribution::points(*value, "so"))).collect();
        let total = points.iter().map(|(_, value)| value).sum();
        WinnerPoints::from_core(&Breakdown { total, rules })
    }

    #[test]
    fn a_summary_of_nothing_knows_nothing() {
        let summary = ScoringSummary::of(&[]);
        assert_eq!((summary.sample_size, summary.score_min, summary.score_avg), (0, None, None));
        assert!(summary.histogram.is_empty() && summary.rules.is_empty());
    }

    #[test]
    fn a_summary_counts_every_winner_once() {
        let winners: Vec<WinnerPoints> =
            (0..=24).map(|n| winner(&[("a", 1.0), ("b", -f64::from(n))])).collect();
        let summary = ScoringSummary::of(&winners);
        assert_eq!(summary.sample_size, 25);
        assert_eq!(
            (summary.score_min, summary.score_max, summary.score_avg),
            (Some(-23.0), Some(1.0), Some(-11.0))
        );
        // Each column is two wide, and the last holds its upper end too.
        let counts: Vec<usize> = summary.histogram.iter().map(|column| column.count).collect();
        assert_eq!(counts, [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]);
        assert_eq!((summary.histogram[0].lo, summary.histogram[11].hi), (-23.0, 1.0));
        let rules: Vec<(&str, f64, f64, f64)> =
            summary.rules.iter().map(|rule| (&*rule.rule, rule.avg, rule.min, rule.max)).collect();
        assert_eq!(rules, [("b", -12.0, -24.0, 0.0), ("a", 1.0, 1.0, 1.0)]);
    }

    #[test]
    fn the_winner_of_a_kept_decision_has_the_points_of_its_breakdown() {
        let rule = RulePoints { rule: "a".to_owned(), points: 5.0, reason: String::new() };
        let candidate = |id, won| BoardCandidate {
            id,
            name: format!("box{id}"),
            score: 5.0 + id as f64,
            load: 0.5,
            won,
            rules: vec![rule.clone()],
        };
        let mut decision = BoardDecision {
            at: 1,
            task: "7.0.0".to_owned(),
            kind: None,
            queue: None,
            name: None,
            job_name: None,
            user: None,
            job_id: 7,
            policy: "resource-aware".to_owned(),
            worker_id: Some(2),
            winner: None,
            candidates: vec![candidate(1, false), candidate(2, true)],
        };
        let expected = WinnerPoints { total: 7.0, rules: vec![("a".to_owned(), 5.0)] };
        assert_eq!(WinnerPoints::of(&decision), Some(expected));
        decision.candidates.pop();
        assert_eq!(WinnerPoints::of(&decision), None);
    }

    #[test]
    fn equal_scores_stand_in_one_column() {
        let summary = ScoringSummary::of(&[winner(&[("a", 5.0)]), winner(&[("a", 5.0)])]);
        assert_eq!(summary.histogram.iter().map(|column| column.count).sum::<usize>(), 2);
        assert_eq!((summary.histogram[0].count, summary.histogram[0].lo), (2, 5.0));
        assert!((summary.histogram[11].hi - 6.0).abs() < 1e-9);
    }
}
