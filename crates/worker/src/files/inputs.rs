//! The inputs of attempts: which trees they are, and how their blobs come to this machine.

use super::cache::{FileCache, OpenCache, PinnedBlobs, SPACE, now_ms};
use super::server::{BATCHED_BYTES_MAX, BlobReader, BlobStore, FileCall, FileServer, no_blob};
use super::trees::{KnownTree, KnownTrees};
use super::trouble::FileTrouble;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_api::wire::TaskFiles;
use windlass_cas::tree::{BlobSource, TreeBounds, TreeContent, TreeError, TreeReader, union};
use windlass_cas::{Blob, Digest};

/// How often blobs are fetched that others evict before they are used.
const ROUNDS_MAX: usize = 8;
/// Messages of a tree that are fetched together.
const MESSAGES_A_ROUND: usize = 4_096;
/// Roots of the inputs of one task, which has outputs of at most 20,000 others.
const ROOTS_MAX: usize = 32_768;
/// Cache keys of one task: its largest inputs. Jobs name as many.
const KEYS_MAX: usize = 32;
/// Bytes from which on a blob is a cache key, so that its job's tasks come where it is.
const KEY_BYTES_MIN: u64 = 16 << 20;

/// Hears how many of how many bytes were fetched.
pub type Fetching<'a> = &'a dyn Fn(u64, u64);

/// Where the blobs of inputs are.
#[derive(Clone)]
pub enum InputBlobs {
    /// At a server elsewhere, from which they are fetched into the cache.
    Elsewhere(Arc<dyn BlobReader>, Arc<FileCache>),
    /// In the server's own store, which is on this machine.
    Here(Arc<dyn BlobStore>),
}

/// The inputs of attempts.
pub struct Inputs {
    server: Arc<dyn FileServer>,
    blobs: InputBlobs,
    trees: Mutex<KnownTrees>,
}

/// The inputs of an attempt, all of whose blobs are here.
pub struct ReadyInputs {
    /// What its directory will have.
    pub tree: Arc<KnownTree>,
    /// Its standard input; absent of one that reads nothing.
    pub stdin: Option<Digest>,
    /// Cache keys with their bytes: the trees, and large blobs.
    pub keys: Vec<(Digest, u64)>,
    /// Held until the directory is made.
    _pinned: Option<PinnedBlobs>,
}

impl Inputs {
    /// Inputs of a server.
    pub fn new(server: Arc<dyn FileServer>, blobs: InputBlobs) -> Inputs {
        Inputs { server, blobs, trees: Mutex::default() }
    }

    /// Gets all that an attempt needs.
    pub fn get_ready(
        &self,
        call: &FileCall,
        files: &TaskFiles,
        told: Fetching<'_>,
    ) -> Result<ReadyInputs, FileTrouble> {
        if files.roots.len() > ROOTS_MAX {
            return Err(FileTrouble::Job(format!("its inputs are more than {ROOTS_MAX} trees")));
        }
        let roots = files.roots.iter().map(|root| digest_of(root)).collect::<Result<Vec<_>, _>>()?;
        let stdin = files.stdin.as_deref().map(digest_of).transpose()?;
        let tree = self.tree(call, &roots)?;
        // Its messages were read. Those of a union are nowhere.
        let (mut blobs, mut keys) = (tree.tree.contents(), tree.parts.clone());
        blobs.extend(stdin);
        keys.extend(blobs.iter().filter(|blob| blob.size >= KEY_BYTES_MIN).map(|blob| (*blob, blob.size)));
        keys.sort_unstable_by_key(|(_, bytes)| Reverse(*bytes));
        keys.truncate(KEYS_MAX);
        let _pinned = self.fetch_pinned(call, &blobs, told)?;
        Ok(ReadyInputs { tree, stdin, keys, _pinned })
    }

    /// The sweep of the cache, if there is one that was used. True if blobs went.
    pub fn sweep(&self) -> Result<bool, FileTrouble> {
        match &self.blobs {
            InputBlobs::Elsewhere(_, cache) => match cache.opened() {
                Some(open) => Ok(open.cas.sweep(now_ms())?.blobs > 0),
                None => Ok(false),
            },
            // The server sweeps it.
            InputBlobs::Here(_) => Ok(false),
        }
    }

    /// Whether a blob is here, and if it is a tree that is known, all blobs of that. Of a server's own store nobody asks:
    /// what a job needs is there.
    pub fn holds(&self, digest: Digest) -> bool {
        let InputBlobs::Elsewhere(_, cache) = &self.blobs else { return true };
        let Some(open) = cache.opened() else { return false };
        let is_here = |digest: Digest| open.cas.contains(SPACE, digest);
        match self.trees.lock().peek(&[digest]) {
            Some(tree) => tree.blobs().into_iter().all(is_here),
            None => is_here(digest),
        }
    }

    /// The union of trees.
    fn tree(&self, call: &FileCall, roots: &[Digest]) -> Result<Arc<KnownTree>, FileTrouble> {
        if let Some(known) = self.trees.lock().get(roots) {
            return Ok(known);
        }
        if let [root] = roots {
            return self.one_tree(call, *root);
        }
        // Many small trees come with few messages.
        let small: Vec<Digest> =
            roots.iter().copied().filter(|root| root.size <= BATCHED_BYTES_MAX).collect();
        self.fetch(call, &small, &|_, _| {})?;
        let mut trees = Vec::with_capacity(roots.len());
        for root in roots {
            trees.push(self.one_tree(call, *root)?);
        }
        let contents: Vec<&TreeContent> = trees.iter().map(|known| &known.tree).collect();
        let tree = union(&contents, TreeBounds::default())?;
        let parts = trees.iter().flat_map(|known| known.parts.iter().copied()).collect();
        let known = Arc::new(KnownTree { tree, parts });
        self.trees.lock().put(roots.to_vec(), known.clone());
        Ok(known)
    }

    /// The tree of a root, whose messages are fetched if it is not known.
    fn one_tree(&self, call: &FileCall, root: Digest) -> Result<Arc<KnownTree>, FileTrouble> {
        if let Some(known) = self.trees.lock().get(&[root]) {
            return Ok(known);
        }
        let mut reader = TreeReader::new(root, TreeBounds::default())?;
        loop {
            let wanted: Vec<Digest> = reader.wanted().take(MESSAGES_A_ROUND).collect();
            if wanted.is_empty() {
                break;
            }
            self.fetch(call, &wanted, &|_, _| {})?;
            for digest in wanted {
                let blob = self.find(digest)?.ok_or(FileTrouble::Evicted)?;
                let message = blob
                    .into_bytes()
                    .map_err(|source| TreeError::Store { digest, source: Box::new(source) })?;
                reader.add(&message)?;
            }
        }
        let tree = reader.finish()?;
        let parts = vec![(root, tree.totals().bytes)];
        let known = Arc::new(KnownTree { tree, parts });
        self.trees.lock().put(vec![root], known.clone());
        Ok(known)
    }

    /// Fetches what is missing of these. Where anything is, all are pinned, because it may take the room of the others.
    fn fetch_pinned(
        &self,
        call: &FileCall,
        blobs: &BTreeSet<Digest>,
        told: Fetching<'_>,
    ) -> Result<Option<PinnedBlobs>, FileTrouble> {
        let all: Vec<Digest> = blobs.iter().copied().collect();
        let InputBlobs::Elsewhere(_, cache) = &self.blobs else {
            self.fetch(call, &all, told)?;
            return Ok(None);
        };
        let open = cache.open()?;
        let bytes = all.iter().fold(0_u64, |sum, blob| sum.saturating_add(blob.size));
        if bytes > open.bytes_max {
            return Err(FileTrouble::CacheSmall { bytes, bytes_max: open.bytes_max });
        }
        let missing = open.cas.missing(SPACE, &all, now_ms());
        if missing.is_empty() {
            return Ok(None);
        }
        let pinned = open.pin(&all)?;
        self.fetch(call, &missing, told)?;
        if let Some(pinned) = &pinned {
            pinned.add(&missing)?;
        }
        Ok(pinned)
    }

    /// Gets the blobs that are missing here. What another thread fetches is waited for.
    fn fetch(&self, call: &FileCall, digests: &[Digest], told: Fetching<'_>) -> Result<(), FileTrouble> {
        let InputBlobs::Elsewhere(reader, cache) = &self.blobs else {
            let missing = self.server.missing(call, digests)?;
            return missing.first().map_or(Ok(()), |digest| Err(no_blob(*digest)));
        };
        let open = cache.open()?;
        let mut progress: Option<FetchedBytes<'_>> = None;
        for _ in 0..ROUNDS_MAX {
            call.check()?;
            let missing = open.cas.missing(SPACE, digests, now_ms());
            if missing.is_empty() {
                return Ok(());
            }
            let progress = progress.get_or_insert_with(|| FetchedBytes::of(&missing, told));
            let claimed = cache.claim(&missing);
            // Another thread may have brought some just before.
            let missing_still = open.cas.missing(SPACE, &claimed.digests, now_ms());
            fetch_these(&**reader, call, &open, &missing_still, progress)?;
            drop(claimed);
            cache.wait_for(&missing, || call.check())?;
        }
        Err(FileTrouble::Evicted)
    }

    fn find(&self, digest: Digest) -> Result<Option<Blob>, FileTrouble> {
        match &self.blobs {
            InputBlobs::Elsewhere(_, cache) => Ok(cache.open()?.cas.read(SPACE, digest, now_ms())?),
            InputBlobs::Here(store) => store.open(digest),
        }
    }
}

impl BlobSource for Inputs {
    fn blob(&self, digest: Digest) -> Result<Option<Blob>, TreeError> {
        self.find(digest).map_err(|trouble| TreeError::Store { digest, source: trouble.told().into() })
    }
}

/// Fetches blobs that no other thread fetches.
fn fetch_these(
    reader: &dyn BlobReader,
    call: &FileCall,
    open: &OpenCache,
    digests: &[Digest],
    progress: &mut FetchedBytes<'_>,
) -> Result<(), FileTrouble> {
    let (small, large): (Vec<Digest>, Vec<Digest>) =
        digests.iter().partition(|digest| digest.size <= BATCHED_BYTES_MAX);
    if !small.is_empty() {
        reader.read_many(call, &small, &mut |digest, bytes| {
            open.cas.put(SPACE, digest, bytes, now_ms())?;
            progress.add(bytes.len());
            call.check()
        })?;
    }
    for digest in large {
        let mut writer = open.cas.writer(SPACE, digest)?;
        reader.read(call, digest, &mut |part| {
            writer.write(part)?;
            progress.add(part.len());
            call.check()
        })?;
        writer.commit(now_ms())?;
    }
    Ok(())
}

/// How much was fetched of what was missing.
struct FetchedBytes<'a> {
    done: u64,
    all: u64,
    told: Fetching<'a>,
}

impl<'a> FetchedBytes<'a> {
    fn of(missing: &[Digest], told: Fetching<'a>) -> FetchedBytes<'a> {
        let all = missing.iter().fold(0_u64, |sum, digest| sum.saturating_add(digest.size));
        FetchedBytes { done: 0, all, told }
    }

    fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
        (self.told)(self.done, self.all);
    }
}

/// Reads a digest as the worker protocol has it: `HASH/BYTES`.
fn digest_of(text: &str) -> Result<Digest, FileTrouble> {
    let read = text.split_once('/').and_then(|(hash, size)| Digest::parse(hash, size.parse().ok()?).ok());
    read.ok_or_else(|| {
        FileTrouble::Server(format!("it names a tree or a file '{text}', which is not a digest"))
    })
}
