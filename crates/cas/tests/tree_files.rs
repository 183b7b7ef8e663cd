//! Trees on the disk of a worker: made from blobs, and collected after a task that may have done anything.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, mkfifoat, openat};
use tempfile::TempDir;
use windlass_cas::tree::{
    BlobSource, Collected, EntryKind, KnownDigests, MaterialiseOptions, Materialised, PathGlobs, ScanOptions,
    SkipReason, TreeBounds, TreeContent, TreeEntry, TreeError, TreeInput, TreeOwner, UploadFrom, collect,
    collect_tree, encode, hash_files, materialise, read_tree_message, remove_below, scan, tree_of,
    tree_order, union,
};
use windlass_cas::{Blob, Digest};

const LINKS: MaterialiseOptions = MaterialiseOptions { may_hardlink: true, owner: None, threads_max: 4 };
const COPIES: MaterialiseOptions = MaterialiseOptions { may_hardlink: false, owner: None, threads_max: 1 };

/// A cache of blobs as files, as a worker has it.
struct BlobFiles(TempDir);

impl BlobFiles {
    fn new() -> BlobFiles {
        BlobFiles(tempfile::tempdir().unwrap())
    }

    fn file(&self, digest: Digest) -> PathBuf {
        self.0.path().join(digest.hex())
    }

    fn put(&self, content: &[u8]) -> Digest {
        let digest = Digest::of(content);
        let path = self.file(digest);
        if !path.exists() {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        }
        digest
    }
}

impl BlobSource for BlobFiles {
    fn blob(&self, digest: Digest) -> Result<Option<Blob>, TreeError> {
        let path = self.file(digest);
        let opened = File::open(&path).ok();
        Ok(opened.map(|file| Blob::File { file, path, size: digest.size }))
    }
}

fn file(path: &str, digest: Digest, is_executable: bool) -> TreeEntry {
    TreeEntry { path: path.to_owned(), kind: EntryKind::File { digest, is_executable } }
}

fn link(path: &str, target: &str) -> TreeEntry {
    TreeEntry { path: path.to_owned(), kind: EntryKind::Link { target: target.to_owned() } }
}

fn content_of(entries: Vec<TreeEntry>) -> TreeContent {
    tree_of(entries, TreeBounds::default()).unwrap()
}

fn made(
    blobs: &BlobFiles,
    entries: Vec<TreeEntry>,
    into: &Path,
    options: &MaterialiseOptions,
) -> Result<Materialised, TreeError> {
    materialise(&content_of(entries), blobs, into, options)
}

/// The root of the tree that is in a directory, by the way of inputs.
fn root_of(directory: &Path) -> Digest {
    let input = TreeInput { path: directory.to_owned(), name: Some(".".to_owned()) };
    let options = ScanOptions { ignore_files: false, bounds: TreeBounds::default() };
    let scanned = scan(Path::new("/"), &[input], &options).unwrap();
    let mut known = KnownDigests::load(Path::new("/nonexistent"));
    let digests = hash_files(&scanned.files, &mut known, 0, &|_| {}).unwrap().digests;
    encode(scanned.entries(&digests)).unwrap().root
}

fn collected(directory: &Path, patterns: &[&str]) -> Collected {
    let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    collect(directory, &PathGlobs::parse(&patterns).unwrap(), &TreeBounds::default()).unwrap()
}

fn paths(collected: &Collected) -> Vec<&str> {
    collected.outputs.iter().map(|entry| entry.path.as_str()).collect()
}

fn skipped(collected: &Collected) -> Vec<(&str, SkipReason)> {
    collected.skipped.named.iter().map(|skip| (skip.path.as_str(), skip.why.clone())).collect()
}

/// A directory with these files, each of which has its own path in it.
fn files(paths: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for path in paths {
        let full = directory.path().join(path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, path).unwrap();
    }
    directory
}

#[test]
fn files_are_made_read_only_by_links_and_copies() {
    let (blobs, place) = (BlobFiles::new(), tempfile::tempdir().unwrap());
    let digest = blobs.put(b"content");
    let entries = vec![
        file("a/plain", digest, false),
        file("a/run", digest, true),
        file("empty", Digest::EMPTY, true),
        link("a/l", "../empty"),
        TreeEntry { path: "nothing".to_owned(), kind: EntryKind::Directory },
    ];
    let into = place.path().join("task");
    let counts = made(&blobs, entries.clone(), &into, &LINKS).unwrap();
    assert_eq!(counts.hardlinked, 1);
    assert_eq!(counts.copied + counts.reflinked, 2);
    let cached = fs::metadata(blobs.file(digest)).unwrap();
    let (plain, run) =
        (fs::metadata(into.join("a/plain")).unwrap(), fs::metadata(into.join("a/run")).unwrap());
    assert_eq!((plain.ino(), plain.nlink()), (cached.ino(), 2));
    assert_ne!(run.ino(), cached.ino());
    let mode = |path: &str| fs::symlink_metadata(into.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        ["a/plain", "a/run", "empty", "a", "nothing", ""].map(mode),
        [0o444, 0o555, 0o555, 0o755, 0o755, 0o700]
    );
    assert_eq!(fs::read(into.join("a/run")).unwrap(), b"content");
    assert_eq!(fs::read_link(into.join("a/l")).unwrap(), Path::new("../empty"));
    assert_eq!(fs::metadata(blobs.file(digest)).unwrap().permissions().mode() & 0o7777, 0o444);

    // A task of the cache's own user gets copies alone.
    let into = place.path().join("own");
    assert_eq!(made(&blobs, entries, &into, &COPIES).unwrap().hardlinked, 0);
    assert_ne!(fs::metadata(into.join("a/plain")).unwrap().ino(), cached.ino());
    assert_eq!(fs::metadata(into.join("a/plain")).unwrap().permissions().mode() & 0o7777, 0o444);
}

#[test]
fn a_cache_on_another_file_system_is_copied_from() {
    let (blobs, shm) = (BlobFiles::new(), Path::new("/dev/shm"));
    let device = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    let place = tempfile::tempdir_in(shm).ok().filter(|_| device(shm) != device(blobs.0.path()));
    let Some(place) = place else {
        eprintln!("SKIP: there is no second file system to write to");
        return;
    };
    let entries = vec![file("a", blobs.put(b"content"), false)];
    let counts = made(&blobs, entries, &place.path().join("task"), &LINKS).unwrap();
    assert_eq!((counts.hardlinked, counts.copied, counts.copied_bytes), (0, 1, 7));
    assert_eq!(fs::read(place.path().join("task/a")).unwrap(), b"content");
}

#[test]
fn a_blob_that_is_not_what_it_should_be_is_refused() {
    let (blobs, place) = (BlobFiles::new(), tempfile::tempdir().unwrap());
    let mut tries = 0;
    let mut attempt = |digest: Digest, options: &MaterialiseOptions| {
        tries += 1;
        made(&blobs, vec![file("a", digest, false)], &place.path().join(tries.to_string()), options)
    };
    let (missing, short, linked) = (Digest::of(b"missing"), Digest::of(b"short"), Digest::of(b"linked"));
    fs::write(blobs.file(short), b"shor").unwrap();
    fs::write(place.path().join("other"), b"other!").unwrap();
    symlink(place.path().join("other"), blobs.file(linked)).unwrap();
    for options in [LINKS, COPIES] {
        assert!(matches!(attempt(missing, &options), Err(TreeError::Missing(digest)) if digest == missing));
        assert!(matches!(attempt(short, &options), Err(TreeError::Blob { .. })));
    }
    // A hard link to a link is a link, which a task must not get for a file.
    assert!(matches!(attempt(linked, &LINKS), Err(TreeError::Blob { .. })));
    // The directory is always a new one.
    let there = made(&blobs, Vec::new(), place.path(), &LINKS);
    assert!(matches!(there, Err(TreeError::Io { path, .. }) if path == place.path()));
}

/// Small blobs, which a store has as rows.
struct BlobRows(BTreeMap<Digest, Vec<u8>>);

impl BlobSource for BlobRows {
    fn blob(&self, digest: Digest) -> Result<Option<Blob>, TreeError> {
        Ok(self.0.get(&digest).cloned().map(Blob::Bytes))
    }
}

#[test]
fn small_blobs_become_files_of_their_own() {
    let (digest, place) = (Digest::of(b"content"), tempfile::tempdir().unwrap());
    let rows = BlobRows(BTreeMap::from([(digest, b"content".to_vec())]));
    let entries = vec![file("a", digest, false), file("b/run", digest, true)];
    let into = place.path().join("task");
    let counts = materialise(&content_of(entries), &rows, &into, &LINKS).unwrap();
    assert_eq!((counts.hardlinked, counts.copied, counts.copied_bytes), (0, 2, 14));
    assert_eq!(fs::read(into.join("b/run")).unwrap(), b"content");
    let mode = |path: &str| fs::metadata(into.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(["a", "b/run"].map(mode), [0o444, 0o555]);
}

#[test]
fn a_blob_that_is_evicted_meanwhile_is_copied_from_what_is_open() {
    struct Evicting(BlobFiles);
    impl BlobSource for Evicting {
        fn blob(&self, digest: Digest) -> Result<Option<Blob>, TreeError> {
            let found = self.0.blob(digest)?;
            fs::remove_file(self.0.file(digest)).unwrap();
            Ok(found)
        }
    }
    let (blobs, place) = (BlobFiles::new(), tempfile::tempdir().unwrap());
    let entries = vec![file("a", blobs.put(b"content"), false)];
    let into = place.path().join("task");
    let counts = materialise(&content_of(entries), &Evicting(blobs), &into, &LINKS).unwrap();
    assert_eq!((counts.hardlinked, counts.copied + counts.reflinked), (0, 1));
    assert_eq!(fs::read(into.join("a")).unwrap(), b"content");
}

#[test]
fn only_root_makes_files_of_another_user_and_the_store_s_stay_its_own() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: only root gives files to another user");
        return;
    }
    let (blobs, place) = (BlobFiles::new(), tempfile::tempdir().unwrap());
    let digest = blobs.put(b"content");
    let entries = vec![file("a/plain", digest, false), file("run", digest, true), link("a/l", "plain")];
    let into = place.path().join("task");
    let owner = Some(TreeOwner { uid: 65_534, gid: 65_533 });
    made(&blobs, entries, &into, &MaterialiseOptions { owner, ..LINKS }).unwrap();
    let owners = |path: &str| {
        let found = fs::symlink_metadata(into.join(path)).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!(["", "a", "run", "a/l"].map(owners), [(65_534, 65_533); 4]);
    // Its owner could make a linked file writable, and all tasks share it.
    assert_eq!(owners("a/plain"), (0, rustix::process::getegid().as_raw()));
    assert_eq!(fs::metadata(blobs.file(digest)).unwrap().mode() & 0o7777, 0o444);
}

#[test]
fn trees_are_one_where_they_agree() {
    let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
    let first = content_of(vec![file("a/x", one, false), link("l", "a"), file("same", one, true)]);
    let second = content_of(vec![file("a/y", other, false), file("same", one, true), link("l", "a")]);
    let both = union(&[&first, &second], TreeBounds::default()).unwrap();
    let expected =
        vec![file("a/x", one, false), file("a/y", other, false), link("l", "a"), file("same", one, true)];
    assert_eq!(both.root(), encode(expected).unwrap().root);
    assert_eq!(union(&[], TreeBounds::default()).unwrap().root(), Digest::EMPTY);
    let conflicts = [
        vec![file("a/x", other, false)],
        vec![file("a", one, false)],
        vec![file("a/x/z", one, false)],
        vec![link("a", "l")],
        vec![link("l", "same")],
        vec![file("same", one, false)],
    ];
    for third in conflicts {
        let third = content_of(third);
        let conflict = union(&[&first, &third], TreeBounds::default());
        let Err(TreeError::Conflict { roots, .. }) = conflict else { panic!("{conflict:?}") };
        assert_eq!(*roots, [first.root(), third.root()]);
    }
    let bounds = TreeBounds { entries_max: 3, ..TreeBounds::default() };
    assert!(matches!(union(&[&first, &second], bounds), Err(TreeError::ManyEntries { max: 3 })));
}

#[test]
fn many_files_are_made_by_several_threads() {
    let (blobs, place) = (BlobFiles::new(), tempfile::tempdir().unwrap());
    let digests: Vec<Digest> = (0..10_u8).map(|number| blobs.put(&[number])).collect();
    let numbers = 0..3_000_usize;
    let entries: Vec<TreeEntry> = numbers
        .map(|number| file(&format!("d{}/{number}", number % 7), digests[number % 10], number % 50 == 0))
        .collect();
    let into = place.path().join("task");
    let counts = made(&blobs, entries.clone(), &into, &LINKS).unwrap();
    assert_eq!(counts.hardlinked + counts.copied + counts.reflinked, 3_000);
    assert_eq!(counts.copied + counts.reflinked, 60);
    assert_eq!(root_of(&into), encode(entries).unwrap().root);
}

#[test]
fn outputs_are_what_patterns_match() {
    let directory = files(&["a.o", "b.c", "out/x", "out/deep/y", "log/z.txt", "log/deep/w.txt", "in/p"]);
    let base = directory.path();
    fs::set_permissions(base.join("a.o"), fs::Permissions::from_mode(0o755)).unwrap();
    let found = collected(base, &["*.o", "./out/", "log/**/*.txt", "none/*", "missing"]);
    assert_eq!(paths(&found), ["a.o", "log/deep/w.txt", "log/z.txt"]);
    assert_eq!(found.outputs[0], file("a.o", Digest::of(b"a.o"), true));
    assert_eq!(found.unmatched, ["none/*", "missing"]);
    assert_eq!(found.directories.len(), 1);
    assert_eq!(
        (found.directories[0].path.as_str(), found.directories[0].root),
        ("out", root_of(&base.join("out")))
    );
    assert!(skipped(&found).is_empty());
    for (digest, from) in &found.uploads {
        let mut bytes = Vec::new();
        match from {
            UploadFrom::Message(message) => bytes.clone_from(message),
            UploadFrom::File(path) => {
                found.open(path).unwrap().read_to_end(&mut bytes).unwrap();
            }
        }
        assert_eq!(Digest::of(&bytes), *digest);
    }
    let Some(UploadFrom::Message(tree)) = found.uploads.get(&found.directories[0].tree) else {
        panic!("no tree")
    };
    let tree = read_tree_message(tree, TreeBounds::default()).unwrap();
    assert_eq!(tree.root(), found.directories[0].root);
    assert_eq!(tree.totals().files, 2);
    // The directory itself, and patterns inside of an output, which add nothing.
    let whole = collected(base, &[".", "out/x"]);
    assert_eq!((paths(&whole).len(), whole.unmatched.len()), (0, 0));
    assert_eq!((whole.directories[0].path.as_str(), whole.directories[0].root), ("", root_of(base)));
    let none = collected(base, &[]);
    assert!(none.outputs.is_empty() && none.uploads.is_empty());
}

#[test]
fn patterns_that_lead_out_are_refused() {
    let refused = |pattern: &str| PathGlobs::parse(&[pattern.to_owned()]).is_err();
    for pattern in ["", "/etc/*", "../*", "a/../../b", "a/..", "a\0", "[a", "{a", &"a".repeat(5_000)] {
        assert!(refused(pattern), "{pattern:?}");
    }
    assert!(PathGlobs::parse(&vec!["a".to_owned(); 1_001]).is_err());
}

#[test]
fn links_of_a_task_do_not_lead_out() {
    let outside = files(&["secret"]);
    let directory = files(&["out/a", "b"]);
    let base = directory.path();
    let secret = outside.path().join("secret").display().to_string();
    symlink(outside.path(), base.join("away")).unwrap();
    symlink(outside.path(), base.join("out/away")).unwrap();
    symlink(&secret, base.join("out/absolute")).unwrap();
    symlink("../b", base.join("out/up")).unwrap();
    symlink("a", base.join("out/good")).unwrap();
    symlink("out/a", base.join("good")).unwrap();
    symlink("../secret", base.join("bad")).unwrap();
    let found = collected(base, &["away/*", "out", "good", "bad", "away"]);
    assert_eq!(found.outputs, [link("good", "out/a")]);
    let mut expected = vec![
        ("away", SkipReason::Link(windlass_cas::tree::LinkFault::Absolute)),
        ("bad", SkipReason::Link(windlass_cas::tree::LinkFault::Outside)),
        ("out/absolute", SkipReason::Link(windlass_cas::tree::LinkFault::Absolute)),
        ("out/away", SkipReason::Link(windlass_cas::tree::LinkFault::Absolute)),
        // It stays in the task's directory, but would leave the output where that is used.
        ("out/up", SkipReason::Link(windlass_cas::tree::LinkFault::Outside)),
    ];
    expected.sort_by(|a, b| tree_order(a.0, b.0));
    let mut is = skipped(&found);
    is.sort_by(|a, b| tree_order(a.0, b.0));
    assert_eq!(is, expected);
    assert_eq!(found.unmatched, ["away/*"]);
    assert!(found.uploads.keys().all(|digest| *digest != Digest::of(b"secret")));
    // As a link of the task's directory, the same one is an output.
    assert_eq!(collected(base, &["out/up"]).outputs, [link("out/up", "../b")]);
}

#[test]
fn a_file_that_became_a_link_is_not_uploaded() {
    let directory = files(&["out/a", "b/c"]);
    let base = directory.path();
    let found = collected(base, &["out/a", "b/c"]);
    assert!(found.open(Path::new("out/a")).is_ok());
    fs::remove_file(base.join("out/a")).unwrap();
    symlink("/etc/hostname", base.join("out/a")).unwrap();
    assert!(found.open(Path::new("out/a")).is_err());
    fs::rename(base.join("b"), base.join("moved")).unwrap();
    symlink("moved", base.join("b")).unwrap();
    assert!(found.open(Path::new("b/c")).is_err());
}

#[test]
fn outputs_are_one_tree_at_their_paths() {
    let directory = files(&["a.o", "b.c", "out/x", "out/deep/y", "keep/empty/no"]);
    let base = directory.path();
    fs::remove_file(base.join("keep/empty/no")).unwrap();
    symlink("../a.o", base.join("out/up")).unwrap();
    symlink("/etc/hostname", base.join("out/away")).unwrap();
    let patterns: Vec<String> = ["*.o", "out", "keep/empty", "none"].map(str::to_owned).into();
    let globs = PathGlobs::parse(&patterns).unwrap();
    let found = collect_tree(base, &globs, &TreeBounds::default(), None).unwrap();
    let expected = vec![
        file("a.o", Digest::of(b"a.o"), false),
        TreeEntry { path: "keep/empty".to_owned(), kind: EntryKind::Directory },
        file("out/deep/y", Digest::of(b"out/deep/y"), false),
        // In one tree with its target it leads nowhere else.
        link("out/up", "../a.o"),
        file("out/x", Digest::of(b"out/x"), false),
    ];
    assert_eq!(found.tree.root, encode(expected).unwrap().root);
    assert_eq!((found.file_count, found.bytes), (3, 18));
    assert_eq!(found.unmatched, ["none"]);
    assert_eq!(found.skipped.named.len(), 1);
    for (digest, path) in &found.files {
        let mut bytes = Vec::new();
        found.open(path).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(Digest::of(&bytes), *digest);
    }
    let none =
        collect_tree(base, &PathGlobs::parse(&["x".to_owned()]).unwrap(), &TreeBounds::default(), None);
    assert_eq!(none.unwrap().entries, 0);
    let all = PathGlobs::parse(&[".".to_owned()]).unwrap();
    fs::remove_file(base.join("out/away")).unwrap();
    let all = collect_tree(base, &all, &TreeBounds::default(), None).unwrap();
    assert_eq!(all.tree.root, root_of(base));
}

#[test]
fn a_file_that_its_task_could_not_read_is_no_output() {
    let directory = files(&["secret", "public", "mine"]);
    let base = directory.path();
    fs::set_permissions(base.join("secret"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(base.join("public"), fs::Permissions::from_mode(0o444)).unwrap();
    let globs = PathGlobs::parse(&["*".to_owned()]).unwrap();
    let own = rustix::process::geteuid().as_raw();
    let of = |owner| collect_tree(base, &globs, &TreeBounds::default(), Some(owner)).unwrap();
    // To the user of another number the files are as those of another user that it linked into its directory.
    let found = of(own + 1);
    assert!(!found.files.contains_key(&Digest::of(b"secret")));
    assert!(found.files.contains_key(&Digest::of(b"public")));
    let told: Vec<(&str, &SkipReason)> =
        found.skipped.named.iter().map(|skip| (skip.path.as_str(), &skip.why)).collect();
    assert!(told.contains(&("secret", &SkipReason::Foreign)), "{told:?}");
    assert!(found.open(Path::new("secret")).is_err() && found.open(Path::new("public")).is_ok());
    assert_eq!(of(own).file_count, 3);
}

/// Makes directories inside each other, deeper than a path may be.
fn make_deep(at: &Path, depth: usize) {
    let mut inner = File::open(at).unwrap();
    for _ in 0..depth {
        mkdirat(&inner, "d", Mode::RWXU).unwrap();
        inner = File::from(openat(&inner, "d", OFlags::RDONLY, Mode::empty()).unwrap());
    }
    drop(openat(&inner, "f", OFlags::WRONLY | OFlags::CREATE, Mode::RWXU).unwrap());
}

#[test]
fn what_a_task_left_is_removed_and_nothing_outside() {
    let (outside, top) = (files(&["keep/me"]), tempfile::tempdir().unwrap());
    let task = top.path().join("1.0.1");
    fs::create_dir(&task).unwrap();
    make_deep(&task, 3_000);
    symlink(outside.path(), task.join("away")).unwrap();
    symlink(outside.path(), top.path().join("link")).unwrap();
    mkfifoat(CWD, task.join("pipe"), Mode::RWXU).unwrap();
    for number in 0..2_000 {
        fs::create_dir_all(task.join(format!("wide/{number}/x"))).unwrap();
    }
    // An earlier process was at it.
    fs::create_dir_all(top.path().join("moved-7/a")).unwrap();
    fs::create_dir(task.join("closed")).unwrap();
    fs::write(task.join("closed/f"), "x").unwrap();
    fs::create_dir_all(task.join("unwritable/in/side")).unwrap();
    for (path, mode) in [("closed", 0), ("unwritable/in", 0o500), ("unwritable", 0o500)] {
        fs::set_permissions(task.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(remove_below(top.path(), &|| true).unwrap(), 0, "it was told to end");
    assert!(task.exists());
    assert!(remove_below(top.path(), &|| false).unwrap() >= 3_000);
    assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    assert_eq!(fs::read(outside.path().join("keep/me")).unwrap(), b"keep/me");
    assert_eq!(remove_below(top.path(), &|| false).unwrap(), 0);
}

#[test]
fn what_is_no_output_is_skipped_and_told() {
    let directory = files(&["out/a"]);
    let base = directory.path();
    mkfifoat(CWD, base.join("out/pipe"), Mode::RWXU).unwrap();
    fs::write(base.join("out").join(OsStr::from_bytes(b"b\xff")), "x").unwrap();
    let found = collected(base, &["out/*"]);
    assert_eq!(paths(&found), ["out/a"]);
    let mut reasons: Vec<SkipReason> = skipped(&found).into_iter().map(|(_, why)| why).collect();
    reasons.sort_by_key(SkipReason::to_string);
    assert_eq!(reasons, [SkipReason::NotRegular, SkipReason::NotUnicode]);
    // Paths that are deeper than a tree may be are told once, at the first that is too deep.
    let deep = base.join(["d"; 101].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let found = collected(base, &["d"]);
    assert_eq!(found.skipped.named.len(), 1);
    assert_eq!(found.directories.len(), 1);
}

#[test]
fn what_is_collected_is_bounded() {
    let directory = files(&["a/1", "a/2", "b"]);
    let globs = PathGlobs::parse(&["**".to_owned()]).unwrap();
    let within =
        |entries_max, bytes_max| collect(directory.path(), &globs, &TreeBounds { entries_max, bytes_max });
    assert!(within(4, 7).is_ok());
    assert!(matches!(within(3, 7), Err(TreeError::ManyEntries { max: 3 })));
    assert!(matches!(within(1, 7), Err(TreeError::ManyEntries { max: 1 })));
    assert!(matches!(within(4, 6), Err(TreeError::ManyBytes { max: 6 })));
    // Directories in which nothing can match are not looked into.
    let globs = PathGlobs::parse(&["b".to_owned(), "c/d/*".to_owned()]).unwrap();
    assert!(collect(directory.path(), &globs, &TreeBounds { entries_max: 2, bytes_max: 9 }).is_ok());
}

/// Random entries of a tree whose files are in `blobs`.
fn entries_of(found: Vec<(String, u8)>, blobs: &BlobFiles) -> Vec<TreeEntry> {
    let mut entries: BTreeMap<String, EntryKind> = BTreeMap::new();
    for (path, kind) in found {
        let mut parents = path.match_indices('/').map(|(at, _)| &path[..at]);
        let is_directory = |path: &str| entries.get(path).is_none_or(|kind| *kind == EntryKind::Directory);
        if !parents.all(is_directory) || entries.keys().any(|other| other.starts_with(&path)) {
            continue;
        }
        let kind = match kind % 8 {
            0 => EntryKind::Directory,
            1 => EntryKind::Link { target: "a/b".to_owned() },
            2 => EntryKind::File { digest: Digest::EMPTY, is_executable: false },
            other => EntryKind::File { digest: blobs.put(&[kind; 3]), is_executable: other == 3 },
        };
        entries.insert(path, kind);
    }
    entries.into_iter().map(|(path, kind)| TreeEntry { path, kind }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_tree_that_is_made_and_scanned_or_collected_is_the_same(
        found in prop::collection::vec(("[ab.]{1,2}x(/[ab.]{1,2}x){0,3}", any::<u8>()), 0..20)
    ) {
        let (blobs, place) = (BlobFiles::new(), tempfile::tempdir().unwrap());
        let entries = entries_of(found, &blobs);
        let root = encode(entries.clone()).unwrap().root;
        let into = place.path().join("task");
        made(&blobs, entries, &into, &LINKS).unwrap();
        prop_assert_eq!(root_of(&into), root);
        let whole = collected(&into, &["."]);
        prop_assert_eq!(whole.directories[0].root, root);
        prop_assert!(skipped(&whole).is_empty());
    }

    #[test]
    fn any_text_is_a_pattern_or_refused(
        pattern in "[ab/.*?{},\\[\\]!\\\\-]{0,20}",
        path in "[ab]{1,2}(/[ab]{1,2}){0,3}",
    ) {
        if let Ok(globs) = PathGlobs::parse(std::slice::from_ref(&pattern)) {
            // What matches is reached through all directories on the way.
            if !globs.matching(&path).is_empty() {
                for (at, _) in path.match_indices('/') {
                    prop_assert!(globs.may_reach(&path[..at]), "{pattern} does not reach {path}");
                }
            }
        }
    }
}
