//! Behaviour of a script's tasks, encoded in their step's body as four 64-bit words. `args` encodes it, and
//! `script` decodes it when a task starts. The engine never looks at it, as with any body.

use std::sync::Arc;
use windlass_core::TaskId;
use windlass_core::job::End;

/// Behaviour of tasks. By default they run until a command ends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conduct {
    /// Least and greatest run time in nanoseconds after which they end by themselves.
    pub runs_ns: Option<(u64, u64)>,
    /// Their exit code then.
    pub exit: u8,
    /// Bytes of memory that each comes to hold.
    pub holds: Option<u64>,
}

/// Encodes an absent value.
const NONE: u64 = u64::MAX;

impl Conduct {
    /// The behaviour as a body.
    pub fn body(&self) -> Arc<[u8]> {
        let (least, most) = self.runs_ns.unwrap_or((NONE, NONE));
        let words = [least, most, self.exit.into(), self.holds.unwrap_or(NONE)];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The behaviour that a body encodes.
    pub fn of(body: &[u8]) -> Conduct {
        let mut words =
            body.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let mut next = || words.next().filter(|word| *word != NONE);
        let (least, most, exit) = (next(), next(), next());
        Conduct { runs_ns: least.zip(most), exit: exit.unwrap_or(0) as u8, holds: next() }
    }

    /// Run time and end of a task; `None` if it runs until it is ended. The run time is pseudo-random between
    /// the least and the greatest, and the same each time.
    pub fn ends(&self, task: TaskId) -> Option<(u64, End)> {
        let (least, most) = self.runs_ns?;
        let mixed = (task.job.0 << 32 ^ u64::from(task.index)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32;
        let delay_ns = least + (most.saturating_sub(least) >> 16) * (mixed & 0xFFFF);
        Some((delay_ns, End::Exited(self.exit.into())))
    }
}
