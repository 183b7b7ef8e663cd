//! Done requests of other servers. The owner of a farm inserts their rows in the transaction that does them. When the
//! answer was lost and the request comes again, the owner finds the row, does nothing twice, and repeats the answer.

use crate::ownership::ServerId;
use std::collections::BTreeMap;
use windlass_core::JobId;
use windlass_core::engine::Write;

/// A request that a batch does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DoneRequest {
    /// The key of the request, made by the server that the client asked.
    pub key: String,
    /// The job that the request changes. If the store refuses a write of this job, the request is not done.
    pub job: Option<JobId>,
    /// What the server needs to answer the request, in bytes that only servers read.
    pub answer: Vec<u8>,
    /// The server that does it.
    pub by: ServerId,
    /// The signature of the request's key and of the answer, by that server's key.
    pub signature: Vec<u8>,
}

/// The row of a request that was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DoneRow {
    /// What the server needs to answer the request, in bytes that only servers read.
    pub answer: Vec<u8>,
    /// The server that did it.
    pub by: ServerId,
    /// The signature of the request's key and of the answer, by that server's key.
    pub signature: Vec<u8>,
    /// That server's key, by which the signature is checked; `None` if the list of servers has not got it.
    pub verify_key: Option<Vec<u8>>,
}

/// The requests that a batch does when these of its writes were refused: the requests about other jobs.
pub(crate) fn done_of<'a>(
    done: &'a [DoneRequest],
    writes: &[Write],
    refused: &[usize],
) -> impl Iterator<Item = &'a DoneRequest> {
    let undone: Vec<JobId> =
        refused.iter().filter_map(|number| writes.get(*number).and_then(Write::job)).collect();
    done.iter().filter(move |request| request.job.is_none_or(|job| !undone.contains(&job)))
}

/// The rows of the store in memory, by key.
#[derive(Default)]
pub(crate) struct DoneRows(BTreeMap<String, DoneRow>);

impl DoneRows {
    pub fn keep(&mut self, done: &[DoneRequest], writes: &[Write], refused: &[usize]) {
        for DoneRequest { key, answer, by, signature, .. } in done_of(done, writes, refused) {
            let (answer, signature) = (answer.clone(), signature.clone());
            let row = DoneRow { answer, by: *by, signature, verify_key: None };
            self.0.entry(key.clone()).or_insert(row);
        }
    }

    pub fn get(&self, key: &str) -> Option<DoneRow> {
        self.0.get(key).cloned()
    }
}
