//! Runs the examples of every README and page: each line of a shell block, in a folder with the
//! files it names and stand-ins for missing hosts. A block after `<!-- not run: REASON -->` is only
//! checked for unknown verbs and flags.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::guide::{GuideStep, steps};
use crate::kit::{Folder, ProgramOutput, python_with, report_skip, root};

/// Pages run by other tests: `guide.rs`, `new.rs`, and `full/tests/all/documents.rs` for SQL and
/// clusters.
const RUN_ELSEWHERE: [&str; 4] =
    ["docs/your-own-format.md", "cli/templates", "docs/query.md", "docs/cluster.md"];

/// Third-party programs in examples, and the Python module that provides each.
const PROGRAMS: [(&str, &str); 5] = [
    ("duckdb ", "duckdb"),
    ("import pandas", "pandas, pyarrow"),
    ("import polars", "polars"),
    ("import pyarrow", "pyarrow"),
    ("sluice run keep.toml", "pyarrow"),
];

/// The files used in examples.
static FILES: LazyLock<Folder> = LazyLock::new(|| {
    let folder = Folder::new();
    let prepare = format!("{} {}", scripts().join("prepare.sh").display(), root().display());
    ProgramOutput::from_output(shell(&folder, &prepare).output().unwrap()).expect(0);
    folder
});

fn scripts() -> PathBuf {
    root().join("tests/suite/readmes")
}

/// A shell for one line, with the program, the stand-ins and the reference tools in its path.
fn shell(folder: &Folder, line: &str) -> Command {
    let programs = folder.at(".programs");
    if !programs.exists() {
        fs::create_dir(&programs).unwrap();
        symlink(crate::PROGRAM, programs.join("sluice-under-test")).unwrap();
    }
    let peers = crate::kit::peer_tool("");
    let path = [scripts().join("bin"), programs, peers].map(|folder| folder.display().to_string());
    let path = format!("{}:{}", path.join(":"), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-eu", "-c", line]).current_dir(folder.path()).stdin(Stdio::null());
    // A short drive by default.
    command.env("PATH", path).env("SECONDS", "2").env_remove("NO_COLOR");
    command
}

/// Every README, and every page of `docs/`, by its path in the repository.
fn pages() -> Vec<String> {
    let mut found = Vec::new();
    gather(&root(), &mut found);
    let names = found
        .into_iter()
        .map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with("README.md") || name.starts_with("docs/"))
        .filter(|name| !RUN_ELSEWHERE.iter().any(|other| name.starts_with(other)))
        .collect();
    names.sort();
    names
}

pub(crate) fn gather(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
            gather(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// Runs the examples of a page. Returns the failures.
fn follow(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut steps = steps(&text);
    steps.retain(
        |step| !matches!(step, GuideStep::Type(line) if line.starts_with('#') || line.is_empty()),
    );
    if !steps.iter().any(|step| matches!(step, GuideStep::Type(_) | GuideStep::Check { .. })) {
        return Vec::new();
    }
    let folder = Folder::new();
    let files = format!("{}/.", FILES.path().display());
    let copied = Command::new("cp").args(["-r", &files]).arg(folder.path()).status().unwrap();
    assert!(copied.success());
    steps.into_iter().filter_map(|step| wrong(page, &folder, step)).collect()
}

fn wrong(page: &str, folder: &Folder, step: GuideStep<'_>) -> Option<String> {
    match step {
        GuideStep::Write { path, text } => {
            folder.write(path, text);
            None
        }
        GuideStep::Type(line) => {
            if let Some((_, module)) = PROGRAMS.iter().find(|(part, _)| line.contains(part)) {
                python_with(module)?;
            }
            if line.contains("jq ") && Command::new("jq").arg("--version").output().is_err() {
                report_skip("there is no jq");
                return None;
            }
            let ran = ProgramOutput::from_output(shell(folder, line).output().unwrap());
            let says = |code: &i32| line.contains(&format!("exit code {code}"));
            let code = [3, 4].into_iter().find(says).unwrap_or(0);
            (ran.code != Some(code))
                .then(|| format!("{page}: {line}\n{:?} {}", ran.code, ran.stderr))
        }
        GuideStep::Check { line, why } => {
            assert!(!why.is_empty(), "{page}: a box is not run for no reason");
            // Checked by the tests of that program.
            if why.contains("the full program") {
                return None;
            }
            let command = line.split(" | ").next().unwrap_or(line);
            let verb = command.strip_prefix("sluice ")?;
            // Anything before it is parsed as usual.
            let command = format!("sluice-under-test {}", verb.split(" #").next()?);
            let ran = ProgramOutput::from_output(
                shell(folder, &format!("{command} --help")).output().unwrap(),
            );
            (ran.code != Some(0)).then(|| format!("{page}: {line}\n{}", ran.stderr))
        }
        GuideStep::Replace { path, .. } => {
            Some(format!("{page}: an item of {path}, which no test replaces"))
        }
    }
}

#[test]
fn the_examples_of_every_page_work() {
    if Command::new("python3").arg("--version").output().is_err() {
        report_skip("there is no python3, which makes files that examples read");
        return;
    }
    let wrong: Vec<String> = pages().iter().flat_map(|page| follow(page)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_example_that_fails_or_has_a_flag_of_no_verb_is_found() {
    let folder = Folder::new();
    let found = |step| wrong("page", &folder, step).is_some();
    assert!(found(GuideStep::Type("sluice info no-such.lcm")));
    assert!(!found(GuideStep::Type("sluice --version")));
    let why = "a reason";
    assert!(found(GuideStep::Check { line: "sluice play drive.lcm --no-such-flag", why }));
    assert!(!found(GuideStep::Check { line: "sluice play drive.lcm --loop # for ever", why }));
}

#[test]
fn pages_that_are_followed_are_all_but_those_that_other_tests_follow() {
    let pages = pages();
    for page in
        ["README.md", "docs/security.md", "plugins/parquet/README.md", "tests/fuzz/README.md"]
    {
        assert!(pages.iter().any(|name| name == page), "{page}: {pages:?}");
    }
    assert!(RUN_ELSEWHERE.iter().all(|page| root().join(page).exists()));
}
