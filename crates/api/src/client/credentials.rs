//! The token that a client shows to servers, and the certificates by which it trusts them.

use reqwest::header::HeaderValue;
use reqwest::{Certificate, ClientBuilder, Identity};
use std::path::{Path, PathBuf};

/// How a client verifies the server and authenticates itself. Not used on a unix socket, where file permissions decide.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// CA certificates in PEM to trust for the server; `None` means those of the system.
    pub ca: Option<Vec<u8>>,
    /// The token, without `Bearer`.
    pub token: Option<String>,
    /// A client certificate and its key in PEM, one after the other, for servers that ask for one.
    pub identity: Option<Vec<u8>>,
}

/// Why credentials cannot be used.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("a client certificate needs its key: give both WINDLASS_CERT and WINDLASS_KEY, or neither")]
    Half,
}

impl Credentials {
    /// Reads the named files; of a token's file, the first line. A given token takes precedence over one in a file.
    pub fn read(
        ca: Option<&Path>,
        token: Option<String>,
        token_file: Option<&Path>,
        identity: (Option<&Path>, Option<&Path>),
    ) -> Result<Credentials, CredentialsError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| CredentialsError::Read { path: path.to_owned(), source })
        };
        let token = match (token, token_file) {
            (None, Some(path)) => {
                let text = String::from_utf8_lossy(&read(path)?).into_owned();
                Some(text.lines().next().unwrap_or_default().trim().to_owned())
            }
            (token, _) => token,
        };
        let identity = match identity {
            (Some(cert), Some(key)) => Some([read(cert)?, b"\n".to_vec(), read(key)?].concat()),
            (None, None) => None,
            _ => return Err(CredentialsError::Half),
        };
        Ok(Credentials { ca: ca.map(read).transpose()?, token, identity })
    }

    /// Adds the certificates to the builder.
    pub(super) fn apply(&self, mut builder: ClientBuilder) -> reqwest::Result<ClientBuilder> {
        if let Some(ca) = &self.ca {
            builder = builder.tls_certs_only(Certificate::from_pem_bundle(ca)?);
        }
        if let Some(identity) = &self.identity {
            builder = builder.identity(Identity::from_pem(identity)?);
        }
        Ok(builder)
    }

    /// The value of the header that shows the token. A token that is not a valid value is sent as an empty one, which
    /// the server refuses as malformed.
    pub(super) fn bearer(&self) -> Option<HeaderValue> {
        self.token.as_ref().map(|token| {
            let header = HeaderValue::try_from(format!("Bearer {token}"));
            let mut header = header.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
            header.set_sensitive(true);
            header
        })
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}
