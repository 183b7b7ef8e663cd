//! Cache keys of this worker. An operator names directories; each entry at the top of one is a key,
//! `NAME/ENTRY`, with its size on disk. `measure` scans the directories and adds what tasks say that they
//! fetched, and the inputs that `files` has. The keys go to the server, which prefers workers that have a
//! task's inputs. Nothing here writes to a cache or evicts from one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use windlass_core::bounds::{CACHE_KEY_BYTES_MAX, CACHE_KEYS_MAX, NAME_BYTES_MAX};

/// Entries that are read of one directory; the rest is ignored.
const ENTRIES_MAX: usize = 1 << 18;
/// Files that one scan measures. Further files add nothing to the size of their key, which is then too small.
const FILES_MAX: usize = 1 << 17;

/// A named cache directory: `NAME=DIR`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheDir {
    /// First part of the directory's keys.
    pub name: String,
    /// The directory, as an absolute path.
    pub dir: PathBuf,
}

/// Why a cache directory is refused.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadCache {
    #[error("'{0}' names no cache: say NAME=DIR, such as ccache=/var/cache/ccache")]
    Form(String),
    #[error(
        "'{0}' cannot name a cache: a name has 1 to {NAME_BYTES_MAX} letters, digits, dots, dashes or underscores"
    )]
    Name(String),
    /// The directory is relative, so it would depend on where the worker was started.
    #[error("the cache '{0}' needs the whole path of its directory, from / on")]
    Relative(String),
}

impl CacheDir {
    /// A cache directory.
    ///
    /// # Errors
    /// If the name cannot begin a key, or the directory is not absolute.
    pub fn new(name: &str, dir: &Path) -> Result<CacheDir, BadCache> {
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        if !fits {
            return Err(BadCache::Name(name.to_owned()));
        }
        if !dir.is_absolute() {
            return Err(BadCache::Relative(name.to_owned()));
        }
        Ok(CacheDir { name: name.to_owned(), dir: dir.to_owned() })
    }
}

impl FromStr for CacheDir {
    type Err = BadCache;

    fn from_str(text: &str) -> Result<Self, BadCache> {
        let (name, dir) = text.split_once('=').ok_or_else(|| BadCache::Form(text.to_owned()))?;
        CacheDir::new(name, Path::new(dir))
    }
}

/// Keys with their size in bytes, last used first.
pub type Keys = Vec<(String, u64)>;

/// The keys in the directories now, at most [`CACHE_KEYS_MAX`]. A directory that cannot be read has none.
pub fn scan(dirs: &[CacheDir]) -> Keys {
    let mut found = Vec::new();
    for CacheDir { name, dir } in dirs {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten().take(ENTRIES_MAX) {
            // A job names keys as text, so an entry whose name is not UTF-8 cannot be a key.
            let Some(key) = entry.file_name().to_str().map(|entry| format!("{name}/{entry}")) else {
                continue;
            };
            let Ok(meta) = entry.metadata() else { continue };
            if key.len() <= CACHE_KEY_BYTES_MAX {
                found.push((Reverse(meta.mtime().max(meta.atime())), key, entry.path(), meta));
            }
        }
    }
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    found.truncate(CACHE_KEYS_MAX);
    let mut files_left = FILES_MAX;
    found.into_iter().map(|(_, key, path, meta)| (key, disk_bytes(path, &meta, &mut files_left))).collect()
}

/// Bytes on disk of a file, or of everything below a directory. Symbolic links are not followed.
fn disk_bytes(path: PathBuf, meta: &Metadata, files_left: &mut usize) -> u64 {
    let mut bytes = meta.blocks() * 512;
    let mut open = if meta.is_dir() { vec![path] } else { Vec::new() };
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Some(left) = files_left.checked_sub(1) else { return bytes };
            *files_left = left;
            let Ok(meta) = entry.metadata() else { continue };
            bytes += meta.blocks() * 512;
            if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}

/// Keys that tasks said they fetched, the last one first. They are kept until a scan must have found them.
#[derive(Default)]
pub struct Fetched(VecDeque<(String, u64)>);

impl Fetched {
    /// Adds a key that a task fetched.
    pub fn add(&mut self, key: String, bytes: u64) {
        self.0.retain(|(known, _)| *known != key);
        self.0.push_front((key, bytes));
        self.0.truncate(CACHE_KEYS_MAX);
    }

    /// Drops the keys of these directories. The scan that begins now finds them, or they are gone.
    pub fn leave_to_scan(&mut self, dirs: &[CacheDir]) {
        self.0.retain(|(key, _)| {
            dirs.iter().all(|dir| key.split_once('/').is_none_or(|(name, _)| name != dir.name))
        });
    }

    /// The keys of tasks, of their inputs and of a scan together, at most [`CACHE_KEYS_MAX`]. A task's size of a key counts
    /// first.
    pub fn with(&self, inputs: &Keys, scanned: &Keys) -> BTreeMap<String, u64> {
        let mut keys = BTreeMap::new();
        for (key, bytes) in self.0.iter().chain(inputs).chain(scanned).take(CACHE_KEYS_MAX) {
            keys.entry(key.clone()).or_insert(*bytes);
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn cache(name: &str, dir: &Path) -> CacheDir {
        CacheDir::new(name, dir).unwrap()
    }

    fn write(path: PathBuf, bytes: usize, age_s: u64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![1; bytes]).unwrap();
        let then = SystemTime::now() - Duration::from_secs(age_s);
        let times = fs::FileTimes::new().set_modified(then).set_accessed(then);
        fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    }

    #[test]
    fn entries_are_keys_with_all_that_is_below_them_and_the_last_used_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("a/old"), 5_000, 900);
        write(dir.path().join("a/new"), 70_000, 0);
        write(dir.path().join("b/tree/deep/file"), 40_000, 0);
        write(dir.path().join("b/tree/other"), 40_000, 0);
        std::os::unix::fs::symlink("/", dir.path().join("b/tree/all")).unwrap();
        let keys = scan(&[cache("a", &dir.path().join("a")), cache("b", &dir.path().join("b"))]);
        let names: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(names.last(), Some(&"a/old"));
        let bytes: BTreeMap<&str, u64> = keys.iter().map(|(key, bytes)| (key.as_str(), *bytes)).collect();
        assert_eq!(bytes.len(), 3, "{keys:?}");
        assert!((70_000..80_000).contains(&bytes["a/new"]), "{keys:?}");
        assert!((80_000..120_000).contains(&bytes["b/tree"]), "{keys:?}");
        assert_eq!(scan(&[cache("c", &dir.path().join("nowhere"))]), Keys::new());
    }

    #[test]
    fn no_more_keys_than_a_worker_may_name_and_the_last_used_of_them() {
        let dir = tempfile::tempdir().unwrap();
        (0..CACHE_KEYS_MAX).for_each(|n| write(dir.path().join(n.to_string()), 0, 900));
        write(dir.path().join("last"), 1, 0);
        let keys = scan(&[cache("c", dir.path())]);
        assert_eq!((keys.len(), keys[0].0.as_str()), (CACHE_KEYS_MAX, "c/last"));
    }

    #[test]
    fn files_beyond_the_limit_are_not_measured() {
        let dir = tempfile::tempdir().unwrap();
        (0..9).for_each(|n| write(dir.path().join(format!("tree/{n}")), 4096, 0));
        let tree = dir.path().join("tree");
        let meta = fs::metadata(&tree).unwrap();
        let measure = |mut files| (disk_bytes(tree.clone(), &meta, &mut files), files);
        let (all, left) = measure(100);
        assert_eq!(left, 91);
        assert_eq!(measure(4), (all - 5 * 4096, 0));
    }

    #[test]
    fn what_was_fetched_is_known_at_once_and_then_left_to_scans() {
        let dirs = [cache("nix", Path::new("/nix"))];
        let mut fetched = Fetched::default();
        fetched.add("nix/a".to_owned(), 1);
        fetched.add("elsewhere".to_owned(), 2);
        fetched.add("nix/a".to_owned(), 3);
        let scanned = vec![("nix/b".to_owned(), 9)];
        let inputs = vec![("input:00".to_owned(), 5)];
        let keys = |fetched: &Fetched| fetched.with(&inputs, &scanned).into_iter().collect::<Keys>();
        let pair = |key: &str, bytes| (key.to_owned(), bytes);
        let input = pair("input:00", 5);
        assert_eq!(keys(&fetched), [pair("elsewhere", 2), input.clone(), pair("nix/a", 3), pair("nix/b", 9)]);
        fetched.leave_to_scan(&dirs);
        assert_eq!(keys(&fetched), [pair("elsewhere", 2), input, pair("nix/b", 9)]);
        (0..=CACHE_KEYS_MAX).for_each(|n| fetched.add(format!("k{n}"), 1));
        let all = fetched.with(&inputs, &scanned);
        assert!(all.len() == CACHE_KEYS_MAX && !all.contains_key("k0") && !all.contains_key("nix/b"));
    }

    #[test]
    fn a_cache_has_a_name_and_a_whole_path() {
        assert_eq!("nix=/nix/store".parse(), Ok(cache("nix", Path::new("/nix/store"))));
        assert!(matches!("nix".parse::<CacheDir>(), Err(BadCache::Form(_))));
        assert!(matches!("a/b=/x".parse::<CacheDir>(), Err(BadCache::Name(_))));
        assert!(matches!("=/x".parse::<CacheDir>(), Err(BadCache::Name(_))));
        assert!(matches!("a=x".parse::<CacheDir>(), Err(BadCache::Relative(_))));
    }
}
