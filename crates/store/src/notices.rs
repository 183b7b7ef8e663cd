//! Notices that are owed to people outside of the farm. The server adds their rows in the transaction of the batch that
//! is their reason, so none is lost with the process. A row goes when its notice was delivered or given up.

use crate::done::DoneRequest;
use crate::usage::AttemptUse;
use std::collections::BTreeMap;
use windlass_core::engine::Write;
use windlass_core::{JobId, Time};

/// What the server writes in the transaction of a batch, beside the engine's writes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Beside {
    /// Requests of other servers that the batch does.
    pub done: Vec<DoneRequest>,
    /// Notices of what the batch decides.
    pub notices: Vec<NewNotice>,
    /// What the attempts took that the batch ends.
    pub used: Vec<AttemptUse>,
}

impl From<Vec<DoneRequest>> for Beside {
    fn from(done: Vec<DoneRequest>) -> Beside {
        Beside { done, ..Beside::default() }
    }
}

/// A notice that becomes owed with a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewNotice {
    /// The job of whose end it tells. If the store refuses the write of that end, the notice is not owed.
    pub job: Option<JobId>,
    /// The user whose notice it is; empty for one of the administrators.
    pub user: String,
    /// The address that gets it, in words that only the server reads.
    pub to: String,
    /// What it says, in words that only the server reads.
    pub body: String,
    /// When it became owed.
    pub at: Time,
}

/// The row of a notice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwedNotice {
    /// Rises with each notice of this store, and is never given again.
    pub number: u64,
    /// As it was added.
    pub notice: NewNotice,
}

/// The notices that become owed with a batch of which these writes were refused.
pub(crate) fn owed_of<'a>(
    notices: &'a [NewNotice],
    writes: &[Write],
    refused: &[usize],
) -> impl Iterator<Item = &'a NewNotice> + use<'a> {
    let ends = |number: &usize| match writes.get(*number) {
        Some(Write::JobEnd { job, .. }) => Some(*job),
        _ => None,
    };
    let undone: Vec<JobId> = refused.iter().filter_map(ends).collect();
    let notices: &[NewNotice] = if writes.is_empty() { &[] } else { notices };
    notices.iter().filter(move |notice| notice.job.is_none_or(|job| !undone.contains(&job)))
}

/// The rows of the store in memory, by number.
#[derive(Default)]
pub(crate) struct NoticeRows {
    rows: BTreeMap<u64, NewNotice>,
    last: u64,
}

impl NoticeRows {
    pub fn add(&mut self, notices: &[NewNotice], writes: &[Write], refused: &[usize]) {
        for notice in owed_of(notices, writes, refused) {
            self.last += 1;
            self.rows.insert(self.last, notice.clone());
        }
    }

    pub fn after(&self, number: u64, limit: usize) -> Vec<OwedNotice> {
        let rows = self.rows.range(number.saturating_add(1)..).take(limit);
        rows.map(|(number, notice)| OwedNotice { number: *number, notice: notice.clone() }).collect()
    }

    pub fn forget(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.rows.remove(number);
        }
    }
}
