//! The channels and schemas of a file as they are declared, and the channels of the run they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_model::{ChannelId, Error, ReadContext};

use crate::before_damage::BeforeDamage;
use crate::channel::{StoredChannel, StoredSchema, mark_lone_view};
use crate::wire::{ChannelRecord, SchemaRecord, op};

/// The most bytes of all schemas of a file, and of all its channels.
const MAX_DECLARED: usize = 64 << 20;

/// The note about messages that the summary alone gives a channel.
const BY_HINTS: &str = "messages whose declarations are damaged are read by the summary, which is \
                        incomplete, has no checksum, or is not where the footer says: their \
                        channels may be wrong";

/// What is wrong with messages that had channels of a file behind them.
const OF_THE_LAST_FILE: &str = "another file begins: messages before it, whose declarations are \
                                damaged, were read by the summary of the last one";

/// What is wrong if a summary differs from the file.
pub(crate) fn declared_otherwise(kind: &str, id: u16) -> String {
    format!("the summary declares {kind} {id} otherwise than the data before it")
}

/// Declarations by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declarations {
    pub(crate) schemas: BTreeMap<u16, Arc<StoredSchema>>,
    pub(crate) channels: BTreeMap<u16, Arc<StoredChannel>>,
    /// The topics of channels that are no views.
    originals: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl Declarations {
    /// Adds a schema. `Err` says why that is impossible.
    pub(crate) fn add_schema(&mut self, record: &SchemaRecord<'_>) -> Result<(), String> {
        let stored = StoredSchema::from_record(record);
        self.count(stored.bytes())?;
        self.schemas.insert(record.id, Arc::new(stored));
        Ok(())
    }

    /// Adds a channel. `Err` says why that is impossible.
    pub(crate) fn add_channel(&mut self, id: u16, stored: StoredChannel) -> Result<(), String> {
        self.count(stored.bytes())?;
        if stored.shown_channel().is_none() {
            self.originals.insert(stored.topic.clone());
        }
        self.channels.insert(id, Arc::new(stored));
        Ok(())
    }

    /// Forgets those that were made before damage.
    fn forget(&mut self, before: &BeforeDamage) {
        self.schemas.retain(|id, _| !before.has_schema(*id));
        self.channels.retain(|id, _| !before.has_channel(*id));
        let originals = self.channels.values().filter(|channel| channel.shown_channel().is_none());
        self.originals = originals.map(|channel| channel.topic.clone()).collect();
        let schemas = self.schemas.values().map(|schema| schema.bytes());
        self.bytes = schemas.chain(self.channels.values().map(|channel| channel.bytes())).sum();
    }

    fn count(&mut self, bytes: usize) -> Result<(), String> {
        let sum = self.bytes.saturating_add(bytes);
        if sum > MAX_DECLARED {
            let most = MAX_DECLARED >> 20;
            return Err(format!("schemas and channels are longer than {most} MiB together"));
        }
        self.bytes = sum;
        Ok(())
    }
}

/// What messages with a channel number are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Events of this channel, if they are needed.
    Channel { id: ChannelId, is_needed: bool },
    /// Nobody knows: it was declared twice, with different contents.
    Conflicting,
    /// Nobody knows: it was never declared.
    Undeclared,
}

/// The channels at a position of a file.
pub(crate) struct ChannelTable {
    context: ReadContext,
    /// The declarations of the whole file, if its summary has them.
    summary: Option<Arc<Declarations>>,
    /// What the summary says that may be wrong or incomplete. Channels that were met count more.
    hints: Option<Arc<Declarations>>,
    /// Whether messages were read by them.
    has_used_hints: bool,
    /// Whether those are of another file, if one has begun in damage.
    may_be_wrong_hints: bool,
    /// The same as `summary`, while that is unset because another file seems to have started.
    set_aside: Option<Arc<Declarations>>,
    /// The declarations met on the way that the summary does not have.
    local: Declarations,
    conflicting: BTreeSet<u16>,
    conflicting_schemas: BTreeSet<u16>,
    /// By number; `None` where nothing was looked up.
    slots: Vec<Option<Slot>>,
    /// The channels that were looked up since the last damage.
    looked_up: Vec<u16>,
    before_damage: BeforeDamage,
    /// What shows that messages behind damage may have the channels of another file.
    contradiction: Option<String>,
}

impl ChannelTable {
    pub(crate) fn new(context: &ReadContext, summary: Option<Arc<Declarations>>) -> Self {
        Self {
            context: context.clone(),
            summary,
            hints: None,
            has_used_hints: false,
            may_be_wrong_hints: false,
            set_aside: None,
            local: Declarations::default(),
            conflicting: BTreeSet::new(),
            conflicting_schemas: BTreeSet::new(),
            slots: Vec::new(),
            looked_up: Vec::new(),
            before_damage: BeforeDamage::default(),
            contradiction: None,
        }
    }

    /// Adds declarations that may be wrong.
    pub(crate) fn add_hints(&mut self, hints: Arc<Declarations>) {
        self.hints = Some(hints);
        let undeclared = self.slots.iter_mut().filter(|slot| **slot == Some(Slot::Undeclared));
        undeclared.for_each(|slot| *slot = None);
    }

    /// Forgets what was met on the way, if the summary has the channels of the whole file: then
    /// every split starts like this.
    pub(crate) fn start_chunk(&mut self) {
        if self.set_aside.is_some() {
            *self = Self::new(&self.context, self.set_aside.take());
        }
        let is_changed = !self.conflicting.is_empty()
            || !self.conflicting_schemas.is_empty()
            || !self.local.channels.is_empty()
            || !self.local.schemas.is_empty();
        if is_changed && self.summary.is_some() {
            self.local = Declarations::default();
            self.conflicting.clear();
            self.conflicting_schemas.clear();
            self.slots.clear();
            self.looked_up.clear();
        }
    }

    /// Forgets everything: another file may follow in the same input. What the summary says counts
    /// again where it lists a chunk. One that may be wrong is of the last file.
    pub(crate) fn start_file(&mut self) {
        let set_aside = self.summary.take().or(self.set_aside.take());
        let may_be_wrong_hints = self.may_be_wrong_hints || self.has_used_hints;
        let (contradiction, hints) = (self.contradiction.take(), self.hints.take());
        let new = Self::new(&self.context, None);
        *self = Self { set_aside, contradiction, hints, may_be_wrong_hints, ..new };
    }

    /// Takes note that another file did follow, if that was uncertain.
    pub(crate) fn confirm_file(&mut self) {
        if std::mem::take(&mut self.may_be_wrong_hints) {
            self.contradiction.get_or_insert_with(|| OF_THE_LAST_FILE.to_owned());
        }
    }

    /// Damage is here: channels are only likely until they are declared again.
    pub(crate) fn pass_damage(&mut self) {
        self.before_damage.start();
        for id in std::mem::take(&mut self.looked_up) {
            if let Some(slot @ Some(Slot::Channel { .. })) = self.slots.get_mut(usize::from(id)) {
                *slot = None;
            }
        }
    }

    /// Whether messages behind damage had channels that only what precedes it declares: at the end
    /// of a file, once.
    pub(crate) fn take_unsure_messages(&mut self) -> bool {
        std::mem::take(&mut self.before_damage).is_used()
    }

    /// What shows that messages behind damage may have the channels of another file, once.
    pub(crate) fn take_contradiction(&mut self) -> Option<String> {
        self.contradiction.take()
    }

    /// Forgets what was declared before damage, as this declaration behind it contradicts that:
    /// another file has begun.
    fn leave_file(&mut self, what: &str, id: u16) {
        let before = std::mem::take(&mut self.before_damage);
        if before.is_used() {
            self.contradiction = Some(format!(
                "{what} {id} is not the one that was declared before damage: messages between may \
                 have the channels of another file"
            ));
        }
        self.local.forget(&before);
        self.slots.clear();
        self.looked_up.clear();
        self.conflicting.retain(|id| !before.has_channel(*id));
        self.conflicting_schemas.retain(|id| !before.has_schema(*id));
        for id in self.conflicting.clone() {
            self.set(id, Slot::Conflicting);
        }
    }

    /// Forgets which channels of the run numbers are.
    fn forget_channels(&mut self) {
        let channels = self.slots.iter_mut().filter(|s| matches!(s, Some(Slot::Channel { .. })));
        channels.for_each(|slot| *slot = None);
    }

    /// Whether messages may have this channel.
    pub(crate) fn has_channel(&self, id: u16) -> bool {
        self.channel(id).or_else(|| self.hinted_channel(id)).is_some()
    }

    /// Takes note of a schema or a channel. `Err` says what is wrong with it.
    pub(crate) fn declare(&mut self, opcode: u8, content: &[u8]) -> Result<(), String> {
        match opcode {
            op::SCHEMA => self.declare_schema(content),
            _ => self.declare_channel(content),
        }
    }

    fn declare_schema(&mut self, content: &[u8]) -> Result<(), String> {
        let record = SchemaRecord::parse(content);
        let record = record.ok_or("the fields of a Schema record are cut off or not UTF-8")?;
        if record.id == 0 {
            return Err("a Schema record has the number 0".to_owned());
        }
        self.compare_schema(&record);
        match self.schema(record.id) {
            Some(known) if known.is_record(&record) => Ok(()),
            Some(_) => {
                self.conflicting_schemas.insert(record.id);
                Err(format!("schema {} is declared again, differently", record.id))
            }
            None => {
                self.local.add_schema(&record)?;
                let hinted = self.hints.as_ref().and_then(|hints| hints.schemas.get(&record.id));
                self.compare_hints(hinted.is_none_or(|hinted| hinted.is_record(&record)))
            }
        }
    }

    fn declare_channel(&mut self, content: &[u8]) -> Result<(), String> {
        let record = ChannelRecord::parse(content);
        let record = record.ok_or("the fields of a Channel record are cut off or not UTF-8")?;
        let (id, stored) = (record.id, StoredChannel::from_record(record));
        self.compare_channel(id, &stored);
        match self.channel(id) {
            Some(known) if **known == stored => return Ok(()),
            Some(_) => {
                self.conflicting.insert(id);
                self.set(id, Slot::Conflicting);
                return Err(format!("channel {id} is declared again, differently"));
            }
            None => {}
        }
        let schema = stored.schema;
        let is_declared = schema == 0 || self.schema(schema).is_some();
        let is_as_hinted = self.hinted_channel(id).is_none_or(|hinted| **hinted == stored);
        self.local.add_channel(id, stored)?;
        if let Some(slot) = self.slots.get_mut(usize::from(id)) {
            *slot = None;
        }
        self.compare_hints(is_as_hinted)?;
        if is_declared {
            return Ok(());
        }
        Err(format!("channel {id} names schema {schema}, which is not declared before it"))
    }

    /// Compares a schema or a channel of the summary with what was declared. `Err` says how that
    /// differs, unless it is of another file: before damage.
    pub(crate) fn compare_summary(&mut self, opcode: u8, content: &[u8]) -> Result<(), String> {
        let other = if opcode == op::SCHEMA {
            let Some(record) = SchemaRecord::parse(content) else { return Ok(()) };
            self.compare_schema(&record);
            let known = self.schema(record.id).filter(|known| !known.is_record(&record));
            let known = known.filter(|_| !self.conflicting_schemas.contains(&record.id));
            known.map(|_| ("schema", record.id))
        } else {
            let Some(record) = ChannelRecord::parse(content) else { return Ok(()) };
            let (id, stored) = (record.id, StoredChannel::from_record(record));
            self.compare_channel(id, &stored);
            let known = self.channel(id).filter(|known| ***known != stored);
            known.filter(|_| !self.conflicting.contains(&id)).map(|_| ("channel", id))
        };
        other.map_or(Ok(()), |(kind, id)| Err(declared_otherwise(kind, id)))
    }

    fn compare_schema(&mut self, record: &SchemaRecord<'_>) {
        let is_other = self.schema(record.id).is_some_and(|known| !known.is_record(record));
        let is_local = self.local.schemas.contains_key(&record.id);
        match is_other && is_local && self.before_damage.has_schema(record.id) {
            true => self.leave_file("schema", record.id),
            false => self.before_damage.confirm_schema(record.id),
        }
    }

    fn compare_channel(&mut self, id: u16, stored: &StoredChannel) {
        let is_other = self.channel(id).is_some_and(|known| **known != *stored);
        let is_local = self.local.channels.contains_key(&id);
        match is_other && is_local && self.before_damage.has_channel(id) {
            true => self.leave_file("channel", id),
            false => self.before_damage.confirm_channel(id),
        }
    }

    /// Drops what the summary says if a declaration contradicts it. `Err` if messages were read by
    /// it.
    fn compare_hints(&mut self, is_as_hinted: bool) -> Result<(), String> {
        if is_as_hinted {
            return Ok(());
        }
        self.hints = None;
        self.forget_channels();
        match std::mem::take(&mut self.has_used_hints) {
            true => Err("a declaration contradicts the summary, by which messages before it were \
                         read, since their own declarations are damaged"
                .to_owned()),
            false => Ok(()),
        }
    }

    fn schema(&self, id: u16) -> Option<&Arc<StoredSchema>> {
        let in_summary = || self.summary.as_ref()?.schemas.get(&id);
        self.local.schemas.get(&id).or_else(in_summary)
    }

    fn channel(&self, id: u16) -> Option<&Arc<StoredChannel>> {
        let in_summary = || self.summary.as_ref()?.channels.get(&id);
        self.local.channels.get(&id).or_else(in_summary)
    }

    /// Whether the file has what a view shows; `None` if that is not known yet. A view of one
    /// channel follows it.
    fn has_shown(&self, of: Option<&str>) -> Option<bool> {
        let declared = match &self.summary {
            Some(summary) => [Some(&**summary), None],
            None => [Some(&self.local), self.hints.as_deref()],
        };
        let mut originals = declared.iter().flatten().map(|declared| &declared.originals);
        match of {
            Some(of) => Some(originals.any(|topics| topics.contains(of.as_bytes()))),
            None if originals.any(|topics| !topics.is_empty()) => Some(true),
            None => self.summary.is_some().then_some(false),
        }
    }

    fn hinted_channel(&self, id: u16) -> Option<&Arc<StoredChannel>> {
        self.hints.as_ref()?.channels.get(&id)
    }

    /// The topic of a channel whose messages are in CDR.
    pub(crate) fn cdr_topic(&self, id: u16) -> Option<String> {
        let stored = self.channel(id).or_else(|| self.hinted_channel(id))?;
        let is_cdr = stored.encoding == "cdr";
        is_cdr.then(|| String::from_utf8_lossy(&stored.topic).into_owned())
    }

    fn set(&mut self, id: u16, slot: Slot) -> Slot {
        let index = usize::from(id);
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        if let Some(place) = self.slots.get_mut(index) {
            *place = Some(slot);
        }
        slot
    }

    /// What messages with this number are.
    #[inline]
    pub(crate) fn slot(&mut self, id: u16) -> Result<Slot, Error> {
        match self.slots.get(usize::from(id)) {
            Some(Some(slot)) => Ok(*slot),
            _ => self.look_up(id),
        }
    }

    fn look_up(&mut self, id: u16) -> Result<Slot, Error> {
        let Some(stored) = self.channel(id).or_else(|| self.hinted_channel(id)) else {
            return Ok(self.set(id, Slot::Undeclared));
        };
        let hinted = || self.hints.as_ref()?.schemas.get(&stored.schema);
        let known = self.schema(stored.schema);
        let schema = known.or_else(hinted).filter(|_| stored.schema != 0);
        let is_hinted = self.channel(id).is_none() || known.is_none() && schema.is_some();
        let mut channel = stored.to_channel(schema.map(|schema| &**schema), &self.context.source);
        let shown = stored.shown_channel().map(|of| self.has_shown(of));
        if shown == Some(Some(false)) {
            mark_lone_view(&mut channel);
        }
        let is_untyped = is_hinted && stored.schema != 0 && schema.is_none();
        let number = stored.schema;
        let local_schema = if self.local.schemas.contains_key(&number) { number } else { 0 };
        if self.local.channels.contains_key(&id) {
            self.before_damage.note_use(id, local_schema);
        }
        self.looked_up.push(id);
        let is_first_hint = is_hinted && !self.has_used_hints;
        self.has_used_hints |= is_hinted;
        let is_needed = self.context.query.channels.wants(channel.name.text(), &channel.source);
        if is_first_hint {
            self.context.losses.note(BY_HINTS, 0);
        }
        if is_needed && is_untyped {
            let topic = channel.name.text();
            let what = format!(
                "{topic}: its type is not known: its declaration is damaged, and the summary lacks \
                 schema {number}"
            );
            self.context.losses.note(what, 0);
        }
        if is_needed && shown == Some(None) {
            let what = format!(
                "{}: it shows other channels, and the input had none before it: conversions to \
                 other formats leave it out",
                channel.name.text()
            );
            self.context.losses.note(what, 0);
        }
        let id_of_run = self.context.channels.intern(channel)?;
        Ok(self.set(id, Slot::Channel { id: id_of_run, is_needed }))
    }
}
