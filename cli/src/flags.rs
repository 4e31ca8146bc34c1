//! What of a command line a pipeline that was made for it says where: mistakes are told of flags, and not
//! of a file that nobody wrote.

use sluice_core::mistake::Mistake;
use sluice_pipeline::Mistakes;
use sluice_pipeline::names::NameReport;
use sluice_pipeline::report::Note;

use crate::ending::Failure;
use crate::inputs::SOURCE;

/// Where the options of a pipeline come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file.
    File,
    /// The flags of a command line.
    Flags,
}

/// What is called after the sink of a pipeline that is made for a command line.
const SINK: &str = "out";

/// The flag that an option of a node of such a pipeline comes from.
pub(crate) fn flag(node: &str, option: &str) -> String {
    let known = match option {
        "channels" if node == "renamed" => "--rename",
        "channels" => "--channel",
        "exclude" => "--exclude",
        "start" => "--start",
        "end" => "--end",
        "types" => "--types",
        "channel_types" => "--type",
        "where" => "--where",
        "fields" => "--field",
        "events" => "--limit",
        "plugin" if node == SOURCE => "--from",
        "source_name" => "--source-name",
        "plugin" if node == SINK => "--as",
        "path" | "url" if node == SOURCE => "the input",
        "path" | "url" if node == SINK => "--to",
        _ if node == SOURCE => return format!("--source-option {option}"),
        _ if node == SINK => return format!("--sink-option {option}"),
        _ => return format!("`{option}`"),
    };
    known.to_owned()
}

/// What a name that nothing matched is told of: the flag, or node and option.
pub(crate) fn place_of_name(name: &NameReport, origin: Origin) -> String {
    match origin {
        Origin::Flags => flag(&name.node, &name.option),
        Origin::File => format!("{}: `{}`", name.node, name.option),
    }
}

/// What a note says, where an option that it names (`the option ...`) is a flag of the command
/// line.
pub(crate) fn note(note: &Note, origin: Origin) -> Note {
    const OPTION: &str = "the option `";
    let mut told = note.clone();
    if origin == Origin::File {
        return told;
    }
    if let Some((before, rest)) = note.what.rsplit_once(OPTION)
        && let Some((option, after)) = rest.split_once('`')
    {
        told.what = format!("{before}{}{after}", flag(&note.node, option));
    }
    told
}

/// The mistakes of a pipeline that was made for a command line, told of its flags.
pub(crate) fn mistakes(mistakes: &Mistakes) -> Failure {
    let text = &mistakes.document.text;
    let told: Vec<String> = mistakes.list.iter().map(|mistake| told(mistake, text)).collect();
    Failure::WrongUse(told.join("\n"))
}

fn told(mistake: &Mistake, text: &str) -> String {
    let (node, option) = place(text, mistake.span.start);
    let place = match (option, node) {
        (Some(option), node) => flag(node, option),
        (None, SOURCE) => "the input".to_owned(),
        (None, SINK) => "--to".to_owned(),
        (None, node) => format!("`{node}`"),
    };
    let mut told = format!("{place}: {}", mistake.message);
    if let Some(help) = &mistake.help {
        told = format!("{told}; {help}");
    }
    if let Some(detail) = &mistake.detail {
        told = format!("{told}\n\n{}", detail.trim_end());
    }
    told
}

/// The node and the option that stand at this byte of a pipeline file; no option at the head of a node.
fn place(text: &str, at: usize) -> (&str, Option<&str>) {
    let (mut node, mut option, mut start) = ("", None, 0);
    for line in text.split_inclusive('\n') {
        if start > at {
            break;
        }
        start += line.len();
        let line = line.trim_end();
        if let Some(head) = line.strip_prefix('[').and_then(|head| head.strip_suffix(']')) {
            (node, option) = (head.rsplit('.').next().unwrap_or(head), None);
            continue;
        }
        let is_key = |key: &&str| !key.is_empty() && key.chars().all(is_plain);
        option = line.split_once(" = ").map(|(key, _)| key).filter(is_key).or(option);
    }
    (node, option)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_a_pipeline_are_told_as_flags() {
        let text = "[sources.log]\nplugin = \"x\"\npath = [\n    \"a\",\n    \"b\",\n]\n\n[stages.keep]\n\
                    channels = \"A\"\n\n[sinks.out]\nlevel = 3\n";
        let at = |part: &str| text.find(part).unwrap();
        assert_eq!(place(text, 0), ("log", None));
        assert_eq!(place(text, at("\"b\"")), ("log", Some("path")));
        assert_eq!(place(text, at("\"A\"")), ("keep", Some("channels")));
        assert_eq!(place(text, at("3")), ("out", Some("level")));
        assert_eq!(flag("out", "level"), "--sink-option level");
        assert_eq!(flag("log", "max_event"), "--source-option max_event");
        assert_eq!(flag("keep", "channels"), "--channel");
    }

    #[test]
    fn options_in_notes_are_told_as_flags() {
        let what = "`x`: the option `channel_types` says which".to_owned();
        let of_file = Note { node: "typed".to_owned(), what, count: 3 };
        assert_eq!(note(&of_file, Origin::File), of_file);
        assert_eq!(note(&of_file, Origin::Flags).what, "`x`: --type says which");
    }
}
