//! What earlier tasks of the same kind held and took.

/// What one attempt held and took. Unknown is `None`, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Most bytes of memory at one time; of one that was killed for memory, what it would need at least.
    pub peak_memory: Option<u64>,
    /// Processor time in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Milliseconds from start to end.
    pub wall_ms: Option<u64>,
    /// Bytes read and written.
    pub disk_bytes: Option<u64>,
    /// It was killed for memory.
    pub oom: bool,
}

/// Samples that are kept of one signature; the oldest goes first.
pub const SAMPLES_MAX: usize = 200;
