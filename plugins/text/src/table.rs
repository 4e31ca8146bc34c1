//! The columns of fields in a CSV: which there are, and the lines of events of every type brought to them.
//! Does not know what stands in front of them.
//!
//! Where no fields are named, the first event of the output decides; events whose fields would have
//! no column end the run then, unless the file grows while it is recorded. Batches are encoded
//! before that is
//! known, in any order, so the fields of each line lie apart from its front until the line is appended.

use std::sync::Arc;

use arrow_array::ArrayRef;
use sluice_core::json::WriteCell;
use sluice_core::name::printable;
use sluice_core::options::OutPath;
use sluice_core::selection::{FieldList, FieldPresence};
use sluice_core::{Batch, ChannelId, Channels, Error, ErrorKind, FieldPath, MessageType, Rows};

use crate::fields::{RowFinder, table_cell};
use crate::file::{TextBlock, TextFile};
use crate::write;

/// The columns of what every event has, and how columns are told apart.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    pub(crate) names: Vec<&'static str>,
    pub(crate) delimiter: char,
}

/// The lines of one piece of a batch.
#[derive(Debug)]
pub struct TableBlock {
    text: TextBlock,
    fields: Fields,
}

#[derive(Debug)]
enum Fields {
    /// No event is decoded, and the lines are their fronts.
    Nowhere,
    /// They are in the lines. Says which of those that were chosen some event had.
    InLines(FieldPresence),
    /// They lie apart, and the lines are the fronts.
    Apart(FieldParts),
}

/// The fields of decoded events that are still without their lines.
#[derive(Debug, Default)]
pub(crate) struct FieldParts {
    shapes: Vec<Arc<Shape>>,
    text: Vec<u8>,
    lines: Vec<Line>,
}

/// A line whose fields lie apart.
#[derive(Debug)]
struct Line {
    /// Where the front of the line ends.
    front_end: usize,
    /// Where its fields end.
    fields_end: usize,
    /// The place of its type, if the event is decoded.
    shape: Option<usize>,
}

/// A type of message and its columns.
#[derive(Debug)]
struct Shape {
    message: Arc<MessageType>,
    leaves: Vec<FieldPath>,
    /// The channel of the first event of this type in its batch.
    channel: Option<ChannelId>,
}

impl TableBlock {
    /// Lines of events that are not decoded, to which no fields belong.
    pub(crate) fn plain(text: TextBlock) -> Self {
        Self { text, fields: Fields::Nowhere }
    }

    /// Lines that are complete, and which of the chosen fields were found.
    pub(crate) fn complete(text: TextBlock, found: FieldPresence) -> Self {
        Self { text, fields: Fields::InLines(found) }
    }

    /// Lines whose fields lie apart.
    pub(crate) fn apart(text: TextBlock, parts: FieldParts) -> Self {
        Self { text, fields: Fields::Apart(parts) }
    }

    /// How long its text is.
    pub(crate) fn bytes(&self) -> usize {
        let apart = match &self.fields {
            Fields::Apart(parts) => parts.text.len() + parts.lines.len() * size_of::<Line>(),
            Fields::Nowhere | Fields::InLines(_) => 0,
        };
        self.text.bytes() + apart
    }
}

/// The values of some columns, one list a type of decoded rows.
pub(crate) struct Columns(Vec<Vec<Option<ArrayRef>>>);

impl Columns {
    /// The values of the fields that were chosen.
    pub(crate) fn chosen(fields: &FieldList, batch: &Batch, found: &mut FieldPresence) -> Self {
        Self(batch.rows().iter().map(|rows| fields.resolve(rows, found)).collect())
    }

    /// Writes them, event by event in order.
    pub(crate) fn cells<'c>(
        &'c self,
        batch: &'c Batch,
        delimiter: char,
    ) -> Result<Vec<Cells<'c>>, Error> {
        let of = |(rows, columns): (&'c Rows, &'c Vec<_>)| Cells::of(rows, columns, delimiter);
        batch.rows().iter().zip(&self.0).map(of).collect()
    }
}

/// Writes the columns of decoded rows of one type.
pub(crate) struct Cells<'c> {
    rows: RowFinder<'c>,
    cells: Vec<Option<WriteCell<'c>>>,
    delimiter: char,
}

impl<'c> Cells<'c> {
    fn of(rows: &'c Rows, columns: &'c [Option<ArrayRef>], delimiter: char) -> Result<Self, Error> {
        let cell = |column: &'c Option<ArrayRef>| {
            column.as_ref().map(|array| table_cell(array, delimiter)).transpose()
        };
        let cells = columns.iter().map(cell).collect::<Result<_, Error>>()?;
        Ok(Self { rows: RowFinder::of(&rows.events), cells, delimiter })
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

/// The type that an event is decoded from, by its place, and the row.
fn find(types: &mut [Cells<'_>], event: usize) -> Option<(usize, usize)> {
    types.iter_mut().enumerate().find_map(|(at, cells)| Some((at, cells.rows.find(event)?)))
}

/// Appends the fields of an event to the front of its line, where so many were chosen.
pub(crate) fn write_chosen(
    types: &mut [Cells<'_>],
    event: usize,
    count: usize,
    front: &Front,
    out: &mut Vec<u8>,
) {
    front.end(count, out);
    match find(types, event) {
        Some((at, row)) => types[at].write(row, out),
        None => front.blank(count, out),
    }
}

impl FieldParts {
    /// For the events of a batch, and the values of all their fields.
    pub(crate) fn of(batch: &Batch) -> (Self, Columns) {
        let shape = |rows: &Rows| {
            let leaves = FieldPath::leaves(rows.columns.schema_ref());
            let first = rows.events.first().and_then(|event| batch.channels().get(*event as usize));
            let channel = first.copied().map(ChannelId);
            Arc::new(Shape { message: Arc::clone(&rows.message), leaves, channel })
        };
        let shapes: Vec<_> = batch.rows().iter().map(shape).collect();
        let resolve = |(rows, shape): (&Rows, &Arc<Shape>)| {
            shape.leaves.iter().map(|path| path.resolve(&rows.columns)).collect()
        };
        let columns = Columns(batch.rows().iter().zip(&shapes).map(resolve).collect());
        (Self { shapes, ..Self::default() }, columns)
    }

    /// Takes the fields of an event, of whose line `out` ends with the front.
    pub(crate) fn take(&mut self, types: &mut [Cells<'_>], event: usize, out: &[u8]) {
        let found = find(types, event);
        if let Some((at, row)) = found {
            types[at].write(row, &mut self.text);
        }
        let (front_end, fields_end) = (out.len(), self.text.len());
        self.lines.push(Line { front_end, fields_end, shape: found.map(|(at, _)| at) });
    }

    /// The type of the first event, if that is decoded.
    fn first(&self) -> Option<&Arc<Shape>> {
        self.lines.first().and_then(|line| self.shapes.get(line.shape?))
    }

    /// The types of the decoded events, in order.
    fn decoded(&self) -> impl Iterator<Item = &Arc<Shape>> {
        self.lines.iter().filter_map(|line| self.shapes.get(line.shape?))
    }
}

impl Shape {
    fn is(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.message, &other.message);
        let same = Arc::ptr_eq(ours, theirs) || ours.name == theirs.name && ours.key == theirs.key;
        same && self.leaves == other.leaves
    }
}

impl Front {
    /// Ends a front behind which so many columns follow.
    fn end(&self, columns: usize, out: &mut Vec<u8>) {
        if !self.names.is_empty() && columns > 0 {
            write::delimiter(out, self.delimiter);
        }
    }

    /// So many columns without a value.
    fn blank(&self, columns: usize, out: &mut Vec<u8>) {
        (1..columns).for_each(|_| write::delimiter(out, self.delimiter));
    }

    fn header(&self, fields: &[FieldPath]) -> Vec<u8> {
        let fronts = self.names.iter().map(|name| (*name).to_owned());
        let mut header = Vec::new();
        for (at, name) in fronts.chain(fields.iter().map(FieldPath::to_string)).enumerate() {
            if at > 0 {
                write::delimiter(&mut header, self.delimiter);
            }
            write::csv_value(&mut header, &name, self.delimiter);
        }
        header.push(b'\n');
        header
    }

    /// Lines that are fronts, with so many blank columns behind each.
    fn pad(&self, lines: &[u8], columns: usize, out: &mut Vec<u8>) {
        let (mut start, mut is_quoted) = (0, false);
        for (at, byte) in lines.iter().enumerate() {
            is_quoted ^= *byte == b'"';
            if *byte == b'\n' && !is_quoted {
                let front = lines.get(start..at).unwrap_or_default();
                let line_start = out.len();
                out.extend_from_slice(if front == EMPTY { b"" } else { front });
                self.end(columns, out);
                self.blank(columns, out);
                end_line(line_start, out);
                start = at + 1;
            }
        }
    }
}

/// A line of one column without a value: readers skip lines without anything.
const EMPTY: &[u8] = b"\"\"";

/// Ends the line that began at `start`.
pub(crate) fn end_line(start: usize, out: &mut Vec<u8>) {
    if out.len() == start {
        out.extend_from_slice(EMPTY);
    }
    out.push(b'\n');
}

/// A table in the making.
#[derive(Debug)]
pub struct Table {
    file: TextFile,
    /// What it is called.
    path: String,
    front: Front,
    has_header: bool,
    layout: Layout,
    is_empty: bool,
    /// Decoded events whose fields have no column.
    without_column: u64,
    scratch: Vec<u8>,
}

/// Which columns of fields there are.
#[derive(Debug)]
enum Layout {
    /// No event has come yet that could tell.
    Undecided,
    /// Those that were chosen.
    Chosen(FieldList, FieldPresence),
    /// None: the first event is not decoded.
    Bare,
    /// Those of the first event's type.
    Of(Arc<Shape>),
}

impl Table {
    /// A table in a new file of this path. `chosen` are its columns of fields, if they are known.
    pub(crate) fn new(
        (file, path): (TextFile, &OutPath),
        front: Front,
        has_header: bool,
        chosen: Option<&FieldList>,
    ) -> Result<Self, Error> {
        let mut table = Self {
            file,
            path: path.0.display().to_string(),
            front,
            has_header,
            layout: Layout::Undecided,
            is_empty: true,
            without_column: 0,
            scratch: Vec::new(),
        };
        if let Some(fields) = chosen {
            table.decide(Layout::Chosen(fields.clone(), fields.none_found()))?;
        }
        Ok(table)
    }

    /// Every channel of the run.
    pub(crate) fn channels(&self) -> Arc<Channels> {
        self.file.channels()
    }

    /// Appends a block; gives the number of its events.
    pub(crate) fn append(&mut self, block: TableBlock) -> Result<u64, Error> {
        let TableBlock { text, fields } = block;
        if let (Layout::Chosen(_, ours), Fields::InLines(found)) = (&mut self.layout, &fields) {
            ours.add(found);
        }
        if text.rows() == 0 {
            return self.file.append(text);
        }
        self.is_empty = false;
        if matches!(self.layout, Layout::Undecided) {
            let first = match &fields {
                Fields::Apart(parts) => parts.first(),
                Fields::Nowhere | Fields::InLines(_) => None,
            };
            self.decide(first.map_or(Layout::Bare, |shape| Layout::Of(Arc::clone(shape))))?;
        }
        match (&mut self.layout, &fields) {
            (Layout::Bare, Fields::Apart(parts)) => {
                self.expect_columns(parts.decoded().next())?;
                self.without_column += parts.decoded().count() as u64;
            }
            (Layout::Of(shape), fields) => {
                let shape = Arc::clone(shape);
                return self.append_woven(&shape, &text, fields);
            }
            _ => {}
        }
        self.file.append(text)
    }

    /// Appends lines with the columns of one type: where an event is of another, they stay blank.
    fn append_woven(
        &mut self,
        shape: &Shape,
        text: &TextBlock,
        fields: &Fields,
    ) -> Result<u64, Error> {
        if let Fields::Apart(parts) = fields {
            self.expect_columns(parts.decoded().find(|other| !shape.is(other)))?;
        }
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        match fields {
            Fields::Apart(parts) => self.weave(shape, text.text(), parts, &mut out),
            _ => self.front.pad(text.text(), shape.leaves.len(), &mut out),
        }
        let appended = self.file.append_as(&out, text);
        self.scratch = out;
        appended
    }

    /// Refuses an event of a type whose fields have no column. A recording goes on: what it lacks
    /// is told at its end.
    fn expect_columns(&self, lost: Option<&Arc<Shape>>) -> Result<(), Error> {
        let Some(lost) = lost.filter(|_| !self.file.is_growing()) else { return Ok(()) };
        let columns = match &self.layout {
            Layout::Of(shape) => format!("those of {}", self.described(shape)),
            _ => "none, since the first event is not decoded".to_owned(),
        };
        Err(ErrorKind::NotAllowed(format!(
            "nothing was published, since the fields of {} would be lost: the columns of a CSV are the \
             fields of its first event, {columns}. Write one channel (`--channel {}`), a table a channel \
             (`--to tables/`) or lines of JSON (`.jsonl`); or choose the columns by `--field` (the option \
             `fields`; `[]` is none): {}",
            self.described(lost),
            self.channel(lost).unwrap_or_else(|| "NAME".to_owned()),
            self.path
        ))
        .into())
    }

    /// A type of message, with the channel on which it came.
    fn described(&self, shape: &Shape) -> String {
        let name = printable(&shape.message.name);
        match self.channel(shape) {
            Some(channel) => format!("`{channel}` (`{name}`)"),
            None => format!("`{name}`"),
        }
    }

    fn channel(&self, shape: &Shape) -> Option<String> {
        let channel = self.file.channels().get(shape.channel?);
        Some(printable(channel.name.text()).into_owned())
    }

    fn weave(&mut self, shape: &Shape, fronts: &[u8], parts: &FieldParts, out: &mut Vec<u8>) {
        let fits: Vec<bool> = parts.shapes.iter().map(|other| shape.is(other)).collect();
        let columns = shape.leaves.len();
        let (mut front_start, mut fields_start) = (0, 0);
        for line in &parts.lines {
            let front = fronts.get(front_start..line.front_end).unwrap_or_default();
            let fields = parts.text.get(fields_start..line.fields_end).unwrap_or_default();
            let line_start = out.len();
            out.extend_from_slice(front);
            self.front.end(columns, out);
            match line.shape {
                Some(at) if fits[at] => out.extend_from_slice(fields),
                _ => self.front.blank(columns, out),
            }
            end_line(line_start, out);
            self.without_column += u64::from(line.shape.is_some_and(|at| !fits[at]));
            let is_empty = front.is_empty();
            front_start = line.front_end + if is_empty { EMPTY.len() } else { 0 } + 1;
            fields_start = line.fields_end;
        }
    }

    fn decide(&mut self, layout: Layout) -> Result<(), Error> {
        self.layout = layout;
        let fields = match &self.layout {
            Layout::Undecided | Layout::Bare => &[][..],
            Layout::Chosen(fields, _) => fields.paths(),
            Layout::Of(shape) => &shape.leaves,
        };
        if self.front.names.is_empty() && fields.is_empty() {
            return Err(Error::unfit(
                "the table would have no column; name some in `event_columns` or `fields`",
            ));
        }
        let header = self.front.header(fields);
        if self.has_header {
            self.file.write(&header)?;
        }
        Ok(())
    }

    /// What is lost of the events.
    pub(crate) fn notes(&self) -> Vec<(String, u64)> {
        let lost = |what: &str| match self.without_column {
            0 => Vec::new(),
            count => vec![(what.to_owned(), count)],
        };
        match &self.layout {
            Layout::Chosen(fields, found) if !self.is_empty => fields.notes(found),
            Layout::Bare => lost(
                "the first event is not decoded, so fields have no columns; the option `fields` names some",
            ),
            Layout::Of(_) => lost(
                "fields have no columns where an event is not of the first one's type; the option \
                 `fields` names some",
            ),
            Layout::Undecided | Layout::Chosen(..) => Vec::new(),
        }
    }

    /// What is said of a list that was to be taken apart, if no event had it.
    pub(crate) fn note_of_lists(&self, path: Option<&FieldPath>) -> Option<(String, u64)> {
        self.file.note_of_lists(path)
    }

    /// Brings what was appended into the file.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }

    /// Completes the file. Gives 0: no event was held back.
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        if matches!(self.layout, Layout::Undecided) && !self.front.names.is_empty() {
            self.decide(Layout::Bare)?;
        }
        self.file.finish()
    }
}
