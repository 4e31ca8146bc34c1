//! `completions`: prints a shell completion script for verbs, options, plugins, and pipelines by
//! file or name. Hidden and missing features are not completed.

use std::collections::BTreeSet;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell as Dialect;
use sluice_model::{PluginKind, Registry};
use sluice_pipeline::library;

use crate::args::{self, CompletionsArgs};
use crate::exit::{CommandResult, ExitStatus};
use crate::shell::Shell;
use crate::stdout;

/// The verbs that take pipelines.
const PIPELINE_VERBS: [&str; 4] = ["run", "check", "plan", "graph"];

/// A placeholder for pipelines in the generated script, replaced before it is printed.
const PIPELINE_PLACEHOLDER: &str = "any-pipeline";

pub(crate) fn run(args: &CompletionsArgs, shell: &Shell) -> CommandResult {
    stdout::unescaped(&script(args.shell, &shell.registry), shell)?;
    Ok(ExitStatus::Done)
}

fn script(dialect: Dialect, registry: &Registry) -> String {
    let command = visible(&args::command());
    let mut command = command.mut_subcommands(|verb| complete_names(verb, dialect, registry));
    let options = options_with_values(&command);
    // The generator panics where it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(dialect, &mut command, "sluice", &mut script);
    let text = String::from_utf8_lossy(&script);
    match dialect {
        Dialect::Bash => {
            text.into_owned() + &fill_template(include_str!("pipelines.bash"), &options)
        }
        Dialect::Zsh => zsh_script(&text, &fill_template(include_str!("pipelines.zsh"), &options)),
        Dialect::Fish => {
            fish_script(&text, &command) + &fill_template(include_str!("pipelines.fish"), &options)
        }
        _ => text.into_owned(),
    }
}

/// The script of the generator, with these definitions.
fn zsh_script(text: &str, definitions: &str) -> String {
    // Definitions must precede the last lines, which call them.
    let (above, below) = text.rsplit_once("if [ ").unwrap_or((text, ""));
    let above = above.replace(&format!("({PIPELINE_PLACEHOLDER})"), "_sluice_pipelines");
    // The generator writes `*::` for repeated positionals. With it, zsh takes the first of them for
    // a command, and no longer completes options.
    let above = above.replace("\n'*::", "\n'*:");
    format!("{above}{definitions}if [ {below}")
}

/// The script of the generator, with the choices of positionals, which it leaves out.
fn fish_script(text: &str, command: &Command) -> String {
    let mut script = String::new();
    for line in text.split_inclusive('\n') {
        // The generator excludes `help` after itself, so that it completes nothing.
        match line.split_once(" help; and not __fish_seen_subcommand_from ") {
            Some((start, rest)) => {
                let end = rest.split_once('"').map_or("", |(_, end)| end);
                script.extend([start, " help\"", end]);
            }
            None => script.push_str(line),
        }
    }
    for verb in command.get_subcommands() {
        for positional in verb.get_positionals() {
            let values = positional.get_possible_values();
            let names: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
            if !names.is_empty() {
                script.push_str(&format!(
                    "complete -c sluice -n \"__fish_sluice_using_subcommand {}\" -f -a \"{}\"\n",
                    verb.get_name(),
                    names.join(" ")
                ));
            }
        }
    }
    script
}

fn fill_template(template: &str, options: &str) -> String {
    let names = library::names().collect::<Vec<_>>().join(" ");
    let filled = template.replace("@PIPELINES@", &names).replace("@OPTIONS@", options);
    let verbs = PIPELINE_VERBS;
    filled.replace("@VERBS@", &verbs.join("|")).replace("@VERB_LIST@", &verbs.join(" "))
}

/// A command with its visible arguments and verbs only.
fn visible(command: &Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    shown.args(arguments.cloned()).subcommands(verbs.map(self::visible))
}

/// Adds the possible values of plugin and pipeline arguments.
fn complete_names(verb: Command, dialect: Dialect, registry: &Registry) -> Command {
    let name = verb.get_name().to_owned();
    let takes_pipelines = PIPELINE_VERBS.contains(&name.as_str()) && dialect == Dialect::Zsh;
    verb.mut_args(|argument| match argument.get_long() {
        Some("from") => argument.value_parser(plugins(registry, Some(PluginKind::Source))),
        Some("as") => argument.value_parser(plugins(registry, Some(PluginKind::Sink))),
        None if name == "plugins" && argument.is_positional() => {
            argument.value_parser(plugins(registry, None))
        }
        None if takes_pipelines && argument.is_positional() => {
            argument.value_parser(PossibleValuesParser::new([PIPELINE_PLACEHOLDER]))
        }
        _ => complete_files(argument),
    })
}

/// Says whether the values of an option are files. The generator takes all values for files unless
/// it is told, and its bash script splits names at blanks unless they are `FilePath`s.
fn complete_files(argument: Arg) -> Arg {
    if argument.is_positional() || !argument.get_action().takes_values() {
        return argument;
    }
    let value = argument.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    let is_file = argument.get_value_hint() == ValueHint::AnyPath
        || value.starts_with("FILE")
        || ["LOG", "OUT"].contains(&value)
        || argument.get_long() == Some("types");
    argument.value_hint(if is_file { ValueHint::FilePath } else { ValueHint::Other })
}

/// The plugins of this kind, or all.
fn plugins(registry: &Registry, kind: Option<PluginKind>) -> PossibleValuesParser {
    let all = registry.iter().filter(|plugin| kind.is_none_or(|kind| plugin.kind() == kind));
    let mut names = BTreeSet::new();
    let firsts = all.filter(|plugin| names.insert(plugin.name));
    let values = firsts.map(|plugin| PossibleValue::new(plugin.name).help(plugin.about));
    PossibleValuesParser::new(values.collect::<Vec<_>>())
}

/// The options that take a value, so that no pipeline follows them, as a shell pattern.
fn options_with_values(command: &Command) -> String {
    let verbs = command.get_subcommands();
    let verbs = verbs.filter(|verb| PIPELINE_VERBS.contains(&verb.get_name()));
    let arguments = verbs.chain([command]).flat_map(Command::get_arguments);
    let takes_value =
        |argument: &&Arg| !argument.is_positional() && argument.get_action().takes_values();
    let mut spelled = BTreeSet::new();
    for argument in arguments.filter(takes_value) {
        spelled.extend(argument.get_long().map(|long| format!("--{long}")));
        spelled.extend(argument.get_short().map(|short| format!("-{short}")));
    }
    spelled.into_iter().collect::<Vec<_>>().join("|")
}
