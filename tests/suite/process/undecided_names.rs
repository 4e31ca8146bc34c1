//! Names of channels that a run can neither meet nor call wrong, as it reads only a part.

use crate::kit::{Folder, drive, log, run_sluice};

const NOTE: &str = "`NOPE`: no channel matched before reading ended early";

#[test]
fn a_name_that_does_not_come_before_a_limit_is_a_note_also_if_strict() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 20_000)));
    let first = ["cat", "in.lcm", "-c", "*", "-c", "NOPE", "--limit", "2"];
    for strict in [&[][..], &["--strict"]] {
        let shown = run_sluice(&folder, &[&first[..], strict].concat()).expect(0);
        shown.expect_stderr(&format!("note: --channel: {NOTE}"));
    }
    let json = run_sluice(&folder, &[&first[..], &["--log-format", "json"]].concat()).expect(0);
    let mut lines = json.stderr.lines().map(|line| serde_json::from_str(line).unwrap());
    let note = lines.find(|line: &serde_json::Value| line["kind"] == "note").unwrap();
    assert_eq!((&note["node"], &note["what"]), (&"keep".into(), &NOTE.into()), "{note}");
    assert_eq!(note["message"], format!("--channel: {NOTE}"));
    // What is left out need not come.
    let without = run_sluice(&folder, &["cat", "in.lcm", "-x", "NOPE", "--limit", "2"]).expect(0);
    assert!(!without.stderr.contains("NOPE"), "{}", without.stderr);
    let all = ["cat", "in.lcm", "-c", "NOPE", "--limit", "2", "--strict"];
    run_sluice(&folder, &all)
        .expect(2)
        .expect_stderr("error: --channel: no channel matches `NOPE`");
}

#[test]
fn a_name_behind_a_limit_is_a_note_unless_everything_is_read_for_another_sink() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 20_000)));
    let behind = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
                  [stages.few]\nplugin = \"limit\"\nfrom = \"log\"\nevents = 3\n\
                  [stages.keep]\nplugin = \"filter\"\nfrom = \"few\"\nchannels = [\"NOPE\"]\n\
                  [sinks.out]\nplugin = \"null\"\nfrom = \"keep\"\n";
    folder.write("behind.toml", behind);
    let ran = run_sluice(&folder, &["run", "behind.toml", "--strict"]).expect(0);
    ran.expect_stderr(&format!("note: keep: `channels`: {NOTE}"));
    folder.write("all.toml", format!("{behind}[sinks.all]\nplugin = \"null\"\nfrom = \"log\"\n"));
    let ran = run_sluice(&folder, &["run", "all.toml", "--strict"]).expect(2);
    ran.expect_stderr("error: keep: `channels`: no channel matches `NOPE`");
}
