//! The planner without the engine: frames of a render farm, whose layers, hosts and limits another system has. What
//! a round promises must hold for any work.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::cache_keys::Reads;
use windlass_core::class::Class;
use windlass_core::ids::{Epoch, QueueId, StepKey};
use windlass_core::job::{Hints, QueuedStep};
use windlass_core::plan::{self, Booking, HeldAmounts, PlanSettings, Planner, RunningTask, StepFacts, Work};
use windlass_core::plan::{ReservationSettings, placement};
use windlass_core::queues::{Charge, QueueRecord, RoundFilter, TurnSettings};
use windlass_core::score::windows::Metric;
use windlass_core::tags::Attributes;
use windlass_core::time::NS_PER_S;
use windlass_core::worker::{Worker, WorkerRecord, WorkerState};
use windlass_core::{JobId, Resources, TaskId, Time, WorkerId};

/// A layer of frames. Its key is a [`StepKey`] with step 0.
struct Layer {
    queue: QueueId,
    queued: Option<QueuedStep>,
    class: windlass_core::ids::ClassId,
    ready: BTreeSet<u32>,
    limits: BTreeSet<String>,
    frame_s: u64,
}

struct Frame {
    request: Resources,
    worker: WorkerId,
    layer: JobId,
    began: Time,
}

/// A farm that keeps its own books.
struct Frames {
    plan: Planner,
    now: Time,
    layers: BTreeMap<JobId, Layer>,
    running: BTreeMap<TaskId, Frame>,
    licences: BTreeMap<String, (u32, u32)>,
    reads: Reads,
    hints: Hints,
    /// Books each frame with twice of what it asks for, as no owner of work may.
    books_double: bool,
}

impl Frames {
    fn new(settings: PlanSettings, hosts: &[u32]) -> Frames {
        let mut plan = Planner::new(settings);
        for (id, cores) in (1..).zip(hosts) {
            let record = WorkerRecord {
                id: WorkerId(id),
                name: format!("host{id}"),
                epoch: Epoch(1),
                identity: id,
                incarnation: 1,
                state: WorkerState::Up,
                draining: false,
                note: None,
                lease_until: None,
                capacity: Resources::new(cores * 100, 0),
                attributes: Attributes::default(),
            };
            plan.workers.insert(Worker::linked(record));
        }
        let mut frames = Frames {
            plan,
            now: Time::default(),
            layers: BTreeMap::new(),
            running: BTreeMap::new(),
            licences: BTreeMap::new(),
            reads: Reads::default(),
            hints: Hints::default(),
            books_double: false,
        };
        frames.pass(1_000);
        frames
    }

    fn layer(&mut self, show: &str, frames: u32, cores: u32, limit: Option<&str>, frame_s: u64) -> JobId {
        let id = JobId(self.layers.len() as u64 + 1);
        let limits: BTreeSet<String> = limit.into_iter().map(str::to_owned).collect();
        let class =
            Class { request: Resources::new(cores * 100, 0), limits: limits.clone(), ..Class::default() };
        let class = self.plan.classes.intern(class);
        let queue = self.plan.queues.intern(show);
        let queued = QueuedStep::new(0, self.now, StepKey { job: id, step: 0 });
        self.plan.enlist(queue, class, queued);
        let ready = (0..frames).collect();
        self.layers.insert(id, Layer { queue, queued: Some(queued), class, ready, limits, frame_s });
        id
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.after(seconds * NS_PER_S);
        self.plan.set_now(self.now);
        self.plan.tick();
    }

    fn round(&mut self, budget: usize) -> Vec<Booking> {
        let mut out = Vec::new();
        self.plan.refresh_statistics();
        let booked = plan::round(self, budget, &mut out);
        assert_eq!(booked, out.len());
        out
    }

    /// The frames that are through end.
    fn end_due(&mut self) {
        let due = self.running.iter().filter(|(task, _)| self.running(**task).unwrap().due <= Some(self.now));
        let due: Vec<TaskId> = due.map(|(task, _)| *task).collect();
        for task in due {
            let frame = self.running.remove(&task).unwrap();
            let layer = &self.layers[&frame.layer];
            let step = StepKey { job: frame.layer, step: 0 };
            self.plan.workers.update(frame.worker, |worker| {
                worker.booked.let_go(task, step, &frame.request, 0, frame.request.cpu);
            });
            self.plan.workers.gained(frame.worker);
            self.plan.queues.settle(layer.queue, frame.request.cpu);
            for name in &layer.limits {
                self.licences.get_mut(name).unwrap().0 -= 1;
            }
            self.plan.request_round();
        }
    }

    fn check(&self) {
        self.plan.check(|key| self.layers[&key.job].queued).unwrap();
        for worker in self.plan.workers.iter() {
            assert!(
                worker.booked.sum().fits(&worker.record.capacity),
                "{} is overbooked",
                worker.record.name
            );
        }
        for (name, (taken, max)) in &self.licences {
            assert!(taken <= max, "{taken} of {max} {name}");
        }
    }

    /// True if a frame of some layer could start: a host has room that no reservation keeps, and no limit is reached.
    fn is_work_left_out(&self) -> bool {
        self.layers.values().filter(|layer| !layer.ready.is_empty()).any(|layer| {
            let class = self.plan.classes.get(layer.class);
            let mut hosts =
                self.plan.workers.iter().filter(|w| !self.plan.reserved().contains_key(&w.record.id));
            !self.is_limit_reached(class) && hosts.any(|worker| placement::fits_now(class, worker))
        })
    }
}

impl Work for Frames {
    type Out = Vec<Booking>;

    fn plan(&self) -> &Planner {
        &self.plan
    }

    fn plan_mut(&mut self) -> &mut Planner {
        &mut self.plan
    }

    fn facts(&self, step: StepKey) -> Option<StepFacts<'_>> {
        let layer = self.layers.get(&step.job)?;
        Some(StepFacts {
            class: layer.class,
            first_ready: layer.ready.first().copied(),
            ready: layer.ready.len() as u32,
            ready_since: Time::default(),
            dependents: 0.0,
            profile: step.job.0,
            reads: &self.reads,
            hints: &self.hints,
            avoids: None,
            mean_ms: Some(layer.frame_s as f64 * 1e3),
            prediction: None,
            time_limit_ms: None,
        })
    }

    fn is_limit_reached(&self, class: &Class) -> bool {
        class.limits.iter().any(|name| self.licences.get(name).is_some_and(|(taken, max)| taken >= max))
    }

    fn running(&self, task: TaskId) -> Option<RunningTask<'_>> {
        let frame = self.running.get(&task)?;
        let layer = &self.layers[&frame.layer];
        let due = Some(frame.began.after(layer.frame_s * NS_PER_S));
        Some(RunningTask {
            request: &frame.request,
            limits: &layer.limits,
            began: frame.began,
            due,
            ends_by: due,
        })
    }

    fn book(&mut self, booking: &Booking, filter: &mut RoundFilter, out: &mut Vec<Booking>) -> usize {
        let id = booking.queued_step.job();
        let layer = self.layers.get_mut(&id).unwrap();
        let index = layer.ready.pop_first().expect("a step without ready tasks is in no queue");
        let task = TaskId { job: id, index };
        let mut request = self.plan.classes.get(layer.class).request.clone();
        request.cpu *= if self.books_double { 2 } else { 1 };
        let held = HeldAmounts { request: &request, headroom_bytes: 0, expected_ms: 0.0, rides: false };
        self.plan.take(booking, task, id.0, &held);
        self.plan.queues.charge(booking.queue, 1, filter);
        if layer.ready.is_empty() {
            let queued = layer.queued.take().unwrap();
            self.plan.withdraw(layer.queue, layer.class, &queued);
        }
        for name in &layer.limits {
            self.licences.get_mut(name).unwrap().0 += 1;
        }
        self.running.insert(task, Frame { request, worker: booking.worker, layer: id, began: self.now });
        out.push(*booking);
        1
    }
}

#[test]
fn means_are_computed_as_often_as_the_settings_say() {
    let mut plan = Planner::new(PlanSettings { means_ns: 5 * NS_PER_S, ..PlanSettings::default() });
    let at = |seconds: u64| Time(1_000 * NS_PER_S).after(seconds * NS_PER_S);
    plan.set_now(at(0));
    assert!(plan.refresh_statistics(), "the first time");
    plan.record(Metric::WaitS, 10.0);
    plan.set_now(at(4));
    assert!(!plan.refresh_statistics());
    assert_eq!(plan.instance().windows[Metric::WaitS].w5m, None);
    plan.set_now(at(5));
    assert!(!plan.refresh_statistics(), "other work of half a minute is not due");
    assert_eq!(plan.instance().windows[Metric::WaitS].w5m, Some(10.0));
    plan.set_now(at(30));
    assert!(plan.refresh_statistics());
    assert_eq!(plan.means(at(400))[Metric::WaitS].w5m, None, "it was long ago");
}

fn by_task() -> PlanSettings {
    PlanSettings { turn: TurnSettings { charge: Charge::Task, express: None }, ..PlanSettings::default() }
}

#[test]
fn equal_shows_take_turns_and_weights_count() {
    let mut farm = Frames::new(by_task(), &[4, 4, 4]);
    farm.plan.queues.set(&QueueRecord { weight: 200, ..QueueRecord::named("heavy") });
    farm.layer("light", 100, 1, None, 60);
    farm.layer("heavy", 100, 1, None, 60);
    let heavy = farm.plan.queues.id("heavy").unwrap();
    let booked = farm.round(100);
    assert_eq!(booked.len(), 12);
    assert_eq!(booked.iter().filter(|booking| booking.queue == heavy).count(), 8, "two of three");
    farm.check();
}

#[test]
fn a_limit_that_another_system_counts_stops_its_layer_alone() {
    let mut farm = Frames::new(by_task(), &[8]);
    farm.licences.insert("nuke".to_owned(), (0, 2));
    let comp = farm.layer("show", 10, 1, Some("nuke"), 60);
    farm.layer("show", 3, 1, None, 60);
    let booked = farm.round(100);
    assert_eq!(booked.iter().filter(|booking| booking.queued_step.job() == comp).count(), 2);
    assert_eq!(booked.len(), 5);
    let class = farm.layers[&comp].class;
    assert!(farm.plan.blocked.out_of_licences.contains(&class), "and the reason is on record");
    farm.check();
}

#[test]
#[should_panic(expected = "worker host1: booked")]
fn a_booking_beyond_a_worker_s_capacity_stops_the_round() {
    let mut farm = Frames::new(by_task(), &[3]);
    farm.books_double = true;
    farm.layer("show", 2, 2, None, 60);
    farm.round(1);
}

#[test]
#[should_panic(expected = "queue show: holds 400 of Some(300)")]
fn a_booking_beyond_a_queue_s_quota_stops_the_round() {
    let mut farm = Frames::new(by_task(), &[8]);
    farm.plan.queues.set(&QueueRecord { quota_cpu: Some(300), ..QueueRecord::named("show") });
    farm.books_double = true;
    farm.layer("show", 2, 2, None, 60);
    farm.round(1);
}

#[test]
fn wide_frames_get_a_host_that_narrow_ones_would_fill_for_ever() {
    let reserve = ReservationSettings { after_ns: 60 * NS_PER_S, ..ReservationSettings::default() };
    let mut farm = Frames::new(PlanSettings { reserve, ..by_task() }, &[4, 4]);
    farm.layer("narrow", 100_000, 1, None, 45);
    farm.round(1_000);
    // Narrow frames end one by one, so that no host is ever empty by itself.
    for (second, task) in farm.running.keys().copied().collect::<Vec<_>>().into_iter().enumerate() {
        farm.running.get_mut(&task).unwrap().began = farm.now.after(second as u64 * 7 * NS_PER_S);
    }
    let wide = farm.layer("wide", 1, 4, None, 45);
    for second in 0..400 {
        farm.pass(1);
        farm.end_due();
        let booked = farm.round(1_000);
        farm.check();
        if booked.iter().any(|booking| booking.queued_step.job() == wide) {
            assert!(second >= 60, "not before it has waited");
            return;
        }
    }
    panic!("the wide frame never started: {:?}", farm.plan.reservations());
}

proptest! {
    #[test]
    fn a_round_keeps_capacities_and_limits_and_leaves_no_work_out(
        hosts in prop::collection::vec(1_u32..9, 1..6),
        layers in prop::collection::vec((0_usize..4, 1_u32..30, 1_u32..9, any::<bool>(), 1_u64..90), 1..12),
        nukes in 0_u32..4,
        budget in 1_usize..40,
    ) {
        let mut farm = Frames::new(by_task(), &hosts);
        farm.licences.insert("nuke".to_owned(), (0, nukes));
        let mut total = 0;
        for (show, frames, cores, licensed, frame_s) in layers {
            let show = ["a", "b", "c", "d"][show];
            farm.layer(show, frames, cores, licensed.then_some("nuke"), frame_s);
            total += frames as usize;
        }
        let mut booked_in_all = 0;
        for _ in 0..60 {
            loop {
                let booked = farm.round(budget).len();
                prop_assert!(booked <= budget);
                booked_in_all += booked;
                farm.check();
                if booked < budget && !farm.plan.needs_round() {
                    break;
                }
            }
            prop_assert!(!farm.is_work_left_out(), "a host has room for a frame that may start");
            farm.pass(30);
            farm.end_due();
        }
        let waiting: usize = farm.layers.values().map(|layer| layer.ready.len()).sum();
        prop_assert_eq!(booked_in_all + waiting, total, "each frame is booked once");
    }
}
