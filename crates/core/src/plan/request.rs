//! What a task asks of workers.

use super::placement::{CpuTurn, PlacementRequest};
use super::planner::Planner;
use super::work::{StepFacts, Work};
use crate::class::Class;
use crate::ids::{QueueId, StepKey};
use crate::score::context::JobContext;
use crate::time::NS_PER_MS;

/// What a task of a step asks of workers; `None` if there is no such step.
pub fn placement_request<W: Work>(work: &W, key: StepKey, queue: QueueId) -> Option<PlacementRequest<'_>> {
    Some(request_with(work, key, queue, work.facts(key)?))
}

pub(super) fn request_with<'a, W: Work>(
    work: &'a W,
    key: StepKey,
    queue: QueueId,
    facts: StepFacts<'a>,
) -> PlacementRequest<'a> {
    let plan = work.plan();
    let class = plan.classes.get(facts.class);
    let has_arch = class.needs.iter().any(|need| need.key == "arch");
    let mut context = JobContext::of(facts.hints, has_arch, (&class.request).into());
    context.is_external = class.is_external;
    context.waited_ms = plan.now.since(facts.ready_since) / NS_PER_MS;
    context.dependents = facts.dependents;
    context.prediction = facts.prediction.copied();
    // What was booked is as much of the prediction as any worker has.
    context.largest_memory = Some(class.request.memory);
    PlacementRequest {
        step: key,
        class_id: facts.class,
        class,
        band: plan.queues.get(queue).band(),
        job: context,
        reads: facts.reads,
        profile: facts.profile,
        avoids: facts.avoids,
        longest_ms: facts.longest_ms(),
        others_wait: plan.queues.has_choice(queue),
        locality: !facts.reads.is_empty() || facts.hints.prefer_local,
        prefers: &facts.hints.prefers,
        turn: Some(cpu_turn(plan, queue, class)),
    }
}

/// The turn of a step of a part of a queue at cpus that builds use.
pub(super) fn cpu_turn<'a>(plan: &'a Planner, part: QueueId, class: &Class) -> CpuTurn<'a> {
    let earlier_cpu = plan.yielding_cpu.get(&part).copied().unwrap_or(0);
    // A task that takes no cpu takes none from a build.
    let cpu = if class.request.cpu == 0 { 0 } else { class.request.cpu.max(earlier_cpu) };
    CpuTurn { queues: &plan.queues, part, cpu }
}
