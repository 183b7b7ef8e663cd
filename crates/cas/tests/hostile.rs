//! What clients and disks may say: digests that are none, sizes that are wrong, files that are damaged.

use proptest::prelude::*;
use std::fs;
use std::path::Path;
use windlass_cas::{Blob, Cas, CasConfig, CasError, Digest, DigestError, Hasher, Space, SyncPolicy};

const NOW_MS: u64 = 1_800_000_000_000;
const BYTES_MAX: u64 = 1 << 20;

fn config(dir: &Path) -> CasConfig {
    CasConfig { dir: dir.to_owned(), bytes_max: BYTES_MAX, keep_ms: 0, sync: SyncPolicy::Never }
}

fn open(dir: &Path) -> Cas {
    Cas::open(config(dir), NOW_MS).unwrap()
}

/// Changes the database of a closed or open store beside it.
fn change(dir: &Path, statement: &str) {
    rusqlite::Connection::open(dir.join("small.db")).unwrap().execute_batch(statement).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_digest_is_read_as_it_is_shown(hash: [u8; 32], size in 0..=i64::MAX) {
        let digest = Digest { hash, size: size as u64 };
        prop_assert_eq!(Digest::parse(&digest.hex(), size), Ok(digest));
        prop_assert_eq!(digest.to_string(), format!("{}/{size}", digest.hex()));
    }

    #[test]
    fn no_other_text_is_a_digest(text in "[0-9a-fA-Fg/.\\-é]{0,70}", size: i64) {
        let is_hash = text.len() == 64 && text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
        match Digest::parse(&text, size) {
            Ok(digest) => prop_assert!(is_hash && size >= 0 && digest.hex() == text),
            Err(DigestError::Hash { .. }) => prop_assert!(!is_hash),
            Err(DigestError::Size { found }) => prop_assert!(size < 0 && found == size),
        }
    }

    #[test]
    fn pieces_have_the_digest_of_the_whole(bytes: Vec<u8>, cut in 1usize..40) {
        let mut hasher = Hasher::default();
        bytes.chunks(cut).for_each(|piece| hasher.update(piece));
        prop_assert_eq!(hasher.size(), bytes.len() as u64);
        prop_assert_eq!(hasher.finish(), Digest::of(&bytes));
        prop_assert_eq!(Digest::of_reader(&mut bytes.as_slice()).unwrap(), Digest::of(&bytes));
    }
}

#[test]
fn the_empty_blob_is_always_there() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    assert_eq!(Digest::of(b""), Digest::EMPTY);
    assert!(cas.missing(Space::Cache, &[Digest::EMPTY], NOW_MS).is_empty());
    assert!(cas.contains(Space::Jobs, Digest::EMPTY));
    assert!(cas.pin(Space::Jobs, "job", &[Digest::EMPTY]).unwrap().is_empty());
    cas.put(Space::Jobs, Digest::EMPTY, b"", NOW_MS).unwrap();
    assert!(
        matches!(cas.read(Space::Jobs, Digest::EMPTY, NOW_MS), Ok(Some(Blob::Bytes(bytes))) if bytes.is_empty())
    );
    let other = Digest { hash: [7; 32], size: 0 };
    assert_eq!(cas.missing(Space::Cache, &[other], NOW_MS), [other]);
    assert!(matches!(cas.put(Space::Cache, other, b"", NOW_MS), Err(CasError::Mismatch { .. })));
}

#[test]
fn bytes_that_the_digest_does_not_name_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    for len in [100, 20_000] {
        let bytes = vec![b'a'; len];
        let right = Digest::of(&bytes);
        let wrong = [
            Digest { hash: [1; 32], ..right },
            Digest { size: right.size + 1, ..right },
            Digest { size: right.size - 1, ..right },
        ];
        for digest in wrong {
            let refused = cas.put(Space::Cache, digest, &bytes, NOW_MS);
            assert!(matches!(refused, Err(CasError::Mismatch { .. })), "{digest}: {refused:?}");
        }
        cas.put(Space::Cache, right, &bytes, NOW_MS).unwrap();
        // The hash of a blob with another size names nothing, now that the blob is there.
        assert_eq!(cas.missing(Space::Cache, &wrong, NOW_MS), wrong);
        assert!(cas.read(Space::Cache, wrong[1], NOW_MS).unwrap().is_none());
    }
    for size in [BYTES_MAX + 1, i64::MAX as u64, u64::MAX] {
        let refused = cas.writer(Space::Cache, Digest { hash: [2; 32], size });
        assert!(matches!(refused, Err(CasError::TooLarge { .. })), "{size}");
    }
    let figures = cas.figures();
    assert_eq!((figures.blobs, figures.reserved_bytes, figures.writers), (2, 0, 0));
}

#[test]
fn names_and_results_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    let action = Digest::of(b"action");
    let long = "x".repeat(300);
    assert!(matches!(cas.pin(Space::Jobs, &long, &[]), Err(CasError::LongName { .. })));
    assert!(matches!(cas.set_action(&long, action, b"", NOW_MS), Err(CasError::LongName { .. })));
    assert!(cas.action(&long, action, NOW_MS).unwrap().is_none());
    let large = vec![0; 110_000];
    assert!(matches!(cas.set_action("", action, &large, NOW_MS), Err(CasError::TooLarge { .. })));
    // Results have a tenth of the store, and push out each other.
    for seed in 0..100u8 {
        let at_ms = NOW_MS + u64::from(seed) * 1_000;
        cas.set_action("main", Digest::of(&[seed]), &vec![seed; 10_000], at_ms).unwrap();
        assert!(cas.figures().action_bytes <= BYTES_MAX / 10);
    }
    assert_eq!(cas.figures().actions, 10);
    assert!(cas.action("main", Digest::of(&[89]), NOW_MS).unwrap().is_none());
    assert_eq!(cas.action("main", Digest::of(&[90]), NOW_MS).unwrap(), Some(vec![90; 10_000]));
    assert!(cas.action("other", Digest::of(&[90]), NOW_MS).unwrap().is_none(), "instances are apart");
    cas.set_action("main", Digest::of(&[90]), b"newer", NOW_MS).unwrap();
    assert_eq!(cas.action("main", Digest::of(&[90]), NOW_MS).unwrap().as_deref(), Some(&b"newer"[..]));
    let figures = cas.figures();
    drop(cas);
    let again = open(dir.path()).figures();
    assert_eq!((again.actions, again.action_bytes), (figures.actions, figures.action_bytes));
}

#[test]
fn a_full_store_refuses_what_pins_leave_no_room_for() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    let large = vec![1; 700_000];
    let pinned = Digest::of(&large);
    cas.put(Space::Jobs, pinned, &large, NOW_MS).unwrap();
    cas.pin(Space::Jobs, "job 1", &[pinned]).unwrap();
    cas.pin(Space::Jobs, "job 2", &[pinned, pinned]).unwrap();
    let next = vec![2; 400_000];
    let refused = cas.put(Space::Jobs, Digest::of(&next), &next, NOW_MS);
    assert!(matches!(refused, Err(CasError::Full { pinned_bytes: 700_000, .. })), "{refused:?}");
    assert_eq!((cas.figures().refused, cas.figures().pins), (1, 2));
    cas.unpin("job 1").unwrap();
    assert!(cas.put(Space::Jobs, Digest::of(&next), &next, NOW_MS).is_err(), "the other job has it pinned");
    cas.unpin("job 2").unwrap();
    cas.unpin("job 2").unwrap();
    cas.put(Space::Jobs, Digest::of(&next), &next, NOW_MS).unwrap();
    assert!(!cas.contains(Space::Jobs, pinned));
}

#[test]
fn a_damaged_blob_is_missing_from_when_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    let (small, large) = (vec![3; 500], vec![4; 50_000]);
    for bytes in [&small, &large] {
        cas.put(Space::Jobs, Digest::of(bytes), bytes, NOW_MS).unwrap();
    }
    cas.pin(Space::Jobs, "job", &[Digest::of(&large)]).unwrap();
    change(dir.path(), "UPDATE bodies SET bytes = x'00'");
    let Ok(Some(Blob::File { path, size, .. })) = cas.read(Space::Jobs, Digest::of(&large), NOW_MS) else {
        panic!("a large blob is a file");
    };
    assert_eq!(size, 50_000);
    assert!(fs::metadata(&path).unwrap().permissions().readonly());
    fs::remove_file(path).unwrap();
    for (number, bytes) in [&small, &large].into_iter().enumerate() {
        let digest = Digest::of(bytes);
        assert!(cas.read(Space::Jobs, digest, NOW_MS).unwrap().is_none());
        assert_eq!(cas.missing(Space::Jobs, &[digest], NOW_MS), [digest]);
        assert_eq!(cas.figures().damaged, number as u64 + 1);
        cas.put(Space::Jobs, digest, bytes, NOW_MS).unwrap();
        assert_eq!(&cas.read(Space::Jobs, digest, NOW_MS).unwrap().unwrap().into_bytes().unwrap(), bytes);
    }
    drop(cas);
    let cas = open(dir.path());
    assert_eq!((cas.figures().blobs, cas.figures().pins), (2, 0), "the pin was of the blob that was lost");
    // The end of the job unpins nothing else.
    cas.pin(Space::Jobs, "other", &[Digest::of(&small)]).unwrap();
    cas.unpin("job").unwrap();
    assert_eq!(cas.figures().pinned_bytes, 500);
}

#[test]
fn a_store_that_cannot_be_used_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    assert!(matches!(Cas::open(config(dir.path()), NOW_MS), Err(CasError::InUse(_))));
    drop(cas);
    change(dir.path(), "PRAGMA user_version = 99");
    assert!(matches!(Cas::open(config(dir.path()), NOW_MS), Err(CasError::Newer { found: 99, .. })));
    for end in ["", "-wal", "-shm"] {
        _ = fs::remove_file(dir.path().join(format!("small.db{end}")));
    }
    fs::write(dir.path().join("small.db"), vec![b'x'; 8_192]).unwrap();
    let damaged = Cas::open(config(dir.path()), NOW_MS).err().unwrap();
    assert!(matches!(damaged, CasError::Damaged { .. }), "{damaged}");
    assert!(damaged.to_string().contains("move its directory away"));
}

/// Rows that no version of the program wrote are removed, and none of them is a panic.
#[test]
fn rows_that_say_nonsense_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let kept = Digest::of(b"kept");
    open(dir.path()).put(Space::Cache, kept, b"kept", NOW_MS).unwrap();
    change(
        dir.path(),
        "INSERT INTO blobs VALUES (-5, zeroblob(32), 5, 1, 0, 0), (3, x'00', 5, 1, 0, 0), \
         (4, zeroblob(32), -1, 1, 0, 0), (5, zeroblob(32), 90000, 900, -1, 99999999999), \
         (4000000000, zeroblob(32), 5, 1, 0, 0); \
         INSERT INTO pins VALUES ('job', 5), ('job', -9), ('job', 70); UPDATE meta SET value = 0;",
    );
    let cas = open(dir.path());
    assert_eq!((cas.figures().blobs, cas.figures().bytes, cas.figures().pins), (1, 4, 0));
    assert!(cas.contains(Space::Cache, kept));
    cas.unpin("job").unwrap();
    cas.put(Space::Jobs, Digest::of(b"next"), b"next", NOW_MS).unwrap();
    drop(cas);
    assert_eq!(open(dir.path()).figures().blobs, 2);
}
