//! Workers that suit some steps better than others, and are kept for them.

use super::{known, share};
use crate::job::Kind;
use crate::score::context::Pair;
use crate::score::rule::{Contribution, ScoreRule};
use crate::score::weights;
use crate::score::windows::Metric;

/// Points for builds that need an architecture, and for those that need none where nothing else can run.
pub struct BuiltinDeprioritize;

impl ScoreRule for BuiltinDeprioritize {
    fn name(&self) -> &'static str {
        "BuiltinDeprioritizeRule"
    }

    fn description(&self) -> &'static str {
        "Prefers builds that need an architecture on workers that have one, and leaves the others to workers \
         that have none."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::ARCHLESS_WORKER)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        match (pair.job.kind, pair.job.has_arch, pair.worker.has_arch) {
            (Kind::Evaluation, ..) => Contribution::none("an evaluation"),
            (Kind::Build, true, _) => Contribution::points(weights::ARCH, "it needs an architecture"),
            (Kind::Build, false, true) => Contribution::none("it needs no architecture"),
            (Kind::Build, false, false) => {
                Contribution::points(weights::ARCHLESS_WORKER, "neither needs an architecture")
            }
        }
    }
}

/// Points off for evaluations that fetch nothing on workers that fetch, the more the fewer are idle.
pub struct ReserveFetchWorkers;

impl ScoreRule for ReserveFetchWorkers {
    fn name(&self) -> &'static str {
        "ReserveFetchWorkersRule"
    }

    fn description(&self) -> &'static str {
        "Keeps workers that fetch for evaluations that need it, unless workers stand idle."
    }

    fn range(&self) -> (f64, f64) {
        (weights::RESERVE_FETCH, 0.0)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if pair.job.kind != Kind::Evaluation || pair.job.fetches || !pair.worker.fetches {
            return Contribution::none("nothing to keep the worker for");
        }
        let farm = pair.instance;
        let idle = share(f64::from(farm.idle_workers), f64::from(farm.total_workers));
        Contribution::points(weights::RESERVE_FETCH * (1.0 - idle), "the worker is kept for what must fetch")
    }
}

/// Points for network-bound steps on fast networks.
pub struct NetworkAffinity;

impl ScoreRule for NetworkAffinity {
    fn name(&self) -> &'static str {
        "NetworkAffinityRule"
    }

    fn description(&self) -> &'static str {
        "Prefers workers with a fast network for steps marked network-bound, relative to the farm's mean."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::NETWORK)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if !pair.job.network_bound {
            return Contribution::none("not marked network-bound");
        }
        let Some(speed) = known(pair.worker.network_mbit_s) else {
            return Contribution::none("the speed of the worker's network is not known");
        };
        let mean = known(pair.instance.windows[Metric::NetworkMbitS].w24h);
        let value = weights::NETWORK * share(speed, mean.unwrap_or(weights::NETWORK_MBIT_S));
        Contribution::points(value, "the worker's network, by the farm's mean")
    }
}

/// Points for steps that read and write much on fast disks.
pub struct DiskAffinity;

impl ScoreRule for DiskAffinity {
    fn name(&self) -> &'static str {
        "DiskAffinityRule"
    }

    fn description(&self) -> &'static str {
        "Prefers workers with fast disks for steps whose tasks read and wrote more than most."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::DISK)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        let Some(bytes) = pair.job.prediction.as_ref().and_then(|prediction| prediction.disk_bytes) else {
            return Contribution::none("how much it reads and writes is not known");
        };
        let Some(speed) = known(pair.worker.disk_mb_s) else {
            return Contribution::none("the speed of the worker's disks is not known");
        };
        let mean = known(pair.instance.windows[Metric::DiskBytes].w24h).unwrap_or(weights::DISK_BYTES);
        if bytes < mean {
            return Contribution::none("it reads and writes little");
        }
        // Its booking fills no worker, so all of them would crowd on the fastest disk.
        if pair.job.has_jobserver {
            return Contribution::none("it goes where its share of the cpus is largest");
        }
        Contribution::points(
            weights::DISK * share(speed, weights::DISK_MB_S),
            "the speed of the worker's disks",
        )
    }
}

/// Points off for a step that holds its part of a worker while others wait.
pub struct Spread;

impl ScoreRule for Spread {
    fn name(&self) -> &'static str {
        "SpreadRule"
    }

    fn description(&self) -> &'static str {
        "Keeps one step from holding more than a quarter of a worker's cores while other steps wait for it."
    }

    fn range(&self) -> (f64, f64) {
        (weights::SPREAD, 0.0)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if !pair.others_wait {
            return Contribution::none("no other step waits");
        }
        let after = f64::from(pair.step_cpu) + f64::from(pair.job.request.cpu);
        let part = f64::from(pair.worker.capacity.cpu) * weights::SPREAD_SHARE;
        // The first task has to go somewhere, and may be larger than the part.
        if pair.step_cpu == 0 || after <= part {
            return Contribution::none("the step holds little of this worker");
        }
        Contribution::points(weights::SPREAD, "the step holds its part of this worker, and others wait")
    }
}
