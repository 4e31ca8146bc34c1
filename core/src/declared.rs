//! The columns of declared types, for judging names of fields before there are any events.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::FieldPath;

/// The columns that each of some types has.
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

    /// Takes over the types of others.
    pub fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Whether one of the types has such a field.
    pub fn has(&self, field: &FieldPath) -> bool {
        let has = |schema: &SchemaRef| {
            field.resolve(&RecordBatch::new_empty(SchemaRef::clone(schema))).is_some()
        };
        self.0.iter().any(has)
    }

    /// The columns, and all that a table can hold of what is in them, as paths; sorted, each once.
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
