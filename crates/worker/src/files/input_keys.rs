//! Cache keys of inputs: the trees that tasks here had, and their large blobs. Jobs name the same keys, so their tasks
//! come where the inputs are.

use super::inputs::Inputs;
use std::collections::VecDeque;
use windlass_cas::Digest;

/// Keys that are reported.
const KEYS_MAX: usize = 1_024;

/// Keys with their bytes, the last used first.
#[derive(Default)]
pub struct InputKeys(VecDeque<(Digest, u64)>);

impl InputKeys {
    /// Notes that a task has these. True if one is new.
    pub fn add(&mut self, keys: &[(Digest, u64)]) -> bool {
        let mut is_news = false;
        for key in keys {
            match self.0.iter().position(|known| known == key) {
                Some(at) => _ = self.0.remove(at),
                None => is_news = true,
            }
            self.0.push_front(*key);
        }
        self.0.truncate(KEYS_MAX);
        is_news
    }

    /// Drops what is not here any more.
    pub fn drop_evicted(&mut self, inputs: &Inputs) {
        self.0.retain(|(digest, _)| inputs.holds(*digest));
    }

    /// Adds those that were used before all of these.
    pub fn put_behind(&mut self, earlier: InputKeys) {
        for key in earlier.0 {
            if !self.0.contains(&key) {
                self.0.push_back(key);
            }
        }
        self.0.truncate(KEYS_MAX);
    }

    /// The keys as jobs name them, with their bytes.
    pub fn texts(&self) -> Vec<(String, u64)> {
        self.0.iter().map(|(digest, bytes)| (format!("input:{}", digest.hex()), *bytes)).collect()
    }
}
