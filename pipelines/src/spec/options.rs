//! A plugin's options: reports every mistake in them, otherwise creates the plugin.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::{Map, Value};
use sluice_kit::mistake::Mistake;
use sluice_model::{OptionsError, Plugin, PluginKind, Registry};
use toml::de::{DeTable, DeValue};

use super::PluginInstance;
use super::check::{Check, TextEdit, TomlKey, TomlValue};
use super::messages::{
    did_you_mean, expects_name, field, lines, listed, nearest, plainly, unknown_key, variants,
};
use super::outline::as_written;
use super::reference;
use super::relocation::string_literal;
use super::schema_view::SchemaView;
use super::templates::TemplateUse;
use super::variables::has_variable;

/// The option for the folder in which a program runs.
const FOLDER: &str = "folder";

type WrittenOption<'w, 't> = (&'w TomlKey<'t>, &'w TomlValue<'t>);

/// The result of checking a node's options.
pub(super) struct CheckedOptions {
    /// The plugin instance and its options; `None` after a mistake.
    pub(super) made: Option<(PluginInstance, Value)>,
    /// The options as far as they could be read; the others as written.
    pub(super) shown: Value,
    /// The schema of the plugin's options; null if the plugin is not known.
    pub(super) schema: Value,
}

/// The options of one node while they are checked.
struct OptionTrial<'w, 't> {
    plugin: &'w Plugin,
    written: &'w [WrittenOption<'w, 't>],
    header: &'w Range<usize>,
    options: Map<String, Value>,
    /// Paths of keys reported as wrong or missing; consequences are not reported.
    noted: BTreeSet<Vec<String>>,
}

impl<'t> Check<'_> {
    /// Reads the options of a node and creates its plugin. Without a known plugin, checks only what
    /// does not depend on it.
    pub(super) fn options(
        &mut self,
        plugin: Option<&Plugin>,
        header: &Range<usize>,
        written: &[WrittenOption<'_, 't>],
        templates: &mut Vec<TemplateUse>,
    ) -> CheckedOptions {
        let Some(plugin) = plugin else {
            for (_, value) in written {
                self.value(value, &SchemaView::unknown());
            }
            let shown = options_as_read(written, &Map::new());
            return CheckedOptions { made: None, shown, schema: Value::Null };
        };
        let schema = Value::from((plugin.schema)());
        let shape = SchemaView::from_schema(&schema);
        let (options, noted) = (Map::new(), BTreeSet::new());
        let mut check = OptionTrial { plugin, written, header, options, noted };
        for (key, value) in written {
            templates.extend(self.option(&mut check, key, value, &shape));
        }
        for preset in self.document.presets.iter().filter(|preset| preset.plugin == plugin.name) {
            if !check.has(preset.name) {
                check.options.insert(preset.name.to_owned(), preset.value.clone().into());
            }
        }
        if plugin.program.is_some() && !check.has(FOLDER) {
            let here = self.located(".", false);
            // Anything may follow the header; a key fits before the first one written.
            let first = written.iter().map(|(key, _)| key.span().start).min();
            let first = first.filter(|_| here != ".");
            let text = format!("{FOLDER} = {}\n", string_literal(&here));
            self.edits.extend(first.map(|at| TextEdit { span: at..at, text }));
            check.options.insert(FOLDER.to_owned(), Value::String(here));
        }
        for key in shape.required() {
            self.required(&mut check, key, &shape);
        }
        let shown = options_as_read(written, &check.options);
        CheckedOptions { made: self.try_make(check), shown, schema }
    }

    fn option(
        &mut self,
        check: &mut OptionTrial<'_, 't>,
        key: &TomlKey<'t>,
        value: &TomlValue<'t>,
        shape: &SchemaView<'_>,
    ) -> Vec<TemplateUse> {
        let (name, known) = (key.get_ref().as_ref(), shape.keys());
        self.reads_templates = check.plugin.kind() == PluginKind::Sink;
        let json = self.value(value, &shape.property(name));
        self.reads_templates = false;
        if !known.contains(&name) && !shape.takes_any_key() {
            self.unknown_option(check, key, &known);
            return Vec::new();
        }
        let Some(mut json) = json else {
            check.noted.insert(vec![name.to_owned()]);
            return Vec::new();
        };
        let found = if check.plugin.kind() == PluginKind::Sink {
            self.templates(&[name.to_owned()], value, &mut json, &shape.property(name))
        } else {
            Vec::new()
        };
        check.options.insert(name.to_owned(), json);
        found
    }

    fn unknown_option(
        &mut self,
        check: &mut OptionTrial<'_, 't>,
        key: &TomlKey<'t>,
        known: &[&str],
    ) {
        let name = key.get_ref();
        let message = format!("`{}` has no option `{name}`", check.plugin.name);
        let free: Vec<&str> = known.iter().copied().filter(|known| !check.has(known)).collect();
        let of_node = reference::node_keys(check.plugin.kind()).map(|key| key.name);
        let all: Vec<&str> = free.iter().copied().chain(of_node).collect();
        let help = reference::right_place(name)
            .or_else(|| did_you_mean(name, &all))
            .unwrap_or_else(|| {
                let none = known.is_empty().then(|| "it has no options".to_owned());
                none.unwrap_or_else(|| listed("its options are", known))
            });
        self.mistake_at(key.span(), message, Some(help));
        // The key it was most likely meant to be is not missing.
        check.noted.extend(nearest(name, &free).map(|near| vec![near.to_owned()]));
    }

    fn required(&mut self, check: &mut OptionTrial<'_, 't>, key: &str, shape: &SchemaView<'_>) {
        let is_there = check.has(key) || check.options.contains_key(key);
        if !is_there && check.noted.insert(vec![key.to_owned()]) {
            let help = example(check.plugin.sample, key)
                .map(|line| format!("for example `{line}`"))
                .unwrap_or_else(|| format!("add `{key} = …` ({})", shape.property(key).words()));
            let message = format!("`{}` needs the option `{key}`", check.plugin.name);
            self.missing(check.header.clone(), message, Some(help));
        }
    }

    /// Creates the plugin; as long as one key is wrong, reports it and retries without it. Of the
    /// keys in a table only the innermost is left out: another value in the same option may be
    /// wrong, too. What the plugin then says of what it was in may follow from what is lacking.
    fn try_make(&mut self, mut check: OptionTrial<'_, 't>) -> Option<(PluginInstance, Value)> {
        loop {
            let options = Value::Object(check.options.clone());
            let error = match make(self.registry, check.plugin, options.clone()) {
                Ok(part) => return check.noted.is_empty().then_some((part, options)),
                Err(error) => error,
            };
            let mut path = &error.path[..];
            let mut removed = remove_inner(&mut check.options, path);
            if removed.is_none() {
                path = path.get(..1).unwrap_or_default();
                removed = path.first().and_then(|key| check.options.shift_remove(key));
            }
            let told = &error.path;
            let follows = |noted: &Vec<String>| noted.starts_with(told) || told.starts_with(noted);
            if path.is_empty() || !check.noted.iter().any(follows) {
                self.note_refusal(&check, &error, removed.as_ref());
            }
            check.noted.extend((!path.is_empty()).then(|| path.to_vec()));
            removed?;
        }
    }

    /// Reports why the plugin refused its options, unless that follows from an earlier mistake.
    fn note_refusal(
        &mut self,
        check: &OptionTrial<'_, 't>,
        error: &OptionsError,
        removed: Option<&Value>,
    ) {
        if removed.is_none() && !check.noted.is_empty() {
            return;
        }
        let (value_span, found) = check.find(&error.path);
        let (first, detail) = lines(&error.message);
        let message = match field(first, "missing") {
            Some(name) => format!("the option `{name}` is missing"),
            None => plainly(first, found),
        };
        let (value, key) = (variants(first), unknown_key(first));
        let span = key.as_ref().and_then(|_| check.key_span(&error.path)).unwrap_or(value_span);
        let help = value.or(key).and_then(|(given, known)| did_you_mean(given, &known));
        let help = help
            .or_else(|| filled_in(found?, removed?))
            .or_else(|| names(check.plugin, &error.path).filter(|_| expects_name(&message)));
        self.note(Mistake { span, message, help, detail: detail.map(str::to_owned) });
    }
}

/// Removes the value that a path leads to from the table that it is in, unless that is the table of
/// all options. Elements of lists stay: without them, others would have different places.
fn remove_inner(options: &mut Map<String, Value>, path: &[String]) -> Option<Value> {
    let ([first, inner @ ..], last) = path.split_last().map(|(last, rest)| (rest, last))? else {
        return None;
    };
    let mut value = options.get_mut(first)?;
    for step in inner {
        value = match value {
            Value::Array(list) => list.get_mut(step.parse::<usize>().ok()?)?,
            other => other.get_mut(step)?,
        };
    }
    value.as_object_mut()?.shift_remove(last)
}

/// Options as far as they were read, in the order written.
fn options_as_read(written: &[WrittenOption<'_, '_>], read: &Map<String, Value>) -> Value {
    let option = |(key, value): &WrittenOption<'_, '_>| {
        let name = key.get_ref().to_string();
        let value = read.get(&name).cloned().unwrap_or_else(|| as_written(value.get_ref()));
        (name, value)
    };
    Value::Object(written.iter().map(option).collect())
}

/// The names that an option takes. Of those inside options nothing is known.
fn names(plugin: &Plugin, path: &[String]) -> Option<String> {
    let [key] = path else { return None };
    let schema = Value::from((plugin.schema)());
    Some(format!("it takes {}", SchemaView::from_schema(&schema).property(key).words()))
}

/// The expanded value of a string, if it differs from the text.
fn filled_in(written: &DeValue<'_>, read: &Value) -> Option<String> {
    let (written, read) = (written.as_str()?, read.as_str()?);
    has_variable(written).then(|| format!("with its variables filled in it is `{read}`"))
}

impl<'w> OptionTrial<'w, '_> {
    /// Whether the key was written.
    fn has(&self, key: &str) -> bool {
        self.written.iter().any(|(written, _)| written.get_ref() == key)
    }

    /// Where the last key of a path is written.
    fn key_span(&self, path: &[String]) -> Option<Range<usize>> {
        let (last, rest) = path.split_last()?;
        match self.find(rest).1? {
            DeValue::Table(table) => table.get_key_value(last.as_str()).map(|(key, _)| key.span()),
            _ => None,
        }
    }

    /// The value that a path leads to, as far as the path can be followed.
    fn find(&self, path: &[String]) -> (Range<usize>, Option<&'w DeValue<'w>>) {
        let mut steps = path.iter();
        let first =
            steps.next().and_then(|key| self.written.iter().find(|(k, _)| k.get_ref() == key));
        let Some(&(_, mut value)) = first else { return (self.header.clone(), None) };
        for step in steps {
            let next = match value.get_ref() {
                DeValue::Array(list) => step.parse().ok().and_then(|at: usize| list.get(at)),
                DeValue::Table(table) => child(table, step),
                _ => None,
            };
            let Some(next) = next else { break };
            value = next;
        }
        (value.span(), Some(value.get_ref()))
    }
}

fn child<'a, 't>(table: &'a DeTable<'t>, key: &str) -> Option<&'a TomlValue<'t>> {
    table.get(key)
}

/// Creates a plugin that can be a node.
pub(crate) fn make(
    registry: &Registry,
    plugin: &Plugin,
    options: Value,
) -> Result<PluginInstance, OptionsError> {
    match plugin.kind() {
        PluginKind::Source => registry.source(plugin.name, options).map(PluginInstance::Source),
        PluginKind::Stage => registry.stage(plugin.name, options).map(PluginInstance::Stage),
        PluginKind::Sink => registry.sink(plugin.name, options).map(PluginInstance::Sink),
        kind @ (PluginKind::Codec | PluginKind::Service) => {
            let message = format!("a {kind} cannot be a node");
            Err(OptionsError { path: Vec::new(), message })
        }
    }
}

/// The line of a plugin's sample that sets this option, without its comment.
fn example<'s>(sample: &'s str, key: &str) -> Option<&'s str> {
    let lines = sample.lines().map(|line| line.trim_start_matches(['#', ' ']));
    let given =
        |line: &&str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='));
    lines.filter(given).map(|line| line.split(" #").next().unwrap_or(line).trim()).next()
}
