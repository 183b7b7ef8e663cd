//! Parsed bodies of the steps that tasks are started of now.

use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_api::StepBody;
use windlass_core::JobId;

/// Steps whose parsed body is kept.
const BODIES_MAX: usize = 256;

/// The cache.
#[derive(Default)]
pub struct Bodies {
    parsed: BTreeMap<(JobId, u16), Arc<StepBody>>,
}

impl Bodies {
    /// The body of a step, parsed once. `None` if it is none, which submission made sure of.
    pub fn get(&mut self, job: JobId, step: u16, raw: &[u8]) -> Option<Arc<StepBody>> {
        if let Some(body) = self.parsed.get(&(job, step)) {
            return Some(body.clone());
        }
        let body: Arc<StepBody> = Arc::new(serde_json::from_slice(raw).ok()?);
        if self.parsed.len() >= BODIES_MAX {
            // Old jobs come first; what is still needed is parsed again.
            self.parsed.pop_first();
        }
        self.parsed.insert((job, step), body.clone());
        Some(body)
    }

    /// The job ended.
    pub fn forget(&mut self, job: JobId) {
        let steps: Vec<_> = self.parsed.range((job, 0)..=(job, u16::MAX)).map(|(key, _)| *key).collect();
        for key in steps {
            self.parsed.remove(&key);
        }
    }
}
