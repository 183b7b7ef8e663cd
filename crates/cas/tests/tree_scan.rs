//! Inputs: which files they are, how they are named, and that unchanged ones are not read again.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use windlass_cas::Digest;
use windlass_cas::tree::{
    Hashed, KnownDigests, LinkFault, NameFault, Scan, ScanOptions, TreeBounds, TreeError, TreeInput,
    UploadFrom, encode, hash_files, scan,
};

const ALL: ScanOptions = ScanOptions { ignore_files: false, bounds: BOUNDS };
const WITHOUT_IGNORED: ScanOptions = ScanOptions { ignore_files: true, bounds: BOUNDS };
const BOUNDS: TreeBounds = TreeBounds { entries_max: 1_000, bytes_max: 1 << 30 };
/// By now no file of a test can change again without another stamp.
const LONG_AFTER_MS: u64 = 60_000;

/// A directory with these files, each of which has its own path in it.
fn files(paths: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for path in paths {
        write(directory.path(), path, path);
    }
    directory
}

fn write(directory: &Path, path: &str, content: &str) {
    let path = directory.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn scan_of(base: &Path, inputs: &[&str], options: &ScanOptions) -> Result<Scan, TreeError> {
    let inputs: Vec<TreeInput> = inputs.iter().map(|input| TreeInput::parse(input)).collect();
    scan(base, &inputs, options)
}

/// The names of the files and links that inputs give.
fn names(base: &Path, inputs: &[&str], options: &ScanOptions) -> Vec<String> {
    let scan = scan_of(base, inputs, options).unwrap();
    let files = scan.files.into_iter().map(|file| file.name);
    files.chain(scan.links.into_iter().map(|link| link.name)).collect()
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn hashed(scan: &Scan, known: &mut KnownDigests, now_ms: u64) -> Hashed {
    hash_files(&scan.files, known, now_ms, &|_| {}).unwrap()
}

#[test]
fn inputs_are_named_by_their_paths_or_as_they_say() {
    let outer = files(&["out/a", "in/src/lib/b", "in/src/c", "in/d=e"]);
    let base = outer.path().join("in");
    let absolute = base.join("src").display().to_string();
    let cases: [(&[&str], &[&str]); 12] = [
        (&["src"], &["src/c", "src/lib/b"]),
        (&["./src/", "src/c"], &["src/c", "src/lib/b"]),
        (&["src/lib"], &["src/lib/b"]),
        (&["src/c"], &["src/c"]),
        (&["src=code"], &["code/c", "code/lib/b"]),
        (&["src=x/y/"], &["x/y/c", "x/y/lib/b"]),
        (&["src=."], &["c", "lib/b"]),
        (&["src/c=z"], &["z"]),
        (&["."], &["d=e", "src/c", "src/lib/b"]),
        (&["../out"], &["out/a"]),
        (&["../out/a"], &["a"]),
        (&[&absolute], &["src/c", "src/lib/b"]),
    ];
    for (inputs, expected) in cases {
        assert_eq!(names(&base, inputs, &ALL), expected, "{inputs:?}");
    }
    assert_eq!(names(&base, &["d=e=f"], &ALL), ["f"]);
    let parsed = TreeInput::parse("d=e=f");
    assert_eq!((parsed.path.as_path(), parsed.name.as_deref()), (Path::new("d=e"), Some("f")));
}

#[test]
fn inputs_that_cannot_be_in_a_tree_are_refused() {
    let outer = files(&["a", "b/c", "x/f", "y/f"]);
    let base = outer.path();
    let refused = |inputs: &[&str]| scan_of(base, inputs, &ALL).unwrap_err();
    for name in ["a=../x", "a=/x", "a=x/../y", "a=x//y", "a=", "b=/", "b=.."] {
        assert!(matches!(refused(&[name]), TreeError::Name { .. }), "{name}");
    }
    assert!(matches!(refused(&["a=/etc/x"]), TreeError::Name { why: NameFault::Absolute, .. }));
    for input in ["..", "/", "a=."] {
        assert!(matches!(refused(&[input]), TreeError::NoName(_)), "{input}");
    }
    assert!(matches!(refused(&["missing"]), TreeError::Io { .. }));
    assert!(matches!(refused(&["x/f=f", "y/f=f"]), TreeError::Duplicate { .. }));
    assert!(matches!(refused(&["a=z", "x=z"]), TreeError::Duplicate { .. }));
    assert!(matches!(refused(&["x=z", "a=z"]), TreeError::Duplicate { .. }));
    assert!(matches!(refused(&["a=z", "b/c=z/c"]), TreeError::Duplicate { .. }));
    assert!(matches!(refused(&["*.none"]), TreeError::NoMatch(_)));
    assert!(matches!(refused(&["none/*"]), TreeError::NoMatch(_)));
    assert!(matches!(refused(&["[a"]), TreeError::Pattern { .. }));
    let many = vec!["a"; 1_001];
    assert!(matches!(refused(&many), TreeError::ManyInputs { is: 1_001, .. }));
    // Two directories may be joined.
    assert_eq!(names(base, &["x=z", "b=z"], &ALL), ["z/c", "z/f"]);
}

#[test]
fn patterns_take_what_they_match_and_all_below_it() {
    let directory = files(&["a.c", "b.h", "src/c.c", "src/deep/d.c", "src/deep.c/e", ".f.c", "src/g h.c"]);
    let base = directory.path();
    let cases: [(&str, &[&str]); 9] = [
        ("*.c", &[".f.c", "a.c"]),
        ("*", &[".f.c", "a.c", "b.h", "src/c.c", "src/deep/d.c", "src/deep.c/e", "src/g h.c"]),
        ("src/*.c", &["src/c.c", "src/deep.c/e", "src/g h.c"]),
        ("src/?.c", &["src/c.c"]),
        ("**/*.c", &[".f.c", "a.c", "src/c.c", "src/deep/d.c", "src/deep.c/e", "src/g h.c"]),
        ("src/**/d.c", &["src/deep/d.c"]),
        ("{a.c,b.h}", &["a.c", "b.h"]),
        ("src/*.c=x", &["x/c.c", "x/deep.c/e", "x/g h.c"]),
        ("src/deep/*=.", &["d.c"]),
    ];
    for (input, expected) in cases {
        assert_eq!(names(base, &[input], &ALL), expected, "{input}");
    }
    // A file that is named like a pattern is meant itself.
    write(base, "[a]", "x");
    assert_eq!(names(base, &["[a]"], &ALL), ["[a]"]);
}

#[test]
fn ignore_files_leave_out_what_they_name_but_no_input_itself() {
    let directory = files(&[
        ".git/HEAD",
        "keep/a.c",
        "keep/a.o",
        "keep/b.tmp",
        "keep/c.big",
        "keep/.hidden",
        "target/out/x",
        "sub/.git/HEAD",
        "sub/y",
    ]);
    let base = directory.path();
    write(base, ".gitignore", "*.o\ntarget/\n");
    write(base, "keep/.ignore", "*.tmp\n");
    write(base, ".windlassignore", "*.big\n");
    let kept = names(base, &["."], &WITHOUT_IGNORED);
    let expected = [".gitignore", ".windlassignore", "keep/.hidden", "keep/.ignore", "keep/a.c", "sub/y"];
    assert_eq!(kept, expected);
    assert_eq!(names(base, &["target"], &WITHOUT_IGNORED), ["target/out/x"]);
    assert_eq!(names(base, &["keep/a.o"], &WITHOUT_IGNORED), ["keep/a.o"]);
    assert_eq!(names(base, &["keep/*.c"], &WITHOUT_IGNORED), ["keep/a.c"]);
    assert_eq!(names(base, &["keep"], &ALL).len(), 6);
    // A line that git cannot read either is passed over.
    write(base, ".gitignore", "{a\n*.o\n");
    assert!(names(base, &["keep"], &WITHOUT_IGNORED).contains(&"keep/a.c".to_owned()));
}

#[test]
fn bounds_are_kept() {
    let directory = files(&["a/1", "a/2", "b/3"]);
    let within = |entries_max, bytes_max| {
        let bounds = TreeBounds { entries_max, bytes_max };
        scan_of(directory.path(), &["."], &ScanOptions { ignore_files: false, bounds })
    };
    assert!(within(5, 9).is_ok());
    assert!(matches!(within(4, 9), Err(TreeError::ManyEntries { max: 4 })));
    assert!(matches!(within(5, 8), Err(TreeError::ManyBytes { max: 8 })));
}

#[test]
fn unchanged_files_are_not_read_again() {
    let directory = files(&["a", "b", "c/d"]);
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path().join("below/known");
    let scanned = scan_of(directory.path(), &["."], &ALL).unwrap();
    let told = AtomicU64::new(0);
    let mut known = KnownDigests::load(&cache);
    let count = |bytes: u64| {
        told.fetch_add(bytes, Ordering::Relaxed);
    };
    let later_ms = now_ms() + LONG_AFTER_MS;
    let first = hash_files(&scanned.files, &mut known, later_ms, &count).unwrap();
    assert_eq!((first.read_files, first.read_bytes, told.load(Ordering::Relaxed)), (3, 5, 5));
    assert_eq!(first.digests, [Digest::of(b"a"), Digest::of(b"b"), Digest::of(b"c/d")]);
    known.save(later_ms).unwrap();

    let mut known = KnownDigests::load(&cache);
    let again = scan_of(directory.path(), &["."], &ALL).unwrap();
    let second = hash_files(&again.files, &mut known, later_ms, &count).unwrap();
    assert_eq!((second.read_files, second.read_bytes, told.load(Ordering::Relaxed)), (0, 0, 10));
    assert_eq!(second.digests, first.digests);

    // A change of the length is seen, whatever the times say.
    write(directory.path(), "b", "longer");
    let changed = scan_of(directory.path(), &["."], &ALL).unwrap();
    let third = hashed(&changed, &mut known, later_ms);
    assert_eq!(third.read_files, 1);
    assert_eq!(third.digests[1], Digest::of(b"longer"));
}

#[test]
fn files_that_changed_just_before_the_look_are_read_again() {
    let directory = files(&["a"]);
    let cache = tempfile::tempdir().unwrap();
    let mut known = KnownDigests::load(&cache.path().join("known"));
    let before_ms = now_ms();
    let scanned = scan_of(directory.path(), &["."], &ALL).unwrap();
    assert_eq!(hashed(&scanned, &mut known, before_ms).read_files, 1);
    assert!(known.is_empty());
    assert_eq!(hashed(&scanned, &mut known, before_ms).read_files, 1);
    assert_eq!(hashed(&scanned, &mut known, before_ms + LONG_AFTER_MS).read_files, 1);
    assert_eq!(hashed(&scanned, &mut known, before_ms + LONG_AFTER_MS).read_files, 0);
    // A time in the future proves nothing: the next write may set it again.
    let file = fs::File::options().write(true).open(directory.path().join("a")).unwrap();
    let future = SystemTime::now() + std::time::Duration::from_secs(3_600);
    file.set_modified(future).unwrap();
    let scanned = scan_of(directory.path(), &["."], &ALL).unwrap();
    for _ in 0..2 {
        assert_eq!(hashed(&scanned, &mut known, before_ms + LONG_AFTER_MS).read_files, 1);
    }
}

#[test]
fn a_file_that_is_gone_is_told_by_its_path() {
    let directory = files(&["a", "b"]);
    let scanned = scan_of(directory.path(), &["."], &ALL).unwrap();
    fs::remove_file(directory.path().join("b")).unwrap();
    let mut known = KnownDigests::load(&directory.path().join("known"));
    let error = hash_files(&scanned.files, &mut known, now_ms(), &|_| {}).unwrap_err();
    assert!(matches!(error, TreeError::Io { path, .. } if path.ends_with("b")));
}

#[test]
fn all_blobs_of_a_tree_are_in_its_uploads_once() {
    let directory = files(&["a/x", "b/y"]);
    write(directory.path(), "same", "a/x");
    write(directory.path(), "empty", "");
    fs::create_dir(directory.path().join("nothing")).unwrap();
    let scanned = scan_of(directory.path(), &["."], &ALL).unwrap();
    assert_eq!(scanned.directories, ["a", "b", "nothing"]);
    let mut known = KnownDigests::load(&directory.path().join("known"));
    let digests = hashed(&scanned, &mut known, now_ms()).digests;
    let tree = encode(scanned.entries(&digests)).unwrap();
    let uploads = scanned.uploads(&digests, tree.clone());
    // The root, `a` and `b`, and two contents.
    assert_eq!(uploads.len(), 5);
    for (digest, from) in uploads {
        let bytes = match from {
            UploadFrom::Message(bytes) => bytes,
            UploadFrom::File(path) => fs::read(path).unwrap(),
        };
        assert_eq!(Digest::of(&bytes), digest);
    }
}

#[cfg(unix)]
mod on_unix {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use windlass_cas::tree::{ScannedLink, SkipReason};

    use super::*;

    #[test]
    fn links_stay_links_if_they_stay_in_the_tree() {
        let directory = files(&["in/a", "in/b/c"]);
        let base = directory.path().join("in");
        symlink("../a", base.join("b/up")).unwrap();
        symlink("b", base.join("down")).unwrap();
        symlink("nowhere", base.join("dangling")).unwrap();
        let scanned = scan_of(&base, &["."], &ALL).unwrap();
        let link = |name: &str, target: &str| ScannedLink { name: name.into(), target: target.into() };
        assert_eq!(scanned.links, [link("b/up", "../a"), link("dangling", "nowhere"), link("down", "b")]);
        assert_eq!(scanned.files.len(), 2);
        // An input that is a link means what it leads to.
        assert_eq!(names(&base, &["down"], &ALL), ["down/c", "down/up"]);
        assert_eq!(names(&base, &["b/up=x"], &ALL), ["x"]);
        let cases = [
            ("/etc/passwd", LinkFault::Absolute),
            ("../in/a", LinkFault::Outside),
            ("b/../../x", LinkFault::DotsAfterName),
        ];
        for (target, fault) in cases {
            symlink(target, base.join("bad")).unwrap();
            let error = scan_of(&base, &["."], &ALL).unwrap_err();
            assert!(matches!(&error, TreeError::Link { why, .. } if *why == fault), "{target}: {error}");
            assert!(error.to_string().contains("'bad'"), "{error}");
            fs::remove_file(base.join("bad")).unwrap();
        }
    }

    #[test]
    fn a_change_that_sets_the_old_time_again_is_seen() {
        let directory = files(&["a"]);
        let path = directory.path().join("a");
        let mut known = KnownDigests::load(&directory.path().join("known"));
        let later_ms = now_ms() + LONG_AFTER_MS;
        let before = scan_of(directory.path(), &["a"], &ALL).unwrap();
        hashed(&before, &mut known, later_ms);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        // As long and with the same time of modification, but the kernel's own time is another when its clock goes on.
        loop {
            fs::write(&path, "b").unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
            let after = scan_of(directory.path(), &["a"], &ALL).unwrap();
            if after.files[0].stamp != before.files[0].stamp {
                assert_eq!(hashed(&after, &mut known, later_ms).digests, [Digest::of(b"b")]);
                break;
            }
        }
    }

    #[test]
    fn executable_files_are_known_and_what_is_no_file_is_left_out() {
        let directory = files(&["run", "plain"]);
        fs::set_permissions(directory.path().join("run"), fs::Permissions::from_mode(0o700)).unwrap();
        let _socket = UnixListener::bind(directory.path().join("socket")).unwrap();
        let scanned = scan_of(directory.path(), &["."], &ALL).unwrap();
        let executable: Vec<bool> = scanned.files.iter().map(|file| file.is_executable).collect();
        assert_eq!(executable, [false, true]);
        assert_eq!(scanned.skipped.named.len(), 1);
        assert_eq!(scanned.skipped.named[0].path, "socket");
        assert_eq!(scanned.skipped.named[0].why, SkipReason::NotRegular);
        assert!(matches!(scan_of(directory.path(), &["socket"], &ALL), Err(TreeError::NotRegular(_))));
    }

    /// Makes a file with a name that the file system may refuse, as macOS' do. False if it does.
    fn can_write(path: &Path) -> bool {
        let is_written = fs::write(path, "x").is_ok();
        if !is_written {
            eprintln!("SKIP: the file system refuses {path:?}");
        }
        is_written
    }

    #[test]
    fn names_that_are_not_utf_8_are_refused_and_shown() {
        let directory = files(&["a"]);
        let path = directory.path().join(OsStr::from_bytes(b"b\xff"));
        if !can_write(&path) {
            return;
        }
        let error = scan_of(directory.path(), &["."], &ALL).unwrap_err();
        assert!(matches!(error, TreeError::NotUnicode(_)));
        assert!(error.to_string().contains("b\\xFF"), "{error}");
        // A pattern that may not mean it leaves it out and says so.
        let scanned = scan_of(directory.path(), &["*"], &ALL).unwrap();
        assert_eq!(scanned.files.len(), 1);
        assert_eq!(scanned.skipped.named[0].why, SkipReason::NotUnicode);
    }

    #[test]
    fn names_that_are_one_elsewhere_are_refused() {
        for (first, second) in [("Makefile", "makefile"), ("\u{e9}", "e\u{301}"), ("D/x", "d/y")] {
            let directory = files(&[first]);
            if directory.path().join(second.split('/').next().unwrap()).exists() {
                eprintln!("SKIP: to this file system {first} and {second} are one");
                continue;
            }
            write(directory.path(), second, "x");
            let error = scan_of(directory.path(), &["."], &ALL).unwrap_err();
            assert!(matches!(error, TreeError::Collision { .. }), "{first}: {error}");
        }
    }
}
