//! The server's side of TLS.

use crate::config::Tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what went wrong")]
pub enum TlsError {
    #[error("cannot use {} for TLS: {why}; 'windlass ca' makes such files", path.display())]
    File { path: PathBuf, why: String },
    #[error("the certificate and the key cannot be used")]
    Pair(#[source] rustls::Error),
    #[error("the certificates for clients cannot be used")]
    ClientCa(#[source] VerifierBuilderError),
}

/// TLS as the settings say it, for HTTP of both versions; `None` where they name no certificate.
pub fn server_config(tls: &Tls) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let (Some(cert), Some(key)) = (&tls.cert, &tls.key) else { return Ok(None) };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(TlsError::Pair)?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|e| in_file(path, e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if tls.require_client_cert { verifier } else { verifier.allow_unauthenticated() };
            builder.with_client_cert_verifier(verifier.build().map_err(TlsError::ClientCa)?)
        }
    };
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| in_file(key, e))?;
    let mut config = builder.with_single_cert(certificates(cert)?, private).map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|e| in_file(path, e))?;
    if found.is_empty() {
        return Err(in_file(path, "it holds no certificate"));
    }
    Ok(found)
}

fn in_file(path: &Path, why: impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.to_string() }
}
