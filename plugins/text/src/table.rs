//! Decides which columns of fields a CSV has, and merges lines of several types into them.
//!
//! Without selected fields, the first event of the output decides. An event whose fields have no
//! column then ends the run, unless the output is a recording. Batches are encoded in any order
//! before the columns are known, so the fields of a line are kept detached until it is appended.

use std::sync::Arc;

use arrow_array::ArrayRef;
use sluice_io::escape::printable;
use sluice_kit::json::WriteCell;
use sluice_kit::selection::{FieldList, FieldPresence};
use sluice_model::options::OutPath;
use sluice_model::{
    Batch, ChannelId, Channels, Error, ErrorKind, FieldPath, MessageType, Rows, Written,
};

use crate::fields::{RowFinder, table_cell};
use crate::file::{TextBlock, TextFile};
use crate::leading_columns::{EMPTY, LeadingColumns, end_line};
use crate::write;

/// Why a table is refused that would have no column.
pub(crate) const NO_COLUMN: &str = "the table would have no column; name some in `event_columns` \
     or `fields`, or set `payload`";

/// The lines of a piece of a batch.
#[derive(Debug)]
pub(crate) struct TableBlock {
    text: TextBlock,
    fields: FieldPlacement,
}

#[derive(Debug)]
enum FieldPlacement {
    /// No event is decoded.
    None,
    /// They are in the lines; which selected fields some event had.
    Inline(FieldPresence),
    /// They are detached from the leading columns.
    Detached(DetachedFields),
}

/// Fields of decoded events, detached from their lines.
#[derive(Debug, Default)]
pub(crate) struct DetachedFields {
    types: Vec<Arc<TypeColumns>>,
    text: Vec<u8>,
    lines: Vec<DetachedLine>,
}

/// A line whose fields are detached.
#[derive(Debug)]
struct DetachedLine {
    /// The end of its leading columns.
    front_end: usize,
    /// The end of its fields.
    fields_end: usize,
    /// The index of its type, if the event is decoded.
    type_index: Option<usize>,
}

/// A message type and its columns.
#[derive(Debug)]
struct TypeColumns {
    message: Arc<MessageType>,
    leaves: Vec<FieldPath>,
    /// The channel of the first event of this type in its batch.
    channel: Option<ChannelId>,
}

impl TableBlock {
    /// Lines of events that are not decoded.
    pub(crate) fn plain(text: TextBlock) -> Self {
        Self { text, fields: FieldPlacement::None }
    }

    /// Complete lines, and which selected fields were found.
    pub(crate) fn complete(text: TextBlock, found: FieldPresence) -> Self {
        Self { text, fields: FieldPlacement::Inline(found) }
    }

    /// Lines whose fields are detached.
    pub(crate) fn detached(text: TextBlock, parts: DetachedFields) -> Self {
        Self { text, fields: FieldPlacement::Detached(parts) }
    }

    /// The length of its text.
    pub(crate) fn bytes(&self) -> usize {
        let detached = match &self.fields {
            FieldPlacement::Detached(parts) => {
                parts.text.len() + parts.lines.len() * size_of::<DetachedLine>()
            }
            FieldPlacement::None | FieldPlacement::Inline(_) => 0,
        };
        self.text.bytes() + detached
    }
}

/// The values of columns, per type of decoded rows.
pub(crate) struct ColumnValues(Vec<Vec<Option<ArrayRef>>>);

impl ColumnValues {
    /// The values of the selected fields.
    pub(crate) fn selected(fields: &FieldList, batch: &Batch, found: &mut FieldPresence) -> Self {
        Self(batch.rows().iter().map(|rows| fields.resolve(rows, found)).collect())
    }

    /// Writers for them, which must be used in event order.
    pub(crate) fn cells<'c>(
        &'c self,
        batch: &'c Batch,
        delimiter: char,
    ) -> Result<Vec<CellWriters<'c>>, Error> {
        let of =
            |(rows, columns): (&'c Rows, &'c Vec<_>)| CellWriters::new(rows, columns, delimiter);
        batch.rows().iter().zip(&self.0).map(of).collect()
    }
}

/// Writes the columns of decoded rows of one type.
pub(crate) struct CellWriters<'c> {
    rows: RowFinder<'c>,
    cells: Vec<Option<WriteCell<'c>>>,
    delimiter: char,
}

impl<'c> CellWriters<'c> {
    fn new(
        rows: &'c Rows,
        columns: &'c [Option<ArrayRef>],
        delimiter: char,
    ) -> Result<Self, Error> {
        let cell = |column: &'c Option<ArrayRef>| {
            column.as_ref().map(|array| table_cell(array, delimiter)).transpose()
        };
        let cells = columns.iter().map(cell).collect::<Result<_, Error>>()?;
        Ok(Self { rows: RowFinder::new(&rows.events), cells, delimiter })
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) {
        for (at, cell) in self.cells.iter().enumerate() {
            if at > 0 {
                write::delimiter(out, self.delimiter);
            }
            if let Some(cell) = cell {
                cell(row, out);
            }
        }
    }
}

/// The index of the type that an event was decoded as, and its row.
fn find(types: &mut [CellWriters<'_>], event: usize) -> Option<(usize, usize)> {
    types.iter_mut().enumerate().find_map(|(at, cells)| Some((at, cells.rows.find(event)?)))
}

/// Appends the selected fields of an event, or `count` empty cells.
pub(crate) fn write_selected(
    types: &mut [CellWriters<'_>],
    event: usize,
    count: usize,
    leading: &LeadingColumns,
    out: &mut Vec<u8>,
) {
    leading.end(count, out);
    match find(types, event) {
        Some((at, row)) => types[at].write(row, out),
        None => leading.blank(count, out),
    }
}

impl DetachedFields {
    /// An empty list for a batch, and the values of all its fields.
    pub(crate) fn from_batch(batch: &Batch) -> (Self, ColumnValues) {
        let type_columns = |rows: &Rows| {
            let leaves = FieldPath::leaves(rows.columns.schema_ref());
            let first = rows.events.first().and_then(|event| batch.channels().get(*event as usize));
            let channel = first.copied().map(ChannelId);
            Arc::new(TypeColumns { message: Arc::clone(&rows.message), leaves, channel })
        };
        let types: Vec<_> = batch.rows().iter().map(type_columns).collect();
        let resolve = |(rows, type_columns): (&Rows, &Arc<TypeColumns>)| {
            type_columns.leaves.iter().map(|path| path.resolve(&rows.columns)).collect()
        };
        let columns = ColumnValues(batch.rows().iter().zip(&types).map(resolve).collect());
        (Self { types, ..Self::default() }, columns)
    }

    /// Adds the fields of an event. `out` ends with the leading columns of its line.
    pub(crate) fn push(&mut self, types: &mut [CellWriters<'_>], event: usize, out: &[u8]) {
        let found = find(types, event);
        if let Some((at, row)) = found {
            types[at].write(row, &mut self.text);
        }
        let (front_end, fields_end) = (out.len(), self.text.len());
        self.lines.push(DetachedLine {
            front_end,
            fields_end,
            type_index: found.map(|(at, _)| at),
        });
    }

    /// The type of the first event, if it is decoded.
    fn first(&self) -> Option<&Arc<TypeColumns>> {
        self.lines.first().and_then(|line| self.types.get(line.type_index?))
    }

    /// The indexes of the types of the decoded events, in order.
    fn decoded(&self) -> impl Iterator<Item = usize> {
        self.lines.iter().filter_map(|line| line.type_index)
    }
}

impl TypeColumns {
    fn is(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.message, &other.message);
        let same = Arc::ptr_eq(ours, theirs) || ours.name == theirs.name && ours.key == theirs.key;
        same && self.leaves == other.leaves
    }
}

/// A table being written.
#[derive(Debug)]
pub(crate) struct CsvTable {
    file: TextFile,
    /// Its path, for messages.
    path: String,
    leading: LeadingColumns,
    has_header: bool,
    layout: TableLayout,
    is_empty: bool,
    /// Decoded events whose fields have no column.
    without_column: u64,
    scratch: Vec<u8>,
}

/// Which columns of fields the table has.
#[derive(Debug)]
enum TableLayout {
    /// Not known before the first event.
    Undecided,
    /// The selected ones.
    Selected(FieldList, FieldPresence),
    /// None, because the first event is not decoded.
    Bare,
    /// Those of the first event's type.
    FirstType(Arc<TypeColumns>),
}

impl CsvTable {
    /// A table in a new file. `selected` are its columns of fields, if they are known.
    pub(crate) fn new(
        (file, path): (TextFile, &OutPath),
        leading: LeadingColumns,
        has_header: bool,
        selected: Option<&FieldList>,
    ) -> Result<Self, Error> {
        let mut table = Self {
            file,
            path: path.0.display().to_string(),
            leading,
            has_header,
            layout: TableLayout::Undecided,
            is_empty: true,
            without_column: 0,
            scratch: Vec::new(),
        };
        if let Some(fields) = selected {
            table.decide(TableLayout::Selected(fields.clone(), fields.none_found()))?;
        }
        Ok(table)
    }

    /// Every channel of the run.
    pub(crate) fn channels(&self) -> Arc<Channels> {
        self.file.channels()
    }

    /// Appends a block; returns the number of its events.
    pub(crate) fn append(&mut self, block: TableBlock) -> Result<u64, Error> {
        let TableBlock { text, fields } = block;
        if let (TableLayout::Selected(_, ours), FieldPlacement::Inline(found)) =
            (&mut self.layout, &fields)
        {
            ours.add(found);
        }
        if text.rows() == 0 {
            return self.file.append(text);
        }
        self.is_empty = false;
        if matches!(self.layout, TableLayout::Undecided) {
            let first = match &fields {
                FieldPlacement::Detached(parts) => parts.first(),
                FieldPlacement::None | FieldPlacement::Inline(_) => None,
            };
            self.decide(first.map_or(TableLayout::Bare, |type_columns| {
                TableLayout::FirstType(Arc::clone(type_columns))
            }))?;
        }
        match (&mut self.layout, &fields) {
            (TableLayout::Bare, FieldPlacement::Detached(parts)) => {
                let lost = parts.decoded().next();
                self.expect_columns(lost.map(|at| &*parts.types[at]))?;
                self.without_column += parts.decoded().count() as u64;
            }
            (TableLayout::FirstType(type_columns), fields) => {
                let type_columns = Arc::clone(type_columns);
                return self.append_merged(&type_columns, &text, fields);
            }
            _ => {}
        }
        self.file.append(text)
    }

    /// Appends lines with the columns of one type, which stay empty for events of other types.
    fn append_merged(
        &mut self,
        type_columns: &TypeColumns,
        text: &TextBlock,
        fields: &FieldPlacement,
    ) -> Result<u64, Error> {
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        match fields {
            FieldPlacement::Detached(parts) => {
                self.merge(type_columns, text.text(), parts, &mut out)?;
            }
            _ => self.leading.pad(text.text(), type_columns.leaves.len(), &mut out),
        }
        let appended = self.file.append_as(&out, text);
        self.scratch = out;
        appended
    }

    /// Refuses an event whose fields have no column. A recording continues and notes what is
    /// missing at its end.
    fn expect_columns(&self, lost: Option<&TypeColumns>) -> Result<(), Error> {
        let Some(lost) = lost.filter(|_| !self.file.is_growing()) else { return Ok(()) };
        let (columns, of_first) = match &self.layout {
            TableLayout::FirstType(type_columns) => {
                (format!("those of {}", self.described(type_columns)), self.channel(type_columns))
            }
            _ => ("none, since the first event is not decoded".to_owned(), None),
        };
        let channel = self.channel(lost).unwrap_or_else(|| "NAME".to_owned());
        // If both types are of one channel, selecting it does not help.
        let one_channel = match of_first {
            Some(first) if first == channel => String::new(),
            _ => format!("one channel (`--channel {channel}`), "),
        };
        Err(ErrorKind::NotAllowed(format!(
            "nothing was published, since the fields of {} would be lost: the columns of a CSV are \
             the fields of its first event, {columns}. Write {one_channel}one table per channel \
             (`--to tables/`) or JSON lines (`.jsonl`), or choose the columns with `--field` (the \
             option `fields`; `[]` is none): {}",
            self.described(lost),
            self.path
        ))
        .into())
    }

    /// A message type and its channel, for messages.
    fn described(&self, type_columns: &TypeColumns) -> String {
        let name = printable(&type_columns.message.name);
        match self.channel(type_columns) {
            Some(channel) => format!("`{channel}` (`{name}`)"),
            None => format!("`{name}`"),
        }
    }

    fn channel(&self, type_columns: &TypeColumns) -> Option<String> {
        let channel = self.file.channels().get(type_columns.channel?);
        Some(printable(channel.name.text()).into_owned())
    }

    fn merge(
        &mut self,
        type_columns: &TypeColumns,
        fronts: &[u8],
        parts: &DetachedFields,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let fits: Vec<bool> = parts.types.iter().map(|other| type_columns.is(other)).collect();
        let lost = parts.decoded().find(|at| !fits[*at]);
        self.expect_columns(lost.map(|at| &*parts.types[at]))?;
        let columns = type_columns.leaves.len();
        let (mut front_start, mut fields_start) = (0, 0);
        for line in &parts.lines {
            let leading = fronts.get(front_start..line.front_end).unwrap_or_default();
            let fields = parts.text.get(fields_start..line.fields_end).unwrap_or_default();
            let line_start = out.len();
            out.extend_from_slice(leading);
            self.leading.end(columns, out);
            match line.type_index {
                Some(at) if fits[at] => out.extend_from_slice(fields),
                _ => self.leading.blank(columns, out),
            }
            end_line(line_start, out);
            self.without_column += u64::from(line.type_index.is_some_and(|at| !fits[at]));
            let is_empty = leading.is_empty();
            front_start = line.front_end + if is_empty { EMPTY.len() } else { 0 } + 1;
            fields_start = line.fields_end;
        }
        Ok(())
    }

    fn decide(&mut self, layout: TableLayout) -> Result<(), Error> {
        self.layout = layout;
        let fields = match &self.layout {
            TableLayout::Undecided | TableLayout::Bare => &[][..],
            TableLayout::Selected(fields, _) => fields.paths(),
            TableLayout::FirstType(type_columns) => &type_columns.leaves,
        };
        if self.leading.names.is_empty() && fields.is_empty() {
            return Err(Error::invalid(NO_COLUMN));
        }
        let header = self.leading.header(fields);
        if self.has_header {
            self.file.write(&header)?;
        }
        Ok(())
    }

    /// Notes about events whose fields are lost.
    fn notes(&self) -> Vec<(String, u64)> {
        let lost = |what: &str| match self.without_column {
            0 => Vec::new(),
            count => vec![(what.to_owned(), count)],
        };
        match &self.layout {
            TableLayout::Selected(fields, found) if !self.is_empty => fields.notes(found),
            TableLayout::Bare => lost(
                "the first event is not decoded, so fields have no columns; the option `fields` \
                 names some",
            ),
            TableLayout::FirstType(_) => lost(
                "fields have no columns if an event is not of the first one's type; the option \
                 `fields` names some",
            ),
            TableLayout::Undecided | TableLayout::Selected(..) => Vec::new(),
        }
    }

    /// Flushes what was appended to the file.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }

    /// Completes the file, whose lists at `unnest` were unnested.
    pub(crate) fn finish(mut self, unnest: Option<&FieldPath>) -> Result<Written, Error> {
        let notes = self.notes();
        if matches!(self.layout, TableLayout::Undecided) && !self.leading.names.is_empty() {
            self.decide(TableLayout::Bare)?;
        }
        self.file.finish(notes, unnest)
    }
}
