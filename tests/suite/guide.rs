//! The guide to writing plugins: its code is compiled, its commands are run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::{Folder, ProgramOutput, root, sluice};
use crate::new::cargo;

/// A step of the guide.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GuideStep<'g> {
    /// Write this file.
    Write { path: &'g str, text: String },
    /// Replace the item that starts with `item` in a file.
    Replace { path: &'g str, item: &'g str, text: String },
    /// Run this command.
    Type(&'g str),
    /// Run this command, which a test cannot do for a reason.
    Check { line: &'g str, why: &'g str },
}

/// The command that installs the program. The tests use the program under test instead.
const INSTALL: &str = "cargo install --path cli";

/// The steps of a guide: commands, and code blocks after a comment that says where they go.
pub(crate) fn steps(guide: &str) -> Vec<GuideStep<'_>> {
    let (mut steps, mut place) = (Vec::new(), "");
    let mut lines = guide.lines();
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- ") {
            place = comment.strip_suffix(" -->").unwrap_or_default();
        }
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let text = block.join("\n") + "\n";
        match std::mem::take(&mut place).split_once(": ") {
            Some(("file", path)) => steps.push(GuideStep::Write { path, text }),
            Some(("item", place)) => {
                let (path, item) = place.split_once(": ").unwrap();
                steps.push(GuideStep::Replace { path, item, text });
            }
            Some(("not run", why)) => {
                steps.extend(block.into_iter().map(|line| GuideStep::Check { line, why }));
            }
            _ if language == "sh" => steps.extend(block.into_iter().map(GuideStep::Type)),
            _ => {}
        }
    }
    steps
}

/// The commands in the text of a guide: code with more than the name of a program and a verb.
fn named_commands(guide: &str) -> Vec<String> {
    let (mut named, mut in_block) = (Vec::new(), false);
    let mut text = String::new();
    for line in guide.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            text.push_str(line);
            text.push(' ');
        }
    }
    for code in text.split('`').skip(1).step_by(2) {
        let words: Vec<&str> = code.split_whitespace().collect();
        if matches!(words[..], ["cargo" | "sluice" | "xxd", _, _, ..]) {
            named.push(words.join(" "));
        }
    }
    named
}

/// Follows the steps of a guide.
struct GuideReader {
    workdir: Folder,
    at: PathBuf,
}

impl GuideReader {
    fn follow(&mut self, step: GuideStep<'_>) {
        match step {
            GuideStep::Write { path, text } => fs::write(self.at.join(path), text).unwrap(),
            GuideStep::Replace { path, item, text } => {
                let path = self.at.join(path);
                let replaced = replace_item(&fs::read_to_string(&path).unwrap(), item, &text);
                fs::write(path, replaced).unwrap();
            }
            GuideStep::Type(line) => self.type_in(line),
            GuideStep::Check { line, .. } => {
                panic!("the guide has a command that is not run: {line}")
            }
        }
    }

    fn type_in(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = match words[..] {
            ["cd", folder] => {
                self.at = self.at.join(folder).canonicalize().unwrap();
                return;
            }
            ["xxd", "-r", from, to] => {
                fs::write(self.at.join(to), parse_dump(&self.at.join(from))).unwrap();
                return;
            }
            ["cargo", verb, ref rest @ ..] => {
                let mut command = cargo(&self.at);
                command.args([verb, "--offline", "--quiet"]).args(rest);
                command
            }
            ["sluice", "new", ref rest @ ..] => {
                let mut command = sluice(&self.workdir);
                command.current_dir(&self.at).arg("new").args(rest);
                command
            }
            ["sluice", ..] => {
                let mut command = sluice(&self.workdir);
                command.current_dir(&self.at).args(&words[1..]);
                command
            }
            _ => panic!("the guide has a command that no test knows: {line}"),
        };
        self.expect_success(line, &mut command);
    }

    fn expect_success(&self, line: &str, command: &mut Command) {
        let ran = ProgramOutput::from_output(command.output().unwrap());
        let output = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(ran.code, Some(0), "{line}\n{}\n{output}", ran.stderr);
    }
}

/// Replaces the item that starts like this, up to its end.
fn replace_item(text: &str, item: &str, with: &str) -> String {
    let start = text.find(&format!("\n{item}")).unwrap_or_else(|| panic!("no `{item}`")) + 1;
    let rest = &text[start..];
    let end = if item.starts_with("const") { ";\n" } else { "\n}\n" };
    let len = rest.find(end).unwrap() + end.len();
    [&text[..start], with, &rest[len..]].concat()
}

/// The bytes of an `xxd` dump.
fn parse_dump(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).unwrap();
    let digits =
        |line: &str| line.split_once(": ").unwrap().1.split("  ").next().unwrap().to_owned();
    let digits: String = text.lines().map(digits).collect();
    let digits: Vec<u8> = digits.bytes().filter(|digit| *digit != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn the_guide_leads_to_tables_of_an_own_format() {
    let guide = fs::read_to_string(root().join("docs/your-own-format.md")).unwrap();
    let workdir = Folder::new();
    let at = workdir.path().to_owned();
    let mut reader = GuideReader { workdir, at };
    for step in steps(&guide) {
        reader.follow(step);
    }
    let described = reader.workdir.path().join("described/channel=BATTERY/part-00000.parquet");
    assert!(described.exists(), "{described:?}");
    let workdir = reader.workdir.path().join("wheels");
    for channel in ["WHEELS", "BATTERY"] {
        let table = workdir.join(format!("tables/channel={channel}/part-00000.parquet"));
        assert!(table.exists(), "{table:?}");
    }
    assert!(workdir.join("drive.parquet").exists());
    let speeds = fs::read_to_string(workdir.join("speeds.csv")).unwrap();
    let lines: Vec<&str> = speeds.lines().collect();
    assert!(lines[0].ends_with("left,right"), "{speeds}");
    let ends: Vec<String> = lines[1..]
        .iter()
        .map(|line| line.rsplitn(3, ',').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(ends, ["1.25 1.5", "1.5 1.75", "1.5 2.0"], "{speeds}");
}

#[test]
fn commands_in_sentences_of_the_guide_are_among_those_that_are_run() {
    let guide = fs::read_to_string(root().join("docs/your-own-format.md")).unwrap();
    let run = steps(&guide);
    let is_run = |named: &str| run.contains(&GuideStep::Type(named)) || named == INSTALL;
    let not_run = named_commands(&guide).into_iter().filter(|named| !is_run(named));
    assert_eq!(not_run.collect::<Vec<_>>(), Vec::<String>::new());
    let named =
        named_commands("Type `cargo run\n-- plugins` or `sluice new`.\n```sh\nls `x`\n```\n");
    assert_eq!(named, ["cargo run -- plugins"]);
}

#[test]
fn links_of_the_guide_lead_somewhere() {
    let docs = root().join("docs");
    let guide = fs::read_to_string(docs.join("your-own-format.md")).unwrap();
    let targets = guide.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let missing: Vec<&str> = targets.filter(|to| !docs.join(to).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
