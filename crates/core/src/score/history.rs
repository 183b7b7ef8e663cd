//! What earlier tasks of the same signature held and took, and what that predicts for the next one.

use crate::hash::Fnv;
use crate::resources::Resources;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// What one attempt held and took. Unknown is `None`, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Most bytes of memory at one time; of one that was killed for memory, what it would need at least.
    pub peak_memory: Option<u64>,
    /// Processor time in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Milliseconds from start to end.
    pub wall_ms: Option<u64>,
    /// Bytes read and written.
    pub disk_bytes: Option<u64>,
    /// It was killed for memory.
    pub oom: bool,
}

/// Samples that are kept of one signature; the oldest goes first.
pub const SAMPLES_MAX: usize = 200;
/// Peaks from which on the predicted one is the 95th percentile; of fewer it is the largest.
pub const PERCENTILE_FROM: usize = 20;
/// Signatures that are remembered; the one without a sample for longest goes first.
pub const SIGNATURES_MAX: usize = 10_000;
/// Attempts that may run at once of a signature that declares memory and that nothing is known of.
pub const PROBES: u32 = 4;
/// Milliseconds after which the run of a first attempt is evidence enough that its memory suffices.
pub const PROBE_MS: u64 = 60_000;

/// What the next task of a signature will hold and take. Means are over the samples that know the value.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Prediction {
    /// Bytes of memory: the 95th percentile of peaks, or the largest of few.
    pub peak_memory: Option<u64>,
    /// Bytes that a kill for memory showed to be needed at least, until later peaks tell better.
    pub memory_floor: Option<u64>,
    /// Processor time in milliseconds.
    pub cpu_ms: Option<f64>,
    /// Milliseconds from start to end.
    pub wall_ms: Option<f64>,
    /// Bytes read and written, over the samples that read or wrote.
    pub disk_bytes: Option<f64>,
    /// Share of attempts that were killed for memory, 0 to 1.
    pub oom_rate: f64,
    /// Attempts that this is known from.
    pub samples: u32,
}

impl Prediction {
    /// Bytes of memory that it will hold.
    pub fn memory(&self) -> Option<u64> {
        self.peak_memory.max(self.memory_floor)
    }

    /// Bytes to keep for it: a tenth above what peaks say. A floor is a doubling and has room enough.
    pub fn reserve(&self) -> Option<u64> {
        self.peak_memory.map(|peak| peak.saturating_add(peak.div_ceil(10))).max(self.memory_floor)
    }
}

/// Bytes that a kill for memory shows to be needed at least, where there were `had_bytes`: twice as much. Without a limit
/// of its own the killed task may have needed no more than it held, because others took the rest. Then it is an eighth
/// less than twice, so that a later task shows it that holds about as much and ends well: see [`History::push`].
pub fn needs_after_kill(had_bytes: u64, is_limited: bool) -> u64 {
    had_bytes.saturating_mul(2) - if is_limited { 0 } else { had_bytes / 8 }
}

/// The hundredths of a core to book for a task whose step leaves them to Windlass: enough that its memory takes no
/// more than its part of the farm's (`memory_per_core` bytes go with each core), and as many as it was seen
/// to use; whole cores, at least one and at most `largest`. `None` while nothing is known.
pub fn auto_cpus(prediction: &Prediction, memory_per_core: u64, largest: u32) -> Option<u32> {
    let by_memory = prediction.reserve().filter(|_| memory_per_core > 0).map(|b| b.div_ceil(memory_per_core));
    let used = prediction.cpu_ms.zip(prediction.wall_ms).filter(|(_, wall_ms)| *wall_ms > 0.0);
    let by_use = used.map(|(cpu_ms, wall_ms)| libm::ceil(cpu_ms / wall_ms) as u64);
    let cores = by_memory.max(by_use)?.max(1);
    Some(u32::try_from(cores.saturating_mul(100)).unwrap_or(u32::MAX).min(largest.max(100)))
}

/// How many attempts of a signature may run at once until its memory is known; `None`: any number.
/// `longest_ms` is how long the oldest of those that run now has run.
///
/// A step that declares too little memory has every task killed that starts before the first kill is seen,
/// so a few go first. After nothing but kills, one at a time finds out how much is enough.
pub fn probing(request: &Resources, history: Option<&History>, longest_ms: Option<u64>) -> Option<u32> {
    match history.map(History::evidence).unwrap_or(Evidence::None) {
        _ if request.memory == 0 => None,
        Evidence::None | Evidence::Kills if longest_ms.is_some_and(|ms| ms >= PROBE_MS) => None,
        Evidence::None => Some(PROBES),
        Evidence::Kills => Some(1),
        Evidence::Success => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Evidence {
    None,
    /// The latest attempts were all killed for memory.
    Kills,
    Success,
}

/// The last samples of one signature, with their sums: adding costs the same however many there are, and
/// predicting costs nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct History {
    rows: VecDeque<Sample>,
    /// Peaks of attempts that were not killed for memory, in order.
    peaks: Vec<u64>,
    cpu_ms: Sum,
    wall_ms: Sum,
    disk_bytes: Sum,
    ooms: u32,
    floor: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sum {
    total: u128,
    count: u32,
}

impl Sum {
    fn add(&mut self, value: Option<u64>) {
        self.total += u128::from(value.unwrap_or(0));
        self.count += u32::from(value.is_some());
    }

    fn sub(&mut self, value: Option<u64>) {
        self.total -= u128::from(value.unwrap_or(0));
        self.count -= u32::from(value.is_some());
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total as f64 / f64::from(self.count))
    }
}

impl History {
    /// Adds a sample; the oldest of more than [`SAMPLES_MAX`] is forgotten.
    pub fn push(&mut self, sample: Sample) {
        if self.rows.len() == SAMPLES_MAX
            && let Some(oldest) = self.rows.pop_front()
        {
            self.forget(&oldest);
        }
        self.rows.push_back(sample);
        self.cpu_ms.add(sample.cpu_ms);
        self.wall_ms.add(sample.wall_ms);
        self.disk_bytes.add(sample.disk_bytes.filter(|bytes| *bytes > 0));
        if sample.oom {
            self.ooms += 1;
        } else if let Some(peak) = sample.peak_memory {
            self.peaks.insert(self.peaks.partition_point(|other| *other < peak), peak);
        }
        self.floor = self.find_floor();
    }

    fn forget(&mut self, oldest: &Sample) {
        self.cpu_ms.sub(oldest.cpu_ms);
        self.wall_ms.sub(oldest.wall_ms);
        self.disk_bytes.sub(oldest.disk_bytes.filter(|bytes| *bytes > 0));
        if oldest.oom {
            self.ooms -= 1;
        } else if let Some(peak) = oldest.peak_memory {
            self.peaks.remove(self.peaks.partition_point(|other| *other < peak));
        }
    }

    /// What the largest kill asks for, of those after which nobody held more than the killed one's limit
    /// and ended well. The limit is half of what the kill asks for.
    fn find_floor(&self) -> Option<u64> {
        if self.ooms == 0 {
            return None;
        }
        let (mut floor, mut peak_after) = (None, 0);
        for row in self.rows.iter().rev() {
            match row.peak_memory {
                Some(needs) if row.oom && peak_after <= needs / 2 => floor = floor.max(Some(needs)),
                Some(peak) if !row.oom => peak_after = peak_after.max(peak),
                _ => {}
            }
        }
        floor
    }

    /// What the next task will hold and take; `None` without samples.
    pub fn predict(&self) -> Option<Prediction> {
        if self.rows.is_empty() {
            return None;
        }
        let peaks = self.peaks.len();
        let peak =
            if peaks < PERCENTILE_FROM { self.peaks.last() } else { self.peaks.get(nearest_95th(peaks - 1)) };
        let samples = self.rows.len() as u32;
        Some(Prediction {
            peak_memory: peak.copied(),
            memory_floor: self.floor,
            cpu_ms: self.cpu_ms.mean(),
            wall_ms: self.wall_ms.mean(),
            disk_bytes: self.disk_bytes.mean(),
            oom_rate: f64::from(self.ooms) / f64::from(samples),
            samples,
        })
    }

    /// Bytes to keep for work that nothing limits to its booking: a tenth above the largest peak, and what a kill for
    /// memory showed to be needed, until work has ended well since. Such work is killed because others hold too much, so
    /// its kill says little of itself. `None` where nothing is known.
    pub fn unlimited_reserve(&self) -> Option<u64> {
        let peak = self.peaks.last().map(|peak| peak.saturating_add(peak.div_ceil(10)));
        let since = self.rows.iter().rev().take_while(|row| row.oom || row.peak_memory.is_none());
        peak.max(since.filter_map(|row| row.peak_memory).max())
    }

    fn evidence(&self) -> Evidence {
        let mut latest = self.rows.iter().rev().take(PROBES as usize);
        match self.rows.is_empty() {
            true => Evidence::None,
            false if latest.all(|row| row.oom) => Evidence::Kills,
            false => Evidence::Success,
        }
    }

    /// Milliseconds from start to end of the attempts of which that is known, shortest first.
    pub fn lengths_ms(&self) -> Vec<u64> {
        let mut lengths_ms: Vec<u64> = self.rows.iter().filter_map(|sample| sample.wall_ms).collect();
        lengths_ms.sort_unstable();
        lengths_ms
    }

    /// The samples, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.rows.iter()
    }
}

/// `last * 0.95`, rounded half up, in whole numbers.
fn nearest_95th(last: usize) -> usize {
    (last * 95 + 50) / 100
}

/// Which tasks are alike: those of one queue, step name and command shape. Where a step's shape is unknown,
/// queue and name must do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Signature {
    /// The name of the queue.
    pub queue: String,
    /// The name of the step.
    pub step: String,
    /// What its tasks run: [`Hints::shape`](crate::job::Hints::shape).
    pub shape: String,
}

impl Signature {
    /// A number that stands for it: FNV-1a of 64 bits over its text.
    pub fn number(&self) -> u64 {
        let parts = [&self.queue, &self.step, &self.shape];
        let mut fnv = Fnv::default();
        for part in parts {
            fnv.bytes(part.as_bytes());
            fnv.bytes(&[SEPARATOR as u8]);
        }
        fnv.value()
    }

    /// Reads what `Display` wrote; parts that are missing are empty.
    pub fn parse(text: &str) -> Signature {
        let mut parts = text.splitn(3, SEPARATOR).map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Signature { queue: next(), step: next(), shape: next() }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SEPARATOR}{}{SEPARATOR}{}", self.queue, self.step, self.shape)
    }
}

/// Between the parts of a signature as text: no name that people give has it.
const SEPARATOR: char = '\u{1f}';

/// The histories of at most [`SIGNATURES_MAX`] signatures.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Histories {
    all: BTreeMap<Arc<Signature>, (u64, History)>,
    /// Signatures by when they last got a sample.
    order: BTreeMap<u64, Arc<Signature>>,
    pushed: u64,
}

impl Histories {
    /// Adds a sample. Those that are read from a store go in oldest first.
    /// Returns the history with it.
    pub fn push(&mut self, signature: &Signature, sample: Sample) -> Option<&History> {
        self.pushed += 1;
        if self.all.contains_key(signature) {
            let (at, history) = self.all.get_mut(signature)?;
            if let Some(signature) = self.order.remove(at) {
                self.order.insert(self.pushed, signature);
            }
            *at = self.pushed;
            history.push(sample);
            return Some(history);
        }
        if self.all.len() == SIGNATURES_MAX
            && let Some((_, stalest)) = self.order.pop_first()
        {
            self.all.remove(&stalest);
        }
        let signature = Arc::new(signature.clone());
        let mut history = History::default();
        history.push(sample);
        self.order.insert(self.pushed, signature.clone());
        Some(&self.all.entry(signature).or_insert((self.pushed, history)).1)
    }

    /// The history of a signature.
    pub fn get(&self, signature: &Signature) -> Option<&History> {
        self.all.get(signature).map(|(_, history)| history)
    }

    /// What the next task of a signature will hold and take.
    pub fn predict(&self, signature: &Signature) -> Option<Prediction> {
        self.get(signature).and_then(History::predict)
    }

    /// How many signatures are remembered.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
