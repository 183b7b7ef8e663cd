//! Sums of what attempts took, by day, user and queue. The commit that ends attempts adds to them in its transaction, so
//! they agree with the rows of tasks and outlive these. Reading them costs what their rows cost, however many tasks ended.

use std::collections::BTreeMap;
use windlass_core::engine::Write;

/// Users and queues that a day tells apart. What more of them take is added up under [`USAGE_OTHERS`].
pub const USAGE_PAIRS_MAX: usize = 2_000;
/// The name of the user and of the queue under which a day's rows beyond [`USAGE_PAIRS_MAX`] are added up.
pub const USAGE_OTHERS: &str = "others";
/// No sum is larger, so that two of them fit the integers of a database.
pub(crate) const SUM_MAX: u64 = (1 << 62) - 1;

/// What an attempt took that ends with a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptUse {
    /// The place, among the writes of the batch, of the one that ends it. If the store refuses that, nothing is added.
    pub write: usize,
    /// To which sum it is added.
    pub key: UsageKey,
    /// Milliseconds of cpu time.
    pub cpu_ms: u64,
    /// It failed, or was lost with its worker.
    pub failed: bool,
}

/// Whose sum it is. The order is that of the rows of a day.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UsageKey {
    /// Days since the Unix epoch, in UTC.
    pub day: u64,
    /// The user of the jobs.
    pub user: String,
    /// The queue of the jobs.
    pub queue: String,
}

impl UsageKey {
    /// The sum of those that a day does not tell apart.
    pub(crate) fn of_others(day: u64) -> UsageKey {
        UsageKey { day, user: USAGE_OTHERS.to_owned(), queue: USAGE_OTHERS.to_owned() }
    }
}

/// What attempts took together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UsageSum {
    /// Milliseconds of cpu time.
    pub cpu_ms: u64,
    /// Number of attempts that ended.
    pub tasks: u64,
    /// Attempts of these that failed.
    pub failed: u64,
}

impl UsageSum {
    fn add(&mut self, more: UsageSum) {
        let plus = |one: u64, other: u64| one.saturating_add(other).min(SUM_MAX);
        self.cpu_ms = plus(self.cpu_ms, more.cpu_ms);
        self.tasks = plus(self.tasks, more.tasks);
        self.failed = plus(self.failed, more.failed);
    }
}

/// Rows of the last days.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageRows {
    /// The first day of which the store has a row; `None` if it has none.
    pub first_day: Option<u64>,
    /// By day, newest first, then by user and queue.
    pub rows: Vec<(UsageKey, UsageSum)>,
}

/// What a batch of these writes adds of which those with these numbers, in ascending order, were refused.
pub(crate) fn added(
    used: &[AttemptUse],
    writes: &[Write],
    refused: &[usize],
) -> BTreeMap<UsageKey, UsageSum> {
    let mut sums: BTreeMap<UsageKey, UsageSum> = BTreeMap::new();
    for AttemptUse { write, key, cpu_ms, failed } in used {
        if *write < writes.len() && refused.binary_search(write).is_err() {
            let one = UsageSum { cpu_ms: *cpu_ms, tasks: 1, failed: u64::from(*failed) };
            sums.entry(key.clone()).or_default().add(one);
        }
    }
    sums
}

/// The rows of the store in memory.
#[derive(Default)]
pub(crate) struct UsageTable {
    sums: BTreeMap<UsageKey, UsageSum>,
}

impl UsageTable {
    pub fn add(&mut self, used: &[AttemptUse], writes: &[Write], refused: &[usize]) {
        for (key, sum) in added(used, writes, refused) {
            let is_told = self.sums.contains_key(&key) || self.of_day(key.day) < USAGE_PAIRS_MAX;
            let key = if is_told { key } else { UsageKey::of_others(key.day) };
            self.sums.entry(key).or_default().add(sum);
        }
    }

    fn of_day(&self, day: u64) -> usize {
        self.sums.range(first_key(day)..first_key(day + 1)).count()
    }

    pub fn since(&self, day: u64, limit: usize) -> UsageRows {
        let mut rows: Vec<(UsageKey, UsageSum)> =
            self.sums.range(first_key(day)..).map(|(key, sum)| (key.clone(), *sum)).collect();
        // The sort is stable, so users and queues stay in their order.
        rows.sort_by_key(|(key, _)| std::cmp::Reverse(key.day));
        rows.truncate(limit);
        UsageRows { first_day: self.sums.keys().next().map(|key| key.day), rows }
    }

    /// Forgets the oldest day, if it is before this one. Returns the number of its rows.
    pub fn forget(&mut self, before: u64) -> usize {
        let Some(day) = self.sums.keys().next().map(|key| key.day).filter(|day| *day < before) else {
            return 0;
        };
        let rows = self.sums.len();
        self.sums = self.sums.split_off(&first_key(day + 1));
        rows - self.sums.len()
    }
}

fn first_key(day: u64) -> UsageKey {
    UsageKey { day, user: String::new(), queue: String::new() }
}
