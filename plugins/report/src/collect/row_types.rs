//! What is found of the types of decoded rows once, for all batches.

use std::sync::{Arc, PoisonError, RwLock};

use arrow_schema::SchemaRef;
use sluice_model::{FieldPath, Rows};

use super::views::ReportViews;

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
    pub(super) leaves: Vec<(FieldPath, Arc<str>)>,
    /// The numbers of the maps for it.
    pub(super) maps: Vec<usize>,
}

impl RowTypes {
    /// The type of rows; `views` are always the same, if any.
    pub(super) fn of_rows(&self, rows: &Rows, views: Option<&ReportViews>) -> Arc<RowType> {
        let (name, schema) = (&rows.message.name, rows.columns.schema());
        let is_same =
            |known: &&Arc<RowType>| Arc::ptr_eq(&known.schema, &schema) && known.name == *name;
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter().find(is_same) {
            return Arc::clone(known);
        }
        drop(known);
        let leaves = FieldPath::leaves(&schema).into_iter();
        let leaves = leaves.map(|path| (path.clone(), path.to_string().into())).collect();
        let maps = views.map(|views| views.maps_for_type(name)).unwrap_or_default();
        let new = Arc::new(RowType { name: Arc::clone(name), schema, leaves, maps });
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
