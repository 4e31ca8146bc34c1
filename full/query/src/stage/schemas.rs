//! The columns of a query's tables, as far as they are known, and the rows of a batch for each
//! table.

use arrow_array::RecordBatch;
use arrow_schema::{Fields, SchemaRef};
use sluice_model::{Batch, Channels, Error, StageContext};

use super::columns;
use super::query::{Query, QueryTable};
use super::tables::{self, TableMembers, TableRows};

/// The columns of a query's tables.
#[derive(Debug)]
pub(super) struct TableSchemas {
    tables: Vec<QueryTable>,
    /// The columns of each table: declared, discovered or unknown.
    pub(super) columns: Vec<SchemaState>,
    members: TableMembers,
}

/// The columns of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SchemaState {
    /// Declared, or the table `events`.
    Fixed(SchemaRef),
    /// Those of the first message.
    Discovered(SchemaRef),
    /// No message has come yet.
    Unknown,
}

impl SchemaState {
    fn schema(&self) -> Option<&SchemaRef> {
        match self {
            Self::Fixed(schema) | Self::Discovered(schema) => Some(schema),
            Self::Unknown => None,
        }
    }
}

/// The input of one run of a plan.
#[derive(Debug)]
pub(super) struct PlanInput {
    pub(super) schemas: Vec<SchemaRef>,
    pub(super) rows: Vec<Option<RecordBatch>>,
}

impl TableSchemas {
    /// The tables of a query; `declared` returns declared columns.
    pub(super) fn new(query: &Query, declared: impl Fn(&str) -> Option<SchemaRef>) -> Self {
        let columns = |table: &QueryTable| match table {
            QueryTable::Events => SchemaState::Fixed(columns::events_schema()),
            QueryTable::Channel(name) => match declared(name) {
                Some(fields) => SchemaState::Fixed(columns::channel_schema(fields.fields())),
                None => SchemaState::Unknown,
            },
        };
        let tables = query.tables.clone();
        let (columns, members) = (tables.iter().map(columns).collect(), TableMembers::new(&tables));
        Self { tables, columns, members }
    }

    /// The columns of all tables, if all are known.
    pub(super) fn all_known(&self) -> Option<Vec<SchemaRef>> {
        self.columns.iter().map(|columns| columns.schema().cloned()).collect()
    }

    /// The tables whose columns are unknown.
    pub(super) fn unknown_tables(&self) -> Vec<&QueryTable> {
        let each = self.tables.iter().zip(&self.columns);
        each.filter(|(_, columns)| **columns == SchemaState::Unknown)
            .map(|(table, _)| table)
            .collect()
    }

    /// Whether the query reads one table, whose columns come from each message.
    pub(super) fn has_single_unknown(&self) -> bool {
        matches!(self.columns.as_slice(), [SchemaState::Unknown])
    }

    /// Whether the query reads the table `events`.
    pub(super) fn has_events(&self) -> bool {
        self.tables.contains(&QueryTable::Events)
    }

    /// Discovers unknown columns from the first messages of their channels.
    pub(super) fn discover(&mut self, batch: &Batch, channels: &Channels) -> Result<(), Error> {
        if !self.columns.contains(&SchemaState::Unknown) {
            return Ok(());
        }
        let places = self.members.places(channels)?;
        let (mut decoded, _) = tables::rows_of_tables(batch, &places, self.tables.len());
        // The earliest message decides.
        decoded.sort_by_key(|rows_of| rows_of.rows.events.first().copied());
        for TableRows { table, rows } in decoded {
            let schema = columns::channel_schema(rows.columns.schema_ref().fields());
            if let Some(open @ SchemaState::Unknown) = self.columns.get_mut(table) {
                *open = SchemaState::Discovered(schema);
            }
        }
        Ok(())
    }

    /// The inputs of plans for a batch: one, or one per message type if the query reads a single
    /// table of unknown columns. Notes events that no table has.
    pub(super) fn plan_inputs(
        &self,
        batch: &Batch,
        context: &mut StageContext<'_>,
    ) -> Result<Vec<PlanInput>, Error> {
        let places = self.members.places(context.channels)?;
        let (decoded, undecoded) = tables::rows_of_tables(batch, &places, self.tables.len());
        if undecoded > 0 {
            let what = "not decoded, so no channel's table has them; put the stage `decode` before";
            context.note(what, undecoded);
        }
        if self.has_single_unknown() {
            return decoded.iter().map(|one| plan_input(batch, one, context.channels)).collect();
        }
        let schemas = self.all_known().ok_or_else(|| Error::internal("a table without columns"))?;
        let rows = self.rows(batch, decoded, &schemas, context)?;
        Ok(vec![PlanInput { schemas, rows }])
    }

    fn rows(
        &self,
        batch: &Batch,
        decoded: Vec<TableRows>,
        schemas: &[SchemaRef],
        context: &mut StageContext<'_>,
    ) -> Result<Vec<Option<RecordBatch>>, Error> {
        let mut parts: Vec<Vec<RecordBatch>> = vec![Vec::new(); self.tables.len()];
        for TableRows { table, rows } in decoded {
            let (Some(schema), Some(name)) = (schemas.get(table), self.tables.get(table)) else {
                continue;
            };
            let rows = match self.columns.get(table) {
                Some(SchemaState::Fixed(_)) => {
                    let declared = tables::as_declared(&rows, &fields_of(schema));
                    declared.map_err(|what| Error::invalid(format!("table {name}: {what}")))?
                }
                _ => {
                    let Some(rows) = tables::as_discovered(&rows, &fields_of(schema)) else {
                        let what = format!(
                            "of another type than the first message, which set the columns of \
                             table {name}; `tables` can declare others"
                        );
                        context.note(what, rows.events.len() as u64);
                        continue;
                    };
                    rows
                }
            };
            if let Some(parts) = parts.get_mut(table) {
                parts.push(tables::channel(batch, &rows, schema, context.channels)?);
            }
        }
        let mut inputs = parts.into_iter().map(tables::in_order).collect::<Result<Vec<_>, _>>()?;
        for (table, inputs) in self.tables.iter().zip(&mut inputs) {
            if *table == QueryTable::Events {
                *inputs = Some(tables::events(batch, context.channels)?);
            }
        }
        Ok(inputs)
    }
}

/// The message fields of a channel's table.
fn fields_of(schema: &SchemaRef) -> Fields {
    let own = columns::channel_schema(&Fields::empty()).fields().len();
    schema.fields().iter().skip(own).cloned().collect()
}

fn plan_input(batch: &Batch, one: &TableRows, channels: &Channels) -> Result<PlanInput, Error> {
    let schema = columns::channel_schema(one.rows.columns.schema_ref().fields());
    let rows = tables::channel(batch, &one.rows, &schema, channels)?;
    Ok(PlanInput { schemas: vec![schema], rows: vec![Some(rows)] })
}
