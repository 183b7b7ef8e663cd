//! Passes over snapshots that are made by hand: no database, no clock.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::worker::Saturation;
use windlass_cuebot::Amounts;
use windlass_gateway_opencue::scheduler::amounts::AmountRules;
use windlass_gateway_opencue::scheduler::planning::{Placement, Planning, PlanningRules};
use windlass_gateway_opencue::scheduler::snapshot::{
    Host, Layer, LimitUse, Proc, Snapshot, Subscription, Used,
};
use windlass_gateway_opencue::scheduler::{JobOrder, Order};

const S_US: i64 = 1_000_000;
const GIB_KIB: i64 = 1 << 20;

fn rules(order: Order) -> PlanningRules {
    PlanningRules {
        amounts: AmountRules { stranded_mem_kib: 0, selfish_services: Vec::new() },
        saturation: Saturation { cores: true, memory: false },
        order,
        layer_frames_max: None,
    }
}

fn host(number: usize, cores: i64) -> Host {
    let size = Amounts { cores: cores * 100, mem_kib: 64 * GIB_KIB, ..Amounts::default() };
    Host {
        id: format!("h{number}"),
        name: format!("host{number}"),
        alloc: "alloc".to_owned(),
        facility: "fac".to_owned(),
        size,
        idle: size,
        tags: BTreeSet::from(["general".to_owned()]),
        ..Host::default()
    }
}

fn layer(id: &str, show: &str, waiting: u32, cores: i64) -> Layer {
    Layer {
        id: id.to_owned(),
        job: format!("job of {id}"),
        show: show.to_owned(),
        folder: format!("folder of {show}"),
        facility: "fac".to_owned(),
        waiting,
        cores_min: cores * 100,
        mem_min_kib: GIB_KIB / 4,
        tags: BTreeSet::from(["general".to_owned()]),
        priority: 100,
        ..Layer::default()
    }
}

fn subscription(show: &str, size: i64, burst: i64) -> Subscription {
    let (show, alloc) = (show.to_owned(), "alloc".to_owned());
    Subscription { show_name: show.clone(), show, alloc, size, burst, cores: 0 }
}

fn counts(placements: &[Placement]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for placement in placements {
        *counts.entry(placement.layer.as_str()).or_default() += 1;
    }
    counts
}

#[test]
fn frames_of_users_who_are_left_out_go_to_hosts_with_rqd_alone() {
    let order = Order { is_strict: false, jobs: JobOrder::Priority };
    let worker = Host { is_worker: true, ..host(1, 8) };
    let mut snapshot = Snapshot {
        hosts: vec![worker],
        subscriptions: vec![subscription("show", 800, 1_600)],
        layers: vec![layer("may", "show", 1, 1), Layer { needs_rqd: true, ..layer("not", "show", 1, 1) }],
        ..Snapshot::default()
    };
    let mut planning = Planning::new(rules(order));
    assert_eq!(counts(&planning.pass(&snapshot)), BTreeMap::from([("may", 1)]));
    let why = planning.explain("not");
    assert!(why.iter().any(|reason| reason.contains("'windlass.workers.users' leaves out")), "{why:?}");
    snapshot.hosts.push(host(2, 8));
    snapshot.layers.remove(0);
    assert_eq!(counts(&planning.pass(&snapshot)), BTreeMap::from([("not", 1)]));
}

#[test]
fn shows_share_by_the_sizes_of_their_subscriptions_and_strictly_by_priority() {
    let mut snapshot = Snapshot {
        now_us: 1_000 * S_US,
        hosts: (0..10).map(|number| host(number, 40)).collect(),
        subscriptions: vec![subscription("big", 30_000, 1_000_000), subscription("small", 10_000, 1_000_000)],
        layers: vec![layer("a", "big", 1_000, 1), layer("b", "small", 1_000, 1)],
        ..Snapshot::default()
    };
    let placements = Planning::new(rules(Order::default())).pass(&snapshot);
    assert_eq!(counts(&placements), BTreeMap::from([("a", 300), ("b", 100)]));
    snapshot.layers[1].priority = 101;
    let strict = Order { is_strict: true, jobs: JobOrder::Priority };
    let placements = Planning::new(rules(strict)).pass(&snapshot);
    assert_eq!(counts(&placements), BTreeMap::from([("b", 400)]));
}

#[test]
fn jobs_of_a_show_come_by_priority_by_age_or_by_both() {
    let day_us = 86_400 * S_US;
    let with = |id: &str, priority: i32, day: i64, cores: i64| Layer {
        priority,
        submitted_us: day * day_us,
        job_cores_min: 1_000,
        job_used: Used { cores, ..Used::default() },
        ..layer(id, "show", 10, 1)
    };
    let snapshot = Snapshot {
        now_us: 20_000 * day_us,
        hosts: vec![host(0, 10)],
        subscriptions: vec![subscription("show", 1, 1_000_000)],
        // High priority; old; far below its minimum of cores.
        layers: vec![
            with("high", 150, 19_990, 2_000),
            with("old", 100, 19_900, 2_000),
            with("below", 110, 19_990, 0),
        ],
        ..Snapshot::default()
    };
    for (jobs, first) in
        [(JobOrder::Priority, "high"), (JobOrder::Fifo, "old"), (JobOrder::Balanced, "below")]
    {
        let placements = Planning::new(rules(Order { is_strict: false, jobs })).pass(&snapshot);
        assert_eq!(counts(&placements), BTreeMap::from([(first, 10)]), "{jobs:?}");
    }
}

/// Eight hosts of eight cores, of which two have a tag of their own, and a layer that runs anywhere beside one that only
/// these two suit.
fn with_few_urgent(anywhere: Layer, urgent: Layer) -> Snapshot {
    let tags = |tags: &[&str]| -> BTreeSet<String> { tags.iter().map(|tag| (*tag).to_owned()).collect() };
    let mut hosts: Vec<Host> = (0..8).map(|number| host(number, 8)).collect();
    hosts[..2].iter_mut().for_each(|host| host.tags = tags(&["general", "urgent"]));
    Snapshot {
        now_us: 1_000 * S_US,
        hosts,
        subscriptions: vec![subscription("show", 1, 1_000_000), subscription("other", 1, 1_000_000)],
        layers: vec![anywhere, Layer { tags: tags(&["urgent"]), ..urgent }],
        ..Snapshot::default()
    }
}

#[test]
fn a_layer_leaves_hosts_to_one_that_only_these_suit() {
    let beauty = || layer("beauty", "show", 300, 1);
    let pass = |snapshot: &Snapshot| {
        let placements = Planning::new(rules(Order::default())).pass(snapshot);
        counts(&placements).into_iter().map(|(layer, frames)| (layer.to_owned(), frames)).collect::<Vec<_>>()
    };
    let both = |beauty: usize, urg: usize| vec![("beauty".to_owned(), beauty), ("urg".to_owned(), urg)];
    let snapshot = with_few_urgent(beauty(), layer("urg", "show", 50, 1));
    assert_eq!(pass(&snapshot), both(48, 16));
    // What it does not need is for all: no core idles.
    let snapshot = with_few_urgent(beauty(), layer("urg", "show", 3, 1));
    assert_eq!(pass(&snapshot), both(61, 3));
    let snapshot = with_few_urgent(beauty(), layer("urg", "other", 50, 1));
    assert_eq!(pass(&snapshot), both(48, 16));
    // A job of a higher priority leaves nothing to a lower one.
    let low = Layer { priority: 50, ..layer("urg", "show", 50, 1) };
    assert_eq!(pass(&with_few_urgent(beauty(), low)), [("beauty".to_owned(), 64)]);
    // A layer of whole hosts has a class for each size of host, and counts as one.
    let whole = with_few_urgent(layer("whole", "show", 300, 0), layer("urg", "show", 50, 1));
    assert_eq!(pass(&whole), [("urg".to_owned(), 16), ("whole".to_owned(), 6)]);
}

#[test]
fn a_layer_keeps_half_of_its_hosts() {
    let tagged =
        |id: &str, tag: &str| Layer { tags: BTreeSet::from([tag.to_owned()]), ..layer(id, "show", 50, 1) };
    let mut hosts: Vec<Host> = (0..8).map(|number| host(number, 8)).collect();
    for (number, host) in hosts.iter_mut().enumerate() {
        host.tags.insert(["few", "half", "half", "rest"][number / 2].to_owned());
    }
    let snapshot = Snapshot {
        now_us: 1_000 * S_US,
        hosts,
        subscriptions: vec![subscription("show", 1, 1_000_000)],
        layers: vec![
            layer("any", "show", 300, 1),
            tagged("rest", "rest"),
            tagged("few", "few"),
            tagged("half", "half"),
        ],
        ..Snapshot::default()
    };
    // Two hosts each are left to two layers, and then no more.
    let placements = Planning::new(rules(Order::default())).pass(&snapshot);
    assert_eq!(counts(&placements), BTreeMap::from([("any", 32), ("few", 16), ("rest", 16)]));
}

#[test]
fn hosts_are_left_to_a_layer_in_each_pass_in_which_it_waits() {
    let mut planning = Planning::new(rules(Order::default()));
    let mut snapshot = with_few_urgent(layer("beauty", "show", 300, 1), layer("urg", "show", 50, 1));
    let urgent = snapshot.layers.remove(1);
    assert_eq!(counts(&planning.pass(&snapshot)), BTreeMap::from([("beauty", 64)]), "it is alone");
    // Nothing was booked, and the other layer waits now.
    snapshot.layers.push(urgent);
    assert_eq!(counts(&planning.pass(&snapshot)), BTreeMap::from([("beauty", 48), ("urg", 16)]));
    snapshot.hosts[1].tags.remove("urgent");
    assert_eq!(counts(&planning.pass(&snapshot)), BTreeMap::from([("beauty", 56), ("urg", 8)]));
    snapshot.layers.remove(0);
    assert_eq!(counts(&planning.pass(&snapshot)), BTreeMap::from([("urg", 8)]));
}

#[test]
fn layers_of_one_priority_take_turns_where_the_frames_of_a_turn_are_limited() {
    let planning_rules = || rules(Order::default());
    let rules = PlanningRules { layer_frames_max: Some(10), ..planning_rules() };
    let low = Layer { priority: 50, ..layer("low", "show", 100, 1) };
    let snapshot = Snapshot {
        now_us: 1_000 * S_US,
        hosts: (0..5).map(|number| host(number, 8)).collect(),
        subscriptions: vec![subscription("show", 1, 1_000_000)],
        layers: vec![layer("a", "show", 100, 1), low, layer("b", "show", 100, 1)],
        ..Snapshot::default()
    };
    let mut planning = Planning::new(rules);
    for _ in 0..3 {
        assert_eq!(counts(&planning.pass(&snapshot)), BTreeMap::from([("a", 20), ("b", 20)]));
    }
    // A layer that is alone in its priority has as many turns as there is room.
    let alone = Snapshot { layers: vec![layer("a", "show", 100, 1)], ..snapshot };
    assert_eq!(counts(&planning.pass(&alone)), BTreeMap::from([("a", 40)]));
    // More turns than are told apart, and priorities that are too far apart for turns.
    for priority in [100, i32::MIN, i32::MAX] {
        let rules = PlanningRules { layer_frames_max: Some(1), ..planning_rules() };
        let of = |id: &str| Layer { priority, ..layer(id, "show", 100, 1) };
        let layers = vec![of("a"), of("b")];
        let many =
            Snapshot { hosts: (0..20).map(|number| host(number, 8)).collect(), layers, ..alone.clone() };
        let mut planning = Planning::new(rules);
        for _ in 0..2 {
            assert_eq!(planning.pass(&many).len(), 160, "{priority}");
        }
    }
}

/// Frames that run in a farm of hosts without a database.
struct Farm {
    snapshot: Snapshot,
    running: Vec<(Placement, i64)>,
    frame_s: i64,
}

impl Farm {
    /// Passes at each second until the layer has started. Returns the second.
    fn until_started(&mut self, planning: &mut Planning, layer: &str, seconds_max: i64) -> Option<i64> {
        for second in 0..seconds_max {
            self.snapshot.now_us += S_US;
            let now_us = self.snapshot.now_us;
            self.running.retain(|(_, ends_us)| *ends_us > now_us);
            self.fill_in(planning.wants_procs());
            let placements = planning.pass(&self.snapshot);
            for placement in &placements {
                let waits =
                    self.snapshot.layers.iter_mut().find(|waits| waits.id == placement.layer).unwrap();
                waits.waiting -= 1;
                self.running.push((placement.clone(), now_us + self.frame_s * S_US));
            }
            if placements.iter().any(|placement| placement.layer == layer) {
                return Some(second);
            }
        }
        None
    }

    fn fill_in(&mut self, with_procs: bool) {
        for host in &mut self.snapshot.hosts {
            let held = self.running.iter().filter(|(placement, _)| placement.host == host.id);
            host.idle.cores =
                host.size.cores - held.map(|(placement, _)| placement.amounts.cores).sum::<i64>();
            assert!(host.idle.cores >= 0, "{} is overbooked", host.name);
        }
        let frame_s = self.frame_s;
        let proc = |(placement, ends_us): &(Placement, i64)| Proc {
            host: placement.host.clone(),
            layer: placement.layer.clone(),
            cores: placement.amounts.cores,
            mem_kib: placement.amounts.mem_kib,
            began_us: ends_us - frame_s * S_US,
            mean_s: Some(frame_s as f64),
        };
        self.snapshot.procs = if with_procs { self.running.iter().map(proc).collect() } else { Vec::new() };
    }
}

#[test]
fn wide_frames_and_whole_hosts_start_among_narrow_ones_that_never_end() {
    for cores in [4, 0] {
        let narrow = Layer { mean_s: Some(45.0), ..layer("narrow", "show", 1_000_000, 1) };
        let snapshot = Snapshot {
            now_us: 1_000 * S_US,
            hosts: vec![host(0, 4), host(1, 4)],
            subscriptions: vec![subscription("show", 1, 1_000_000)],
            layers: vec![narrow],
            ..Snapshot::default()
        };
        let mut farm = Farm { snapshot, running: Vec::new(), frame_s: 45 };
        let mut planning = Planning::new(rules(Order::default()));
        assert_eq!(farm.until_started(&mut planning, "narrow", 1), Some(0));
        // Narrow frames end one by one, so that no host is ever empty by itself.
        for (number, (_, ends_us)) in farm.running.iter_mut().enumerate() {
            *ends_us -= number as i64 * 5 * S_US;
        }
        farm.snapshot.layers.push(Layer {
            mean_s: Some(45.0),
            submitted_us: 1,
            ..layer("wide", "show", 1, cores)
        });
        let second = farm.until_started(&mut planning, "wide", 600);
        assert!(second.is_some_and(|second| second >= 45), "{cores} cores: {second:?}");
    }
}

#[test]
fn a_layer_that_waits_for_long_gets_no_host_that_it_leaves_to_others() {
    let beauty = Layer { mean_s: Some(36_000.0), ..layer("beauty", "show", 300, 1) };
    let urgent = Layer { mean_s: Some(36_000.0), ..layer("urg", "show", 50, 1) };
    let snapshot = with_few_urgent(beauty, urgent);
    let mut farm = Farm { snapshot, running: Vec::new(), frame_s: 36_000 };
    let mut planning = Planning::new(rules(Order::default()));
    let is_urgent = |(placement, _): &(Placement, i64)| ["h0", "h1"].contains(&placement.host.as_str());
    assert_eq!(farm.until_started(&mut planning, "urg", 1), Some(0));
    assert_eq!(farm.running.len(), 64);
    for _ in 0..30 {
        let ended = farm.running.iter().position(is_urgent).unwrap();
        farm.running.remove(ended);
        assert_eq!(farm.until_started(&mut planning, "urg", 1), Some(0), "it gets what is free at once");
        assert_eq!(farm.until_started(&mut planning, "none", 30), None, "time passes");
    }
    assert!(farm.running.iter().filter(|run| is_urgent(run)).all(|(placement, _)| placement.layer == "urg"));
}

proptest! {
    #[test]
    fn no_pass_goes_over_a_host_or_a_cap(
        hosts in prop::collection::vec(1_i64..9, 1..8),
        layers in prop::collection::vec((0_usize..3, 1_u32..30, -2_i64..5, any::<bool>()), 1..10),
        bursts in prop::collection::vec(0_i64..30, 3),
        folder_max in 0_i64..20,
        limit in 0_i64..6,
    ) {
        let shows = ["x", "y", "z"];
        let of = |(number, (show, waiting, cores, limited)): (usize, &(usize, u32, i64, bool))| Layer {
            is_threadable: *limited,
            folder_used: Used { cores_max: folder_max * 100, ..Used::default() },
            ..layer(&format!("l{number}"), shows[*show], *waiting, *cores)
        };
        let snapshot = Snapshot {
            now_us: 1_000 * S_US,
            hosts: hosts.iter().enumerate().map(|(number, cores)| host(number, *cores)).collect(),
            subscriptions: shows.iter().zip(&bursts).map(|(show, burst)| subscription(show, 100, burst * 100)).collect(),
            layers: layers.iter().enumerate().map(of).collect(),
            limits: BTreeMap::from([("lic".to_owned(), LimitUse { name: "nuke".to_owned(), max: limit, ..LimitUse::default() })]),
            layer_limits: layers.iter().enumerate().filter(|(_, layer)| layer.3)
                .map(|(number, _)| (format!("l{number}"), BTreeSet::from(["lic".to_owned()]))).collect(),
            ..Snapshot::default()
        };
        let placements = Planning::new(rules(Order::default())).pass(&snapshot);
        let sum = |keep: &dyn Fn(&Placement) -> bool| placements.iter().filter(|p| keep(p)).map(|p| p.amounts.cores).sum::<i64>();
        for host in &snapshot.hosts {
            prop_assert!(sum(&|placement| placement.host == host.id) <= host.size.cores);
        }
        let layer_of = |placement: &Placement| snapshot.layers.iter().find(|layer| layer.id == placement.layer).unwrap();
        for (show, burst) in shows.iter().zip(&bursts) {
            let cores = sum(&|placement| layer_of(placement).show == *show);
            prop_assert!(cores <= burst * 100, "{} has {} of {}", show, cores, burst * 100);
            prop_assert!(folder_max == 0 || cores <= folder_max * 100);
        }
        let limited = placements.iter().filter(|p| snapshot.layer_limits.contains_key(&p.layer)).count();
        prop_assert!(limited as i64 <= limit);
        for layer in &snapshot.layers {
            let placed = placements.iter().filter(|placement| placement.layer == layer.id).count();
            prop_assert!(placed as u32 <= layer.waiting);
        }
    }
}
