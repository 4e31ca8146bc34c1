//! The columns of a query's tables, as far as they are known, and the rows of a batch that belong to them. Plans
//! nothing.

use arrow_array::RecordBatch;
use arrow_schema::{Fields, SchemaRef};
use sluice_core::{Batch, Channels, Error, StageContext};

use super::columns;
use super::query::{Query, Table};
use super::tables::{self, Members, Messages};

/// What is known of a query's tables.
#[derive(Debug)]
pub(super) struct Known {
    tables: Vec<Table>,
    /// By the tables' places: the columns, which are declared, found, or not known yet.
    pub(super) columns: Vec<Columns>,
    members: Members,
}

/// The columns of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Columns {
    /// They are what they are, or what is declared.
    Fixed(SchemaRef),
    /// They are those of the first message that came.
    Found(SchemaRef),
    /// Nothing has come that tells.
    Open,
}

impl Columns {
    fn schema(&self) -> Option<&SchemaRef> {
        match self {
            Self::Fixed(schema) | Self::Found(schema) => Some(schema),
            Self::Open => None,
        }
    }
}

/// What one run of a plan is given of a batch.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) schemas: Vec<SchemaRef>,
    pub(super) rows: Vec<Option<RecordBatch>>,
}

impl Known {
    /// The tables of a query, of which some are declared.
    pub(super) fn of(query: &Query, declared: impl Fn(&str) -> Option<SchemaRef>) -> Self {
        let columns = |table: &Table| match table {
            Table::Events => Columns::Fixed(columns::of_events()),
            Table::Channel(name) => match declared(name) {
                Some(fields) => Columns::Fixed(columns::of_channel(fields.fields())),
                None => Columns::Open,
            },
        };
        let tables = query.tables.clone();
        let (columns, members) = (tables.iter().map(columns).collect(), Members::of(&tables));
        Self { tables, columns, members }
    }

    /// The columns of all tables, if they are known.
    pub(super) fn all(&self) -> Option<Vec<SchemaRef>> {
        self.columns.iter().map(|columns| columns.schema().cloned()).collect()
    }

    /// The tables of which nothing has told the columns yet.
    pub(super) fn open(&self) -> Vec<&Table> {
        let each = self.tables.iter().zip(&self.columns);
        each.filter(|(_, columns)| **columns == Columns::Open).map(|(table, _)| table).collect()
    }

    /// Whether the one table there is takes its columns from each message.
    pub(super) fn is_one_open(&self) -> bool {
        matches!(self.columns.as_slice(), [Columns::Open])
    }

    /// Whether the table of all events is one of them.
    pub(super) fn has_events(&self) -> bool {
        self.tables.contains(&Table::Events)
    }

    /// Learns the columns of tables that are open from the first messages that belong to them.
    pub(super) fn learn(&mut self, batch: &Batch, channels: &Channels) -> Result<(), Error> {
        if !self.columns.contains(&Columns::Open) {
            return Ok(());
        }
        let places = self.members.places(channels)?;
        let (mut messages, _) = tables::messages(batch, &places, self.tables.len());
        // Which type comes first, events decide.
        messages.sort_by_key(|messages| messages.rows.events.first().copied());
        for Messages { table, rows } in messages {
            let schema = columns::of_channel(rows.columns.schema_ref().fields());
            if let Some(open @ Columns::Open) = self.columns.get_mut(table) {
                *open = Columns::Found(schema);
            }
        }
        Ok(())
    }

    /// What plans are given of a batch, and the columns they are for: once, or where one table is open, once for
    /// each type of messages. Says how many events could not be asked.
    pub(super) fn shares(
        &self,
        batch: &Batch,
        context: &mut StageContext<'_>,
    ) -> Result<Vec<Share>, Error> {
        let places = self.members.places(context.channels)?;
        let (messages, undecoded) = tables::messages(batch, &places, self.tables.len());
        if undecoded > 0 {
            let what =
                "not decoded, so no table of a channel has them; put the stage `decode` before";
            context.note(what, undecoded);
        }
        if self.is_one_open() {
            return messages.iter().map(|one| share_of(batch, one, context.channels)).collect();
        }
        let schemas = self.all().ok_or_else(|| Error::broken("a table without columns"))?;
        let rows = self.rows(batch, messages, &schemas, context)?;
        Ok(vec![Share { schemas, rows }])
    }

    fn rows(
        &self,
        batch: &Batch,
        messages: Vec<Messages>,
        schemas: &[SchemaRef],
        context: &mut StageContext<'_>,
    ) -> Result<Vec<Option<RecordBatch>>, Error> {
        let mut parts: Vec<Vec<RecordBatch>> = vec![Vec::new(); self.tables.len()];
        for Messages { table, rows } in messages {
            let (Some(schema), Some(name)) = (schemas.get(table), self.tables.get(table)) else {
                continue;
            };
            let rows = match self.columns.get(table) {
                Some(Columns::Fixed(_)) => {
                    let declared = tables::as_declared(&rows, &fields_of(schema));
                    declared.map_err(|what| Error::unfit(format!("table {name}: {what}")))?
                }
                _ if columns::of_channel(rows.columns.schema_ref().fields()) == *schema => rows,
                _ => {
                    let what = format!(
                        "of another type than the first message on the channel, whose columns table {name} \
                         has; `tables` can declare others"
                    );
                    context.note(what, rows.events.len() as u64);
                    continue;
                }
            };
            if let Some(parts) = parts.get_mut(table) {
                parts.push(tables::channel(batch, &rows, schema, context.channels)?);
            }
        }
        let mut given = parts.into_iter().map(tables::in_order).collect::<Result<Vec<_>, _>>()?;
        for (table, given) in self.tables.iter().zip(&mut given) {
            if *table == Table::Events {
                *given = Some(tables::events(batch, context.channels)?);
            }
        }
        Ok(given)
    }
}

/// The fields of a table of a channel, without what every event has.
fn fields_of(schema: &SchemaRef) -> Fields {
    let own = columns::of_channel(&Fields::empty()).fields().len();
    schema.fields().iter().skip(own).cloned().collect()
}

fn share_of(batch: &Batch, one: &Messages, channels: &Channels) -> Result<Share, Error> {
    let schema = columns::of_channel(one.rows.columns.schema_ref().fields());
    let rows = tables::channel(batch, &one.rows, &schema, channels)?;
    Ok(Share { schemas: vec![schema], rows: vec![Some(rows)] })
}
