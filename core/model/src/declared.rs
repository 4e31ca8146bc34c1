//! The columns of declared types, to validate field names before any event is read.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::FieldPath;

/// The columns of some declared types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredColumns(Vec<SchemaRef>);

impl DeclaredColumns {
    /// Those of types with these schemas.
    pub fn from_schemas(schemas: Vec<SchemaRef>) -> Self {
        Self(schemas)
    }

    /// Whether there is no type.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the types of `others`.
    pub fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Those of the types that `change` makes of these.
    pub fn map(&self, change: impl FnMut(&SchemaRef) -> SchemaRef) -> Self {
        Self(self.0.iter().map(change).collect())
    }

    /// Whether any of the types has this field.
    pub fn has(&self, field: &FieldPath) -> bool {
        let has = |schema: &SchemaRef| {
            field.resolve(&RecordBatch::new_empty(SchemaRef::clone(schema))).is_some()
        };
        self.0.iter().any(has)
    }

    /// The paths of all columns and of all leaves in them, sorted and without duplicates.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for schema in &self.0 {
            let columns =
                schema.fields().iter().map(|field| FieldPath::column(field.name().as_str()));
            paths.extend(columns.chain(FieldPath::leaves(schema)).map(|path| path.to_string()));
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}
