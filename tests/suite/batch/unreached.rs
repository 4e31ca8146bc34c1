//! Inputs that a resumed batch does not come to: they stay as done as they were.

use std::fs;

use super::{folder, json};
use crate::kit::run_sluice;

const OUTPUT: &str = "out/{stem}.lcm";

#[test]
fn what_a_failed_resume_did_not_come_to_is_still_done() {
    let folder = folder();
    let convert = ["convert", "--from", "lcm-log", "--to", OUTPUT, "-j1"];
    let with = |more: &[&'static str]| [&convert[..], more].concat();
    let all = ["in/0.lcm", "in/1.lcm", "in/2.lcm"];
    run_sluice(&folder, &with(&all)).expect(0);
    folder.write("in/bad.lcm", "not a log");
    let resume = [&["in/bad.lcm"][..], &all, &["--resume"]].concat();
    run_sluice(&folder, &with(&resume)).expect(1).expect_stderr("3 inputs not started");
    let said = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(said.contains("1 input is not done (1 failed), of 4 in all"), "{said}");
    let manifest = json(&folder.read("out/_manifest.json"));
    assert_eq!(manifest["units"].as_array().unwrap().len(), 3);
    // One that has changed is not, and counts once.
    let changed = [folder.read("in/1.lcm"), folder.read("in/2.lcm")].concat();
    folder.write("in/1.lcm", changed);
    run_sluice(&folder, &with(&resume)).expect(1);
    let said = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    let left = "2 inputs are not done (1 failed, 1 not started), of 4 in all";
    assert!(said.contains(left), "{said}");
    // Nor is one whose output is gone, or whose pipeline is another one.
    fs::remove_file(folder.at("out/2.lcm")).unwrap();
    run_sluice(&folder, &with(&resume)).expect(1);
    let said = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(said.contains("(1 failed, 2 not started)"), "{said}");
    let other = [&resume[..], &["--sink-option", "renumber=true"]].concat();
    run_sluice(&folder, &with(&other)).expect(1);
    let said = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(said.contains("(1 failed, 3 not started), of 4 in all"), "{said}");
    fs::remove_file(folder.at("in/bad.lcm")).unwrap();
    run_sluice(&folder, &with(&[&all[..], &["--resume"]].concat())).expect(0);
    run_sluice(&folder, &["verify", "out"]).expect(0);
}

#[test]
fn what_a_resumed_part_did_not_come_to_is_still_done() {
    let folder = folder();
    let all = ["in/0.lcm", "in/1.lcm", "in/2.lcm", "in/3.lcm", "in/4.lcm"];
    let shard = |part: &'static str, more: &[&'static str]| {
        let convert = ["convert", "--from", "lcm-log", "--to", OUTPUT, "-j1", "--shard", part];
        run_sluice(&folder, &[&convert[..], &all, more].concat())
    };
    let whole = folder.read("in/0.lcm");
    shard("1/2", &[]).expect(0);
    shard("2/2", &[]).expect(0);
    folder.write("in/0.lcm", "not a log");
    shard("1/2", &["--resume"]).expect(1).expect_stderr("not started");
    let said = run_sluice(&folder, &["verify", "out"]).expect(1).text();
    assert!(said.contains("shard 1/2 is not complete: in/0.lcm is not done;"), "{said}");
    folder.write("in/0.lcm", whole);
    shard("1/2", &["--resume"]).expect(0);
    run_sluice(&folder, &["merge-manifests", "out"]).expect(0);
    run_sluice(&folder, &["verify", "out"]).expect(0);
}
