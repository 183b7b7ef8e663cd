//! Messages of workers become values of the core, are ignored or refused, and never cause a panic.

use proptest::prelude::*;
use prost::Message as _;
use windlass_api::wire::{
    Amounts, Attribute, BadMessage, Finished, FromWorker, Held, Hello, Inventory, Order, TEXT_BYTES_MAX,
    Task, finished, order, report,
};
use windlass_core::bounds::{ATTRIBUTE_VALUES_MAX, ATTRIBUTES_MAX, HELD_MAX, WORKER_AMOUNTS_MAX};
use windlass_core::engine::{BadHello, CheckedHello, HeldPhase};
use windlass_core::job::End;

/// Converts a message as the server does.
fn convert(message: FromWorker) {
    for what in message.reports.into_iter().filter_map(|report| report.what) {
        match what {
            report::What::Hello(hello) => {
                _ = hello.into_core().map(|hello| CheckedHello::of_agent(hello, &[]))
            }
            report::What::Beat(beat) => _ = beat.inventory.unwrap_or_default().into_core(),
            report::What::Finished(finished) => _ = finished.result(),
            _ => {}
        }
    }
}

fn hello() -> Hello {
    Hello {
        name: "w1".to_owned(),
        identity: 1,
        incarnation: 1,
        capacity: Some(Amounts { cpu: 100, ..Amounts::default() }),
        ..Hello::default()
    }
}

fn ends() -> impl Strategy<Value = Option<finished::End>> {
    prop_oneof![
        Just(None),
        any::<i32>().prop_map(|code| Some(finished::End::Exited(code))),
        any::<i32>().prop_map(|signal| Some(finished::End::Signaled(signal))),
        ".{0,3000}".prop_map(|why| Some(finished::End::NotStarted(why))),
        ".{0,3000}".prop_map(|why| Some(finished::End::OutputsLost(why))),
        any::<i32>().prop_map(|other| Some(finished::End::Other(other))),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(message) = FromWorker::decode(&*bytes) {
            convert(message);
        }
    }

    #[test]
    fn any_inventory_is_taken_or_refused(seq in any::<u64>(), phases in prop::collection::vec(any::<i32>(), 0..20)) {
        let (count, known) = (phases.len(), phases.iter().filter(|phase| (1..=4).contains(*phase)).count());
        let held = phases.into_iter().map(|phase| Held { task: Some(Task::default()), phase, started: u64::MAX });
        match (Inventory { seq, held: held.collect() }).into_core() {
            Ok(inventory) => {
                let unknown = inventory.held.iter().filter(|held| held.phase == HeldPhase::Unknown).count();
                prop_assert_eq!((inventory.seq, inventory.held.len()), (seq, count), "all are there");
                prop_assert_eq!(unknown, count - known);
            }
            Err(why) => prop_assert_eq!(why, BadMessage::Seq(seq)),
        }
    }

    #[test]
    fn every_end_is_an_end(end in ends(), message in proptest::option::of(".{0,3000}")) {
        let result = Finished { end: end.clone(), message, ..Finished::default() }.result();
        prop_assert!(result.message.is_none_or(|text| text.len() <= TEXT_BYTES_MAX));
        match (end, result.end) {
            (Some(finished::End::Exited(code)), end) => prop_assert_eq!(end, End::Exited(code)),
            (Some(finished::End::Signaled(signal)), end) => prop_assert_eq!(end, End::Signaled(signal)),
            (Some(finished::End::OutputsLost(_)), End::OutputsLost { why, .. })
            | (_, End::NotStarted { why, .. }) => prop_assert!(why.len() <= TEXT_BYTES_MAX),
            (Some(finished::End::Other(1..=5)), _) => {}
            (end, is) => prop_assert!(false, "{:?} became {:?}", end, is),
        }
    }

    #[test]
    fn the_size_of_an_order_is_what_it_takes(job in any::<u64>(), body in prop::collection::vec(any::<u8>(), 0..99)) {
        let body = windlass_api::wire::Body { job, step: 1, body, user: "ann".to_owned() };
        let order = Order::plain(order::What::Body(body));
        prop_assert_eq!(order.bytes(), order.encode_to_vec().len());
    }
}

#[test]
fn a_worker_without_cpus_is_refused() {
    let none = Hello { capacity: Some(Amounts::default()), ..hello() };
    let none = CheckedHello::of_agent(none.into_core().unwrap(), &[]);
    assert_eq!(none, Err(BadHello::NoCpus));
}

#[test]
fn a_hello_has_limits() {
    assert!(hello().into_core().is_ok());
    let attribute = |key: usize, values: usize| Attribute {
        key: key.to_string(),
        values: (0..values).map(|n| n.to_string()).collect(),
    };
    let custom = (0..=WORKER_AMOUNTS_MAX).map(|n| (n.to_string(), 1)).collect();
    let too_much = [
        Hello { attributes: (0..=ATTRIBUTES_MAX).map(|key| attribute(key, 0)).collect(), ..hello() },
        Hello { attributes: vec![attribute(0, ATTRIBUTE_VALUES_MAX), attribute(1, 1)], ..hello() },
        Hello { capacity: Some(Amounts { custom, cpu: 100, ..Amounts::default() }), ..hello() },
    ];
    let held = Inventory { seq: 1, held: vec![Held::default(); HELD_MAX + 1] };
    let refused = Hello { inventory: Some(held), ..hello() }.into_core();
    assert_eq!(refused.err(), Some(BadMessage::Held(HELD_MAX + 1)));
    let limits = [ATTRIBUTES_MAX, ATTRIBUTE_VALUES_MAX, WORKER_AMOUNTS_MAX];
    for (hello, limit) in too_much.into_iter().zip(limits) {
        let refused = CheckedHello::of_agent(hello.into_core().unwrap(), &[]);
        assert!(matches!(refused, Err(BadHello::TooMany { max, .. }) if max == limit), "{refused:?}");
    }
    for (number, bad) in [(0, true), (u64::MAX, true), (1 << 63, true), (i64::MAX as u64, false)] {
        assert_eq!(Hello { identity: number, ..hello() }.into_core().is_err(), bad, "{number}");
        assert_eq!(Hello { incarnation: number, ..hello() }.into_core().is_err(), bad, "{number}");
    }
}
