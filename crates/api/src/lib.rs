//! The JSON types of the HTTP interface under `/api/v1`.
//!
//! Conversions to and from the core are written here by hand, so that neither side forces its shape on the other.
//! Fields may be added; a field that is absent is unknown, never 0. Times are milliseconds since the Unix epoch, memory
//! is bytes, cpus are cores with two decimals.

mod address;
mod after;
pub mod board;
mod body;
mod chunk_range;
#[cfg(feature = "client")]
pub mod client;
mod door;
mod dry_run;
mod error;
mod events;
mod fail_limit;
mod failure;
pub mod figures;
mod files;
mod job;
mod job_name;
mod limit;
mod load;
mod log;
mod nearest;
mod on_end;
mod pattern;
pub mod quantity;
mod queue;
mod scaling;
mod server;
mod session;
mod shape;
mod space;
mod submit;
mod submit_error;
mod task;
mod task_set;
mod token;
mod turns;
mod why;
pub mod wire;
mod word;
mod worker;
mod worker_why;

pub use address::{ADDRESSES_MAX, Address, Addresses, BadAddresses};
pub use body::{
    BODY_BYTES_MAX, ChunkValues, ChunkedBody, Params, StepBody, VALUE_BYTES_MAX, fill_in, range_expression,
};
pub use chunk_range::ChunkRange;
pub use door::{BOARD_HEADER, BoardCode, BoardMe, BoardSignIn, SignedInBy};
pub use dry_run::{DryRun, DryRunStep, StartsOn, SubmitAnswer};
pub use error::{ErrorBody, ErrorCode, ErrorDetail};
pub use events::{JobEvent, ServerEvent, TaskEvent, TasksEvent, WorkerEvent};
pub use fail_limit::{BadFailLimit, parse_fail_limit};
pub use failure::{FailedTask, Failure, FailureGroup, Failures, JobReason};
pub use files::{
    ATTEMPT_METADATA, AskBlobs, BLOB_BATCH_BYTES_MAX, BLOBS_ASKED_MAX, JOB_FILES_INSTANCE, JobFiles,
    MissingBlobs, OUTPUT_GLOB_BYTES_MAX, OUTPUT_GLOBS_MAX, StepFiles, StepFilesError, StepFilesOf,
    TaskOutputs,
};
pub use job::{Counts, Hints, Job, JobState, Page, SetPriority, Step, Version};
pub use limit::{Limit, LimitHolder, LimitTurn, SetLimit};
pub use load::{DiskSpace, Load, Pressure, Pressures, Stall};
pub use log::{
    LOG_MARK_BYTES, LOG_MARK_EVERY_MS, LOG_MARKS_MAX, LogLine, LogLines, LogMark, LogMarks, LogStream,
};
pub use nearest::nearest;
pub use on_end::{NoticeFailure, OnEnd};
pub use pattern::{NAME_PATTERNS_MAX, is_name_pattern, matches_name};
pub use queue::{BadCpus, Queue, SetQueue, TurnsBy};
pub use scaling::{ClassScaling, Scaling, UnrunnableWork};
pub use server::{FarmOwnership, FarmServer};
pub use session::{
    Action, Cancel, EmbeddedFile, Environment, PathFormat, PathRule, Session, SessionError, TaskValue,
    escape_references, fill_references, map_path, references,
};
pub use space::{Combination, Param, Range, Space, SpaceError, TaskParam, Values};
pub use submit::{
    By, ChunksRequest, Depends, FailFast, Jobserver, JobserverRequest, Kind, Resources, StepRequest,
    SubmitRequest, Submitted, Unplaceable,
};
pub use submit_error::SubmitError;
pub use task::{Attempt, End, HeldBack, JobserverUse, Task, TaskState, exit_code_of};
pub use task_set::{BadTaskSet, ChangeTasks, TaskSet};
pub use token::{CacheRight, CreateToken, CreatedToken, Role, Token};
pub use turns::{
    ClientTurn, HeldTurn, TURN_LIMITS_MAX, TURN_SHAPES_MAX, TURN_TEXT_BYTES_MAX, TURN_WORKTREE_BYTES_MAX,
    TurnEnd, TurnError, TurnHolds, TurnLine, TurnList, TurnRequest, TurnState,
};
pub use why::{Change, ChangeBy, IneligibleWorkers, JobserverWhy, Judged, RulePoints, Turn, Why};
pub use word::{CauseWord, WhyWord, state_word};
pub use worker::{DrainRequest, Worker, WorkerState};
pub use worker_why::{LostTask, PassedStep, ReservedFor, WorkerWhy};

/// How far apart the numbers are by which Compass CI knows the nodes of one job: the first node's is the job's own.
pub const COMPASS_NODE_NUMBERS: u64 = 1_000_000_000_000;

/// The header with the server's clock, in milliseconds since the Unix epoch. All times of an answer are of this clock,
/// which does not jump when the machine's clock is set.
pub const CLOCK_HEADER: &str = "windlass-clock-ms";

/// The header with the end of the token that a request showed, and with the time from which on its holder is told: both in
/// milliseconds since the Unix epoch, with a space between them. Absent of a token without an end.
pub const TOKEN_END_HEADER: &str = "windlass-token-end-ms";

/// The header with the place of the first byte of a task's output in the answer, where it was asked for from the end: who
/// follows it goes on from there at another server.
pub const LOG_OFFSET_HEADER: &str = "windlass-log-offset";

/// The key of the metadata with which a server that refuses the stream of a worker names the address of the server that
/// owns the scheduling.
pub const OWNER_METADATA: &str = "windlass-owner";
