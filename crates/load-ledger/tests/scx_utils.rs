//! The examples of the documentation of `scx_utils`, line by line as they are printed there, with this crate in its
//! place.

#![allow(unused_must_use, unused_variables)]

/// Stands for the crate that the examples name.
mod scx_utils {
    pub use windlass_load_ledger::LoadAggregator;
}

/// Stands for the crate `log`: a line is kept for the test.
mod log {
    use std::cell::RefCell;

    thread_local! {
        pub static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    macro_rules! info {
        ($($line:tt)*) => {
            $crate::log::LINES.with_borrow_mut(|lines| lines.push(format!($($line)*)))
        };
    }
    pub(crate) use info;
}

#[test]
fn the_example_of_the_aggregator() {
    use log::info;
    use scx_utils::LoadAggregator;
    let mut aggregator = LoadAggregator::new(32, false);
    aggregator.record_dom_load(0, 1, 1.0);
    aggregator.record_dom_load(1, 1, 1.0);
    // The dots of the text.
    for domain in 2..31 {
        aggregator.record_dom_load(domain, 1, 1.0);
    }
    aggregator.record_dom_load(31, 1, 1.0);
    for domain in 32..63 {
        aggregator.record_dom_load(domain, 1, 1.0);
    }
    aggregator.record_dom_load(63, 1, 1.0);
    aggregator.record_dom_load(64, 10000, 1.0);
    let ledger = aggregator.calculate();
    info!("{}", ledger.global_load_sum());
    assert_eq!(log::LINES.take(), ["66.06451612903226"]);
}

#[test]
fn the_example_of_the_ledger() {
    use log::info;
    use scx_utils::LoadAggregator;
    let mut aggregator = LoadAggregator::new(32, false);
    aggregator.record_dom_load(0, 1, 1.0);
    for domain in 1..63 {
        aggregator.record_dom_load(domain, 1, 1.0);
    }
    aggregator.record_dom_load(63, 1, 1.0);
    aggregator.record_dom_load(64, 10000, 1.0);
    let ledger = aggregator.calculate();
    info!("Global load sum: {}", ledger.global_load_sum());
    info!("Global duty cycle sum: {}", ledger.global_dcycle_sum());
    let dom_dcycles = ledger.dom_dcycle_sums();
    let dom_loads = ledger.dom_dcycle_sums();
    let effective_max_weight = ledger.effective_max_weight();
    assert_eq!(log::LINES.take(), ["Global load sum: 66.06451612903226", "Global duty cycle sum: 65"]);
    assert_eq!((dom_loads.len(), dom_dcycles.len()), (65, 65));
    assert_eq!(effective_max_weight.to_string(), "2.064516129032258");
}

#[test]
fn the_example_of_several_weights() {
    use scx_utils::LoadAggregator;
    let mut aggregator = LoadAggregator::new(2, false);
    aggregator.record_dom_load(0, 1, 2.0);
    aggregator.record_dom_load(1, 1, 1.0);
    aggregator.record_dom_load(1, 100, 1.0);
    let ledger = aggregator.calculate();
    assert_eq!(ledger.dom_load_sums(), [2.0, 4.0]);
    assert_eq!(ledger.dom_dcycle_sums(), [2.0, 2.0]);
}
