//! Finds where mistakes in a generated source stand in the file that describes its format.

use std::ops::Range;
use std::path::Path;

use sluice_io::escape::printable;
use sluice_io::files;
use sluice_kit::mistake::Mistake;
use sluice_pipeline::{Document, Mistakes};
use toml::de::{DeTable, DeValue};

use crate::node_names::SOURCE_NAME;

/// Descriptions are small; a larger file is probably a log given by mistake.
pub(crate) const MAX_DESCRIPTION_LEN: usize = 4 << 20;

/// The mistakes of a generated pipeline as mistakes in the file that describes its source. `None`
/// if the file cannot be read again, or if some are not in it. `is_described` tells whether what is
/// at a position of the pipeline comes from the file.
pub(crate) fn mistakes_in(
    file: &Path,
    mistakes: &Mistakes,
    is_described: impl Fn(usize) -> bool,
) -> Option<Mistakes> {
    let text = String::from_utf8(files::read_small(file, MAX_DESCRIPTION_LEN).ok()?).ok()?;
    let (generated, written) =
        (DeTable::parse(&mistakes.document.text).ok()?, DeTable::parse(&text).ok()?);
    let source = table(table(generated.get_ref(), "sources")?, SOURCE_NAME)?;
    let description = description(written.get_ref(), source)?;
    let name = file.to_string_lossy();
    let located = mistakes.list.iter().map(|mistake| {
        let at = mistake.span.start;
        let path = is_described(at).then(|| path_in_table(source, at))?;
        let keys: Vec<&str> = path.iter().map(|step| &*step.key).collect();
        let keys = if keys.is_empty() { String::new() } else { format!("`{}`: ", keys.join(".")) };
        let message = format!("--describe {}: {keys}{}", printable(&name), mistake.message);
        Some(Mistake { span: span_of(description, &path), message, ..mistake.clone() })
    });
    let located = located.collect::<Option<Vec<Mistake>>>()?;
    Some(Mistakes::new(Document::generated(&*name, &*text), located))
}

/// The table of a file that describes this source: the whole file, or the source of a pipeline.
fn description<'d, 't>(written: &'d DeTable<'t>, source: &DeTable<'_>) -> Option<&'d DeTable<'t>> {
    let plugin = |table: &DeTable<'_>| table.get("plugin")?.get_ref().as_str().map(str::to_owned);
    let Some(sources) = table(written, "sources") else { return Some(written) };
    let mut nodes = sources.values().filter_map(|node| node.get_ref().as_table());
    nodes.find(|node| sources.len() == 1 || plugin(node) == plugin(source))
}

fn table<'d, 't>(inside: &'d DeTable<'t>, key: &str) -> Option<&'d DeTable<'t>> {
    inside.get(key)?.get_ref().as_table()
}

/// A step from a table or list to a value in it.
struct PathStep {
    key: String,
    /// Whether it leads to the key and not to its value.
    is_key: bool,
}

/// The steps that lead to what is at this position; none if nothing is.
fn path_in_table(table: &DeTable<'_>, at: usize) -> Vec<PathStep> {
    let steps = table.iter().find_map(|(key, value)| {
        let step = |is_key| PathStep { key: key.get_ref().to_string(), is_key };
        let inside = || value.span().contains(&at).then(|| path_in(value.get_ref(), at));
        match key.span().contains(&at) {
            true => Some(vec![step(true)]),
            false => {
                inside().map(|inside| [vec![step(false)], inside].into_iter().flatten().collect())
            }
        }
    });
    steps.unwrap_or_default()
}

fn path_in(value: &DeValue<'_>, at: usize) -> Vec<PathStep> {
    match value {
        DeValue::Table(table) => path_in_table(table, at),
        DeValue::Array(list) => {
            let found = list.iter().enumerate().find(|(_, element)| element.span().contains(&at));
            let Some((number, element)) = found else { return Vec::new() };
            let step = PathStep { key: number.to_string(), is_key: false };
            [step].into_iter().chain(path_in(element.get_ref(), at)).collect()
        }
        _ => Vec::new(),
    }
}

/// Where these steps lead to, as far as they can be followed.
fn span_of(description: &DeTable<'_>, path: &[PathStep]) -> Range<usize> {
    let (mut span, mut inside): (_, Option<&DeValue<'_>>) = (0..0, None);
    for PathStep { key, is_key } in path {
        let table = match inside {
            None => Some(description),
            Some(DeValue::Table(table)) => Some(table),
            Some(_) => None,
        };
        let element = match inside {
            Some(DeValue::Array(list)) => key.parse().ok().and_then(|at: usize| list.get(at)),
            _ => None,
        };
        let entry = table.and_then(|table| table.get_key_value(key.as_str()));
        let Some(value) = entry.map(|(_, value)| value).or(element) else { break };
        span = match entry {
            Some((written, _)) if *is_key => written.span(),
            _ => value.span(),
        };
        inside = Some(value.get_ref());
    }
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_stand_where_the_file_has_the_option() {
        let text = "[sources.log]\nplugin = \"records\"\nhead = [{ \"type\" = \"u8\" }]\n\
                    kinds = { \"3\" = { \"fields\" = [{ \"type\" = \"u9\" }] } }\n";
        let at = |part: &str| text.find(part).unwrap();
        let spans = [at("u9") - 1, at("u8") - 1, at("\"fields\""), 0];
        let mistake = |at: usize| Mistake {
            span: at..at + 1,
            message: "wrong".to_owned(),
            help: None,
            detail: None,
        };
        let mistakes = Mistakes::new(
            Document::generated("generated", text),
            spans.into_iter().map(mistake).collect(),
        );
        let plain = "plugin = \"records\"\nhead = [{ type = \"u8\" }]\n\n[kinds.3]\n\
                     fields = [\n  { type = \"u9\" },\n]\n";
        let tables = plain.replace("[kinds.3]", "[sources.mine.kinds.3]");
        let pipeline = format!("[sinks.x]\nplugin = \"null\"\n[sources.mine]\n{tables}");
        for (description, before) in [(plain.to_owned(), 0), (pipeline, 3)] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("my.toml");
            std::fs::write(&file, &description).unwrap();
            let found = mistakes_in(&file, &mistakes, |_| true).unwrap();
            let places: Vec<_> =
                found.list.iter().map(|mistake| mistake.position(&description)).collect();
            let expected = [(2, 18), (5, 1), (6, 12)].map(|(line, at)| (line + before, at));
            assert_eq!(places, [&[(1, 1)], &expected[..]].concat(), "{description}");
            let last = &found.list.last().unwrap().message;
            assert!(last.ends_with("my.toml: `kinds.3.fields.0.type`: wrong"), "{last}");
            assert!(mistakes_in(&file, &mistakes, |at| at > 0).is_none());
        }
    }
}
