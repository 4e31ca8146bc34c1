//! Who may use a cluster: processes with its secret or its certificates, on every way into it.

mod tls;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::cluster::processes::{Cluster, ClusterProcess, executor, scheduler_with, until};
use crate::cluster::{assert_same_files, folder, names, read_tree, run_locally, run_on};
use crate::kit::{Folder, report_skip, run_sluice, sluice};

const SECRET: &str = "5e2f0c3a9b7d4816-a-secret-of-the-tests";
const OTHER_SECRET: &str = "5e2f0c3a9b7d4816-another-of-the-tests";

/// Writes a secret that only its owner may read.
fn write_secret(folder: &Folder, name: &str, secret: &str) {
    let path = folder.write(name, format!("{secret}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A folder for a run of the batch, with the secret and another one.
fn folder_with_secrets(logs: u64) -> Folder {
    let folder = folder(logs);
    write_secret(&folder, "secret", SECRET);
    write_secret(&folder, "other", OTHER_SECRET);
    folder
}

/// The commands that connect to a scheduler.
fn clients(scheduler: &str) -> [Vec<&str>; 3] {
    [
        vec!["run", "batch.toml", "--engine", "ballista", "--scheduler", scheduler],
        vec!["cluster", "executor", "--scheduler", scheduler],
        vec!["cluster", "status", "--scheduler", scheduler],
    ]
}

/// The status of the response to a request on a new connection.
fn status_of(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_cluster_with_a_secret_works_for_those_who_have_it() {
    let folder = folder_with_secrets(4);
    let expected = run_locally(&folder);
    let cluster = Cluster::with_credentials(&folder, 2, &["--secret-file", "secret"]);
    run_on(&cluster, &folder, &["run", "batch.toml"]).expect(0).expect_stderr("4 inputs done");
    assert_same_files(&expected, &read_tree(&folder.at("out")));
    let status = ["cluster", "status", "--secret-file", "secret", "--scheduler", &cluster.address];
    assert!(run_sluice(&folder, &status).expect(0).text().contains("executors: 2"));
}

#[test]
fn nobody_uses_a_cluster_without_its_secret() {
    let folder = folder_with_secrets(1);
    let cluster = Cluster::with_credentials(&folder, 1, &["--secret-file", "secret"]);
    for client in clients(&cluster.address) {
        run_sluice(&folder, &client).expect(2).expect_stderr("wants a secret: pass --secret-file");
        let wrong = [&client[..], &["--secret-file", "other"]].concat();
        run_sluice(&folder, &wrong).expect(2).expect_stderr("has another secret than this process");
    }
    assert_eq!(folder.names(), ["batch.toml", "in", "other", "secret"]);
    let refused = cluster.scheduler.wait_for_line("refused a request from 127.0.0.1: ");
    assert_eq!(refused, "no secret");
    // Retries do not fill the log.
    assert_eq!(cluster.scheduler.stderr().matches("refused").count(), 1);
}

#[test]
fn every_request_without_the_secret_is_refused_whatever_it_asks_for() {
    let folder = folder_with_secrets(0);
    let cluster = Cluster::with_credentials(&folder, 0, &["--secret-file", "secret"]);
    let service = "/ballista.protobuf.SchedulerGrpc";
    let paths = [
        "GET /sluice".to_owned(),
        "GET /sluice/state".into(),
        "GET /sluice/executor/x".into(),
        "GET /sluice/job/x/0".into(),
        "POST /sluice/job/x".into(),
        format!("POST {service}/ExecuteQuery"),
        format!("POST {service}/PollWork"),
        format!("POST {service}/RegisterExecutor"),
        format!("POST {service}/NoSuchMethod"),
        "GET /".into(),
        "GET /api/state".into(),
        "OPTIONS *".into(),
    ];
    let wrong = [
        String::new(),
        format!("Authorization: Bearer {OTHER_SECRET}\r\n"),
        format!("Authorization: Bearer {SECRET}x\r\n"),
        format!("Authorization: Bearer {}\r\n", &SECRET[1..]),
        format!("Authorization: Basic {SECRET}\r\n"),
        format!("Authorization: {SECRET}\r\n"),
        "Authorization: Bearer \r\n".into(),
        "Authorization:\r\n".into(),
    ];
    let request = |path: &str, header: &str| {
        format!(
            "{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n{header}\r\n"
        )
    };
    for path in &paths {
        for header in &wrong {
            assert_eq!(
                status_of(&cluster.address, &request(path, header)),
                "401",
                "{path} {header}"
            );
        }
    }
    let right = format!("Authorization: Bearer {SECRET}\r\n");
    assert_eq!(status_of(&cluster.address, &request(&paths[0], &right)), "200");
}

#[test]
fn what_is_not_a_secret_of_its_owner_is_refused_with_what_to_do() {
    let folder = folder(1);
    let cases: [(&str, u32, &str); 7] = [
        ("", 0o600, "found nothing; make one with `openssl rand -hex 32`"),
        ("\n", 0o600, "found nothing"),
        ("0123456789abcdef0123456789abcde", 0o600, "32 to 1024 characters, found 31"),
        ("0123456789abcdef 0123456789abcdef", 0o600, "one line of letters, digits"),
        ("0123456789abcdef\n0123456789abcdef", 0o600, "one line of letters, digits"),
        (SECRET, 0o644, "other users may read or change this file (mode 644)"),
        (SECRET, 0o620, "other users may read or change this file (mode 620)"),
    ];
    let mut commands = clients("127.0.0.1:1").to_vec();
    commands.push(vec!["cluster", "scheduler", "--listen", "127.0.0.1:0"]);
    for command in commands {
        let command = [&command[..], &["--secret-file", "secret"]].concat();
        run_sluice(&folder, &command)
            .expect(2)
            .expect_stderr("secret: cannot read these credentials: ");
        for (secret, mode, message) in cases {
            let path = folder.write("secret", secret);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            let stderr = run_sluice(&folder, &command).expect(2).expect_stderr(message).stderr;
            assert!(secret.trim().is_empty() || !stderr.contains(secret.trim()), "{stderr}");
        }
        fs::remove_file(folder.at("secret")).unwrap();
    }
}

/// An address of this machine that other machines can use, if it has one. Sends nothing.
fn outside_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip()).filter(|address| !address.is_loopback())
}

#[test]
fn other_machines_need_a_secret_unless_told_that_the_cluster_is_insecure() {
    let folder = folder_with_secrets(1);
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let scheduler = ["cluster", "scheduler", "--listen", listen];
        let stderr =
            run_sluice(&folder, &scheduler).expect(2).expect_stderr("there are no credentials");
        stderr.expect_stderr("pass --secret-file FILE").expect_stderr("or --insecure");
    }
    scheduler_with(&folder, "0.0.0.0:0", &["--secret-file", "secret"])
        .wait_for_line("listening on ");
    let insecure = scheduler_with(&folder, "0.0.0.0:0", &["--insecure"]);
    let address = insecure.wait_for_line("listening on ");
    let Some(outside) = outside_address() else {
        return report_skip("this machine has no address but those of loopback");
    };
    let outside = address.replace("0.0.0.0", &outside.to_string());
    for client in clients(&outside) {
        let stderr =
            run_sluice(&folder, &client).expect(2).expect_stderr("there are no credentials");
        stderr.expect_stderr("or --insecure");
    }
    let executor = executor(&folder, &outside, &["--insecure"]);
    executor.wait_for_line("joined ");
    let [run, _, status] = clients(&outside);
    run_sluice(&folder, &[&run[..], &["--insecure"]].concat()).expect(0);
    run_sluice(&folder, &[&status[..], &["--insecure"]].concat()).expect(0);
    run_sluice(&folder, &[&status[..], &["--insecure", "--secret-file", "secret"]].concat())
        .expect(2);
}

#[test]
fn an_executor_leaves_a_scheduler_that_has_another_secret_now() {
    let folder = folder_with_secrets(0);
    let mut cluster = Cluster::with_credentials(&folder, 1, &["--secret-file", "secret"]);
    cluster.scheduler.kill();
    let address = cluster.address.clone();
    cluster.scheduler = scheduler_with(&folder, &address, &["--secret-file", "other"]);
    cluster.scheduler.wait_for_line("listening on ");
    let executor = &mut cluster.executors[0];
    assert_eq!(executor.code(), Some(2), "{}", executor.stderr());
    assert!(executor.stderr().contains("has another secret"), "{}", executor.stderr());
}

/// The TCP ports on which a process listens.
fn listening_ports(pid: Pid) -> Vec<u16> {
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    let files = fs::read_dir(format!("{process}/fd")).into_iter().flatten().filter_map(Result::ok);
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    let sockets: Vec<String> = links.map(|link| link.display().to_string()).collect();
    let mut ports = Vec::new();
    for table in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("{process}/net/{table}")).unwrap_or_default();
        for row in table.lines().skip(1) {
            let row: Vec<&str> = row.split_whitespace().collect();
            let is_listening = row[3] == "0A" && sockets.contains(&format!("socket:[{}]", row[9]));
            let port = row[1].rsplit_once(':').unwrap().1;
            ports.extend(is_listening.then(|| u16::from_str_radix(port, 16).unwrap()));
        }
    }
    ports
}

#[test]
fn the_port_of_the_scheduler_is_the_only_way_into_a_cluster() {
    let folder = folder(0);
    let cluster = Cluster::start(&folder, 1);
    let port = cluster.address.parse::<SocketAddr>().unwrap().port();
    assert_eq!(listening_ports(cluster.scheduler.pid()), [port]);
    assert!(listening_ports(cluster.executors[0].pid()).is_empty());
}

/// The processes that have this folder as working directory.
fn processes_in(folder: &Folder) -> Vec<Pid> {
    let folder = folder.path().canonicalize().unwrap();
    let numbers = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_there = |number: &i32| {
        fs::read_link(format!("/proc/{number}/cwd")).is_ok_and(|path| path == folder)
    };
    numbers.filter(is_there).filter_map(Pid::from_raw).collect()
}

#[test]
fn a_local_cluster_takes_orders_only_from_its_run() {
    let folder = folder_with_secrets(12);
    let run = ["run", "batch.toml", "--engine", "ballista", "--local-cluster", "2"];
    let mut run = ClusterProcess::start(sluice(&folder).args(run));
    until("the first output", || folder.at("out/00.jsonl").exists().then_some(()));
    // The cluster stays while its run is paused.
    run.signal(Signal::STOP);
    let ports: Vec<u16> = processes_in(&folder).into_iter().flat_map(listening_ports).collect();
    let [port] = ports[..] else { panic!("{ports:?}") };
    let scheduler = format!("127.0.0.1:{port}");
    for client in clients(&scheduler) {
        run_sluice(&folder, &client).expect(2).expect_stderr("wants a secret");
        let wrong = [&client[..], &["--secret-file", "secret"]].concat();
        run_sluice(&folder, &wrong).expect(2).expect_stderr("has another secret");
    }
    run.kill();
}

#[test]
fn a_port_scanner_disturbs_nobody() {
    let folder = folder_with_secrets(2);
    let expected = run_locally(&folder);
    let cluster = Cluster::with_credentials(&folder, 1, &["--secret-file", "secret"]);
    let zeros = [0; 4096];
    let scans: [&[u8]; 8] = [
        b"",
        b"\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"SSH-2.0-scanner\r\n",
        b"EHLO scanner\r\n",
        &zeros,
    ];
    let open: Vec<TcpStream> = scans
        .iter()
        .cycle()
        .take(80)
        .map(|scan| {
            let mut stream = TcpStream::connect(&cluster.address).unwrap();
            // The scheduler may have closed it.
            drop(stream.write_all(scan));
            stream
        })
        .collect();
    run_on(&cluster, &folder, &["run", "batch.toml"]).expect(0);
    assert_same_files(&expected, &read_tree(&folder.at("out")));
    drop(open);
}

#[test]
fn the_secret_is_in_no_log_and_in_no_file() {
    let folder = folder_with_secrets(2);
    let secret = ["--secret-file", "secret"];
    let traced = |arguments: &[&str]| {
        let mut command = sluice(&folder);
        command.args(arguments).args(secret).env("SLUICE_LOG", "trace");
        ClusterProcess::start(&mut command)
    };
    let scheduler = traced(&["cluster", "scheduler", "--listen", "127.0.0.1:0"]);
    let address = scheduler.wait_for_line("listening on ");
    let work = ["--work-dir", "work"];
    let mut executor =
        traced(&[&["cluster", "executor", "--scheduler", &address][..], &work].concat());
    executor.wait_for_line("joined ");
    let [run, _, _] = clients(&address);
    let mut run = traced(&[&run[..], &["--report", "report.json"]].concat());
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    // It would remove its files meanwhile.
    executor.kill();
    for (name, process) in [("scheduler", &scheduler), ("executor", &executor), ("run", &run)] {
        let stderr = process.stderr();
        assert!(stderr.contains("TRACE"), "{name}");
        assert!(!stderr.contains(SECRET), "{name}");
        let arguments = format!("/proc/{}/cmdline", process.pid().as_raw_nonzero());
        assert!(!fs::read_to_string(arguments).unwrap_or_default().contains(SECRET), "{name}");
    }
    let files = names(folder.path());
    assert!(files.contains("report.json") && files.contains("out/_manifest.json"), "{files:?}");
    for name in files.iter().filter(|name| *name != "secret") {
        let bytes = folder.read(name);
        assert!(!bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()), "{name}");
    }
}
