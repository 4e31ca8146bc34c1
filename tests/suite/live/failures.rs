//! Runs that fail while they receive: what was received cannot be read again.

use std::time::{Duration, Instant};

use crate::kit::{Folder, ProgramOutput, drive, events, log, run_sluice, sluice};
use crate::recorder::{PATIENCE, Recorder, Sender};

use super::report;

/// Receives into `log.lcm`, and into a node that fails once it has got something.
fn fail_while_receiving(failing: &str) -> (Folder, ProgramOutput) {
    fail_in(Folder::new(), failing, &[])
}

fn fail_in(folder: Folder, failing: &str, options: &[&str]) -> (Folder, ProgramOutput) {
    let mut sender = Sender::new();
    let url = sender.url();
    let text = format!(
        "[sources.live]\nplugin = \"lcm-udp\"\nurl = \"{url}\"\ninterface = \"lo\"\n\
         [sinks.log]\nplugin = \"lcm-log\"\nfrom = \"live\"\npath = \"log.lcm\"\n{failing}"
    );
    folder.write("p.toml", text);
    let mut run = sluice(&folder);
    run.args(["run", "p.toml", "--allow-exec", "--report", "report.json"]).args(options);
    let mut run = Recorder::start(run);
    let deadline = Instant::now() + PATIENCE;
    while run.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not fail");
        sender.send("A", b"x");
        std::thread::sleep(Duration::from_millis(5));
    }
    (folder, run.end())
}

/// Checks that the log, and nothing else, was published with what was received.
#[track_caller]
fn expect_log_kept(folder: &Folder, ran: ProgramOutput) {
    ran.expect(1)
        .expect_stderr("until the run failed is kept: log.lcm")
        .expect_stderr("exit code 7");
    assert_eq!(folder.names(), ["log.lcm", "p.toml", "report.json"]);
    let log = events(&folder.read("log.lcm"));
    assert!(!log.is_empty() && (0..).zip(&log).all(|(number, event)| event.number == number));
    let report = report(folder);
    assert!(report["error"].as_str().unwrap().contains("exit code 7"), "{report}");
    let files: Vec<&str> =
        report["files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!(files, ["log.lcm"]);
    run_sluice(folder, &["verify", "log.lcm"]).expect(0);
    run_sluice(folder, &["verify", "report.json"]).expect(1);
}

const ENDS: &str = r#"command = ["sh", "-c", "head -c 100 > /dev/null; exit 7"]"#;

#[test]
fn what_was_received_is_kept_if_another_sink_fails() {
    let failing = format!("[sinks.bad]\nplugin = \"exec\"\nfrom = \"live\"\n{ENDS}\n");
    let (folder, ran) = fail_while_receiving(&failing);
    expect_log_kept(&folder, ran);
}

#[test]
fn what_was_received_is_kept_if_a_stage_fails() {
    let failing = format!(
        "[stages.bad]\nplugin = \"exec\"\nfrom = \"live\"\n{ENDS}\n\
         [sinks.none]\nplugin = \"null\"\nfrom = \"bad\"\n"
    );
    let (folder, ran) = fail_while_receiving(&failing);
    expect_log_kept(&folder, ran);
}

#[test]
fn only_complete_outputs_of_what_was_received_are_published() {
    let (folder, old) = (Folder::new(), log(&drive(1, 1000)));
    for name in ["in.lcm", "copy.lcm", "after.lcm"] {
        folder.write(name, &old);
    }
    // One has read a file only, one gets nothing, and one may have files that are not complete.
    let more = format!(
        "split_mb = 100\n[sources.file]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
         [sinks.copy]\nplugin = \"lcm-log\"\nfrom = \"file\"\npath = \"copy.lcm\"\n\
         [stages.bad]\nplugin = \"exec\"\nfrom = \"live\"\n{ENDS}\n\
         [sinks.after]\nplugin = \"lcm-log\"\nfrom = \"bad\"\npath = \"after.lcm\"\n\
         [sinks.table]\nplugin = \"parquet\"\nfrom = \"live\"\npath = \"t/\"\n"
    );
    let (folder, ran) = fail_in(folder, &more, &["--overwrite"]);
    ran.expect(1).expect_stderr("until the run failed is kept").expect_stderr("exit code 7");
    assert!(["copy.lcm", "after.lcm"].iter().all(|name| folder.read(name) == old));
    let names = ["after.lcm", "copy.lcm", "in.lcm", "p.toml", "report.json", "t"];
    assert_eq!(folder.names(), names);
    assert!(!events_of_table(&folder).is_empty());
    let verified = run_sluice(&folder, &["verify", "t"]).expect(1).text();
    assert!(verified.contains("stopped before the end"), "{verified}");
}

/// The lines of the events in `t/`.
fn events_of_table(folder: &Folder) -> String {
    run_sluice(folder, &["cat", "t"]).expect(0).text()
}
