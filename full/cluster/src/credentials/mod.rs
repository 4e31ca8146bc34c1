//! Credentials: what proves that a process belongs to a cluster. Without any, a process talks only
//! to processes on this machine, unless it was told to be insecure.

mod files;
mod keys;
mod secret;
mod tls;

use std::net::IpAddr;
use std::path::Path;

use sluice_model::Error;

pub use keys::write_keys;
pub use secret::Secret;
pub(crate) use tls::{BoxedStream, TlsIdentity};

/// What a process proves to the others of its cluster, and demands of them.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    secret: Option<Secret>,
    tls: Option<TlsIdentity>,
    /// Whether other machines may be used without any credentials.
    is_insecure: bool,
}

impl Credentials {
    /// Reads a secret from a file, and certificates for mutual TLS from a folder. With
    /// `is_insecure`, other machines may be used without either.
    ///
    /// `Err` if they are not usable, or if others may read what is private.
    pub fn load(
        secret_file: Option<&Path>,
        tls_folder: Option<&Path>,
        is_insecure: bool,
    ) -> Result<Self, Error> {
        let secret = secret_file.map(Secret::read).transpose()?;
        Ok(Self { secret, tls: tls_folder.map(TlsIdentity::read).transpose()?, is_insecure })
    }

    /// Only a secret.
    pub fn with_secret(secret: Secret) -> Self {
        Self { secret: Some(secret), ..Self::default() }
    }

    /// The shared secret.
    pub(crate) fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// The certificates.
    pub(crate) fn tls(&self) -> Option<&TlsIdentity> {
        self.tls.as_ref()
    }

    /// Whether these credentials are enough to talk to a process at this address.
    pub(crate) fn suffice_for(&self, peer: IpAddr) -> bool {
        // `::ffff:127.0.0.1` is loopback, too.
        let is_authenticated = self.secret.is_some() || self.tls.is_some();
        is_authenticated || self.is_insecure || peer.to_canonical().is_loopback()
    }
}

/// How to give a process credentials, for messages.
pub(crate) const ADVICE: &str = "pass --secret-file FILE with the secret of the cluster, or \
     --tls DIR with certificates; or --insecure, if everybody on that network may read and write \
     the files of its executors";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_needs_no_credentials() {
        let [none, insecure] =
            [false, true].map(|is_insecure| Credentials::load(None, None, is_insecure).unwrap());
        let secret = Credentials::with_secret(Secret::generate().unwrap());
        for local in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(none.suffice_for(local.parse().unwrap()), "{local}");
        }
        for other in ["0.0.0.0", "::", "10.0.0.1", "192.168.1.9", "fe80::1", "::ffff:10.0.0.1"] {
            let other = other.parse().unwrap();
            assert!(!none.suffice_for(other), "{other}");
            assert!(secret.suffice_for(other) && insecure.suffice_for(other), "{other}");
        }
    }
}
