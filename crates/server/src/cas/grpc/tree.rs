//! All directories beneath a root, page by page.

use super::super::blobs::BlobStore;
use super::super::results::{digest_in, read_directory};
use super::super::state::CacheState;
use super::super::trouble::CacheTrouble;
use futures_util::{Stream, stream};
use prost::Message as _;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use tonic::Status;
use windlass_cas::Digest;
use windlass_cas::proto::re::{Directory, GetTreeResponse};

/// Directories of one page where the client names no number, and at most.
const PAGE_DIRECTORIES_MAX: usize = 1_000;
/// Bytes above which a page ends.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Directories of a tree. One that has more is a mistake, or meant to cost.
const TREE_DIRECTORIES_MAX: usize = 100_000;

/// A walk over a tree, breadth first. Equal directories come once.
pub(super) struct TreeWalk {
    store: BlobStore,
    root: Digest,
    open: VecDeque<Digest>,
    seen: BTreeSet<Digest>,
    /// Directories that were walked over, and how many of the first ones the client has.
    walked: usize,
    skipped: usize,
    page: usize,
}

impl TreeWalk {
    /// From the root, or from where the token of a page says.
    pub fn begin(
        store: BlobStore,
        root: Digest,
        page_size: i32,
        page_token: &str,
    ) -> Result<TreeWalk, CacheTrouble> {
        let page = usize::try_from(page_size).ok().filter(|page| *page > 0).unwrap_or(PAGE_DIRECTORIES_MAX);
        let skipped = match page_token {
            "" => 0,
            token => token
                .parse::<usize>()
                .map_err(|_| CacheTrouble::Bad("page_token is none that the server gave".to_owned()))?,
        };
        Ok(TreeWalk {
            store,
            root,
            open: VecDeque::from([root]),
            seen: BTreeSet::from([root]),
            walked: 0,
            skipped,
            page: page.min(PAGE_DIRECTORIES_MAX),
        })
    }

    pub fn pages(
        self,
        cache: Arc<CacheState>,
    ) -> impl Stream<Item = Result<GetTreeResponse, Status>> + Send + use<> {
        stream::unfold((Some(self), cache), |(walk, cache): (Option<TreeWalk>, Arc<CacheState>)| async move {
            match walk?.next_page().await {
                Ok((page, rest)) => Some((Ok(page), (rest, cache))),
                Err(trouble) => {
                    cache.tell("GetTree", &trouble);
                    Some((Err(trouble.into_status()), (None, cache)))
                }
            }
        })
    }

    /// A page, and what is left.
    async fn next_page(self) -> Result<(GetTreeResponse, Option<TreeWalk>), CacheTrouble> {
        let store = self.store.clone();
        store
            .with(move |blobs| {
                let mut walk = self;
                let (mut directories, mut bytes) = (Vec::new(), 0);
                while directories.len() < walk.page && bytes < PAGE_BYTES_MAX {
                    let Some(digest) = walk.open.pop_front() else { break };
                    let found = read_directory(blobs, digest)?;
                    if found.is_none() && digest == walk.root {
                        return Err(CacheTrouble::NoBlob(digest));
                    }
                    // What is missing is left out.
                    let Some(directory) = found else { continue };
                    walk.go_beneath(&directory)?;
                    if walk.walked > walk.skipped {
                        bytes += directory.encoded_len();
                        directories.push(directory);
                    }
                }
                let is_over = walk.open.is_empty();
                let next_page_token = if is_over { String::new() } else { walk.walked.to_string() };
                let rest = (!is_over).then_some(walk);
                Ok((GetTreeResponse { directories, next_page_token }, rest))
            })
            .await
    }

    fn go_beneath(&mut self, directory: &Directory) -> Result<(), CacheTrouble> {
        self.walked += 1;
        for node in &directory.directories {
            let digest = digest_in(node.digest.as_ref())?;
            if self.seen.insert(digest) {
                self.open.push_back(digest);
            }
        }
        match self.seen.len() <= TREE_DIRECTORIES_MAX {
            true => Ok(()),
            false => {
                Err(CacheTrouble::Bad(format!("the tree has more than {TREE_DIRECTORIES_MAX} directories")))
            }
        }
    }
}
