//! Questions to the issuer of clients' tokens.

use crate::tokens::BadToken;
use sha2::{Digest as _, Sha256};
use std::sync::OnceLock;
use std::time::Duration;

/// How long the issuer of keys may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a client is not admitted.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum NotLetIn {
    #[error(transparent)]
    Token(#[from] BadToken),
    /// The issuer does not tell whether the token is valid. The client compiles by itself.
    #[error("cannot ask {url} about the client's token: {why}")]
    Unasked { url: String, why: String },
}

/// The client for all questions. It is made once, because that reads this machine's certificates.
pub fn http() -> reqwest::Result<reqwest::Client> {
    static HTTP: OnceLock<reqwest::Client> = OnceLock::new();
    match HTTP.get() {
        Some(http) => Ok(http.clone()),
        None => {
            let made = reqwest::Client::builder().timeout(PATIENCE).build()?;
            Ok(HTTP.get_or_init(|| made).clone())
        }
    }
}

/// A hash that distinguishes tokens in the names of queues, and does not reveal them.
pub fn short_hash(token: &str) -> String {
    Sha256::digest(token).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
