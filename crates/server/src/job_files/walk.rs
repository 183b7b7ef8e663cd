//! Trees that are walked over for people: the directories on the way to one entry are in memory, and no list of all.

use super::error::FilesTrouble;
use crate::cas::SpaceBlobs;
use windlass_cas::Digest;
use windlass_cas::tree::{
    CheckedDirectory, DEPTH_MAX, DIRECTORY_BYTES_MAX, EntryKind, MessageFault, TreeError, check_directory,
    check_path,
};

/// Shows what is in a tree, each entry with its path, in the order in which they are made: a directory before what is in
/// it.
pub(super) fn each_entry(
    blobs: &SpaceBlobs,
    root: Digest,
    show: &mut dyn FnMut(&str, EntryKind) -> Result<(), FilesTrouble>,
) -> Result<(), FilesTrouble> {
    walk(blobs, root, (&mut String::new(), 0), show)
}

fn walk(
    blobs: &SpaceBlobs,
    digest: Digest,
    (path, depth): (&mut String, usize),
    show: &mut dyn FnMut(&str, EntryKind) -> Result<(), FilesTrouble>,
) -> Result<(), FilesTrouble> {
    if depth > DEPTH_MAX {
        return Err(tree(TreeError::Deep));
    }
    let CheckedDirectory { files, directories, links } = directory(blobs, digest)?;
    let files = files.into_iter().map(|file| {
        (file.name, (EntryKind::File { digest: file.digest, is_executable: file.is_executable }, None))
    });
    let directories =
        directories.into_iter().map(|(name, below)| (name, (EntryKind::Directory, Some(below))));
    let links = links.into_iter().map(|(name, target)| (name, (EntryKind::Link { target }, None)));
    let mut all: Vec<(String, (EntryKind, Option<Digest>))> = files.chain(directories).chain(links).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let before = path.len();
    for (name, (kind, below)) in all {
        if before > 0 {
            path.push('/');
        }
        path.push_str(&name);
        show(path, kind)?;
        if let Some(below) = below {
            walk(blobs, below, (&mut *path, depth + 1), show)?;
        }
        path.truncate(before);
    }
    Ok(())
}

/// The file at a path of a tree; `None` if there is none.
pub(super) fn file_at(blobs: &SpaceBlobs, root: Digest, path: &str) -> Result<Option<Digest>, FilesTrouble> {
    if check_path(path).is_err() {
        return Ok(None);
    }
    let (way, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut at = root;
    for part in way.split('/').filter(|part| !part.is_empty()) {
        let below = directory(blobs, at)?.directories.into_iter().find(|(name, _)| name == part);
        let Some((_, below)) = below else { return Ok(None) };
        at = below;
    }
    let file = directory(blobs, at)?.files.into_iter().find(|file| file.name == name);
    Ok(file.map(|file| file.digest))
}

fn directory(blobs: &SpaceBlobs, digest: Digest) -> Result<CheckedDirectory, FilesTrouble> {
    if digest == Digest::EMPTY {
        return Ok(CheckedDirectory::default());
    }
    if digest.size > DIRECTORY_BYTES_MAX {
        let why = MessageFault::Long { is: digest.size, max: DIRECTORY_BYTES_MAX };
        return Err(tree(TreeError::Message { directory: digest, why }));
    }
    let message = blobs.read(digest)?.ok_or_else(|| tree(TreeError::Missing(digest)))?.into_bytes()?;
    check_directory(&message).map_err(|why| tree(TreeError::Message { directory: digest, why }))
}

fn tree(source: TreeError) -> FilesTrouble {
    FilesTrouble::Tree { what: "outputs".to_owned(), source }
}
