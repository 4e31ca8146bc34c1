//! Extreme pipeline files: they run or are refused with little time and memory.

use std::fmt::Write;

use sluice_kit::contract::trials;

use crate::kit::{Folder, drive, log, run_sluice};

const SOURCE: &str = "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(1, 300)));
    folder
}

fn filter(name: &str, from: &str, what: &str) -> String {
    format!("[stages.{name}]\nplugin = \"filter\"\nfrom = {from}\n{what}\n")
}

fn sink(name: &str, from: &str, path: &str) -> String {
    format!("[sinks.{name}]\nplugin = \"lcm-log\"\nfrom = \"{from}\"\npath = \"{path}\"\n")
}

/// A chain of this many filters.
fn line(stages: usize) -> String {
    let (mut text, mut last) = (SOURCE.to_owned(), "log".to_owned());
    for n in 0..stages {
        text += &filter(&format!("s{n}"), &format!("\"{last}\""), "channels = [\"*\"]");
        last = format!("s{n}");
    }
    text + &sink("out", &last, "out.lcm")
}

#[test]
fn ways_that_part_and_meet_again_many_times_are_run() {
    let (folder, mut text, mut last) = (folder(), SOURCE.to_owned(), "log".to_owned());
    for n in 0..60 {
        text += &filter(&format!("a{n}"), &format!("\"{last}\""), "channels = [\"A\"]");
        text += &filter(&format!("b{n}"), &format!("\"{last}\""), "exclude = [\"A\"]");
        text += &filter(&format!("m{n}"), &format!("[\"a{n}\", \"b{n}\"]"), "channels = [\"*\"]");
        last = format!("m{n}");
    }
    folder.write("wide.toml", text + &sink("out", &last, "out.lcm"));
    run_sluice(&folder, &["run", "wide.toml", "--report", "report.json"]).expect(0);
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
}

#[test]
fn as_many_nodes_in_a_row_as_may_be_are_run_and_more_are_refused() {
    let folder = folder();
    folder.write("long.toml", line(198));
    run_sluice(&folder, &["run", "long.toml"]).expect(0);
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
    for more in [199, 3_000] {
        folder.write("longer.toml", line(more));
        let refused = run_sluice(&folder, &["run", "longer.toml", "--overwrite"]).expect(2);
        refused.expect_stderr("a chain of more than 200 nodes").expect_stderr("longer.toml:");
    }
}

#[test]
fn hundreds_of_sinks_need_as_many_files_and_no_more() {
    let (folder, mut text) = (folder(), SOURCE.to_owned());
    (0..300).for_each(|n| text += &sink(&format!("o{n}"), "log", &format!("out/{n}.lcm")));
    folder.write("many.toml", text);
    let few = super::run_after_shell_line(&folder, "ulimit -n 64", &["run", "many.toml"]).expect(1);
    few.expect_stderr("too many files are open").expect_stderr("ulimit -n").expect_stderr("out/");
    assert_eq!(folder.names(), ["in.lcm", "many.toml"]);
    // The usual limit is raised to the maximum.
    super::run_after_shell_line(&folder, "ulimit -S -n 64", &["run", "many.toml"]).expect(0);
    let tree = super::tree(&folder.at("out"));
    assert_eq!(tree.len(), 300);
    assert!(tree.values().all(|bytes| *bytes == folder.read("in.lcm")));
}

#[test]
fn texts_that_are_no_pipelines_are_refused_in_few_words() {
    let folder = folder();
    let sink = sink("out", "log", "out.lcm");
    let many = |each: &dyn Fn(usize) -> String| {
        (0..trials(4_000, 20_000) as usize).map(each).collect::<String>()
    };
    let absent = many(&|n| format!("\"log{n}\", "));
    let texts = [
        format!("{SOURCE}x = {}{}\n{sink}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("{SOURCE}x = {}1{}\n{sink}", "{a=".repeat(50_000), "}".repeat(50_000)),
        format!("{SOURCE}{} = 1\n{sink}", vec!["a"; 100_000].join(".")),
        format!("{SOURCE}{sink}{}", many(&|n| format!("key{n} = 1\n"))),
        format!("{SOURCE}{sink}{}", "#".repeat((trials(2, 20) as usize) << 20)),
        format!("{SOURCE}[sinks.o]\nplugin = \"lcm-log\"\npath = \"o\"\nfrom = [{absent}]\n"),
        format!("{SOURCE}[sinks.o]\nplugin = \"lcm-log\"\nfrom = \"{}\"\n", "x".repeat(100_000)),
        "\u{0}\u{1b}]0;title\u{7}".repeat(1_000),
    ];
    for (n, text) in texts.iter().enumerate() {
        folder.write("wrong.toml", text);
        let output =
            super::run_after_shell_line(&folder, "ulimit -v 2000000", &["check", "wrong.toml"]);
        let output = output.expect(2);
        let (len, begin) =
            (output.stderr.len(), output.stderr.chars().take(300).collect::<String>());
        assert!(len < 400_000, "{n}: {len} bytes: {begin}");
        assert!(!output.stderr.contains(['\u{1b}', '\u{7}']), "{n}: {begin}");
    }
}

#[test]
fn variables_do_not_refer_to_each_other() {
    let folder = folder();
    folder.write("self.toml", SOURCE.replace("in.lcm", "${A}") + &sink("out", "log", "out.lcm"));
    // The value is used as given.
    let given = run_sluice(&folder, &["run", "self.toml", "--set", "A=${A}${A}"]).expect(1);
    given.expect_stderr("cannot open ${A}${A}");
    let mut long = String::new();
    // A value of 300 MB, or 3 GB in the long form; with memory for four copies, plus that of any
    // run.
    let times = trials(3_000, 30_000);
    (0..times).for_each(|_| write!(long, "${{A}}").unwrap());
    folder.write("long.toml", SOURCE.replace("in.lcm", &long) + &sink("out", "log", "out.lcm"));
    let value = format!("A={}", "x".repeat(100_000));
    let limit = format!("ulimit -v {}", trials(2_700_000, 12_000_000));
    let output =
        super::run_after_shell_line(&folder, &limit, &["check", "long.toml", "--set", &value]);
    assert!(matches!(output.code, Some(0..=2)), "{:?} {}", output.code, output.stderr);
}
