//! Many uploads at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Barrier;
use windlass_cas::{Cas, CasConfig, CasError, Digest, Hasher, Space, SyncPolicy};

const NOW_MS: u64 = 1_800_000_000_000;
const WRITERS: u64 = 64;
/// Pieces of an upload, and their number.
const PIECE_BYTES: usize = 4_096;
const PIECES: u64 = 64;
/// What an upload may have in memory, which is half of its bytes.
const MEMORY_BYTES_MAX: isize = 128 << 10;

/// Counts what each thread has allocated, so that tests that run beside each other do not count.
struct Counting;

thread_local! {
    static NOW_BYTES: Cell<isize> = const { Cell::new(0) };
    static MOST_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends frees what was its own, and is not asked any more.
    _ = NOW_BYTES.try_with(|now| {
        now.set(now.get() + bytes);
        _ = MOST_BYTES.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: each call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller has promised what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller has promised what the system's allocator asks for, and `at` came from there.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn open(dir: &Path, bytes_max: u64) -> Cas {
    let config = CasConfig { dir: dir.to_owned(), bytes_max, keep_ms: 0, sync: SyncPolicy::Never };
    Cas::open(config, NOW_MS).unwrap()
}

/// Each piece of an upload. Uploads differ by their number.
fn piece(number: u64) -> Vec<u8> {
    (0..PIECE_BYTES as u64).map(|at| (at + number * 7) as u8).collect()
}

#[test]
fn sixty_four_uploads_at_a_time_have_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path(), 1 << 30);
    let size = PIECES * PIECE_BYTES as u64;
    let begun = Barrier::new(WRITERS as usize);
    let upload = |number: u64| {
        let piece = piece(number);
        let mut hasher = Hasher::default();
        (0..PIECES).for_each(|_| hasher.update(&piece));
        let digest = hasher.finish();
        let before = NOW_BYTES.get();
        MOST_BYTES.set(before);
        let mut writer = cas.writer(Space::Cache, digest).unwrap();
        (0..PIECES - 1).for_each(|_| writer.write(&piece).unwrap());
        begun.wait();
        let figures = cas.figures();
        // None is committed before all have come here.
        begun.wait();
        writer.write(&piece).unwrap();
        writer.commit(NOW_MS).unwrap();
        assert_eq!((figures.writers, figures.reserved_bytes), (WRITERS, WRITERS * size));
        (digest, MOST_BYTES.get() - before)
    };
    let uploaded: Vec<(Digest, isize)> = std::thread::scope(|scope| {
        let upload = &upload;
        let threads: Vec<_> = (0..WRITERS).map(|number| scope.spawn(move || upload(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (digest, most) in uploaded {
        assert!(most < MEMORY_BYTES_MAX, "an upload of {size} bytes had {most} in memory");
        let blob = cas.read(Space::Cache, digest, NOW_MS).unwrap().unwrap();
        assert_eq!(Digest::of(&blob.into_bytes().unwrap()), digest);
    }
    let figures = cas.figures();
    assert_eq!((figures.blobs, figures.bytes), (WRITERS, WRITERS * size));
    assert_eq!((figures.writers, figures.reserved_bytes), (0, 0));
}

#[test]
fn one_blob_that_many_upload_is_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path(), 1 << 30);
    for len in [1_000, 20_000] {
        let bytes = vec![7; len];
        let digest = Digest::of(&bytes);
        std::thread::scope(|scope| {
            for number in 0..32 {
                let (cas, bytes) = (&cas, &bytes);
                let space = if number % 2 == 0 { Space::Cache } else { Space::Jobs };
                scope.spawn(move || cas.put(space, digest, bytes, NOW_MS).unwrap());
            }
        });
        assert!(cas.contains(Space::Cache, digest) && cas.contains(Space::Jobs, digest));
    }
    let figures = cas.figures();
    assert_eq!((figures.blobs, figures.bytes, figures.pins), (2, 21_000, 0));
    drop(cas);
    let again = open(dir.path(), 1 << 30).figures();
    assert_eq!((again.blobs, again.bytes), (2, 21_000));
}

/// Uploads, reads, pins and sweeps of few blobs beside each other: what is read is what its digest names, and the store
/// stays within its bounds.
#[test]
fn readers_beside_evictions_get_whole_blobs() {
    const BYTES_MAX: u64 = 300_000;
    let dir = tempfile::tempdir().unwrap();
    let cas = open(dir.path(), BYTES_MAX);
    let blobs: Vec<Vec<u8>> = (0..20u8).map(|seed| vec![seed; 2_000 + usize::from(seed) * 2_000]).collect();
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let (cas, blobs) = (&cas, &blobs);
            scope.spawn(move || {
                let owner = format!("job {thread}");
                for turn in 0..100 {
                    let bytes = &blobs[(thread * 7 + turn * 3) % blobs.len()];
                    let digest = Digest::of(bytes);
                    match cas.put(Space::Jobs, digest, bytes, NOW_MS) {
                        Ok(()) | Err(CasError::Full { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    let missing = cas.pin(Space::Jobs, &owner, &[digest]).unwrap();
                    let blob = cas.read(Space::Jobs, digest, NOW_MS).unwrap();
                    assert!(!missing.is_empty() || blob.is_some(), "what is pinned stays");
                    if let Some(blob) = blob {
                        assert_eq!(Digest::of(&blob.into_bytes().unwrap()), digest);
                    }
                    cas.unpin(&owner).unwrap();
                    if turn % 10 == thread {
                        cas.sweep(NOW_MS).unwrap();
                    }
                    let figures = cas.figures();
                    assert!(figures.bytes + figures.reserved_bytes <= BYTES_MAX);
                }
            });
        }
    });
    let figures = cas.figures();
    assert_eq!((figures.pins, figures.pinned_bytes, figures.writers, figures.damaged), (0, 0, 0, 0));
    drop(cas);
    let again = open(dir.path(), BYTES_MAX).figures();
    assert_eq!((again.blobs, again.bytes), (figures.blobs, figures.bytes));
}
