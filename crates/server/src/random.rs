//! Random bytes for secrets and ids.

use sha2::{Digest, Sha256};

/// The operating system gave no random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the operating system gives no random numbers")]
pub struct NoRandom;

/// `N` random bytes of the operating system, as `2 * N` hexadecimal digits.
///
/// # Errors
///
/// The operating system gives none.
pub fn random<const N: usize>() -> Result<String, NoRandom> {
    let mut bytes = [0; N];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).map_err(|_| NoRandom)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The hash by which a secret is kept. A secret has 256 random bits: a plain hash of it cannot be searched.
pub(crate) fn hash_of_secret(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
