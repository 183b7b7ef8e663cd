//! Requests to build servers to take jobs. They use HTTPS and trust only the certificate that the build server's
//! heartbeat named.

use crate::wire::{self, AssignJobResult, JobId, ServerId, Toolchain};
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq as _;

/// How long connecting may take, and how long an idle connection is kept.
const CONNECT_MAX: Duration = Duration::from_secs(2);
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Build servers whose connections are kept. Beyond this number all are dropped and made again.
const CLIENTS_MAX: usize = 10_000;

/// Why a build server did not take a job.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum NotAssigned {
    #[error("the build server is not reached: {0}")]
    Unreached(#[from] reqwest::Error),
    #[error("the build server answers {0}")]
    Refused(reqwest::StatusCode),
    #[error("the build server's answer: {0}")]
    Unreadable(#[from] wire::BadBody),
    #[error("cannot speak TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Connections to build servers.
#[derive(Debug, Default)]
pub struct Assigner {
    clients: Mutex<BTreeMap<ServerId, (Vec<u8>, reqwest::Client)>>,
}

impl Assigner {
    /// Asks a build server to take a job. `digest` is the SHA-256 of its certificate, `token` the job's.
    pub async fn assign(
        &self,
        server: ServerId,
        digest: &[u8],
        (job, token): (JobId, &str),
        toolchain: &Toolchain,
    ) -> Result<AssignJobResult, NotAssigned> {
        let client = self.client(server, digest)?;
        let url = format!("https://{server}/api/v1/distserver/assign_job/{}", job.0);
        let request = client.post(url).bearer_auth(token).header("Content-Type", "application/octet-stream");
        let response = request.body(wire::write(toolchain)).send().await?;
        if !response.status().is_success() {
            return Err(NotAssigned::Refused(response.status()));
        }
        Ok(wire::read(&response.bytes().await?)?)
    }

    /// Drops the connections of a build server that is gone.
    pub fn forget(&self, server: ServerId) {
        self.clients.lock().remove(&server);
    }

    /// The client of a build server. It trusts one certificate, so it is made again when the certificate changes.
    fn client(&self, server: ServerId, digest: &[u8]) -> Result<reqwest::Client, NotAssigned> {
        let mut clients = self.clients.lock();
        if let Some((_, client)) = clients.get(&server).filter(|(known, _)| known == digest) {
            return Ok(client.clone());
        }
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        let client = client_of(digest)?;
        clients.insert(server, (digest.to_owned(), client.clone()));
        Ok(client)
    }
}

fn client_of(digest: &[u8]) -> Result<reqwest::Client, NotAssigned> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pinned = Arc::new(Pinned { digest: digest.to_owned(), provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.dangerous().with_custom_certificate_verifier(pinned).with_no_client_auth();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .connect_timeout(CONNECT_MAX)
        .pool_idle_timeout(IDLE_MAX)
        .no_proxy();
    Ok(client.build()?)
}

/// A verifier that trusts the one certificate whose digest a heartbeat named.
#[derive(Debug)]
struct Pinned {
    digest: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let digest = Sha256::digest(end_entity);
        if bool::from(digest.as_slice().ct_eq(&self.digest)) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General("the certificate is not the one that the heartbeat named".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
