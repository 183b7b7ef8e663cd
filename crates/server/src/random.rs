//! Random bytes for secrets and ids.

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
