//! Reports command lines that do not parse, with hints for options of other programs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, ValueEnum};
use serde_json::json;
use sluice_io::escape::escaped;
use sluice_io::files::NOT_UTF8;

use crate::args;
use crate::exit::{self, Failure};
use crate::features;
use crate::log::LogFormat;
use crate::log::{self, Level};

/// The value of `--log-format`, even if the rest of the command line is invalid.
pub(crate) fn log_format(arguments: &[OsString]) -> LogFormat {
    const FLAG: &str = "--log-format";
    let ours = arguments.iter().take_while(|argument| *argument != "--");
    let mut texts = ours.filter_map(|argument| argument.to_str());
    let mut format = LogFormat::Text;
    while let Some(text) = texts.next() {
        let value = match text.strip_prefix(FLAG) {
            Some("") => texts.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        format = value.and_then(|value| LogFormat::from_str(value, false).ok()).unwrap_or(format);
    }
    format
}

/// Prints the error or the requested help; returns the exit code.
pub(crate) fn report(mut error: clap::Error, arguments: &[OsString]) -> u8 {
    let is_wrong = error.use_stderr();
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(refusal) = features::missing_verb_message(verb)
    {
        refuse(&refusal);
        return exit::EXIT_USAGE;
    }
    if let Some(refusal) = not_utf8(&error, arguments) {
        refuse(&refusal);
        return exit::EXIT_USAGE;
    }
    let program = args::command();
    if let Some(verb) = find_verb(&program, arguments) {
        suggest_option(&mut error, verb);
        if let Some(tip) = output_tip(&error, verb, arguments) {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
    }
    let printed = print_error(&error).and_then(|()| io::stdout().flush());
    match printed.map_err(Failure::from) {
        // If standard error is closed, there is nowhere to report it.
        _ if is_wrong => exit::EXIT_USAGE,
        Ok(()) => exit::EXIT_OK,
        Err(failure) => {
            if failure.code() != exit::EXIT_OK {
                log::log_message(&format!("error: {}", failure.message()));
            }
            failure.code()
        }
    }
}

/// Names the arguments that are not UTF-8, if that is the error. clap does not say which of them is
/// wrong: some options take any path.
pub(crate) fn not_utf8(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::InvalidUtf8 {
        return None;
    }
    let is_text = |argument: &&OsString| argument.to_str().is_some();
    let wrong = arguments.iter().skip(1).filter(|argument| !is_text(argument));
    let wrong: Vec<String> =
        wrong.map(|argument| format!("`{}`", escaped(argument.as_encoded_bytes()))).collect();
    Some(match &wrong[..] {
        [argument] => format!("the argument {argument} {NOT_UTF8}"),
        several => format!("each of the arguments {} {NOT_UTF8}", several.join(", ")),
    })
}

/// The verb that these arguments name, if any.
fn find_verb<'p>(program: &'p Command, arguments: &[OsString]) -> Option<&'p Command> {
    let words = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    words.filter(|word| !word.starts_with('-')).find_map(|word| program.find_subcommand(word))
}

fn refuse(refusal: &str) {
    if log::is_json() {
        log::log_json_message(Level::Error, "usage", refusal, json!({}));
    } else {
        log::log_message(&format!("error: {refusal}"));
    }
}

/// Suggests our option for one known from other programs. clap's suggestion, the most similar
/// spelling, would be misleading then.
fn suggest_option(error: &mut clap::Error, verb: &Command) {
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let Some(tip) = option_tip(option.split('=').next().unwrap_or(option), verb) else { return };
    for kind in [ContextKind::SuggestedArg, ContextKind::TrailingArg] {
        error.remove(kind);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// What to write instead of an option that other programs have.
fn option_tip(option: &str, verb: &Command) -> Option<String> {
    let has = |name: &str| verb.get_arguments().any(|argument| argument.get_long() == Some(name));
    let use_ = |name: &str| has(name).then(|| format!("use '--{name}'"));
    let takes_url = verb.get_positionals().any(|argument| argument.get_id() == "url");
    match option {
        "-o" | "--output" | "--out" | "--outfile" | "--output-file" => Some(if has("to") {
            "'--to' names the output".to_owned()
        } else if verb.get_name() == "run" {
            "the pipeline file names its outputs; if by a variable, use '--set OUT=PATH'".to_owned()
        } else {
            "it prints to standard output: use '> FILE'; 'sluice convert IN --to OUT' writes files"
                .to_owned()
        }),
        "-f" | "-F" | "-y" | "--yes" | "--force" | "--replace" | "--clobber" => {
            has("overwrite").then(|| "to replace outputs that exist, use '--overwrite'".to_owned())
        }
        "-i" | "--in" | "--input" => Some("give inputs without an option".to_owned()),
        "-l" | "--lcm-url" | "--url" if takes_url => {
            Some("give the address without an option".to_owned())
        }
        "-t" | "--topic" | "--topics" => use_("channel"),
        "--format" if has("as") => {
            Some("'--as' names the format of the output, '--from' that of the input".to_owned())
        }
        "--format" => use_("from"),
        "--threads" | "--workers" => use_("jobs"),
        "--set" if has("sink-option") => Some(
            "variables are those of pipeline files, for 'sluice run'; '--source-option' and \
             '--sink-option' set options of formats"
                .to_owned(),
        ),
        "--begin" | "--since" => use_("start"),
        "--until" | "--stop" => use_("end"),
        _ => None,
    }
}

/// How to give the output of a verb that requires one: other programs take it as the last argument.
fn output_tip(error: &clap::Error, verb: &Command, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if error.kind() != ErrorKind::MissingRequiredArgument
        || !missing.iter().any(|argument| argument.starts_with("--to "))
    {
        return None;
    }
    let matches = args::command().ignore_errors(true).try_get_matches_from(arguments).ok()?;
    let inputs = matches.subcommand_matches(verb.get_name())?.try_get_many::<OsString>("inputs");
    let words: Vec<&str> = inputs.ok()??.filter_map(|input| input.to_str()).collect();
    // Anything else would have to be quoted.
    let is_plain = |word: &&str| word.chars().all(|c| c.is_alphanumeric() || "._-/".contains(c));
    let example = match words[..] {
        [input, .., output]
            if [input, output].iter().all(is_plain) && !Path::new(output).exists() =>
        {
            let more = if words.len() > 2 { " ..." } else { "" };
            format!("{input}{more} --to {output}")
        }
        _ => "IN --to OUT".to_owned(),
    };
    Some(format!("the output is given with --to: sluice {} {example}", verb.get_name()))
}

fn print_error(error: &clap::Error) -> io::Result<()> {
    if !log::is_json() || !error.use_stderr() {
        return error.print();
    }
    let text = error.render().to_string();
    let RenderedError { message, hint, usage } = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => RenderedError {
            message: "a command is missing".into(),
            usage: text,
            ..RenderedError::default()
        },
        _ => RenderedError::parse(&text),
    };
    let optional = |text: String| (!text.is_empty()).then_some(text);
    let fields = json!({ "message": message, "hint": optional(hint), "usage": optional(usage) });
    log::log_json(Level::Error, "usage", fields);
    Ok(())
}

/// The parts of an error rendered by clap.
#[derive(Debug, Default, PartialEq, Eq)]
struct RenderedError {
    message: String,
    hint: String,
    usage: String,
}

impl RenderedError {
    fn parse(text: &str) -> Self {
        let mut parts = Self::default();
        for paragraph in text.split("\n\n").map(str::trim).filter(|text| !text.is_empty()) {
            if let Some(usage) = paragraph.strip_prefix("Usage: ") {
                parts.usage = usage.to_owned();
            } else if paragraph.starts_with("tip: ") {
                let tips = paragraph.lines().map(|line| line.trim().trim_start_matches("tip: "));
                parts.hint = tips.collect::<Vec<_>>().join("; ");
            } else if !paragraph.starts_with("For more information") {
                let paragraph = paragraph.strip_prefix("error: ").unwrap_or(paragraph);
                let gap = if parts.message.is_empty() { "" } else { "\n" };
                parts.message += gap;
                parts.message += paragraph;
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(arguments: &[&str]) -> LogFormat {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        log_format(&arguments)
    }

    #[test]
    fn the_format_is_found_in_a_command_line_that_is_wrong() {
        assert_eq!(format(&["sluice", "frobnicate", "--log-format", "json"]), LogFormat::Json);
        assert_eq!(format(&["sluice", "--log-format=json", "run"]), LogFormat::Json);
        assert_eq!(format(&["sluice", "--log-format", "odd"]), LogFormat::Text);
        assert_eq!(format(&["sluice", "--", "--log-format=json"]), LogFormat::Text);
    }

    #[test]
    fn options_of_other_programs_get_advice() {
        let program = args::command();
        let tip = |verb: &str, option: &str| {
            option_tip(option, program.find_subcommand(verb).unwrap()).unwrap_or_default()
        };
        assert_eq!(tip("record", "-l"), "give the address without an option");
        assert_eq!(tip("spy", "--lcm-url"), "give the address without an option");
        assert_eq!(tip("cat", "-l"), "");
        assert_eq!(tip("convert", "-o"), "'--to' names the output");
    }

    #[test]
    fn a_rendered_error_is_parsed() {
        let text = "error: unexpected argument '--fu' found\n\n  tip: a similar argument exists: \
            '--fun'\n\n\
            Usage: sluice run --fun\n\nFor more information, try '--help'.\n";
        let parts = RenderedError {
            message: "unexpected argument '--fu' found".into(),
            hint: "a similar argument exists: '--fun'".into(),
            usage: "sluice run --fun".into(),
        };
        assert_eq!(RenderedError::parse(text), parts);
    }
}
