//! Shell completions, as bash, zsh and fish compute them.

use std::io;
use std::process::Command;

use crate::kit::{Folder, report_skip, run_sluice};

/// Sets the arguments that bash passes: the program, the word at the cursor, the previous word.
const ASK_BASH: &str = r#"
compopt() { :; }  # Works only while bash completes.
source ./complete.bash
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) spec=($(complete -p sluice)) asked=''
for n in "${!spec[@]}"; do
  if [[ ${spec[n]} == -F ]]; then asked=${spec[n+1]}; fi
done
"$asked" sluice "${@: -1}" "${@: -2:1}"
if ((${#COMPREPLY[@]})); then printf '%s\n' "${COMPREPLY[@]}"; fi
"#;

/// Types the words into an interactive zsh on a terminal of its own, with a Tab behind them. What
/// it adds as matches is printed instead.
const ASK_ZSH: &str = r#"
zmodload zsh/zpty || exit 1
zpty asked zsh -f -i
zpty -w asked "source ./ask.zsh"
zpty -r asked heard '*ready*'
zpty -w -n asked "$*"$'\t'
zpty -r asked heard '*END OF MATCHES*'
print -r -- "$heard"
"#;

/// What the interactive zsh runs first.
const ASKED_ZSH: &str = r#"
unsetopt zle_bracketed_paste 2>/dev/null
PROMPT=''
fpath=($PWD $fpath)
autoload -Uz compinit && compinit -u -D
zstyle ':completion:*' insert-tab false
end_of_matches() { print -r -- 'END OF MATCHES' }
comppostfuncs=(end_of_matches)
compadd() {
    local -a all
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return
    fi
    builtin compadd -O all "$@"
    local word
    for word in $all; do print -r -- "MATCH:$word:"; done
    builtin compadd "$@"
}
bindkey '^I' complete-word
print rea''dy
"#;

const ASK_FISH: &str = "source ./complete.fish; complete -C \"$argv\"";

/// A folder with a pipeline, logs and a folder, and the scripts of all shells.
fn folder() -> Folder {
    let folder = Folder::new();
    for (shell, file) in [("bash", "complete.bash"), ("zsh", "_sluice"), ("fish", "complete.fish")]
    {
        folder.write(file, run_sluice(&folder, &["completions", shell]).expect(0).text());
    }
    folder.write("ask.zsh", ASKED_ZSH);
    for name in ["my pipeline.toml", "other.toml", "drive.lcm", "with space.lcm"] {
        folder.write(name, "");
    }
    std::fs::create_dir(folder.at("pipelines")).unwrap();
    folder
}

/// What a shell prints for this script with these words; `None`, with a message, without the shell.
fn ask(folder: &Folder, shell: &str, script: &[&str], words: &[&str]) -> Option<String> {
    let mut asked = Command::new(shell);
    asked.args(script).args(words).current_dir(folder.path()).env("HOME", folder.path());
    let output = match asked.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            report_skip(&format!("there is no {shell} to compute completions"));
            return None;
        }
        output => output.unwrap(),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{shell}: {words:?}: {stderr}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The completions of bash for the last of these words; `None`, with a message, without bash.
fn bash_completions(folder: &Folder, words: &[&str]) -> Option<Vec<String>> {
    let proposed = ask(folder, "bash", &["--norc", "--noprofile", "-c", ASK_BASH, "bash"], words)?;
    Some(proposed.lines().map(str::to_owned).collect())
}

/// The completions of zsh for this line; `None`, with a message, without zsh.
fn zsh_completions(folder: &Folder, line: &str) -> Option<Vec<String>> {
    let printed = ask(folder, "zsh", &["-f", "-c", ASK_ZSH, "zsh"], &[line])?;
    let matches = printed.split("MATCH:").skip(1).filter_map(|line| line.split(':').next());
    Some(matches.map(str::to_owned).collect())
}

/// The completions of fish for this line; `None`, with a message, without fish.
fn fish_completions(folder: &Folder, line: &str) -> Option<Vec<String>> {
    let printed = ask(folder, "fish", &["--no-config", "-c", ASK_FISH], &[line])?;
    Some(printed.lines().filter_map(|line| line.split('\t').next().map(str::to_owned)).collect())
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

#[test]
fn bash_keeps_names_with_blanks_whole_and_offers_files_only_where_they_are_meant() {
    let folder = folder();
    let file = ["with space.lcm"];
    for (verb, option) in [
        ("convert", "--to"),
        ("convert", "--types"),
        ("convert", "--describe"),
        ("check-log", "--expect"),
        ("check-log", "--expect-from"),
        ("check-log", "--junit"),
        ("run", "--report"),
        ("new", "--to"),
    ] {
        let words = ["sluice", verb, "x", option, "wi"];
        assert_completions(&folder, &words, &file, &["with", "space.lcm"]);
    }
    for option in ["--where", "--channel", "--start", "--source-name"] {
        let words = ["sluice", "convert", "x", option, "dr"];
        assert_completions(&folder, &words, &[], &["drive.lcm"]);
    }
}

#[test]
fn bash_completes_values_behind_an_equals_sign() {
    let folder = folder();
    for (value, some) in [("l", &["lcm-log"][..]), ("=", &["lcm-log", "vel"])] {
        let mut words = vec!["sluice", "convert", "x", "--from", "=", value];
        if value == "=" {
            words.pop();
        }
        assert_completions(&folder, &words, some, &["decode"]);
    }
}

/// What follows `sluice`, some of what a shell offers for it, and what it does not.
type CompletedLine<'l> = (&'l str, &'l [&'l str], &'l [&'l str]);

/// Checks the completions of a shell, if it is there.
fn check_lines(completions: fn(&Folder, &str) -> Option<Vec<String>>, lines: &[CompletedLine<'_>]) {
    let folder = folder();
    for (line, some, none) in lines {
        let Some(proposed) = completions(&folder, &format!("sluice {line}")) else { return };
        let has = |name: &&str| proposed.iter().any(|one| one == *name);
        assert!(some.iter().all(has), "{line}: {proposed:?}");
        assert!(!none.iter().any(has), "{line}: {proposed:?}");
    }
}

#[test]
fn zsh_completes_options_behind_the_first_input_and_files_only_where_they_are_meant() {
    let cases: [CompletedLine; 8] = [
        ("convert drive.lcm --typ", &["--type", "--types"], &[]),
        ("convert drive.lcm --as l", &["lcm-log"], &["decode"]),
        ("info drive.lcm --js", &["--json"], &[]),
        ("check a.toml --col", &["--color"], &[]),
        ("cat drive.lcm --color ", &["always", "never"], &["drive.lcm"]),
        ("convert drive.lcm dr", &["drive.lcm"], &["dropuser"]),
        ("convert drive.lcm --to dr", &["drive.lcm"], &[]),
        ("convert drive.lcm --where dr", &[], &["drive.lcm"]),
    ];
    check_lines(zsh_completions, &cases);
}

#[test]
fn fish_completes_the_choices_of_positionals() {
    let cases: [CompletedLine; 6] = [
        ("completions z", &["zsh"], &[]),
        ("new s", &["source", "sink", "stage"], &[]),
        ("help con", &["convert"], &[]),
        ("plugins lcm", &["lcm-log"], &["drive.lcm"]),
        ("convert drive.lcm --as l", &["lcm-log"], &[]),
        ("convert drive.lcm --where dr", &[], &["drive.lcm"]),
    ];
    check_lines(fish_completions, &cases);
}

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
