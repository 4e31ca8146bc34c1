//! What a bag says of itself: its tables, topics and types.

#![warn(clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use sluice_model::{Channel, ChannelId, EmbeddedSchema, Encoding, Error, Name, ReadContext};

use super::pages::Pages;
use super::record::{Column, columns};
use super::tree::{Leaf, Leaves, Node, PageFault, Row};

/// The root of the table of all tables.
const SCHEMA: u32 = 1;
/// The most bytes of a row of any table but that of messages, and of all of them. Bags may be
/// hostile.
const MAX_ROW: u64 = 16 << 20;
const MAX_ROWS: u64 = 64 << 20;

/// What is known of a bag before its messages are read.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// Where the columns of messages are.
    columns: MessageColumns,
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) faults: Vec<PageFault>,
    pub(crate) topics: BTreeMap<i64, Topic>,
    /// How many pages are missing at the end of the file, and where that is.
    pub(crate) missing: Option<(u64, u64)>,
}

/// Which columns of a message are which.
#[derive(Clone, Copy, Debug)]
struct MessageColumns {
    topic: usize,
    time: usize,
    data: usize,
}

/// A message, as far as the page of its row tells.
pub(crate) struct Message {
    pub(crate) topic: i64,
    pub(crate) time: i64,
    /// Where its data lies in the row.
    pub(crate) data: Range<u64>,
}

/// A topic of a bag.
#[derive(Debug)]
pub(crate) struct Topic {
    name: Vec<u8>,
    type_name: Arc<str>,
    format: String,
    schema: Option<EmbeddedSchema>,
    metadata: BTreeMap<String, String>,
}

/// A table: its root, and the names of its columns.
struct Table {
    root: u32,
    columns: Vec<String>,
}

impl Table {
    /// From the statement that made the table.
    fn parse(root: u32, statement: &str) -> Option<Self> {
        let (_, inner) = statement.split_once('(')?;
        let (mut columns, mut depth, mut is_start) = (vec![String::new()], 0_usize, true);
        for char in inner.chars() {
            match char {
                ',' if depth == 0 => {
                    columns.push(String::new());
                    is_start = true;
                }
                '(' => depth += 1,
                ')' if depth == 0 => break,
                ')' => depth -= 1,
                _ => {
                    let Some(column) = columns.last_mut() else { continue };
                    match char {
                        // What follows the name is its type.
                        _ if char.is_whitespace() => is_start &= column.is_empty(),
                        '"' | '`' | '[' | ']' => {}
                        _ if is_start => column.push(char.to_ascii_lowercase()),
                        _ => {}
                    }
                }
            }
        }
        Some(Self { root, columns })
    }

    /// The place of a column.
    fn place(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

impl Catalog {
    pub(crate) fn read(pages: &mut Pages, path: &str) -> Result<Self, Error> {
        let mut faults = Vec::new();
        let mut tables = HashMap::new();
        read_rows(pages, SCHEMA, &mut faults, |_, row, columns| {
            let text = |place: usize| {
                columns.get(place).and_then(|column| column.text(row)).map(String::from_utf8_lossy)
            };
            let root = columns.get(3).and_then(|column| column.integer(row));
            let root = root.and_then(|root| u32::try_from(root).ok());
            if let (Some("table"), Some(name), Some(root), Some(statement)) =
                (text(0).as_deref(), text(1), root, text(4))
                && let Some(table) = Table::parse(root, &statement)
            {
                tables.insert(name.into_owned(), table);
            }
        })?;
        let of_messages = tables.get("messages").and_then(|table| {
            let place = |name| table.place(name);
            let (topic, time) = (place("topic_id")?, place("timestamp")?);
            Some((table.root, MessageColumns { topic, time, data: place("data")? }))
        });
        let Some((root, columns)) = of_messages else {
            return Err(Error::malformed(
                path,
                0,
                match faults.is_empty() {
                    true => "no bag of ROS 2: it has no table `messages` with the columns of one",
                    false => {
                        "the list of tables at the start of the file is damaged; if the file was a \
                     bag, try `sqlite3 FILE .recover`"
                    }
                },
            ));
        };
        let mut definitions = HashMap::new();
        if let Some(table) = tables.get("message_definitions") {
            read_rows(pages, table.root, &mut faults, |_, row, columns| {
                let text = |name: &str| columns.get(table.place(name)?)?.text(row);
                if let (Some(name), Some(language), Some(data)) = (
                    text("topic_type"),
                    text("encoding").map(String::from_utf8_lossy),
                    text("encoded_message_definition"),
                ) && !data.is_empty()
                {
                    let schema = EmbeddedSchema { encoding: (*language).into(), data: data.into() };
                    definitions.insert(name.to_vec(), schema);
                }
            })?;
        }
        let mut topics = BTreeMap::new();
        if let Some(table) = tables.get("topics") {
            read_rows(pages, table.root, &mut faults, |id, row, columns| {
                topics.extend(Topic::parse(table, &definitions, row, columns).map(|t| (id, t)));
            })?;
        }
        let mut leaves = Leaves::find(pages, root)?;
        leaves.recover(pages, |row| {
            columns.of(row).is_some_and(|message| topics.contains_key(&message.topic))
        })?;
        faults.append(&mut leaves.faults);
        // What is wrong with a page first.
        faults.sort_by_key(|fault| fault.page);
        faults.dedup_by_key(|fault| fault.page);
        let missing = pages.missing().map(|(count, at)| (u64::from(count), at));
        let cut_off =
            (leaves.cut_off > 0).then(|| (leaves.cut_off, pages.offset(pages.count() + 1)));
        let missing = missing.or(cut_off);
        Ok(Self { columns, leaves: leaves.found, faults, topics, missing })
    }

    /// The message of a row; `None` if it is none.
    pub(crate) fn message(&self, row: &Row<'_>) -> Option<Message> {
        self.columns.of(row)
    }
}

impl MessageColumns {
    fn of(self, row: &Row<'_>) -> Option<Message> {
        let columns = columns(row.start, row.len)?;
        let integer = |place: usize| columns.get(place)?.integer(row.start);
        let data = columns.get(self.data)?.blob()?;
        Some(Message { topic: integer(self.topic)?, time: integer(self.time)?, data })
    }
}

impl Topic {
    fn parse(
        table: &Table,
        definitions: &HashMap<Vec<u8>, EmbeddedSchema>,
        row: &[u8],
        columns: &[Column],
    ) -> Option<Self> {
        let text = |place: usize| columns.get(place)?.text(row);
        let shown =
            |name: &str| Some(String::from_utf8_lossy(text(table.place(name)?)?).into_owned());
        let type_name = text(table.place("type")?)?;
        // What else the table has is for the reader: qualities of service, and hashes of types.
        let known = ["id", "name", "type", "serialization_format"];
        let others = table.columns.iter().filter(|column| !known.contains(&column.as_str()));
        let metadata = others.filter_map(|column| {
            let value = shown(column).filter(|value| !value.is_empty())?;
            // As bags in MCAP call it.
            let key = if column == "type_description_hash" { "topic_type_hash" } else { column };
            Some((key.to_owned(), value))
        });
        Some(Self {
            name: text(table.place("name")?)?.to_vec(),
            type_name: String::from_utf8_lossy(type_name).into(),
            format: shown("serialization_format").unwrap_or_else(|| "cdr".to_owned()),
            schema: definitions.get(type_name).cloned(),
            metadata: metadata.collect(),
        })
    }

    /// Its channel; `None` if its messages are not needed.
    pub(crate) fn channel(&self, context: &ReadContext) -> Result<Option<ChannelId>, Error> {
        let (name, source) = (Name::from_bytes(&self.name), Arc::clone(&context.source));
        let mut channel = Channel::new(name, source, Encoding::from_word(&self.format));
        channel.type_name = Some(Arc::clone(&self.type_name));
        channel.schema = self.schema.clone();
        channel.metadata = self.metadata.clone();
        let is_wanted = context.query.channels.wants(channel.name.text(), &channel.source);
        is_wanted.then(|| context.channels.intern(channel)).transpose()
    }
}

/// Calls `each` with the rows of a table: the id, the bytes, and the columns.
fn read_rows(
    pages: &mut Pages,
    root: u32,
    faults: &mut Vec<PageFault>,
    mut each: impl FnMut(i64, &[u8], &[Column]),
) -> Result<(), Error> {
    let mut leaves = Leaves::find(pages, root)?;
    faults.append(&mut leaves.faults);
    let (mut page, mut row_bytes, mut left) = (Vec::new(), Vec::new(), MAX_ROWS);
    for leaf in leaves.found {
        let mut fault = |what: &str| {
            faults.push(PageFault { page: leaf.page, what: what.to_owned() });
        };
        page.clear();
        page.extend_from_slice(pages.page(leaf.page)?.unwrap_or_default());
        let Some(node) = Node::parse(&page, leaf.page).filter(Node::is_leaf) else {
            fault("it is no page of rows, but described topics or types");
            continue;
        };
        for entry in 0..node.entries() {
            let row = node.row(entry).filter(|row| row.len <= MAX_ROW.min(left));
            let Some(row) = row else {
                fault("a row that describes topics or types is damaged");
                continue;
            };
            left -= row.len;
            row_bytes.clear();
            let read = row.read(pages, 0..row.len, &mut row_bytes)?;
            match columns(&row_bytes, row.len).filter(|_| read.is_ok()) {
                Some(columns) => each(row.id, &row_bytes, &columns),
                None => fault("a row that describes topics or types is damaged"),
            }
        }
    }
    Ok(())
}
