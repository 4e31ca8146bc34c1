//! Runs that fail while they receive: what was received cannot be read again.

use std::time::Duration;

use crate::kit::{Folder, ProgramOutput, events, run_sluice, sluice};
use crate::recorder::{Recorder, Sender};

use super::report;

/// Receives into `log.lcm`, and into a node that fails once it has got something.
fn fail_while_receiving(failing: &str) -> (Folder, ProgramOutput) {
    let (folder, mut sender) = (Folder::new(), Sender::new());
    let url = sender.url();
    let text = format!(
        "[sources.live]\nplugin = \"lcm-udp\"\nurl = \"{url}\"\ninterface = \"lo\"\n\
         [sinks.log]\nplugin = \"lcm-log\"\nfrom = \"live\"\npath = \"log.lcm\"\n{failing}"
    );
    folder.write("p.toml", text);
    let mut run = sluice(&folder);
    run.args(["run", "p.toml", "--allow-exec", "--report", "report.json"]);
    let mut run = Recorder::start(run);
    while run.child.try_wait().unwrap().is_none() {
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
