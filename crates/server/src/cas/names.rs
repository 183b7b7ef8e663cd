//! The names that clients give: of instances, of resources over gRPC, and of paths over plain HTTP.

use windlass_api::JOB_FILES_INSTANCE;
use windlass_cas::{Digest, DigestError};

/// Bytes of the name of an instance, and of a key.
pub(super) const INSTANCE_BYTES_MAX: usize = 200;
pub(super) const KEY_BYTES_MAX: usize = 1_024;
/// Bytes of the part of a resource's name that tells writes of the same blob apart.
const UPLOAD_BYTES_MAX: usize = 128;
/// Words that end the name of an instance, in the names of resources and in paths.
const KEYWORDS: [&str; 10] = [
    "blobs",
    "uploads",
    "actions",
    "actionResults",
    "operations",
    "capabilities",
    "compressed-blobs",
    "ac",
    "cas",
    "kv",
];

/// Why a name is not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum BadName {
    #[error(
        "'{0}' is not the name of an instance: it has parts of visible characters between slashes, and none of them is a \
         word of the protocol, such as 'blobs'"
    )]
    Instance(String),
    #[error("the name of an instance has at most {INSTANCE_BYTES_MAX} bytes")]
    LongInstance,
    #[error(
        "the instance '{JOB_FILES_INSTANCE}' has files of jobs, which workers alone ask for; name another one"
    )]
    Reserved,
    #[error("files of an attempt are in the instance '{JOB_FILES_INSTANCE}', and another one was named")]
    NotOfJobs,
    #[error("'{0}' is not the name of a blob; one is [INSTANCE/]blobs/HASH/SIZE")]
    Read(String),
    #[error("'{0}' is not the name of an upload; one is [INSTANCE/]uploads/UUID/blobs/HASH/SIZE")]
    Write(String),
    #[error("blobs are compressed by zstd or not at all, and not by '{0}'")]
    Compressor(String),
    #[error("blobs are named by SHA-256")]
    Function,
    #[error(transparent)]
    Digest(#[from] DigestError),
    #[error("a digest is missing")]
    NoDigest,
    #[error("'{0}' is none of the cache's paths: /cache/[INSTANCE/]ac/HASH, …/cas/HASH and …/kv/KEY")]
    Path(String),
    #[error(
        "'{0}' is not a key: one has at most {KEY_BYTES_MAX} letters, digits and characters of -._~+=@:,/ and no part \
         of it is empty or made of dots"
    )]
    Key(String),
}

/// Characters of a refused name that an error repeats.
const SHOWN_CHARS_MAX: usize = 80;

fn shown(name: &str) -> String {
    name.chars().take(SHOWN_CHARS_MAX).collect()
}

/// The name of an instance: a part of the cache with results of its own. Empty for clients that name none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct InstanceName(String);

impl InstanceName {
    pub fn parse(name: &str) -> Result<InstanceName, BadName> {
        if name.len() > INSTANCE_BYTES_MAX {
            return Err(BadName::LongInstance);
        }
        if name == JOB_FILES_INSTANCE {
            return Err(BadName::Reserved);
        }
        let is_part = |part: &str| {
            !part.is_empty()
                && !KEYWORDS.contains(&part)
                && !part.contains(|c: char| c.is_control() || c.is_whitespace())
        };
        if !name.is_empty() && !name.split('/').all(is_part) {
            return Err(BadName::Instance(shown(name)));
        }
        Ok(InstanceName(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name under which values of keys are kept. No client can name an instance so.
    pub fn of_keys(&self) -> String {
        if self.0.is_empty() { "kv".to_owned() } else { format!("{}/kv", self.0) }
    }
}

/// How the bytes of a blob go over the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    Plain,
    Zstd,
}

/// A blob that is to be read: `[INSTANCE/]blobs/HASH/SIZE`, or `[INSTANCE/]compressed-blobs/zstd/HASH/SIZE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ReadName {
    /// It is one of the files of jobs.
    pub is_of_jobs: bool,
    pub packing: Packing,
    pub digest: Digest,
}

impl ReadName {
    pub fn parse(name: &str) -> Result<ReadName, BadName> {
        let bad = || BadName::Read(shown(name));
        let (is_of_jobs, mut parts) = before_keyword(name)?;
        let (packing, digest) = blob(&mut parts, bad)?;
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(ReadName { is_of_jobs, packing, digest })
    }
}

/// A blob that is to be written: `[INSTANCE/]uploads/UUID/blobs/HASH/SIZE[/ANYTHING]`, or with `compressed-blobs/zstd`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WriteName {
    /// It is one of the files of jobs.
    pub is_of_jobs: bool,
    /// Tells writes of the same blob apart.
    pub upload: String,
    pub packing: Packing,
    pub digest: Digest,
}

impl WriteName {
    pub fn parse(name: &str) -> Result<WriteName, BadName> {
        let bad = || BadName::Write(shown(name));
        let (is_of_jobs, mut parts) = before_keyword(name)?;
        if parts.next() != Some("uploads") {
            return Err(bad());
        }
        let is_upload = |upload: &&str| (1..=UPLOAD_BYTES_MAX).contains(&upload.len());
        let upload = parts.next().filter(is_upload).ok_or_else(bad)?;
        let (packing, digest) = blob(&mut parts, bad)?;
        Ok(WriteName { is_of_jobs, upload: upload.to_owned(), packing, digest })
    }
}

/// The parts of a resource's name from the first word of the protocol on. What stands before it must be an instance, or
/// that of the files of jobs, which is told.
fn before_keyword(name: &str) -> Result<(bool, std::str::Split<'_, char>), BadName> {
    let mut at = 0;
    for part in name.split('/') {
        if KEYWORDS.contains(&part) {
            break;
        }
        at += part.len() + 1;
    }
    // A name without any such word is refused by the caller, which looks for one.
    let Some(rest) = name.get(at..) else { return Ok((false, "".split('/'))) };
    let instance = name[..at].strip_suffix('/').unwrap_or_default();
    let is_of_jobs = instance == JOB_FILES_INSTANCE;
    if !is_of_jobs {
        InstanceName::parse(instance)?;
    }
    Ok((is_of_jobs, rest.split('/')))
}

/// The blob that the next parts name.
fn blob<'a>(
    parts: &mut impl Iterator<Item = &'a str>,
    bad: impl Fn() -> BadName,
) -> Result<(Packing, Digest), BadName> {
    let packing = match parts.next() {
        Some("blobs") => Packing::Plain,
        Some("compressed-blobs") => match parts.next() {
            Some("zstd") => Packing::Zstd,
            Some(other) => return Err(BadName::Compressor(shown(other))),
            None => return Err(bad()),
        },
        _ => return Err(bad()),
    };
    let hash = parts.next().ok_or_else(&bad)?;
    // Functions whose hashes are as long as others' stand before the hash.
    if ["blake3", "sha256tree"].contains(&hash) {
        return Err(BadName::Function);
    }
    let size = parts.next().and_then(whole_number).ok_or_else(bad)?;
    Ok((packing, Digest::parse(hash, size)?))
}

/// A number as it is written by a machine: without a sign, and without zeros before it.
fn whole_number(text: &str) -> Option<i64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

/// What a path beneath `/cache/` names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CachePath {
    /// The result of an action: `[INSTANCE/]ac/HASH`.
    Result(InstanceName, [u8; 32]),
    /// A blob: `[INSTANCE/]cas/HASH`. All instances have the same blobs.
    Blob([u8; 32]),
    /// The value of a key: `[INSTANCE/]kv/KEY`.
    Value(InstanceName, String),
    /// A directory of keys, as clients of WebDAV have them: `[INSTANCE/]kv/[KEY/]`.
    Directory,
}

impl CachePath {
    /// Of what stands behind `/cache/`.
    pub fn parse(path: &str) -> Result<CachePath, BadName> {
        let bad = || BadName::Path(shown(path));
        let mut at = 0;
        for part in path.split('/') {
            let end = at + part.len();
            if ["ac", "cas", "kv"].contains(&part) {
                let instance = InstanceName::parse(path[..at].strip_suffix('/').unwrap_or_default())?;
                let rest = path.get(end + 1..).ok_or_else(bad)?;
                return match part {
                    "ac" => Ok(CachePath::Result(instance, hash(rest)?)),
                    "cas" => Ok(CachePath::Blob(hash(rest)?)),
                    _ => value(instance, rest),
                };
            }
            at = end + 1;
        }
        Err(bad())
    }
}

fn hash(hex: &str) -> Result<[u8; 32], BadName> {
    Ok(Digest::parse(hex, 0)?.hash)
}

fn value(instance: InstanceName, key: &str) -> Result<CachePath, BadName> {
    let parts = key.strip_suffix('/').unwrap_or(key);
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+=@:,".contains(&byte);
        part.bytes().all(is_plain) && part.bytes().any(|byte| byte != b'.')
    };
    if key.len() > KEY_BYTES_MAX || !(parts.is_empty() || parts.split('/').all(is_part)) {
        return Err(BadName::Key(shown(key)));
    }
    match parts.len() == key.len() && !key.is_empty() {
        true => Ok(CachePath::Value(instance, key.to_owned())),
        false => Ok(CachePath::Directory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn names_of_blobs_are_read_as_clients_write_them() {
        let digest = |size| Digest { hash: Digest::EMPTY.hash, size };
        for (name, packing, size) in [
            (format!("blobs/{HEX}/75"), Packing::Plain, 75),
            (format!("main/blobs/{HEX}/0"), Packing::Plain, 0),
            (format!("a/b/compressed-blobs/zstd/{HEX}/12"), Packing::Zstd, 12),
        ] {
            let expected = ReadName { is_of_jobs: false, packing, digest: digest(size) };
            assert_eq!(ReadName::parse(&name), Ok(expected), "{name}");
        }
        let upload = "3f0a1f3c-9c7b-4a9e-8f33-0d2c9f9f2b11";
        for name in [
            format!("uploads/{upload}/blobs/{HEX}/5"),
            format!("main/uploads/{upload}/blobs/{HEX}/5/some/metadata"),
        ] {
            let expected = WriteName {
                is_of_jobs: false,
                upload: upload.to_owned(),
                packing: Packing::Plain,
                digest: digest(5),
            };
            assert_eq!(WriteName::parse(&name), Ok(expected), "{name}");
        }
        let of_jobs = format!("{JOB_FILES_INSTANCE}/blobs/{HEX}/5");
        assert!(ReadName::parse(&of_jobs).unwrap().is_of_jobs);
        assert!(!ReadName::parse(&format!("a/{of_jobs}")).unwrap().is_of_jobs);
        assert_eq!(InstanceName::parse(JOB_FILES_INSTANCE), Err(BadName::Reserved));
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        let read = |name: &str| ReadName::parse(name).unwrap_err().to_string();
        for name in ["", "blobs", "main", "uploads/u/blobs/x/1"] {
            assert!(read(name).contains("is not the name of"), "{name}: {}", read(name));
        }
        assert!(read(&format!("blobs/{}/5", HEX.to_uppercase())).contains("SHA-256"));
        assert!(read(&format!("blobs/blake3/{HEX}/5")).contains("SHA-256"));
        assert!(read(&format!("compressed-blobs/brotli/{HEX}/5")).contains("zstd"));
        for size in ["-1", "+5", "05", "x", "", "9223372036854775808"] {
            assert!(ReadName::parse(&format!("blobs/{HEX}/{size}")).is_err(), "{size}");
        }
        assert!(ReadName::parse(&format!("blobs/{HEX}/5/6")).is_err());
        assert!(ReadName::parse(&format!("a//blobs/{HEX}/5")).is_err());
        assert!(WriteName::parse(&format!("uploads//blobs/{HEX}/5")).is_err());
        assert!(WriteName::parse(&format!("blobs/{HEX}/5")).is_err());
        for name in ["a\nb", "a/blobs", "/", "a/", " "] {
            assert!(InstanceName::parse(name).is_err(), "{name:?}");
        }
        assert_eq!(InstanceName::parse(&"x".repeat(201)), Err(BadName::LongInstance));
    }

    #[test]
    fn paths_are_read_as_clients_write_them() {
        let instance = |name: &str| InstanceName::parse(name).unwrap();
        let hash = Digest::EMPTY.hash;
        let is = |path: &str, expected| assert_eq!(CachePath::parse(path), Ok(expected), "{path}");
        is(&format!("ac/{HEX}"), CachePath::Result(instance(""), hash));
        is(&format!("team/one/ac/{HEX}"), CachePath::Result(instance("team/one"), hash));
        is(&format!("main/cas/{HEX}"), CachePath::Blob(hash));
        // Of sccache, and of ccache with each of its layouts.
        is("kv/a/b/c/abc0", CachePath::Value(instance(""), "a/b/c/abc0".to_owned()));
        is("kv/.sccache_check", CachePath::Value(instance(""), ".sccache_check".to_owned()));
        is("kv/ccache/ab/cdef", CachePath::Value(instance(""), "ccache/ab/cdef".to_owned()));
        is(&format!("kv/ac/{HEX}"), CachePath::Value(instance(""), format!("ac/{HEX}")));
        is("kv/a/b/", CachePath::Directory);
        is("main/kv/", CachePath::Directory);
        for path in
            ["", "x", "kv", "ac", "ac/12", "cas/", "kv//a", "kv/a//b", "kv/../a", "kv/a%2fb", "kv/a b"]
        {
            assert!(CachePath::parse(path).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            parts in proptest::collection::vec("[a-z0-9_.-]{1,8}", 0..3),
            hash in any::<[u8; 32]>(),
            size in 0..=i64::MAX as u64,
            is_packed in any::<bool>(),
            upload in "[0-9a-f-]{1,36}",
        ) {
            prop_assume!(!parts.iter().any(|part| KEYWORDS.contains(&part.as_str())));
            let digest = Digest { hash, size };
            let mut before = parts.join("/");
            if !before.is_empty() {
                before.push('/');
            }
            let (packing, word) = match is_packed {
                true => (Packing::Zstd, "compressed-blobs/zstd"),
                false => (Packing::Plain, "blobs"),
            };
            let read = ReadName::parse(&format!("{before}{word}/{digest}"));
            prop_assert_eq!(read, Ok(ReadName { is_of_jobs: false, packing, digest }));
            let write = WriteName::parse(&format!("{before}uploads/{upload}/{word}/{digest}"));
            prop_assert_eq!(write, Ok(WriteName { is_of_jobs: false, upload, packing, digest }));
        }

        /// Whatever it is, it is refused or taken, and what is taken has the bounds of the protocol.
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,64}", words in "((blobs|uploads|ac|kv|cas|é|/){0,9})") {
            for name in [text.as_str(), &words, &format!("{words}/{text}")] {
                _ = ReadName::parse(name);
                if let Ok(write) = WriteName::parse(name) {
                    prop_assert!(write.upload.len() <= UPLOAD_BYTES_MAX);
                }
                if let Ok(CachePath::Value(instance, key)) = CachePath::parse(name) {
                    prop_assert!(instance.as_str().len() <= INSTANCE_BYTES_MAX && key.len() <= KEY_BYTES_MAX);
                    prop_assert!(!key.split('/').any(|part| part.is_empty() || part == ".."));
                }
            }
        }
    }
}
