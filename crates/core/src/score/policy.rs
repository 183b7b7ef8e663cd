//! Policies: named sets of rules, and how a pair is judged by one.

use super::context::Pair;
use super::rule::{Contribution, ScoreRule};
use super::rules;
use crate::worker::Saturation;
use std::collections::BTreeMap;

/// The policy where none is chosen.
pub const DEFAULT_POLICY: &str = "resource-aware";

/// Names of all policies.
pub const POLICIES: [&str; 4] = ["simple", "resource-aware", "pressure", "packing"];

/// A way to judge pairs of step and worker.
pub trait ScoringPolicy: Send + Sync {
    /// Its name, as in the settings.
    fn name(&self) -> &'static str;

    /// Its rules, in the order in which they are asked.
    fn rules(&self) -> &'static [&'static dyn ScoreRule];

    /// The sum of all points, or the first veto. No points outweigh a veto.
    fn score(&self, pair: &Pair) -> Verdict {
        let mut total = 0.0;
        for rule in self.rules() {
            match rule.contribution(pair) {
                Contribution::Points { value, .. } => total += value,
                Contribution::Veto { reason } => return Verdict::Vetoed { rule: rule.name(), reason },
            }
        }
        Verdict::Score(total)
    }

    /// What each rule says. It allocates: for the winner and some runners-up.
    fn detail(&self, pair: &Pair) -> Breakdown {
        let rules: Vec<_> = self.rules().iter().map(|rule| (rule.name(), rule.contribution(pair))).collect();
        let total = rules.iter().fold(0.0, |total, (_, contribution)| total + contribution.value());
        Breakdown { rules, total }
    }
}

/// How a pair is judged.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum Verdict {
    /// It ranks by its points; more is better.
    Score(f64),
    /// It must not be.
    Vetoed {
        /// The rule that holds it.
        rule: &'static str,
        reason: &'static str,
    },
}

/// How a pair is judged, rule by rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Breakdown {
    /// Each rule's name and what it says, in the policy's order.
    pub rules: Vec<(&'static str, Contribution)>,
    /// The sum of all points.
    pub total: f64,
}

impl Breakdown {
    /// The rules that hold the pair, with their reasons.
    pub fn holds(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.rules.iter().filter_map(|(rule, contribution)| match contribution {
            Contribution::Veto { reason } => Some((*rule, *reason)),
            Contribution::Points { .. } => None,
        })
    }
}

/// A policy that is a name and a list of rules.
struct RulePolicy {
    name: &'static str,
    rules: &'static [&'static dyn ScoreRule],
    score: fn(&Pair) -> Verdict,
}

impl ScoringPolicy for RulePolicy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rules(&self) -> &'static [&'static dyn ScoreRule] {
        self.rules
    }

    fn score(&self, pair: &Pair) -> Verdict {
        (self.score)(pair)
    }
}

/// A policy of these rules in this order. Its `score` is that of the trait, but one function, in which the
/// compiler sees that reasons of points are not asked for.
macro_rules! policy {
    ($name:literal, $($rule:expr),+ $(,)?) => {{
        fn score(pair: &Pair) -> Verdict {
            let mut total = 0.0;
            $(match $rule.contribution(pair) {
                Contribution::Points { value, .. } => total += value,
                Contribution::Veto { reason } => return Verdict::Vetoed { rule: $rule.name(), reason },
            })+
            Verdict::Score(total)
        }
        RulePolicy { name: $name, rules: &[$(&$rule),+], score }
    }};
}

// Rules that can hold come first, so that a pair that is held costs little.

static SIMPLE: RulePolicy = policy!(
    "simple",
    rules::RescoreWait,
    rules::MissingPaths,
    rules::MissingNarSize,
    rules::DependencyCount,
    rules::WaitTime,
    rules::BuiltinDeprioritize,
    rules::ReserveFetchWorkers,
);

static RESOURCE_AWARE: RulePolicy = policy!(
    "resource-aware",
    rules::ResourceSaturation,
    rules::RescoreWait,
    rules::MissingPaths,
    rules::MissingNarSize,
    rules::DependencyCount,
    rules::WaitTime,
    rules::BuiltinDeprioritize,
    rules::ReserveFetchWorkers,
    rules::ResourceFit,
    rules::PreferLocalBuild,
    rules::NetworkAffinity,
    rules::DiskAffinity,
    rules::LiveLocality,
    rules::CacheWarmth,
    rules::Spread,
);

// What others use of the cores is in the load: a veto for it would keep a farm idle that others use all of.
static PRESSURE: RulePolicy =
    policy!("pressure", rules::MemorySaturation, rules::LowPressure, rules::WaitTime);

/// The policy of steps for another system's executors, whatever the farm's is: most free memory first, then most
/// cache keys at hand.
pub static FREE_MEMORY: &dyn ScoringPolicy = {
    static POLICY: RulePolicy = policy!("free-memory", rules::FreeMemory, rules::CacheHits);
    &POLICY
};

macro_rules! packing {
    ($cores:literal, $memory:literal) => {{
        const PACKING: rules::Packing =
            rules::Packing { saturation: Saturation { cores: $cores, memory: $memory } };
        static POLICY: RulePolicy = policy!("packing", rules::ResourceSaturation, PACKING, rules::WaitTime);
        &POLICY
    }};
}

/// The policy `packing`; what `saturation` names is filled where it is fullest instead of spread.
pub fn packing(saturation: Saturation) -> &'static dyn ScoringPolicy {
    match (saturation.cores, saturation.memory) {
        (false, false) => packing!(false, false),
        (true, false) => packing!(true, false),
        (false, true) => packing!(false, true),
        (true, true) => packing!(true, true),
    }
}

/// The policy of this name, and whether it is known. An unknown name gives the default: the caller warns.
pub fn policy_by_name(name: &str) -> (&'static dyn ScoringPolicy, bool) {
    match name {
        "simple" => (&SIMPLE, true),
        "resource-aware" => (&RESOURCE_AWARE, true),
        "pressure" => (&PRESSURE, true),
        "packing" => (packing(Saturation::default()), true),
        _ => (&RESOURCE_AWARE, false),
    }
}

/// Name and description of every rule of every policy, each once, by name.
pub fn rule_catalog() -> Vec<(&'static str, &'static str)> {
    let policies = POLICIES.map(|name| policy_by_name(name).0);
    let rules = policies.iter().chain([&FREE_MEMORY]).flat_map(|policy| policy.rules());
    let catalog: BTreeMap<_, _> = rules.map(|rule| (rule.name(), rule.description())).collect();
    catalog.into_iter().collect()
}

/// The best of some pairs that are not held: most points, then least load, then smallest key.
pub fn winner<'a, K: Ord>(
    policy: &dyn ScoringPolicy,
    pairs: impl IntoIterator<Item = (K, Pair<'a>)>,
) -> Option<(K, f64)> {
    let mut best: Option<(K, f64, f64)> = None;
    for (key, pair) in pairs {
        let Verdict::Score(score) = policy.score(&pair) else { continue };
        let better = best.as_ref().is_none_or(|(best_key, most, load)| {
            let by_load = || pair.load.total_cmp(load).then_with(|| key.cmp(best_key));
            most.total_cmp(&score).then_with(by_load).is_lt()
        });
        if better {
            best = Some((key, score, pair.load));
        }
    }
    best.map(|(key, score, _)| (key, score))
}
