//! The kit finds the defect of sources that each have one, and finds nothing in a valid source.

mod notes;
mod stations;
mod summed;
pub(crate) mod toy;

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_conformance::{Finding, Integrity, Promise, SourceTrial, source};

use crate::found::expect_findings;
use toy::file;

fn trial(plugin: &str) -> SourceTrial {
    source(plugin).sample("a.toy", file(8))
}

#[test]
fn a_sound_source_has_no_findings() {
    trial("toy").check();
}

#[test]
fn a_sound_source_has_no_findings_on_a_long_sample() {
    source("toy").sample("a.toy", file(400)).check();
}

#[test]
fn other_seeds_find_nothing_in_a_sound_source() {
    for_seed(2);
}

#[test]
fn a_sound_source_whose_events_need_a_next_one_has_no_findings() {
    let log = [&file(8)[..], toy::END].concat();
    for seed in 1..=3 {
        source("needs-next").sample("a.toy", log.clone()).seed(seed).check();
    }
}

fn for_seed(seed: u64) {
    trial("toy").seed(seed).check();
}

#[test]
fn what_is_found_is_the_same_every_time() {
    // What is kept of a trial lies in a folder that is named after its place in the test.
    let plain = |findings: Vec<Finding>| -> Vec<String> {
        let words = |finding: Finding| finding.what.replace("-0/", "-N/").replace("-1/", "-N/");
        findings.into_iter().map(words).collect()
    };
    let first = plain(trial("tells-too-much-damage").findings());
    assert_eq!(first, plain(trial("tells-too-much-damage").findings()));
}

#[test]
fn a_source_that_is_not_linked_is_reported() {
    expect_findings(
        &source("nobody").findings(),
        &[Promise::Options],
        &["no source is registered"],
    );
}

#[test]
fn unknown_options_that_are_taken() {
    expect_findings(&trial("loose").findings(), &[Promise::Options], &["deny_unknown_fields"]);
}

#[test]
fn an_option_that_is_not_explained() {
    expect_findings(
        &trial("untold").findings(),
        &[Promise::Options],
        &["`colour` has no doc comment"],
    );
}

#[test]
fn a_sample_that_is_no_toml() {
    expect_findings(&trial("no-toml").findings(), &[Promise::Sample], &["not TOML"]);
}

#[test]
fn a_sample_that_does_not_show_an_option() {
    expect_findings(
        &trial("shows-nothing").findings(),
        &[Promise::Sample],
        &["`path = …`", "needs the option"],
    );
}

#[test]
fn a_description_that_is_no_line() {
    expect_findings(&trial("talks").findings(), &[Promise::Options], &["`about`"]);
}

#[test]
fn files_of_others_that_are_claimed() {
    expect_findings(&trial("claims-pictures").findings(), &[Promise::Sniffing], &["PNG"]);
}

#[test]
fn files_of_others_that_it_reads_as_it_says() {
    trial("claims-pictures").reads(&["PNG"]).check();
}

#[test]
fn a_sample_that_is_not_known_as_its_own() {
    let findings = source("toy").sample("a.other", file(8)).findings();
    expect_findings(&findings, &[Promise::Sniffing], &["not recognised as its own"]);
}

#[test]
fn sniffing_that_panics_on_short_files() {
    expect_findings(&trial("panics-on-heads").findings(), &[Promise::NoPanic], &["empty"]);
}

#[test]
fn an_event_that_is_lost_at_a_seam() {
    let findings = trial("loses-at-seams").findings();
    expect_findings(&findings, &[Promise::Splitting], &["in pieces of 1 bytes"]);
}

#[test]
fn what_depends_on_threads() {
    expect_findings(&trial("depends-on-threads").findings(), &[Promise::Threads], &["1 threads"]);
}

#[test]
fn numbers_that_depend_on_the_order_of_reading() {
    let findings = trial("counts").findings();
    expect_findings(&findings, &[Promise::Threads], &["the last one first", "in pieces of"]);
}

#[test]
fn events_that_are_missing_where_not_all_is_asked_for() {
    let findings = trial("loses-in-windows").findings();
    expect_findings(&findings, &[Promise::Query], &["asked for times from"]);
}

#[test]
fn a_window_whose_last_event_is_missing() {
    expect_findings(&trial("misses-last-in-windows").findings(), &[Promise::Query], &["to before"]);
}

#[test]
fn a_number_of_events_that_is_not_theirs() {
    expect_findings(&trial("miscounts").findings(), &[Promise::Accounting], &["3 instead of 8"]);
}

#[test]
fn the_number_of_events_of_a_sound_source_is_right() {
    trial("toy").events(8).check();
}

#[test]
fn a_first_event_that_is_always_lost_is_missing_from_the_expected_number() {
    let findings = trial("loses-first").events(8).findings();
    expect_findings(&findings, &[Promise::Accounting], &["yields 7 events instead of 8"]);
}

#[test]
fn a_last_event_that_is_always_lost_is_missing_from_the_expected_number() {
    let findings = trial("loses-last").events(8).findings();
    expect_findings(&findings, &[Promise::Accounting], &["yields 7 events instead of 8"]);
}

#[test]
fn an_error_at_the_first_damage() {
    let findings = trial("gives-up").findings();
    let words = ["a cut loses events", "damage ends the reading, though"];
    expect_findings(&findings, &[Promise::Damage], &words);
}

#[test]
fn a_damaged_file_of_which_nothing_is_given() {
    let findings = trial("gives-nothing-of-damaged").findings();
    let words = ["a cut loses events", "valid events before damage are lost"];
    expect_findings(&findings, &[Promise::Damage], &words);
}

#[test]
fn a_format_that_is_whole_or_nothing_and_says_so() {
    trial("gives-up").whole_or_nothing().check();
    trial("gives-nothing-of-damaged").whole_or_nothing().check();
}

#[test]
fn two_runs_of_the_same_test_at_once() {
    let run = || {
        let name = "a_sound_source_has_no_findings".to_owned();
        let run = std::thread::Builder::new().name(name);
        run.spawn(|| trial("toy").findings()).unwrap()
    };
    for run in [run(), run()] {
        assert_eq!(run.join().unwrap(), []);
    }
}

/// The child of this process.
#[cfg(target_os = "linux")]
fn child_of(parent: u32) -> Option<std::path::PathBuf> {
    let processes =
        std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_child = |process: &std::path::PathBuf| {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let behind_name = stat.rsplit(')').next().unwrap_or_default();
        behind_name.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    processes.filter(|process| process.join("stat").exists()).find(is_child)
}

#[cfg(target_os = "linux")]
#[test]
fn a_source_that_hangs_does_not_outlive_a_test_that_is_killed() {
    let mut test = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["sources::a_loop_without_end", "--exact"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let child = loop {
        if let Some(child) = child_of(test.id()) {
            break child;
        }
        assert!(test.try_wait().unwrap().is_none(), "the test has ended without a child");
    };
    test.kill().unwrap();
    test.wait().unwrap();
    // If it stays, so does this test.
    let is_gone = |stat: &str| stat.is_empty() || stat.contains(") Z ");
    while !is_gone(&std::fs::read_to_string(child.join("stat")).unwrap_or_default()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_panic_on_a_length() {
    let findings = trial("panics").findings();
    expect_findings(&findings, &[Promise::NoPanic], &["a length of", "set to", "more cases"]);
}

#[test]
fn recursion_without_end() {
    let findings = trial("overflows-stack").findings();
    expect_findings(&findings, &[Promise::NoPanic], &["overflows the stack", "set to"]);
}

#[test]
fn a_process_that_ends() {
    expect_findings(&trial("aborts").findings(), &[Promise::NoPanic], &["signal: 6", "set to"]);
}

#[test]
fn a_loop_without_end() {
    let findings = trial("hangs").patience(Duration::from_secs(2)).findings();
    expect_findings(
        &findings,
        &[Promise::Termination],
        &["does not terminate", "ff ff ff ff", "not tried"],
    );
}

#[test]
fn empty_batches_without_end() {
    let findings = trial("gives-nothing-for-ever").findings();
    expect_findings(&findings, &[Promise::Termination], &["empty batches"]);
}

#[test]
fn events_without_end() {
    let findings = trial("gives-events-for-ever").findings();
    let promises: BTreeSet<Promise> = findings.iter().map(|finding| finding.promise).collect();
    assert!(promises.contains(&Promise::Termination), "{findings:?}");
}

#[test]
fn memory_for_what_a_length_says() {
    let findings = trial("believes-lengths").findings();
    expect_findings(&findings, &[Promise::Memory], &["memory allocation of", "set to"]);
}

#[test]
fn a_cut_payload_that_is_passed_on() {
    let findings = trial("passes-cut-payloads").findings();
    expect_findings(
        &findings,
        &[Promise::Damage],
        &["the whole file does not have", "cut off at byte"],
    );
}

#[test]
fn the_rest_of_a_file_that_is_swallowed() {
    let findings = trial("swallows-the-rest").findings();
    expect_findings(&findings, &[Promise::Damage], &["lost silently", "is not reported"]);
}

#[test]
fn damage_beyond_the_file() {
    let findings = trial("tells-too-much-damage").findings();
    expect_findings(&findings, &[Promise::Damage], &["bytes that the file does not have"]);
}

#[test]
fn more_is_lost_than_is_reported() {
    let findings = trial("tells-too-little-damage").findings();
    expect_findings(&findings, &[Promise::Damage], &["more is lost than is reported"]);
}

#[test]
fn damage_that_starts_in_an_event_that_is_returned() {
    let findings = trial("tells-damage-too-early").findings();
    expect_findings(&findings, &[Promise::Damage], &["a part of an event that is returned"]);
}

#[test]
fn events_that_come_twice_after_damage() {
    let findings = trial("repeats-after-damage").findings();
    expect_findings(&findings, &[Promise::Damage], &["in another order, or twice"]);
}

#[test]
fn an_error_that_does_not_say_where() {
    let findings = trial("fails-without-a-name").findings();
    expect_findings(
        &findings,
        &[Promise::Damage],
        &["does not name its file", "something is wrong"],
    );
}

#[test]
fn a_sound_sample_that_cannot_be_read() {
    let findings = trial("fails-on-sound-files").findings();
    expect_findings(&findings, &[Promise::Damage], &["it is not Monday"]);
}

#[test]
fn a_cut_header_that_is_not_reported() {
    let findings = trial("ignores-cut-headers").findings();
    expect_findings(&findings, &[Promise::Damage], &["cut inside an event"]);
}

#[test]
fn changed_bytes_that_a_checksum_would_have_noticed() {
    let findings = trial("toy").integrity(Integrity::Checksummed).findings();
    expect_findings(&findings, &[Promise::Damage], &["changed bytes are passed on as events"]);
}

#[test]
fn a_sample_without_events() {
    let findings = source("toy").sample("a.toy", b"").findings();
    expect_findings(&findings, &[Promise::Damage], &["has no event"]);
}

#[test]
fn the_changed_file_is_kept_where_the_finding_says() {
    let findings = trial("panics").findings();
    let what = &findings[0].what;
    let folder = what.split("(kept in ").nth(1).unwrap().split(')').next().unwrap();
    let kept = std::fs::read(std::path::Path::new(folder).join("a.toy")).unwrap();
    assert_ne!(kept, file(8));
}
