//! Full disks, and folders that disappear during a run: the run fails, says where and why, and
//! leaves nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use sluice_model::{PluginKind, Registry};

use crate::kit::{Folder, LcmEvent, ProgramOutput, drive, log, report_skip, run_sluice, sluice};

/// Every sink that writes files, its path, and further options.
const SINKS: [(&str, &str, &str); 16] = [
    ("lcm-log", "out.lcm", ""),
    ("lcm-log", "out.lcm.zst", ""),
    ("lcm-log", "parts/", "split_mb = 0.0625"),
    ("vel", "out.vel", ""),
    ("orca", "orca/log.txt", ""),
    ("mcap", "out.mcap", "chunk = \"4KiB\""),
    ("archive", "out.lcm.zst", ""),
    ("archive", "out.arrow.zst", "format = \"arrow\""),
    ("parquet", "out.parquet", ""),
    ("parquet", "tables/", ""),
    ("jsonl", "out.jsonl", "payload = true"),
    ("csv", "out.csv", "payload = \"hex\""),
    ("text", "out.txt", ""),
    ("files", "files/", ""),
    ("las", "out.las", ""),
    ("las", "clouds/", ""),
];

/// Sinks not tested, and why.
const EXCEPTIONS: [(&str, &str); 7] = [
    ("exec", "its program writes, not the sink"),
    ("expectations", "it writes once, at the end"),
    ("foxglove-layout", "it writes once, at the end"),
    ("lcm-udp", "it writes to a network"),
    ("lerobot", "it takes rows only; its own tests let each step of its output fail"),
    ("null", "it writes nothing"),
    ("report", "it writes once, at the end"),
];

#[test]
fn every_sink_is_tried_or_there_is_a_reason_why_not() {
    let names = SINKS.iter().map(|(name, ..)| *name);
    let tried: BTreeSet<&str> = names.chain(EXCEPTIONS.map(|(name, _)| name)).collect();
    assert_eq!(tried, Registry::linked().names(PluginKind::Sink).into_iter().collect());
}

const EVENTS: &str = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n";

/// A source of points.
const POINTS: &str = "[sources.drive]\nplugin = \"demo\"\nseconds = 0.1\n\
    [stages.few]\nplugin = \"filter\"\nfrom = \"drive\"\nchannels = [\"VELODYNE\"]\n\
    [stages.log]\nplugin = \"velodyne\"\nfrom = \"few\"\n";

fn pipeline(sink: &str, path: &str, options: &str) -> String {
    let events = if sink == "las" { POINTS } else { EVENTS };
    format!(
        "{events}[sinks.out]\nplugin = \"{sink}\"\nfrom = \"log\"\npath = \"disk/{path}\"\n\
         {options}\n"
    )
}

/// A log that does not compress.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 1_500)));
    fs::create_dir(folder.at("disk")).unwrap();
    folder
}

/// Mounts a small disk in a private mount namespace, runs the command, and lists the files on the
/// disk afterwards.
const ON_SMALL_DISK: &str = "mount -t tmpfs -o size=96k,nr_inodes=100000 tmpfs disk";

fn on_small_disk(folder: &Folder, arguments: &[&str]) -> Option<(ProgramOutput, String)> {
    let program = crate::PROGRAM;
    let line = format!(
        "{ON_SMALL_DISK} || exit 99; \"$0\" \"$@\"; code=$?; find disk -mindepth 1; exit $code"
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &line, program]);
    let output = command.args(arguments).current_dir(folder.path()).stdin(Stdio::null()).output();
    let ran = ProgramOutput::from_output(output.ok()?);
    // If namespaces or mounts are not allowed, the program has not run.
    let was_run = ran.code != Some(99) && !ran.stderr.contains("unshare");
    was_run.then(|| {
        let left = ran.text();
        (ran, left)
    })
}

#[test]
fn every_sink_reports_a_full_disk_and_leaves_it_empty() {
    let folder = folder();
    for (sink, path, options) in SINKS {
        folder.write("run.toml", pipeline(sink, path, options));
        let Some((ran, left)) = on_small_disk(&folder, &["run", "run.toml"]) else {
            return report_skip("sinks on a disk that fills up: this user may not mount one");
        };
        let ran = ran.expect(1).expect_stderr("no space left");
        ran.expect_stderr("disk");
        assert_eq!(left, "", "{sink} {path}");
    }
}

#[test]
fn every_sink_reports_a_file_size_limit_and_leaves_nothing() {
    let folder = folder();
    for (sink, path, options) in SINKS {
        let events: Vec<LcmEvent> = drive(1, 1_500);
        // One file per event never becomes long.
        if sink == "files" || path == "parts/" {
            continue;
        }
        folder.write("in.lcm", log(&events));
        folder.write("run.toml", pipeline(sink, path, options));
        let limited = super::run_after_shell_line(&folder, "ulimit -f 16", &["run", "run.toml"]);
        limited.expect(1).expect_stderr("larger than the system allows").expect_stderr("disk/");
        assert_eq!(
            super::files(&folder.at("disk")),
            Vec::<std::path::PathBuf>::new(),
            "{sink} {path}"
        );
        run_sluice(&folder, &["run", "run.toml"]).expect(0);
        fs::remove_dir_all(folder.at("disk")).unwrap();
        fs::create_dir(folder.at("disk")).unwrap();
    }
}

#[test]
fn a_quarantine_on_a_full_disk_fails_the_run() {
    let folder = folder();
    let whole = folder.read("in.lcm");
    folder.write("in.lcm", [&whole[..1_000], &[7; 5_000], &whole[1_000..]].concat());
    let text = pipeline("lcm-log", "out.lcm", "").replace(
        "path = \"in.lcm\"\n",
        "path = \"in.lcm\"\non_damage = \"quarantine\"\nquarantine = \"/dev/full\"\n",
    );
    folder.write("run.toml", text);
    run_sluice(&folder, &["run", "run.toml"])
        .expect(1)
        .expect_stderr("no space left")
        .expect_stderr("/dev/full");
    assert!(super::files(&folder.at("disk")).is_empty());
}

#[test]
fn a_report_that_cannot_be_written_does_not_undo_the_outputs() {
    let folder = folder();
    let convert = ["convert", "in.lcm", "--to", "out.lcm", "--report", "/dev/full"];
    let output = run_sluice(&folder, &convert)
        .expect(1)
        .expect_stderr("no space left")
        .expect_stderr("/dev/full");
    output.expect_stderr("the outputs are complete");
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
}

#[test]
fn a_full_standard_output_fails_and_nothing_is_published() {
    let folder = folder();
    for arguments in [&["cat", "in.lcm"][..], &["info", "in.lcm"], &["plugins"]] {
        let mut command = sluice(&folder);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command.args(arguments).stdout(full).stderr(Stdio::piped()).output();
        ProgramOutput::from_output(output.unwrap())
            .expect(1)
            .expect_stderr("standard output")
            .expect_stderr("no space left");
    }
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
        [sinks.a]\nplugin = \"jsonl\"\nfrom = \"log\"\npath = \"-\"\n\
        [sinks.b]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out.lcm\"\n";
    folder.write("run.toml", text);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = sluice(&folder).args(["run", "run.toml"]).stdout(full).output().unwrap();
    ProgramOutput::from_output(run).expect(1).expect_stderr("no space left");
    assert_eq!(folder.names(), ["disk", "in.lcm", "run.toml"]);
}

/// Waits until a run has started writing to a folder.
fn wait_for_something_in(folder: &Path) {
    while fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_folder_that_is_removed_while_it_is_written_to_fails_the_run() {
    for (sink, path) in [("lcm-log", "out.lcm"), ("archive", "out.lcm.zst"), ("files", "files/")] {
        let folder = folder();
        let text = pipeline(sink, path, "").replace("in.lcm", "-");
        folder.write("run.toml", text);
        let mut command = sluice(&folder);
        command.args(["run", "run.toml"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let (whole, mut pipe) = (folder.read("in.lcm"), running.stdin.take().unwrap());
        pipe.write_all(&whole[..whole.len() / 2]).unwrap();
        wait_for_something_in(&folder.at("disk"));
        fs::remove_dir_all(folder.at("disk")).unwrap();
        // A run that has already failed no longer reads.
        drop(pipe.write_all(&whole[whole.len() / 2..]));
        drop(pipe);
        let ended = ProgramOutput::from_output(running.wait_with_output().unwrap()).expect(1);
        ended.expect_stderr("disk/").expect_stderr("no such file or folder");
        assert!(super::files(&folder.at("disk")).is_empty());
    }
}

#[test]
fn an_output_on_another_file_system_is_written_there() {
    let folder = folder();
    let shared = Path::new("/dev/shm");
    let Ok(there) = tempfile::tempdir_in(shared) else {
        return report_skip("an output on another file system: there is no /dev/shm");
    };
    let out = there.path().join("out.lcm");
    std::os::unix::fs::symlink(&out, folder.at("link.lcm")).unwrap();
    fs::write(&out, "old").unwrap();
    run_sluice(&folder, &["convert", "in.lcm", "--to", "link.lcm", "--overwrite"]).expect(0);
    assert!(fs::read(&out).unwrap() == folder.read("in.lcm"));
    assert!(folder.at("link.lcm").is_symlink());
    assert_eq!(fs::read_dir(there.path()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_printed_is_a_failure() {
    let folder = Folder::new();
    for line in [&["--help"][..], &["--version"], &["help", "run"], &["run", "-h"], &["plugins"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = crate::kit::sluice(&folder);
        let ran = command.args(line).stdout(full).output().unwrap();
        ProgramOutput::from_output(ran)
            .expect(1)
            .expect_stderr("cannot write standard output: no space left on the device");
    }
}

#[test]
fn manual_pages_are_written_whole_or_not_at_all() {
    let folder = Folder::new();
    super::run_after_shell_line(&folder, "trap '' XFSZ; ulimit -f 4", &["man", "--dir", "pages"])
        .expect(1)
        .expect_stderr("the file would become larger than the system allows");
    assert!(super::files(&folder.at("pages")).is_empty());
    for _ in 0..2 {
        run_sluice(&folder, &["man", "--dir", "pages"]).expect(0);
        let page = folder.read("pages/sluice-convert.1");
        assert!(page.ends_with(b"\n") && folder.at("pages/sluice.1").exists());
        folder.write("pages/sluice-convert.1", "old");
    }
}
