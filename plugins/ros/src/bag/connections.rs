//! The connections of a bag: a topic and a type each, by a number.

#![warn(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use sluice_model::{Channel, ChannelId, EmbeddedSchema, Encoding, Error, Name, ReadContext};

use super::wire::fields;

/// The most connections of a bag, and the most bytes of their descriptions. Bags may be hostile.
const MAX_CONNECTIONS: usize = 1 << 16;
const MAX_BYTES: usize = 64 << 20;
/// The most bytes of one description.
pub(crate) const MAX_DESCRIPTION: u32 = 16 << 20;

/// A connection as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    topic: Vec<u8>,
    description: Vec<u8>,
}

/// `Err` if the description of a connection cannot be read. Then it contradicts nothing.
pub(crate) fn check_form(id: u32, description: &[u8]) -> Result<(), String> {
    match fields(description).all(|field| field.is_some()) {
        true => Ok(()),
        false => Err(format!("the description of the connection {id} cannot be read")),
    }
}

/// Connections by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections {
    pub(crate) all: BTreeMap<u32, Connection>,
    bytes: usize,
    /// Those that were declared behind the last damage, if there was any. Others are unsure:
    /// another bag with the same numbers may have begun in it.
    sure: Option<BTreeSet<u32>>,
    /// Unsure ones that messages have.
    used: BTreeSet<u32>,
    /// Those that were declared twice, differently: which one a message means is unknown.
    conflicting: BTreeSet<u32>,
}

impl Connections {
    /// Adds a connection, unless there is the same one. `Err` says what is wrong with it.
    pub(crate) fn declare(
        &mut self,
        id: u32,
        topic: Vec<u8>,
        description: &[u8],
    ) -> Result<(), String> {
        check_form(id, description)?;
        if self.all.contains_key(&id) {
            let checked = self.check(id, &topic, description);
            match checked {
                Ok(()) => self.confirm(id),
                Err(_) => self.note_conflict(id),
            }
            return checked;
        }
        self.bytes += topic.len() + description.len();
        if self.all.len() == MAX_CONNECTIONS || self.bytes > MAX_BYTES {
            return Err("the bag has too many connections".to_owned());
        }
        self.all.insert(id, Connection { topic, description: description.to_owned() });
        self.confirm(id);
        Ok(())
    }

    fn confirm(&mut self, id: u32) {
        if let Some(sure) = &mut self.sure {
            sure.insert(id);
            self.used.remove(&id);
        }
    }

    /// The connection was declared again, with other contents.
    pub(crate) fn note_conflict(&mut self, id: u32) {
        self.conflicting.insert(id);
    }

    pub(crate) fn forget_conflicts(&mut self) {
        self.conflicting.clear();
    }

    pub(crate) fn is_conflicting(&self, id: u32) -> bool {
        self.conflicting.contains(&id)
    }

    fn is_unsure(&self, id: u32) -> bool {
        self.sure.as_ref().is_some_and(|sure| !sure.contains(&id)) && self.all.contains_key(&id)
    }

    /// Damage is here: connections are only likely until they are declared again.
    pub(crate) fn pass_damage(&mut self) {
        self.sure = Some(BTreeSet::new());
    }

    /// Whether connections were declared before damage, and not again.
    pub(crate) fn are_unsure(&self) -> bool {
        self.sure.as_ref().is_some_and(|sure| sure.len() < self.all.len())
    }

    /// Takes note of a message with this connection.
    pub(crate) fn note_use(&mut self, id: u32) {
        if self.is_unsure(id) {
            self.used.insert(id);
        }
    }

    /// Whether this connection is not the one that was declared before damage.
    pub(crate) fn is_of_another_bag(&self, id: u32, topic: &[u8], description: &[u8]) -> bool {
        self.is_unsure(id) && self.check(id, topic, description).is_err()
    }

    /// Forgets the connections that were declared before damage, and not again. Returns whether
    /// messages had them.
    pub(crate) fn forget_unsure(&mut self) -> bool {
        if let Some(sure) = self.sure.take() {
            self.all.retain(|id, _| sure.contains(id));
            self.conflicting.clear();
        }
        self.bytes = self.all.values().map(|all| all.topic.len() + all.description.len()).sum();
        !std::mem::take(&mut self.used).is_empty()
    }

    /// `Err` unless there is exactly this connection.
    pub(crate) fn check(&self, id: u32, topic: &[u8], description: &[u8]) -> Result<(), String> {
        let known = self.all.get(&id);
        match known.is_some_and(|known| known.topic == topic && known.description == description) {
            true => Ok(()),
            false => Err(format!("the connection {id} is declared again, with other contents")),
        }
    }
}

/// The channels of connections, as far as messages have used them.
#[derive(Debug, Default)]
pub(crate) struct BagChannels {
    ids: HashMap<u32, Option<ChannelId>>,
    /// Texts of types, shared by the channels that have them.
    texts: HashSet<Arc<[u8]>>,
}

impl BagChannels {
    /// The channel of a connection, `Some(None)` if its events are not needed. `None` if there is
    /// no such connection.
    pub(crate) fn get(
        &mut self,
        id: u32,
        connections: &Connections,
        context: &ReadContext,
    ) -> Result<Option<Option<ChannelId>>, Error> {
        if let Some(known) = self.ids.get(&id) {
            return Ok(Some(*known));
        }
        let Some(connection) = connections.all.get(&id) else { return Ok(None) };
        let channel = self.channel(connection, &context.source);
        let is_wanted = context.query.channels.wants(channel.name.text(), &channel.source);
        let found = is_wanted.then(|| context.channels.intern(channel)).transpose()?;
        self.ids.insert(id, found);
        Ok(Some(found))
    }

    fn channel(&mut self, connection: &Connection, source: &Arc<str>) -> Channel {
        let name = Name::from_bytes(&connection.topic);
        let mut channel = Channel::new(name, Arc::clone(source), Encoding::Ros1);
        for (key, value) in fields(&connection.description).flatten() {
            let text = || String::from_utf8_lossy(value).into_owned();
            match key {
                b"topic" => {}
                b"type" => channel.type_name = Some(text().into()),
                b"message_definition" => {
                    let data = self.text(value);
                    channel.schema = Some(EmbeddedSchema { encoding: "ros1msg".into(), data });
                }
                _ => {
                    channel.metadata.insert(String::from_utf8_lossy(key).into_owned(), text());
                }
            }
        }
        channel
    }

    fn text(&mut self, text: &[u8]) -> Arc<[u8]> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<[u8]> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }
}
