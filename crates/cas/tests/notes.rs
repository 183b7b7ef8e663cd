//! Notes of owners, and what an owner leaves when it is forgotten.

use std::path::Path;
use windlass_cas::{Cas, CasConfig, CasError, Digest, Space, SyncPolicy};

const NOW_MS: u64 = 1_800_000_000_000;
const BYTES_MAX: u64 = 4_000_000;

fn open(dir: &Path) -> Cas {
    let config = CasConfig { dir: dir.to_owned(), bytes_max: BYTES_MAX, keep_ms: 0, sync: SyncPolicy::Never };
    Cas::open(config, NOW_MS).unwrap()
}

#[test]
fn notes_are_read_by_number_and_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    {
        let cas = open(dir.path());
        for (number, value) in [(10, "ten"), (2, "two"), (7, "seven"), (2, "two again")] {
            cas.set_note("job/7", number, value.as_bytes()).unwrap();
        }
        cas.set_note("job/70", 1, b"other").unwrap();
    }
    let cas = open(dir.path());
    let read = |from, limit| {
        let notes = cas.notes("job/7", from, limit).unwrap().into_iter();
        notes.map(|(number, value)| (number, String::from_utf8(value).unwrap())).collect::<Vec<_>>()
    };
    let all =
        [(2_u64, "two again"), (7, "seven"), (10, "ten")].map(|(number, value)| (number, value.to_owned()));
    assert_eq!(read(0, 9), all);
    assert_eq!(read(3, 1), all[1..2]);
    assert!(read(11, 9).is_empty() && read(u64::MAX, 9).is_empty());
    assert_eq!(cas.figures().note_bytes, "two againseventenother".len() as u64);
}

#[test]
fn an_owner_is_forgotten_with_those_below_it_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    let digest = Digest::of(b"blob");
    cas.put(Space::Jobs, digest, b"blob", NOW_MS).unwrap();
    for owner in ["job/7", "job/7/0/1", "job/7/10/2", "job/7-x", "job/70", "job/8/1", "tree/7"] {
        assert!(cas.pin(Space::Jobs, owner, &[digest]).unwrap().is_empty());
        cas.set_note(owner, 0, b"note").unwrap();
    }
    assert_eq!(cas.owners("job/").unwrap(), ["7", "7-x", "70", "8"]);
    assert_eq!(cas.owners("job/7/").unwrap(), ["0", "10"]);
    cas.forget("job/7").unwrap();
    assert_eq!(cas.owners("job/").unwrap(), ["7-x", "70", "8"]);
    assert_eq!((cas.figures().pins, cas.figures().note_bytes), (4, 16));
    assert!(cas.notes("job/7", 0, 9).unwrap().is_empty());
    cas.forget("job/7").unwrap();
    for owner in ["job/7-x", "job/70", "job/8", "tree"] {
        cas.forget(owner).unwrap();
    }
    let figures = cas.figures();
    assert_eq!((figures.pins, figures.pinned_bytes, figures.note_bytes), (0, 0, 0));
    assert!(cas.owners("job/").unwrap().is_empty() && cas.owners("tree/").unwrap().is_empty());
}

#[test]
fn notes_are_bounded_and_count_as_what_the_store_has() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path());
    let large = vec![1; (1 << 20) + 1];
    assert!(matches!(cas.set_note("job", 0, &large), Err(CasError::TooLarge { .. })));
    assert!(matches!(cas.set_note(&"x".repeat(300), 0, b""), Err(CasError::LongName { .. })));
    for number in 0..3 {
        cas.set_note("job", number, &large[1..]).unwrap();
    }
    let refused = cas.set_note("job", 3, &large[1..]);
    assert!(matches!(refused, Err(CasError::Full { .. })), "{refused:?}");
    cas.forget("job").unwrap();
    cas.set_note("job", 3, &large[1..]).unwrap();
}
