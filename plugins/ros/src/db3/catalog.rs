//! What a bag says of itself: its tables, topics and types.

#![warn(clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;
use sluice_model::{Channel, ChannelId, EmbeddedSchema, Encoding, Error, Name, ReadContext};

use super::pages::{PageSet, Pages};
use super::record::{Column, columns, each_column};
use super::tree::{DAMAGED, Leaf, Leaves, Node, PageFault};

/// The root of the table of all tables.
const SCHEMA: u32 = 1;
/// The most bytes of a row of any table but that of messages, and of all its rows. Bags may be
/// hostile.
const MAX_ROW: u64 = 16 << 20;
const MAX_TABLE: u64 = 64 << 20;
/// The longest statement by which a bag is recognized.
const MAX_STATEMENT: usize = 1 << 10;

/// What is known of a bag before its messages are read.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// Where the columns of messages are.
    columns: MessageColumns,
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) faults: Vec<PageFault>,
    /// The pages of the table of messages.
    pub(crate) pages: PageSet,
    pub(crate) topics: BTreeMap<i64, Topic>,
    /// How many pages are missing at the end of the file.
    pub(crate) missing: Option<u64>,
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
    fn parse(root: u32, statement: &str) -> Self {
        let (mut columns, mut depth, mut is_start) = (Vec::new(), 0_usize, false);
        for token in Tokens(statement) {
            match token {
                Token::Mark('(') => {
                    is_start = depth == 0;
                    depth += 1;
                }
                Token::Mark(')') if depth <= 1 => break,
                Token::Mark(')') => depth -= 1,
                Token::Mark(mark) => is_start = mark == ',' && depth == 1,
                Token::Word(name) if is_start => {
                    columns.push(name.to_ascii_lowercase());
                    is_start = false;
                }
                Token::Word(_) => {}
            }
        }
        Self { root, columns }
    }

    /// The place of a column.
    fn place(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

/// What a statement consists of.
enum Token<'s> {
    Word(&'s str),
    Mark(char),
}

/// The rest of a statement.
struct Tokens<'s>(&'s str);

impl<'s> Iterator for Tokens<'s> {
    type Item = Token<'s>;

    fn next(&mut self) -> Option<Token<'s>> {
        loop {
            self.0 = self.0.trim_start();
            // Comments.
            let (_, rest) = match self.0 {
                text if text.starts_with("--") => text.split_once('\n')?,
                text if text.starts_with("/*") => text.split_once("*/")?,
                _ => break,
            };
            self.0 = rest;
        }
        let first = self.0.chars().next()?;
        let rest = self.0.get(first.len_utf8()..)?;
        let quote = match first {
            '[' => Some(']'),
            '"' | '`' | '\'' => Some(first),
            _ => None,
        };
        if let Some(quote) = quote {
            let (word, rest) = rest.split_once(quote)?;
            self.0 = rest;
            return Some(Token::Word(word));
        }
        let is_word = |char: char| char.is_alphanumeric() || char == '_' || char == '$';
        if !is_word(first) {
            self.0 = rest;
            return Some(Token::Mark(first));
        }
        let (word, rest) =
            self.0.split_at(self.0.find(|char| !is_word(char)).unwrap_or(self.0.len()));
        self.0 = rest;
        Some(Token::Word(word))
    }
}

/// Whether the statement that makes the table of messages is in these bytes. SQLite stores its
/// first two words in this form, and the others as they were written.
pub(crate) fn has_statement(bytes: &[u8]) -> bool {
    const START: &[u8] = b"CREATE TABLE ";
    memmem::find_iter(bytes, START).any(|at| {
        let statement = bytes.get(at + START.len()..).unwrap_or_default();
        let statement = statement.get(..MAX_STATEMENT).unwrap_or(statement);
        let text = String::from_utf8_lossy(statement);
        let is_named = |name: &str| name.eq_ignore_ascii_case("messages");
        matches!(Tokens(&text).next(), Some(Token::Word(name)) if is_named(name))
            && Table::parse(0, &text).place("topic_id").is_some()
    })
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
            {
                tables.insert(name.to_ascii_lowercase(), Table::parse(root, &statement));
            }
        })?;
        let of_messages = tables.get("messages").and_then(|table| {
            let place = |name| table.place(name);
            let (topic, time) = (place("topic_id")?, place("timestamp")?);
            Some((table.root, MessageColumns { topic, time, data: place("data")? }))
        });
        let Some((root, columns)) = of_messages else {
            let what = match tables.get("messages") {
                Some(table) => format!(
                    "no bag of ROS 2: its table `messages` has the columns {}, not `topic_id`, \
                     `timestamp` and `data`",
                    table.columns.join(", ")
                ),
                None if faults.is_empty() => {
                    "no bag of ROS 2: it has no table `messages`".to_owned()
                }
                None => {
                    "the list of tables at the start of the file is damaged; if it is a bag, try \
                         to recover it: sqlite3 FILE .recover"
                        .to_owned()
                }
            };
            return Err(Error::malformed(path, 0, what));
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
                // Mostly another name of the row's own number, which is not stored then.
                let stored = table.place("id").and_then(|place| columns.get(place)?.integer(row));
                let topic = Topic::parse(table, &definitions, row, columns);
                topics.extend(topic.map(|topic| (stored.unwrap_or(id), topic)));
            })?;
        }
        let mut leaves = Leaves::find(pages, root)?;
        leaves.recover(pages, |row| {
            columns
                .of(row.start, row.len)
                .is_some_and(|message| topics.contains_key(&message.topic))
        })?;
        faults.append(&mut leaves.faults);
        // Once for each page.
        faults.sort_by_key(|fault| fault.page);
        faults.dedup_by_key(|fault| fault.page);
        let missing = pages.missing().map(u64::from);
        let missing = missing.or((leaves.cut_off > 0).then_some(leaves.cut_off));
        let (pages, leaves) = (leaves.seen, leaves.found);
        Ok(Self { columns, leaves, faults, pages, topics, missing })
    }

    /// The message of a row of `len` bytes that begins with `start`; `None` if it is none.
    pub(crate) fn message(&self, start: &[u8], len: u64) -> Option<Message> {
        self.columns.of(start, len)
    }

    /// Whether the other columns of a long message are behind its data, on further pages.
    pub(crate) fn has_data_first(&self) -> bool {
        self.columns.data < self.columns.topic.max(self.columns.time)
    }
}

impl MessageColumns {
    fn of(self, start: &[u8], len: u64) -> Option<Message> {
        let (mut topic, mut time, mut data, mut place) = (None, None, None, 0);
        each_column(start, len, |column| {
            match place {
                _ if place == self.topic => topic = column.integer(start),
                _ if place == self.time => time = column.integer(start),
                _ if place == self.data => data = column.blob(),
                _ => {}
            }
            place += 1;
        })?;
        Some(Message { topic: topic?, time: time?, data: data? })
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

    pub(crate) fn is_cdr(&self) -> bool {
        self.format == "cdr"
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

/// The error for a bag whose messages are each a zstd frame, by this file.
pub(crate) fn compressed_one_by_one(shown: impl Display) -> Error {
    Error::refused(format!(
        "the messages of the bag are compressed one by one, which is not supported; convert it \
         with ros2 bag convert: {shown}"
    ))
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
    let (mut page, mut row_bytes, mut left) = (Vec::new(), Vec::new(), MAX_TABLE);
    for leaf in leaves.found {
        let mut fault = || faults.push(PageFault { page: leaf.page, what: DAMAGED });
        page.clear();
        page.extend_from_slice(pages.page(leaf.page)?.unwrap_or_default());
        let Some(node) = Node::parse(&page, leaf.page).filter(Node::is_leaf) else {
            fault();
            continue;
        };
        for entry in 0..node.entries() {
            let row = node.row(entry).filter(|row| row.len <= MAX_ROW.min(left));
            let Some(row) = row else {
                fault();
                continue;
            };
            left -= row.len;
            row_bytes.clear();
            let read = row.read(pages, 0..row.len, |_| true, &mut row_bytes)?;
            match columns(&row_bytes, row.len).filter(|_| read.is_ok()) {
                Some(columns) => each(row.id, &row_bytes, &columns),
                None => fault(),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns_of(statement: &str) -> String {
        Table::parse(2, statement).columns.join(" ")
    }

    #[test]
    fn columns_are_found_in_any_statement_that_makes_a_table() {
        for (statement, names) in [
            ("CREATE TABLE messages(id INTEGER PRIMARY KEY,Topic_ID INTEGER)", "id topic_id"),
            (
                "create table \"messages\" (\"id\"INTEGER, [topic id] INT, `t` TEXT)",
                "id topic id t",
            ),
            ("CREATE TABLE m(a /* , b */ TEXT DEFAULT 'x,(y)', -- c,\n d CHECK(d > 0, 1))", "a d"),
            ("CREATE TABLE /* ( */ m(a, b NUMERIC(4, 2), c)", "a b c"),
            (") a ( b", ""),
            ("CREATE TABLE m(a, 'b", "a"),
            ("((((", ""),
            ("", ""),
        ] {
            assert_eq!(columns_of(statement), names, "{statement}");
        }
    }
}
