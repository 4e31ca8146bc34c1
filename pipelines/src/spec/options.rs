//! A plugin's options: every mistake in them, and the plugin made from them if there is none.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::{Map, Value};
use sluice_core::mistake::Mistake;
use sluice_core::{OptionsError, Plugin, PluginFactory, PluginKind};
use toml::de::{DeTable, DeValue};

use super::Part;
use super::check::{Check, Given, Key};
use super::outline::as_written;
use super::reference;
use super::relocation::{Edit, string_literal};
use super::shape::Shape;
use super::templates::TemplateUse;
use super::wording::{did_you_mean, field, lines, listed, nearest, plain, variants};

/// The option that names the folder in which a program runs.
const FOLDER: &str = "folder";

type Written<'w, 't> = (&'w Key<'t>, &'w Given<'t>);

/// What became of the options of a node.
pub(super) struct Judged {
    /// The plugin, and the options that it was made from. Nothing if a mistake was noted.
    pub(super) made: Option<(Part, Value)>,
    /// The options as far as they could be read, and the others as they are written.
    pub(super) shown: Value,
}

/// The options of one node on their way.
struct Trial<'w, 't> {
    plugin: &'w Plugin,
    written: &'w [Written<'w, 't>],
    header: &'w Range<usize>,
    options: Map<String, Value>,
    /// Keys that have been noted as wrong or missing; what follows from that is not said.
    noted: BTreeSet<String>,
}

impl<'t> Check<'_> {
    /// Reads the options of a node and makes its plugin. Nothing if a mistake was noted, or if the
    /// plugin is not known; then only what can be judged without it is.
    pub(super) fn options(
        &mut self,
        plugin: Option<&Plugin>,
        header: &Range<usize>,
        written: &[Written<'_, 't>],
        templates: &mut Vec<TemplateUse>,
    ) -> Judged {
        let Some(plugin) = plugin else {
            for (_, value) in written {
                self.value(value, &Shape::unknown());
            }
            return Judged { made: None, shown: shown(written, &Map::new()) };
        };
        let schema = Value::from((plugin.schema)());
        let shape = Shape::of(&schema);
        let (options, noted) = (Map::new(), BTreeSet::new());
        let mut trial = Trial { plugin, written, header, options, noted };
        for (key, value) in written {
            templates.extend(self.option(&mut trial, key, value, &shape));
        }
        if plugin.program.is_some() && !trial.has(FOLDER) {
            let here = self.located(".", false);
            // Behind the header there may be anything; a key fits above the first one that is
            // written.
            let first = written.iter().map(|(key, _)| key.span().start).min();
            let first = first.filter(|_| here != ".");
            let text = format!("{FOLDER} = {}\n", string_literal(&here));
            self.edits.extend(first.map(|at| Edit { span: at..at, text }));
            trial.options.insert(FOLDER.to_owned(), Value::String(here));
        }
        for key in shape.required() {
            self.required(&mut trial, key, &shape);
        }
        let shown = shown(written, &trial.options);
        Judged { made: self.attempt(trial), shown }
    }

    fn option(
        &mut self,
        trial: &mut Trial<'_, 't>,
        key: &Key<'t>,
        value: &Given<'t>,
        shape: &Shape<'_>,
    ) -> Vec<TemplateUse> {
        let (name, known) = (key.get_ref().as_ref(), shape.keys());
        self.reads_templates = trial.plugin.kind() == PluginKind::Sink;
        let json = self.value(value, &shape.property(name));
        self.reads_templates = false;
        if !known.contains(&name) && !shape.takes_any_key() {
            self.unknown_option(trial, key, &known);
            return Vec::new();
        }
        let Some(mut json) = json else {
            trial.noted.insert(name.to_owned());
            return Vec::new();
        };
        let found = if trial.plugin.kind() == PluginKind::Sink {
            self.templates(&[name.to_owned()], value, &mut json, &shape.property(name))
        } else {
            Vec::new()
        };
        trial.options.insert(name.to_owned(), json);
        found
    }

    fn unknown_option(&mut self, trial: &mut Trial<'_, 't>, key: &Key<'t>, known: &[&str]) {
        let name = key.get_ref();
        let message = format!("`{}` has no option `{name}`", trial.plugin.name);
        let free: Vec<&str> = known.iter().copied().filter(|known| !trial.has(known)).collect();
        let of_node = reference::of_nodes(trial.plugin.kind()).map(|key| key.name);
        let all: Vec<&str> = free.iter().copied().chain(of_node).collect();
        let elsewhere =
            reference::owners(name).map(|owners| format!("`{name}` belongs on {owners}"));
        let help = elsewhere.or_else(|| did_you_mean(name, &all)).unwrap_or_else(|| {
            let none = known.is_empty().then(|| "it has no options".to_owned());
            none.unwrap_or_else(|| listed("its options are", known))
        });
        self.wrong(key.span(), message, Some(help));
        // The key it was most likely meant to be is not missing.
        trial.noted.extend(nearest(name, &free).map(str::to_owned));
    }

    fn required(&mut self, trial: &mut Trial<'_, 't>, key: &str, shape: &Shape<'_>) {
        if !trial.has(key) && trial.noted.insert(key.to_owned()) {
            let help = example(trial.plugin.sample, key)
                .map(|line| format!("for example `{line}`"))
                .unwrap_or_else(|| format!("add `{key} = …` ({})", shape.property(key).words()));
            let message = format!("`{}` needs the option `{key}`", trial.plugin.name);
            self.absent(trial.header.clone(), message, Some(help));
        }
    }

    /// Makes the plugin; as long as a key is at fault, notes it and tries again without it.
    fn attempt(&mut self, mut trial: Trial<'_, 't>) -> Option<(Part, Value)> {
        loop {
            let options = Value::Object(trial.options.clone());
            let error = match make(trial.plugin, options.clone()) {
                Ok(part) => return trial.noted.is_empty().then_some((part, options)),
                Err(error) => error,
            };
            let removed = error.path.first().and_then(|key| trial.options.shift_remove(key));
            self.refused(&trial, &error, removed.as_ref());
            trial.noted.extend(error.path.first().cloned());
            removed?;
        }
    }

    /// Notes why the plugin did not take its options, unless that follows from what was noted
    /// before.
    fn refused(&mut self, trial: &Trial<'_, 't>, error: &OptionsError, removed: Option<&Value>) {
        if removed.is_none() && !trial.noted.is_empty() {
            return;
        }
        let (span, found) = trial.find(&error.path);
        let (first, detail) = lines(&error.message);
        let message = match field(first, "missing") {
            Some(name) => format!("the option `{name}` is missing"),
            None => plain(first, found),
        };
        let help = variants(&error.message).and_then(|(given, known)| did_you_mean(given, &known));
        let help = help.or_else(|| filled_in(found?, removed?));
        self.note(Mistake { span, message, help, detail: detail.map(str::to_owned) });
    }
}

/// Options as far as they were read, in the order in which they are written.
fn shown(written: &[Written<'_, '_>], read: &Map<String, Value>) -> Value {
    let option = |(key, value): &Written<'_, '_>| {
        let name = key.get_ref().to_string();
        let value = read.get(&name).cloned().unwrap_or_else(|| as_written(value.get_ref()));
        (name, value)
    };
    Value::Object(written.iter().map(option).collect())
}

/// What a string became, where that is not what is written.
fn filled_in(written: &DeValue<'_>, read: &Value) -> Option<String> {
    let (written, read) = (written.as_str()?, read.as_str()?);
    written.contains("${").then(|| format!("with its variables filled in it is `{read}`"))
}

impl<'w> Trial<'w, '_> {
    /// Whether the key was written.
    fn has(&self, key: &str) -> bool {
        self.written.iter().any(|(written, _)| written.get_ref() == key)
    }

    /// Where the value is that a path leads to, as far as the path can be followed.
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

fn child<'a, 't>(table: &'a DeTable<'t>, key: &str) -> Option<&'a Given<'t>> {
    table.get(key)
}

/// Makes a plugin that can be a node.
pub(crate) fn make(plugin: &Plugin, options: Value) -> Result<Part, OptionsError> {
    match plugin.make {
        PluginFactory::Source(make) => make(options).map(Part::Source),
        PluginFactory::Stage(make) => make(options).map(Part::Stage),
        PluginFactory::Sink(make) => make(options).map(Part::Sink),
        PluginFactory::Codec(_) | PluginFactory::Service(_) => {
            let message = format!("a {} is no node", plugin.kind());
            Err(OptionsError { path: Vec::new(), message })
        }
    }
}

/// The line of a plugin's sample that gives this option, without its comment.
fn example<'s>(sample: &'s str, key: &str) -> Option<&'s str> {
    let lines = sample.lines().map(|line| line.trim_start_matches(['#', ' ']));
    let given =
        |line: &&str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='));
    lines.filter(given).map(|line| line.split(" #").next().unwrap_or(line).trim()).next()
}
