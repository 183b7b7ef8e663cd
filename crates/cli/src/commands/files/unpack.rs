//! Writes the outputs of a task, which come as a tar archive, to a directory of the user's.
//!
//! The archive is what some task made, so it is believed nothing:
//!
//! 1. Each name is checked as names of trees are, and no name leads through a link. So nothing is written outside of the
//!    directory, as long as no other program changes it meanwhile.
//! 2. What is there is kept, unless it is to be overwritten. A file with the same content is not written again.
//! 3. A file appears whole: it is written under another name first.

use crate::system;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tar::{Archive, EntryType};
use windlass_cas::tree::{LinkFault, NameFault, check_link, check_name, check_path};

/// The beginning of the names of files that are being written.
const PART_PREFIX: &str = ".windlass-part.";
/// How long such a file was not written to before it counts as left behind by a process that was killed.
const PART_STALE: Duration = Duration::from_secs(600);
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Most names that were in the way and are told.
pub const KEPT_NAMED_MAX: usize = 20;

/// Distinguishes the files that this process writes at a time.
static PARTS: AtomicU64 = AtomicU64::new(0);

/// What became of an archive.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unpacked {
    /// Files in the archive, and their bytes.
    pub files: u64,
    pub bytes: u64,
    /// Files and links that were written. The others were there.
    pub written: u64,
    /// What stood in the way of others, and was left as it is: at most [`KEPT_NAMED_MAX`] of them.
    pub kept: Vec<PathBuf>,
    /// How many those were in all.
    pub kept_count: u64,
}

/// Why an archive cannot be unpacked.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("cannot {doing} '{}'", path.display())]
    Write { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the server's archive cannot be read")]
    Archive(#[source] io::Error),
    #[error("the server's archive ends inside '{0}'")]
    Short(String),
    #[error("the server's archive has a name that is not UTF-8: '{0}'")]
    NotUnicode(String),
    #[error("the server's archive has the name '{name}', which is not allowed: {why}")]
    Name { name: String, why: NameFault },
    #[error("'{0}' cannot be the name of a file on this system; fetch it on another one")]
    NotHere(String),
    #[error("the server's archive has the link '{name}' to '{target}', which is not allowed: {why}")]
    Link { name: String, target: String, why: LinkFault },
    #[error("the server's archive has '{0}', which is neither a file nor a directory nor a link")]
    Kind(String),
}

/// Unpacks an archive into a directory, which is made if it is not there. `told` hears of files and bytes as they come.
pub fn unpack(
    archive: impl Read,
    into: &Path,
    is_forced: bool,
    told: &dyn Fn(u64, u64),
) -> Result<Unpacked, UnpackError> {
    fs::create_dir_all(into).map_err(|source| failed("make", into, source))?;
    remove_stale_parts(into);
    let mut unpacking = Unpacking { into, is_forced, told, done: Unpacked::default() };
    let mut archive = Archive::new(archive);
    for entry in archive.entries().map_err(UnpackError::Archive)? {
        let mut entry = entry.map_err(UnpackError::Archive)?;
        let name = name_of(&entry.path_bytes())?;
        match entry.header().entry_type() {
            EntryType::Directory => unpacking.directory(&name)?,
            EntryType::Symlink => {
                let target = entry.link_name_bytes();
                let target = target.as_deref().map(text_of).transpose()?.unwrap_or_default();
                unpacking.link(&name, &target)?;
            }
            EntryType::Regular | EntryType::Continuous => {
                let mode = entry.header().mode().map_err(UnpackError::Archive)?;
                let comes = FileEntry { name: &name, bytes: entry.size(), is_executable: mode & 0o111 != 0 };
                unpacking.file(&comes, &mut entry)?;
            }
            _ => return Err(UnpackError::Kind(name)),
        }
    }
    Ok(unpacking.done)
}

/// A file of the archive.
struct FileEntry<'a> {
    name: &'a str,
    bytes: u64,
    is_executable: bool,
}

struct Unpacking<'a> {
    into: &'a Path,
    is_forced: bool,
    told: &'a dyn Fn(u64, u64),
    done: Unpacked,
}

impl Unpacking<'_> {
    /// Makes a directory and those above it. False if something else stands there.
    fn make(&mut self, name: &str) -> Result<bool, UnpackError> {
        let mut path = self.into.to_owned();
        for part in name.split('/').filter(|part| !part.is_empty()) {
            path.push(part);
            match found_at(&path)? {
                None => match fs::create_dir(&path) {
                    // Outputs of another task may come to the same place.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists && is_dir(&path)? => {}
                    made => made.map_err(|source| failed("make", &path, source))?,
                },
                Some(found) if found.is_dir() => {}
                Some(_) => {
                    self.keep(&path);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn directory(&mut self, name: &str) -> Result<(), UnpackError> {
        self.make(name).map(|_| ())
    }

    /// The path of an entry whose directories are there. `None` if something stands in the way of them.
    fn place(&mut self, name: &str) -> Result<Option<PathBuf>, UnpackError> {
        let above = name.rsplit_once('/').map_or("", |(above, _)| above);
        Ok(self.make(above)?.then(|| self.into.join(name)))
    }

    fn link(&mut self, name: &str, target: &str) -> Result<(), UnpackError> {
        let refused = |why| UnpackError::Link { name: name.to_owned(), target: target.to_owned(), why };
        check_link(name.matches('/').count(), target).map_err(refused)?;
        let Some(path) = self.place(name)? else { return Ok(()) };
        match found_at(&path)? {
            None => {}
            Some(found) if found.is_symlink() && leads_to(&path, target) => return Ok(()),
            Some(found) if !self.is_forced || found.is_dir() => {
                self.keep(&path);
                return Ok(());
            }
            Some(_) => fs::remove_file(&path).map_err(|source| failed("replace", &path, source))?,
        }
        system::new_link(target, &path).map_err(|source| failed("make the link", &path, source))?;
        self.done.written += 1;
        Ok(())
    }

    fn file(&mut self, comes: &FileEntry<'_>, from: &mut impl Read) -> Result<(), UnpackError> {
        self.done.files += 1;
        self.done.bytes = self.done.bytes.saturating_add(comes.bytes);
        let Some(path) = self.place(comes.name)? else { return Ok(()) };
        let mut start = None;
        match found_at(&path)? {
            None => {}
            Some(found) if found.is_file() && (self.is_forced || found.len() == comes.bytes) => {
                let mut there = File::open(&path).map_err(|source| failed("read", &path, source))?;
                let told = |bytes| (self.told)(0, bytes);
                let agreed = agree(from, &mut there, comes.bytes, &told);
                match agreed.map_err(|error| error.of_entry(comes.name, &path))? {
                    Agreement::Whole => {
                        (self.told)(1, 0);
                        return mark(&path, &path, comes);
                    }
                    Agreement::Until(_) if !self.is_forced => {
                        self.keep(&path);
                        return Ok(());
                    }
                    Agreement::Until(agreed) => start = Some((there, agreed)),
                }
            }
            Some(found) if !self.is_forced || found.is_dir() => {
                self.keep(&path);
                return Ok(());
            }
            Some(_) => {}
        }
        self.write(comes, &path, from, start)?;
        (self.told)(1, 0);
        self.done.written += 1;
        Ok(())
    }

    /// Writes a file under another name, and then gives it its own. `start` is what was read of it already: as much as it
    /// has in common with the file that is there, and what came after that.
    fn write(
        &self,
        comes: &FileEntry<'_>,
        path: &Path,
        from: &mut impl Read,
        start: Option<(File, AgreedStart)>,
    ) -> Result<(), UnpackError> {
        let number = PARTS.fetch_add(1, Ordering::Relaxed);
        let part = PartFile(self.into.join(format!("{PART_PREFIX}{}.{number}", std::process::id())));
        let write = |source| failed("write", path, source);
        let mut to = OpenOptions::new().write(true).create_new(true).open(&part.0).map_err(write)?;
        let mut written = 0;
        if let Some((mut there, start)) = start {
            there.rewind().map_err(write)?;
            written = io::copy(&mut there.take(start.bytes), &mut to).map_err(write)?;
            to.write_all(&start.after).map_err(write)?;
            written += start.after.len() as u64;
        }
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = read_some(from, &mut piece).map_err(UnpackError::Archive)?;
            if read == 0 {
                break;
            }
            to.write_all(&piece[..read]).map_err(write)?;
            (self.told)(0, read as u64);
            written += read as u64;
        }
        if written != comes.bytes {
            return Err(UnpackError::Short(comes.name.to_owned()));
        }
        drop(to);
        mark(&part.0, path, comes)?;
        fs::rename(&part.0, path).map_err(write)
    }

    fn keep(&mut self, path: &Path) {
        self.done.kept_count += 1;
        if self.done.kept.len() < KEPT_NAMED_MAX && self.done.kept.iter().all(|kept| kept != path) {
            self.done.kept.push(path.to_owned());
        }
    }
}

/// Makes a file executable if it comes so; `path` is the name that it has for people.
fn mark(file: &Path, path: &Path, comes: &FileEntry<'_>) -> Result<(), UnpackError> {
    match comes.is_executable {
        true => system::make_executable(file).map_err(|source| failed("change", path, source)),
        false => Ok(()),
    }
}

fn is_dir(path: &Path) -> Result<bool, UnpackError> {
    Ok(found_at(path)?.is_some_and(|found| found.is_dir()))
}

/// A file that is being written. It goes, unless it was renamed.
struct PartFile(PathBuf);

impl Drop for PartFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

/// How far what comes is what is there.
enum Agreement {
    Whole,
    Until(AgreedStart),
}

struct AgreedStart {
    /// Bytes that both have.
    bytes: u64,
    /// What came after them.
    after: Vec<u8>,
}

/// Whose fault it is that two files cannot be compared.
enum CompareError {
    Archive(io::Error),
    There(io::Error),
    Short,
}

impl CompareError {
    fn of_entry(self, name: &str, path: &Path) -> UnpackError {
        match self {
            CompareError::Archive(source) => UnpackError::Archive(source),
            CompareError::There(source) => failed("read", path, source),
            CompareError::Short => UnpackError::Short(name.to_owned()),
        }
    }
}

/// Compares what comes, which has `size` bytes, with the file that is there.
fn agree(
    from: &mut impl Read,
    there: &mut File,
    size: u64,
    told: &dyn Fn(u64),
) -> Result<Agreement, CompareError> {
    let (mut come, mut is) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut bytes = 0;
    loop {
        let read = read_some(from, &mut come).map_err(CompareError::Archive)?;
        if read == 0 {
            break;
        }
        told(read as u64);
        let here = read_full(there, &mut is[..read]).map_err(CompareError::There)?;
        if come[..read] != is[..here] {
            come.truncate(read);
            return Ok(Agreement::Until(AgreedStart { bytes, after: come }));
        }
        bytes += read as u64;
    }
    if bytes != size {
        return Err(CompareError::Short);
    }
    // The file may be longer.
    match read_full(there, &mut is[..1]).map_err(CompareError::There)? {
        0 => Ok(Agreement::Whole),
        _ => Ok(Agreement::Until(AgreedStart { bytes, after: Vec::new() })),
    }
}

fn read_some(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn read_full(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut full = 0;
    while full < into.len() {
        match read_some(from, &mut into[full..])? {
            0 => break,
            read => full += read,
        }
    }
    Ok(full)
}

/// The name of an entry, which may end with a slash if it is a directory.
fn name_of(bytes: &[u8]) -> Result<String, UnpackError> {
    let name = text_of(bytes)?;
    let name = name.strip_suffix('/').unwrap_or(&name);
    let refused = |why| UnpackError::Name { name: name.to_owned(), why };
    check_path(name).map_err(refused)?;
    for part in name.split('/') {
        check_name(part).map_err(refused)?;
        if !system::is_name_here(part) {
            return Err(UnpackError::NotHere(name.to_owned()));
        }
    }
    Ok(name.to_owned())
}

fn text_of(bytes: &[u8]) -> Result<String, UnpackError> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| UnpackError::NotUnicode(String::from_utf8_lossy(bytes).into_owned()))?;
    Ok(text.to_owned())
}

/// What stands at a path, itself and not what it leads to.
fn found_at(path: &Path) -> Result<Option<Metadata>, UnpackError> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("look at", path, source)),
    }
}

fn leads_to(path: &Path, target: &str) -> bool {
    fs::read_link(path).is_ok_and(|is| is.as_os_str() == target)
}

/// Removes what processes left behind that were killed while they wrote. Nothing depends on it.
fn remove_stale_parts(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let is_part = entry.file_name().to_str().is_some_and(|name| name.starts_with(PART_PREFIX));
        let is_stale = || {
            let changed = entry.metadata().ok()?.modified().ok()?;
            Some(changed.elapsed().ok()? > PART_STALE)
        };
        if is_part && is_stale() == Some(true) {
            _ = fs::remove_file(entry.path());
        }
    }
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> UnpackError {
    UnpackError::Write { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tar::{Builder, Header};

    /// An entry as any program may write it, whatever its name.
    fn entry(archive: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, content: &str, mode: u32) {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        if is_link {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        let body = if is_link { "" } else { content };
        header.set_size(body.len() as u64);
        header.set_cksum();
        archive.append(&header, body.as_bytes()).unwrap();
    }

    fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for (kind, name, content) in entries {
            entry(&mut archive, *kind, name, content, 0o644);
        }
        archive.into_inner().unwrap()
    }

    fn files(entries: &[(&str, &str)]) -> Vec<u8> {
        let entries = entries.iter().map(|(name, content)| (EntryType::Regular, *name, *content));
        archive(&entries.collect::<Vec<_>>())
    }

    fn put(bytes: &[u8], into: &Path, is_forced: bool) -> Result<Unpacked, UnpackError> {
        unpack(bytes, into, is_forced, &|_, _| {})
    }

    /// All paths below a directory, those of links with where they lead.
    fn tree(dir: &Path) -> Vec<String> {
        let (mut found, mut open) = (Vec::new(), vec![dir.to_owned()]);
        while let Some(at) = open.pop() {
            for entry in fs::read_dir(at).unwrap().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                found.push(match fs::read_link(&path) {
                    Ok(target) => format!("{name} -> {}", target.display()),
                    Err(_) => name,
                });
                if kind.is_dir() {
                    open.push(path);
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn what_is_there_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("out");
        let mut bytes = Builder::new(Vec::new());
        entry(&mut bytes, EntryType::Directory, "a/", "", 0o755);
        entry(&mut bytes, EntryType::Directory, "a/empty/", "", 0o755);
        entry(&mut bytes, EntryType::Regular, "a/tool", "#!", 0o755);
        entry(&mut bytes, EntryType::Regular, "b", "", 0o644);
        entry(&mut bytes, EntryType::Symlink, "a/l", "../b", 0o777);
        let bytes = bytes.into_inner().unwrap();
        let first = put(&bytes, &into, false).unwrap();
        assert_eq!((first.files, first.bytes, first.written, first.kept_count), (2, 2, 3, 0));
        assert_eq!(tree(&into), ["a", "a/empty", "a/l -> ../b", "a/tool", "b"]);
        assert_eq!(fs::read_to_string(into.join("a/tool")).unwrap(), "#!");
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let mode = |name: &str| into.join(name).metadata().unwrap().mode() & 0o111;
            assert!(mode("a/tool") != 0 && mode("b") == 0);
        }
        let written = fs::metadata(into.join("a/tool")).unwrap().modified().unwrap();
        for is_forced in [false, true] {
            let again = put(&bytes, &into, is_forced).unwrap();
            assert_eq!((again.files, again.written, again.kept_count), (2, 0, 0));
            assert_eq!(fs::metadata(into.join("a/tool")).unwrap().modified().unwrap(), written);
        }
    }

    #[test]
    fn other_content_stays_unless_it_is_to_be_overwritten() {
        let long = "x".repeat(3 * PIECE_BYTES);
        let other = long.clone() + "y";
        let (long, other) = (long.as_str(), other.as_str());
        let pairs = [("new", "old"), ("new", "newer"), ("newer", "new"), ("", "x"), ("x", ""), ("ab", "ac")];
        for (comes, is) in pairs.into_iter().chain([(long, other), (other, long)]) {
            let dir = tempfile::tempdir().unwrap();
            let there = dir.path().join("f");
            fs::write(&there, is).unwrap();
            let bytes = files(&[("f", comes), ("g", "beside it")]);
            let kept = put(&bytes, dir.path(), false).unwrap();
            assert_eq!((kept.kept_count, kept.kept, kept.written), (1, vec![there.clone()], 1));
            assert!(fs::read_to_string(&there).unwrap() == is, "it is as it was");
            let forced = put(&bytes, dir.path(), true).unwrap();
            assert_eq!((forced.kept_count, forced.written), (0, 1));
            assert!(fs::read_to_string(&there).unwrap() == comes, "{} over {}", comes.len(), is.len());
            assert_eq!(tree(dir.path()), ["f", "g"]);
        }
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("f")).unwrap();
        fs::write(dir.path().join("d"), "").unwrap();
        let bytes = files(&[("f", "x"), ("d/x", "x")]);
        assert_eq!(
            put(&bytes, dir.path(), true).unwrap().kept_count,
            2,
            "no directory gives way, and none is one"
        );
    }

    #[test]
    fn nothing_is_written_outside() {
        use EntryType::{Directory, Fifo, Link, Regular, Symlink};
        let refused: [&[(EntryType, &str, &str)]; 11] = [
            &[(Regular, "../x", "x")],
            &[(Regular, "/x", "x")],
            &[(Regular, "a/../../x", "x")],
            &[(Regular, "./x", "x")],
            &[(Regular, "a//x", "x")],
            &[(Directory, "..", "")],
            &[(Symlink, "l", "/outside")],
            &[(Symlink, "l", "../outside")],
            &[(Symlink, "l", "")],
            &[(Link, "l", "../outside/x")],
            &[(Fifo, "p", "")],
        ];
        for entries in refused {
            let dir = tempfile::tempdir().unwrap();
            let into = dir.path().join("in");
            assert!(put(&archive(entries), &into, true).is_err(), "{entries:?}");
            assert_eq!(tree(dir.path()), ["in"], "{entries:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_name_leads_through_a_link() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let (into, outside) = (dir.path().join("in"), dir.path().join("out"));
        fs::create_dir(&into).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        symlink(&outside, into.join("sub")).unwrap();
        symlink(outside.join("secret"), into.join("f")).unwrap();
        symlink(outside.join("new"), into.join("g")).unwrap();
        let bytes = files(&[("sub/x", "x"), ("f", "mine"), ("g", "mine")]);
        assert_eq!(put(&bytes, &into, false).unwrap().kept_count, 3);
        assert_eq!(tree(&outside), ["secret"]);
        let forced = put(&bytes, &into, true).unwrap();
        assert_eq!(forced.kept, [into.join("sub")], "links give way, and those to directories do not");
        assert_eq!(fs::read_to_string(into.join("f")).unwrap(), "mine");
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
        assert_eq!(tree(&outside), ["secret"]);
        // A link that comes first leads nowhere either.
        let own = archive(&[(EntryType::Symlink, "l", "sub"), (EntryType::Regular, "l/y", "y")]);
        assert_eq!(put(&own, &into, true).unwrap().kept, [into.join("l")]);
        assert_eq!(tree(&outside), ["secret"]);
    }

    #[test]
    fn an_archive_that_breaks_off_leaves_no_part_of_a_file() {
        let content = "z".repeat(2000);
        let whole = files(&[("a", "1"), ("b", &content)]);
        for length in [1, 511, 600, 1100, 1536, 2000, 3500] {
            let dir = tempfile::tempdir().unwrap();
            assert!(put(&whole[..length], dir.path(), false).is_err(), "{length}");
            assert!(!dir.path().join("b").exists(), "{length}");
            assert!(tree(dir.path()).iter().all(|name| name == "a"), "{length}: {:?}", tree(dir.path()));
        }
        // A part is not taken for the whole because the file there begins like it.
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b"), &content).unwrap();
        assert!(put(&whole[..3000], dir.path(), false).is_err());
    }

    proptest! {
        /// Whatever bytes are changed, nothing is written outside and nothing panics.
        #[test]
        fn a_damaged_archive_writes_nothing_outside(
            changes in prop::collection::vec((0usize..4096, any::<u8>()), 1..12), mends in any::<bool>(),
        ) {
            let mut bytes = archive(&[
                (EntryType::Directory, "d/", ""),
                (EntryType::Regular, "d/f", "content"),
                (EntryType::Symlink, "d/l", "f"),
            ]);
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            if mends {
                // Else nearly all are refused by their checksums.
                for block in bytes.chunks_exact_mut(512).filter(|block| block[0] != 0) {
                    let mut header = Header::new_old();
                    header.as_mut_bytes().copy_from_slice(block);
                    header.set_cksum();
                    block.copy_from_slice(header.as_bytes());
                }
            }
            let dir = tempfile::tempdir().unwrap();
            let into = dir.path().join("in");
            _ = put(&bytes, &into, true);
            prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
