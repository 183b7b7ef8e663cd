//! Runs that a host reports and does not hold. They go on from before it was cut off, or began by a launch that was
//! taken back before it arrived. Each is ended on its host. What it uses counts as held while the host
//! reports it.
//!
//! - A proc is in the tables before its launch leaves, and its key is never used again. So a run without a proc has lost
//!   its proc, however old the report is, and whatever the host's clock says.
//! - A run of which its host has said that it ended is not a stray: that report is older than the end.
//! - A frame that another proc of the host holds is left to that one. RQD takes no frame twice: either the reported run
//!   has ended, or the other launch is refused and taken back, which kills the frame.
//! - A run whose frame a client killed keeps its proc, which has the frame no longer: it is ended again, and its proc
//!   holds what it uses.

use crate::ended::EndedProcs;
use crate::generated::report::RunningFrameInfo;
use crate::hosts::{Amounts, FrameRun};
use crate::names::width::KEY;
use crate::trouble::CallError;
use deadpool_postgres::Transaction;
use std::collections::BTreeSet;

/// Frames, of these, that procs of the host hold.
const HELD: &str = "SELECT pk_frame::text FROM proc WHERE pk_host = $1 AND pk_frame = ANY($2::text[])";

/// Runs of a report that their host does not hold.
#[derive(Default)]
pub(super) struct Strays<'a> {
    freed: Vec<&'a RunningFrameInfo>,
    unheld: Vec<&'a RunningFrameInfo>,
}

impl<'a> Strays<'a> {
    /// Adds a run whose proc has its frame no longer.
    pub(super) fn add_freed(&mut self, run: &'a RunningFrameInfo) {
        self.freed.push(run);
    }

    /// Adds a run that has no proc on the host.
    pub(super) fn add_unheld(&mut self, run: &'a RunningFrameInfo) {
        self.unheld.push(run);
    }

    /// Leaves out runs that are not strays.
    pub(super) async fn sift(
        &mut self,
        tx: &Transaction<'_>,
        (host, name): (&str, &str),
        ended: &EndedProcs,
    ) -> Result<(), CallError> {
        self.unheld.retain(|run| !ended.has(name, &run.resource_id));
        if self.unheld.is_empty() {
            return Ok(());
        }
        let frames: Vec<&str> = self.unheld.iter().map(|run| run.frame_id.as_str()).collect();
        let rows = tx.query(HELD, &[&host, &frames]).await?;
        let held: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
        self.unheld.retain(|run| !held.contains(&run.frame_id));
        Ok(())
    }

    /// What they use and no proc holds. A negative number of a report counts as 0.
    pub(super) fn amounts(&self) -> Amounts {
        let mut all = Amounts::default();
        for run in &self.unheld {
            let mem_kib = run.rss.max(run.max_rss).max(0);
            let gpu_mem_kib = run.used_gpu_memory.max(run.max_used_gpu_memory).max(0);
            all.cores = all.cores.saturating_add(run.num_cores.max(0).into());
            all.mem_kib = all.mem_kib.saturating_add(mem_kib);
            all.gpus = all.gpus.saturating_add(run.num_gpus.max(0).into());
            all.gpu_mem_kib = all.gpu_mem_kib.saturating_add(gpu_mem_kib);
        }
        all
    }

    /// The runs to be ended. No frame was launched with a longer key than the tables hold.
    pub(super) fn runs(&self) -> Vec<FrameRun> {
        let all = self.freed.iter().chain(&self.unheld);
        let named = all.filter(|run| run.frame_id.len() <= KEY && run.resource_id.len() <= KEY);
        named.map(|run| FrameRun { frame: run.frame_id.clone(), proc_id: run.resource_id.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_any_report_are_a_sum_that_fits() {
        let run = |cores: i32, rss: i64| RunningFrameInfo {
            num_cores: cores,
            rss,
            max_rss: 5,
            ..RunningFrameInfo::default()
        };
        let runs = [run(100, 7), run(i32::MIN, i64::MIN), run(i32::MAX, 3)];
        let mut strays = Strays::default();
        for run in &runs {
            strays.add_unheld(run);
        }
        let expected = Amounts { cores: 100 + i64::from(i32::MAX), mem_kib: 17, ..Default::default() };
        assert_eq!(strays.amounts(), expected);
        let huge = run(0, i64::MAX);
        strays.add_unheld(&huge);
        assert_eq!(strays.amounts().mem_kib, i64::MAX);
        let killed = run(100, 1 << 20);
        let mut freed = Strays::default();
        freed.add_freed(&killed);
        assert_eq!((freed.amounts(), freed.runs().len()), (Amounts::default(), 1));
    }
}
