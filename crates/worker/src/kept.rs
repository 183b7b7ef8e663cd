//! Serde adapters for the state that a keeper hands to the program that replaces it. Files keep their descriptors
//! through the exec, and points in time are stored relative to now.

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Keeps a descriptor open through an exec.
pub fn keep_open(file: &impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfd(file)?;
    Ok(fcntl_setfd(file, flags - FdFlags::CLOEXEC)?)
}

/// A file that is saved as the number of its descriptor, which stays open through an exec.
pub struct KeptFile(pub File);

impl Deref for KeptFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Serialize for KeptFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        keep_open(&self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_i32(self.0.as_raw_fd())
    }
}

impl<'d> Deserialize<'d> for KeptFile {
    /// Duplicates the descriptor. The original stays open, so that a program that fails on the rest of the
    /// state can leave everything to the program before.
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<KeptFile, D::Error> {
        let fd = RawFd::deserialize(deserializer)?;
        if fd < 0 {
            return Err(serde::de::Error::custom("a negative descriptor"));
        }
        // SAFETY: the earlier program kept this descriptor open.
        let kept = unsafe { BorrowedFd::borrow_raw(fd) };
        fcntl_dupfd_cloexec(kept, 3).map(|fd| KeptFile(fd.into())).map_err(serde::de::Error::custom)
    }
}

/// A point in time as nanoseconds from now; negative is past.
pub mod moment {
    use serde::{Deserialize, Deserializer, Serializer};
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
    use crate::kept::moment;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
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
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
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
