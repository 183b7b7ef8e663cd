//! What earlier tasks of a signature teach: how much memory the next one is booked with, how many cpus, how long it
//! will run, and how many may go first while nothing is known.

mod sized;
mod sizing;

pub use sized::SizedPart;

use crate::ids::StepKey;
use crate::job::StepSpec;
use crate::resources::Resources;
use crate::score::history::{
    self, Histories, History, PROBE_MS, Prediction, SIGNATURES_MAX, Sample, Signature,
};
use crate::tags::asks_executor;
use crate::time::{NS_PER_MS, Time};
use sized::SizedClasses;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Samples of a signature whose number is a power of two below this are written at once, others with the next means.
const WRITE_AT_ONCE_BELOW: u32 = 64;

/// The steps of one signature, whose tasks are expected to behave alike.
#[derive(Clone, PartialEq, Debug)]
struct TaskProfile {
    signature: Arc<Signature>,
    prediction: Option<Prediction>,
    /// The most memory that one of its steps asks for.
    declared_bytes: u64,
    /// What a task is booked with at least, rounded up so that small differences make no new class.
    reserve_bytes: u64,
    /// What steps with automatic cpus are sized by: kept until the prediction differs by enough.
    sizing: Option<Prediction>,
    /// Another number whenever what its steps are sized by differs. No other profile had it before.
    revision: u64,
    /// Some of its steps have automatic cpus.
    cpus_auto: bool,
    /// Its tasks run on executors of another system, which never say what their work holds.
    on_executors: bool,
    steps: BTreeSet<StepKey>,
    active: u32,
    /// When the first of these was booked.
    since: Option<Time>,
    /// No more may be booked until more is known.
    throttled: bool,
    /// Samples came that the store does not have.
    unsaved: bool,
}

/// What follows from a sample.
#[derive(Debug, Default)]
pub struct Learned<'a> {
    /// The samples to be written now.
    pub write: Option<(&'a Signature, &'a History)>,
    /// The steps of the signature are to be sized again.
    pub is_resized: bool,
}

/// Rounds up to an eighth of the power of two below, so that predictions that differ little are the same.
fn rounded(bytes: u64) -> u64 {
    let unit = (bytes.next_power_of_two() / 16).max(1 << 20);
    bytes.div_ceil(unit).saturating_mul(unit)
}

fn reserve_of(prediction: Option<&Prediction>) -> u64 {
    prediction.and_then(Prediction::reserve).map_or(0, rounded)
}

/// The profiles of all signatures of which a step is in memory, and the histories behind them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profiles {
    histories: Histories,
    all: BTreeMap<u64, TaskProfile>,
    /// When first tasks have run long enough to be believed.
    probe_ends: BTreeSet<(Time, u64)>,
    /// The last revision of a profile.
    revision: u64,
    /// What classes were sized to.
    sized: SizedClasses,
    /// Samples came that the store does not have.
    has_unsaved: bool,
    /// Signatures with such samples of which no step need be in memory: of work of outside clients, or in a batch that
    /// failed.
    unsaved: BTreeSet<String>,
}

impl Profiles {
    /// A sample as a store kept it, oldest first.
    pub fn restore(&mut self, signature: &Signature, sample: Sample) {
        self.histories.push(signature, sample);
    }

    /// A step is new. Returns the number of its signature.
    pub fn join(&mut self, key: StepKey, queue: &str, spec: &StepSpec) -> u64 {
        let signature =
            Signature { queue: queue.to_owned(), step: spec.name.clone(), shape: spec.hints.shape.clone() };
        let id = signature.number();
        let prediction = self.histories.predict(&signature);
        self.revision += 1;
        let revision = self.revision;
        let profile = self.all.entry(id).or_insert_with(|| TaskProfile {
            signature: Arc::new(signature),
            prediction,
            declared_bytes: 0,
            reserve_bytes: reserve_of(prediction.as_ref()),
            sizing: prediction,
            revision,
            cpus_auto: false,
            on_executors: false,
            steps: BTreeSet::new(),
            active: 0,
            since: None,
            throttled: false,
            unsaved: false,
        });
        profile.steps.insert(key);
        profile.declared_bytes = profile.declared_bytes.max(spec.request.memory);
        profile.cpus_auto |= spec.hints.cpus_auto;
        profile.on_executors = asks_executor(&spec.needs);
        id
    }

    /// A step is gone.
    pub fn leave(&mut self, id: u64, key: StepKey) {
        let Some(profile) = self.all.get_mut(&id) else { return };
        profile.steps.remove(&key);
        if profile.steps.is_empty() && !profile.unsaved {
            self.all.remove(&id);
        }
    }

    /// What a task is expected to hold and take.
    pub fn prediction(&self, id: u64) -> Option<&Prediction> {
        self.all.get(&id)?.prediction.as_ref()
    }

    /// How long the last tasks of a signature ran, in milliseconds, shortest first.
    pub fn lengths_ms(&self, id: u64) -> Vec<u64> {
        let history = self.all.get(&id).and_then(|profile| self.histories.get(&profile.signature));
        history.map(History::lengths_ms).unwrap_or_default()
    }

    /// The steps of a signature.
    pub fn steps(&self, id: u64) -> impl Iterator<Item = StepKey> + '_ {
        self.all.get(&id).into_iter().flat_map(|profile| profile.steps.iter().copied())
    }

    /// How many signatures have steps in memory.
    pub fn with_steps(&self) -> usize {
        self.all.values().filter(|profile| !profile.steps.is_empty()).count()
    }

    /// An attempt is booked, or was `at` that time before a restart. Returns the steps whose gate opened or closed, which are
    /// to be looked at again.
    #[must_use]
    pub fn booked(&mut self, id: u64, at: Time, now: Time) -> Vec<StepKey> {
        let Some(profile) = self.all.get_mut(&id) else { return Vec::new() };
        profile.active += 1;
        profile.since = profile.since.or(Some(at));
        self.gate(id, now)
    }

    /// An attempt ended. Returns the same as [`booked`](Profiles::booked).
    #[must_use]
    pub fn left(&mut self, id: u64, now: Time) -> Vec<StepKey> {
        let Some(profile) = self.all.get_mut(&id) else { return Vec::new() };
        profile.active = profile.active.saturating_sub(1);
        if profile.active == 0 {
            profile.since = None;
        }
        self.gate(id, now)
    }

    /// How many attempts run while no more may, to show what they need; `None` where more may.
    pub fn throttled(&self, id: u64) -> Option<u32> {
        self.all.get(&id).filter(|profile| profile.throttled).map(|profile| profile.active)
    }

    /// How many attempts may run at once now; `None`: any number.
    fn probes(&self, id: u64, now: Time) -> Option<u32> {
        let profile = self.all.get(&id).filter(|profile| profile.declared_bytes > 0)?;
        // The other system sees to limits by itself.
        if profile.on_executors {
            return None;
        }
        let request = Resources::new(0, profile.declared_bytes);
        let longest_ms = profile.since.map(|since| now.since(since) / NS_PER_MS);
        history::probing(&request, self.histories.get(&profile.signature), longest_ms)
    }

    /// Opens or closes the gate before the tasks of a signature. Returns its steps if that changed.
    #[must_use]
    pub fn gate(&mut self, id: u64, now: Time) -> Vec<StepKey> {
        let probes = self.probes(id, now);
        let Some(profile) = self.all.get_mut(&id) else { return Vec::new() };
        let throttled = probes.is_some_and(|most| profile.active >= most);
        let is_changed = throttled != profile.throttled;
        if is_changed {
            self.probe_ends.retain(|(_, other)| *other != id);
        }
        let believed = profile.since.map(|since| since.after(PROBE_MS * NS_PER_MS));
        if let Some(at) = believed.filter(|at| throttled && *at > now) {
            self.probe_ends.insert((at, id));
        }
        profile.throttled = throttled;
        if is_changed { profile.steps.iter().copied().collect() } else { Vec::new() }
    }

    /// When the next first tasks have run long enough to be believed.
    pub fn next_probe_end(&self) -> Option<Time> {
        self.probe_ends.first().map(|(at, _)| *at)
    }

    /// A signature whose first tasks have run long enough by now; its [`gate`](Profiles::gate) is due.
    pub fn take_probed(&mut self, now: Time) -> Option<u64> {
        let (_, id) = *self.probe_ends.first().filter(|(at, _)| *at <= now)?;
        self.probe_ends.pop_first();
        Some(id)
    }

    /// An attempt ended: what it held and took.
    pub fn learn(&mut self, id: u64, sample: Sample) -> Learned<'_> {
        let Some(profile) = self.all.get_mut(&id) else { return Learned::default() };
        let history = self.histories.push(&profile.signature, sample);
        profile.prediction = history.and_then(History::predict);
        let reserve_bytes = reserve_of(profile.prediction.as_ref());
        // More at once, because less is killed. Less only where it is much less.
        let by_memory =
            reserve_bytes > profile.reserve_bytes || reserve_bytes < profile.reserve_bytes / 4 * 3;
        let by_cpus = profile.cpus_auto && !same_cores(profile.sizing.as_ref(), profile.prediction.as_ref());
        let is_resized = by_memory || by_cpus || profile.sizing.is_none();
        if is_resized {
            profile.reserve_bytes = reserve_bytes;
            profile.sizing = profile.prediction;
            self.revision += 1;
            profile.revision = self.revision;
        }
        let count = profile.prediction.map_or(0, |prediction| prediction.samples);
        let at_once = sample.oom || (count < WRITE_AT_ONCE_BELOW && count.is_power_of_two());
        profile.unsaved = !at_once;
        self.has_unsaved |= !at_once;
        Learned {
            write: history.filter(|_| at_once).map(|history| (&*profile.signature, history)),
            is_resized,
        }
    }

    /// A batch failed that had the samples of a signature.
    pub fn save_again(&mut self, signature: &str) {
        self.unsaved.insert(signature.to_owned());
        self.has_unsaved = true;
    }

    /// Work of an outside client ended: what it held and took. No step is of its signature. True if such work is booked
    /// with other memory from now on.
    pub fn learn_outside(&mut self, signature: &Signature, sample: Sample) -> bool {
        let before = self.reserve_outside(signature);
        self.histories.push(signature, sample);
        // What is not noted is written with a later sample of the signature.
        if self.unsaved.len() < SIGNATURES_MAX {
            self.save_again(&signature.to_string());
        }
        self.reserve_outside(signature) != before
    }

    /// Bytes that such work is booked with; `None` where nothing is known of it.
    pub fn reserve_outside(&self, signature: &Signature) -> Option<u64> {
        self.histories.get(signature)?.unlimited_reserve().map(rounded)
    }

    /// True if samples came that the store does not have.
    pub fn has_unsaved(&self) -> bool {
        self.has_unsaved
    }

    /// All samples that the store does not have; it is taken to have them from now on.
    pub fn take_unsaved(&mut self) -> Vec<(Arc<Signature>, &History)> {
        self.has_unsaved = false;
        let unsaved = std::mem::take(&mut self.unsaved);
        let mut signatures: Vec<Arc<Signature>> =
            unsaved.iter().map(|signature| Arc::new(Signature::parse(signature))).collect();
        for profile in self.all.values_mut().filter(|profile| profile.unsaved) {
            profile.unsaved = false;
            signatures.push(profile.signature.clone());
        }
        self.all.retain(|_, profile| !profile.steps.is_empty());
        let histories = &self.histories;
        let known = signatures.into_iter().filter_map(|signature| {
            let history = histories.get(&signature)?;
            Some((signature, history))
        });
        known.collect()
    }

    /// Compares the counts with the attempts: `active` returns how many a step has.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub fn check(&self, active: impl Fn(StepKey) -> u32) -> Result<(), String> {
        for profile in self.all.values() {
            let attempts: u32 = profile.steps.iter().map(|key| active(*key)).sum();
            if attempts != profile.active {
                return Err(format!(
                    "{:?}: {attempts} attempts, counted {}",
                    profile.signature, profile.active
                ));
            }
        }
        Ok(())
    }
}

/// True if tasks use as many whole cores by both predictions, give or take a tenth of one: what hovers at a whole
/// number changes nothing.
fn same_cores(before: Option<&Prediction>, now: Option<&Prediction>) -> bool {
    let cores = |p: Option<&Prediction>| {
        let (cpu_ms, wall_ms) = p.and_then(|p| p.cpu_ms.zip(p.wall_ms))?;
        Some(cpu_ms / wall_ms.max(1.0))
    };
    match (cores(before), cores(now)) {
        (Some(before), Some(now)) => {
            let whole = libm::ceil(before).max(1.0);
            now <= whole + 0.1 && (now > whole - 1.1 || whole <= 1.0)
        }
        (before, now) => before.is_none() == now.is_none(),
    }
}
