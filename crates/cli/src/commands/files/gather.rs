//! Finds the files that a submission names, and their digests. Nothing is sent here.

use crate::commands::files::args::StepInputs;
use crate::commands::files::known::{KnownFiles, told};
use crate::ui::error::CliError;
use crate::ui::message::message;
use crate::ui::output::count;
use crate::ui::transfer::{FileAmount, Transfer};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use windlass_api::SubmitRequest;
use windlass_cas::tree::{
    FileStamp, ScanOptions, ScannedFile, Skips, TreeBounds, TreeError, TreeInput, UploadFrom, encode,
    hash_files, scan,
};
use windlass_cas::{Digest, Hasher};

/// Bytes of a standard input that are kept in memory. More of it goes to a temporary file.
const INPUT_IN_MEMORY_MAX: u64 = 1 << 20;
/// Bytes that are read at a time of a longer one.
const PIECE_BYTES: usize = 256 << 10;
/// Files that are left out of a tree, and are named.
const SKIPS_SHOWN_MAX: usize = 3;

/// Where the bytes of a blob are.
#[derive(Clone, Debug)]
pub enum BlobSource {
    /// A message that names the files of a directory.
    Message(Arc<[u8]>),
    /// Content that is kept in memory.
    Bytes(Arc<[u8]>),
    /// In a file of the user's. It may change before it is read again, which is noticed by its digest.
    Path(PathBuf),
    /// In a temporary file without a name.
    Spool(Arc<File>),
}

/// The blobs that a submission needs.
#[derive(Debug, Default)]
pub struct GatheredFiles {
    /// All of them. The server has some already, as a rule.
    pub blobs: BTreeMap<Digest, BlobSource>,
    /// What people would count: the files of all trees, and the standard inputs.
    pub amount: FileAmount,
}

impl GatheredFiles {
    /// True if no step names files of this machine.
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }
}

impl BlobSource {
    /// True of what people would call a file.
    pub fn is_file(&self) -> bool {
        !matches!(self, BlobSource::Message(_))
    }
}

/// Finds the files of all steps, and writes into the request by which digests they name them.
pub fn gather(
    request: &mut SubmitRequest,
    inputs: &[StepInputs],
    is_shown: bool,
) -> Result<GatheredFiles, CliError> {
    if inputs.is_empty() {
        return Ok(GatheredFiles::default());
    }
    let base = std::env::current_dir()
        .map_err(|error| CliError::usage(format!("the current directory cannot be used: {error}")))?;
    let known = KnownFiles::load();
    let mut gathering = Gathering { base, known, is_shown, own_stdin: None, found: GatheredFiles::default() };
    for of_step in inputs {
        let Some(step) = request.steps.get_mut(of_step.step) else { continue };
        let files = step.files.get_or_insert_default();
        if !of_step.inputs.is_empty() {
            files.root = Some(gathering.tree(of_step)?.to_string());
        }
        if let Some(source) = &of_step.stdin_file {
            files.stdin = Some(gathering.stdin(source)?.to_string());
        }
    }
    gathering.known.save();
    Ok(gathering.found)
}

struct Gathering {
    /// The current directory, below which paths are.
    base: PathBuf,
    known: KnownFiles,
    is_shown: bool,
    /// The standard input of this command, once it was read.
    own_stdin: Option<Digest>,
    found: GatheredFiles,
}

impl Gathering {
    /// The root of the tree of a step's inputs.
    fn tree(&mut self, of_step: &StepInputs) -> Result<Digest, CliError> {
        let refused = |error: TreeError| CliError::usage(format!("inputs: {}", told(&error)));
        let inputs: Vec<TreeInput> = of_step.inputs.iter().map(|text| TreeInput::parse(text)).collect();
        let options = ScanOptions { ignore_files: !of_step.no_ignore, bounds: TreeBounds::default() };
        let found = scan(&self.base, &inputs, &options).map_err(refused)?;
        tell_skipped(&found.skipped);
        let digests = self.hash(&found.files).map_err(refused)?;
        let tree = encode(found.entries(&digests)).map_err(refused)?;
        let root = tree.root;
        for (digest, from) in found.uploads(&digests, tree) {
            let source = match from {
                UploadFrom::Message(bytes) => BlobSource::Message(bytes.into()),
                UploadFrom::File(path) => BlobSource::Path(path),
            };
            self.found.blobs.entry(digest).or_insert(source);
        }
        Ok(root)
    }

    /// The digest of what tasks read as their standard input.
    fn stdin(&mut self, source: &str) -> Result<Digest, CliError> {
        if source == "-" {
            let digest = match self.own_stdin {
                Some(digest) => digest,
                None => self.spool(io::stdin().lock()).map_err(|error| spooling("standard input", &error))?,
            };
            self.own_stdin = Some(digest);
            return Ok(digest);
        }
        let path = self.base.join(source);
        let cannot =
            |error: io::Error| CliError::usage(format!("standard input: cannot read '{source}': {error}"));
        let metadata = fs::metadata(&path).map_err(cannot)?;
        if !metadata.is_file() {
            let file = File::open(&path).map_err(cannot)?;
            return self.spool(file).map_err(|error| spooling(source, &error));
        }
        let stamp = FileStamp::of(&metadata);
        let file = ScannedFile { name: source.to_owned(), path, stamp, is_executable: false };
        let digests = self.hash(std::slice::from_ref(&file));
        let digests =
            digests.map_err(|error| CliError::usage(format!("standard input: {}", told(&error))))?;
        let digest = digests.first().copied().unwrap_or(Digest::EMPTY);
        self.add(digest, BlobSource::Path(file.path));
        Ok(digest)
    }

    fn hash(&mut self, files: &[ScannedFile]) -> Result<Vec<Digest>, TreeError> {
        let bytes = files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.stamp.size));
        let total = FileAmount { files: files.len() as u64, bytes };
        let transfer = Transfer::start("hashing", Some(total), self.is_shown);
        let hashed =
            hash_files(files, &mut self.known.digests, self.known.now_ms, &|bytes| transfer.add(1, bytes))?;
        self.found.amount.add(total);
        Ok(hashed.digests)
    }

    /// Reads to the end what can be read once.
    fn spool(&mut self, from: impl Read) -> io::Result<Digest> {
        let (digest, source) = spooled(from)?;
        self.found.amount.add(FileAmount { files: 1, bytes: digest.size });
        self.add(digest, source);
        Ok(digest)
    }

    fn add(&mut self, digest: Digest, source: BlobSource) {
        // Every server has the empty blob.
        if digest != Digest::EMPTY {
            self.found.blobs.entry(digest).or_insert(source);
        }
    }
}

fn spooled(mut from: impl Read) -> io::Result<(Digest, BlobSource)> {
    let mut bytes = Vec::new();
    from.by_ref().take(INPUT_IN_MEMORY_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= INPUT_IN_MEMORY_MAX {
        return Ok((Digest::of(&bytes), BlobSource::Bytes(bytes.into())));
    }
    let mut file = tempfile::tempfile()?;
    let mut hasher = Hasher::default();
    let mut length = bytes.len();
    loop {
        hasher.update(&bytes[..length]);
        file.write_all(&bytes[..length])?;
        bytes.resize(PIECE_BYTES, 0);
        length = match from.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Ok(0) => return Ok((hasher.finish(), BlobSource::Spool(Arc::new(file)))),
            read => read?,
        };
    }
}

fn spooling(source: &str, error: &io::Error) -> CliError {
    CliError::Failed {
        message: format!("cannot keep {source} for the upload: {error}"),
        hint: Some(format!("it is kept in {}; TMPDIR names another place", std::env::temp_dir().display())),
    }
}

fn tell_skipped(skips: &Skips) {
    let all = (skips.named.len() + skips.more) as u64;
    if all == 0 {
        return;
    }
    message!("note: {} cannot be uploaded and are left out:", count(all, "file"));
    for skip in skips.named.iter().take(SKIPS_SHOWN_MAX) {
        message!("  {}: {}", skip.path, skip.why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek as _;

    #[test]
    fn a_standard_input_is_kept_whatever_its_length() {
        for length in [0, 5, INPUT_IN_MEMORY_MAX as usize, INPUT_IN_MEMORY_MAX as usize + 1, 3 << 20] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let (digest, source) = spooled(bytes.as_slice()).unwrap();
            assert_eq!(digest, Digest::of(&bytes), "{length}");
            let kept = match source {
                BlobSource::Bytes(kept) | BlobSource::Message(kept) => kept.to_vec(),
                BlobSource::Spool(file) => {
                    let (mut file, mut kept) = (file.as_ref(), Vec::new());
                    file.rewind().unwrap();
                    file.read_to_end(&mut kept).unwrap();
                    kept
                }
                BlobSource::Path(path) => panic!("{}", path.display()),
            };
            assert_eq!(kept, bytes, "{length}");
        }
    }
}
