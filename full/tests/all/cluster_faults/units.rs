//! Units that fail, kill their process, run out of disk space, or are not visible to an executor.

use std::process::Command;

use super::{BATCH, GatedBatch};
use crate::cluster::{assert_same_files, read_tree};
use crate::kit::{drive, log, report_skip};

/// Kills its parent when it sees a certain word.
const KILLER: &str = r#"
events=$(mktemp places/XXXXXX)
cat > "$events"
if grep -q POISON "$events"; then
    rm "$events"
    kill -9 $PPID
    exit 1
fi
exec cat "$events"
"#;

/// Logs of which the third is given.
fn logs(third: Vec<u8>) -> impl Iterator<Item = Vec<u8>> {
    (0..5).map(move |n| if n == 2 { third.clone() } else { log(&drive(n + 1, 300)) })
}

/// A log with this text in an event.
fn log_with_text(text: &str) -> Vec<u8> {
    let mut events = drive(3, 300);
    events[100].payload = text.repeat(10).into_bytes();
    log(&events)
}

#[test]
fn a_unit_that_kills_its_process_is_given_up_and_affects_no_other() {
    let gated = GatedBatch::with(BATCH, KILLER, logs(log_with_text("HARMLESS")));
    let cluster = gated.cluster(2);
    gated.folder.write("in/002.lcm", log_with_text("POISON"));
    let mut run = gated.start(&cluster, &[]);
    assert_eq!(run.code(), Some(1), "{}", run.stderr());
    let stderr = run.stderr();
    assert!(stderr.contains("in/002.lcm failed: its process ended without a result"), "{stderr}");
    assert!(stderr.contains("SIGKILL"), "{stderr}");
    assert!(stderr.contains("4 inputs done, 1 failed"), "{stderr}");
    // It was retried, and that was reported.
    assert_eq!(stderr.matches("in/002.lcm: failed on ").count(), 2, "{stderr}");
    // Either may have run it each time.
    let failed = |stderr: &str| stderr.matches("in/002.lcm: failed on ").count();
    let by_each = cluster.executors.iter().map(|executor| failed(&executor.stderr()));
    assert_eq!(by_each.sum::<usize>(), 2);
    repair_and_resume(&gated, &cluster, log_with_text("HARMLESS"));
}

#[test]
fn a_unit_that_fails_on_damage_is_the_only_one_resumed() {
    let batch = BATCH.replace("path = \"in/*.lcm\"", "path = \"in/*.lcm\"\non_damage = \"stop\"");
    let whole = log(&drive(3, 300));
    let gated = GatedBatch::with(&batch, "exec cat", logs(whole.clone()));
    let cluster = gated.cluster(2);
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 600].fill(0);
    gated.folder.write("in/002.lcm", damaged);
    let mut run = gated.start(&cluster, &[]);
    assert_eq!(run.code(), Some(1), "{}", run.stderr());
    let stderr = run.stderr();
    assert!(stderr.contains("in/002.lcm failed: "), "{stderr}");
    assert!(stderr.contains("4 inputs done, 1 failed"), "{stderr}");
    assert!(!stderr.contains("will be retried"), "{stderr}");
    repair_and_resume(&gated, &cluster, whole);
}

/// With its input repaired, only the failed unit runs again.
#[track_caller]
fn repair_and_resume(
    gated: &GatedBatch,
    cluster: &crate::cluster::processes::Cluster,
    input: Vec<u8>,
) {
    gated.until_quiet();
    assert!(!gated.folder.at("out/002.lcm.zst").exists());
    assert!(!gated.folder.at("out/tables/002").exists());
    assert!(super::hidden(gated.folder.path()).is_empty());
    gated.folder.write("in/002.lcm", input);
    let mut run = gated.start(cluster, &["--resume"]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    assert!(run.stderr().contains("1 input done, 4 done before"), "{}", run.stderr());
    gated.assert_complete();
}

#[test]
fn units_of_an_executor_that_cannot_write_are_reassigned() {
    let gated = GatedBatch::with_logs(6);
    let mut cluster = gated.cluster(1);
    // Files there are limited to four kilobytes.
    let program = crate::PROGRAM;
    let limited = gated.executor_by(&["prlimit", "--fsize=4096", program], &cluster.address);
    limited.wait_for_line("joined ");
    cluster.executors.push(limited);
    let mut run = gated.start(&cluster, &[]);
    let code = run.code();
    // A unit that failed there three times is given up.
    assert!(matches!(code, Some(0 | 1)), "{code:?} {}", run.stderr());
    gated.until_quiet();
    if code == Some(1) {
        assert!(run.stderr().contains(" failed: "), "{}", run.stderr());
        cluster.executors.truncate(1);
        super::until_executors(&gated, &cluster, 1);
        let mut run = gated.start(&cluster, &["--resume"]);
        assert_eq!(run.code(), Some(0), "{}", run.stderr());
    }
    gated.assert_complete();
}

#[test]
fn a_process_runs_one_unit_after_the_other() {
    let note_parent = "echo $PPID >> pids; printf unfinished >&2; exec cat";
    let logs = (0..6).map(|n| log(&drive(n + 1, 200)));
    let gated = GatedBatch::with(BATCH, note_parent, logs);
    std::fs::remove_file(gated.folder.at("pids")).unwrap();
    let cluster = gated.cluster(1);
    let mut run = gated.start(&cluster, &[]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    let pids = std::fs::read_to_string(gated.folder.at("pids")).unwrap();
    let mut pids: Vec<&str> = pids.lines().collect();
    assert_eq!(pids.len(), 6);
    pids.dedup();
    // On a slow machine a process may have waited too long.
    assert!(pids.len() < 6, "{pids:?}");
    gated.until_quiet();
    assert_same_files(&gated.expected, &read_tree(&gated.folder.at("out")));
}

#[test]
fn full_disks_are_reported_and_leave_no_partial_output() {
    let gated = GatedBatch::with_logs(3);
    let mut cluster = gated.cluster(0);
    let program = crate::PROGRAM;
    let limited = gated.executor_by(&["prlimit", "--fsize=4096", program], &cluster.address);
    cluster.executors.push(limited);
    let mut run = gated.start(&cluster, &[]);
    assert_eq!(run.code(), Some(1), "{}", run.stderr());
    let stderr = run.stderr();
    assert!(stderr.contains("0 inputs done, 3 failed"), "{stderr}");
    gated.until_quiet();
    assert_eq!(gated.published(), 0);
    assert!(super::hidden(gated.folder.path()).is_empty());
}

/// A command prefix that hides this folder from a program; `None` if that is not permitted.
fn hide_folder(folder: &std::path::Path) -> Option<Vec<String>> {
    let hide = format!("mount -t tmpfs none '{}' && exec \"$0\" \"$@\"", folder.display());
    let words = ["unshare", "-r", "-m", "sh", "-c", &hide];
    let allowed = Command::new("unshare").args(&words[1..]).arg("true").output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        report_skip("no process may have file systems of its own here");
        return None;
    }
    Some(words.map(str::to_owned).to_vec())
}

/// Runs the batch on an executor that cannot see one of its folders; returns the messages.
fn run_blind(gated: &GatedBatch, hidden: &std::path::Path) -> Option<String> {
    let mut words = hide_folder(hidden)?;
    words.push(crate::PROGRAM.to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut cluster = gated.cluster(0);
    cluster.executors.push(gated.executor_by(&words, &cluster.address));
    let mut run = gated.start(&cluster, &[]);
    assert_eq!(run.code(), Some(1), "{}", run.stderr());
    gated.until_quiet();
    assert_eq!(gated.published(), 0);
    assert!(super::hidden(gated.folder.path()).is_empty());
    Some(run.stderr())
}

#[test]
fn an_executor_that_cannot_see_the_run_folder_is_named() {
    let gated = GatedBatch::with_logs(2);
    let Some(stderr) = run_blind(&gated, gated.folder.path()) else { return };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let what = format!(
        "does not exist on {}: inputs and outputs must be visible to every executor",
        host.trim()
    );
    assert!(stderr.contains(&what), "no `{what}` in {stderr}");
    assert!(stderr.contains(&gated.folder.path().display().to_string()), "{stderr}");
}

#[test]
fn an_executor_that_cannot_see_inputs_is_named() {
    let gated = GatedBatch::with_logs(2);
    let Some(stderr) = run_blind(&gated, &gated.folder.at("in")) else { return };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(stderr.contains("in/000.lcm"), "{stderr}");
    assert!(stderr.contains(host.trim()), "{stderr}");
    assert!(stderr.contains("must be visible to every executor"), "{stderr}");
}
