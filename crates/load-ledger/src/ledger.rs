//! Load of scheduling domains, with weights made feasible: no domain counts for more cpus than it can use.
//!
//! Load is weight times duty cycle, and a domain's part of the cpus is its part of all load. A record whose
//! part would exceed its duty has an infeasible weight. All weights above one level are made that level, such
//! that these records get exactly their duty and the others share the rest by load: `level = L / (P - D)`, with
//! `L` the load of the feasible records, `D` the duty of the infeasible ones, `P` the cpus. It is weighted
//! max-min of [`share`](super::share) with `weight * duty` as weight and `duty` as cap.

/// The largest duty cycle of a record, in cpus.
pub const DUTY_MAX: f64 = 1e9;

/// Records of one run: few enough to insert between, many enough to be read one after the other.
const RUN_MAX: usize = 256;

/// The reason why a record is refused. A refused record changes nothing.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    #[error("domain {domain}: there are 0 cpus to divide; give LoadAggregator::new at least 1")]
    NoCpus { domain: usize },
    #[error("domain {domain}: weight 0 is less than 1; leave out what must not count")]
    NoWeight { domain: usize },
    #[error("domain {domain}, weight {weight}: duty cycle {duty} is not a number from 0 to {DUTY_MAX}")]
    BadDuty { domain: usize, weight: usize, duty: f64 },
    #[error("domain {domain} has load of weight {weight} already; record the sum of its duty cycles once")]
    Duplicate { domain: usize, weight: usize },
}

/// Domain and weight of a record. Weight 0 says only that the domain exists.
type RecordKey = (usize, usize);

/// Collects the load of domains.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadAggregator {
    nr_cpus: usize,
    dcycle_only: bool,
    /// Duties by rising key, cut into runs, none of them empty.
    runs: Vec<Vec<(RecordKey, f64)>>,
}

impl LoadAggregator {
    /// For a machine with `nr_cpus` cpus. With `dcycle_only` weights are recorded but all count as 1.
    ///
    /// A machine of 0 cpus can run no load, so [`record_dom_load`](Self::record_dom_load) refuses all of it.
    pub fn new(nr_cpus: usize, dcycle_only: bool) -> LoadAggregator {
        LoadAggregator { nr_cpus, dcycle_only, runs: Vec::new() }
    }

    /// Makes the domain appear in the ledger, without load if none is recorded.
    pub fn init_domain(&mut self, dom_id: usize) {
        self.insert((dom_id, 0), 0.0);
    }

    /// Adds the duty of the tasks of one weight in a domain: their duty cycles together, in cpus. Each
    /// weight once for each domain; fastest by rising domain and weight.
    pub fn record_dom_load(&mut self, dom_id: usize, weight: usize, dcycle: f64) -> Result<(), LedgerError> {
        if self.nr_cpus == 0 {
            return Err(LedgerError::NoCpus { domain: dom_id });
        }
        if weight == 0 {
            return Err(LedgerError::NoWeight { domain: dom_id });
        }
        if !(0.0..=DUTY_MAX).contains(&dcycle) {
            return Err(LedgerError::BadDuty { domain: dom_id, weight, duty: dcycle });
        }
        if !self.insert((dom_id, weight), dcycle) {
            return Err(LedgerError::Duplicate { domain: dom_id, weight });
        }
        Ok(())
    }

    /// False, and nothing changed, if the key is there.
    fn insert(&mut self, key: RecordKey, duty: f64) -> bool {
        if self.runs.last().and_then(|run| run.last()).is_none_or(|(last, _)| *last < key) {
            match self.runs.last_mut() {
                Some(run) if run.len() < RUN_MAX => run.push((key, duty)),
                _ => {
                    let mut run = Vec::with_capacity(RUN_MAX);
                    run.push((key, duty));
                    self.runs.push(run);
                }
            }
            return true;
        }
        let at = self.runs.partition_point(|run| run[0].0 <= key).saturating_sub(1);
        let run = &mut self.runs[at];
        let Err(place) = run.binary_search_by_key(&key, |record| record.0) else { return false };
        run.insert(place, (key, duty));
        if run.len() > RUN_MAX {
            let half = run.split_off(RUN_MAX / 2);
            self.runs.insert(at + 1, half);
        }
        true
    }

    /// The sums of the records so far. More may be recorded afterwards, and calculated again.
    pub fn calculate(&self) -> LoadLedger {
        let effective_max_weight = if self.dcycle_only { 1.0 } else { self.effective_max_weight() };
        let mut ledger = LoadLedger { effective_max_weight, ..LoadLedger::default() };
        for ((domain, weight), duty) in self.runs.iter().flatten() {
            if ledger.ids.last() != Some(domain) {
                ledger.ids.push(*domain);
                ledger.loads.push(0.0);
                ledger.duties.push(0.0);
            }
            let at = ledger.ids.len() - 1;
            ledger.loads[at] += (*weight as f64).min(effective_max_weight) * duty;
            ledger.duties[at] += duty;
        }
        ledger.load_sum = ledger.loads.iter().sum();
        ledger.duty_sum = ledger.duties.iter().sum();
        ledger
    }

    /// The level, or the largest recorded weight if that is less.
    fn effective_max_weight(&self) -> f64 {
        let records = self.runs.iter().flatten().map(|((_, weight), duty)| (*weight, *duty));
        let heaviest = records.clone().map(|record| record.0).max().unwrap_or(0) as f64;
        let mut open: Vec<(usize, f64)> = records.filter(|(_, duty)| *duty > 0.0).collect();
        feasible_level(self.nr_cpus as f64, &mut open).map_or(heaviest, |level| level.min(heaviest))
    }
}

/// The weight above which all are infeasible, found by halving; `None` without any duty. Where there are cpus
/// for all duty, every weight above the smallest is.
///
/// Loads and duties are only ever added up, of one side of the level each, so nothing small is lost in the
/// difference of large numbers.
fn feasible_level(cpus: f64, mut open: &mut [(usize, f64)]) -> Option<f64> {
    let lightest = open.iter().map(|record| record.0).min()? as f64;
    let duty = |records: &[(usize, f64)]| records.iter().map(|(_, duty)| duty).sum::<f64>();
    let load = |records: &[(usize, f64)]| records.iter().map(|(w, duty)| *w as f64 * duty).sum::<f64>();
    // Duty of the records known to be infeasible, the least weight among them, and load of the feasible records.
    let (mut capped, mut least, mut fed) = (0.0, f64::INFINITY, 0.0);
    while !open.is_empty() {
        let mid = open.len() / 2;
        let (heavier, &mut pivot, lighter) =
            open.select_nth_unstable_by_key(mid, |record| std::cmp::Reverse(record.0));
        let weight = pivot.0 as f64;
        let capped_before = capped + duty(heavier);
        let fed_with = load(lighter) + weight * pivot.1 + fed;
        if fed_with >= weight * (cpus - capped_before) {
            fed = fed_with;
            open = heavier;
        } else {
            (capped, least, open) = (capped_before + pivot.1, weight, lighter);
        }
    }
    // The lightest where nothing is feasible; between the weights even where rounding leaves no cpus.
    Some((fed / (cpus - capped)).max(lightest).min(least))
}

/// The sums of a [`LoadAggregator`].
///
/// Where there are cpus for all duty, every domain gets its duty, and its load is its duty times the smallest
/// weight: the limit of the loads as the machine empties, so nothing jumps when the last cpu is taken.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LoadLedger {
    ids: Vec<usize>,
    loads: Vec<f64>,
    duties: Vec<f64>,
    load_sum: f64,
    duty_sum: f64,
    effective_max_weight: f64,
}

impl LoadLedger {
    /// Load of all domains, of feasible weights.
    pub fn global_load_sum(&self) -> f64 {
        self.load_sum
    }

    /// Duty cycles of all domains.
    pub fn global_dcycle_sum(&self) -> f64 {
        self.duty_sum
    }

    /// The domains that were made or have load, by rising id; the sums come in this order.
    pub fn dom_ids(&self) -> &[usize] {
        &self.ids
    }

    /// Load of each domain, of feasible weights.
    pub fn dom_load_sums(&self) -> &[f64] {
        &self.loads
    }

    /// Duty cycles of each domain.
    pub fn dom_dcycle_sums(&self) -> &[f64] {
        &self.duties
    }

    /// The effective weight of the heaviest record, and so the cap for the weight of a task before it is compared
    /// with these sums. The largest recorded weight if that is feasible; 0 if there is none.
    pub fn effective_max_weight(&self) -> f64 {
        self.effective_max_weight
    }
}
