//! Generates the pipelines that `convert`, `cat` and similar verbs run, as text that can be saved.

mod pipeline_text;

pub(crate) use pipeline_text::{rate, toml_value};
use sluice_model::{ConversionStage, PluginKind};
pub(crate) use sluice_pipeline::spec::string_literal as string;

use crate::args::{AlignArgs, Assignment, SelectionArgs};
use crate::node_names::{SINK_NAME, SOURCE_NAME, TYPED_NAME};
use pipeline_text::{PipelineText, list, path_or_url_key, selects_times};

/// A pipeline of one source, at most a few stages, one sink, and perhaps companions of it.
#[derive(Debug, Default)]
pub(crate) struct Recipe<'r> {
    /// The source's plugin.
    pub(crate) source: &'r str,
    /// What it reads.
    pub(crate) inputs: &'r [String],
    /// Its other options.
    pub(crate) source_options: &'r [Assignment],
    /// The template for the `source` of events.
    pub(crate) source_name: Option<&'r str>,
    /// Built-in types to decode payloads with, besides those of the selection.
    pub(crate) own_types: &'r [String],
    /// Which events to keep.
    pub(crate) selection: Option<&'r SelectionArgs>,
    /// The stages that conversions from this source go through.
    pub(crate) from_source: &'r [ConversionStage],
    /// The file of expectations to compare the events with.
    pub(crate) expect: Option<&'r str>,
    /// The number of events to keep.
    pub(crate) limit: Option<u64>,
    /// New channel names, by pattern.
    pub(crate) renames: &'r [(String, String)],
    /// Channel names shared by several sources; the source is appended to each.
    pub(crate) shared_names: &'r [String],
    /// Whether decoded rows must be encoded back to payloads.
    pub(crate) encodes: bool,
    /// The stages that conversions to this sink go through.
    pub(crate) to_sink: &'r [ConversionStage],
    /// The sink's plugin.
    pub(crate) sink: &'r str,
    /// What it writes.
    pub(crate) output: &'r str,
    /// Its other options.
    pub(crate) sink_options: &'r [Assignment],
    /// The time base of rows to make of `fields`.
    pub(crate) alignment: Option<&'r AlignArgs>,
    /// The fields of decoded messages to write; all if empty.
    pub(crate) fields: &'r [String],
    /// Sinks beside that of the output: the plugin of each, and the file it writes.
    pub(crate) companions: &'r [(&'static str, String)],
}

impl Recipe<'_> {
    /// The text of the pipeline file.
    pub(crate) fn text(&self) -> String {
        let mut file = PipelineText::default();
        file.node(PluginKind::Source, SOURCE_NAME, self.source);
        file.inputs(self.inputs);
        file.options(self.source_options);
        if self.has_default_quarantine() {
            // Wherever the pipeline is saved, the file is where it would be now.
            file.option("quarantine", &string(&format!("{SOURCE_NAME}.quarantine")));
        }
        if let Some(name) = self.source_name {
            file.option("source_name", &string(name));
        }
        let base = self.alignment.and_then(|base| Some((base.align.as_deref()?, base)));
        // Rows near the ends of a window are made of events beyond them.
        let before = self.selection.filter(|_| base.is_none());
        if self.selection.is_some_and(selects_channels) || before.is_some_and(selects_times) {
            file.node(PluginKind::Stage, "keep", "filter");
            self.selection.iter().for_each(|selection| file.channels(selection));
            before.iter().for_each(|selection| file.window(selection));
        }
        let patterns = self.selection.map(|selection| &selection.patterns);
        let names_channels = patterns.is_some_and(|patterns| !patterns.channel.is_empty());
        file.stages(self.from_source, names_channels);
        let types = self.types();
        // Nothing is decoded without types: the type of a channel alone is a mistake.
        if !types.is_empty() || self.selection.is_some_and(names_types) {
            file.node(PluginKind::Stage, TYPED_NAME, "decode");
            file.types(&types, self.selection);
        }
        if let Some(condition) = self.selection.and_then(|selection| selection.condition.as_ref()) {
            file.node(PluginKind::Stage, "matching", "filter");
            file.option("where", &string(condition));
        }
        if let Some((rows, args)) = base {
            file.aligned_rows(rows, args, self.fields, self.selection);
        }
        // Before expectations, which would wait for what follows, and judge it.
        if let Some(limit) = self.limit {
            file.node(PluginKind::Stage, "first", "limit");
            file.option("events", &limit.to_string());
        }
        self.expect.iter().for_each(|expect| file.expectations(expect));
        if !self.renames.is_empty() {
            file.node(PluginKind::Stage, "renamed", "rename");
            file.renames(self.renames);
        }
        if !self.shared_names.is_empty() {
            file.node(PluginKind::Stage, "own_names", "rename");
            file.own_names(self.shared_names);
        }
        if self.encodes {
            file.node(PluginKind::Stage, "payloads", "encode");
            if !types.is_empty() {
                file.types(&types, self.selection);
            }
        }
        file.stages(self.to_sink, false);
        let written = file.before;
        file.node(PluginKind::Sink, SINK_NAME, self.sink);
        // Without an output, the sink uses its default.
        if !self.output.is_empty() {
            file.option(path_or_url_key(self.output), &string(self.output));
        }
        file.options(self.sink_options);
        if !self.fields.is_empty() && base.is_none() {
            file.option("fields", &list(self.fields));
        }
        for (plugin, path) in self.companions {
            file.before = written;
            file.node(PluginKind::Sink, plugin, plugin);
            file.option("path", &string(path));
        }
        file.text
    }
}

impl Recipe<'_> {
    /// Whether damaged bytes are kept in a file without a name.
    fn has_default_quarantine(&self) -> bool {
        let given = |name: &str| self.source_options.iter().find(|option| option.name == name);
        let on_damage =
            given("on_damage").is_some_and(|o| o.value.trim_matches('"') == "quarantine");
        on_damage && given("quarantine").is_none()
    }

    fn types(&self) -> Vec<String> {
        let given =
            self.selection.map(|selection| selection.decoding.types.as_slice()).unwrap_or_default();
        let own = self.own_types.iter().filter(|own| !given.contains(own));
        own.chain(given).cloned().collect()
    }
}

fn names_types(selection: &SelectionArgs) -> bool {
    !selection.decoding.channel_types.is_empty()
}

fn selects_channels(selection: &SelectionArgs) -> bool {
    !selection.patterns.channel.is_empty() || !selection.patterns.exclude.is_empty()
}

/// An option whose value is a list of literal strings.
pub(crate) fn list_option(name: &str, texts: &[String]) -> Assignment {
    let texts: Vec<String> = texts.iter().map(|text| string(text)).collect();
    Assignment { name: name.into(), value: format!("[{}]", texts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{ChannelPatternArgs, DecodingArgs};
    use sluice_model::Registry;
    use sluice_pipeline::{Document, Pipeline, Variables};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn assignment(name: &str, value: &str) -> Assignment {
        Assignment { name: name.into(), value: value.into() }
    }

    #[test]
    fn without_a_selection_the_sink_reads_from_the_source() {
        let inputs = texts(&["drive.lcm"]);
        let recipe = Recipe {
            source: "lcm-log",
            inputs: &inputs,
            selection: Some(&SelectionArgs::default()),
            sink: "jsonl",
            output: "-",
            ..Recipe::default()
        };
        let expected = "\
[sources.log]
plugin = \"lcm-log\"
path = \"drive.lcm\"

[sinks.out]
plugin = \"jsonl\"
from = \"log\"
path = \"-\"
";
        assert_eq!(recipe.text(), expected);
    }

    #[test]
    fn live_inputs_have_a_url_and_no_path() {
        let inputs = texts(&["udpm://239.255.76.67:7667"]);
        let (source, sink, output) = ("lcm-udp", "lcm-udp", "tcpq://127.0.0.1:7700");
        let recipe = Recipe { source, inputs: &inputs, sink, output, ..Recipe::default() };
        let text = recipe.text();
        assert!(text.contains("\nurl = \"udpm://239.255.76.67:7667\"\n"), "{text}");
        assert!(text.contains("\nurl = \"tcpq://127.0.0.1:7700\"\n"), "{text}");
    }

    /// The pipeline with every option of [`Recipe`].
    const FULL_PIPELINE: &str = "\
[sources.log]
plugin = \"lcm-log\"
path = [
    \"a.lcm\",
    \"logs/*.lcm\",
]
max_event = \"64MiB\"
seek = false
source_name = \"{name}\"

[stages.keep]
plugin = \"filter\"
from = \"log\"
channels = [
    \"POSE\",
    \"CAM_*\",
]
exclude = \"re:CAM_[0-9]+$\"
start = \"+10\"
end = \"2007-11-03\"

[stages.typed]
plugin = \"decode\"
from = \"keep\"
types = [
    \"lcmtypes/\",
    \"mit-dgc\",
]
channel_types = { \"CAM_*\" = \"p.image_t\" }

[stages.matching]
plugin = \"filter\"
from = \"typed\"
where = 'vel[0] > 3 and name != \"x\"'

[stages.first]
plugin = \"limit\"
from = \"matching\"
events = 7

[stages.expect]
plugin = \"expect\"
from = \"first\"
file = \"expect.toml\"

[stages.renamed]
plugin = \"rename\"
from = \"expect\"
channels = [
    { from = \"re:CAM_([0-9])\", to = \"CAMERA_$1\" },
]

[stages.payloads]
plugin = \"encode\"
from = \"renamed\"
types = [
    \"lcmtypes/\",
    \"mit-dgc\",
]
channel_types = { \"CAM_*\" = \"p.image_t\" }

[sinks.out]
plugin = \"lcm-log\"
from = \"payloads\"
path = \"out.lcm\"
split_mb = 1.5
fields = [
    \"pos[0]\",
    \"utime\",
]

[sinks.null]
plugin = \"null\"
from = \"payloads\"
path = \"out.json\"
";

    #[test]
    fn every_argument_is_in_the_generated_file() {
        let (inputs, selection) = (
            texts(&["a.lcm", "logs/*.lcm"]),
            SelectionArgs {
                patterns: ChannelPatternArgs {
                    channel: texts(&["POSE", "CAM_*"]),
                    exclude: texts(&["re:CAM_[0-9]+$"]),
                },
                start: Some("+10".into()),
                end: Some("2007-11-03".into()),
                decoding: DecodingArgs {
                    types: texts(&["lcmtypes/", "mit-dgc"]),
                    channel_types: vec![("CAM_*".into(), "p.image_t".into())],
                },
                condition: Some("vel[0] > 3 and name != \"x\"".into()),
            },
        );
        let recipe = Recipe {
            source: "lcm-log",
            inputs: &inputs,
            source_options: &[assignment("max_event", "64MiB"), assignment("seek", "false")],
            source_name: Some("{name}"),
            own_types: &texts(&["mit-dgc"]),
            selection: Some(&selection),
            limit: Some(7),
            expect: Some("expect.toml"),
            renames: &[("re:CAM_([0-9])".into(), "CAMERA_$1".into())],
            shared_names: &[],
            from_source: &[],
            to_sink: &[],
            encodes: true,
            sink: "lcm-log",
            output: "out.lcm",
            sink_options: &[assignment("split_mb", "1.5")],
            alignment: None,
            fields: &texts(&["pos[0]", "utime"]),
            companions: &[("null", "out.json".into())],
        };
        assert_eq!(recipe.text(), FULL_PIPELINE);
    }

    #[test]
    fn fields_of_one_name_are_aligned_as_a_vector_and_the_window_is_cut_into_episodes() {
        let fields = texts(&["POSE.vel", "x=A.x[0]", "x=B.`odd =`"]);
        let alignment = AlignArgs {
            align: Some("2.5 Hz".into()),
            tolerance: Some("1s".into()),
            episodes: vec![assignment("where", "x[0] > 2"), assignment("min_rows", "9")],
        };
        let (source, sink, alignment) = ("demo", "null", Some(&alignment));
        let selection = SelectionArgs {
            patterns: ChannelPatternArgs {
                channel: texts(&["A", "B", "POSE"]),
                ..ChannelPatternArgs::default()
            },
            end: Some("+9".into()),
            ..SelectionArgs::default()
        };
        let selection = Some(&selection);
        let recipe =
            Recipe { source, sink, selection, alignment, fields: &fields, ..Recipe::default() };
        let expected = "\
[stages.keep]
plugin = \"filter\"
from = \"log\"
channels = [
    \"A\",
    \"B\",
    \"POSE\",
]

[stages.aligned]
plugin = \"align\"
from = \"keep\"
rate = \"2.5 Hz\"
tolerance = \"1s\"
[stages.aligned.fields]
\"POSE.vel\" = \"POSE.vel\"
\"x\" = [
    \"A.x[0]\",
    \"B.`odd =`\",
]

[stages.window]
plugin = \"filter\"
from = \"aligned\"
end = \"+9\"

[stages.episodes]
plugin = \"episodes\"
from = \"window\"
where = \"x[0] > 2\"
min_rows = 9

[sinks.out]
plugin = \"null\"
from = \"episodes\"
";
        assert!(recipe.text().ends_with(expected), "{}", recipe.text());
        let rates = ["50hz", "29.97 Hz", "30", "CAM_1", "inf"].map(rate);
        assert_eq!(rates, [Some(50.0), Some(29.97), Some(30.0), None, None]);
    }

    #[test]
    fn odd_strings_are_escaped() {
        let odd = [
            "\u{202e}\u{e0001}\"x",
            "a\"b",
            r"a\b",
            "${HOME}",
            "$$",
            "$",
            "a$${",
            "a\tb",
            "\nb",
            "ü'''\"\"\"",
        ];
        let inputs = texts(&odd);
        let (source, sink, output) = ("lcm-log", "null", "");
        let recipe = Recipe { source, inputs: &inputs, sink, output, ..Recipe::default() };
        let (document, registry) = (Document::generated("test", recipe.text()), Registry::linked());
        let pipeline = Pipeline::read(&document, &Variables::default(), &registry).unwrap();
        assert_eq!(pipeline.nodes[0].options["path"], serde_json::json!(odd));
        assert_eq!(string("re:A$"), "\"re:A$\"");
    }

    #[test]
    fn values_are_toml_if_they_can_be() {
        let values = ["3", "true", "[1, 2]", "\"x\"", "{ a = 1 }", "\"\"\"\na\nb\"\"\""];
        values.iter().for_each(|value| assert_eq!(toml_value(value), *value));
        assert_eq!(toml_value("64MiB"), "\"64MiB\"");
        assert_eq!(toml_value("1\nother = 2"), "\"\"\"\n1\nother = 2\"\"\"");
        assert_eq!(toml_value("[1]\n[other]"), "\"\"\"\n[1]\n[other]\"\"\"");
    }
}
