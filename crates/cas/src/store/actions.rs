//! Results of actions: short values under an instance's name and the digest of an action. The store does not read them.

use super::{Cas, Inner, seconds};
use crate::digest::Digest;
use crate::error::CasError;
use crate::index::USE_STEP_S;
use crate::rows::statements;

/// Bytes of one result. One with the digests of 10,000 output files has about 1.5 MB.
const RESULT_BYTES_MAX: u64 = 4 << 20;
/// Bytes of an instance's name.
const INSTANCE_BYTES_MAX: usize = 256;
/// Results together take at most a tenth of the store's bytes.
const RESULTS_PART: u64 = 10;
/// Number of results, whatever their size: their index has some 100 MB.
const RESULTS_MAX: u64 = 1_000_000;
/// Last uses that wait to be written.
const USES_MAX: usize = 65_536;

impl Cas {
    /// The result that was kept for an action; `None` if there is none. Whether its blobs are still there is for the
    /// caller to ask by [`Cas::missing`].
    pub fn action(&self, instance: &str, action: Digest, now_ms: u64) -> Result<Option<Vec<u8>>, CasError> {
        let question = "read a result";
        let found = self.0.rows.read(question, |db| statements::action(db, instance, action))?;
        let Some(row) = found else { return Ok(None) };
        let now_s = seconds(now_ms);
        if now_s >= row.used_s.saturating_add(USE_STEP_S) {
            let waiting = {
                let mut uses = self.0.action_uses.lock();
                uses.insert(row.id, now_s);
                uses.len()
            };
            if waiting >= USES_MAX {
                self.0.flush_action_uses()?;
            }
        }
        Ok(Some(row.result))
    }

    /// Keeps the result of an action in the place of an earlier one. The caller has decided that its user may, and that
    /// its blobs are there.
    pub fn set_action(
        &self,
        instance: &str,
        action: Digest,
        result: &[u8],
        now_ms: u64,
    ) -> Result<(), CasError> {
        if instance.len() > INSTANCE_BYTES_MAX {
            return Err(CasError::LongName { bytes: instance.len(), bytes_max: INSTANCE_BYTES_MAX });
        }
        let bytes = result.len() as u64;
        let bytes_max = RESULT_BYTES_MAX.min(self.0.limits.bytes / RESULTS_PART);
        if bytes > bytes_max {
            return Err(CasError::TooLarge { bytes, bytes_max });
        }
        self.0.make_room_for_result(bytes)?;
        let _room = self.reserve(bytes)?;
        let now_s = seconds(now_ms);
        let replaced = self
            .0
            .rows
            .write("kept a result", |db| statements::set_action(db, instance, action, result, now_s))?;
        let (count, less) = replaced.map_or((1, 0), |bytes| (0, bytes));
        self.0.index.lock().count_actions(count, bytes as i64 - less as i64);
        Ok(())
    }
}

impl Inner {
    /// Drops the results that were used longest ago, until another one is within the bounds.
    fn make_room_for_result(&self, bytes: u64) -> Result<(), CasError> {
        loop {
            let figures = self.index.lock().figures;
            let bytes_max = self.limits.bytes / RESULTS_PART;
            if figures.action_bytes + bytes <= bytes_max && figures.actions < RESULTS_MAX {
                return Ok(());
            }
            self.flush_action_uses()?;
            if self.drop_actions(u32::MAX, 1)? == 0 {
                return Ok(());
            }
        }
    }

    /// Drops up to `limit` results that were last used before a time. Returns how many there were.
    pub(super) fn drop_actions(&self, before_s: u32, limit: u32) -> Result<u64, CasError> {
        let dropped =
            self.rows.write("dropped results", |db| statements::drop_actions(db, before_s, limit))?;
        let bytes: u64 = dropped.iter().sum();
        self.index.lock().count_actions(-(dropped.len() as i64), -(bytes as i64));
        Ok(dropped.len() as u64)
    }

    /// Writes last uses of results.
    pub(super) fn flush_action_uses(&self) -> Result<(), CasError> {
        let uses: Vec<(i64, u32)> = std::mem::take(&mut *self.action_uses.lock()).into_iter().collect();
        if uses.is_empty() {
            return Ok(());
        }
        // What a failure loses is the order in which results are dropped.
        self.rows.write("kept last uses of results", |db| statements::set_action_uses(db, &uses))
    }
}
