//! What queues are entitled to: in strict bands, and by weighted max-min inside a band.

use crate::kit::{Farm, GIB, cores, set_queue, spec, step};
use windlass_core::Resources;
use windlass_core::engine::Settings;
use windlass_core::explain::{Entitlement, entitlements};
use windlass_core::queues::QueueRecord;

/// A farm of one worker, and steps of one-core tasks in queues with bands and weights.
fn farm(cpus: u32, queues: &[(&str, u8, u32, u32)]) -> Farm {
    let mut farm = Farm::with_workers(Settings::default(), [Resources::new(cpus * 100, 64 * GIB)]);
    for (name, band, weight, tasks) in queues {
        let named = QueueRecord::named(name);
        farm.tell(set_queue(QueueRecord { band: Some(*band), weight: *weight, ..named }));
        farm.submit(spec(name, [step(*tasks, cores(1))]));
    }
    farm
}

/// Cpus wanted, cpus due, and the weight that counts.
#[track_caller]
fn of(farm: &Farm, queue: &str, expected: (u64, f64, Option<f64>)) {
    let id = farm.engine.queues().id(queue).unwrap();
    let own = entitlements(&farm.engine).into_iter().find(|own| own.queue == id).unwrap();
    let Entitlement { demand_cpu, entitled_cpu, effective_weight, .. } = own;
    assert_eq!((demand_cpu / 100, entitled_cpu / 100.0, effective_weight), expected, "{queue}");
}

#[test]
fn a_weight_of_more_than_the_queue_can_use_counts_as_less() {
    let farm = farm(8, &[("heavy", 3, 10_000, 2), ("a", 3, 100, 50), ("b", 3, 200, 50)]);
    // Six cpus are shared by weights of 300 together, so two cpus are what a weight of 100 gives.
    of(&farm, "heavy", (2, 2.0, Some(100.0)));
    of(&farm, "a", (50, 2.0, Some(100.0)));
    of(&farm, "b", (50, 4.0, Some(200.0)));
}

#[test]
fn where_there_is_enough_no_weight_makes_a_difference() {
    let farm = farm(8, &[("a", 3, 100, 3), ("b", 3, 200, 4)]);
    of(&farm, "a", (3, 3.0, None));
    of(&farm, "b", (4, 4.0, None));
}

#[test]
fn a_band_has_what_higher_bands_leave() {
    let mut farm =
        farm(8, &[("first", 5, 1, 6), ("a", 3, 300, 50), ("b", 3, 100, 50), ("last", 1, 10_000, 1)]);
    of(&farm, "first", (6, 6.0, None));
    of(&farm, "a", (50, 1.5, Some(300.0)));
    of(&farm, "b", (50, 0.5, Some(100.0)));
    of(&farm, "last", (1, 0.0, Some(10_000.0)));
    // A paused queue claims what its tasks hold, and a quota caps a claim.
    let named = QueueRecord::named("a");
    farm.tell(set_queue(QueueRecord { band: Some(3), weight: 300, paused: Some(String::new()), ..named }));
    of(&farm, "a", (2, 1.5, Some(300.0)));
    let named = QueueRecord::named("b");
    farm.tell(set_queue(QueueRecord { band: Some(3), weight: 100, quota_cpu: Some(50), ..named }));
    let id = farm.engine.queues().id("b").unwrap();
    let own = entitlements(&farm.engine).into_iter().find(|own| own.queue == id).unwrap();
    assert_eq!((own.demand_cpu, own.entitled_cpu), (50, 50.0));
}
