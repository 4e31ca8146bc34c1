//! Units that fail, kill their process, run out of disk space, or are not visible to an executor.

use std::process::Command;

use super::{BATCH, GatedBatch, at_work_in};
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
fn speaking(text: &str) -> Vec<u8> {
    let mut events = drive(3, 300);
    events[100].payload = text.repeat(10).into_bytes();
    log(&events)
}

#[test]
fn a_unit_that_kills_its_process_is_given_up_and_costs_no_other() {
    let held = GatedBatch::with(BATCH, KILLER, logs(speaking("HARMLESS")));
    let cluster = held.cluster(2);
    held.folder.write("in/002.lcm", speaking("POISON"));
    let mut run = held.start(&cluster, &[]);
    assert_eq!(run.code(), Some(1), "{}", run.said());
    let said = run.said();
    assert!(said.contains("in/002.lcm failed: its process ended without a result"), "{said}");
    assert!(said.contains("SIGKILL"), "{said}");
    assert!(said.contains("4 inputs done, 1 failed"), "{said}");
    // It was retried, and that was reported.
    assert_eq!(said.matches("in/002.lcm: failed on ").count(), 2, "{said}");
    assert!(cluster.executors.iter().all(|executor| executor.said().contains("in/")));
    mended(&held, &cluster, speaking("HARMLESS"));
}

#[test]
fn a_unit_with_damage_that_stops_it_is_reported_and_is_the_only_one_done_later() {
    let batch = BATCH.replace("path = \"in/*.lcm\"", "path = \"in/*.lcm\"\non_damage = \"stop\"");
    let whole = log(&drive(3, 300));
    let held = GatedBatch::with(&batch, "exec cat", logs(whole.clone()));
    let cluster = held.cluster(2);
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 600].fill(0);
    held.folder.write("in/002.lcm", damaged);
    let mut run = held.start(&cluster, &[]);
    assert_eq!(run.code(), Some(1), "{}", run.said());
    let said = run.said();
    assert!(said.contains("in/002.lcm failed: "), "{said}");
    assert!(said.contains("4 inputs done, 1 failed"), "{said}");
    assert!(!said.contains("will be retried"), "{said}");
    mended(&held, &cluster, whole);
}

/// With its input repaired, only the failed unit runs again.
#[track_caller]
fn mended(held: &GatedBatch, cluster: &crate::cluster::processes::Cluster, input: Vec<u8>) {
    held.until_quiet();
    assert!(!held.folder.at("out/002.lcm.zst").exists());
    assert!(!held.folder.at("out/tables/002").exists());
    assert!(super::hidden(held.folder.path()).is_empty());
    held.folder.write("in/002.lcm", input);
    let mut run = held.start(cluster, &["--resume"]);
    assert_eq!(run.code(), Some(0), "{}", run.said());
    assert!(run.said().contains("1 input done, 4 done before"), "{}", run.said());
    held.is_whole();
}

#[test]
fn an_executor_that_cannot_write_leaves_its_units_to_another_one() {
    let held = GatedBatch::with_logs(6);
    let mut cluster = held.cluster(1);
    // Files there are limited to four kilobytes.
    let program = crate::PROGRAM;
    let limited = held.executor_by(&["prlimit", "--fsize=4096", program], &cluster.address);
    limited.wait_for_line("joined ");
    cluster.executors.push(limited);
    let mut run = held.start(&cluster, &[]);
    let code = run.code();
    // A unit that failed there three times is given up.
    assert!(matches!(code, Some(0 | 1)), "{code:?} {}", run.said());
    held.until_quiet();
    if code == Some(1) {
        assert!(run.said().contains(" failed: "), "{}", run.said());
        cluster.executors.truncate(1);
        super::until_executors(&held, &cluster, 1);
        let mut run = held.start(&cluster, &["--resume"]);
        assert_eq!(run.code(), Some(0), "{}", run.said());
    }
    held.is_whole();
}

#[test]
fn a_disk_that_is_full_everywhere_is_told_and_leaves_nothing_half_written() {
    let held = GatedBatch::with_logs(3);
    let mut cluster = held.cluster(0);
    let program = crate::PROGRAM;
    let limited = held.executor_by(&["prlimit", "--fsize=4096", program], &cluster.address);
    cluster.executors.push(limited);
    let mut run = held.start(&cluster, &[]);
    assert_eq!(run.code(), Some(1), "{}", run.said());
    let said = run.said();
    assert!(said.contains("0 inputs done, 3 failed"), "{said}");
    held.until_quiet();
    assert_eq!(held.published(), 0);
    assert!(super::hidden(held.folder.path()).is_empty());
}

/// A command prefix that hides this folder from a program; `None` if that is not permitted.
fn blind_to(folder: &std::path::Path) -> Option<Vec<String>> {
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
fn run_blind(held: &GatedBatch, hidden: &std::path::Path) -> Option<String> {
    let mut words = blind_to(hidden)?;
    words.push(crate::PROGRAM.to_owned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut cluster = held.cluster(0);
    cluster.executors.push(held.executor_by(&words, &cluster.address));
    let mut run = held.start(&cluster, &[]);
    assert_eq!(run.code(), Some(1), "{}", run.said());
    assert!(at_work_in(&held.folder).is_empty());
    assert_eq!(held.published(), 0);
    assert!(super::hidden(held.folder.path()).is_empty());
    Some(run.said())
}

#[test]
fn an_executor_that_does_not_see_the_folder_of_a_run_is_told_of_by_name() {
    let held = GatedBatch::with_logs(2);
    let Some(said) = run_blind(&held, held.folder.path()) else { return };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let what = format!(
        "does not exist on {}: inputs and outputs must be visible to every executor",
        host.trim()
    );
    assert!(said.contains(&what), "no `{what}` in {said}");
    assert!(said.contains(&held.folder.path().display().to_string()), "{said}");
}

#[test]
fn an_executor_that_does_not_see_inputs_is_told_of_by_name() {
    let held = GatedBatch::with_logs(2);
    let Some(said) = run_blind(&held, &held.folder.at("in")) else { return };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(said.contains("in/000.lcm"), "{said}");
    assert!(said.contains(host.trim()), "{said}");
    assert!(said.contains("must be visible to every executor"), "{said}");
}
