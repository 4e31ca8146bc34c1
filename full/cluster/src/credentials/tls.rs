//! Mutual TLS: encrypts connections, and accepts only processes with a certificate of the authority
//! of the cluster, on both sides. Certificates are read once, when the process starts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_model::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::files::{self, not_allowed};
use crate::address::Address;
use crate::request_error::RequestError;

/// The files of a folder with certificates, as cert-manager and Kubernetes name them: those of the
/// authority, the chain of the process, and its private key.
pub(crate) const FILES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// The most bytes that are read of a client after it was refused.
const MAX_DISCARDED: u64 = 64 << 10;

/// A connection, encrypted or not.
pub(crate) type BoxedStream = Box<dyn ByteStream>;

/// A stream of bytes in both directions.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The certificate of a process, and those that it accepts.
#[derive(Clone)]
pub(crate) struct TlsIdentity {
    folder: PathBuf,
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    is_for_servers: bool,
}

impl TlsIdentity {
    /// Reads the files of a folder.
    ///
    /// `Err` if one is missing or malformed, if the key is not that of the certificate, or if users
    /// other than its owner may read the key.
    pub(super) fn read(folder: &Path) -> Result<Self, Error> {
        let [authorities, chain, key] = FILES.map(|name| folder.join(name));
        let mut roots = RootCertStore::empty();
        for authority in read_certificates(&authorities)? {
            roots.add(authority).map_err(|e| {
                not_allowed(format!("{}: not an authority: {e}", authorities.display()))
            })?;
        }
        let chain = read_certificates(&chain)?;
        let key_text = files::read_private(&key)?;
        let key = PrivateKeyDer::from_pem_slice(key_text.as_bytes()).map_err(|_| {
            not_allowed(format!("{}: expected a private key as PEM", key.display()))
        })?;
        let cannot = |e: &dyn fmt::Display| {
            not_allowed(format!("{}: cannot use these certificates: {e}", folder.display()))
        };
        let provider = Arc::new(default_provider());
        let is_for_servers = is_for_servers(&provider, &roots, &chain);
        let server = server_config(&provider, roots.clone(), chain.clone(), key.clone_key());
        let client = client_config(&provider, roots, chain, key);
        Ok(Self {
            folder: folder.to_owned(),
            acceptor: TlsAcceptor::from(Arc::new(server.map_err(|e| cannot(&e))?)),
            connector: TlsConnector::from(Arc::new(client.map_err(|e| cannot(&e))?)),
            is_for_servers,
        })
    }

    /// `Err` if the certificate is for clients only: others would refuse a scheduler that has it.
    pub(crate) fn check_server(&self) -> Result<(), Error> {
        if self.is_for_servers {
            return Ok(());
        }
        Err(not_allowed(format!(
            "{}: this certificate is not for servers, so that executors and runs would refuse it; \
             a scheduler needs one for server authentication, such as that in the folder \
             `scheduler` of `sluice cluster keys`",
            self.folder.display()
        )))
    }

    /// Encrypts a connection to a scheduler, after checking that it is one of this cluster.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        scheduler: &Address,
    ) -> Result<BoxedStream, RequestError> {
        let name = ServerName::try_from(scheduler.host.clone());
        let name = name.map_err(|e| RequestError::Unreachable(e.to_string()))?;
        match self.connector.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(self.request_error(scheduler, &error).unwrap_or_else(|| {
                RequestError::Unreachable(format!("the TLS handshake failed: {error}"))
            })),
        }
    }

    /// Encrypts a connection of a client, after checking that it belongs to this cluster. `Err` is
    /// why it does not.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<BoxedStream, String> {
        match self.acceptor.accept(stream).into_fallible().await {
            Ok(stream) => Ok(Box::new(stream)),
            Err((error, mut stream)) => {
                // Closing a connection with unread bytes resets it, and the client might never see
                // the alert that says why.
                drop(stream.shutdown().await);
                drop(copy(&mut stream.take(MAX_DISCARDED), &mut sink()).await);
                Err(error.to_string())
            }
        }
    }

    /// What an I/O error says about certificates, if anything.
    pub(crate) fn request_error(
        &self,
        scheduler: &Address,
        error: &std::io::Error,
    ) -> Option<RequestError> {
        let folder = self.folder.display();
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(RequestError::Refused(match error {
            rustls::Error::AlertReceived(alert) => format!(
                "the scheduler at {scheduler} does not accept the certificate in {folder}: \
                 {alert:?}; it needs one that is valid now, from an authority in the ca.crt of \
                 the scheduler"
            ),
            rustls::Error::InvalidCertificate(why) => format!(
                "the certificate of the scheduler at {scheduler} is not accepted: {why}; it has to \
                 be valid now, for that name, and from an authority in {folder}/ca.crt"
            ),
            other => format!(
                "the scheduler at {scheduler} does not use TLS as expected: {other}; pass --tls to \
                 it, too"
            ),
        }))
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = files::read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(not_allowed(format!("{}: expected certificates as PEM", path.display()))),
    }
}

/// Whether clients that trust this authority may accept the certificate of a server.
fn is_for_servers(
    provider: &CryptoProvider,
    roots: &RootCertStore,
    chain: &[CertificateDer<'_>],
) -> bool {
    let Some((own, others)) = chain.split_first() else { return false };
    let algorithms = provider.signature_verification_algorithms.all;
    let verified = ParsedCertificate::try_from(own).and_then(|own| {
        verify_server_cert_signed_by_trust_anchor(&own, roots, others, UnixTime::now(), algorithms)
    });
    // Other errors depend on the time, and on what the clients trust.
    !matches!(
        verified,
        Err(rustls::Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. }
        ))
    )
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, String> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let verifier = verifier.build().map_err(|e| e.to_string())?;
    let config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| e.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key);
    let mut config = config.map_err(|e| e.to_string())?;
    // Every connection shows its certificate, so that an expired one is not resumed.
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client_config(
    provider: &Arc<CryptoProvider>,
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    Ok(config)
}
