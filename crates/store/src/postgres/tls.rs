//! TLS to a PostgreSQL database, by rustls. The modes are libpq's: `require` encrypts and trusts every certificate unless
//! a root is given, `verify-ca` checks who signed it, `verify-full` also whose name it has.

use super::binding::end_point;
use crate::error::StoreError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;

/// What is asked of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checks {
    Disable,
    /// TLS where the database offers it.
    Prefer,
    /// TLS; the certificate's signer is checked if a root is given.
    Require,
    /// The certificate must be signed by a trusted root.
    VerifyCa,
    /// The certificate must also be for the host.
    VerifyFull,
}

impl Checks {
    pub fn parse(text: &str) -> Result<Checks, StoreError> {
        Ok(match text {
            "disable" => Checks::Disable,
            "allow" | "prefer" => Checks::Prefer,
            "require" => Checks::Require,
            "verify-ca" => Checks::VerifyCa,
            "verify-full" => Checks::VerifyFull,
            _ => {
                let modes = "disable, allow, prefer, require, verify-ca, verify-full";
                return Err(StoreError::Setting(format!("its sslmode is not one of {modes}")));
            }
        })
    }

    /// The mode with a root, which makes `require` check the certificate, as with libpq.
    fn with_root(self, root: Option<&str>) -> Checks {
        match (self, root) {
            (Checks::Require, Some("system")) => Checks::VerifyFull,
            (Checks::Require, Some(_)) => Checks::VerifyCa,
            _ => self,
        }
    }

    /// What the mode allows on the way to another machine; `None` of the one that allows nothing.
    fn weakness(self) -> Option<&'static str> {
        match self {
            Checks::Disable => Some(
                "nothing is encrypted: every machine on the way to the database can read the password and all \
                 data, and change them",
            ),
            Checks::Prefer => Some(
                "the certificate is not checked, and without a password TLS may be refused: every machine on the way \
                 can pass itself off as the database, learn the password, and read and change all data",
            ),
            Checks::Require => Some(
                "the certificate is not checked: every machine on the way can pass itself off as the database, learn \
                 the password, and read and change all data",
            ),
            Checks::VerifyCa => Some(
                "the certificate's name is not checked: every holder of a certificate of the same authority can pass \
                 itself off as the database, learn the password, and read and change all data",
            ),
            Checks::VerifyFull => None,
        }
    }
}

/// Makes TLS connections to the hosts of a database.
#[derive(Clone)]
pub struct TlsDialer {
    config: Arc<ClientConfig>,
    checks: Checks,
}

impl TlsDialer {
    /// What libpq's `sslmode` and `sslrootcert` ask for, for a program with a database of its own. A root is a file of
    /// certificates, or `system`. Whether TLS is tried at all is a setting of each connection.
    ///
    /// # Errors
    ///
    /// The mode is not one of libpq's, or the certificates cannot be read.
    pub fn of_options(mode: &str, root: Option<&str>) -> Result<TlsDialer, StoreError> {
        TlsDialer::new(Checks::parse(mode)?, root, false)
    }

    /// What the mode allows on the way to another machine, in words that complete a sentence; `None` if the database's
    /// certificate and its name are checked.
    pub fn weakness(&self) -> Option<&'static str> {
        self.checks.weakness()
    }

    /// `root` is a file of certificates, or `system`.
    pub(super) fn new(checks: Checks, root: Option<&str>, is_direct: bool) -> Result<TlsDialer, StoreError> {
        let provider = Arc::new(ring::default_provider());
        let checks = checks.with_root(root);
        let verifier: Arc<dyn ServerCertVerifier> = match checks {
            Checks::Disable | Checks::Prefer | Checks::Require => {
                Arc::new(AnyName { signer: None, provider: provider.clone() })
            }
            Checks::VerifyCa | Checks::VerifyFull => {
                let known = roots(root)?;
                let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(known), provider.clone());
                let full = builder.build().map_err(|e| StoreError::Setting(format!("sslrootcert: {e}")))?;
                match checks {
                    Checks::VerifyFull => full,
                    _ => Arc::new(AnyName { signer: Some(full), provider: provider.clone() }),
                }
            }
        };
        let versions = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions");
        let mut config =
            versions.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        if is_direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(TlsDialer { config: Arc::new(config), checks })
    }
}

fn roots(root: Option<&str>) -> Result<RootCertStore, StoreError> {
    let mut store = RootCertStore::empty();
    match root {
        Some(path) if path != "system" => {
            let failed = |why: String| StoreError::Setting(format!("sslrootcert cannot be used: {why}"));
            let certificates = CertificateDer::pem_file_iter(path).map_err(|e| failed(e.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|e| failed(e.to_string()))?;
                store.add(certificate).map_err(|e| failed(e.to_string()))?;
            }
            if store.is_empty() {
                return Err(failed("it has no certificate".to_owned()));
            }
        }
        _ => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                let why = "this system trusts no certificates; give ?sslrootcert=FILE";
                return Err(StoreError::Setting(why.to_owned()));
            }
        }
    }
    Ok(store)
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for TlsDialer {
    type Stream = Encrypted<S>;
    type TlsConnect = HostDialer;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<HostDialer> {
        Ok(HostDialer { config: self.config.clone(), host: host.to_owned() })
    }
}

/// Makes a TLS connection to one host.
pub struct HostDialer {
    config: Arc<ClientConfig>,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for HostDialer {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            let stream = TlsConnector::from(self.config).connect(name, stream).await?;
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

pub struct Encrypted<S>(Box<RustlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, connection) = self.0.get_ref();
        let certificate = connection.peer_certificates().and_then(|chain| chain.first());
        match certificate.and_then(|certificate| end_point(certificate)) {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Checks no name: the certificate may be for another host.
#[derive(Debug)]
struct AnyName {
    /// Checks who signed the certificate. Without it every certificate is trusted: the connection is encrypted, but
    /// nothing says with whom.
    signer: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(signer) = &self.signer else { return Ok(ServerCertVerified::assertion()) };
        // The name is compared after the signatures.
        match signer.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            found => found,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
