//! Secrets of jobs, sealed by a key that is in a file and never in the database.

use crate::format::Fields;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// The purpose to which a seal is bound, besides the account, so that no other sealed text opens as secrets.
const PURPOSE: &str = "windlass compass secrets of ";

/// Why secrets are not sealed or opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    #[error("cannot use the key of secrets, {}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "the key of secrets, {0}, is not one: restore it, or delete it and submit jobs with secrets again"
    )]
    BadKey(PathBuf),
    #[error("others may read the key of secrets, {0}: take that right from them, by chmod 600")]
    Readable(PathBuf),
    #[error("the operating system gives no random numbers")]
    Random,
    #[error("the secrets of this job were sealed by another key, or changed since")]
    Foreign,
}

/// The key, which is read or created when it is first needed.
pub(crate) struct Seal {
    path: PathBuf,
    key: OnceLock<LessSafeKey>,
}

impl Seal {
    pub fn new(path: PathBuf) -> Seal {
        Seal { path, key: OnceLock::new() }
    }

    /// Seals secrets for storage. They open for the same account only.
    pub fn close(&self, account: &str, secrets: &Fields) -> Result<String, SealError> {
        let (key, mut nonce) = (self.key()?, [0; NONCE_LEN]);
        SystemRandom::new().fill(&mut nonce).map_err(|_| SealError::Random)?;
        let mut bytes = serde_json::to_vec(secrets).expect("texts and numbers always serialize");
        let bound = Aad::from(format!("{PURPOSE}{account}"));
        let unique = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(unique, bound, &mut bytes).map_err(|_| SealError::Random)?;
        Ok(STANDARD.encode([nonce.as_slice(), &bytes].concat()))
    }

    /// Opens the sealed secrets of an account.
    pub fn open(&self, account: &str, sealed: &str) -> Result<Fields, SealError> {
        let mut bytes = STANDARD.decode(sealed).map_err(|_| SealError::Foreign)?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN).ok_or(SealError::Foreign)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Foreign)?;
        let bound = Aad::from(format!("{PURPOSE}{account}"));
        let plain = self.key()?.open_in_place(nonce, bound, sealed).map_err(|_| SealError::Foreign)?;
        serde_json::from_slice(plain).map_err(|_| SealError::Foreign)
    }

    fn key(&self) -> Result<&LessSafeKey, SealError> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let bytes = match self.read() {
            Err(SealError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                self.make()?
            }
            read => read?,
        };
        let key =
            UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| SealError::BadKey(self.path.clone()))?;
        Ok(self.key.get_or_init(|| LessSafeKey::new(key)))
    }

    fn read(&self) -> Result<Vec<u8>, SealError> {
        let failed = |source| SealError::File { path: self.path.clone(), source };
        let file = File::open(&self.path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return Err(SealError::Readable(self.path.clone()));
        }
        let mut bytes = Vec::new();
        file.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() == KEY_BYTES { Ok(bytes) } else { Err(SealError::BadKey(self.path.clone())) }
    }

    /// Creates the key. The file gets its name when it is whole, and does not replace an existing one.
    fn make(&self) -> Result<Vec<u8>, SealError> {
        let failed = |source| SealError::File { path: self.path.clone(), source };
        let (mut bytes, mut suffix) = (vec![0; KEY_BYTES], [0; 8]);
        SystemRandom::new().fill(&mut bytes).map_err(|_| SealError::Random)?;
        SystemRandom::new().fill(&mut suffix).map_err(|_| SealError::Random)?;
        let temporary = self.path.with_extension(format!("{:016x}.new", u64::from_le_bytes(suffix)));
        let written = self.write_beside(&temporary, &bytes);
        // The file may not exist.
        _ = std::fs::remove_file(&temporary);
        match written {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => self.read(),
            written => written.map(|()| bytes).map_err(failed),
        }
    }

    /// Writes the key to a temporary file, and gives that the key's name too.
    fn write_beside(&self, temporary: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::hard_link(temporary, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt as _;

    fn secrets() -> Fields {
        json!({"password": "open sesame", "n": 5}).as_object().unwrap().clone()
    }

    #[test]
    fn what_is_sealed_is_opened_by_the_same_key_for_the_same_account() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("compass.key");
        let seal = Seal::new(path.clone());
        let sealed = seal.close("ann", &secrets()).unwrap();
        assert!(!sealed.contains("sesame") && sealed != seal.close("ann", &secrets()).unwrap());
        assert_eq!(seal.open("ann", &sealed).unwrap(), secrets());
        assert!(matches!(seal.open("bob", &sealed), Err(SealError::Foreign)));
        assert_eq!(Seal::new(path.clone()).open("ann", &sealed).unwrap(), secrets(), "after a restart");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Seal::new(path.clone()).open("ann", &sealed), Err(SealError::Readable(_))));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Seal::new(path).open("ann", &sealed), Err(SealError::Foreign)));
    }

    proptest! {
        #[test]
        fn nothing_else_is_opened(text in ".{0,80}", cut in 0usize..60) {
            let dir = tempfile::tempdir().unwrap();
            let seal = Seal::new(dir.path().join("k"));
            prop_assert!(seal.open("ann", &text).is_err());
            let mut sealed = seal.close("ann", &secrets()).unwrap();
            sealed.truncate(cut);
            prop_assert!(seal.open("ann", &sealed).is_err());
        }
    }
}
