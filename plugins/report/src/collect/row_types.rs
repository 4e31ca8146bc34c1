//! What is found of the types of decoded rows once, for all batches.

use std::sync::{Arc, PoisonError, RwLock};

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, Float64Array, RecordBatch};
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use sluice_model::{FieldPath, Rows};
use sluice_views::doubles;

/// The most types that are remembered: a damaged log may have many.
const MAX_TYPES: usize = 256;

/// The types of rows met so far. Shared by all threads.
#[derive(Debug, Default)]
pub(super) struct RowTypes(RwLock<Vec<Arc<RowType>>>);

/// A type of rows.
#[derive(Debug)]
pub(super) struct RowType {
    name: Arc<str>,
    schema: SchemaRef,
    /// The paths that may lead to numbers, in order, with their texts: elements of fixed-size lists
    /// are fields of their own if they are at most 64, other lists have none.
    pub(super) leaves: Vec<Leaf>,
    /// The numbers of the maps for it.
    pub(super) maps: Vec<usize>,
}

/// A path that may lead to numbers.
#[derive(Debug)]
pub(super) struct Leaf {
    path: FieldPath,
    /// The path as text.
    pub(super) text: Arc<str>,
    place: LeafPlace,
}

/// Where the numbers of a leaf are, if they can be read without a search.
#[derive(Clone, Copy, Debug)]
enum LeafPlace {
    /// All of a column.
    Column(usize),
    /// One of so many elements in each row of a column.
    Element {
        column: usize,
        at: usize,
        of: usize,
    },
    Anywhere,
}

impl Leaf {
    fn new(path: FieldPath, schema: &Schema) -> Self {
        let text = path.to_string();
        let place_in = |(column, field): (usize, &FieldRef)| {
            let step = text.strip_prefix(&FieldPath::column(field.name().as_str()).to_string())?;
            match field.data_type() {
                kind if kind.is_numeric() && step.is_empty() => Some(LeafPlace::Column(column)),
                DataType::FixedSizeList(element, of) if element.data_type().is_numeric() => {
                    let at = step.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
                    Some(LeafPlace::Element { column, at, of: usize::try_from(*of).ok()? })
                }
                _ => None,
            }
        };
        let place = schema.fields().iter().enumerate().find_map(place_in);
        Self { path, text: text.into(), place: place.unwrap_or(LeafPlace::Anywhere) }
    }

    /// Its numbers in rows of its type; `None` if it has none.
    pub(super) fn numbers(&self, columns: &RecordBatch) -> Option<Float64Array> {
        match self.place {
            LeafPlace::Column(column) => doubles(columns.columns().get(column)?),
            LeafPlace::Element { column, at, of } => {
                let list = columns.columns().get(column)?.as_fixed_size_list_opt()?;
                match list.values().as_primitive_opt::<Float64Type>() {
                    Some(all) if at < of && list.null_count() + all.null_count() == 0 => {
                        let elements = all.values().iter().skip(at).step_by(of).copied();
                        Some(elements.collect::<Vec<f64>>().into())
                    }
                    _ => doubles(&self.path.resolve(columns)?),
                }
            }
            LeafPlace::Anywhere => doubles(&self.path.resolve(columns)?),
        }
    }
}

impl RowTypes {
    /// The type of rows. `maps` has the numbers of the maps for a type by its name, which are
    /// always the same.
    pub(super) fn of_rows(
        &self,
        rows: &Rows,
        maps: impl FnOnce(&str) -> Vec<usize>,
    ) -> Arc<RowType> {
        let (name, schema) = (&rows.message.name, rows.columns.schema());
        let is_same =
            |known: &&Arc<RowType>| Arc::ptr_eq(&known.schema, &schema) && known.name == *name;
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter().find(is_same) {
            return Arc::clone(known);
        }
        drop(known);
        let leaves = FieldPath::leaves(&schema).into_iter();
        let leaves = leaves.map(|path| Leaf::new(path, &schema)).collect();
        let new = Arc::new(RowType { name: Arc::clone(name), schema, leaves, maps: maps(name) });
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_TYPES {
            known.push(Arc::clone(&new));
        }
        new
    }

    /// Forgets all types, for a new log.
    pub(super) fn clear(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int16Type;
    use arrow_array::{ArrayRef, FixedSizeListArray, Int16Array, StringArray, StructArray};

    use super::*;

    #[test]
    fn numbers_are_those_that_the_path_leads_to() {
        let doubles_from = |from: i32, count: i32| {
            Arc::new((from..from + count).map(f64::from).collect::<Float64Array>()) as ArrayRef
        };
        let list = |values: ArrayRef, of: i32| {
            let field =
                Arc::new(arrow_schema::Field::new("item", values.data_type().clone(), true));
            Arc::new(FixedSizeListArray::new(field, of, values, None)) as ArrayRef
        };
        let shorts = FixedSizeListArray::from_iter_primitive::<Int16Type, _, _>(
            [Some([Some(1), None]), None, Some([Some(5), Some(6)])],
            2,
        );
        let member: ArrayRef = Arc::new(Int16Array::from(vec![Some(7), None, Some(9)]));
        let columns = RecordBatch::try_from_iter([
            ("a", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0])) as ArrayRef),
            ("a b", list(doubles_from(10, 6), 2)),
            ("short", Arc::new(shorts)),
            ("odd", Arc::new(Int16Array::from(vec![Some(1), None, Some(3)]))),
            ("s", Arc::new(StructArray::try_from(vec![("a", member)]).unwrap())),
            ("text", Arc::new(StringArray::from(vec!["x"; 3]))),
            ("one", list(doubles_from(20, 3), 1)),
        ])
        .unwrap();
        for columns in [columns.clone(), columns.slice(1, 2)] {
            for path in FieldPath::leaves(&columns.schema()) {
                let expected = path.resolve(&columns).and_then(|array| doubles(&array));
                let leaf = Leaf::new(path, &columns.schema());
                assert_eq!(leaf.numbers(&columns), expected, "{}", leaf.text);
            }
        }
    }
}
