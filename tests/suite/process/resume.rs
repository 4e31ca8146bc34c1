//! `--resume` where an input cannot be read again.

use std::io::Write;
use std::process::Stdio;

use crate::kit::{Folder, ProgramOutput, drive, log, sluice};
use crate::recorder::Sender;

fn convert_stdin(folder: &Folder, to: &str, bytes: &[u8]) -> ProgramOutput {
    let report = ["--resume", "--report", "report.json"];
    let convert = [&["convert", "-", "--from", "lcm-log", "--to", to], &report[..]].concat();
    let mut command = sluice(folder);
    command.args(convert).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may be refused before it reads anything.
    drop(child.stdin.take().unwrap().write_all(bytes));
    ProgramOutput::from_output(child.wait_with_output().unwrap())
}

#[test]
fn what_came_from_standard_input_is_not_replaced() {
    let folder = Folder::new();
    for to in ["out.lcm", "tables/", "batch/{index}.lcm"] {
        convert_stdin(&folder, to, &log(&drive(1, 20))).expect(0);
        convert_stdin(&folder, to, &log(&drive(1, 2)))
            .expect(2)
            .expect_stderr("- cannot be; write elsewhere, or replace the output with --overwrite")
            .expect_stderr(to.split('{').next().unwrap());
        // The report of the run that made it stays.
        let report: serde_json::Value =
            serde_json::from_slice(&folder.read("report.json")).unwrap();
        assert_eq!(report["exit"], 0, "{to}");
    }
    assert_eq!(folder.read("batch/00000.lcm"), log(&drive(1, 20)));
    assert_eq!(folder.read("out.lcm"), log(&drive(1, 20)));
}

#[test]
fn what_was_received_live_is_not_replaced() {
    let (folder, sender) = (Folder::new(), Sender::new());
    let pipeline = format!(
        "[sources.live]\nplugin = \"lcm-udp\"\nurl = \"{}\"\ninterface = \"lo\"\n\
         duration = 0.1\n\
         [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"live\"\npath = \"out.lcm\"\n",
        sender.url()
    );
    folder.write("live.toml", pipeline);
    let resume = || {
        let output = sluice(&folder).args(["run", "live.toml", "--resume"]).output().unwrap();
        ProgramOutput::from_output(output)
    };
    resume().expect(0);
    resume().expect(2).expect_stderr("cannot be; write elsewhere").expect_stderr("out.lcm");
}
