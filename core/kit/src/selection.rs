//! Selecting and flattening fields of decoded events, for sinks.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use schemars::{JsonSchema, Schema as OptionSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use sluice_model::options::FIELDS_FORMAT;
use sluice_model::{Batch, Error, FieldPath, Rows};

/// A list of distinct fields, in output order. As an option: a list, or comma-separated text.
#[derive(Clone, Debug)]
pub struct FieldList(Arc<[FieldPath]>);

/// Which fields of a list at least one event had.
#[derive(Clone, Debug)]
pub struct FieldPresence(Vec<bool>);

impl FieldList {
    /// The fields, in order.
    pub fn paths(&self) -> &[FieldPath] {
        &self.0
    }

    /// The values of each field in these rows; `None` if their type does not have it. Records those
    /// found in `found`.
    pub fn resolve(&self, rows: &Rows, found: &mut FieldPresence) -> Vec<Option<ArrayRef>> {
        let resolved: Vec<_> = self.0.iter().map(|path| path.resolve(&rows.columns)).collect();
        for (found, array) in found.0.iter_mut().zip(&resolved) {
            *found |= array.is_some();
        }
        resolved
    }

    /// Keeps only these fields, each as a column named by its path. Fields that a type does not
    /// have are omitted from its rows. Records those found in `found`.
    pub fn select(&self, batch: Batch, found: &mut FieldPresence) -> Result<Batch, Error> {
        let select = |rows: &Rows| {
            let resolved = self.resolve(rows, found);
            let named = self.0.iter().zip(resolved);
            with_columns(rows, named.filter_map(|(path, array)| Some((path, array?))))
        };
        let rows = batch.rows().iter().map(select).collect::<Result<_, Error>>()?;
        Ok(batch.with_rows(rows))
    }

    /// A record in which no field was found yet.
    pub fn none_found(&self) -> FieldPresence {
        FieldPresence(vec![false; self.0.len()])
    }

    /// The notes about fields that no event had.
    pub fn notes(&self, found: &FieldPresence) -> Vec<(String, u64)> {
        let lost = self.0.iter().zip(&found.0).filter(|(_, found)| !**found);
        lost.map(|(path, _)| (Self::note_of_missing(path), 0)).collect()
    }

    /// The note about a field that no event had. Runs recognize it by this text.
    pub fn note_of_missing(path: &FieldPath) -> String {
        format!("no event has a field `{path}`")
    }

    /// The note about a field that cannot be plotted. Runs recognize it likewise.
    pub fn note_of_unplotted(path: &FieldPath) -> String {
        format!(
            "`{path}` is not plotted: expected a number, an element of a list of fixed length such \
             as `pos[0]`, or a structure of them"
        )
    }
}

impl FieldPresence {
    /// Merges another record.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(ours, theirs)| *ours |= theirs);
    }
}

/// Flattens all fields: each leaf becomes a column named by its path.
pub fn flat(batch: Batch) -> Result<Batch, Error> {
    let flat = |rows: &Rows| {
        let leaves = FieldPath::leaves(rows.columns.schema_ref());
        let arrays = leaves.iter().map(|path| (path, path.resolve(&rows.columns)));
        with_columns(rows, arrays.filter_map(|(path, array)| Some((path, array?))))
    };
    let rows = batch.rows().iter().map(flat).collect::<Result<_, Error>>()?;
    Ok(batch.with_rows(rows))
}

fn with_columns<'p>(
    rows: &Rows,
    columns: impl Iterator<Item = (&'p FieldPath, ArrayRef)>,
) -> Result<Rows, Error> {
    let field = |path: &FieldPath, array: &ArrayRef| {
        Field::new(path.to_string(), array.data_type().clone(), true)
    };
    let (fields, columns): (Vec<_>, Vec<_>) =
        columns.map(|(path, array)| (field(path, &array), array)).unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.events.len()));
    let columns =
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
            .map_err(|e| Error::internal(format!("fields do not fit their rows: {e}")))?;
    Ok(Rows { columns, ..rows.clone() })
}

impl<'de> Deserialize<'de> for FieldList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a list of fields, or a text with commas between them")]
        enum RawFieldList {
            Text(String),
            List(Vec<String>),
        }
        let paths: Result<Vec<FieldPath>, String> = match RawFieldList::deserialize(deserializer)? {
            RawFieldList::Text(text) => separated_fields(&text).map(FieldPath::parse).collect(),
            RawFieldList::List(texts) => texts.iter().map(|text| FieldPath::parse(text)).collect(),
        };
        let paths = paths.map_err(serde::de::Error::custom)?;
        let mut known = BTreeSet::new();
        match paths.iter().find(|path| !known.insert(*path)) {
            Some(path) => Err(serde::de::Error::custom(format!("`{path}` is named twice"))),
            None => Ok(Self(paths.into())),
        }
    }
}

impl JsonSchema for FieldList {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FieldList".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> OptionSchema {
        let list = Vec::<FieldPath>::json_schema(generator);
        json_schema!({ "format": FIELDS_FORMAT, "anyOf": [{ "type": "string" }, list] })
    }
}

/// The texts between commas, so that one pipeline variable can name several fields. Commas between
/// backquotes are part of a name.
pub fn separated_fields(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let pieces = text.split(move |c| {
        is_quoted ^= c == '`';
        c == ',' && !is_quoted
    });
    pieces.map(str::trim).filter(|piece| !piece.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn paths(given: Value) -> Result<Vec<String>, String> {
        let list: FieldList = serde_json::from_value(given).map_err(|e| e.to_string())?;
        Ok(list.0.iter().map(FieldPath::to_string).collect())
    }

    #[test]
    fn fields_are_a_list_or_a_text_with_commas() {
        let wanted = Ok(vec!["a".to_owned(), "`b,c`[0]".to_owned()]);
        assert_eq!(paths(json!(["a", "`b,c`[0]"])), wanted);
        assert_eq!(paths(json!(" a, `b,c`[0] ,")), wanted);
        assert_eq!(paths(json!("")), Ok(Vec::new()));
        assert!(paths(json!("a, [")).unwrap_err().contains("not a field path"));
        assert!(paths(json!("a, a")).unwrap_err().contains("named twice"));
    }
}
