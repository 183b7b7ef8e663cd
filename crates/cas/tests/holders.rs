//! A blob of jobs is there for those who have uploaded it.

use std::path::Path;
use windlass_cas::{Cas, CasConfig, CasError, Digest, Space, SyncPolicy};

const NOW_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 86_400_000;
const BYTES_MAX: u64 = 200_000;

fn open(dir: &Path) -> Cas {
    let config = CasConfig { dir: dir.to_owned(), bytes_max: BYTES_MAX, keep_ms: 0, sync: SyncPolicy::Never };
    Cas::open(config, NOW_MS).unwrap()
}

/// Uploads a blob for a user.
fn upload(cas: &Cas, user: &str, bytes: &[u8], now_ms: u64) -> Digest {
    let digest = Digest::of(bytes);
    cas.put(Space::Jobs, digest, bytes, now_ms).unwrap();
    cas.hold(user, &[digest]).unwrap();
    digest
}

#[test]
fn a_blob_is_missing_for_all_who_have_not_uploaded_it() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    for bytes in [vec![1; 100], vec![2; 20_000]] {
        let digest = upload(&cas, "ann", &bytes, NOW_MS);
        assert!(cas.missing_of("ann", &[digest, Digest::EMPTY], NOW_MS).is_empty());
        assert_eq!(cas.missing_of("bob", &[digest], NOW_MS), [digest]);
        // Who has only its digest does not come to hold it.
        let refused = cas.put(Space::Jobs, digest, &vec![3; bytes.len()], NOW_MS);
        assert!(matches!(refused, Err(CasError::Mismatch { .. })), "{refused:?}");
        assert_eq!(cas.missing_of("bob", &[digest], NOW_MS), [digest]);
        upload(&cas, "bob", &bytes, NOW_MS);
        assert!(cas.missing_of("bob", &[digest], NOW_MS).is_empty());
        assert_eq!(cas.missing_of("eve", &[digest], NOW_MS), [digest]);
    }
    let of_cache = Digest::of(b"cache");
    cas.put(Space::Cache, of_cache, b"cache", NOW_MS).unwrap();
    cas.hold("ann", &[of_cache, Digest::of(b"nothing")]).unwrap();
    assert_eq!(cas.missing_of("ann", &[of_cache], NOW_MS), [of_cache], "the cache has blobs of its own");
    assert_eq!((cas.figures().pins, cas.figures().pinned_bytes), (0, 0));
    drop(cas);
    let cas = open(dir.path());
    let digest = Digest::of(&[1; 100]);
    assert!(cas.missing_of("ann", &[digest], NOW_MS).is_empty(), "it outlives the process");
    assert_eq!(cas.missing_of("eve", &[digest], NOW_MS), [digest]);
}

#[test]
fn who_has_a_blob_is_forgotten_when_it_is_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    let first = upload(&cas, "ann", &[1; 120_000], NOW_MS);
    let second = upload(&cas, "bob", &[2; 120_000], NOW_MS + DAY_MS);
    assert!(!cas.contains(Space::Jobs, first), "there is no room for both");
    // Its row is another blob's by now, which ann has not.
    assert_eq!(cas.missing_of("ann", &[first, second], NOW_MS), [first, second]);
    // What comes again is nobody's but who uploads it.
    upload(&cas, "eve", &[1; 120_000], NOW_MS + 2 * DAY_MS);
    assert_eq!(cas.missing_of("ann", &[first], NOW_MS), [first]);
    drop(cas);
    let cas = open(dir.path());
    assert_eq!(cas.missing_of("ann", &[first], NOW_MS), [first]);
    assert!(cas.missing_of("eve", &[first], NOW_MS).is_empty());
}

#[test]
fn an_upload_of_what_is_there_is_verified_and_takes_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    let bytes = vec![7; 150_000];
    let digest = upload(&cas, "ann", &bytes, NOW_MS);
    // There would be no room for it twice.
    let mut again = cas.writer(Space::Jobs, digest).unwrap();
    again.write(&bytes[..100_000]).unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join("temp")).unwrap().count(), 0);
    assert_eq!(cas.figures().reserved_bytes, 0);
    // It is not evicted meanwhile.
    let other = vec![8; 100_000];
    assert!(matches!(
        cas.put(Space::Jobs, Digest::of(&other), &other, NOW_MS + DAY_MS),
        Err(CasError::Full { .. })
    ));
    again.write(&bytes[100_000..]).unwrap();
    again.commit(NOW_MS + DAY_MS).unwrap();
    cas.put(Space::Jobs, Digest::of(&other), &other, NOW_MS + 2 * DAY_MS).unwrap();
    assert!(!cas.contains(Space::Jobs, digest));
    assert_eq!((cas.figures().pins, cas.figures().writers), (0, 0));
}
