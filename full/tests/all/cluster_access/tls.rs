//! Mutual TLS: certificates that are accepted, and those that are not.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

use super::{clients, folder_with_secrets};
use crate::cluster::processes::{Cluster, ClusterProcess, executor, scheduler_with};
use crate::cluster::{assert_same_files, folder, read_tree, run_locally, run_on};
use crate::kit::{Folder, run_sluice};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A certificate, as the tests need it.
#[derive(Clone, Copy)]
struct Certificate {
    host: &'static str,
    /// Whether it is for a scheduler or for a client.
    is_server: bool,
    is_expired: bool,
}

const SCHEDULER: Certificate =
    Certificate { host: "127.0.0.1", is_server: true, is_expired: false };

const CLIENT: Certificate = Certificate { host: "client", is_server: false, is_expired: false };

/// An authority that issues certificates to folders.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Makes a folder with a certificate that trusts this authority.
    fn issue(&self, folder: &Folder, name: &str, certificate: Certificate) {
        let mut params = CertificateParams::new([certificate.host.to_owned()]).unwrap();
        params.extended_key_usages = vec![match certificate.is_server {
            true => ExtendedKeyUsagePurpose::ServerAuth,
            false => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let now = SystemTime::now();
        params.not_before = (now - 2 * DAY).into();
        params.not_after = if certificate.is_expired { now - DAY } else { now + DAY }.into();
        let key = KeyPair::generate().unwrap();
        let issued = params.signed_by(&key, &self.0).unwrap();
        fs::create_dir(folder.at(name)).unwrap();
        folder.write(&format!("{name}/ca.crt"), self.0.pem());
        folder.write(&format!("{name}/tls.crt"), issued.pem());
        let key_file = folder.write(&format!("{name}/tls.key"), key.serialize_pem());
        fs::set_permissions(key_file, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// A scheduler with these options, and its address.
fn started_scheduler(folder: &Folder, options: &[&str]) -> (ClusterProcess, String) {
    let scheduler = scheduler_with(folder, "127.0.0.1:0", options);
    let address = scheduler.wait_for_line("listening on ");
    (scheduler, address)
}

#[test]
fn the_certificates_and_the_secret_of_cluster_keys_make_a_cluster() {
    let folder = folder(3);
    let expected = run_locally(&folder);
    let made = run_sluice(&folder, &["cluster", "keys", "keys", "--host", "10.0.0.5"]).expect(0);
    assert_eq!(made.text().lines().count(), 7, "{}", made.text());
    run_sluice(&folder, &["cluster", "keys", "keys"]).expect(1).expect_stderr("keys");
    let secret = ["--secret-file", "keys/secret"];
    let (client, scheduler) = (["--tls", "keys/client"], ["--tls", "keys/scheduler"]);
    for with_secret in [false, true] {
        let more: &[&str] = if with_secret { &secret } else { &[] };
        let scheduler = scheduler_with(&folder, "127.0.0.1:0", &[&scheduler, more].concat());
        let mut cluster = Cluster::with_process(scheduler);
        let client = [&client, more].concat();
        cluster.executors.push(executor(&folder, &cluster.address, &client));
        let run = [&["run", "batch.toml", "--overwrite"], &client[..]].concat();
        run_on(&cluster, &folder, &run).expect(0).expect_stderr("3 inputs done");
        assert_same_files(&expected, &read_tree(&folder.at("out")));
        let status = [&["cluster", "status", "--scheduler", &cluster.address], &client[..]];
        assert!(run_sluice(&folder, &status.concat()).expect(0).text().contains("executors: 1"));
    }
}

#[test]
fn a_certificate_is_for_hosts_and_a_scheduler_has_one_for_servers() {
    let folder = Folder::new();
    let client = Certificate { is_server: false, ..SCHEDULER };
    Authority::new().issue(&folder, "no-scheduler", client);
    for wrong in ["10.0.0.1:50050", "https://foo:50050", "bad host", "[::1]:1", ""] {
        let keys = ["cluster", "keys", "keys", "--host", wrong];
        run_sluice(&folder, &keys).expect(2).expect_stderr("without a port");
    }
    let hosts = ["--host", "fe80::1", "--host", "rack-3.example"];
    run_sluice(&folder, &[&["cluster", "keys", "keys"], &hosts[..]].concat()).expect(0);
    for wrong in ["keys/client", "no-scheduler"] {
        let start = ["cluster", "scheduler", "--listen", "127.0.0.1:0", "--tls", wrong];
        run_sluice(&folder, &start).expect(2).expect_stderr(wrong).expect_stderr("not for servers");
    }
}

#[test]
fn a_scheduler_accepts_only_valid_certificates_of_its_authority() {
    let folder = folder_with_secrets(1);
    let (authority, foreign) = (Authority::new(), Authority::new());
    authority.issue(&folder, "scheduler", SCHEDULER);
    authority.issue(&folder, "valid", CLIENT);
    authority.issue(&folder, "expired", Certificate { is_expired: true, ..CLIENT });
    foreign.issue(&folder, "foreign", CLIENT);
    // It trusts the scheduler, and is not trusted by it.
    fs::copy(folder.at("valid/ca.crt"), folder.at("foreign/ca.crt")).unwrap();
    let (scheduler, address) = started_scheduler(&folder, &["--tls", "scheduler"]);
    let cases: [(&[&str], &str); 4] = [
        (&["--tls", "expired"], "does not accept the certificate in expired: CertificateExpired"),
        (&["--tls", "foreign"], "does not accept the certificate in foreign: "),
        (&["--secret-file", "secret"], "if it uses TLS, pass --tls here, too"),
        (&[], "if it uses TLS, pass --tls here, too"),
    ];
    for client in clients(&address) {
        for (options, message) in cases {
            let client = [&client[..], options].concat();
            run_sluice(&folder, &client).expect(2).expect_stderr(message);
        }
    }
    let status = ["cluster", "status", "--scheduler", &address, "--tls", "valid"];
    run_sluice(&folder, &status).expect(0);
    scheduler.wait_for_line("refused a request from 127.0.0.1: no TLS connection: ");
    assert!(!folder.at("out").exists());
}

#[test]
fn clients_accept_only_a_valid_scheduler_of_their_authority() {
    let folder = folder_with_secrets(1);
    let (authority, foreign) = (Authority::new(), Authority::new());
    authority.issue(&folder, "client", CLIENT);
    authority.issue(&folder, "expired", Certificate { is_expired: true, ..SCHEDULER });
    authority.issue(&folder, "elsewhere", Certificate { host: "10.0.0.5", ..SCHEDULER });
    foreign.issue(&folder, "foreign", SCHEDULER);
    let cases: [(&[&str], &str); 4] = [
        (&["--tls", "expired"], "is not accepted: certificate expired"),
        (&["--tls", "elsewhere"], "is not accepted: certificate not valid for name"),
        (&["--tls", "foreign"], "is not accepted: "),
        (&["--secret-file", "secret"], "does not use TLS as expected"),
    ];
    for (options, message) in cases {
        let (_scheduler, address) = started_scheduler(&folder, options);
        for client in clients(&address) {
            let client = [&client[..], &["--tls", "client"]].concat();
            run_sluice(&folder, &client).expect(2).expect_stderr(message);
        }
    }
}

#[test]
fn files_that_are_no_certificates_are_refused_with_their_names() {
    let folder = folder(1);
    let authority = Authority::new();
    authority.issue(&folder, "good", CLIENT);
    authority.issue(&folder, "other", CLIENT);
    let [missing, nothing, no_key, wrong_key, open_key] =
        ["missing", "nothing", "no-key", "wrong-key", "open-key"];
    for name in [missing, nothing, no_key, wrong_key, open_key] {
        fs::create_dir(folder.at(name)).unwrap();
        for file in ["ca.crt", "tls.crt", "tls.key"] {
            fs::copy(folder.at("good").join(file), folder.at(name).join(file)).unwrap();
        }
    }
    fs::remove_file(folder.at("missing/ca.crt")).unwrap();
    fs::write(folder.at("nothing/tls.crt"), "").unwrap();
    fs::copy(folder.at("good/tls.crt"), folder.at("no-key/tls.key")).unwrap();
    fs::set_permissions(folder.at("no-key/tls.key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::copy(folder.at("other/tls.key"), folder.at("wrong-key/tls.key")).unwrap();
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(folder.at("open-key/tls.key"), open).unwrap();
    for (name, message) in [
        (missing, "missing/ca.crt: cannot read these credentials"),
        (nothing, "nothing/tls.crt: expected certificates as PEM"),
        (no_key, "no-key/tls.key: expected a private key as PEM"),
        (wrong_key, "wrong-key: cannot use these certificates"),
        (open_key, "open-key/tls.key: other users may read or change this file (mode 644)"),
    ] {
        let scheduler = ["cluster", "scheduler", "--listen", "127.0.0.1:0", "--tls", name];
        run_sluice(&folder, &scheduler).expect(2).expect_stderr(message);
        let status = ["cluster", "status", "--scheduler", "127.0.0.1:1", "--tls", name];
        run_sluice(&folder, &status).expect(2).expect_stderr(message);
    }
}

#[test]
fn open_connections_without_a_handshake_keep_nobody_waiting() {
    let folder = folder(0);
    let authority = Authority::new();
    authority.issue(&folder, "scheduler", SCHEDULER);
    authority.issue(&folder, "client", CLIENT);
    let (_scheduler, address) = started_scheduler(&folder, &["--tls", "scheduler"]);
    let scans: [&[u8]; 4] = [b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n", &[0; 999]];
    let connect = |scan: &&[u8]| {
        let mut stream = TcpStream::connect(&address).unwrap();
        // The scheduler may have closed it.
        drop(stream.write_all(scan));
        stream
    };
    let open: Vec<TcpStream> = scans.iter().cycle().take(100).map(connect).collect();
    let status = ["cluster", "status", "--scheduler", &address, "--tls", "client"];
    run_sluice(&folder, &status).expect(0);
    drop(open);
}
