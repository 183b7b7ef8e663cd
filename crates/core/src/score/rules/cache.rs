//! Where inputs are: in caches, and in what earlier tasks left behind.

use super::{known, share, unit};
use crate::job::Kind;
use crate::score::context::Pair;
use crate::score::rule::{Contribution, ScoreRule};
use crate::score::weights;
use crate::score::windows::Metric;

/// Points for cache keys that the worker need not fetch.
pub struct MissingPaths;

impl ScoreRule for MissingPaths {
    fn name(&self) -> &'static str {
        "MissingPathsRule"
    }

    fn description(&self) -> &'static str {
        "Prefers steps of which the worker lacks few cache keys, relative to what steps lack in the mean."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::MISSING_PATHS)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        let Some(missing) = pair.missing else {
            return Contribution::none("the worker has not said what its caches hold");
        };
        if missing.keys == 0 {
            return Contribution::points(weights::MISSING_PATHS, "no key is missing");
        }
        let mean = known(pair.instance.windows[Metric::MissingKeys].w1h).unwrap_or(weights::MISSING_KEYS);
        let lacks = share(f64::from(missing.keys), 2.0 * mean);
        Contribution::points(weights::MISSING_PATHS * (1.0 - lacks), "some keys are missing")
    }
}

/// Points for bytes that the worker need not fetch.
pub struct MissingNarSize;

impl ScoreRule for MissingNarSize {
    fn name(&self) -> &'static str {
        "MissingNarSizeRule"
    }

    fn description(&self) -> &'static str {
        "Prefers steps for which the worker has few bytes to fetch, relative to what is fetched in the mean."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::MISSING_BYTES)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        let Some(missing) = pair.missing else {
            return Contribution::none("the worker has not said what its caches hold");
        };
        if missing.bytes == 0 {
            return Contribution::points(weights::MISSING_BYTES, "nothing is to be fetched");
        }
        const MIB: f64 = 1024.0 * 1024.0;
        let mean = known(pair.instance.windows[Metric::MissingBytes].w1h);
        let mean = mean.unwrap_or(weights::MISSING_MIB * MIB);
        let fetches = share(missing.bytes as f64, 2.0 * mean);
        Contribution::points(weights::MISSING_BYTES * (1.0 - fetches), "some bytes are to be fetched")
    }
}

/// Holds a build for a while as long as the worker has not said what its caches hold.
pub struct RescoreWait;

impl ScoreRule for RescoreWait {
    fn name(&self) -> &'static str {
        "RescoreWaitRule"
    }

    fn description(&self) -> &'static str {
        "Holds a build that reads caches from a worker that has not said what its caches hold, for at most \
         20 seconds since the build was ready."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, 0.0)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if pair.missing.is_some() {
            return Contribution::none("what is missing is known");
        }
        if pair.job.kind == Kind::Evaluation {
            return Contribution::none("evaluations do not wait for it");
        }
        if pair.job.waited_ms >= weights::UNKNOWN_CACHE_HOLD_MS {
            return Contribution::none("waited long enough for what the caches hold");
        }
        Contribution::hold("the worker has not said yet what its caches hold")
    }
}

/// Points for a step that prefers to run where its inputs are, where they are.
pub struct PreferLocalBuild;

impl ScoreRule for PreferLocalBuild {
    fn name(&self) -> &'static str {
        "PreferLocalBuildRule"
    }

    fn description(&self) -> &'static str {
        "Prefers, for steps marked prefer-local, workers that hold what they read; less with each key missing."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::PREFER_LOCAL)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if !pair.job.prefer_local {
            return Contribution::none("not marked prefer-local");
        }
        let Some(missing) = pair.missing else {
            return Contribution::none("the worker has not said what its caches hold");
        };
        if missing.keys == 0 {
            return Contribution::points(weights::PREFER_LOCAL, "all that it reads is here");
        }
        let mean = known(pair.instance.windows[Metric::MissingKeys].w1h).filter(|mean| *mean > 0.0);
        // Without a mean the points end where the slope says.
        let knee = mean.map_or(weights::PREFER_LOCAL / weights::PREFER_LOCAL_SLOPE, |mean| 2.0 * mean);
        let lacks = share(f64::from(missing.keys), knee);
        Contribution::points(weights::PREFER_LOCAL * (1.0 - lacks), "some of what it reads is not here")
    }
}

/// Points for a worker that runs the step now.
pub struct LiveLocality;

impl ScoreRule for LiveLocality {
    fn name(&self) -> &'static str {
        "LiveLocalityRule"
    }

    fn description(&self) -> &'static str {
        "Prefers a worker that runs tasks of the same step now: what they share is loaded there."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::LIVE_LOCALITY)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if pair.step_cpu > 0 {
            Contribution::points(weights::LIVE_LOCALITY, "the step runs here now")
        } else {
            Contribution::none("the step does not run here")
        }
    }
}

/// Points for what earlier tasks of the kind left in the worker's caches.
pub struct CacheWarmth;

impl ScoreRule for CacheWarmth {
    fn name(&self) -> &'static str {
        "CacheWarmthRule"
    }

    fn description(&self) -> &'static str {
        "Prefers a worker that ran tasks of the kind; less with each other task booked there since, however \
         long ago."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::WARMTH)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        let warmth = unit(pair.warmth);
        if warmth > 0.0 {
            Contribution::points(weights::WARMTH * warmth, "tasks of the kind ran here")
        } else {
            Contribution::none("no trace of such tasks is left here")
        }
    }
}

/// Less than a point for keys at hand: among workers that are otherwise equal the one with most of them.
pub struct CacheHits;

impl ScoreRule for CacheHits {
    fn name(&self) -> &'static str {
        "CacheHitsRule"
    }

    fn description(&self) -> &'static str {
        "Prefers, among workers with as much free memory, the one that has most of the cache keys which the \
         step reads."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, 1.0)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        match pair.missing {
            None => Contribution::none("the worker has not said what its caches hold"),
            Some(missing) => Contribution::points(
                1.0 / (1.0 + f64::from(missing.keys)),
                "one over one more than the keys that are missing",
            ),
        }
    }
}
