//! Pipelines with unset variables: they can be drawn and planned only.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::kit::{Folder, ProgramOutput, root, sluice};

/// Every pipeline in the repository, copied to a folder.
fn copy_shipped_pipelines(folder: &Folder) -> Vec<String> {
    let mut names = Vec::new();
    for place in ["pipelines/library", "docs/examples"] {
        for entry in fs::read_dir(root().join(place)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                folder.write(&name, fs::read(&path).unwrap());
                names.push(name);
            }
        }
    }
    assert!(names.len() > 15, "{names:?}");
    names
}

/// The variables of a pipeline file that have no default.
fn variables(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let references = code.split("${").skip(1).filter_map(|rest| rest.split_once('}'));
    let names = references.map(|(name, _)| name.to_owned());
    names.filter(|name| !name.contains(":-")).collect()
}

/// Runs the program without the environment variables that pipelines use.
fn run_without_variables(folder: &Folder, arguments: &[&str]) -> ProgramOutput {
    let mut sluice = sluice(folder);
    for name in ["INPUT", "OUT", "WHERE", "TYPES"] {
        sluice.env_remove(name);
    }
    ProgramOutput::from_output(sluice.args(arguments).output().unwrap())
}

#[test]
fn shipped_pipelines_are_drawn_and_planned_without_their_variables() {
    let folder = Folder::new();
    let mut unset = 0;
    for name in copy_shipped_pipelines(&folder) {
        let text = String::from_utf8(folder.read(&name)).unwrap();
        for format in ["mermaid", "dot"] {
            let graph =
                run_without_variables(&folder, &["graph", &name, "--format", format]).expect(0);
            assert!(graph.text().matches('\n').count() > 3, "{name}: {}", graph.text());
        }
        let names = variables(&text);
        if names.is_empty() {
            continue;
        }
        unset += 1;
        let plan = run_without_variables(&folder, &["plan", &name]).expect(0);
        let json: Value = serde_json::from_str(
            &run_without_variables(&folder, &["plan", &name, "--json"]).expect(0).text(),
        )
        .unwrap();
        for variable in &names {
            let written = format!("${{{variable}}}");
            assert!(plan.text().contains(&written), "{name}: {}", plan.text());
            assert!(json.to_string().contains(&written), "{name}: {json}");
            assert!(plan.stderr.contains(&format!("`{variable}`")), "{name}: {}", plan.stderr);
            let listed = json["unset"].as_array().unwrap();
            assert!(listed.iter().any(|unset| unset == variable.as_str()), "{name}: {json}");
        }
        // Other verbs require values.
        run_without_variables(&folder, &["check", &name]).expect(2).expect_stderr("has no value");
        run_without_variables(&folder, &["run", &name]).expect(2).expect_stderr("has no value");
    }
    assert!(unset > 10, "{unset}");
}

const OPEN: &str = r#"
[sources.log]
plugin = "lcm-log"
path = ["data/a.lcm", "${MORE}"]
max_event = "${LONGEST}"
on_damage = "${DAMAGE}"

[stages.typed]
plugin = "decode"
from = "log"
types = ["${TYPES}", "mit-dgc"]

[stages.fast]
plugin = "filter"
when = "${FAST} == yes"
from = "typed"
where = "${WHERE}"

[sinks.out]
plugin = "${SINK}"
from = "fast"
path = "${OUT}/{stem}.jsonl"
"#;

#[test]
fn variables_stand_in_their_places_wherever_they_are() {
    let folder = Folder::new();
    folder.write("open.toml", OPEN);
    let plan = run_without_variables(&folder, &["plan", "open.toml"]).expect(0).text();
    for part in [
        r#"reads  log (lcm-log)  {"path":["data/a.lcm","${MORE}"],"max_event":"${LONGEST}"}"#,
        "does   typed (decode) from log",
        r#"does   fast (filter) from typed  {"where":"${WHERE}"}"#,
        r#"writes out (${SINK}) from fast  {"path":"${OUT}/{stem}.jsonl"}"#,
        "unset  DAMAGE, FAST, LONGEST, MORE, OUT, SINK, TYPES, WHERE\n",
    ] {
        assert!(plan.contains(part), "{part}\n{plan}");
    }
    let graph = run_without_variables(&folder, &["graph", "open.toml"]).expect(0).text();
    assert!(graph.contains("n0 --> n1") && graph.contains("n2 --> n3"), "{graph}");
    // Set variables are replaced, and mistakes are reported together with unset variables.
    let set = ["plan", "open.toml", "--set", "WHERE=x > 1", "--set", "SINK=jsonl"];
    let some = run_without_variables(&folder, &set).expect(0).text();
    assert!(some.contains("x > 1") && some.contains("out (jsonl)"), "{some}");
    assert!(!some.contains("SINK"), "{some}");
    for verb in ["plan", "graph"] {
        let wrong =
            run_without_variables(&folder, &[verb, "open.toml", "--set", "SINK=jsnol"]).expect(2);
        wrong.expect_stderr("`jsonl`").expect_stderr("`MORE` has no value");
    }
}
