//! Conversion of a worker's reports of load and caches to the core's types, with checks.

use super::{Cached, Caches, DiskSpace, Load, Pressure, Pressures, Stall};
use std::collections::BTreeMap;
use windlass_core::bounds::{CACHE_KEY_BYTES_MAX, CACHE_KEYS_MAX};
use windlass_core::load::pressure as core;

/// The reason why a report of load or caches is refused.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum BadLoad {
    #[error(transparent)]
    Number(#[from] core::BadNumber),
    #[error("load_average has {0} numbers and must have 3, or none")]
    LoadAverage(usize),
    #[error("caches: {0} keys are more than the limit of {max}", max = CACHE_KEYS_MAX)]
    Keys(usize),
    #[error("caches: a key has {0} bytes, and must have 1 to {max}", max = CACHE_KEY_BYTES_MAX)]
    Key(usize),
}

impl Load {
    /// The report for the engine.
    ///
    /// # Errors
    /// If a number is not finite, or out of its range; the error names it.
    pub fn into_core(self) -> Result<core::LoadReport, BadLoad> {
        let load_average = match self.load_average[..] {
            [] => None,
            [one, five, fifteen] => Some([one, five, fifteen]),
            _ => return Err(BadLoad::LoadAverage(self.load_average.len())),
        };
        let report = core::LoadReport {
            confined: self.confined,
            machine: self.machine.unwrap_or_default().into(),
            own: self.own.unwrap_or_default().into(),
            load_average,
            memory_available: self.memory_available,
            memory_own: self.memory_own,
            cpu_used: self.cpu_used,
            cpu_foreign: self.cpu_foreign,
            disk_mb_s: self.disk_mb_s,
            network_mbit_s: self.network_mbit_s,
            core_score: self.core_score,
            network_in_mbit_s: self.network_in_mbit_s,
            network_out_mbit_s: self.network_out_mbit_s,
            network_percent: self.network_percent,
            state_space: self.state_space.map(Into::into),
            session_space: self.session_space.map(Into::into),
            cache_space: self.cache_space.map(Into::into),
        };
        report.check()?;
        Ok(report)
    }
}

impl From<core::LoadReport> for Load {
    fn from(from: core::LoadReport) -> Self {
        Load {
            confined: from.confined,
            machine: Some(from.machine.into()),
            own: Some(from.own.into()),
            load_average: from.load_average.into_iter().flatten().collect(),
            memory_available: from.memory_available,
            memory_own: from.memory_own,
            cpu_used: from.cpu_used,
            cpu_foreign: from.cpu_foreign,
            disk_mb_s: from.disk_mb_s,
            network_mbit_s: from.network_mbit_s,
            core_score: from.core_score,
            network_in_mbit_s: from.network_in_mbit_s,
            network_out_mbit_s: from.network_out_mbit_s,
            network_percent: from.network_percent,
            state_space: from.state_space.map(Into::into),
            session_space: from.session_space.map(Into::into),
            cache_space: from.cache_space.map(Into::into),
        }
    }
}

same_fields!(core::DiskSpace, DiskSpace: free_bytes, total_bytes);
same_fields!(core::Pressures, Pressures: cpu.map, memory.map, io.map);
same_fields!(core::Pressure, Pressure: some.map, full.map);
same_fields!(core::Stall, Stall: avg10, avg60, avg300, total_us, window);

impl Caches {
    /// Keys and their bytes, for the engine.
    ///
    /// # Errors
    /// If there are too many keys, or one is empty or too long.
    pub fn into_core(self) -> Result<BTreeMap<String, u64>, BadLoad> {
        if self.entries.len() > CACHE_KEYS_MAX {
            return Err(BadLoad::Keys(self.entries.len()));
        }
        for entry in &self.entries {
            if !(1..=CACHE_KEY_BYTES_MAX).contains(&entry.key.len()) {
                return Err(BadLoad::Key(entry.key.len()));
            }
        }
        Ok(self.entries.into_iter().map(|Cached { key, bytes }| (key, bytes)).collect())
    }
}

impl From<BTreeMap<String, u64>> for Caches {
    fn from(keys: BTreeMap<String, u64>) -> Self {
        Caches { entries: keys.into_iter().map(|(key, bytes)| Cached { key, bytes }).collect() }
    }
}
