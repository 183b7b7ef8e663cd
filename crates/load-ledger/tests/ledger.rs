//! Vectors and laws of the ledger of loads.

use proptest::prelude::*;
use windlass_load_ledger::{LoadAggregator, LoadLedger};

/// Domain, weight, duty cycle.
type Record = (usize, usize, f64);

fn aggregator(cpus: usize, records: &[Record]) -> LoadAggregator {
    let mut aggregator = LoadAggregator::new(cpus, false);
    for (domain, weight, duty) in records {
        aggregator.record_dom_load(*domain, *weight, *duty).unwrap();
    }
    aggregator
}

fn ledger(cpus: usize, records: &[Record]) -> LoadLedger {
    aggregator(cpus, records).calculate()
}

/// One domain for each weight and duty cycle.
fn each(pairs: &[(usize, f64)]) -> Vec<Record> {
    pairs.iter().enumerate().map(|(domain, (weight, duty))| (domain, *weight, *duty)).collect()
}

/// Equal but for rounding.
fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs()
}

#[track_caller]
fn is(ledger: &LoadLedger, load: f64, duty: f64, max_weight: f64, loads: &[f64]) {
    assert!(near(ledger.global_load_sum(), load), "load {}", ledger.global_load_sum());
    assert!(near(ledger.global_dcycle_sum(), duty), "duty {}", ledger.global_dcycle_sum());
    assert!(near(ledger.effective_max_weight(), max_weight), "weight {}", ledger.effective_max_weight());
    assert_eq!(ledger.dom_load_sums().len(), loads.len());
    for (is, load) in ledger.dom_load_sums().iter().zip(loads) {
        assert!(near(*is, *load), "loads {:?}", ledger.dom_load_sums());
    }
}

/// Equal domains of weight 1 and one of weight 10,000.
fn one_heavy(light: usize) -> Vec<Record> {
    let mut pairs = vec![(1, 1.0); light];
    pairs.push((10000, 1.0));
    each(&pairs)
}

#[test]
fn the_example_of_65_domains() {
    let ledger = ledger(32, &one_heavy(64));
    let mut loads = vec![1.0; 64];
    loads.push(2.064516129032258);
    is(&ledger, 66.06451612903226, 65.0, 64.0 / 31.0, &loads);
    assert_eq!(ledger.dom_dcycle_sums(), [1.0; 65]);
}

#[test]
fn the_primer() {
    let mut loads = vec![1.0; 7];
    loads.push(7.0 / 3.0);
    is(&ledger(4, &one_heavy(7)), 9.333333333333334, 8.0, 2.3333333333333335, &loads);
}

#[test]
fn heavy_weights_that_are_feasible_stay() {
    // Its duty is more than the machine has: it can use all that its weight gives it.
    is(&ledger(4, &each(&[(1, 1.0), (1, 1.0), (10000, 5.0)])), 50002.0, 7.0, 10000.0, &[1.0, 1.0, 50000.0]);
    // Repaired: the largest weight was said to be 10000 though there is none above 100.
    is(&ledger(4, &[(0, 100, 8.0)]), 800.0, 8.0, 100.0, &[800.0]);
    is(&ledger(4, &each(&[(100, 2.0), (100, 3.0), (100, 1.0)])), 600.0, 6.0, 100.0, &[200.0, 300.0, 100.0]);
    // Repaired: it was said to be 10000 though 20000 is feasible.
    is(&ledger(4, &each(&[(20000, 8.0), (1, 1.0)])), 160001.0, 9.0, 20000.0, &[160000.0, 1.0]);
}

#[test]
fn infeasible_weights() {
    let four = each(&[(100, 1.0), (200, 1.0), (300, 1.0), (400, 1.0)]);
    is(&ledger(4, &four), 400.0, 4.0, 100.0, &[100.0; 4]);
    let heavy = each(&[(1_000_000, 1.0), (50, 3.0), (1, 3.0)]);
    is(&ledger(4, &heavy), 204.0, 7.0, 51.0, &[51.0, 150.0, 3.0]);
    // Repaired: the load of the feasible was what was left of a difference, which was 0, and all stayed raw.
    let widest = each(&[(usize::MAX, 1.0), (1, 4.0)]);
    is(&ledger(4, &widest), 4.0 + 4.0 / 3.0, 5.0, 4.0 / 3.0, &[4.0 / 3.0, 4.0]);
    // And a weight just below the level is feasible.
    let below = each(&[(10, 1.0), (2, 2.0), (1, 2.0003)]);
    is(&ledger(4, &below), 8.0004, 5.0003, 2.0001, &[2.0001, 4.0, 2.0003]);
    // Repaired: a weight less than 0.0001 above the level counted as feasible, and the level was 1.99995.
    is(
        &ledger(4, &each(&[(2, 2.5), (1, 2.9998)])),
        4.0 * 2.9998 / 1.5,
        5.4998,
        2.9998 / 1.5,
        &[2.5 * 2.9998 / 1.5, 2.9998],
    );
}

#[test]
fn the_level_is_below_what_is_infeasible_even_where_no_cpus_seem_to_be_left() {
    // The two heavy ones leave 2^-52 of a cpu, which their sum rounds away: the rest seems to have none.
    let heavy = each(&[(1 << 41, 1_048_575.0), (1 << 40, 1.0 - f64::EPSILON), (1, 1.0 / 1_048_576.0)]);
    assert_eq!(ledger(1 << 20, &heavy).effective_max_weight(), (1u64 << 40) as f64);
}

#[test]
fn where_all_get_what_they_can_use_loads_go_by_duty() {
    // Repaired, all: raw loads were given, by which the heavy one was due cpus that it cannot use, and 10000 as
    // the largest weight; loads then jumped when the last cpu was taken.
    is(&ledger(32, &one_heavy(4)), 5.0, 5.0, 1.0, &[1.0; 5]);
    let four = each(&[(100, 1.0), (200, 1.0), (300, 1.0), (400, 1.0)]);
    is(&ledger(8, &four), 400.0, 4.0, 100.0, &[100.0; 4]);
    is(&ledger(4, &[(0, 100, 1.0)]), 100.0, 1.0, 100.0, &[100.0]);
    // Nothing jumps: just below and just above four cpus' worth.
    let pairs = |duty| each(&[(1, duty), (10000, 2.0)]);
    let (below, above) = (ledger(4, &pairs(2.0 - 1e-9)), ledger(4, &pairs(2.0 + 1e-9)));
    assert!((below.global_load_sum() - above.global_load_sum()).abs() < 1e-8);
}

#[test]
fn without_load() {
    // With nothing recorded the weight is absent, not 10000.
    is(&ledger(4, &[]), 0.0, 0.0, 0.0, &[]);
    is(&ledger(4, &each(&[(1, 0.0), (10000, 0.0)])), 0.0, 0.0, 10000.0, &[0.0, 0.0]);
    // What has no duty does not count for the level.
    is(&ledger(4, &each(&[(1, 0.0), (100, 2.0), (300, 1.0)])), 300.0, 3.0, 100.0, &[0.0, 200.0, 100.0]);
}

#[test]
fn sums_keep_the_ids_of_their_domains() {
    // Repaired: sums were said to be indexed by id.
    let mut aggregator = aggregator(4, &[(9, 100, 2.0), (3, 1, 3.0)]);
    is(&aggregator.calculate(), 6.0, 5.0, 1.5, &[3.0, 3.0]);
    aggregator.init_domain(7);
    aggregator.init_domain(9);
    aggregator.init_domain(12);
    let ledger = aggregator.calculate();
    assert_eq!(ledger.dom_ids(), [3, 7, 9, 12]);
    assert_eq!(ledger.dom_dcycle_sums(), [3.0, 0.0, 2.0, 0.0]);
    is(&ledger, 6.0, 5.0, 1.5, &[3.0, 0.0, 3.0, 0.0]);
}

#[test]
fn a_domain_has_several_weights() {
    // The example of the crate's text: two tasks of weight 1 in one domain, another of 100 in the next.
    let ledger = ledger(2, &[(0, 1, 2.0), (1, 1, 1.0), (1, 100, 1.0)]);
    is(&ledger, 6.0, 4.0, 3.0, &[2.0, 4.0]);
    assert_eq!(ledger.dom_dcycle_sums(), [2.0, 2.0]);
}

#[test]
fn only_duty_cycles() {
    // Repaired: loads were weighted though only duty cycles were asked for.
    let mut aggregator = LoadAggregator::new(4, true);
    aggregator.record_dom_load(0, 100, 3.0).unwrap();
    aggregator.record_dom_load(1, 10000, 2.0).unwrap();
    is(&aggregator.calculate(), 5.0, 5.0, 1.0, &[3.0, 2.0]);
}

#[test]
fn what_is_refused_leaves_no_trace() {
    // Repaired: a refused duplicate replaced the duty but not the sums.
    let mut aggregator = aggregator(2, &[(0, 10, 1.0), (1, 7, 2.0), (0, 5, 0.5)]);
    let before = aggregator.clone();
    let mut refused = |domain, weight, duty| {
        let error = aggregator.record_dom_load(domain, weight, duty).unwrap_err().to_string();
        assert_eq!(aggregator, before, "{error}");
        error
    };
    assert_eq!(
        refused(0, 10, 7.0),
        "domain 0 has load of weight 10 already; record the sum of its duty cycles once"
    );
    assert_eq!(
        refused(1, 7, 7.0),
        "domain 1 has load of weight 7 already; record the sum of its duty cycles once"
    );
    assert_eq!(
        refused(0, 5, 7.0),
        "domain 0 has load of weight 5 already; record the sum of its duty cycles once"
    );
    assert_eq!(refused(3, 0, 1.0), "domain 3: weight 0 is less than 1; leave out what must not count");
    for duty in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e10] {
        let expected = format!("domain 4, weight 2: duty cycle {duty} is not a number from 0 to 1000000000");
        assert_eq!(refused(4, 2, duty), expected);
    }

    let mut duplicate = self::aggregator(2, &[(0, 10, 1.0)]);
    duplicate.record_dom_load(0, 10, 7.0).unwrap_err();
    duplicate.record_dom_load(1, 1, 5.0).unwrap();
    is(&duplicate.calculate(), 10.0, 6.0, 5.0, &[5.0, 5.0]);
}

#[test]
fn a_machine_without_cpus_takes_no_load() {
    // Repaired: the level was a division by 0, or NaN.
    let mut none = LoadAggregator::new(0, false);
    let error = none.record_dom_load(3, 1, 1.0).unwrap_err().to_string();
    assert_eq!(error, "domain 3: there are 0 cpus to divide; give LoadAggregator::new at least 1");
    is(&none.calculate(), 0.0, 0.0, 0.0, &[]);
    none.init_domain(3);
    is(&none.calculate(), 0.0, 0.0, 0.0, &[0.0]);
}

#[test]
fn an_aggregator_goes_on_after_a_calculation() {
    // Repaired: a calculation replaced the sum of loads, and the next went on from that.
    let mut records = one_heavy(7);
    let mut aggregator = aggregator(4, &records);
    let first = aggregator.calculate();
    assert_eq!(aggregator.calculate(), first);
    aggregator.record_dom_load(8, 5000, 1.0).unwrap();
    records.push((8, 5000, 1.0));
    let second = aggregator.calculate();
    is(&second, 14.0, 9.0, 3.5, &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.5, 3.5]);
    assert_eq!(second, ledger(4, &records));
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let weight = prop::sample::select(vec![1usize, 2, 3, 100, 10_000]);
    let duties = prop::collection::btree_map((0usize..6, weight), 0u32..80, 0..20);
    duties
        .prop_map(|duties| duties.into_iter().map(|((d, w), duty)| (d, w, f64::from(duty) / 16.0)).collect())
}

proptest! {
    #[test]
    fn weights_above_the_level_are_the_infeasible_ones(cpus in 1usize..20, records in records()) {
        let ledger = ledger(cpus, &records);
        let level = ledger.effective_max_weight();
        let cpus = cpus as f64;
        let duty: f64 = records.iter().map(|record| record.2).sum();
        let used: Vec<Record> = records.into_iter().filter(|record| record.2 > 0.0).collect();
        let load: f64 = used.iter().map(|(_, weight, duty)| (*weight as f64).min(level) * duty).sum();
        prop_assert!(near(ledger.global_load_sum(), load) && near(ledger.global_dcycle_sum(), duty));
        if duty <= cpus {
            prop_assert!(used.iter().all(|record| record.1 as f64 >= level), "all are infeasible");
        } else if used.iter().any(|record| record.1 as f64 > level) {
            // Who is above the level gets its duty exactly: there is as much load as the level for each cpu.
            prop_assert!(near(load, level * cpus));
        } else {
            prop_assert!(load >= level * cpus * (1.0 - 1e-12), "the heaviest is infeasible, too");
        }
    }

    #[test]
    fn no_order_of_records_gives_other_sums(
        (records, shuffled) in records().prop_flat_map(|records| (Just(records.clone()), Just(records).prop_shuffle())),
    ) {
        prop_assert_eq!(ledger(3, &records), ledger(3, &shuffled));
    }
}

#[test]
fn thousands_of_domains_in_any_order() {
    let rising: Vec<Record> = (0..5_000).map(|domain| (domain, 1 + domain * 7 % 100, 0.5)).collect();
    let expected = ledger(100, &rising);
    assert!(expected.dom_ids().iter().copied().eq(0..5_000));
    // 3,331 is prime to 5,000, so this visits each once.
    let strewn: Vec<Record> = (0..5_000).map(|step| rising[step * 3_331 % 5_000]).collect();
    let mut aggregator = aggregator(100, &strewn);
    assert_eq!(aggregator.calculate(), expected);
    for (domain, weight, duty) in rising {
        assert!(aggregator.record_dom_load(domain, weight, duty).is_err(), "{domain} was recorded twice");
    }
    assert_eq!(aggregator.calculate(), expected);
}
