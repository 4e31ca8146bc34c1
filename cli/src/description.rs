//! Files that describe a format: the options of a source, as a pipeline file has them. Says which source reads an
//! input, and with which options; reads no input.

use std::path::Path;

use serde_json::{Map, Value};
use sluice_core::{Input, Plugin, PluginKind, files};

use crate::args::Assignment;
use crate::ending::Failure;
use crate::inputs;
use crate::recipe::toml_of;
use crate::shell::Shell;

/// A longer file is no description, but a log in its place.
const LONGEST: usize = 4 << 20;

/// Keys of a source that are not of its format: which node it is, what it reads, and what a run does with damage.
const OF_THE_RUN: [&str; 8] =
    ["plugin", "from", "path", "url", "on_damage", "quarantine", "source_name", "when"];

/// What is known of the format of inputs before any of them is opened.
#[derive(Debug, Default)]
pub(crate) struct Format {
    /// The name of the source.
    pub(crate) from: Option<String>,
    /// Its options: those of the description, and those of the command line, which count first.
    pub(crate) options: Vec<Assignment>,
}

impl Format {
    /// What a command line says by `--from`, `--describe` and `--source-option`.
    pub(crate) fn of(
        from: Option<&str>,
        describe: Option<&Path>,
        options: &[Assignment],
    ) -> Result<Self, Failure> {
        let from = from.map(str::to_owned);
        let Some(file) = describe else { return Ok(Self { from, options: options.to_vec() }) };
        let node = node(file, from.as_deref())?;
        let plugin = node.get("plugin").and_then(toml::Value::as_str).map(str::to_owned);
        let from = from.or(plugin).ok_or_else(|| {
            wrong(file, "it does not say which source it is for: begin it with `plugin = \"…\"`, or say --from")
        })?;
        let is_given = |key: &str| options.iter().any(|option| option.name == key);
        let described = node.iter().filter(|(key, _)| !OF_THE_RUN.contains(&key.as_str()));
        let described = described.filter(|(key, _)| !is_given(key));
        let described: Vec<Assignment> = described
            .map(|(name, value)| Assignment { name: name.clone(), value: inline(value) })
            .collect();
        if let Some(option) = described.iter().find(|option| has_variable(&option.value)) {
            let what =
                format!("`{}` has a variable, which only `sluice run` fills in", option.name);
            return Err(wrong(file, &what));
        }
        Ok(Self { from: Some(from), options: [described, options.to_vec()].concat() })
    }

    /// The source that reads a file of this format, and its options.
    pub(crate) fn reader<'s>(
        &self,
        file: &Input,
        shell: &'s Shell,
    ) -> Result<(&'s Plugin, Map<String, Value>), Failure> {
        let options = self.json()?;
        let source = match self.from.as_deref().filter(|_| !options.is_empty()) {
            Some(name) => inputs::named(shell, PluginKind::Source, name)?,
            None => inputs::source_of(shell, std::slice::from_ref(file), self.from.as_deref())?,
        };
        Ok((source, options))
    }

    /// Its options as a source takes them that is part of no pipeline file.
    pub(crate) fn json(&self) -> Result<Map<String, Value>, Failure> {
        let mut all = Map::new();
        for Assignment { name, value } in &self.options {
            if has_variable(value) {
                let what = format!("--source-option {name}: variables are for pipeline files");
                return Err(Failure::WrongUse(what));
            }
            let table: toml::Table = toml::from_str(&format!("value = {}", toml_of(value)))
                .map_err(|e| Failure::WrongUse(format!("--source-option {name}: {e}")))?;
            all.extend(table.get("value").map(|value| (name.clone(), json(value))));
        }
        Ok(all)
    }
}

fn wrong(file: &Path, what: &str) -> Failure {
    Failure::WrongUse(format!("--describe {}: {what}", file.display()))
}

/// The table that describes a format: the whole file, or a source of the pipeline that it is.
fn node(file: &Path, from: Option<&str>) -> Result<toml::Table, Failure> {
    let bytes = files::head(file, LONGEST + 1)?;
    if bytes.len() > LONGEST {
        return Err(wrong(file, "a description is a TOML file of 4 MiB at most"));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| wrong(file, "a description is a TOML file, and this is no text"))?;
    let mut table: toml::Table =
        toml::from_str(&text).map_err(|e| wrong(file, &format!("it is no TOML\n{e}")))?;
    let plugin =
        |node: &toml::Value| node.get("plugin").and_then(toml::Value::as_str).map(str::to_owned);
    let Some(toml::Value::Table(sources)) = table.remove("sources") else {
        return match (plugin(&toml::Value::Table(table.clone())), from) {
            (Some(plugin), Some(from)) if plugin != from => {
                Err(wrong(file, &format!("it describes a format for `{plugin}`, not for `{from}`")))
            }
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
            Err(wrong(file, &format!("expected {which}, found the sources: {names}")))
        }
    }
}

/// Whether a value of a pipeline file has a variable in it; two dollars are one that stands for itself.
fn has_variable(text: &str) -> bool {
    text.replace("$$", "").contains("${")
}

/// A value in one line.
fn inline(value: &toml::Value) -> String {
    match value {
        // What JSON has for a text TOML reads, too, in one line whatever is in it.
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

/// A value as a source takes it.
fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.replace("$$", "$").into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(is_so) => (*is_so).into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => values.iter().map(json).collect(),
        toml::Value::Table(table) => table
            .iter()
            .map(|(key, value)| (key.clone(), json(value)))
            .collect::<Map<_, _>>()
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(text: &str, from: Option<&str>, options: &[Assignment]) -> Result<Format, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Format::of(from, Some(file.path()), options).map_err(|failure| format!("{failure:?}"))
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
    fn a_description_gives_the_options_of_a_source_in_one_line_each() {
        let format = described(RIG, Some("records"), &[]).unwrap();
        assert!(format.options.iter().all(|o| o.value.lines().count() == 1), "{format:?}");
        let json = format.json().unwrap();
        assert_eq!(json["magic"], "a\nb");
        assert_eq!(json["epoch"], "2020-01-01T00:00:00Z");
        assert_eq!(json["fields"][0]["bits"]["ready"], 0);
        assert_eq!(json["kinds"]["0x01"]["name"], "x");
        assert!(!json.contains_key("path"));
    }

    #[test]
    fn the_source_is_named_by_the_file_or_the_command_line() {
        let with_plugin = format!("plugin = \"records\"\n{RIG}");
        let format = described(&with_plugin, None, &[]).unwrap();
        assert_eq!(format.from.as_deref(), Some("records"));
        for (text, from, part) in [
            (RIG, None, "which source it is for"),
            (&*with_plugin, Some("csv"), "for `records`, not for `csv`"),
            ("fields = [", Some("records"), "no TOML"),
            ("channel = \"${X}\"", Some("records"), "`channel` has a variable"),
            ("[sources.a]\n[sources.b]\n", None, "found the sources: a, b"),
        ] {
            let said = described(text, from, &[]).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_source_of_a_pipeline_file_is_a_description_and_options_go_before_it() {
        let text = "[sources.rig]\nplugin = \"records\"\nmagic = \"A\"\nchannel = \"$$x\"\n\
                    [sources.other]\nplugin = \"csv\"\n[sinks.out]\nplugin = \"null\"\n";
        let magic = Assignment { name: "magic".into(), value: "B".into() };
        let format = described(text, Some("records"), &[magic]).unwrap();
        let json = format.json().unwrap();
        assert_eq!((&json["magic"], &json["channel"]), (&Value::from("B"), &Value::from("$x")));
        assert_eq!(format.options.len(), 2);
    }
}
