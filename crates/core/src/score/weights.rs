//! Every magnitude of the rules: points, and the numbers at which points begin and end. Points of
//! Gradient's rules are Gradient's, so that its users find the proportions that they know.

/// Most points for keys that need not be fetched.
pub const MISSING_PATHS: f64 = 200.0;
/// Missing keys of a mean step, where the farm has none yet.
pub const MISSING_KEYS: f64 = 20.0;
/// Most points for bytes that need not be fetched.
pub const MISSING_BYTES: f64 = 500.0;
/// Missing MiB of a mean step, where the farm has none yet.
pub const MISSING_MIB: f64 = 1024.0;
/// How long a step waits for a worker to say what its caches hold, in milliseconds since it was ready.
pub const UNKNOWN_CACHE_HOLD_MS: u64 = 20_000;

/// How long a step waits for a worker that it prefers, in milliseconds since it was ready.
pub const PREFERRED_HOLD_MS: u64 = 20_000;
/// Since when it is ready no rule holds a step for having waited too little: each of these ends such a hold.
pub const HOLDS_MS: [u64; 2] = [UNKNOWN_CACHE_HOLD_MS, PREFERRED_HOLD_MS];
/// Free memory in MiB that earns the most points where it is what counts: one point each.
pub const FREE_MEMORY_MIB: f64 = (1u64 << 40) as f64;

/// Most points for what waits for the step.
pub const DEPENDENTS: f64 = 50.0;
/// Dependents of a mean step, where the farm has none yet.
pub const DEPENDENTS_MEAN: f64 = 10.0;
/// Points for each deadline that went by since the step was ready.
pub const WAIT_PER_DEADLINE: f64 = 60.0;
/// Most points for waiting: more than all else together.
pub const WAIT_MAX: f64 = 4_000.0;
/// When a ready step should have started, where it does not say, in milliseconds.
pub const DEADLINE_MS: u64 = 60_000;
/// Points for a step that needs an architecture.
pub const ARCH: f64 = 50.0;
/// Points for a step that needs none on a worker that has none.
pub const ARCHLESS_WORKER: f64 = 100.0;

/// Points off for an evaluation that fetches nothing on a worker that fetches, when none is idle.
pub const RESERVE_FETCH: f64 = -300.0;

/// Points off for predicted memory twice what is free, before kills for memory amplify it.
pub const MEMORY_OVERSHOOT: f64 = -400.0;
/// Where the overshoot stops counting: predicted less free, in parts of free.
pub const OVERSHOOT_MAX: f64 = 2.0;
/// Points for a step heavy on the processor on a worker of mean speed.
pub const CORE_SPEED: f64 = 50.0;
/// Where speed stops counting: in parts of the mean.
pub const CORE_SPEED_MAX: f64 = 2.0;
/// Processor time of a mean task in milliseconds, where the farm has none yet.
pub const CPU_MS: f64 = 60_000.0;
/// Share of a worker's cores in use by others from which it gets nothing more.
pub const FOREIGN_CPU_MAX: f64 = 0.80;
/// The same for a step that needs no architecture.
pub const FOREIGN_CPU_MAX_BUILTIN: f64 = 0.90;
/// Hundredths of a core that tasks have of a worker whatever other programs use there, and as much have outside clients: of
/// each one goes on. Builds have one process each.
pub const BESIDE_FOREIGN_CPU_MIN: u32 = 100;
/// Share of a worker's memory that should stay free.
pub const MEMORY_FREE_MIN: f64 = 0.10;

/// Points for a step that prefers to be where its inputs are, and is.
pub const PREFER_LOCAL: f64 = 150.0;
/// Points off for each key that it lacks there, where the farm has no mean yet.
pub const PREFER_LOCAL_SLOPE: f64 = 20.0;
/// Most points for a network-bound step on a fast network.
pub const NETWORK: f64 = 80.0;
/// Mean speed of a network in Mbit/s, where the farm has none yet.
pub const NETWORK_MBIT_S: f64 = 100.0;
/// Most points for a step heavy on disks on fast ones.
pub const DISK: f64 = 60.0;
/// Bytes read and written by a mean task, where the farm has none yet.
pub const DISK_BYTES: f64 = 100.0 * 1024.0 * 1024.0;
/// Speed of disks in MB/s that earns all the points.
pub const DISK_MB_S: f64 = 500.0;

/// Points for a worker that runs the step now.
pub const LIVE_LOCALITY: f64 = 150.0;
/// Most points for what earlier tasks of the kind left behind.
pub const WARMTH: f64 = 100.0;
/// Points off for a step that holds its part of a worker, while others wait: more than all that draws it
/// there.
pub const SPREAD: f64 = -300.0;
/// A step's part of a worker's cores.
pub const SPREAD_SHARE: f64 = 0.25;

/// Points of a worker without load.
pub const PRESSURE: f64 = 1_000.0;
/// Points off for one unit of packing cost.
pub const PACKING: f64 = -100.0;
/// Weight of a worker's cores in the packing cost.
pub const PACKING_CORES: f64 = 1.0;
/// Weight of its memory.
pub const PACKING_MEMORY: f64 = 1.0;
/// Weight of its gpus.
pub const PACKING_GPUS: f64 = 4.0;
/// Weight of their memory.
pub const PACKING_GPU_MEMORY: f64 = 1.0;
