//! Converts TOML values to the JSON that plugins read: variables filled in, paths resolved.

use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};
use sluice_io::store::{is_address, unsupported};
use sluice_kit::mistake::Mistake;
use sluice_model::registry::type_set;
use toml::Spanned;
use toml::de::{DeArray, DeFloat, DeInteger, DeTable, DeValue};

use super::check::{Check, TextEdit};
use super::relocation::string_literal;
use super::schema_view::SchemaView;
use super::variables::ExpandedText;
use crate::batch::template::escape_braces;

/// The characters that make a path a glob.
const GLOB: [char; 3] = ['*', '?', '['];

/// Escapes a text for use in a glob.
fn literal(text: &str) -> String {
    let each = |c| if GLOB.contains(&c) { format!("[{c}]") } else { String::from(c) };
    text.chars().map(each).collect()
}

/// A path without parts that mean nothing, `a/b/` for `./a//./b/`, so that a run is the same run
/// however its files are named. A name that would mean something else keeps its dot.
pub(super) fn normalized(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let start = if path.starts_with('/') { "/" } else { "" };
    let end = if path.ends_with('/') || path.ends_with("/.") { "/" } else { "" };
    let plain = format!("{start}{}{end}", parts.join("/"));
    let is_word = plain == "-" || is_address(Path::new(&plain));
    let is_other = parts.is_empty() || path.contains("://") || is_word;
    if is_other { path.to_owned() } else { plain }
}

impl Check<'_> {
    /// `value` as JSON; `None` after a reported mistake.
    pub(super) fn value(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        shape: &SchemaView<'_>,
    ) -> Option<Value> {
        match value.get_ref() {
            DeValue::String(text) => self.text(text, value.span(), shape),
            DeValue::Integer(integer) => self.integer(integer, value.span()),
            DeValue::Float(float) => self.float(float, value.span()),
            DeValue::Boolean(boolean) => Some(Value::Bool(*boolean)),
            DeValue::Datetime(datetime) => Some(Value::String(datetime.to_string())),
            // Serde takes a list for a struct, by position.
            DeValue::Array(_) if shape.is_table() => {
                self.mistake_at(value.span(), "expected a table, found a list", None);
                None
            }
            DeValue::Array(array) => self.array(array, &shape.element()),
            DeValue::Table(table) => self.table(table, shape),
        }
    }

    fn text(&mut self, text: &str, span: Range<usize>, shape: &SchemaView<'_>) -> Option<Value> {
        let expanded = self.expand(text, span.clone())?;
        let is_set = || {
            let text = &expanded.text;
            shape.is_word(text) || type_set(Path::new(text)).is_some()
        };
        if shape.is_path() || shape.is_types() && !is_set() {
            let ExpandedText { text, starts_outside: begins_outside, .. } = expanded;
            if text.is_empty() {
                self.mistake_at(span, "expected a path, found an empty string", None);
                return None;
            }
            // Whether the program has the stores of other URLs shows when it runs.
            if let Some(why) = unsupported(Path::new(&text)) {
                self.mistake_at(span, why, None);
                return None;
            }
            let located = match begins_outside {
                true => text.clone(),
                false => self.located(&text, self.reads_templates && shape.is_path()),
            };
            // Without a slash, it may be a word for types.
            let plain = normalized(&located);
            let keeps_dot = shape.is_types() && !plain.contains('/');
            let located = if keeps_dot { located } else { plain };
            if located != text {
                self.edits.push(TextEdit { span, text: string_literal(&located) });
            }
            return Some(Value::String(located));
        }
        let other =
            (expanded.is_variable && !shape.takes_text()).then(|| shape.parse(&expanded.text));
        Some(other.flatten().unwrap_or(Value::String(expanded.text)))
    }

    /// `text` with its variables filled in; `None` after a reported mistake.
    pub(super) fn expand(&mut self, text: &str, span: Range<usize>) -> Option<ExpandedText> {
        let unfilled = match self.variables.expand(text) {
            Ok(expanded) => return Some(expanded),
            Err(unfilled) => unfilled,
        };
        for reason in unfilled {
            let mistake = Mistake {
                span: span.clone(),
                message: reason.message,
                help: Some(reason.help),
                detail: None,
            };
            match reason.unset {
                Some(name) => self.unset(name, mistake),
                None => self.note(mistake),
            }
        }
        None
    }

    /// A path in the file, relative to the working folder. Paths that come from outside the file
    /// already are, and URLs stay.
    pub(super) fn located(&self, path: &str, is_template: bool) -> String {
        let is_here = |folder: &Path| [Path::new(""), Path::new(".")].contains(&folder);
        let Some(folder) = self.folder.filter(|folder| !is_here(folder)) else {
            return path.to_owned();
        };
        let stays = matches!(path, "" | "-") || Path::new(path).is_absolute();
        if stays || is_address(Path::new(path)) {
            return path.to_owned();
        }
        let below = path.strip_prefix("./").unwrap_or(path);
        let plain = if path == "." { folder.to_owned() } else { folder.join(below) };
        // Special characters are literal in the folder's own name.
        let name = folder.to_string_lossy();
        let name = if is_template {
            escape_braces(&name)
        } else if name.contains(GLOB) && path.contains(GLOB) && !plain.exists() {
            literal(&name)
        } else {
            return plain.to_string_lossy().into_owned();
        };
        let whole = if path == "." { name.into() } else { Path::new(&name).join(below) };
        whole.to_string_lossy().into_owned()
    }

    fn integer(&mut self, integer: &DeInteger<'_>, span: Range<usize>) -> Option<Value> {
        let (digits, radix) = (integer.as_str(), integer.radix());
        let signed = i64::from_str_radix(digits, radix).map(Value::from);
        let number = signed.or_else(|_| u64::from_str_radix(digits, radix).map(Value::from)).ok();
        if number.is_none() {
            self.mistake_at(span, "a number beyond 64 bits", None);
        }
        number
    }

    fn float(&mut self, float: &DeFloat<'_>, span: Range<usize>) -> Option<Value> {
        // JSON has only finite floats: `from` returns null for others.
        let number = float.as_str().parse::<f64>().ok().map(Value::from).filter(Value::is_number);
        if number.is_none() {
            self.mistake_at(
                span,
                format!("expected a finite number, found `{}`", float.as_str()),
                None,
            );
        }
        number
    }

    fn array(&mut self, array: &DeArray<'_>, shape: &SchemaView<'_>) -> Option<Value> {
        // All elements are checked, so that every mistake is reported.
        let elements: Vec<_> = array.iter().map(|element| self.value(element, shape)).collect();
        elements.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
    }

    fn table(&mut self, table: &DeTable<'_>, shape: &SchemaView<'_>) -> Option<Value> {
        let mut field =
            |key: &str, value| Some((key.to_owned(), self.value(value, &shape.property(key))?));
        let fields: Vec<_> = table.iter().map(|(key, value)| field(key.get_ref(), value)).collect();
        fields.into_iter().collect::<Option<Map<_, _>>>().map(Value::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_what_means_nothing() {
        for (path, expected) in [
            ("./a", "a"),
            (".//a/./b//", "a/b/"),
            ("zz/", "zz/"),
            ("a/.", "a/"),
            ("//a/b", "/a/b"),
            ("../a/../b", "../a/../b"),
            ("./.a/..b", ".a/..b"),
            // These are no names of files without their dots.
            ("./-", "./-"),
            ("./s3:/bucket//a", "./s3:/bucket//a"),
            ("-", "-"),
            (".", "."),
            ("./", "./"),
            ("/", "/"),
            ("", ""),
            ("s3://bucket//a/./b", "s3://bucket//a/./b"),
        ] {
            assert_eq!(normalized(path), expected, "{path}");
        }
    }
}
