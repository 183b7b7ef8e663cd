//! Serde adapters for the state that a keeper hands to the program that replaces it. Files keep their descriptors
//! through the exec, and points in time are stored relative to now.

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Keeps a descriptor open through an exec.
pub fn keep_open(file: &impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfd(file)?;
    Ok(fcntl_setfd(file, flags - FdFlags::CLOEXEC)?)
}

/// A file as the number of its descriptor, which stays open through an exec.
pub mod file {
    use super::{AsRawFd, BorrowedFd, Deserialize, File, RawFd, fcntl_dupfd_cloexec, keep_open};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(file: &File, serializer: S) -> Result<S::Ok, S::Error> {
        keep_open(file).map_err(serde::ser::Error::custom)?;
        serializer.serialize_i32(file.as_raw_fd())
    }

    /// Duplicates the descriptor. The original stays open, so that a program that fails on the rest of the
    /// state can leave everything to the program before.
    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<File, D::Error> {
        let fd = RawFd::deserialize(deserializer)?;
        if fd < 0 {
            return Err(serde::de::Error::custom("a negative descriptor"));
        }
        // SAFETY: the earlier program kept this descriptor open.
        let kept = unsafe { BorrowedFd::borrow_raw(fd) };
        fcntl_dupfd_cloexec(kept, 3).map(File::from).map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize)]
struct KeptRef<'a>(#[serde(with = "file")] &'a File);

#[derive(Deserialize)]
struct KeptFile(#[serde(with = "file")] File);

/// Several files as the numbers of their descriptors.
pub mod files {
    use super::{Deserialize, File, KeptFile, KeptRef};
    use serde::{Deserializer, Serializer};

    pub fn serialize<'a, S: Serializer>(
        files: impl IntoIterator<Item = &'a File>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(files.into_iter().map(KeptRef))
    }

    pub fn deserialize<'d, D: Deserializer<'d>, T: TryFrom<Vec<File>>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let files: Vec<KeptFile> = Vec::deserialize(deserializer)?;
        let files: Vec<File> = files.into_iter().map(|KeptFile(file)| file).collect();
        T::try_from(files).map_err(|_| serde::de::Error::custom("another number of files"))
    }
}

/// A file that may be absent.
pub mod optional_file {
    use super::{Deserialize, File, KeptFile, KeptRef, Serialize};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(file: &Option<File>, serializer: S) -> Result<S::Ok, S::Error> {
        file.as_ref().map(KeptRef).serialize(serializer)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Option<File>, D::Error> {
        Ok(Option::<KeptFile>::deserialize(deserializer)?.map(|KeptFile(file)| file))
    }
}

/// A point in time as nanoseconds from now; negative is past.
pub mod moment {
    use super::Deserialize;
    use serde::{Deserializer, Serializer};
    use std::time::{Duration, Instant};

    pub fn serialize<S: Serializer>(at: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
        let now = Instant::now();
        let ahead = at.saturating_duration_since(now).as_nanos() as i64;
        let behind = now.saturating_duration_since(*at).as_nanos() as i64;
        serializer.serialize_i64(ahead - behind)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Instant, D::Error> {
        let ns = i64::deserialize(deserializer)?;
        let (now, by) = (Instant::now(), Duration::from_nanos(ns.unsigned_abs()));
        Ok(if ns < 0 { now.checked_sub(by).unwrap_or(now) } else { now + by })
    }
}

/// A point in time that may be absent.
pub mod optional_moment {
    use super::{Deserialize, Serialize, moment};
    use serde::{Deserializer, Serializer};
    use std::time::Instant;

    #[derive(Serialize, Deserialize)]
    struct Moment(#[serde(with = "moment")] Instant);

    pub fn serialize<S: Serializer>(at: &Option<Instant>, serializer: S) -> Result<S::Ok, S::Error> {
        at.map(Moment).serialize(serializer)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Option<Instant>, D::Error> {
        Ok(Option::<Moment>::deserialize(deserializer)?.map(|Moment(at)| at))
    }
}

/// A map as a list of pairs, because keys in JSON can only be text.
pub mod pairs {
    use super::{Deserialize, Serialize};
    use serde::{Deserializer, Serializer};
    use std::collections::BTreeMap;

    pub fn serialize<S: Serializer, K: Serialize, V: Serialize>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub fn deserialize<'d, D: Deserializer<'d>, K: Deserialize<'d> + Ord, V: Deserialize<'d>>(
        deserializer: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}
