//! The end of the process, losses of power and full disks, at every step that the store takes.

use super::*;
use crate::faults::Step;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

const NOW_MS: u64 = 1_800_000_000_000;
const BYTES_MAX: u64 = 200_000;
const HOUR_MS: u64 = 3_600_000;

fn config(dir: &Path, sync: SyncPolicy) -> CasConfig {
    CasConfig { dir: dir.to_owned(), bytes_max: BYTES_MAX, keep_ms: 3 * HOUR_MS, sync }
}

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_mul(31).wrapping_add((at % 251) as u8)).collect()
}

fn name(seed: u8, len: usize) -> Digest {
    Digest::of(&bytes(seed, len))
}

fn put(cas: &Cas, space: Space, seed: u8, len: usize) -> Result<(), CasError> {
    cas.put(space, name(seed, len), &bytes(seed, len), NOW_MS)
}

/// A store without faults.
fn open(dir: &Path) -> Cas {
    Cas::open(config(dir, SyncPolicy::Never), NOW_MS).unwrap()
}

/// A store, and what lets all of its steps fail from then on.
fn open_faulty(dir: &Path, error: fn(Step) -> Option<io::Error>) -> (Cas, Arc<AtomicBool>) {
    let is_on = Arc::new(AtomicBool::new(false));
    let switch = is_on.clone();
    let fault = move |step: Step| match error(step).filter(|_| switch.load(Ordering::SeqCst)) {
        Some(error) => Err(error),
        None => Ok(()),
    };
    let faults = Faults(Some(Arc::new(fault)));
    (Cas::open_with(config(dir, SyncPolicy::Files), BLOBS_MAX, faults, NOW_MS).unwrap(), is_on)
}

fn ended(_: Step) -> Option<io::Error> {
    Some(io::Error::other("the process has ended"))
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn path_of(cas: &Cas, digest: Digest) -> PathBuf {
    match cas.read(Space::Jobs, digest, NOW_MS).unwrap() {
        Some(Blob::File { path, .. }) => path,
        other => panic!("{digest} is not a file: {other:?}"),
    }
}

/// Files under a directory, by their names.
fn files_in(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(files_in(&entry.path()));
        } else {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

/// What the store acknowledged, and so must have when it is opened again.
#[derive(Default)]
struct Acknowledged {
    blobs: Vec<(Space, u8, usize)>,
    is_pinned: bool,
    is_held: bool,
    has_note: bool,
    has_result: bool,
}

/// All blobs that a history uploads.
const BLOBS: [(u8, usize); 5] = [(1, 100), (2, 40_000), (3, 30_000), (4, 120_000), (5, 90_000)];
const RESULT: &[u8] = b"a result";

/// Uploads, pins and evicts, until a step fails.
fn history(dir: &Path, faults: Faults) -> Acknowledged {
    let mut done = Acknowledged::default();
    let Ok(cas) = Cas::open_with(config(dir, SyncPolicy::Files), BLOBS_MAX, faults, NOW_MS) else {
        return done;
    };
    for (space, seed, len) in [
        (Space::Jobs, 1, 100),
        (Space::Jobs, 2, 40_000),
        (Space::Cache, 2, 40_000),
        (Space::Cache, 3, 30_000),
    ] {
        if put(&cas, space, seed, len).is_ok() {
            done.blobs.push((space, seed, len));
        }
    }
    let pinned = cas.pin(Space::Jobs, "job", &[name(2, 40_000)]);
    done.is_pinned = pinned.is_ok_and(|missing| missing.is_empty());
    done.is_held = done.is_pinned && cas.hold("ann", &[name(2, 40_000)]).is_ok();
    done.has_note = cas.set_note("job/7", 3, RESULT).is_ok();
    // With this one the store is above its high water.
    let fourth = put(&cas, Space::Jobs, 4, 120_000);
    done.blobs.retain(|(_, seed, _)| *seed == 2);
    if cas.sweep(NOW_MS + 4 * HOUR_MS).is_ok() && fourth.is_ok() {
        let left = BLOBS.map(|(seed, len)| cas.contains(Space::Jobs, name(seed, len)));
        assert_eq!(left, [false, true, false, true, false], "two are evicted, and the pinned one stays");
    }
    // For this one the fourth goes.
    if put(&cas, Space::Jobs, 5, 90_000).is_ok() {
        done.blobs.push((Space::Jobs, 5, 90_000));
    }
    done.has_result = cas.set_action("", name(1, 100), RESULT, NOW_MS).is_ok();
    done
}

/// Opens what a history left, and compares it with what was acknowledged.
fn check(dir: &Path, done: &Acknowledged) {
    let cas = open(dir);
    for (space, seed, len) in &done.blobs {
        assert!(cas.contains(*space, name(*seed, *len)), "{seed} was acknowledged in {space:?}");
    }
    let (mut bytes, mut files) = (0, Vec::new());
    for (seed, len) in BLOBS {
        let digest = name(seed, len);
        for space in [Space::Cache, Space::Jobs] {
            if let Some(blob) = cas.read(space, digest, NOW_MS).unwrap() {
                assert_eq!(Digest::of(&blob.into_bytes().unwrap()), digest);
            }
        }
        if cas.0.index.lock().get(digest).is_some() {
            bytes += digest.size;
            files.extend(is_file(digest).then(|| format!("{}-{len}", digest.hex())));
        }
    }
    files.sort();
    assert_eq!(files_in(&dir.join("blobs")), files);
    assert!(files_in(&dir.join("temp")).is_empty());
    let figures = cas.figures();
    assert_eq!((figures.bytes, figures.damaged), (bytes, 0), "all that was found is whole");
    if done.is_pinned {
        assert_eq!((figures.pins, figures.pinned_bytes), (1, 40_000));
    }
    if done.has_result {
        assert_eq!(cas.action("", name(1, 100), NOW_MS).unwrap().as_deref(), Some(RESULT));
    }
    if done.is_held {
        assert!(cas.missing_of("ann", &[name(2, 40_000)], NOW_MS).is_empty());
    }
    assert_eq!(cas.missing_of("bob", &[name(2, 40_000)], NOW_MS).len(), 1, "and no other user has it");
    if done.has_note {
        assert_eq!(cas.notes("job/7", 0, 9).unwrap(), [(3, RESULT.to_vec())]);
        assert_eq!(figures.note_bytes, RESULT.len() as u64);
    }
    cas.forget("job").unwrap();
    assert_eq!(cas.figures().pinned_bytes, 0);
    for (seed, len) in BLOBS {
        put(&cas, Space::Jobs, seed, len).unwrap();
    }
}

#[test]
fn a_store_is_whole_after_an_end_at_any_step() {
    for steps in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let counter = taken.clone();
        let fault = move |step: Step| {
            let is_over = counter.fetch_add(1, Ordering::SeqCst) >= steps;
            ended(step).filter(|_| is_over).map_or(Ok(()), Err)
        };
        let done = history(dir.path(), Faults(Some(Arc::new(fault))));
        check(dir.path(), &done);
        if taken.load(Ordering::SeqCst) <= steps {
            assert!(steps > 30 && done.has_result && done.is_held, "the last history has no fault");
            return;
        }
    }
}

#[test]
fn what_a_loss_of_power_tore_is_found_if_it_was_written_within_the_last_minute() {
    let dir = tempfile::tempdir().unwrap();
    let old = name(1, 20_000);
    {
        let (cas, is_over) = open_faulty(dir.path(), ended);
        // A clock that is set back must not hide later writes.
        cas.put(Space::Jobs, old, &bytes(1, 20_000), NOW_MS - 2 * HOUR_MS).unwrap();
        cas.put(Space::Jobs, name(2, 20_000), &bytes(2, 20_000), NOW_MS + HOUR_MS).unwrap();
        for seed in 3..6 {
            put(&cas, Space::Jobs, seed, 20_000).unwrap();
        }
        for (seed, torn) in
            [(1, &b""[..]), (3, &b""[..]), (4, &bytes(4, 19_999)[..]), (5, &bytes(1, 20_000)[..])]
        {
            let path = path_of(&cas, name(seed, 20_000));
            fs::remove_file(&path).unwrap();
            fs::write(&path, torn).unwrap();
        }
        fs::write(dir.path().join("blobs/stray"), b"not a blob").unwrap();
        is_over.store(true, Ordering::SeqCst);
    }
    let cas = open(dir.path());
    let all: Vec<Digest> = (1..6).map(|seed| name(seed, 20_000)).collect();
    assert_eq!(cas.missing(Space::Jobs, &all, NOW_MS), all[2..], "older writes were on the disk");
    assert_eq!(files_in(&dir.path().join("blobs")).len(), 2);
    for seed in 3..6 {
        put(&cas, Space::Jobs, seed, 20_000).unwrap();
        assert_eq!(Digest::of(&fs::read(path_of(&cas, name(seed, 20_000))).unwrap()), name(seed, 20_000));
    }
}

#[test]
fn an_upload_on_a_full_disk_is_refused_and_leaves_nothing() {
    for at in [Step::Create, Step::Write, Step::Sync, Step::Commit, Step::Rename] {
        let dir = tempfile::tempdir().unwrap();
        let is_on = Arc::new(AtomicBool::new(false));
        let switch = is_on.clone();
        let fault =
            move |step: Step| if step == at && switch.load(Ordering::SeqCst) { Err(full()) } else { Ok(()) };
        let faults = Faults(Some(Arc::new(fault)));
        let cas = Cas::open_with(config(dir.path(), SyncPolicy::Files), BLOBS_MAX, faults, NOW_MS).unwrap();
        put(&cas, Space::Jobs, 1, 20_000).unwrap();
        let before = cas.figures();
        is_on.store(true, Ordering::SeqCst);
        let refused = put(&cas, Space::Jobs, 2, 20_000);
        assert!(matches!(refused, Err(CasError::DiskFull(_))), "{at:?}: {refused:?}");
        if at == Step::Commit {
            assert!(matches!(put(&cas, Space::Jobs, 3, 100), Err(CasError::DiskFull(_))));
            assert!(cas.pin(Space::Jobs, "job", &[name(1, 20_000)]).is_err());
            assert!(cas.set_action("", name(1, 20_000), RESULT, NOW_MS).is_err());
        }
        assert_eq!(cas.figures(), before, "{at:?}");
        assert!(files_in(&dir.path().join("temp")).is_empty(), "{at:?}");
        assert_eq!(files_in(&dir.path().join("blobs")).len(), 1, "{at:?}");
        is_on.store(false, Ordering::SeqCst);
        put(&cas, Space::Jobs, 2, 20_000).unwrap();
        drop(cas);
        let cas = open(dir.path());
        assert_eq!(cas.figures().blobs, 2, "{at:?}");
        assert!(cas.read(Space::Jobs, name(1, 20_000), NOW_MS).unwrap().is_some());
    }
}

#[test]
fn evictions_go_on_while_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let (cas, is_on) = open_faulty(dir.path(), |step| (step == Step::Commit).then(full));
    for seed in 1..=6 {
        put(&cas, Space::Jobs, seed, 32_000).unwrap();
    }
    is_on.store(true, Ordering::SeqCst);
    let swept = cas.sweep(NOW_MS + 4 * HOUR_MS);
    assert!(matches!(swept, Err(CasError::DiskFull(_))), "{swept:?}");
    assert_eq!(
        files_in(&dir.path().join("blobs")).len(),
        5,
        "room was made although no row could be removed"
    );
    assert_eq!(cas.figures().bytes, 5 * 32_000);
    is_on.store(false, Ordering::SeqCst);
    // The rows that are owed go with the next sweep.
    cas.sweep(NOW_MS).unwrap();
    drop(cas);
    assert_eq!(open(dir.path()).figures().blobs, 5);
}

#[test]
fn a_failed_transaction_fails_all_of_its_changes_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let commits = AtomicUsize::new(0);
    let fault = move |step: Step| {
        let is_odd = step == Step::Commit && commits.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        if is_odd { Err(full()) } else { Ok(()) }
    };
    let faults = Faults(Some(Arc::new(fault)));
    let cas = Cas::open_with(config(dir.path(), SyncPolicy::Never), BLOBS_MAX, faults, NOW_MS).unwrap();
    let put_one = |seed: u8| put(&cas, Space::Jobs, seed, 1_000).is_ok();
    let mut kept: Vec<bool> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..64).map(|seed| scope.spawn(move || put_one(seed))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    // One after the other these are in transactions of their own.
    kept.extend((64..68).map(put_one));
    assert!(kept.contains(&true) && kept.contains(&false));
    let is_there = |cas: &Cas| -> Vec<bool> {
        (0..68).map(|seed| cas.read(Space::Jobs, name(seed, 1_000), NOW_MS).unwrap().is_some()).collect()
    };
    assert_eq!(is_there(&cas), kept);
    drop(cas);
    assert_eq!(is_there(&open(dir.path())), kept);
}

#[test]
fn the_number_of_blobs_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let cas = Cas::open_with(config(dir.path(), SyncPolicy::Never), 20, Faults::default(), NOW_MS).unwrap();
    for seed in 0..60u8 {
        let now_ms = NOW_MS + u64::from(seed) * 1_000;
        cas.put(Space::Jobs, name(seed, 100), &bytes(seed, 100), now_ms).unwrap();
        assert!(cas.figures().blobs <= 20);
        assert!(cas.contains(Space::Jobs, name(seed, 100)));
    }
    // Rows of evicted blobs give their slots to later ones.
    assert!(cas.0.index.lock().slots() <= 21);
}

#[test]
fn an_upload_for_the_other_space_shares_the_blob_without_saying_that_it_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    for (seed, len) in [(1, 100), (2, 20_000)] {
        put(&cas, Space::Jobs, seed, len).unwrap();
        let digest = name(seed, len);
        assert_eq!(cas.missing(Space::Cache, &[digest], NOW_MS), [digest]);
        assert!(!cas.contains(Space::Cache, digest));
        assert!(cas.read(Space::Cache, digest, NOW_MS).unwrap().is_none());
        assert!(cas.digest_of(Space::Cache, digest.hash).is_none());
        assert_eq!(cas.pin(Space::Cache, "build", &[digest]).unwrap(), [digest]);
        let wrong = vec![0; len];
        assert!(matches!(cas.put(Space::Cache, digest, &wrong, NOW_MS), Err(CasError::Mismatch { .. })));
        assert!(!cas.contains(Space::Cache, digest));
        put(&cas, Space::Cache, seed, len).unwrap();
        assert!(cas.contains(Space::Cache, digest) && cas.contains(Space::Jobs, digest));
        assert_eq!(cas.digest_of(Space::Cache, digest.hash), Some(digest));
    }
    assert_eq!((cas.figures().blobs, cas.figures().bytes), (2, 20_100));
    drop(cas);
    assert!(open(dir.path()).contains(Space::Cache, name(2, 20_000)), "spaces are in the rows");
}
