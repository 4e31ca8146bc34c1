//! The format of inputs as `--from`, `--describe` and `--source-option` give it: a source and its
//! options. Reads no input.

use std::path::Path;

use serde_json::Value;
use sluice_io::escape::printable;
use sluice_io::files;
use sluice_model::{Plugin, PluginKind};
use sluice_pipeline::spec::{has_variable, is_node_key};

use crate::args::{Assignment, FormatArgs};
use crate::description::MAX_DESCRIPTION_LEN;
use crate::exit::Failure;
use crate::flags::DESCRIBED_BY;
use crate::plugin_lookup;
use crate::shell::Shell;
use crate::sniffing;

/// The options of a source that say what it reads, and not its format.
const INPUT_OPTIONS: [&str; 2] = ["path", "url"];

/// What the command line says about the format of the inputs.
#[derive(Debug, Default)]
pub(crate) struct InputFormat {
    /// The name of the source, if given.
    pub(crate) from: Option<String>,
    /// The options of the source: those of `--source-option` and, for all other keys, those of the
    /// description.
    pub(crate) options: Vec<Assignment>,
}

impl InputFormat {
    /// Combines `--from`, `--describe` and `--source-option`.
    pub(crate) fn from_args(args: &FormatArgs) -> Result<Self, Failure> {
        let FormatArgs { from, describe, source_option: options } = args.clone();
        let Some(file) = describe else { return Ok(Self { from, options }) };
        let node = source_table(&file, from.as_deref())?;
        let plugin = node.get("plugin").and_then(toml::Value::as_str).map(str::to_owned);
        let from = from.or(plugin).ok_or_else(|| {
            description_error(&file, "it names no source: add `plugin = \"…\"`, or give --from")
        })?;
        let is_given = |key: &str| options.iter().any(|option| option.name == key);
        let is_of_run = |key: &str| is_node_key(key, None) || INPUT_OPTIONS.contains(&key);
        let described = node.iter().filter(|(key, _)| !is_of_run(key) && !is_given(key));
        let mut described: Vec<Assignment> = described
            .map(|(name, value)| Assignment { name: name.clone(), value: inline(value) })
            .collect();
        if let Some(option) = described.iter().find(|option| has_variable(&option.value)) {
            let what =
                format!("`{}` contains a variable, which only `sluice run` replaces", option.name);
            return Err(description_error(&file, &what));
        }
        // Mistakes are reported with the file.
        let comment = format!("{DESCRIBED_BY}{}", printable(&file.to_string_lossy()));
        described.iter_mut().for_each(|option| option.value += &comment);
        Ok(Self { from: Some(from), options: [described, options].concat() })
    }

    /// The source that is given by its name.
    pub(crate) fn named_source<'s>(&self, shell: &'s Shell) -> Result<Option<&'s Plugin>, Failure> {
        let Some(name) = &self.from else { return Ok(None) };
        let plugin = plugin_lookup::plugin_named(shell, PluginKind::Source, name)?;
        if self.options.is_empty() {
            plugin_lookup::check_path_suffices(plugin, shell)?;
        }
        Ok(Some(plugin))
    }

    /// The source that reads `file`.
    pub(crate) fn source_for<'s>(
        &self,
        file: &Path,
        shell: &'s Shell,
    ) -> Result<&'s Plugin, Failure> {
        self.named_source(shell)?.map_or_else(|| sniffing::sniff(shell, file), Ok)
    }
}

fn description_error(file: &Path, what: &str) -> Failure {
    Failure::Usage(format!("--describe {}: {what}", file.display()))
}

/// Reads the table that describes the format: the whole file, or the matching source if the file is
/// a pipeline.
fn source_table(file: &Path, from: Option<&str>) -> Result<toml::Table, Failure> {
    let bytes = files::read_small(file, MAX_DESCRIPTION_LEN)
        .map_err(|error| Failure::Usage(format!("--describe: {error}")))?;
    if bytes.len() > MAX_DESCRIPTION_LEN {
        return Err(description_error(file, "expected a TOML file of at most 4 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        description_error(file, "expected a TOML file, found bytes that are not UTF-8")
    })?;
    let mut table: toml::Table = toml::from_str(&text)
        .map_err(|e| description_error(file, &format!("invalid TOML\n{e}")))?;
    let plugin =
        |node: &toml::Value| node.get("plugin").and_then(toml::Value::as_str).map(str::to_owned);
    let Some(toml::Value::Table(sources)) = table.remove("sources") else {
        return match (plugin(&toml::Value::Table(table.clone())), from) {
            (Some(plugin), Some(from)) if plugin != from => Err(description_error(
                file,
                &format!("it describes a format of `{plugin}`, not of `{from}`"),
            )),
            _ => Ok(table),
        };
    };
    let names: Vec<String> = sources.keys().cloned().collect();
    let fits = |node: &toml::Value| from.is_none_or(|from| plugin(node).as_deref() == Some(from));
    let mut nodes = sources.into_iter().map(|(_, node)| node).filter(fits);
    match (nodes.next(), nodes.next()) {
        (Some(toml::Value::Table(node)), None) => Ok(node),
        _ => {
            let names = names.join(", ");
            let which = from.map_or("one source".to_owned(), |from| format!("one source `{from}`"));
            Err(description_error(file, &format!("expected {which}, found the sources: {names}")))
        }
    }
}

/// Formats a value on one line.
fn inline(value: &toml::Value) -> String {
    match value {
        // A JSON string is also a TOML string, and is always one line.
        toml::Value::String(text) => Value::from(text.as_str()).to_string(),
        toml::Value::Array(values) => {
            format!("[{}]", values.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        toml::Value::Table(table) => {
            let pair = |(key, value): (&String, &toml::Value)| {
                format!("{} = {}", Value::from(key.as_str()), inline(value))
            };
            format!("{{ {} }}", table.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(
        text: &str,
        from: Option<&str>,
        options: &[Assignment],
    ) -> Result<InputFormat, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let (from, describe) = (from.map(str::to_owned), Some(file.path().to_owned()));
        InputFormat::from_args(&FormatArgs { from, describe, source_option: options.to_vec() })
            .map_err(|failure| format!("{failure:?}"))
    }

    /// The options, as a pipeline file has them.
    fn options(format: &InputFormat) -> toml::Table {
        let lines =
            format.options.iter().map(|option| format!("{} = {}\n", option.name, option.value));
        lines.collect::<String>().parse().unwrap()
    }

    const RIG: &str = r#"
        path = "${INPUT}"
        magic = "a\nb"
        epoch = 2020-01-01T00:00:00Z
        scale = 0.5
        fields = [{ name = "us", bits = { ready = 0 } }, { name = "n" }]
        [kinds.0x01]
        name = "x"
    "#;

    #[test]
    fn a_description_becomes_one_line_per_source_option() {
        let format = described(RIG, Some("records"), &[]).unwrap();
        assert!(format.options.iter().all(|o| o.value.lines().count() == 1), "{format:?}");
        let options = options(&format);
        assert_eq!(options["magic"].as_str(), Some("a\nb"));
        assert_eq!(options["epoch"].to_string(), "2020-01-01T00:00:00Z");
        assert_eq!(options["fields"][0]["bits"]["ready"].as_integer(), Some(0));
        assert_eq!(options["kinds"]["0x01"]["name"].as_str(), Some("x"));
        assert!(!options.contains_key("path"));
    }

    #[test]
    fn the_source_is_named_by_the_file_or_the_command_line() {
        let with_plugin = format!("plugin = \"records\"\n{RIG}");
        let format = described(&with_plugin, None, &[]).unwrap();
        assert_eq!(format.from.as_deref(), Some("records"));
        for (text, from, part) in [
            (RIG, None, "it names no source"),
            (&*with_plugin, Some("csv"), "of `records`, not of `csv`"),
            ("fields = [", Some("records"), "invalid TOML"),
            ("channel = \"${X}\"", Some("records"), "`channel` contains a variable"),
            ("[sources.a]\n[sources.b]\n", None, "found the sources: a, b"),
        ] {
            let error = described(text, from, &[]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_source_of_a_pipeline_file_is_a_description_and_options_go_before_it() {
        let text = "[sources.rig]\nplugin = \"records\"\nmagic = \"A\"\nchannel = \"$$x\"\n\
                    [sources.other]\nplugin = \"csv\"\n[sinks.out]\nplugin = \"null\"\n";
        let magic = Assignment { name: "magic".into(), value: "B".into() };
        let format = described(text, Some("records"), &[magic]).unwrap();
        let values: Vec<_> = format.options.iter().map(|option| &*option.value).collect();
        assert!(values[0].starts_with("\"$$x\"") && values[1..] == ["B"], "{values:?}");
    }
}
