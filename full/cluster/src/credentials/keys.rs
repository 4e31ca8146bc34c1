//! Makes a secret and certificates for trying out a cluster. The key of their authority is not
//! kept, so nobody can add certificates later.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use sluice_model::Error;

use super::secret::Secret;
use super::tls::FILES;

/// How long the certificates are valid.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// Clocks of other machines may be slow by as much.
const CLOCK_SKEW: Duration = Duration::from_secs(24 * 3600);

/// The names of a scheduler on this machine.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Writes a secret, the certificate of a scheduler that is reached by these names, and one for all
/// other processes, into a new folder. Returns the files.
///
/// `Err` if the folder exists, or if a name is neither a host name nor an IP address.
pub fn write_keys(folder: &Path, scheduler_names: &[String]) -> Result<Vec<PathBuf>, Error> {
    let names = LOCAL_NAMES.map(str::to_owned).into_iter().chain(scheduler_names.iter().cloned());
    let cannot = |e: rcgen::Error| Error::refused(format!("cannot make certificates: {e}"));
    let authority = authority().map_err(cannot)?;
    let [server, client] =
        [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let scheduler = certificate(&authority, "Sluice scheduler", names.collect(), server);
    let other = certificate(&authority, "Sluice client", Vec::new(), client);
    let secret = format!("{}\n", Secret::generate()?.reveal());
    let mut written = Vec::new();
    create_folder(folder)?;
    written.push(write_private(folder.join("secret"), &secret)?);
    for (name, made) in [("scheduler", scheduler), ("client", other)] {
        let (certificate, key) = made.map_err(cannot)?;
        let folder = folder.join(name);
        create_folder(&folder)?;
        for (file, text) in FILES.into_iter().zip([authority.pem(), certificate, key]) {
            written.push(write_private(folder.join(file), &text)?);
        }
    }
    Ok(written)
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = params("Sluice cluster", Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

/// A certificate for this use, and its key.
fn certificate(
    authority: &CertifiedIssuer<'_, KeyPair>,
    name: &str,
    hosts: Vec<String>,
    usage: ExtendedKeyUsagePurpose,
) -> Result<(String, String), rcgen::Error> {
    let mut params = params(name, hosts)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn params(name: &str, hosts: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = (SystemTime::now() - CLOCK_SKEW).into();
    params.not_after = (SystemTime::now() + VALIDITY).into();
    Ok(params)
}

fn create_folder(folder: &Path) -> Result<(), Error> {
    let created = fs::DirBuilder::new().mode(0o700).create(folder);
    created.map_err(|e| Error::io("create", folder, e))
}

/// Writes a new file that only its owner may read.
fn write_private(path: PathBuf, text: &str) -> Result<PathBuf, Error> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map(|()| path.clone()).map_err(|e| Error::io("write", path, e))
}
