//! Decisions as they were made, and what a round could not place.

use super::placement::{BuildTurn, MatchContext, PlacementRequest};
use super::settings::Policy;
use crate::cache_keys::Missing;
use crate::ids::{ClassId, QueueId, TaskId, WorkerId};
use crate::score::context::{InstanceContext, JobContext, Pair, WorkerContext};
use crate::score::policy::Breakdown;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Where a task went, and how that worker and the next best were judged. What each rule said is computed on demand,
/// from what the rules saw.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// The task that was placed.
    pub task: TaskId,
    /// When the round placed it.
    pub at: Time,
    policy: Policy,
    job: JobContext,
    instance: InstanceContext,
    others_wait: bool,
    seen: Vec<Seen>,
}

/// A worker as the rules saw it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    worker: WorkerId,
    context: WorkerContext,
    missing: Option<Missing>,
    step_cpu: u32,
    warmth: f64,
    load: f64,
}

/// The memory of a decision that is forgotten, for the next one: a decision is made for each booking.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct SeenRoom(Vec<Seen>);

impl SeenRoom {
    /// Takes the memory of a decision that is forgotten.
    pub(super) fn of(Decision { mut seen, .. }: Decision) -> Self {
        seen.clear();
        SeenRoom(seen)
    }
}

impl Decision {
    /// That a task of the step goes to the first of the `judged` workers, with what the rules see of each. `room` is empty.
    pub(super) fn new(
        farm: &MatchContext,
        request: &PlacementRequest,
        index: u32,
        judged: impl ExactSizeIterator<Item = WorkerId>,
        room: SeenRoom,
    ) -> Self {
        let SeenRoom(mut seen) = room;
        seen.reserve_exact(judged.len());
        seen.extend(judged.filter_map(|id| {
            let listed = farm.workers.listed(id)?;
            let context = *listed.summary().context();
            let load = request.load_on(listed.summary());
            let pair = farm.pair(request, listed.worker(), &context, load);
            let Pair { missing, step_cpu, warmth, load, .. } = pair;
            Some(Seen { worker: id, context, missing, step_cpu, warmth, load })
        }));
        Decision {
            task: TaskId { job: request.step.job, index },
            at: farm.now,
            policy: Policy(farm.policy_for(request)),
            job: request.job,
            instance: *farm.instance,
            others_wait: request.others_wait,
            seen,
        }
    }

    /// The scoring policy's name.
    pub fn policy(&self) -> &'static str {
        self.policy.0.name()
    }

    /// How workers were judged, the winner first.
    pub fn ranked(&self) -> Vec<Judged> {
        let judged = self.seen.iter().map(|seen| {
            let Seen { worker, context, missing, step_cpu, warmth, load } = seen;
            let pair = Pair {
                job: &self.job,
                worker: context,
                instance: &self.instance,
                missing: *missing,
                step_cpu: *step_cpu,
                warmth: *warmth,
                others_wait: self.others_wait,
                load: *load,
            };
            Judged { worker: *worker, load: *load, breakdown: self.policy.0.detail(&pair) }
        });
        judged.collect()
    }
}

/// A worker as it was judged.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// The worker that was judged.
    pub worker: WorkerId,
    /// Its load with the task.
    pub load: f64,
    /// What each rule said.
    pub breakdown: Breakdown,
}

/// What the last full round could not place, and why.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BlockedWork {
    /// Classes whose licences are all taken.
    pub out_of_licences: BTreeSet<ClassId>,
    /// Classes of queues whose quota is used up, with the quota in hundredths of a core.
    pub over_quota: BTreeMap<(QueueId, ClassId), u32>,
    /// Classes of parts of queues whose turn at cpus that builds use has not come, with one of these builds.
    pub build_turns: BTreeMap<(QueueId, ClassId), BuildTurn>,
}
