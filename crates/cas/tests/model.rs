//! The store against a model of it, over random histories: what is there in each space and for each user, last uses,
//! pins, and which blobs are evicted. After each step the figures are those of the model.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use tempfile::TempDir;
use windlass_cas::{Cas, CasConfig, CasError, Digest, Space, SyncPolicy};

const BEGIN_S: u64 = 1_800_000_000;
const BYTES_MAX: u64 = 200_000;
/// Bytes above which a sweep evicts, and down to which it does.
const HIGH_BYTES: u64 = 190_000;
const LOW_BYTES: u64 = 170_000;
const KEEP_S: u64 = 600;
/// Uses of a blob within this time after its last one change nothing.
const USE_STEP_S: u64 = 60;
const BLOBS: usize = 14;
const OWNERS: [&str; 3] = ["job 1", "job 2", "job 3"];
const USERS: [&str; 2] = ["ann", "bob"];

#[derive(Clone, Debug)]
enum Op {
    Put(usize, Space),
    Missing(Vec<usize>, Space),
    Read(usize, Space),
    Pin(usize, Vec<usize>, Space),
    Unpin(usize),
    Hold(usize, Vec<usize>),
    MissingOf(usize, Vec<usize>),
    Sweep,
    Reopen,
    WaitS(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let space = || prop_oneof![Just(Space::Cache), Just(Space::Jobs)];
    let blobs = || prop::collection::vec(0..BLOBS, 0..5);
    let op = prop_oneof![
        12 => (0..BLOBS, space()).prop_map(|(blob, space)| Op::Put(blob, space)),
        3 => (blobs(), space()).prop_map(|(blobs, space)| Op::Missing(blobs, space)),
        4 => (0..BLOBS, space()).prop_map(|(blob, space)| Op::Read(blob, space)),
        2 => (0..OWNERS.len(), blobs(), space()).prop_map(|(owner, blobs, space)| Op::Pin(owner, blobs, space)),
        2 => (0..OWNERS.len()).prop_map(Op::Unpin),
        3 => (0..USERS.len(), blobs()).prop_map(|(user, blobs)| Op::Hold(user, blobs)),
        3 => (0..USERS.len(), blobs()).prop_map(|(user, blobs)| Op::MissingOf(user, blobs)),
        2 => Just(Op::Sweep),
        1 => Just(Op::Reopen),
        4 => (1u64..400).prop_map(Op::WaitS),
    ];
    prop::collection::vec(op, 1..80)
}

/// All blobs with their digests, which are asked for after each step.
static ALL: LazyLock<Vec<(Vec<u8>, Digest)>> = LazyLock::new(|| {
    let size = |blob: usize| [100, 5_000, 16_384, 16_385, 30_000, 60_000, 90_000][blob % 7];
    let all = (0..BLOBS).map(|blob| vec![blob as u8 + 1; size(blob)]);
    all.map(|bytes| (bytes.clone(), Digest::of(&bytes))).collect()
});

fn bytes(blob: usize) -> &'static [u8] {
    &ALL[blob].0
}

fn digest(blob: usize) -> Digest {
    ALL[blob].1
}

fn size(blob: usize) -> u64 {
    ALL[blob].1.size
}

/// A blob of the model.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    spaces: Vec<Space>,
    used_s: u64,
}

struct World {
    dir: TempDir,
    cas: Option<Cas>,
    now_s: u64,
    blobs: BTreeMap<usize, Known>,
    pins: BTreeSet<(usize, usize)>,
    /// Users and the blobs of jobs that they hold.
    holders: BTreeSet<(usize, usize)>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            dir: tempfile::tempdir().unwrap(),
            cas: None,
            now_s: BEGIN_S,
            blobs: BTreeMap::new(),
            pins: BTreeSet::new(),
            holders: BTreeSet::new(),
        };
        world.open();
        world
    }

    fn open(&mut self) {
        let dir = self.dir.path().to_owned();
        let config =
            CasConfig { dir, bytes_max: BYTES_MAX, keep_ms: KEEP_S * 1_000, sync: SyncPolicy::Never };
        // The one before has ended first.
        self.cas = None;
        self.cas = Some(Cas::open(config, self.now_ms()).unwrap());
    }

    fn cas(&self) -> &Cas {
        self.cas.as_ref().unwrap()
    }

    fn now_ms(&self) -> u64 {
        self.now_s * 1_000 + 7
    }

    fn act(&mut self, op: &Op) {
        let now_ms = self.now_ms();
        match op {
            Op::Put(blob, space) => self.put(*blob, *space),
            Op::Missing(blobs, space) => {
                let digests: Vec<Digest> = blobs.iter().map(|blob| digest(*blob)).collect();
                let missing = self.cas().missing(*space, &digests, now_ms);
                assert_eq!(missing, self.not_in(blobs, *space));
                blobs.iter().for_each(|blob| self.touch(*blob, *space));
            }
            Op::Read(blob, space) => {
                let read = self.cas().read(*space, digest(*blob), now_ms).unwrap();
                assert_eq!(read.is_some(), self.is_in(*blob, *space));
                if let Some(read) = read {
                    assert_eq!(read.into_bytes().unwrap(), bytes(*blob));
                }
                self.touch(*blob, *space);
            }
            Op::Pin(owner, blobs, space) => {
                let digests: Vec<Digest> = blobs.iter().map(|blob| digest(*blob)).collect();
                let missing = self.cas().pin(*space, OWNERS[*owner], &digests).unwrap();
                assert_eq!(missing, self.not_in(blobs, *space));
                let pinned: Vec<usize> =
                    blobs.iter().copied().filter(|blob| self.is_in(*blob, *space)).collect();
                self.pins.extend(pinned.into_iter().map(|blob| (*owner, blob)));
            }
            Op::Unpin(owner) => {
                self.cas().unpin(OWNERS[*owner]).unwrap();
                self.pins.retain(|(by, _)| by != owner);
            }
            Op::Hold(user, blobs) => {
                let digests: Vec<Digest> = blobs.iter().map(|blob| digest(*blob)).collect();
                self.cas().hold(USERS[*user], &digests).unwrap();
                let held: Vec<usize> =
                    blobs.iter().copied().filter(|blob| self.is_in(*blob, Space::Jobs)).collect();
                self.holders.extend(held.into_iter().map(|blob| (*user, blob)));
            }
            Op::MissingOf(user, blobs) => {
                let is_held = |blob: &usize| self.holders.contains(&(*user, *blob));
                let (held, others): (Vec<usize>, Vec<usize>) = blobs.iter().copied().partition(is_held);
                let digests: Vec<Digest> = blobs.iter().map(|blob| digest(*blob)).collect();
                let missing = self.cas().missing_of(USERS[*user], &digests, now_ms);
                assert_eq!(missing, others.into_iter().map(digest).collect::<Vec<_>>());
                held.into_iter().for_each(|blob| self.touch(blob, Space::Jobs));
            }
            Op::Sweep => self.sweep(),
            Op::Reopen => self.open(),
            Op::WaitS(seconds) => self.now_s += seconds,
        }
        self.compare();
    }

    fn put(&mut self, blob: usize, space: Space) {
        let (before, evicted_before) = (self.blobs.clone(), self.cas().figures().evicted);
        let (total, pinned) = (self.bytes(), self.pinned_bytes());
        let put = self.cas().put(space, digest(blob), bytes(blob), self.now_ms());
        let evicted = self.cas().figures().evicted - evicted_before;
        if before.contains_key(&blob) {
            // Its bytes are there, so no room is made for them.
            put.unwrap();
            assert_eq!(evicted, 0);
            return self.add_space(blob, space);
        }
        if total + size(blob) > BYTES_MAX && pinned + size(blob) > BYTES_MAX {
            assert!(matches!(put, Err(CasError::Full { .. })), "{put:?}");
            assert_eq!(evicted, 0);
            return;
        }
        put.unwrap();
        let gone = self.take_missing();
        assert_eq!(gone.len() as u64, evicted);
        if total + size(blob) <= BYTES_MAX {
            assert_eq!(evicted, 0, "there was room");
        } else {
            self.check_evicted(&before, &gone, LOW_BYTES.min(BYTES_MAX - size(blob)), u64::MAX);
        }
        self.add_space(blob, space);
    }

    fn add_space(&mut self, blob: usize, space: Space) {
        let now_s = self.now_s;
        let known = self.blobs.entry(blob).or_insert(Known { spaces: Vec::new(), used_s: now_s });
        if !known.spaces.contains(&space) {
            known.spaces.push(space);
        }
        self.touch(blob, space);
    }

    fn sweep(&mut self) {
        let (before, total) = (self.blobs.clone(), self.bytes());
        let swept = self.cas().sweep(self.now_ms()).unwrap();
        let gone = self.take_missing();
        assert_eq!(swept.blobs, gone.len() as u64);
        assert_eq!(swept.bytes, gone.iter().map(|(blob, _)| size(*blob)).sum::<u64>());
        if total > HIGH_BYTES {
            self.check_evicted(&before, &gone, LOW_BYTES, self.now_s - KEEP_S);
        } else {
            assert!(gone.is_empty(), "the store is below its high water");
        }
    }

    /// What was evicted is what was used longest ago of what may be evicted, until the store is within the aim.
    fn check_evicted(
        &self,
        before: &BTreeMap<usize, Known>,
        gone: &[(usize, Known)],
        aim: u64,
        before_s: u64,
    ) {
        let is_pinned = |blob: &usize| self.pins.iter().any(|(_, pinned)| pinned == blob);
        let is_gone = |blob: &usize| gone.iter().any(|(other, _)| other == blob);
        let may_go = |blob: &usize, known: &Known| !is_pinned(blob) && known.used_s < before_s;
        let last_s = gone.iter().map(|(_, known)| known.used_s).max().unwrap_or(0);
        for (blob, known) in before {
            if is_gone(blob) {
                assert!(may_go(blob, known), "{blob} was pinned or used lately");
            } else if may_go(blob, known) {
                assert!(known.used_s >= last_s, "{blob} was used before one that was evicted");
            }
        }
        let left = |blob: &&usize| !is_gone(blob);
        let bytes: u64 = before.keys().filter(left).map(|blob| size(*blob)).sum();
        let is_all = before.iter().all(|(blob, known)| is_gone(blob) || !may_go(blob, known));
        assert!(bytes <= aim || is_all, "{bytes} bytes are left, and some could go");
        let mut last = gone.iter().filter(|(_, known)| known.used_s == last_s);
        assert!(gone.is_empty() || last.any(|(blob, _)| bytes + size(*blob) > aim), "more went than had to");
    }

    /// Takes those blobs out of the model that the store does not have any more.
    fn take_missing(&mut self) -> Vec<(usize, Known)> {
        let is_gone = |blob: &usize, known: &Known| !self.cas().contains(known.spaces[0], digest(*blob));
        let gone: Vec<usize> =
            self.blobs.iter().filter(|known| is_gone(known.0, known.1)).map(|(blob, _)| *blob).collect();
        self.holders.retain(|(_, blob)| !gone.contains(blob));
        gone.into_iter().map(|blob| (blob, self.blobs.remove(&blob).unwrap())).collect()
    }

    fn compare(&self) {
        for blob in 0..BLOBS {
            for space in [Space::Cache, Space::Jobs] {
                assert_eq!(
                    self.cas().contains(space, digest(blob)),
                    self.is_in(blob, space),
                    "{blob} {space:?}"
                );
            }
        }
        let figures = self.cas().figures();
        assert_eq!((figures.blobs, figures.bytes), (self.blobs.len() as u64, self.bytes()));
        assert_eq!((figures.pins, figures.pinned_bytes), (self.pins.len() as u64, self.pinned_bytes()));
        assert_eq!((figures.writers, figures.reserved_bytes, figures.damaged), (0, 0, 0));
    }

    fn is_in(&self, blob: usize, space: Space) -> bool {
        self.blobs.get(&blob).is_some_and(|known| known.spaces.contains(&space))
    }

    fn not_in(&self, blobs: &[usize], space: Space) -> Vec<Digest> {
        blobs.iter().filter(|blob| !self.is_in(**blob, space)).map(|blob| digest(*blob)).collect()
    }

    fn touch(&mut self, blob: usize, space: Space) {
        if self.is_in(blob, space) {
            let known = self.blobs.get_mut(&blob).unwrap();
            if self.now_s >= known.used_s + USE_STEP_S {
                known.used_s = self.now_s;
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.blobs.keys().map(|blob| size(*blob)).sum()
    }

    fn pinned_bytes(&self) -> u64 {
        let pinned: BTreeSet<usize> = self.pins.iter().map(|(_, blob)| *blob).collect();
        pinned.into_iter().map(size).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(ops in ops()) {
        let mut world = World::new();
        ops.iter().for_each(|op| world.act(op));
    }
}
