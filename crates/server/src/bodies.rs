//! Bodies: the command and the environment of a step's tasks, for steps that are started now. The engine does not hold
//! them. The store does, and a bounded part of them is here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_api::{BODY_BYTES_MAX, StepBody};
use windlass_core::JobId;
use windlass_core::engine::Write;
use windlass_core::job::JobRecord;

/// Bytes of bodies, as they were submitted, that are kept. One body may be larger alone.
pub const BYTES_MAX: usize = 32 << 20;
/// What an entry counts for besides its body.
const ENTRY_BYTES: usize = 512;
/// Bodies of no more bytes are parsed where they are needed; larger ones where nobody waits.
pub const SMALL_BYTES: usize = 64 << 10;

/// Bodies of no more bytes are read with the jobs that the engine takes up, for these will start soon.
pub const TINY_BYTES: usize = 4 << 10;

/// Bytes of a body that can be sent to a worker. An earlier release took larger ones, which are in the store still.
const SENT_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// How long a body is tried for that the store does not give while it gives others. Then its tasks end: what follows them
/// to their workers waits for it.
const UNREAD_MAX: Duration = Duration::from_secs(10);

pub type StepId = (JobId, u16);

pub fn steps_of<'a>(records: impl Iterator<Item = &'a JobRecord>) -> Vec<StepId> {
    records.flat_map(|record| (0..record.spec.steps.len()).map(|step| (record.id, step as u16))).collect()
}

enum Kept {
    Raw(Arc<[u8]>),
    Parsed(Arc<StepBody>),
    /// None that can be sent: why.
    Unfit(&'static str),
}

pub enum LoadedBody {
    /// With its bytes in the store.
    Body(Arc<StepBody>, usize),
    /// None that can be sent: why.
    Unfit(&'static str),
    /// There is none: its job is gone.
    Gone,
}

impl LoadedBody {
    /// Parses what the store has.
    pub fn parse(raw: &[u8]) -> LoadedBody {
        match serde_json::from_slice::<StepBody>(raw) {
            Err(_) => LoadedBody::Unfit("what it runs is damaged in the server's store"),
            Ok(body) if raw.len() > SENT_BYTES_MAX && body.sent_bytes() > SENT_BYTES_MAX => {
                LoadedBody::Unfit("what it runs is larger than a worker can be sent")
            }
            Ok(body) => LoadedBody::Body(Arc::new(body), raw.len()),
        }
    }
}

/// Why a body could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadFault {
    /// The store answers, and does not give this body.
    Body,
    /// The store does not answer, which says nothing of the body.
    Store,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WantedBodies {
    /// Those that are read together.
    pub steps: Vec<StepId>,
    /// How many of these, the first, something waits for.
    pub needed: usize,
    /// Those that could not be read before, and that something waits for.
    pub failing: Vec<StepId>,
}

struct Entry {
    body: Kept,
    bytes: usize,
    age: u64,
}

pub enum BodyLookup {
    Found(Arc<StepBody>),
    Missing,
    /// There is none that can be sent: why.
    Unfit(&'static str),
    /// There is none: its job is gone.
    None,
}

/// The cache, and what is to be read into it.
#[derive(Default)]
pub struct Bodies {
    kept: BTreeMap<StepId, Entry>,
    /// By age, oldest first.
    order: BTreeMap<u64, StepId>,
    next: u64,
    bytes: usize,
    wanted: BTreeSet<StepId>,
    /// Those of starts that wait behind others to the same worker.
    ahead: BTreeSet<StepId>,
    /// Steps that were looked for and have none.
    absent: BTreeSet<StepId>,
    /// Steps whose bodies could not be read, since when; those that nothing waits for any more are forgotten.
    failing: BTreeMap<StepId, Instant>,
}

impl Bodies {
    /// Jobs are durable: what they run will be wanted soon.
    pub fn submitted(&mut self, writes: &[Write]) {
        for write in writes {
            let Write::Job { id, spec, .. } = write else { continue };
            for (number, step) in (0..).zip(&spec.steps) {
                if step.body.len() <= SMALL_BYTES {
                    self.keep((*id, number), Kept::Raw(step.body.clone()), step.body.len());
                }
            }
        }
    }

    /// A body was read with its job, before anything needs it.
    pub fn found(&mut self, step: StepId, raw: Arc<[u8]>) {
        if !self.kept.contains_key(&step) {
            let bytes = raw.len();
            self.keep(step, Kept::Raw(raw), bytes);
        }
    }

    /// The body of a step, if it is here; otherwise it is wanted from now on.
    pub fn look(&mut self, step: StepId) -> BodyLookup {
        let read = match self.kept.get(&step) {
            Some(Entry { body: Kept::Parsed(body), .. }) => return BodyLookup::Found(body.clone()),
            Some(Entry { body: Kept::Unfit(why), .. }) => return BodyLookup::Unfit(why),
            Some(Entry { body: Kept::Raw(raw), .. }) => LoadedBody::parse(raw),
            None if self.absent.contains(&step) => return BodyLookup::None,
            None => {
                self.wanted.insert(step);
                return BodyLookup::Missing;
            }
        };
        let body = match read {
            LoadedBody::Body(body, _) => body,
            LoadedBody::Unfit(why) => return BodyLookup::Unfit(why),
            LoadedBody::Gone => return BodyLookup::None,
        };
        if let Some(entry) = self.kept.get_mut(&step) {
            entry.body = Kept::Parsed(body.clone());
        }
        BodyLookup::Found(body)
    }

    /// A body is needed when those before it have come: it may be read along with them.
    pub fn want_ahead(&mut self, step: StepId) {
        if !self.kept.contains_key(&step) {
            self.ahead.insert(step);
        }
    }

    /// The bodies that are to be read; `None` if there are none.
    pub fn take_wanted(&mut self) -> Option<WantedBodies> {
        let wanted = std::mem::take(&mut self.wanted);
        let ahead = std::mem::take(&mut self.ahead);
        self.failing.retain(|step, _| wanted.contains(step));
        let (failing, mut steps): (Vec<StepId>, Vec<StepId>) =
            wanted.iter().copied().partition(|step| self.failing.contains_key(step));
        let needed = steps.len();
        steps.extend(ahead.difference(&wanted));
        (!steps.is_empty() || !failing.is_empty()).then_some(WantedBodies { steps, needed, failing })
    }

    /// A body could not be read. It is tried again as long as something waits for it, and not for ever if the store gives
    /// others.
    pub fn unread(&mut self, step: StepId, fault: ReadFault, now: Instant) {
        let since = self.failing.entry(step).or_insert(now);
        match fault {
            ReadFault::Store => *since = now,
            ReadFault::Body if now.saturating_duration_since(*since) < UNREAD_MAX => {}
            ReadFault::Body => {
                let why = "what it runs cannot be read from the server's store";
                self.read(step, LoadedBody::Unfit(why));
            }
        }
    }

    pub fn read(&mut self, step: StepId, read: LoadedBody) {
        self.failing.remove(&step);
        match read {
            LoadedBody::Body(body, bytes) => self.keep(step, Kept::Parsed(body), bytes),
            LoadedBody::Unfit(why) => self.keep(step, Kept::Unfit(why), 0),
            LoadedBody::Gone => _ = self.absent.insert(step),
        }
    }

    /// All that was read was made use of.
    pub fn forget_absent(&mut self) {
        self.absent.clear();
    }

    fn keep(&mut self, step: StepId, body: Kept, bytes: usize) {
        self.remove(step);
        let bytes = bytes + ENTRY_BYTES;
        while self.bytes + bytes > BYTES_MAX
            && let Some(oldest) = self.order.first_key_value().map(|(_, step)| *step)
        {
            self.remove(oldest);
        }
        self.next += 1;
        self.bytes += bytes;
        self.order.insert(self.next, step);
        self.kept.insert(step, Entry { body, bytes, age: self.next });
    }

    fn remove(&mut self, step: StepId) {
        let Some(entry) = self.kept.remove(&step) else { return };
        self.order.remove(&entry.age);
        self.bytes -= entry.bytes;
    }

    pub fn forget(&mut self, job: JobId) {
        let steps: Vec<StepId> = self.kept.range((job, 0)..=(job, u16::MAX)).map(|(step, _)| *step).collect();
        steps.into_iter().for_each(|step| self.remove(step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::Time;
    use windlass_core::job::{JobSpec, StepSpec};

    fn job(id: u64, body: &str) -> Write {
        let step = StepSpec { body: Arc::from(body.as_bytes()), ..StepSpec::default() };
        let spec = Arc::new(JobSpec { steps: vec![step], ..JobSpec::default() });
        Write::Job { id: JobId(id), spec, created: Time(0) }
    }

    fn body(bytes: usize) -> String {
        format!(r#"{{"command":["{}"],"env":{{}},"cwd":"/","params":"none"}}"#, "x".repeat(bytes))
    }

    /// These jobs' bodies, of which something waits for the first.
    fn wanted(jobs: &[u64], needed: usize) -> Option<WantedBodies> {
        let steps = jobs.iter().map(|job| (JobId(*job), 0)).collect();
        Some(WantedBodies { steps, needed, failing: Vec::new() })
    }

    #[test]
    fn bytes_are_what_is_bounded() {
        let mut bodies = Bodies::default();
        for id in 0..2_000 {
            bodies.submitted(&[job(id, &body(60_000))]);
            assert!(bodies.bytes <= BYTES_MAX && bodies.order.len() == bodies.kept.len());
        }
        assert!(bodies.kept.len() > 500, "{}", bodies.kept.len());
        assert!(matches!(bodies.look((JobId(1_999), 0)), BodyLookup::Found(_)));
        assert!(matches!(bodies.look((JobId(0), 0)), BodyLookup::Missing));
        assert_eq!(bodies.take_wanted(), wanted(&[0], 1));
        let large: StepBody = serde_json::from_str(&body(9)).unwrap();
        bodies.read((JobId(0), 0), LoadedBody::Body(Arc::new(large), 2 * BYTES_MAX));
        assert!(matches!(bodies.look((JobId(0), 0)), BodyLookup::Found(_)), "one may be larger, alone");
        assert_eq!(bodies.kept.len(), 1);
        bodies.forget(JobId(0));
        assert_eq!((bodies.bytes, bodies.order.len()), (0, 0));
    }

    #[test]
    fn what_waits_behind_others_is_read_along_with_them() {
        let mut bodies = Bodies::default();
        assert!(matches!(bodies.look((JobId(7), 0)), BodyLookup::Missing));
        (1..=3).for_each(|job| bodies.want_ahead((JobId(job), 0)));
        bodies.want_ahead((JobId(7), 0));
        assert_eq!(
            bodies.take_wanted(),
            wanted(&[7, 1, 2, 3], 1),
            "what is needed comes first, and each once"
        );
        bodies.submitted(&[job(1, &body(9))]);
        bodies.want_ahead((JobId(1), 0));
        assert_eq!(bodies.take_wanted(), None, "it is here");
    }

    #[test]
    fn what_came_with_its_job_need_not_be_read() {
        let mut bodies = Bodies::default();
        bodies.found((JobId(1), 0), Arc::from(body(9).as_bytes()));
        assert!(matches!(bodies.look((JobId(1), 0)), BodyLookup::Found(_)));
        bodies.found((JobId(1), 0), Arc::from(body(9).as_bytes()));
        assert!(
            matches!(bodies.kept[&(JobId(1), 0)].body, Kept::Parsed(_)),
            "it is not parsed a second time"
        );
        assert_eq!(bodies.take_wanted(), None);
    }

    /// A store that gives others is asked for one body for a bounded time, and one that does not answer for ever.
    #[test]
    fn a_body_that_the_store_does_not_give_is_not_waited_for_for_ever() {
        let (mut bodies, step, began) = (Bodies::default(), (JobId(7), 0), Instant::now());
        let failing = Some(WantedBodies { failing: vec![step], ..WantedBodies::default() });
        let mut fails = |fault, after: Duration| {
            bodies.unread(step, fault, began + after);
            match bodies.look(step) {
                BodyLookup::Missing => assert_eq!(bodies.take_wanted(), failing),
                BodyLookup::Unfit(why) => return Some(why),
                BodyLookup::Found(_) | BodyLookup::None => panic!("it was not read"),
            }
            None
        };
        assert_eq!(fails(ReadFault::Store, Duration::ZERO), None);
        assert_eq!(fails(ReadFault::Store, 100 * UNREAD_MAX), None);
        assert_eq!(
            fails(ReadFault::Body, 100 * UNREAD_MAX),
            None,
            "the time counts from the store's answer on"
        );
        let why = fails(ReadFault::Body, 101 * UNREAD_MAX);
        assert_eq!(why, Some("what it runs cannot be read from the server's store"));
        bodies.unread((JobId(8), 0), ReadFault::Store, began);
        assert_eq!((bodies.take_wanted(), bodies.failing.len()), (None, 0), "nothing waits for it");
    }

    #[test]
    fn what_is_not_there_is_said_once_it_was_looked_for() {
        let mut bodies = Bodies::default();
        assert!(matches!(bodies.look((JobId(7), 0)), BodyLookup::Missing));
        bodies.read((JobId(7), 0), LoadedBody::Gone);
        assert!(matches!(bodies.look((JobId(7), 0)), BodyLookup::None));
        bodies.forget_absent();
        assert!(matches!(bodies.look((JobId(7), 0)), BodyLookup::Missing));
    }

    #[test]
    fn what_no_worker_can_be_sent_is_told() {
        let mut bodies = Bodies::default();
        let told = |bodies: &mut Bodies, raw: &str| {
            bodies.read((JobId(1), 0), LoadedBody::parse(raw.as_bytes()));
            match bodies.look((JobId(1), 0)) {
                BodyLookup::Found(_) => "",
                BodyLookup::Unfit(why) => why,
                BodyLookup::Missing | BodyLookup::None => panic!("it was read"),
            }
        };
        assert_eq!(
            told(&mut bodies, &body(SENT_BYTES_MAX)),
            "what it runs is larger than a worker can be sent"
        );
        assert_eq!(told(&mut bodies, "{}"), "what it runs is damaged in the server's store");
        let values = format!(r#"{{"values":["{}"]}}"#, "v".repeat(SENT_BYTES_MAX));
        assert_eq!(
            told(&mut bodies, &body(9).replace("\"none\"", &values)),
            "",
            "values are sent one by one"
        );
    }
}
