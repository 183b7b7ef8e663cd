//! What the tasks of a step do, as the step's body says it.

use std::sync::Arc;
use windlass_core::TaskId;
use windlass_core::job::End;

/// What tasks do: they run until somebody ends them, unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conduct {
    /// They end by themselves after so many nanoseconds, the least and the most.
    pub runs_ns: Option<(u64, u64)>,
    /// Their exit code then.
    pub exit: u8,
    /// Bytes of memory that each comes to hold.
    pub holds: Option<u64>,
}

/// Stands for what is not said.
const NONE: u64 = u64::MAX;

impl Conduct {
    /// As a body.
    pub fn body(&self) -> Arc<[u8]> {
        let (least, most) = self.runs_ns.unwrap_or((NONE, NONE));
        let words = [least, most, self.exit.into(), self.holds.unwrap_or(NONE)];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// What a body says.
    pub fn of(body: &[u8]) -> Conduct {
        let mut words =
            body.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let mut next = || words.next().filter(|word| *word != NONE);
        let (least, most, exit) = (next(), next(), next());
        Conduct { runs_ns: least.zip(most), exit: exit.unwrap_or(0) as u8, holds: next() }
    }

    /// When and how a task ends by itself, if it does: lengths lie between the least and the most without
    /// order, and are the same each time.
    pub fn ends(&self, task: TaskId) -> Option<(u64, End)> {
        let (least, most) = self.runs_ns?;
        let mixed = (task.job.0 << 32 ^ u64::from(task.index)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32;
        let delay_ns = least + (most.saturating_sub(least) >> 16) * (mixed & 0xFFFF);
        Some((delay_ns, End::Exited(self.exit.into())))
    }
}
