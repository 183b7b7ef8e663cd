//! What earlier tasks predict, what ran where, how fast things are, what waits for what.

use proptest::prelude::*;
use windlass_core::job::{Dependency, DependencyKind, StepSpec};
use windlass_core::score::dependents::{Dependents, dependents};
use windlass_core::score::history::{
    Histories, History, PROBE_MS, PROBES, Prediction, SAMPLES_MAX, SIGNATURES_MAX, Sample, Signature,
    auto_cpus, needs_after_kill, probing,
};
use windlass_core::score::speed::{SPEED_HALF_LIFE_NS, Speed};
use windlass_core::score::windows::{Metric, Windowed, Windows};
use windlass_core::time::NS_PER_S;
use windlass_core::worker::{DISPLACED_AFTER, Warmth};
use windlass_core::{Resources, Time};

const GIB: u64 = 1 << 30;

/// What a task is booked with, as classes are sized: never less than its request, and no more than the largest worker has.
fn sized_memory(request: u64, prediction: Option<&Prediction>, largest: u64) -> u64 {
    let reserve = prediction.and_then(Prediction::reserve).unwrap_or(0);
    request.max(reserve.min(largest))
}

fn ended(peak: u64) -> Sample {
    Sample { peak_memory: Some(peak), ..Sample::default() }
}

/// Killed at this limit.
fn killed(limit: u64) -> Sample {
    Sample { peak_memory: Some(2 * limit), oom: true, ..Sample::default() }
}

fn history(samples: impl IntoIterator<Item = Sample>) -> History {
    let mut history = History::default();
    samples.into_iter().for_each(|sample| history.push(sample));
    history
}

fn predict(samples: impl IntoIterator<Item = Sample>) -> Prediction {
    history(samples).predict().unwrap()
}

#[test]
fn gradients_vector() {
    let row = |peak, cpu_ms, oom| Sample {
        peak_memory: Some(peak),
        cpu_ms: Some(cpu_ms),
        oom,
        ..Sample::default()
    };
    let prediction = predict([row(100, 1_000, false), row(300, 3_000, true), Sample::default()]);
    assert_eq!((prediction.samples, prediction.memory(), prediction.cpu_ms), (3, Some(300), Some(2_000.0)));
    assert_eq!(prediction.oom_rate, 1.0 / 3.0);
    // Repaired: a kill says what would be needed at least, not what was held.
    assert_eq!((prediction.peak_memory, prediction.memory_floor), (Some(100), Some(300)));
    let wrote = |bytes| Sample { disk_bytes: bytes, ..Sample::default() };
    let disk = predict([wrote(Some(10_000_000)), wrote(Some(0)), wrote(None), wrote(Some(90_000_000))]);
    assert_eq!(disk.disk_bytes, Some(50_000_000.0));
    assert_eq!((disk.memory(), disk.cpu_ms, disk.wall_ms), (None, None, None));
    assert_eq!(History::default().predict(), None);
}

#[test]
fn a_percentile_needs_twenty() {
    // Index round((n - 1) * 0.95) of the peaks in order.
    assert_eq!(predict((1..=19).map(ended)).peak_memory, Some(19));
    assert_eq!(predict((1..=20).map(ended)).peak_memory, Some(19));
    assert_eq!(predict((1..=100).map(ended)).peak_memory, Some(95));
    assert_eq!(predict((1..=200).rev().map(ended)).peak_memory, Some(190));
}

#[test]
fn a_kill_doubles_until_peaks_tell_better() {
    let floor = |samples: &[Sample]| predict(samples.iter().copied()).memory_floor;
    assert_eq!(floor(&[killed(2)]), Some(4));
    assert_eq!(floor(&[killed(2), killed(4)]), Some(8));
    assert_eq!(floor(&[killed(2), ended(2)]), Some(4), "that one held no more than the limit");
    assert_eq!(floor(&[killed(2), ended(3)]), None);
    assert_eq!(floor(&[ended(3), killed(2)]), Some(4), "a peak before the kill says nothing of it");
    assert_eq!(floor(&[killed(8), killed(2), ended(3)]), Some(16));
    let mut history = history([killed(2)]);
    (0..SAMPLES_MAX - 1).for_each(|_| history.push(ended(1)));
    assert_eq!(history.predict().unwrap().memory_floor, Some(4));
    history.push(ended(1));
    assert_eq!(history.predict().unwrap().memory_floor, None, "the kill has left the ring");
}

#[test]
fn a_kill_without_a_limit_is_forgotten_for_a_peak_about_as_high() {
    let killed = |is_limited| Sample {
        peak_memory: Some(needs_after_kill(1_000, is_limited)),
        oom: true,
        ..Sample::default()
    };
    let floor = |is_limited, peak| predict([killed(is_limited), ended(peak)]).memory_floor;
    assert_eq!([937, 938, 1_100].map(|peak| floor(false, peak)), [Some(1_875), None, None]);
    assert_eq!([1_000, 1_001].map(|peak| floor(true, peak)), [Some(2_000), None]);
    assert_eq!(needs_after_kill(u64::MAX, false), u64::MAX - u64::MAX / 8);
}

#[test]
fn memory_is_sized_by_evidence() {
    let peak = |peak| predict([ended(peak)]);
    assert_eq!(sized_memory(2 * GIB, None, 64 * GIB), 2 * GIB);
    assert_eq!(sized_memory(1_000, Some(&peak(2_000)), 64_000), 2_200);
    assert_eq!(sized_memory(5_000, Some(&peak(2_000)), 64_000), 5_000, "never below the request");
    assert_eq!(sized_memory(1_000, Some(&peak(60_000)), 64_000), 64_000, "never above the largest worker");
    assert_eq!(sized_memory(70_000, Some(&peak(60_000)), 64_000), 70_000, "nor below the request for that");
    assert_eq!(
        sized_memory(2 * GIB, Some(&predict([killed(2 * GIB)])), 64 * GIB),
        4 * GIB,
        "doubled exactly"
    );
    assert_eq!(sized_memory(0, Some(&peak(u64::MAX)), u64::MAX), u64::MAX);
}

#[test]
fn two_declared_and_eighteen_held_takes_eight_probes() {
    // As a scheduler would: as many as may run at once, all killed that are booked too small.
    let (request, holds, largest) = (Resources::new(100, 2 * GIB), 18 * GIB, 64 * GIB);
    let (mut history, mut probes, mut kills_after) = (History::default(), 0, 0);
    for _round in 0..40 {
        let at_once = probing(&request, Some(&history), None);
        let booked = sized_memory(request.memory, history.predict().as_ref(), largest);
        for _task in 0..at_once.unwrap_or(50) {
            match booked < holds {
                true if at_once.is_none() => kills_after += 1,
                _ if at_once.is_some() => probes += 1,
                _ => {}
            }
            history.push(if booked < holds { killed(booked) } else { ended(holds) });
        }
    }
    assert_eq!((probes, kills_after), (8, 0));
    assert_eq!(sized_memory(request.memory, history.predict().as_ref(), largest), holds + holds.div_ceil(10));
}

#[test]
fn probing_ends_with_evidence() {
    let declares = Resources::new(100, GIB);
    assert_eq!(probing(&declares, None, None), Some(PROBES));
    assert_eq!(probing(&declares, Some(&History::default()), Some(PROBE_MS - 1)), Some(PROBES));
    // A farm without history must not run four tasks of an hour for an hour.
    assert_eq!(probing(&declares, None, Some(PROBE_MS)), None);
    assert_eq!(probing(&Resources::new(100, 0), None, None), None, "nothing declared, nothing limited");
    let after = |samples: &[Sample], longest_ms| {
        probing(&declares, Some(&history(samples.iter().copied())), longest_ms)
    };
    assert_eq!(after(&[killed(1)], None), Some(1));
    assert_eq!(after(&[killed(1)], Some(PROBE_MS)), None, "one that runs on with more memory is believed");
    assert_eq!(after(&[killed(1), ended(1)], None), None);
    assert_eq!(
        after(&[ended(1), killed(1)], None),
        None,
        "one of many that is killed does not stop the rest"
    );
    let turned = [ended(1), killed(1), killed(1), killed(1), killed(1)];
    assert_eq!((after(&turned[..4], None), after(&turned, None)), (None, Some(1)), "but many in a row do");
}

#[test]
fn cpus_follow_memory_and_use() {
    let auto = |change: fn(&mut Prediction), largest| {
        let mut prediction = Prediction::default();
        change(&mut prediction);
        auto_cpus(&prediction, 4 * GIB, largest)
    };
    assert_eq!(auto(|_| (), 6_400), None);
    assert_eq!(auto(|p| p.memory_floor = Some(16 * GIB), 6_400), Some(400));
    assert_eq!(auto(|p| p.memory_floor = Some(16 * GIB + 1), 6_400), Some(500));
    assert_eq!(auto(|p| p.memory_floor = Some(1), 6_400), Some(100), "one at least");
    assert_eq!(auto(|p| (p.cpu_ms, p.wall_ms) = (Some(2_100.0), Some(1_000.0)), 6_400), Some(300));
    assert_eq!(auto(|p| (p.cpu_ms, p.wall_ms) = (Some(2_100.0), Some(0.0)), 6_400), None);
    let both = |p: &mut Prediction| {
        (p.memory_floor, p.cpu_ms, p.wall_ms) = (Some(16 * GIB), Some(9.0), Some(1.0));
    };
    assert_eq!((auto(both, 6_400), auto(both, 800)), (Some(900), Some(800)));
    assert_eq!(auto(|p| p.memory_floor = Some(u64::MAX), u32::MAX), Some(u32::MAX));
    assert_eq!(auto_cpus(&predict([ended(GIB)]), 0, 800), None, "a farm that declares no memory");
}

fn samples() -> impl Strategy<Value = Sample> {
    let value = || prop::option::of(0..1_000u64);
    (value(), value(), value(), value(), prop::bool::weighted(0.1)).prop_map(
        |(peak_memory, cpu_ms, wall_ms, disk_bytes, oom)| Sample {
            peak_memory,
            cpu_ms,
            wall_ms,
            disk_bytes,
            oom,
        },
    )
}

/// The prediction as its description says it, from the rows.
fn plainly(rows: &[Sample]) -> Prediction {
    let mean = |of: fn(&Sample) -> Option<u64>| {
        let known: Vec<u64> = rows.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| known.iter().sum::<u64>() as f64 / known.len() as f64)
    };
    let mut peaks: Vec<u64> = rows.iter().filter(|r| !r.oom).filter_map(|r| r.peak_memory).collect();
    peaks.sort_unstable();
    let place = match peaks.len() {
        n if n < 20 => n.saturating_sub(1),
        n => ((n - 1) as f64 * 0.95).round() as usize,
    };
    let stands = |(at, kill): &(usize, &Sample)| {
        let above =
            |row: &Sample| !row.oom && row.peak_memory.is_some_and(|p| p > kill.peak_memory.unwrap() / 2);
        kill.oom && kill.peak_memory.is_some() && !rows[*at..].iter().any(above)
    };
    Prediction {
        peak_memory: peaks.get(place).copied(),
        memory_floor: rows.iter().enumerate().filter(stands).filter_map(|(_, r)| r.peak_memory).max(),
        cpu_ms: mean(|r| r.cpu_ms),
        wall_ms: mean(|r| r.wall_ms),
        disk_bytes: mean(|r| r.disk_bytes.filter(|bytes| *bytes > 0)),
        oom_rate: rows.iter().filter(|r| r.oom).count() as f64 / rows.len() as f64,
        samples: rows.len() as u32,
    }
}

proptest! {
    #[test]
    fn sums_are_what_the_rows_say(rows in prop::collection::vec(samples(), 1..500)) {
        let kept = &rows[rows.len().saturating_sub(SAMPLES_MAX)..];
        let history = history(rows.iter().copied());
        prop_assert!(history.samples().eq(kept));
        prop_assert_eq!(history.predict().unwrap(), plainly(kept));
    }
}

#[test]
fn the_stalest_signature_goes_first() {
    let signature =
        |n: usize| Signature { queue: "q".to_owned(), step: "s".to_owned(), shape: n.to_string() };
    let mut all = Histories::default();
    (0..SIGNATURES_MAX).for_each(|n| _ = all.push(&signature(n), ended(n as u64)));
    all.push(&signature(0), ended(7));
    all.push(&signature(SIGNATURES_MAX), ended(8));
    assert_eq!(all.len(), SIGNATURES_MAX);
    assert_eq!(all.predict(&signature(0)).unwrap().samples, 2);
    assert!(all.get(&signature(1)).is_none());
    assert!(all.get(&signature(2)).is_some() && all.get(&signature(SIGNATURES_MAX)).is_some());
    (2..SIGNATURES_MAX).for_each(|n| _ = all.push(&signature(n), ended(1)));
    all.push(&signature(0), ended(7));
    all.push(&signature(1), ended(1));
    assert_eq!(all.len(), SIGNATURES_MAX);
    assert!(all.get(&signature(0)).is_some() && all.get(&signature(SIGNATURES_MAX)).is_none());
}

#[test]
fn windows_forget() {
    let at = |s: u64| Time(1_000_000 * NS_PER_S + s * NS_PER_S);
    let mut windows = Windows::default();
    assert_eq!(windows.recompute(at(0))[Metric::WaitS], Windowed::default());
    windows.record(at(0), Metric::WaitS, 10.0);
    assert_eq!(windows.recompute(at(270))[Metric::WaitS].w5m, Some(10.0));
    assert_eq!(windows.recompute(at(300))[Metric::WaitS].w5m, None);
    windows.record(at(600), Metric::WaitS, 40.0);
    windows.record(at(600), Metric::WaitS, f64::NAN);
    windows.record(at(600), Metric::WaitS, f64::INFINITY);
    windows.record(at(600), Metric::Completed, 1.0);
    let now = windows.recompute(at(610));
    assert_eq!(now[Metric::WaitS], Windowed { w5m: Some(40.0), w1h: Some(25.0), w24h: Some(25.0) });
    assert_eq!(now[Metric::CpuMs], Windowed::default(), "no value differs from zero");
    assert_eq!(now[Metric::Completed], Windowed { w5m: Some(1.0), w1h: Some(1.0), w24h: Some(1.0) });
    let later = windows.recompute(at(2 * 3_600));
    assert_eq!(later[Metric::WaitS], Windowed { w5m: None, w1h: None, w24h: Some(25.0) });
    assert_eq!(later[Metric::Completed].w1h, Some(0.0), "a count of nothing is a measured zero");
    assert_eq!(windows.recompute(at(25 * 3_600))[Metric::WaitS], Windowed::default());
    // A bucket that is used again starts from nothing.
    windows.record(at(600 + 300), Metric::WaitS, 1.0);
    assert_eq!(windows.recompute(at(600 + 300))[Metric::WaitS].w5m, Some(1.0));
}

#[test]
fn speed_weighs_bytes_and_fades() {
    let second = 1_000_000_000;
    let mut speed = Speed::default();
    assert_eq!(speed.rate(0), None);
    speed.add(second, 1 << 30, 10 * second);
    let large = (1u64 << 30) as f64 / 10.0;
    assert_eq!(speed.rate(second), Some(large));
    speed.add(second, 1 << 10, second);
    assert!((speed.rate(second).unwrap() / large - 1.0).abs() < 1e-5, "a small slow one hardly counts");
    speed.add(second, 0, second);
    speed.add(second, 5, 0);
    assert!(speed.rate(second).unwrap() < large);
    // An equal transfer at twice the speed, one half-life later: it weighs two thirds.
    let mut speed = Speed::default();
    speed.add(0, 3_000_000, second);
    speed.add(SPEED_HALF_LIFE_NS, 3_000_000, second / 2);
    let rate = speed.rate(SPEED_HALF_LIFE_NS).unwrap();
    assert!((rate - 5_000_000.0).abs() < 1.0, "{rate}");
    assert_eq!(speed.rate(SPEED_HALF_LIFE_NS * 10), Some(rate), "age alone does not change it");
    assert_eq!(speed.rate(SPEED_HALF_LIFE_NS * 30), None, "nothing is left");
    let mut extreme = Speed::default();
    extreme.add(0, u64::MAX, 1);
    extreme.add(u64::MAX, u64::MAX, u64::MAX);
    extreme.add(0, 1, 1);
    assert!(extreme.rate(u64::MAX).unwrap().is_finite());
}

#[test]
fn warmth_goes_with_other_work() {
    let mut warmth = Warmth::default();
    assert_eq!(warmth.of(&0), 0.0);
    warmth.ran(0);
    assert_eq!(warmth.of(&0), 1.0);
    (1..=16).for_each(|other| warmth.ran(other));
    assert_eq!(warmth.of(&0), 0.75);
    (17..=63).for_each(|other| warmth.ran(other));
    assert_eq!((warmth.of(&0), warmth.len()), (1.0 / 64.0, 64));
    warmth.ran(64);
    assert_eq!((warmth.of(&0), warmth.of(&1), warmth.len()), (0.0, 1.0 / 64.0, 64));
    // Its own tasks do not displace it, however many.
    (0..1_000).for_each(|_| warmth.ran(7));
    assert_eq!((warmth.of(&7), warmth.len()), (1.0, 1));
}

proptest! {
    #[test]
    fn warmth_counts_bookings_since(kinds in prop::collection::vec(0..90u32, 0..400)) {
        let mut warmth = Warmth::default();
        kinds.iter().for_each(|kind| warmth.ran(*kind));
        for kind in 0..90 {
            let since = kinds.iter().rev().position(|k| *k == kind).map_or(64, |n| n.min(64));
            prop_assert_eq!(warmth.of(&kind), 1.0 - since as f64 / 64.0);
        }
        prop_assert!(warmth.len() as u64 <= DISPLACED_AFTER);
    }
}

fn step(tasks: u32, depends: &[(u16, DependencyKind)]) -> StepSpec {
    let depends = depends.iter().map(|(on, kind)| Dependency { on: *on, kind: *kind }).collect();
    StepSpec { tasks, depends, ..StepSpec::default() }
}

#[test]
fn what_waits_is_counted_from_reverse_edges() {
    use DependencyKind::{Step, Task};
    let of = |tasks, path| Dependents { tasks, path };
    // a before b and c, both before d. Gradient counts inputs: 2 for d, which nothing waits for.
    let diamond =
        [step(1, &[]), step(5, &[(0, Step)]), step(1, &[(0, Step)]), step(1, &[(1, Step), (2, Step)])];
    let third = 1.0 / 3.0;
    let expected = [of(7, 1.0), of(1, 2.0 * third), of(1, 2.0 * third), of(0, third)];
    assert_eq!(dependents(&diamond, |_| None), expected);
    assert_eq!(expected[0].weight(), 7.0);
    // With b ten times as long, it is what the job's end waits for.
    let ms = |step| (step == 1).then_some(10.0).or((step != 2).then_some(1.0));
    let paths: Vec<f64> = dependents(&diamond, ms).iter().map(|d| d.path * 12.0).map(f64::round).collect();
    assert_eq!(paths, [12.0, 11.0, 5.0, 1.0], "c takes the mean of the others");
    // A step listed before those it depends on; tasks that wait for one task each, then all for all.
    let chain = [step(1, &[(1, Step)]), step(9, &[(2, Task)]), step(9, &[])];
    let tasks: Vec<u64> = dependents(&chain, |_| None).iter().map(|d| d.tasks).collect();
    assert_eq!(tasks, [0, 1, 2]);
    let chain = [step(9, &[]), step(9, &[(0, Step)]), step(9, &[(1, Task)])];
    let tasks: Vec<u64> = dependents(&chain, |_| None).iter().map(|d| d.tasks).collect();
    assert_eq!(tasks, [18, 1, 0], "by way of a whole step, all of what is paired with it waits");
    assert_eq!(dependents(&[], |_| None), []);
    let weird = dependents(&diamond, |step| [f64::NAN, f64::INFINITY, -1.0, 0.0].get(step).copied());
    assert_eq!(weird, expected, "what is not a length is unknown");
}

proptest! {
    #[test]
    fn weights_are_what_a_walk_finds(
        steps in prop::collection::vec((1..4u32, prop::collection::vec((any::<u16>(), any::<bool>()), 0..4)), 1..80),
    ) {
        let steps: Vec<StepSpec> = steps.iter().enumerate().map(|(place, (_, depends))| {
            let on = |n: &u16, paired: &bool| {
                (n % place as u16, if *paired { DependencyKind::Task } else { DependencyKind::Step })
            };
            let depends: Vec<_> = depends.iter().filter(|_| place > 0).map(|(n, paired)| on(n, paired)).collect();
            step(3, &depends)
        }).collect();
        for (start, found) in dependents(&steps, |_| None).iter().enumerate() {
            // Reached in pairs all the way, or by way of some whole step.
            let (mut paired, mut whole) = (vec![false; steps.len()], vec![false; steps.len()]);
            paired[start] = true;
            for (place, step) in steps.iter().enumerate() {
                for dependency in &step.depends {
                    let on = usize::from(dependency.on);
                    let all = dependency.kind == DependencyKind::Step;
                    whole[place] |= whole[on] || (all && paired[on]);
                    paired[place] |= !all && paired[on];
                }
            }
            let waits = |n: usize| if whole[n] { 3 } else { u64::from(paired[n] && n != start) };
            prop_assert_eq!(found.tasks, (0..steps.len()).map(waits).sum::<u64>());
            prop_assert!(found.path > 0.0 && found.path <= 1.0);
        }
    }
}
