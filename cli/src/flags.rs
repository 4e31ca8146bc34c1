//! Maps nodes and options of a generated pipeline back to flags, so that messages name flags and
//! not a file the user never wrote.

use std::path::Path;

use sluice_kit::mistake::Mistake;
use sluice_model::OptionsError;
use sluice_pipeline::names::{NameKind, NameReport};
use sluice_pipeline::report::Note;
use sluice_pipeline::{Mistakes, Pipeline};

use crate::description::mistakes_in;
use crate::exit::Failure;
use crate::node_names::{ALIGNED_NAME, EPISODES_NAME, SINK_NAME, SOURCE_NAME, TYPED_NAME};

/// Where the options of a pipeline come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipelineOrigin {
    /// A file.
    File,
    /// The flags of a command line.
    Flags,
    /// The same, where `--sink-option` gives the fields of the sink, and not `--field`.
    FlagsWithSinkFields,
}

impl PipelineOrigin {
    /// That of a generated pipeline.
    pub(crate) fn of_generated(text: &str) -> Self {
        let (_, sink) = text.split_once(&format!("\n[sinks.{SINK_NAME}]\n")).unwrap_or_default();
        let sink = sink.lines().take_while(|line| !line.starts_with('['));
        let mut fields = sink.filter(|line| line.starts_with("fields = "));
        match fields.next() {
            // Those of `--field` have a line each.
            Some(line) if line != "fields = [" => Self::FlagsWithSinkFields,
            _ => Self::Flags,
        }
    }

    /// The flag that an option of a generated node comes from.
    pub(crate) fn flag(self, node: &str, option: &str) -> String {
        match (self, node, option) {
            (Self::FlagsWithSinkFields, SINK_NAME, "fields") => "--sink-option fields".to_owned(),
            _ => flag(node, option),
        }
    }
}

/// Precedes, in a comment behind an option of a generated source, the file that describes it.
pub(crate) const DESCRIBED_BY: &str = " # --describe ";

/// The option that [`name_regex`] attributes channels to.
const REGEX_OPTION: &str = "regex";

/// The flag that an option of a generated node comes from.
fn flag(node: &str, option: &str) -> String {
    let known = match option {
        _ if node == EPISODES_NAME => return format!("--episodes {option}"),
        "channels" if node == "renamed" => "--rename",
        "channels" => "--channel",
        "exclude" => "--exclude",
        REGEX_OPTION => "--regex",
        "start" => "--start",
        "end" => "--end",
        "types" => "--types",
        "channel_types" => "--type",
        "where" => "--where",
        "fields" if node != SOURCE_NAME => "--field",
        "rate" | "clock" => "--align",
        "tolerance" => "--tolerance",
        "events" => "--limit",
        "file" if node == "expect" => "--expect",
        "expect" if node == SINK_NAME => "--expect",
        "plugin" if node == SOURCE_NAME => "--from",
        "source_name" => "--source-name",
        "plugin" if node == SINK_NAME => "--as",
        "path" | "url" if node == SOURCE_NAME => "the input",
        "path" | "url" if node == SINK_NAME => "--to",
        _ if node == SOURCE_NAME => return format!("--source-option {option}"),
        _ if node == SINK_NAME => return format!("--sink-option {option}"),
        _ => return format!("`{option}`"),
    };
    known.to_owned()
}

/// Where an unmatched name was given: the flag, or node and option.
pub(crate) fn name_location(name: &NameReport, origin: PipelineOrigin) -> String {
    match origin {
        PipelineOrigin::File => format!("{}: `{}`", name.node, name.option),
        flags => flags.flag(&name.node, &name.option),
    }
}

/// Attributes the channel pattern that `--regex` became to that flag, as it was written there.
pub(crate) fn name_regex(names: &mut [NameReport], pattern: Option<&str>) {
    for report in names.iter_mut().filter(|report| Some(report.name.as_str()) == pattern) {
        report.option = REGEX_OPTION.to_owned();
        report.name = report.name.replacen("re:", "", 1);
    }
}

/// The channel that is the time base of a pipeline.
pub(crate) fn clock(pipeline: &Pipeline) -> Option<String> {
    let node = pipeline.nodes.iter().find(|node| node.name == ALIGNED_NAME)?;
    node.options.get("clock")?.as_str().map(str::to_owned)
}

/// Attributes the channel of a time base to its own option. Its stage names it with its fields.
pub(crate) fn name_clock(names: &mut [NameReport], clock: Option<&str>) {
    let is_clock = |report: &&mut NameReport| {
        report.node == ALIGNED_NAME
            && report.kind == NameKind::Channel
            && Some(report.name.as_str()) == clock
    };
    names.iter_mut().filter(is_clock).for_each(|report| report.option = "clock".to_owned());
}

/// Returns the note with the option that it names (`the option ...`) replaced by the flag it comes
/// from.
pub(crate) fn note_with_flags(note: &Note, origin: PipelineOrigin) -> Note {
    const OPTION: &str = "the option `";
    let mut translated = note.clone();
    if origin == PipelineOrigin::File {
        return translated;
    }
    if let Some((before, rest)) = note.what.rsplit_once(OPTION)
        && let Some((option, after)) = rest.split_once('`')
    {
        translated.what = format!("{before}{}{after}", origin.flag(&note.node, option));
    }
    translated
}

/// Turns the mistakes of a generated pipeline into an error that names flags, or places in the file
/// that describes its source.
pub(crate) fn mistakes_with_flags(mistakes: &Mistakes) -> Failure {
    let text = &mistakes.document.text;
    let file = text.lines().find_map(|line| line.rsplit_once(DESCRIBED_BY));
    let is_described = |at: usize| match node_and_option_at(text, at) {
        (SOURCE_NAME, Some(_)) => description_at(text, at).is_some(),
        (node, _) => node == SOURCE_NAME,
    };
    let found = file.and_then(|(_, file)| mistakes_in(Path::new(file), mistakes, is_described));
    if let Some(found) = found {
        return Failure::Description(found.into());
    }
    let messages: Vec<String> =
        mistakes.list.iter().map(|mistake| mistake_text(mistake, text)).collect();
    Failure::Options(messages.join("\n"))
}

/// Turns what is wrong with an option of a generated node into an error that names its flag.
pub(crate) fn options_error(node: &str, error: &OptionsError) -> Failure {
    let option = error.path.first().map_or("", String::as_str);
    Failure::Options(format!("{}: {}", flag(node, option), error.message))
}

fn mistake_text(mistake: &Mistake, text: &str) -> String {
    let (node, option) = node_and_option_at(text, mistake.span.start);
    let place = match (option, node) {
        (Some(option), SOURCE_NAME)
            if let Some(file) = description_at(text, mistake.span.start) =>
        {
            format!("--describe {file}: `{option}`")
        }
        (Some(option), node) => PipelineOrigin::of_generated(text).flag(node, option),
        (None, SOURCE_NAME) => input_and_source(text),
        (None, SINK_NAME) => "--to".to_owned(),
        (None, TYPED_NAME) => "--types".to_owned(),
        (None, node) => format!("`{node}`"),
    };
    let mut message = format!("{place}: {}", mistake.message);
    if let Some(help) = &mistake.help {
        message = format!("{message}; {help}");
    }
    if let Some(detail) = &mistake.detail {
        message = format!("{message}\n\n{}", detail.trim_end());
    }
    message
}

/// The input of a generated pipeline, if it has one only, and the source that reads it.
fn input_and_source(text: &str) -> String {
    let file = text.parse::<toml::Table>().unwrap_or_default();
    let source = file.get("sources").and_then(|sources| sources.get(SOURCE_NAME));
    let option = |name: &str| source?.get(name)?.as_str();
    match (option("path").or(option("url")), option("plugin")) {
        (Some(input), Some(plugin)) => format!("{input}, read by `{plugin}`"),
        (None, Some(plugin)) => format!("the input, read by `{plugin}`"),
        _ => "the input".to_owned(),
    }
}

/// The node and the option at this byte of a pipeline file; no option in a node's header. An option
/// that is a table has a header of its own.
fn node_and_option_at(text: &str, at: usize) -> (&str, Option<&str>) {
    let (mut node, mut table, mut option, mut start) = ("", None, None, 0);
    for line in text.split_inclusive('\n') {
        if start > at {
            break;
        }
        start += line.len();
        let line = line.trim_end();
        if let Some(head) = line.strip_prefix('[').and_then(|head| head.strip_suffix(']')) {
            let mut names = head.split('.').skip(1);
            node = names.next().unwrap_or(head);
            table = names.next();
            option = table;
            continue;
        }
        let is_key = |key: &&str| !key.is_empty() && key.chars().all(is_plain);
        let key = line.split_once(" = ").map(|(key, _)| key).filter(is_key);
        option = table.or(key).or(option);
    }
    (node, option)
}

/// The file that describes the option at this byte of a pipeline file, if there is one.
fn description_at(text: &str, at: usize) -> Option<&str> {
    let (before, after) = text.split_at_checked(at)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..at + after.find('\n')?)?;
    line.rsplit_once(DESCRIBED_BY).map(|(_, file)| file)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_a_generated_pipeline_become_flags() {
        let text = "[sources.log]\nplugin = \"x\"\npath = [\n    \"a\",\n    \"b\",\n]\n\n\
            [stages.keep]\n\
                    channels = \"A\"\n\n[sinks.out]\nlevel = 3\n";
        let at = |part: &str| text.find(part).unwrap();
        assert_eq!(node_and_option_at(text, 0), ("log", None));
        assert_eq!(node_and_option_at(text, at("\"b\"")), ("log", Some("path")));
        assert_eq!(node_and_option_at(text, at("\"A\"")), ("keep", Some("channels")));
        assert_eq!(node_and_option_at(text, at("3")), ("out", Some("level")));
        let text = "[stages.aligned]\nrate = \"9Hz\"\n[stages.aligned.fields]\nvel = \"P.vel\"\n";
        let at = |part: &str| text.find(part).unwrap();
        assert_eq!(node_and_option_at(text, at("9Hz")), ("aligned", Some("rate")));
        assert_eq!(node_and_option_at(text, at("P.vel")), ("aligned", Some("fields")));
        assert_eq!(flag("out", "level"), "--sink-option level");
        assert_eq!(flag("log", "max_event"), "--source-option max_event");
        assert_eq!(flag("log", "fields"), "--source-option fields");
        assert_eq!(flag("keep", "channels"), "--channel");
        assert_eq!(flag("episodes", "where"), "--episodes where");
    }

    #[test]
    fn options_in_notes_become_flags() {
        let what = "`x`: the option `channel_types` says which".to_owned();
        let of_file = Note { node: "typed".to_owned(), what, count: 3 };
        assert_eq!(note_with_flags(&of_file, PipelineOrigin::File), of_file);
        assert_eq!(note_with_flags(&of_file, PipelineOrigin::Flags).what, "`x`: --type says which");
    }
}
