//! Shell completions, as bash computes them.

use std::process::Command;

use crate::kit::{Folder, report_skip, run_sluice};

/// A folder with a pipeline, a log and a folder, and the script for bash.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("complete.bash", run_sluice(&folder, &["completions", "bash"]).expect(0).text());
    for name in ["my pipeline.toml", "other.toml", "drive.lcm"] {
        folder.write(name, "");
    }
    std::fs::create_dir(folder.at("pipelines")).unwrap();
    folder
}

/// The completions of bash for the last of these words; `None`, with a message, without bash.
fn bash_completions(folder: &Folder, words: &[&str]) -> Option<Vec<String>> {
    // The arguments bash passes: the program, the word at the cursor, the previous word.
    let ask = "source ./complete.bash\n\
        COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) spec=($(complete -p sluice)) asked=''\n\
        for n in \"${!spec[@]}\"; do\n\
          if [[ ${spec[n]} == -F ]]; then asked=${spec[n+1]}; fi\n\
        done\n\
        \"$asked\" sluice \"${@: -1}\" \"${@: -2:1}\"\n\
        if ((${#COMPREPLY[@]})); then printf '%s\\n' \"${COMPREPLY[@]}\"; fi";
    let bash = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", ask, "bash"])
        .args(words)
        .current_dir(folder.path())
        .output();
    let Ok(output) = bash else {
        report_skip("there is no bash to compute completions");
        return None;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{words:?}: {stderr}");
    let proposed = String::from_utf8(output.stdout).unwrap();
    Some(proposed.lines().map(str::to_owned).collect())
}

fn assert_completions(folder: &Folder, words: &[&str], some: &[&str], none: &[&str]) {
    let Some(proposed) = bash_completions(folder, words) else { return };
    let has = |name: &&&str| proposed.iter().any(|one| one == *name);
    let missing: Vec<_> = some.iter().filter(|name| !has(name)).collect();
    let wrong: Vec<_> = none.iter().filter(has).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "{words:?}: {missing:?}, {wrong:?} {proposed:?}"
    );
}

#[test]
fn bash_completes_pipelines_by_their_files_and_names() {
    let folder = folder();
    let (files, no_file) = (["my pipeline.toml", "other.toml", "pipelines"], ["drive.lcm"]);
    for verb in ["run", "check", "plan", "graph"] {
        assert_completions(
            &folder,
            &["sluice", verb, ""],
            &[&files[..], &["quickstart"]].concat(),
            &no_file,
        );
        assert_completions(
            &folder,
            &["sluice", "--color", "never", verb, "o"],
            &["other.toml"],
            &files[..1],
        );
    }
    assert_completions(
        &folder,
        &["sluice", "check", "other.toml", "my"],
        &files[..1],
        &["quickstart"],
    );
    assert_completions(&folder, &["sluice", "run", "-q", "quick"], &["quickstart"], &[]);
    assert_completions(&folder, &["sluice", "run", "--"], &["--resume", "--set"], &["quickstart"]);
    // Values of options are not pipelines, and other verbs take none.
    assert_completions(&folder, &["sluice", "run", "x", "--jobs", ""], &[], &["quickstart"]);
    assert_completions(
        &folder,
        &["sluice", "run", "x", "--progress", ""],
        &["json"],
        &["quickstart"],
    );
    assert_completions(&folder, &["sluice", "info", "run", ""], &[], &["quickstart"]);
}

#[test]
fn bash_completes_plugins_and_formats() {
    let folder = folder();
    assert_completions(&folder, &["sluice", "plugins", ""], &["lcm-log", "decode", "parquet"], &[]);
    assert_completions(
        &folder,
        &["sluice", "plugins", "--json", "lcm"],
        &["lcm-log", "lcm-udp"],
        &["vel"],
    );
    for verb in ["convert", "cat", "info", "play"] {
        let words = ["sluice", verb, "drive.lcm", "--from", ""];
        assert_completions(
            &folder,
            &words,
            &["lcm-log", "vel", "orca"],
            &["decode", "jsonl-sink", "csv-sink"],
        );
    }
    assert_completions(
        &folder,
        &["sluice", "convert", "x", "--as", "p"],
        &["parquet"],
        &["filter", "vel"],
    );
    assert_completions(&folder, &["sluice", ""], &["run", "convert"], &[]);
}

#[test]
fn options_hidden_from_help_are_not_completed() {
    let folder = folder();
    assert_completions(&folder, &["sluice", ""], &["run"], &["query", "cluster"]);
    assert_completions(
        &folder,
        &["sluice", "run", "--"],
        &["--jobs"],
        &["--engine", "--cluster-patience"],
    );
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = run_sluice(&folder, &["completions", shell]).expect(0).text();
        for hidden in ["cluster-patience", "scheduler"] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
    }
}

/// Zsh and fish may be missing, so only their scripts are checked.
#[test]
fn scripts_for_other_shells_have_the_same_names() {
    let folder = Folder::new();
    let script = |shell: &str| run_sluice(&folder, &["completions", shell]).expect(0).text();
    let (zsh, fish) = (script("zsh"), script("fish"));
    for verb in ["run", "check", "plan", "graph"] {
        let block = zsh.split(&format!("({verb})\n_arguments")).nth(1).unwrap();
        let block = block.split("&& ret=0").next().unwrap();
        assert!(block.contains(":_sluice_pipelines'"), "{verb}: {block}");
    }
    assert!(zsh.contains("names=(archive-to-log") && zsh.contains("_files -g \"*.toml\""));
    assert!(zsh.rfind("_sluice_pipelines()") < zsh.rfind("compdef _sluice sluice"));
    assert!(!zsh.contains("any-pipeline"));
    assert!(zsh.contains("lcm-log\\:\"reads LCM") || zsh.contains("lcm-log\\:"), "plugins");
    let line = |part: &str| fish.lines().any(|line| line.contains(part));
    assert!(line("run check plan graph\" -f -a \"(__fish_complete_suffix .toml)\""));
    assert!(line("run check plan graph\" -f -a \"archive-to-log"));
    assert!(
        line("__fish_sluice_using_subcommand plugins\" -f -a \"") && fish.contains(" lcm-log ")
    );
}
