//! Stage `expect`: passes events unchanged, and compares the log with expectations at its end.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};
use sluice_kit::mistake::Mistake;
use sluice_model::schemars::JsonSchema;
use sluice_model::{Batch, Error, Fold, OptionsError, RowsEffect, Stage, StageContext};
use toml::de::DeTable;

use super::compare::compare;
use super::rules::{ChannelRules, Expectations, LogRules};
use crate::collect::{Collection, Collector, RowFigures};
use crate::origin;

/// Options of `expect`: a file, or the same in the pipeline file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct ExpectOptions {
    /// A file of expectations, with the tables `log` and `channels`.
    #[schemars(extend("format" = sluice_model::options::PATH_FORMAT))]
    pub(crate) file: Option<PathBuf>,
    /// Expectations of the whole log.
    #[schemars(with = "Option<LogRules>")]
    pub(crate) log: Option<Value>,
    /// Expectations of channels: a name, a glob, or `re:` and a regular expression each.
    #[schemars(with = "BTreeMap<String, ChannelRules>")]
    pub(crate) channels: Map<String, Value>,
}

sluice_model::register! {
    stage "expect": ExpectOptions,
    about: "compares a log with what is expected of it: channels, rates, gaps, types, damage",
    sample: include_str!("../../samples/expect.toml"),
}

/// Compares the events that pass with expectations.
struct Expect {
    expectations: Expectations,
    collection: Collection,
    collector: Collector,
    rows: RowFigures,
}

impl TryFrom<ExpectOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: ExpectOptions) -> Result<Self, OptionsError> {
        let expectations = expectations(options)?;
        let rows = match expectations.needs_values() {
            true => RowFigures::Values,
            false => RowFigures::Types,
        };
        let collection = Collection::keeping(expectations.fields());
        Ok(Self::Fold(Box::new(Expect {
            expectations,
            collection,
            collector: Collector::default(),
            rows,
        })))
    }
}

fn expectations(options: ExpectOptions) -> Result<Expectations, OptionsError> {
    let ExpectOptions { file, log, channels } = options;
    match file {
        Some(_) if log.is_some() || !channels.is_empty() => {
            Err(OptionsError::at("file", "expected either `file`, or `log` and `channels`"))
        }
        Some(file) => {
            Expectations::open(&file).map_err(|error| OptionsError::at("file", error.to_string()))
        }
        None if log.is_none() && channels.is_empty() => {
            let message = "`file`, or `log` and `channels`, are needed".to_owned();
            Err(OptionsError { path: Vec::new(), message })
        }
        None => {
            let log = log.map(|log| ("log".to_owned(), log));
            let channels = ("channels".to_owned(), Value::Object(channels));
            parse(&log.into_iter().chain([channels]).collect())
        }
    }
}

/// Parses tables of the pipeline file. `Err` is the first mistake.
fn parse(tables: &Map<String, Value>) -> Result<Expectations, OptionsError> {
    // Rules know their place in a text only.
    let text = toml::to_string(tables).map_err(|e| OptionsError::at("channels", e.to_string()))?;
    Expectations::parse("", &text).map_err(|mistakes| {
        let first = mistakes.into_iter().next();
        let at = first.as_ref().map_or(0, |mistake| mistake.span.start);
        let path = DeTable::parse(&text).map(|table| path_at(table.get_ref(), at));
        let message = first.map_or(String::new(), |Mistake { message, help, .. }| match help {
            Some(help) => format!("{message} ({help})"),
            None => message,
        });
        OptionsError { path: path.unwrap_or_default(), message }
    })
}

/// The keys that lead to what is written at this offset.
fn path_at(table: &DeTable<'_>, at: usize) -> Vec<String> {
    let found = table.iter().find_map(|(key, value)| {
        let inner = value.get_ref().as_table().map(|inner| path_at(inner, at)).unwrap_or_default();
        let is_here =
            !inner.is_empty() || [key.span(), value.span()].iter().any(|s| s.contains(&at));
        is_here.then(|| [vec![key.get_ref().to_string()], inner].concat())
    });
    found.unwrap_or_default()
}

impl Fold for Expect {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let part = self.collector.part(&batch, self.rows, None);
        self.collection.append(part, &self.collector);
        Ok(vec![batch])
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let collection = std::mem::take(&mut self.collection);
        let mut figures = collection.figures(context.channels, None);
        let origin = context.run_origin.as_deref();
        figures.inputs = origin.map_or(Ok(Vec::new()), origin::inputs)?;
        let compared = compare(&self.expectations, &figures);
        context.report.unmet.extend(compared.unmet);
        compared.notes.into_iter().for_each(|note| context.note(note, 0));
        Ok(Vec::new())
    }

    fn fingerprint(&self) -> Option<String> {
        Some(self.expectations.fingerprint())
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }

    fn delays_events(&self) -> bool {
        false
    }

    fn needs_all_events(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_model::{
        BatchBuilder, Channel, ChannelId, Channels, Encoding, Name, UnmetExpectation, options,
    };

    fn stage(value: Value) -> Result<Stage, OptionsError> {
        options::read::<ExpectOptions>(value).and_then(Stage::try_from)
    }

    fn refusal(value: Value) -> OptionsError {
        stage(value).expect_err("it is refused")
    }

    /// The expectations that a log of these times on channel `A` does not meet.
    fn unmet(value: Value, times: &[i64]) -> Vec<UnmetExpectation> {
        let Ok(Stage::Fold(mut fold)) = stage(value) else { panic!("a fold") };
        let channels = Channels::default();
        let channel = Channel::new(Name::from_bytes(b"A"), "log", Encoding::Unknown);
        let id = channels.intern(channel).unwrap();
        let mut context = StageContext::new(&channels, None);
        for part in times.chunks(3) {
            let mut batch = BatchBuilder::default();
            part.iter().for_each(|time| batch.push_copy(*time, 0, id, b"x"));
            let passed = fold.push(batch.finish(), &mut context).unwrap();
            assert_eq!(passed.iter().map(Batch::len).sum::<usize>(), part.len());
        }
        assert!(fold.finish(&mut context).unwrap().is_empty());
        assert_eq!(ChannelId(0), id);
        context.report.unmet
    }

    #[test]
    fn events_pass_and_the_log_is_compared_at_its_end() {
        let second = 1_000_000_000;
        let mut times: Vec<i64> = (0..20).map(|n| n * second).collect();
        let options = json!({ "channels": { "A": { "rate": 1, "max_gap": "1.5s" } } });
        assert_eq!(unmet(options.clone(), &times), []);
        times.iter_mut().skip(10).for_each(|time| *time += 3 * second);
        let found = unmet(options, &times);
        let [gap] = &found[..] else { panic!("{found:?}") };
        assert_eq!((gap.rule.as_str(), gap.found.as_str()), ("max_gap", "4 s"));
        assert_eq!(gap.when.unwrap().after, 9 * second);
    }

    #[test]
    fn a_log_without_events_has_no_channels() {
        let found = unmet(json!({ "channels": { "A": {} } }), &[]);
        assert_eq!(found[0].rule, "must_exist");
    }

    #[test]
    fn options_are_a_file_or_rules() {
        assert_eq!(refusal(json!({ "file": "missing.toml" })).path, ["file"]);
        assert_eq!(refusal(json!({ "file": "x", "log": {} })).path, ["file"]);
        assert!(refusal(json!({})).message.contains("needed"));
        let wrong = refusal(json!({ "log": { "damge": 0 } }));
        assert_eq!(wrong.path, ["log", "damge"]);
        assert!(wrong.message.contains("did you mean `damage`?"), "{wrong}");
        let wrong = refusal(json!({ "channels": { "A": { "rate": 0, "count": 1 } } }));
        assert_eq!(wrong.path, ["channels", "A", "rate"]);
        assert!(wrong.message.contains("expected a rate above 0"), "{wrong}");
        let wrong = refusal(json!({ "channels": { "re:(": { "rate": 1 } } }));
        assert_eq!(wrong.path, ["channels", "re:("]);
        let wrong = refusal(json!({ "channels": { "A": { "fields": { "a[": { "min": 1 } } } } }));
        assert_eq!(wrong.path, ["channels", "A", "fields", "a["]);
    }
}
