//! Reads the messages of a split: leaf by leaf, and the pages on which long ones go on.

#![warn(clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use sluice_io::frames;
use sluice_model::options::ByteSize;
use sluice_model::{
    Batch, BatchBuilder, ChannelId, Damage, Error, PayloadOffset, ReadContext, Reader, Split,
};

use super::catalog::{Catalog, Message, compressed_one_by_one};
use super::pages::{Pages, Place};
use super::tree::{Leaf, Node, Row};

/// The most events of a batch, and the bytes from which on it is complete.
const BATCH_EVENTS: usize = 4096;
const BATCH_BYTES: usize = 1 << 20;

pub(crate) struct Db3Reader {
    pages: Pages,
    catalog: Arc<Catalog>,
    context: ReadContext,
    max_message: u64,
    /// The channels of topics, as far as messages have them, and whether those are CDR; `None` for
    /// those not needed.
    channels: BTreeMap<i64, Option<(ChannelId, bool)>>,
    /// The leaves that are left, by their places in the list of all.
    leaves: Range<usize>,
    /// Whether what is wrong with the file as a whole is still to be reported.
    is_first: bool,
    /// The leaf that is read, a copy of its page, and the next entry of it.
    leaf: Option<(Leaf, Vec<u8>)>,
    entry: usize,
    /// Whether the leaf is not whole, which is reported for all of its rows.
    is_reported: bool,
    /// The pages on which rows of the leaf go on.
    taken: HashSet<u32>,
    /// How many more pages rows of the split may have.
    overflow_left: u64,
    /// The id of the last row.
    last_id: Option<i64>,
    batch: BatchBuilder,
    batch_bytes: usize,
}

impl Db3Reader {
    pub(crate) fn new(
        split: &Split,
        (pages, catalog): (Pages, Arc<Catalog>),
        max_message: ByteSize,
        context: &ReadContext,
    ) -> Self {
        let place = |at: u64| (at / pages.size() as u64) as usize;
        let end = split.end.map_or(catalog.leaves.len(), place);
        let leaves = place(split.start)..end.min(catalog.leaves.len());
        let before = leaves.start.checked_sub(1).and_then(|before| catalog.leaves.get(before));
        let overflow_left = pages.present();
        Self {
            last_id: before.map(|leaf| leaf.last),
            pages,
            catalog,
            context: context.clone(),
            max_message: max_message.0,
            channels: BTreeMap::new(),
            leaves,
            is_first: split.start == 0,
            leaf: None,
            entry: 0,
            is_reported: false,
            taken: HashSet::new(),
            overflow_left,
            batch: BatchBuilder::default(),
            batch_bytes: 0,
        }
    }

    /// Reports damage of `len` bytes, `from` the start of a place.
    fn report(&self, place: &Place, from: u64, len: u64, reason: impl Into<String>) {
        // Pages that are asked for may be behind the end.
        let at = place.at.saturating_add(from).min(place.len);
        let len = len.min(place.len - at);
        self.context.damage.report(Damage::new(&place.input, at, len, reason));
    }

    /// Reports what is wrong with the files as a whole.
    fn report_faults(&mut self) {
        for (overlay, file) in self.pages.overlays() {
            if let Some((at, len, why)) = &overlay.damage {
                self.context.damage.report(Damage::new(&file.input, *at, *len, why));
            }
            if let Some(note) = overlay.note {
                self.context.losses.note(format!("{}: {note}", file.input), 0);
            }
        }
        let size = self.pages.size() as u64;
        for fault in &self.catalog.faults {
            let place = self.pages.place(fault.page);
            self.report(&place, 0, size, fault.what);
        }
        if let Some(pages) = self.catalog.missing {
            let reason = format!("the file is cut off: at least {pages} pages are missing");
            self.report(&self.pages.end(), 0, 0, reason);
        }
    }

    /// Goes on to the next leaf; returns whether there is one.
    fn open_leaf(&mut self) -> Result<bool, Error> {
        let leaf = self.leaves.next().and_then(|at| self.catalog.leaves.get(at)).copied();
        let Some(leaf) = leaf else { return Ok(false) };
        let page = self.pages.page(leaf.page)?.unwrap_or_default().to_vec();
        let node = Node::parse(&page, leaf.page).filter(Node::is_leaf);
        self.is_reported = !node.as_ref().is_some_and(Node::is_whole);
        if self.is_reported {
            let (place, size) = (self.pages.place(leaf.page), self.pages.size() as u64);
            let from = self.last_id.map_or(0, |last| last.saturating_add(1));
            let to = match leaf.last {
                i64::MAX => "the last one".to_owned(),
                last => last.to_string(),
            };
            self.report(
                &place,
                0,
                size,
                format!("the page of the messages {from} to {to} is damaged"),
            );
        }
        if node.is_some() {
            self.entry = 0;
            self.taken.clear();
            self.leaf = Some((leaf, page));
        } else {
            self.last_id = Some(leaf.last);
        }
        Ok(true)
    }

    /// Reads rows of a leaf until the batch is complete, and puts it back if some are left.
    fn read_leaf(&mut self, leaf: Leaf, page: Vec<u8>) -> Result<(), Error> {
        let Some(node) = Node::parse(&page, leaf.page) else { return Ok(()) };
        while self.entry < node.entries() && !self.is_batch_complete() {
            let next_id = node.row(self.entry + 1).map(|row| row.id);
            // A leaf that is whole has rows only.
            if let Some(row) = node.row(self.entry)
                && let Err(reason) = self.read_row(leaf, &row, next_id)?
                && !self.is_reported
            {
                let place = self.pages.place(leaf.page);
                self.report(&place, row.at as u64, row.start.len() as u64, reason);
            }
            self.entry += 1;
        }
        if self.entry < node.entries() {
            self.leaf = Some((leaf, page));
        } else {
            // Rows up to there belong on this leaf.
            self.last_id = Some(leaf.last);
        }
        Ok(())
    }

    /// Adds the message of a row to the batch, if it is needed. `Ok(Err)` says what is wrong with
    /// it.
    fn read_row(
        &mut self,
        leaf: Leaf,
        row: &Row<'_>,
        next_id: Option<i64>,
    ) -> Result<Result<(), String>, Error> {
        let expected = |id| self.last_id.is_none_or(|last| id > last) && id <= leaf.last;
        // If the next one is between, it is this one that is wrong.
        if !expected(row.id) || next_id.is_some_and(|next| expected(next) && next <= row.id) {
            return Ok(Err(format!("a message has the number {}, out of order", row.id)));
        }
        self.last_id = Some(row.id);
        let catalog = Arc::clone(&self.catalog);
        let (mut message, mut whole) = (catalog.message(row.start, row.len), None);
        if message.is_none() && catalog.has_data_first() && row.is_long() {
            if row.len > self.max_message {
                return Ok(Err(too_long(row.len, self.max_message)));
            }
            let bytes = match self.read_range(row, 0..row.len)? {
                Ok(bytes) => bytes,
                Err(why) => return Ok(Err(why)),
            };
            message = catalog.message(&bytes, row.len);
            whole = Some(bytes);
        }
        let Some(Message { topic, time, data }) = message else {
            return Ok(Err("a message is damaged: it does not have the columns of one".to_owned()));
        };
        let channel = match self.channels.get(&topic) {
            Some(known) => *known,
            None => {
                let Some(declared) = catalog.topics.get(&topic) else {
                    return Ok(Err(format!(
                        "a message is of topic {topic}, which is not declared"
                    )));
                };
                let channel = declared.channel(&self.context)?;
                let channel = channel.map(|channel| (channel, declared.is_cdr()));
                *self.channels.entry(topic).or_insert(channel)
            }
        };
        let is_wanted = self.context.query.window().wants_time(time);
        let Some((channel, is_cdr)) = channel.filter(|_| is_wanted) else { return Ok(Ok(())) };
        let start = whole.as_deref().unwrap_or(row.start);
        let start = start.get(data.start as usize..).unwrap_or_default();
        // CDR begins with the number of its form, of which the first byte is 0.
        if is_cdr && start.starts_with(&frames::MAGIC) {
            return Err(compressed_one_by_one(self.pages.end().input));
        }
        let (len, most) = (data.end - data.start, self.max_message);
        if len > most {
            return Ok(Err(too_long(len, most)));
        }
        self.batch_bytes += len as usize;
        let range = data.start as usize..data.end as usize;
        if !row.is_long() {
            let payload = row.start.get(range).unwrap_or_default();
            self.batch.push_copy(time, row.id, channel, payload);
            return Ok(Ok(()));
        }
        let payload = match whole {
            Some(whole) => Ok(whole.slice(range)),
            None => self.read_range(row, data)?,
        };
        let payload = match payload {
            Ok(payload) => payload,
            Err(why) => return Ok(Err(why)),
        };
        let segment = self.batch.segment(payload.clone());
        self.batch.push(time, row.id, channel, &payload, PayloadOffset { segment, offset: 0 });
        Ok(Ok(()))
    }

    /// The bytes of a long row in a range. `Ok(Err)` says why there are none.
    fn read_range(
        &mut self,
        row: &Row<'_>,
        range: Range<u64>,
    ) -> Result<Result<Bytes, String>, Error> {
        let left = self.overflow_left.checked_sub(row.overflow_pages(&self.pages));
        let Some(left) = left else {
            return Ok(Err("a message claims more pages than the file has".to_owned()));
        };
        let Self { catalog, taken, pages, .. } = self;
        let take = |page| !catalog.pages.contains(page) && taken.insert(page);
        let mut bytes = Vec::new();
        if let Err(why) = row.read(pages, range, take, &mut bytes)? {
            return Ok(Err(format!("a message is incomplete: {why}")));
        }
        self.overflow_left = left;
        Ok(Ok(bytes.into()))
    }

    fn is_batch_complete(&self) -> bool {
        self.batch.len() >= BATCH_EVENTS || self.batch_bytes >= BATCH_BYTES
    }
}

/// Why a message is not read.
fn too_long(len: u64, most: u64) -> String {
    format!("a message claims {len} bytes, more than the {most} of `max_message`")
}

impl Reader for Db3Reader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        if std::mem::take(&mut self.is_first) {
            self.report_faults();
        }
        while !self.is_batch_complete() && !self.pages.is_cancelled() {
            match self.leaf.take() {
                Some((leaf, page)) => self.read_leaf(leaf, page)?,
                None if self.open_leaf()? => {}
                None => {
                    self.pages.check_unchanged(&self.context.run.shared())?;
                    break;
                }
            }
        }
        self.context.run.count_read(self.pages.take_read());
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch).finish();
        Ok((!batch.is_empty()).then_some(batch))
    }
}
