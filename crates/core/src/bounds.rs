//! Every limit on what comes from outside, in one place.

use crate::time::NS_PER_S;
use std::ops::RangeInclusive;

/// Tasks that start together, over all steps that do. Each is told of all, and each choice of workers looks at all.
pub const GANG_TASKS_MAX: u32 = 256;
/// Attempts on one worker from which on no further task rides with another: far below what a worker's beat may list.
pub const RIDERS_PER_WORKER_MAX: u32 = 50_000;
/// The largest part of a task in the cpus that tasks with a jobserver share on a worker; all parts make as much.
pub const CPU_WEIGHT_MAX: u32 = 1_000_000;
/// Tasks that one process runs together.
pub const CHUNK_TASKS_MAX: u32 = 1_000;
/// Changes of the length of runs in the chunks of one step: 80 KB in memory, and some 200 KB in the database.
pub const CHUNK_RUNS_MAX: usize = 10_000;
/// Steps of one job.
pub const STEPS_PER_JOB_MAX: usize = 1_000;
/// Tasks of one job, over all its steps.
pub const TASKS_PER_JOB_MAX: u32 = 10_000_000;
/// Jobs that one job may wait for.
pub const AFTER_MAX: usize = 1_000;
/// Bytes of a name (job, step, queue, user, worker, tag).
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a note, such as why a queue is paused.
pub const NOTE_BYTES_MAX: usize = 1_000;
/// Requirements and target workers of one step.
pub const NEEDS_PER_STEP_MAX: usize = 64;
/// Values of one requirement.
pub const VALUES_PER_NEED_MAX: usize = 256;
/// Named amounts of one step.
pub const CUSTOM_PER_STEP_MAX: usize = 64;
/// Steps that one step may wait for, and waits of all steps of a job.
pub const DEPENDS_PER_STEP_MAX: usize = 1_000;
/// Dependencies between all steps of one job; see [`DEPENDS_PER_STEP_MAX`].
pub const DEPENDS_PER_JOB_MAX: usize = 100_000;
/// How long a queue that was not set is unused before it is forgotten.
pub const QUEUE_IDLE_NS: u64 = 86_400 * NS_PER_S;
/// How long a worker that is expired or forgotten, and on which nothing is booked, is remembered.
pub const WORKER_GONE_NS: u64 = 7 * 86_400 * NS_PER_S;
/// Queues, and workers, that are looked at in one go for whether they are to be forgotten.
pub const PRUNED_MAX: usize = 1_000;
/// Limits that one step may name.
pub const LIMITS_PER_STEP_MAX: usize = 16;
/// Cache keys that one step may name.
pub const CACHES_PER_STEP_MAX: usize = 1_000;
/// Workers that one step may prefer.
pub const PREFERS_PER_STEP_MAX: usize = 64;
/// Bytes of what one cache key stands for: a step's keys together stay within what a `u64` can say.
pub const CACHE_BYTES_MAX: u64 = 1 << 50;
/// Milliseconds of a step's deadline: ten years.
pub const DEADLINE_MS_MAX: u64 = 3_650 * 86_400_000;
/// Bytes of a step's shape.
pub const SHAPE_BYTES_MAX: usize = 255;
/// Limits that the farm may have.
pub const LIMITS_MAX: usize = 1_000;
/// Exit codes by which one limit may be told to be busy.
pub const BUSY_EXITS_MAX: usize = 16;
/// Milliseconds for which a step may be set to start nothing after it found a licence busy: to a day.
pub const BACK_OFF_MS: RangeInclusive<u64> = 100..=86_400_000;
/// The same, where the setting is absent.
pub const BACK_OFF_MS_DEFAULT: u64 = 30_000;
/// By how much that grows at most where a licence is busy time after time; it doubles each time.
pub const BACK_OFF_FACTOR_MAX: u64 = 16;
/// The largest weight of a queue.
pub const WEIGHT_MAX: u32 = 10_000;
/// Users of a queue.
pub const QUEUE_USERS_MAX: usize = 1_000;
/// Bytes of memory that a task is taken to have held at most, whatever its worker says.
pub const PEAK_BYTES_MAX: u64 = 1 << 50;
/// Cores that a task is taken to have used at most, whatever its worker says.
pub const CORES_USED_MAX: u64 = 4_096;
/// Retries that one submission may ask for.
pub const RETRIES_MAX: u32 = 1_000;
/// How often a task is run again because its worker or its outputs were lost, or a build because memory was short. Such an
/// end is not the task's fault and spends none of its retries, but a task that takes its worker down each time must end.
pub const LOSSES_MAX: u32 = 10;
/// Bookings that one worker may hold beyond what it can run now.
pub const PREFETCH_MAX: usize = 64;
/// Tasks of a step that succeed between two writes of the ranges of those that did.
pub const NOTED_TASKS: u32 = 10_000;
/// Ranges in such a write at most.
pub const NOTED_RANGES_MAX: usize = 10_000;
/// Ranges of tasks that one request may name, and those of a job's tasks that were cancelled by themselves. They are
/// written as one value.
pub const REQUESTED_RANGES_MAX: usize = 10_000;
/// Workers that are looked at in one round for room for what is sent ahead, and have none.
pub const PREFETCH_LOOKS_MAX: usize = 64;
/// Classes of longer tasks whose turn is before, and past which a round looks for what it can send ahead.
pub const PREFETCH_BEHIND_MAX: usize = 8;
/// Predicted work in milliseconds, per slot, that a worker may hold beyond what it can run now.
pub const PREFETCH_MS: f64 = 20.0;
/// How long a worker's tasks may run without word from the scheduler, unless set otherwise.
pub const LEASE_NS: u64 = 300 * NS_PER_S;
/// How long a worker may be silent before it gets no new work, unless set otherwise.
pub const SUSPECT_NS: u64 = 90 * NS_PER_S;
/// Workers that the farm may know, forgotten ones too.
pub const WORKERS_MAX: usize = 100_000;
/// Attributes of one worker.
pub const ATTRIBUTES_MAX: usize = 1_000;
/// Values of all attributes of one worker.
pub const ATTRIBUTE_VALUES_MAX: usize = 10_000;
/// Bytes of the attributes of one worker and of the names of its amounts.
pub const ATTRIBUTE_BYTES_MAX: usize = 256 << 10;
/// Named amounts of one worker.
pub const WORKER_AMOUNTS_MAX: usize = 1_000;
/// Attempts in one worker's inventory.
pub const HELD_MAX: usize = 100_000;
/// Keys that one worker may name of what its caches hold.
pub const CACHE_KEYS_MAX: usize = 4_096;
/// Bytes of such a key.
pub const CACHE_KEY_BYTES_MAX: usize = 512;
/// Outcomes of ended jobs that the engine remembers for those that come `after` them.
pub const RECENT_JOBS_MAX: usize = 10_000;
/// Examples that an explanation gives of each reason.
pub const EXAMPLES_MAX: usize = 3;
/// Workers that are scored for one task: the least loaded of those with room. On a farm of no more
/// workers the choice is exact.
pub const CANDIDATES_MAX: usize = 16;
/// Values of an attribute by which workers are told apart in groups; one of more values is looked up.
pub const GROUP_VALUES_MAX: usize = 64;
/// Classes whose blocked time is watched for reservations.
pub const BUCKETS_MAX: usize = 64;
/// Steps of one class that a round passes over one by one, for reasons of their own, before it passes over
/// the class.
pub const STEP_MISSES_MAX: usize = 64;
/// Ready tasks of a step that are looked through for one that did not fail on the worker at hand.
pub const PICKS_MAX: usize = 64;
/// Workers whose judgement is kept with a decision: the winner and five runners-up.
pub const RANKED_MAX: usize = 6;
/// Decisions that are remembered, to explain them.
pub const DECISIONS_MAX: usize = 1_000;
/// Steps that the engine keeps resident, unless set otherwise, before it evicts jobs to which nothing has
/// happened.
pub const CACHE_STEPS: usize = 10_000;
/// Steps of one page of parked jobs.
pub const PAGE_STEPS_MAX: usize = 1_000;
/// How long after a read of the store failed it is tried again.
pub const READ_AGAIN_NS: u64 = NS_PER_S;
/// Subqueues that are told apart. Further classes of a queue share one subqueue.
pub const SUBQUEUES_MAX: usize = 20_000;
/// Subqueues that are looked at for a job to evict, longest first.
pub const EVICTION_LOOKS_MAX: usize = 64;

/// Requests of outside clients for places that may wait at a time.
pub const PLACES_WAITING_MAX: usize = 100_000;
/// Parts of one queue from which on requests for places make no more: they share the part of all.
pub const PLACE_PARTS_MAX: usize = 1_000;
