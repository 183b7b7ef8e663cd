//! Files of attempts against a server in memory.

use super::server::BATCH_BYTES_MAX;
use super::*;
use crate::protocol::{Body, BodyFiles, FromKeeper, Held, HeldPhase, TaskRef, ToKeeper, WireResult};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass_api::wire::{KeptOutputs, TaskFiles, report};
use windlass_cas::tree::{EntryKind, TreeBounds, TreeContent, TreeEntry, encode, read_tree};
use windlass_cas::{Blob, CasError, Digest};

/// Only a hung test reaches it.
const HUNG: Duration = Duration::from_secs(60);

#[derive(Default)]
struct ServerDouble {
    state: Mutex<DoubleState>,
    changed: Condvar,
}

#[derive(Default)]
struct DoubleState {
    files: BTreeMap<TaskRef, TaskFiles>,
    blobs: BTreeMap<Digest, Vec<u8>>,
    /// How often blobs were read.
    reads: BTreeMap<Digest, usize>,
    /// How often it was asked which files an attempt finds.
    asked: usize,
    /// Blobs are read only when `asked` is at least this.
    reads_wait_for: usize,
    asking_fails: VecDeque<FileTrouble>,
    keeping_fails: VecDeque<FileTrouble>,
    kept: Vec<KeptOutputs>,
    uploaded: BTreeSet<Digest>,
}

impl ServerDouble {
    fn put(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        self.state.lock().blobs.insert(digest, bytes.to_vec());
        digest
    }

    fn put_tree(&self, entries: Vec<TreeEntry>) -> Digest {
        let tree = encode(entries).unwrap();
        self.state.lock().blobs.extend(tree.messages);
        tree.root
    }

    fn give(&self, task: TaskRef, roots: &[Digest], outputs: &[&str]) {
        let roots = roots.iter().map(Digest::to_string).collect();
        let outputs = outputs.iter().map(|glob| (*glob).to_owned()).collect();
        self.state.lock().files.insert(task, TaskFiles { roots, stdin: None, outputs });
    }

    fn read_one(&self, digest: Digest) -> Result<Vec<u8>, FileTrouble> {
        let mut state = self.state.lock();
        let until = Instant::now() + HUNG;
        while state.asked < state.reads_wait_for && Instant::now() < until {
            self.changed.wait_until(&mut state, until);
        }
        *state.reads.entry(digest).or_default() += 1;
        let gone = || FileTrouble::Job(format!("{digest} is gone"));
        state.blobs.get(&digest).cloned().ok_or_else(gone)
    }

    /// The tree of the outputs that were kept last.
    fn kept_tree(&self) -> TreeContent {
        let state = self.state.lock();
        let root = state.kept.last().unwrap().root.clone().unwrap();
        let (hash, size) = root.split_once('/').unwrap();
        let root = Digest::parse(hash, size.parse().unwrap()).unwrap();
        read_tree(root, TreeBounds::default(), &mut |digest| Ok(state.blobs.get(&digest).cloned())).unwrap()
    }

    fn kept_paths(&self) -> Vec<String> {
        self.kept_tree().entries().into_iter().map(|entry| entry.path).collect()
    }
}

impl FileServer for ServerDouble {
    fn files_of(&self, call: &FileCall) -> Result<TaskFiles, FileTrouble> {
        let mut state = self.state.lock();
        state.asked += 1;
        self.changed.notify_all();
        match state.asking_fails.pop_front() {
            Some(trouble) => Err(trouble),
            None => Ok(state.files[&call.task].clone()),
        }
    }

    fn missing(&self, _: &FileCall, digests: &[Digest]) -> Result<Vec<Digest>, FileTrouble> {
        let state = self.state.lock();
        Ok(digests.iter().copied().filter(|digest| !state.blobs.contains_key(digest)).collect())
    }

    fn upload_many(&self, _: &FileCall, blobs: &[(Digest, Vec<u8>)]) -> Result<(), FileTrouble> {
        assert!(blobs.iter().map(|(_, blob)| blob.len() as u64).sum::<u64>() <= BATCH_BYTES_MAX);
        for (digest, blob) in blobs {
            assert_eq!(Digest::of(blob), *digest);
            self.put(blob);
            self.state.lock().uploaded.insert(*digest);
        }
        Ok(())
    }

    fn upload(&self, _: &FileCall, digest: Digest, from: &mut dyn UploadBytes) -> Result<(), FileTrouble> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        assert_eq!(self.put(&bytes), digest);
        self.state.lock().uploaded.insert(digest);
        Ok(())
    }

    fn keep_outputs(&self, _: &FileCall, kept: KeptOutputs) -> Result<(), FileTrouble> {
        let mut state = self.state.lock();
        match state.keeping_fails.pop_front() {
            Some(trouble) => {
                // The blobs of the last upload are lost with it.
                let uploaded = std::mem::take(&mut state.uploaded);
                state.blobs.retain(|digest, _| !uploaded.contains(digest));
                Err(trouble)
            }
            None => {
                state.kept.push(kept);
                Ok(())
            }
        }
    }
}

impl BlobReader for ServerDouble {
    fn read_many(&self, _: &FileCall, digests: &[Digest], take: TakeBlob<'_>) -> Result<(), FileTrouble> {
        digests.iter().try_for_each(|digest| take(*digest, &self.read_one(*digest)?))
    }

    fn read(&self, _: &FileCall, digest: Digest, take: TakePart<'_>) -> Result<(), FileTrouble> {
        self.read_one(digest)?.chunks(1_000).try_for_each(take)
    }
}

impl BlobStore for ServerDouble {
    fn open(&self, digest: Digest) -> Result<Option<Blob>, FileTrouble> {
        Ok(self.state.lock().blobs.get(&digest).cloned().map(Blob::Bytes))
    }
}

/// An agent's work on files, and its keeper.
struct Played {
    dir: TempDir,
    server: Arc<ServerDouble>,
    work: FileWork,
    answers: Receiver<ToKeeper>,
    reports: Arc<Mutex<Vec<report::What>>>,
    keys: Arc<Mutex<Vec<(String, u64)>>>,
}

impl Played {
    fn new() -> Played {
        Played::with_cache(64 << 20)
    }

    fn with_cache(bytes: u64) -> Played {
        Played::with(tempfile::tempdir().unwrap(), Arc::default(), bytes, &[])
    }

    fn with(dir: TempDir, server: Arc<ServerDouble>, cache_bytes: u64, held: &[TaskRef]) -> Played {
        let cache = Arc::new(FileCache::new(dir.path().join("cache"), Some(cache_bytes)));
        let inputs = InputBlobs::Elsewhere(server.clone(), cache);
        Played::of(dir, server, inputs, held)
    }

    fn of(dir: TempDir, server: Arc<ServerDouble>, inputs: InputBlobs, held: &[TaskRef]) -> Played {
        let dirs = FileDirs::new(dir.path(), "files");
        dirs.create().unwrap();
        let (sender, answers) = mpsc::channel();
        let (reports, keys) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (told, keyed) = (reports.clone(), keys.clone());
        let work = FileWork::new(FileParts {
            files: AgentFiles { server: server.clone(), inputs },
            dirs,
            answer: Box::new(move |message: ToKeeper| _ = sender.send(message)),
            tell: Box::new(move |what: report::What| told.lock().push(what)),
            tell_keys: Box::new(move |keys: Vec<(String, u64)>| *keyed.lock() = keys),
        });
        work.start().unwrap();
        let played = Played { dir, server, work, answers, reports, keys };
        let earlier = played.dir.path().join("files/earlier");
        fs::create_dir(&earlier).unwrap();
        played.hello(held);
        // What comes from now on is not taken for what an earlier agent left.
        eventually(|| !earlier.exists());
        played
    }

    fn hello(&self, held: &[TaskRef]) {
        let held = held.iter().map(|task| Held { task: *task, phase: HeldPhase::Running(1) }).collect();
        self.work.hear(&[state(held, true)]);
    }

    fn prepare(&self, task: TaskRef) {
        self.work.hear(&[FromKeeper::Prepare { task, epoch: 7, step: 0, user: None }]);
    }

    fn collect(&self, task: TaskRef) {
        let directory = self.directory(task).to_str().unwrap().to_owned();
        self.work.hear(&[FromKeeper::Collect { task, epoch: 7, directory }]);
    }

    fn finish(&self, task: TaskRef) {
        self.work.hear(&[FromKeeper::Finished { task, epoch: 7, result: WireResult::default() }]);
    }

    fn answer(&self) -> ToKeeper {
        self.answers.recv_timeout(HUNG).unwrap()
    }

    /// The directory that the next answer gives.
    fn made(&self) -> PathBuf {
        match self.answer() {
            ToKeeper::Prepared { directory: Some(directory), why: None, epoch: 7, .. } => directory.into(),
            other => panic!("{other:?}"),
        }
    }

    /// Why the next answer gives none, whether that is the job's fault, and whether it passes.
    fn refused(&self) -> (String, bool, bool) {
        match self.answer() {
            ToKeeper::Prepared { directory: None, why: Some(why), job_at_fault, passing, .. } => {
                (why, job_at_fault, passing)
            }
            other => panic!("{other:?}"),
        }
    }

    fn kept(&self, expected: TaskRef) {
        match self.answer() {
            ToKeeper::Collected { task, epoch: 7, why: None, .. } => assert_eq!(task, expected),
            other => panic!("{other:?}"),
        }
    }

    fn directory(&self, task: TaskRef) -> PathBuf {
        let TaskRef { job, index, attempt } = task;
        self.dir.path().join("files").join(format!("{job}.{index}.{attempt}"))
    }

    /// Ends this agent. The directory and the server stay.
    fn end(self) -> (TempDir, Arc<ServerDouble>) {
        self.work.stop();
        (self.dir, self.server)
    }
}

fn state(held: Vec<Held>, files: bool) -> FromKeeper {
    let (notes, sent, program) = (Vec::new(), 0, None);
    FromKeeper::State { incarnation: 1, seq: 0, held, notes, sent, fences: true, program, files }
}

fn task(job: u64) -> TaskRef {
    TaskRef { job, index: 0, attempt: 1 }
}

fn file(path: &str, digest: Digest) -> TreeEntry {
    TreeEntry { path: path.to_owned(), kind: EntryKind::File { digest, is_executable: false } }
}

fn eventually(is_so: impl Fn() -> bool) {
    let until = Instant::now() + HUNG;
    while !is_so() {
        assert!(Instant::now() < until, "it does not come about");
        std::thread::yield_now();
    }
}

#[test]
fn an_attempt_finds_its_inputs_and_its_outputs_are_kept() {
    let played = Played::new();
    let (small, large) = (played.server.put(b"small"), played.server.put(&vec![7; 3 << 20]));
    let root = played.server.put_tree(vec![file("src/a.c", small), file("big", large)]);
    played.server.give(task(1), &[root], &["*.o", "out", "none"]);
    let stdin = played.server.put(b"words");
    played.server.state.lock().files.get_mut(&task(1)).unwrap().stdin = Some(stdin.to_string());
    played.prepare(task(1));
    let ToKeeper::Prepared { directory: Some(directory), stdin: Some(stdin), .. } = played.answer() else {
        panic!("it has no directory")
    };
    let directory = PathBuf::from(directory);
    assert_eq!(directory, played.directory(task(1)));
    assert_eq!(fs::read(directory.join("src/a.c")).unwrap(), b"small");
    assert_eq!(fs::read(directory.join("big")).unwrap(), vec![7; 3 << 20]);
    assert_eq!(fs::read(&stdin).unwrap(), b"words");
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(directory.join("big")).unwrap().mode() & 0o7777, 0o444);
    assert_eq!(*played.keys.lock(), [(format!("input:{}", root.hex()), (3 << 20) + 5)]);
    // A task of the agent's own user could make a link to the cache writable.
    assert_eq!(fs::metadata(directory.join("big")).unwrap().nlink(), 1);

    fs::write(directory.join("a.o"), vec![9; 2 << 20]).unwrap();
    fs::create_dir_all(directory.join("out/deep")).unwrap();
    fs::write(directory.join("out/deep/log"), "said").unwrap();
    played.collect(task(1));
    played.kept(task(1));
    assert_eq!(played.server.kept_paths(), ["a.o", "out", "out/deep", "out/deep/log"]);
    let kept = played.server.state.lock().kept.pop().unwrap();
    assert_eq!((kept.files, kept.bytes, kept.epoch), (2, (2 << 20) + 4, 7));
    assert_eq!(kept.skipped, ["none: nothing matches it"]);
    assert!(played.server.state.lock().blobs.contains_key(&Digest::of(&vec![9; 2 << 20])));

    let said = played.reports.lock().clone();
    let report::What::Progress(last) = said.last().unwrap() else { panic!("{said:?}") };
    assert_eq!((last.epoch, &last.status), (7, &None), "what was said of its files is taken back");
    played.finish(task(1));
    eventually(|| !directory.exists() && !Path::new(&stdin).exists());
    eventually(|| fs::read_dir(played.dir.path().join("files-gone")).unwrap().count() == 0);
}

#[test]
fn repeated_questions_are_answered_and_nothing_is_done_twice() {
    let played = Played::new();
    let root = played.server.put_tree(vec![file("a", played.server.put(b"a"))]);
    played.server.give(task(1), &[root], &["a"]);
    played.server.state.lock().reads_wait_for = usize::MAX;
    played.prepare(task(1));
    played.prepare(task(1));
    played.server.state.lock().reads_wait_for = 0;
    played.server.changed.notify_all();
    let directory = played.made();
    fs::write(directory.join("mine"), "x").unwrap();
    played.hello(&[task(1)]);
    played.prepare(task(1));
    assert_eq!(played.made(), directory);
    assert!(directory.join("mine").exists(), "it is the same one");
    played.collect(task(1));
    played.kept(task(1));
    played.hello(&[task(1)]);
    played.collect(task(1));
    played.kept(task(1));
    let state = played.server.state.lock();
    assert_eq!((state.asked, state.kept.len()), (1, 1));
    assert!(state.reads.values().all(|reads| *reads == 1));
}

#[test]
fn what_two_attempts_need_is_fetched_once() {
    let played = Played::new();
    let shared: Vec<Digest> = (0..200_u8)
        .map(|byte| played.server.put(&[byte; 100]))
        .chain([played.server.put(&vec![1; 2 << 20])])
        .collect();
    let entries = shared.iter().enumerate().map(|(at, digest)| file(&format!("d/{at}"), *digest));
    let root = played.server.put_tree(entries.collect());
    for job in [1, 2] {
        played.server.give(task(job), &[root], &[]);
    }
    // Both are at it before the first blob comes.
    played.server.state.lock().reads_wait_for = 2;
    played.prepare(task(1));
    played.prepare(task(2));
    let made: BTreeSet<PathBuf> = [played.made(), played.made()].into();
    assert_eq!(made.len(), 2);
    for directory in &made {
        assert_eq!(fs::read_dir(directory.join("d")).unwrap().count(), 201);
    }
    let state = played.server.state.lock();
    assert!(state.reads.values().all(|reads| *reads == 1), "{:?}", state.reads.values().max());
    assert_eq!(state.reads.len(), 201 + 2);
}

#[test]
fn the_next_task_of_a_tree_reads_nothing() {
    let played = Played::new();
    let root = played.server.put_tree(vec![file("a", played.server.put(b"a"))]);
    for job in 1..=3 {
        played.server.give(task(job), &[root], &[]);
        played.prepare(task(job));
        played.made();
    }
    let reads: usize = played.server.state.lock().reads.values().sum();
    assert_eq!(reads, 2);
}

#[test]
fn a_store_on_this_machine_is_read_in_place() {
    let server = Arc::<ServerDouble>::default();
    let place = tempfile::tempdir().unwrap();
    let played = Played::of(place, server.clone(), InputBlobs::Here(server.clone()), &[]);
    let root = server.put_tree(vec![file("a", server.put(b"a"))]);
    server.give(task(1), &[root], &["a"]);
    played.prepare(task(1));
    assert_eq!(fs::read(played.made().join("a")).unwrap(), b"a");
    played.collect(task(1));
    played.kept(task(1));
    assert!(server.state.lock().reads.is_empty() && !played.dir.path().join("cache").exists());
    // What is gone from it is the job's loss.
    let lost = server.put_tree(vec![file("a", Digest::of(b"lost"))]);
    server.give(task(2), &[lost], &[]);
    played.prepare(task(2));
    let (why, job_at_fault, _) = played.refused();
    assert!(why.contains(&Digest::of(b"lost").to_string()) && job_at_fault, "{why}");
}

#[test]
fn trees_that_do_not_agree_are_the_job_s_fault() {
    let played = Played::new();
    let [one, other] = [b"one", b"two"].map(|bytes| played.server.put(bytes));
    let first = played.server.put_tree(vec![file("lib/a.o", one), file("same", one)]);
    let second = played.server.put_tree(vec![file("lib/a.o", other), file("same", one)]);
    let third = played.server.put_tree(vec![file("lib/b.o", other), file("same", one)]);
    played.server.give(task(1), &[first, second], &[]);
    played.server.give(task(2), &[first, third], &[]);
    played.prepare(task(1));
    let (why, job_at_fault, passing) = played.refused();
    assert!(why.contains("lib/a.o") && job_at_fault && !passing, "{why}");
    played.prepare(task(2));
    let directory = played.made();
    assert_eq!(fs::read_dir(directory.join("lib")).unwrap().count(), 2);
    assert_eq!(played.keys.lock().len(), 2, "each tree is a key");
}

/// A message's field that is delimited by its length.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![(number << 3) | 2, u8::try_from(body.len()).unwrap()];
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn trees_of_an_attacker_make_nothing() {
    let played = Played::new();
    let digest = [field(1, Digest::of(b"x").hex().as_bytes()), vec![0x10, 1]].concat();
    let hostile_file = |name: &str| field(1, &[field(1, name.as_bytes()), field(2, &digest)].concat());
    let hostile_link = |target: &str| field(3, &[field(1, b"l"), field(2, target.as_bytes())].concat());
    let messages = [
        hostile_file(".."),
        hostile_file("../../evil"),
        hostile_file("/evil"),
        hostile_file(""),
        [hostile_file("b"), hostile_file("a")].concat(),
        [hostile_file("a"), hostile_file("a")].concat(),
        hostile_link("/etc"),
        hostile_link("../.."),
        b"not a message".to_vec(),
    ];
    played.server.put(b"x");
    for (job, message) in (1..).zip(&messages) {
        let root = played.server.put(message);
        played.server.give(task(job), &[root], &[]);
        played.prepare(task(job));
        let (why, job_at_fault, passing) = played.refused();
        assert!(job_at_fault && !passing, "{job}: {why}");
    }
    // What the server says must be a digest, and there.
    let mut files = TaskFiles { roots: vec!["/etc/passwd".to_owned()], ..TaskFiles::default() };
    played.server.state.lock().files.insert(task(50), files.clone());
    played.prepare(task(50));
    assert!(!played.refused().1);
    files.roots = vec![Digest::of(b"gone").to_string()];
    played.server.state.lock().files.insert(task(51), files);
    played.prepare(task(51));
    assert!(played.refused().1);
    assert_eq!(fs::read_dir(played.dir.path().join("files")).unwrap().count(), 0);
}

#[test]
fn what_passes_is_asked_again() {
    let played = Played::new();
    played.server.give(task(1), &[], &[]);
    let lost = FileTrouble::Patience { minutes: 10, why: "connection refused".to_owned() };
    let full = FileTrouble::Cache(CasError::DiskFull("/cache".into()));
    played.server.state.lock().asking_fails.extend([lost, full]);
    for expected in ["connection refused", "the disk of /cache is full"] {
        played.prepare(task(1));
        let (why, job_at_fault, passing) = played.refused();
        assert!(why.contains(expected) && !job_at_fault && passing, "{why}");
    }
    played.prepare(task(1));
    assert_eq!(fs::read_dir(played.made()).unwrap().count(), 0, "an attempt without inputs has an empty one");
}

#[test]
fn a_full_disk_is_told_as_the_reason() {
    let full = FileTrouble::io("make", Path::new("/x"), io::Error::from(io::ErrorKind::StorageFull));
    assert!(full.told().starts_with("the disk of this worker is full: cannot make /x"), "{}", full.told());
    assert_eq!(full.fault(), FileFault::Passing);
    let other = FileTrouble::io("make", Path::new("/x"), io::Error::from(io::ErrorKind::PermissionDenied));
    assert_eq!(other.fault(), FileFault::Worker);
}

#[test]
fn inputs_that_are_larger_than_the_cache_go_to_another_worker() {
    let played = Played::with_cache(1 << 20);
    let root = played.server.put_tree(vec![file("a", played.server.put(&vec![1; 2 << 20]))]);
    played.server.give(task(1), &[root], &[]);
    played.prepare(task(1));
    let (why, job_at_fault, passing) = played.refused();
    assert!(why.contains("--files-bytes") && !job_at_fault && !passing, "{why}");
}

#[test]
fn inputs_are_pinned_while_others_come() {
    // Each tree has most of the cache, so the second one evicts the first.
    let played = Played::with_cache(5 << 20);
    for job in [1_u8, 2, 1] {
        let (big, small) = (played.server.put(&vec![job; 3 << 20]), played.server.put(&[job; 9]));
        let root = played.server.put_tree(vec![file("big", big), file("small", small)]);
        let task =
            TaskRef { job: u64::from(job), index: 0, attempt: played.server.state.lock().asked as u32 };
        played.server.give(task, &[root], &[]);
        played.prepare(task);
        assert_eq!(fs::read(played.made().join("big")).unwrap(), vec![job; 3 << 20]);
    }
    let state = played.server.state.lock();
    assert_eq!(state.reads[&Digest::of(&vec![1; 3 << 20])], 2, "it was evicted, and fetched again");
}

#[test]
fn links_that_a_task_made_lead_nowhere() {
    let played = Played::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    played.server.give(task(1), &[], &["**"]);
    played.prepare(task(1));
    let directory = played.made();
    symlink(outside.path().join("secret"), directory.join("a.o")).unwrap();
    symlink(outside.path(), directory.join("dir")).unwrap();
    symlink("../../secret", directory.join("up")).unwrap();
    symlink("good", directory.join("fine")).unwrap();
    fs::write(directory.join("good"), "good").unwrap();
    fs::write(directory.join("closed"), "x").unwrap();
    played.collect(task(1));
    played.kept(task(1));
    assert_eq!(played.server.kept_paths(), ["closed", "fine", "good"]);
    assert_eq!(played.server.state.lock().kept[0].skipped.len(), 3);
    assert!(!played.server.state.lock().blobs.contains_key(&Digest::of(b"secret")));
    played.finish(task(1));
    eventually(|| !directory.exists());
    assert!(outside.path().join("secret").exists());
}

#[test]
fn a_directory_that_became_a_link_is_not_collected_from() {
    let played = Played::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("a"), "secret").unwrap();
    played.server.give(task(1), &[], &["*"]);
    played.prepare(task(1));
    let directory = played.made();
    // Only a task of the agent's own user can do so.
    fs::remove_dir(&directory).unwrap();
    symlink(outside.path(), &directory).unwrap();
    played.collect(task(1));
    let ToKeeper::Collected { why: Some(_), .. } = played.answer() else { panic!("it was kept") };
    assert!(played.server.state.lock().kept.is_empty());
    played.finish(task(1));
    eventually(|| directory.symlink_metadata().is_err());
    assert!(outside.path().join("a").exists());
}

#[test]
fn ten_thousand_small_files_come_and_go() {
    let played = Played::new();
    let blobs: Vec<Digest> = (0..10_000_u32).map(|number| played.server.put(&number.to_le_bytes())).collect();
    let entries = blobs.iter().enumerate().map(|(at, digest)| file(&format!("{}/{at}", at % 100), *digest));
    let root = played.server.put_tree(entries.collect());
    played.server.give(task(1), &[root], &["**"]);
    played.prepare(task(1));
    let directory = played.made();
    assert_eq!(fs::read(directory.join("99/9999")).unwrap(), 9_999_u32.to_le_bytes());
    played.collect(task(1));
    played.kept(task(1));
    assert_eq!(played.server.kept_tree().root(), root);
    assert!(played.server.state.lock().uploaded.is_empty(), "the server has them all");
    played.finish(task(1));
    eventually(|| !directory.exists());
    eventually(|| fs::read_dir(played.dir.path().join("files-gone")).unwrap().count() == 0);
}

#[test]
fn an_attempt_that_is_over_gets_no_directory_and_no_answer() {
    let played = Played::new();
    let root = played.server.put_tree(vec![file("a", played.server.put(b"a"))]);
    for job in [1, 2] {
        played.server.give(task(job), &[root], &[]);
    }
    played.server.state.lock().reads_wait_for = 2;
    played.prepare(task(1));
    eventually(|| played.server.state.lock().asked == 1);
    played.finish(task(1));
    played.prepare(task(2));
    assert_eq!(played.made(), played.directory(task(2)));
    assert!(!played.directory(task(1)).exists());
    // One that is over at a hello.
    played.hello(&[]);
    eventually(|| !played.directory(task(2)).exists());
    assert!(played.answers.try_recv().is_err());
}

#[test]
fn after_a_hello_only_the_keeper_s_directories_stay() {
    let played = Played::new();
    let files = played.dir.path().join("files");
    for name in
        ["5.0.1/x", "5.0.1.stdin/stdin", "9.0.1/x", "9.0.1.stdin/stdin", "new-7-1/x", "05.0.1/x", "other/x"]
    {
        fs::create_dir_all(files.join(name)).unwrap();
    }
    fs::set_permissions(files.join("9.0.1"), Permissions::from_mode(0o500)).unwrap();
    played.hello(&[task(5)]);
    let names = || {
        let names =
            fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<BTreeSet<String>>()
    };
    eventually(|| names() == BTreeSet::from(["5.0.1".to_owned(), "5.0.1.stdin".to_owned()]));
    eventually(|| fs::read_dir(played.dir.path().join("files-gone")).unwrap().count() == 0);
    // A directory that no attempt has is not discarded by its name.
    let outside = played.dir.path().join("1.0.1");
    fs::create_dir(&outside).unwrap();
    played.work.hear(&[FromKeeper::Discard { directory: outside.to_str().unwrap().to_owned() }]);
    played.work.hear(&[FromKeeper::Discard { directory: files.join("5.0.1").to_str().unwrap().to_owned() }]);
    eventually(|| names().is_empty());
    assert!(outside.exists());
}

#[test]
fn another_agent_keeps_the_outputs_of_a_directory_that_it_did_not_make() {
    let played = Played::new();
    played.server.give(task(1), &[], &["log"]);
    played.prepare(task(1));
    fs::write(played.made().join("log"), "said").unwrap();
    let (dir, server) = played.end();
    let played = Played::with(dir, server, 64 << 20, &[task(1)]);
    played.collect(task(1));
    played.kept(task(1));
    assert_eq!(played.server.kept_paths(), ["log"]);
}

#[test]
fn blobs_that_the_server_loses_are_uploaded_again() {
    let played = Played::new();
    played.server.give(task(1), &[], &["log"]);
    played.server.state.lock().keeping_fails.push_back(FileTrouble::Outputs("1 is missing".to_owned()));
    played.prepare(task(1));
    fs::write(played.made().join("log"), "said").unwrap();
    played.collect(task(1));
    played.kept(task(1));
    assert_eq!(played.server.kept_paths(), ["log"]);
    // A quota is another matter.
    played.server.give(task(2), &[], &["log"]);
    played.server.state.lock().keeping_fails.push_back(FileTrouble::Full("the quota of ann".to_owned()));
    played.prepare(task(2));
    played.made();
    played.collect(task(2));
    let ToKeeper::Collected { why: Some(why), job_at_fault: true, .. } = played.answer() else {
        panic!("kept")
    };
    assert!(why.contains("quota"), "{why}");
}

#[test]
fn a_keeper_that_does_not_know_files_gets_no_command_with_them() {
    let played = Played::new();
    let body = |files: Option<BodyFiles>| {
        let body = Body {
            command: vec!["make".to_owned()],
            env: BTreeMap::new(),
            cwd: ".".to_owned(),
            umask: None,
            session: None,
            run_as: None,
            refused: None,
            refused_now: false,
            files,
        };
        ToKeeper::Body { job: 1, step: 0, body }
    };
    let with_files = body(Some(BodyFiles::default()));
    assert_eq!(played.work.refuse(&with_files), None);
    played.work.hear(&[state(Vec::new(), false)]);
    let Some(ToKeeper::Body { body: refused, .. }) = played.work.refuse(&with_files) else {
        panic!("it is sent")
    };
    assert!(refused.refused.is_some() && refused.refused_now);
    assert_eq!(played.work.refuse(&body(None)), None);
}

#[test]
fn a_server_is_asked_until_it_answers_or_the_attempt_is_over() {
    let call = FileCall::new(task(1), 7);
    let mut tries = 0;
    let answer = patiently(&call, |_| {
        tries += 1;
        if tries == 1 { Err(FileTrouble::Passing("busy".to_owned())) } else { Ok(tries) }
    });
    assert_eq!(answer.unwrap(), 2);
    let refused: Result<(), _> = patiently(&call, |_| Err(FileTrouble::Job("no".to_owned())));
    assert!(matches!(refused, Err(FileTrouble::Job(_))));
    let over: Result<(), _> = patiently(&call, |_| {
        call.end();
        Err(FileTrouble::NotBooked("not yet".to_owned()))
    });
    assert!(matches!(over, Err(FileTrouble::Over)));
}
