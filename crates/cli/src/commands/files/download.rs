//! Gets the outputs of tasks, several at a time, and puts them where they belong.

use crate::client::link::ServerLink;
use crate::commands::files::args::PutArgs;
use crate::commands::files::known::KnownFiles;
use crate::commands::files::unpack::{KEPT_NAMED_MAX, UnpackError, Unpacked, unpack};
use crate::system;
use crate::ui::error::CliError;
use crate::ui::message::message;
use crate::ui::output::{count, fit};
use crate::ui::transfer::{FileAmount, Transfer};
use futures_util::StreamExt as _;
use serde::Serialize;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use windlass_api::client::files::job_files_tar;
use windlass_api::client::{Client, ClientError};
use windlass_api::{Job, Step, TaskOutputs, TaskSet};
use windlass_cas::Digest;
use windlass_cas::tree::{ScanOptions, TreeBounds, TreeInput, encode, hash_files, scan};

/// Tasks whose outputs are fetched at a time.
const FETCHES_MAX: usize = 4;
/// Parts of an archive that wait to be unpacked.
const PARTS_WAITING_MAX: usize = 16;
/// Characters of a step's name in the name of a directory. With four bytes for each it fits a file system.
const STEP_CHARS_MAX: usize = 60;
/// Entries beside files that a directory may have to be compared with outputs as a whole.
const OTHER_ENTRIES_MAX: u64 = 10_000;

/// Outputs of a job on their way to a directory.
pub struct Download {
    to: Arc<Destination>,
    /// What was fetched so far.
    pub summary: FetchSummary,
}

/// What was fetched, for programs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FetchSummary {
    /// The job whose tasks made them.
    pub job: u64,
    /// The directory, as an absolute path.
    pub dir: PathBuf,
    /// The number of its tasks that have outputs.
    pub tasks: u64,
    /// Of these, the tasks whose outputs were there already as a whole.
    there: u64,
    files: u64,
    bytes: u64,
    /// Files and links that were written.
    written: u64,
    /// What stood in the way and was left as it is; not all of it if there is much.
    kept: Vec<PathBuf>,
    kept_count: u64,
}

/// Where the outputs of each task go.
struct Destination {
    job: u64,
    dir: PathBuf,
    put: PutArgs,
    /// Whether the outputs are of one task alone.
    is_one: bool,
    steps: Vec<Step>,
}

/// Why the outputs of a task were not fetched.
enum FetchFailure {
    /// Something is wrong on this machine, or with the outputs.
    Here(CliError),
    Request(ClientError),
}

impl From<ClientError> for FetchFailure {
    fn from(error: ClientError) -> Self {
        FetchFailure::Request(error)
    }
}

impl Download {
    /// Nothing is fetched yet. `is_one` says that all outputs are of one task.
    pub fn new(job: &Job, dir: &Path, put: PutArgs, is_one: bool) -> Result<Download, CliError> {
        let absolute = std::path::absolute(dir);
        let dir = absolute.map_err(|error| CliError::usage(format!("{}: {error}", dir.display())))?;
        let summary = FetchSummary { job: job.id, dir: dir.clone(), ..FetchSummary::default() };
        let to = Destination { job: job.id, dir, put, is_one, steps: job.steps.clone() };
        Ok(Download { to: Arc::new(to), summary })
    }

    /// True if a directory has exactly these outputs: then they are counted, and not fetched.
    pub fn is_there(&mut self, outputs: &TaskOutputs, known: &mut KnownFiles) -> bool {
        // A directory of several tasks is never that of one.
        let is_own = !self.to.put.flat || self.to.is_one;
        let is_there = is_own && is_tree(&self.to.of(outputs.index), outputs, known);
        if is_there {
            let TaskOutputs { files, bytes, .. } = *outputs;
            self.summary.there += 1;
            self.take(Unpacked { files, bytes, ..Unpacked::default() });
        }
        is_there
    }

    fn take(&mut self, unpacked: Unpacked) {
        let summary = &mut self.summary;
        summary.tasks += 1;
        summary.files += unpacked.files;
        summary.bytes = summary.bytes.saturating_add(unpacked.bytes);
        summary.written += unpacked.written;
        summary.kept_count += unpacked.kept_count;
        let room = KEPT_NAMED_MAX.saturating_sub(summary.kept.len());
        summary.kept.extend(unpacked.kept.into_iter().take(room));
    }

    /// Fetches outputs, several tasks at a time. After a failure that may pass it goes on with what is left.
    pub async fn all(
        &mut self,
        link: &mut ServerLink,
        mut wanted: Vec<TaskOutputs>,
        transfer: &Arc<Transfer>,
    ) -> Result<(), CliError> {
        let doing = format!("fetch the outputs of job {}", self.to.job);
        // They are taken from the end.
        wanted.reverse();
        while !wanted.is_empty() {
            let left = wanted.len();
            let failed = self.some(&link.client, &mut wanted, transfer).await?;
            if wanted.len() < left {
                link.calm();
            }
            if let Some(error) = failed {
                link.pause(&doing, error).await?;
            }
        }
        Ok(())
    }

    /// Fetches outputs until a request fails, whose error is returned. Those that are left stay in the list.
    async fn some(
        &mut self,
        client: &Client,
        wanted: &mut Vec<TaskOutputs>,
        transfer: &Arc<Transfer>,
    ) -> Result<Option<ClientError>, CliError> {
        let (mut fetching, mut again, mut failed) = (JoinSet::new(), Vec::new(), None);
        loop {
            while failed.is_none()
                && fetching.len() < FETCHES_MAX
                && let Some(outputs) = wanted.pop()
            {
                fetching.spawn(fetch_task(client.clone(), self.to.clone(), outputs, transfer.clone()));
            }
            let Some(ended) = fetching.join_next().await else { break };
            match ended.map_err(|ended| broke_off(&ended))? {
                (_, Ok(unpacked)) => self.take(unpacked),
                (_, Err(FetchFailure::Here(error))) => return Err(error),
                (outputs, Err(FetchFailure::Request(error))) => {
                    again.push(outputs);
                    failed.get_or_insert(error);
                }
            }
        }
        wanted.append(&mut again);
        Ok(failed)
    }
}

impl Destination {
    /// The directory for the outputs of a task.
    fn of(&self, index: u32) -> PathBuf {
        if self.is_one || self.put.flat {
            return self.dir.clone();
        }
        let is_of =
            |step: &&Step| (step.first_task..step.first_task.saturating_add(step.tasks)).contains(&index);
        let step = self.steps.iter().find(is_of).map_or("", |step| step.name.as_str());
        self.dir.join(directory_name(step, index))
    }
}

/// `render.3`: the step's name, as far as a name can have it, and the task's index. The server's archives have the same.
fn directory_name(step: &str, index: u32) -> String {
    let is_lost = |c: char| c.is_control() || "/\\".contains(c) || !system::is_name_here(&format!("{c}x"));
    let plain = |c: char| if is_lost(c) { '_' } else { c };
    let name: String = step.chars().take(STEP_CHARS_MAX).map(plain).collect();
    // One that begins with a dot is hidden.
    match name.strip_prefix('.') {
        Some(rest) => format!("_{rest}.{index}"),
        None => format!("{name}.{index}"),
    }
}

/// False where nothing was kept of a task. What could not be kept is told.
pub fn has_some(job: u64, outputs: &TaskOutputs) -> bool {
    if let Some(first) = outputs.skipped.first() {
        let more = match outputs.skipped.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let first = fit(first, None);
        message!("note: task {job}.{} kept not all of its outputs: {first}{more}", outputs.index);
    }
    outputs.root != Digest::EMPTY.to_string()
}

impl FetchSummary {
    /// In words: "fetched 26 files, 3 MiB of 26 tasks into /films".
    pub fn text(&self) -> String {
        let all = FileAmount { files: self.files, bytes: self.bytes };
        let there = match self.there {
            0 => String::new(),
            there => format!(", of which {} were there already,", count(there, "task")),
        };
        format!("fetched {all} of {}{there} into {}", count(self.tasks, "task"), self.dir.display())
    }

    /// The error if something stood in the way.
    pub fn check(&self) -> Result<(), CliError> {
        if self.kept_count == 0 {
            return Ok(());
        }
        let named = self.kept.iter().map(|path| fit(&path.display().to_string(), None));
        let named: Vec<String> = named.collect();
        let more = if self.kept_count > self.kept.len() as u64 { ", …" } else { "" };
        let what = if self.kept_count == 1 { "1 output is" } else { "some outputs are" };
        Err(CliError::Failed {
            message: format!(
                "{what} not written, because something else is there and was left as it is: {}{more}",
                named.join(", ")
            ),
            hint: Some("--force overwrites files and links; or give another directory".to_owned()),
        })
    }
}

async fn fetch_task(
    client: Client,
    to: Arc<Destination>,
    outputs: TaskOutputs,
    transfer: Arc<Transfer>,
) -> (TaskOutputs, Result<Unpacked, FetchFailure>) {
    let fetched = fetch_outputs(&client, &to, &outputs, transfer).await;
    (outputs, fetched)
}

/// Gets the archive of a task's outputs, and unpacks it as it comes.
async fn fetch_outputs(
    client: &Client,
    to: &Destination,
    outputs: &TaskOutputs,
    transfer: Arc<Transfer>,
) -> Result<Unpacked, FetchFailure> {
    let (into, is_forced) = (to.of(outputs.index), to.put.force);
    let task = TaskSet::one(outputs.index);
    let mut archive = Box::pin(job_files_tar(client, to.job, Some(&task), true).await?);
    let (sender, parts) = mpsc::channel(PARTS_WAITING_MAX);
    let unpacking = spawn_blocking(move || {
        let reader = PartsReader { parts, part: Vec::new(), at: 0 };
        unpack(reader, &into, is_forced, &|files, bytes| transfer.add(files, bytes))
    });
    let mut broken = None;
    while let Some(part) = archive.next().await {
        match part {
            Ok(part) => {
                // It has all that it needs, or has failed.
                if sender.send(part).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    drop(sender);
    let unpacked = unpacking.await.map_err(|ended| FetchFailure::Here(broke_off(&ended)))?;
    let garbled = |why: Box<dyn std::error::Error + Send + Sync>| {
        FetchFailure::Request(ClientError::Garbled { address: client.address().clone(), source: why })
    };
    match (unpacked, broken) {
        (Err(UnpackError::Archive(_) | UnpackError::Short(_)) | Ok(_), Some(error)) => Err(error.into()),
        (Err(error @ (UnpackError::Archive(_) | UnpackError::Short(_))), None) => Err(garbled(error.into())),
        (Err(error), _) => {
            // Tasks choose the names in it.
            let message = fit(&CliError::from(anyhow::Error::new(error)).message(), None);
            Err(FetchFailure::Here(CliError::Failed { message, hint: None }))
        }
        // An archive that ends between two files looks whole.
        (Ok(unpacked), None) if (unpacked.files, unpacked.bytes) != (outputs.files, outputs.bytes) => {
            Err(garbled(format!("it has {} files, and not {}", unpacked.files, outputs.files).into()))
        }
        (Ok(unpacked), None) => Ok(unpacked),
    }
}

/// The error for work on another thread or task that did not come to its end.
pub fn broke_off(ended: &JoinError) -> CliError {
    anyhow::anyhow!("fetching ended: {ended}").into()
}

/// The parts of an archive, for a thread that reads them.
struct PartsReader {
    parts: mpsc::Receiver<Vec<u8>>,
    part: Vec<u8>,
    at: usize,
}

impl Read for PartsReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.part.len() {
            let Some(part) = self.parts.blocking_recv() else { return Ok(0) };
            (self.part, self.at) = (part, 0);
        }
        let length = into.len().min(self.part.len() - self.at);
        into[..length].copy_from_slice(&self.part[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

/// True if the directory has these outputs and nothing else. Whatever hinders the look, it is not known to be true.
fn is_tree(dir: &Path, outputs: &TaskOutputs, known: &mut KnownFiles) -> bool {
    // With more it is another tree, and is not read to its end.
    let entries_max = outputs.files.saturating_add(OTHER_ENTRIES_MAX);
    let bounds = TreeBounds { entries_max, bytes_max: outputs.bytes };
    let input = TreeInput { path: dir.to_owned(), name: Some(".".to_owned()) };
    let Ok(found) = scan(dir, &[input], &ScanOptions { ignore_files: false, bounds }) else { return false };
    if found.files.len() as u64 != outputs.files {
        return false;
    }
    let Ok(hashed) = hash_files(&found.files, &mut known.digests, known.now_ms, &|_| ()) else {
        return false;
    };
    encode(found.entries(&hashed.digests)).is_ok_and(|tree| tree.root.to_string() == outputs.root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_cas::tree::{EntryKind, TreeEntry};

    #[test]
    fn a_directory_is_named_by_step_and_index() {
        assert_eq!(directory_name("render", 3), "render.3");
        assert_eq!(directory_name("../a b", 0), "_._a b.0");
        assert_eq!(directory_name("", 7), ".7");
        assert!(directory_name(&"ä".repeat(999), u32::MAX).len() <= 255);
    }

    #[test]
    fn a_directory_that_has_all_is_known_by_its_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), "content").unwrap();
        let digest = windlass_cas::Digest::of(b"content");
        let kind = EntryKind::File { digest, is_executable: false };
        let tree = encode(vec![TreeEntry { path: "a/b".to_owned(), kind }]).unwrap();
        let outputs =
            TaskOutputs { root: tree.root.to_string(), files: 1, bytes: 7, ..TaskOutputs::default() };
        let is_there = |outputs: &TaskOutputs| is_tree(dir.path(), outputs, &mut KnownFiles::load());
        assert!(is_there(&outputs));
        assert!(!is_there(&TaskOutputs { root: "x".to_owned(), ..outputs.clone() }));
        std::fs::write(dir.path().join("c"), "").unwrap();
        assert!(!is_there(&outputs), "it has something else");
        assert!(!is_tree(&dir.path().join("none"), &outputs, &mut KnownFiles::load()));
    }
}
