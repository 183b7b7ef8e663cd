//! The directory of the laboratory's files. The kernel itself resolves each path beneath the directory, so no path and
//! no symbolic link leads to a file outside of it.

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, mkdirat, openat2, renameat_with, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// Bytes of a path beneath the directory, and of one name in it.
const PATH_BYTES_MAX: usize = 2_048;
const NAME_BYTES_MAX: usize = 255;
/// Directories and the file name in a path.
const DEPTH_MAX: usize = 32;
/// The beginning of the name of an unfinished file. Paths with such a name are refused.
const UNFINISHED: &str = ".upload-";
/// Files that are counted in a job's directory.
const FILES_MAX: usize = 100_000;

/// Symbolic links are followed while they stay beneath the directory.
const READ: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// A path beneath the directory, without `.` and `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InnerPath(String);

impl InnerPath {
    /// Reads a path without a slash at its start; `None` if it is empty or could lead elsewhere.
    pub fn parse(text: &str) -> Option<InnerPath> {
        let names: Vec<&str> = text.split('/').collect();
        let fits = |name: &&str| {
            !["", ".", ".."].contains(name)
                && name.len() <= NAME_BYTES_MAX
                && !name.starts_with(UNFINISHED)
                && !name.contains(char::is_control)
        };
        let fine = text.len() <= PATH_BYTES_MAX && names.len() <= DEPTH_MAX && names.iter().all(fits);
        fine.then(|| InnerPath(text.to_owned()))
    }

    /// The path as text, without a slash at its start.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the path is this directory, or in it. Whole names are compared: `a/1` is not in `a/12`.
    pub fn is_in(&self, directory: &str) -> bool {
        let rest = self.0.strip_prefix(directory.trim_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn split(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }
}

/// Why a file is not read or written.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file does not exist, or a symbolic link in its path leads out of the directory.
    #[error("File not found")]
    Missing,
    #[error("File already exists")]
    Exists,
    #[error("cannot use {path} in the directory of files: {source}")]
    Io {
        /// The path beneath the directory.
        path: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

impl FileError {
    fn of(path: &str, errno: Errno) -> FileError {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ISDIR => FileError::Missing,
            Errno::EXIST => FileError::Exists,
            errno => FileError::Io { path: path.to_owned(), source: errno.into() },
        }
    }
}

/// The directory that is served as `/srv`.
pub struct LabDir {
    root: OwnedFd,
    path: PathBuf,
}

impl LabDir {
    /// Opens the directory, which must exist.
    pub fn open(path: &Path) -> std::io::Result<LabDir> {
        let path = std::fs::canonicalize(path)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(LabDir { root: rustix::fs::open(&path, flags, Mode::empty())?, path })
    }

    fn at(&self, path: &str, flags: OFlags, follow: ResolveFlags) -> Result<OwnedFd, FileError> {
        let path = if path.is_empty() { "." } else { path };
        let opened = openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), follow);
        opened.map_err(|errno| FileError::of(path, errno))
    }

    /// True if the disk has less free than `free_bytes`, or, on a small disk, less than a twentieth of it.
    pub fn is_full(&self, free_bytes: u64) -> bool {
        let Ok(disk) = rustix::fs::fstatvfs(&self.root) else { return false };
        let whole = disk.f_blocks.saturating_mul(disk.f_frsize);
        disk.f_bavail.saturating_mul(disk.f_frsize) < free_bytes.min(whole / 20)
    }

    /// Opens a file for reading. Returns the file and its size in bytes.
    pub fn file(&self, path: &InnerPath) -> Result<(File, u64), FileError> {
        // Opening a named pipe would block otherwise.
        let file = File::from(self.at(&path.0, OFlags::RDONLY | OFlags::NONBLOCK, READ)?);
        let about = file.metadata().map_err(|source| FileError::Io { path: path.0.clone(), source })?;
        if about.is_file() { Ok((file, about.len())) } else { Err(FileError::Missing) }
    }

    /// True if the path leads to a file, also through symbolic links.
    pub fn has(&self, path: &str) -> bool {
        InnerPath::parse(path).is_some_and(|path| self.file(&path).is_ok())
    }

    /// The path beneath the directory to which symbolic links lead; `None` if it does not exist.
    pub fn real(&self, path: &str) -> Option<String> {
        let path = InnerPath::parse(path)?;
        let file = self.at(&path.0, OFlags::PATH, READ).ok()?;
        let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some(real.strip_prefix(&self.path).ok()?.to_str()?.to_owned())
    }

    /// Begins a new file. Missing directories are made.
    pub fn create(&self, path: &InnerPath) -> Result<NewFile, FileError> {
        let (directory, name) = path.split();
        let mut open = self.at("", OFlags::DIRECTORY | OFlags::RDONLY, READ)?;
        for part in directory.split('/').filter(|part| !part.is_empty()) {
            let made = mkdirat(&open, part, Mode::from_raw_mode(0o755));
            made.or_else(|e| if e == Errno::EXIST { Ok(()) } else { Err(FileError::of(&path.0, e)) })?;
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            // Directories that an administrator linked are not written to.
            let follow = READ | ResolveFlags::NO_SYMLINKS;
            let next = openat2(&open, part, flags, Mode::empty(), follow);
            open = next.map_err(|errno| FileError::of(&path.0, errno))?;
        }
        if rustix::fs::statat(&open, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(FileError::Exists);
        }
        let random = windlass_server::auth::random::<16>();
        let random =
            random.map_err(|e| FileError::Io { path: path.0.clone(), source: std::io::Error::other(e) })?;
        let unfinished = format!("{UNFINISHED}{random}");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&open, &*unfinished, flags, Mode::from_raw_mode(0o644));
        let file = opened.map_err(|errno| FileError::of(&path.0, errno))?;
        Ok(NewFile { file: Some(File::from(file)), directory: open, unfinished, name: name.to_owned() })
    }

    /// Writes a whole file. An existing file stays as it is.
    pub fn write(&self, path: &InnerPath, bytes: &[u8]) -> Result<(), FileError> {
        let mut file = self.create(path)?;
        let failed = |source| FileError::Io { path: path.0.clone(), source };
        let mut open = file.file.take().expect("a new file is open");
        std::io::Write::write_all(&mut open, bytes).map_err(failed)?;
        file.finish(open)
    }

    /// The bytes and the number of all files in a directory.
    pub fn size_of(&self, directory: &str) -> (u64, usize) {
        let (mut bytes, mut files, mut open) = (0u64, 0, vec![directory.trim_matches('/').to_owned()]);
        while let Some(path) = open.pop() {
            let Ok(dir) =
                self.at(&path, OFlags::DIRECTORY | OFlags::RDONLY, READ | ResolveFlags::NO_SYMLINKS)
            else {
                continue;
            };
            let Ok(entries) = rustix::fs::Dir::read_from(&dir) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if [".", ".."].contains(&name.as_str()) || files >= FILES_MAX {
                    continue;
                }
                match rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(about) if rustix::fs::FileType::from_raw_mode(about.st_mode).is_dir() => {
                        open.push(format!("{path}/{name}"));
                    }
                    Ok(about) => (bytes, files) = (bytes.saturating_add(about.st_size as u64), files + 1),
                    Err(_) => {}
                }
            }
        }
        (bytes, files)
    }

    /// A file as text; `None` if it does not exist, is larger than `bytes_max`, or is not text.
    #[cfg(test)]
    pub fn text(&self, path: &str, bytes_max: u64) -> Option<String> {
        use std::io::Read as _;
        let (file, bytes) = self.file(&InnerPath::parse(path)?).ok()?;
        let mut text = String::new();
        (bytes <= bytes_max).then(|| file.take(bytes_max).read_to_string(&mut text).ok()).flatten()?;
        Some(text)
    }
}

/// A file that is being written. It gets its name when it is whole, and is deleted if it never is.
pub struct NewFile {
    /// The open file, until it is taken out to be written.
    pub file: Option<File>,
    directory: OwnedFd,
    unfinished: String,
    name: String,
}

impl NewFile {
    /// Gives the written file its name. A file that got the name meanwhile stays.
    pub fn finish(self, file: File) -> Result<(), FileError> {
        let failed = |source| FileError::Io { path: self.name.clone(), source };
        file.sync_all().map_err(failed)?;
        let (from, to) = (self.directory.as_fd(), self.directory.as_fd());
        let renamed = renameat_with(from, &*self.unfinished, to, &*self.name, RenameFlags::NOREPLACE);
        renamed.map_err(|errno| FileError::of(&self.name, errno))?;
        // The name is durable once the directory is synced. Some file systems cannot sync a directory.
        _ = rustix::fs::fsync(&self.directory);
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // A finished file is not there under this name any more.
        _ = unlinkat(&self.directory, &*self.unfinished, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;

    fn lab() -> (tempfile::TempDir, LabDir) {
        let outer = tempfile::tempdir().unwrap();
        std::fs::write(outer.path().join("secret"), "secret").unwrap();
        let srv = outer.path().join("srv");
        std::fs::create_dir_all(srv.join("os/debian")).unwrap();
        std::fs::write(srv.join("os/debian/vmlinuz-6.1"), "kernel").unwrap();
        symlink("vmlinuz-6.1", srv.join("os/debian/vmlinuz")).unwrap();
        symlink("../../secret", srv.join("os/out")).unwrap();
        symlink(outer.path().join("secret"), srv.join("os/absolute")).unwrap();
        symlink("/etc", srv.join("etc")).unwrap();
        symlink("loop", srv.join("loop")).unwrap();
        let lab = LabDir::open(&srv).unwrap();
        (outer, lab)
    }

    fn path(text: &str) -> InnerPath {
        InnerPath::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn nothing_outside_is_read() {
        let (_outer, lab) = lab();
        assert_eq!(lab.text("os/debian/vmlinuz", 100).as_deref(), Some("kernel"));
        assert_eq!(lab.real("os/debian/vmlinuz").as_deref(), Some("os/debian/vmlinuz-6.1"));
        for out in
            ["os/out", "os/absolute", "etc/passwd", "etc", "loop", "os", "os/none", "os/debian/vmlinuz/x"]
        {
            assert!(matches!(lab.file(&path(out)), Err(FileError::Missing)), "{out}");
        }
        for bad in
            ["", "/", "/etc/passwd", "..", "../secret", "os/../../secret", "os//x", "a/.", "a\0", ".upload-1"]
        {
            assert_eq!(InnerPath::parse(bad), None, "{bad}");
        }
        assert!(path("a/12/x").is_in("/a/12/") && !path("a/123").is_in("a/12") && path("a/12").is_in("a/12"));
    }

    #[test]
    fn a_file_is_there_when_it_is_whole() {
        let (outer, lab) = lab();
        let there = || lab.size_of("result");
        let unfinished = lab.create(&path("result/x/1/out")).unwrap();
        assert_eq!(there(), (0, 1));
        drop(unfinished);
        assert_eq!(there(), (0, 0), "what never came is deleted");
        lab.write(&path("result/x/1/out"), b"12345").unwrap();
        assert!(matches!(lab.write(&path("result/x/1/out"), b"other"), Err(FileError::Exists)));
        lab.write(&path("result/x/1/more/out"), b"1").unwrap();
        assert_eq!((there(), lab.text("result/x/1/out", 9).as_deref()), ((6, 2), Some("12345")));
        // Neither a link to a directory nor one to a file is written through.
        assert!(lab.write(&path("etc/windlass-test"), b"x").is_err());
        assert!(lab.write(&path("os/out"), b"x").is_err());
        symlink(outer.path(), outer.path().join("srv/result/link")).unwrap();
        assert!(lab.write(&path("result/link/new"), b"x").is_err());
        assert!(!outer.path().join("new").exists());
    }

    proptest! {
        #[test]
        fn any_path_stays_inside(text in "[a-z./\\\\%~]{0,20}|.{0,20}") {
            let (_outer, lab) = lab();
            if let Some(path) = InnerPath::parse(&text) {
                prop_assert!(!path.as_str().starts_with('/') && !path.as_str().split('/').any(|name| name == ".."));
                _ = lab.file(&path);
            }
            prop_assert_ne!(lab.text(&text, 100), Some("secret".to_owned()));
        }
    }
}
