//! Turns TOML values into the JSON values that plugins read: variables filled in, paths resolved.

use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};
use sluice_core::registry::type_set;
use toml::Spanned;
use toml::de::{DeArray, DeFloat, DeInteger, DeTable, DeValue};

use super::check::Check;
use super::shape::Shape;
use super::variables::Expanded;

impl Check<'_> {
    /// `value` as JSON; nothing if there is a mistake in it, which has been noted.
    pub(super) fn value(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        shape: &Shape<'_>,
    ) -> Option<Value> {
        match value.get_ref() {
            DeValue::String(text) => self.text(text, value.span(), shape),
            DeValue::Integer(integer) => self.integer(integer, value.span()),
            DeValue::Float(float) => self.float(float, value.span()),
            DeValue::Boolean(boolean) => Some(Value::Bool(*boolean)),
            DeValue::Datetime(datetime) => Some(Value::String(datetime.to_string())),
            DeValue::Array(array) => self.array(array, &shape.element()),
            DeValue::Table(table) => self.table(table, shape),
        }
    }

    fn text(&mut self, text: &str, span: Range<usize>, shape: &Shape<'_>) -> Option<Value> {
        let expanded = self.expand(text, span)?;
        let is_set = shape.is_types() && type_set(Path::new(&expanded.text)).is_some();
        if shape.is_path() || shape.is_types() && !is_set {
            let Expanded { text, begins_outside, .. } = expanded;
            let located = if begins_outside { text } else { self.located(&text) };
            return Some(Value::String(located));
        }
        let other =
            (expanded.is_variable && !shape.takes_text()).then(|| shape.parse(&expanded.text));
        Some(other.flatten().unwrap_or(Value::String(expanded.text)))
    }

    /// `text` with its variables filled in; nothing if that cannot be done, which has been noted.
    pub(super) fn expand(&mut self, text: &str, span: Range<usize>) -> Option<Expanded> {
        let unfilled = match self.variables.expand(text) {
            Ok(expanded) => return Some(expanded),
            Err(unfilled) => unfilled,
        };
        for reason in unfilled {
            self.wrong(span.clone(), reason.message, Some(reason.help));
        }
        None
    }

    /// A path of the file as seen from the working folder. Paths that come from outside already are.
    pub(super) fn located(&self, path: &str) -> String {
        let folder = self.document.folder.as_deref().filter(|folder| *folder != Path::new(""));
        match folder {
            Some(folder) if path == "." => folder.to_string_lossy().into_owned(),
            Some(folder) if !matches!(path, "" | "-") => {
                let below = path.strip_prefix("./").unwrap_or(path);
                folder.join(below).to_string_lossy().into_owned()
            }
            _ => path.to_owned(),
        }
    }

    fn integer(&mut self, integer: &DeInteger<'_>, span: Range<usize>) -> Option<Value> {
        let (digits, radix) = (integer.as_str(), integer.radix());
        let signed = i64::from_str_radix(digits, radix).map(Value::from);
        let number = signed.or_else(|_| u64::from_str_radix(digits, radix).map(Value::from)).ok();
        if number.is_none() {
            self.wrong(span, "a number beyond 64 bits", None);
        }
        number
    }

    fn float(&mut self, float: &DeFloat<'_>, span: Range<usize>) -> Option<Value> {
        // JSON has no other floats than finite ones: `from` gives null for them.
        let number = float.as_str().parse::<f64>().ok().map(Value::from).filter(Value::is_number);
        if number.is_none() {
            self.wrong(span, format!("expected a finite number, found `{}`", float.as_str()), None);
        }
        number
    }

    fn array(&mut self, array: &DeArray<'_>, shape: &Shape<'_>) -> Option<Value> {
        // All elements are looked at, so that every mistake among them is noted.
        let elements: Vec<_> = array.iter().map(|element| self.value(element, shape)).collect();
        elements.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
    }

    fn table(&mut self, table: &DeTable<'_>, shape: &Shape<'_>) -> Option<Value> {
        let mut field =
            |key: &str, value| Some((key.to_owned(), self.value(value, &shape.property(key))?));
        let fields: Vec<_> = table.iter().map(|(key, value)| field(key.get_ref(), value)).collect();
        fields.into_iter().collect::<Option<Map<_, _>>>().map(Value::Object)
    }
}
