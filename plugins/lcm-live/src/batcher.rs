//! Collects received messages into batches, and puts a batch into the inbox when it is large or old
//! enough.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_kit::ChannelIds;
use sluice_model::pool::PooledBlock;
use sluice_model::{
    Batch, BatchBuilder, BlockPool, ChannelQuery, Channels, Encoding, Error, Patterns,
    PayloadOffset, ReadContext, RunHandle,
};

use hashbrown::HashMap;

use crate::inbox::Inbox;
use crate::intake::MessagePayload;

/// Most events in a batch.
const MAX_EVENTS: usize = 8192;
/// A batch with this many bytes is complete.
const BATCH_BYTES: usize = 1 << 20;
/// How long a message waits in an incomplete batch.
const MAX_AGE: Duration = Duration::from_millis(10);
/// Most channel names in the filter's cache.
const MAX_CACHED_NAMES: usize = 1 << 16;

/// The channel on which every LCM program sends to itself when it starts.
const SELF_TEST: &[u8] = b"LCM_SELF_TEST";

/// Decides which channels are received.
#[derive(Debug, Default)]
pub(crate) struct LiveChannelFilter {
    pub(crate) channels: Patterns,
    pub(crate) exclude: Patterns,
    pub(crate) query: ChannelQuery,
    pub(crate) self_test: bool,
    pub(crate) cache: std::cell::RefCell<HashMap<Vec<u8>, bool, foldhash::fast::RandomState>>,
}

impl LiveChannelFilter {
    /// Whether messages on this channel are received.
    pub(crate) fn accepts(&self, name: &[u8]) -> bool {
        if self.allows_self_test(name)
            && self.channels.is_empty()
            && self.exclude.is_empty()
            && self.query.is_all()
        {
            return true;
        }
        let mut cache = self.cache.borrow_mut();
        if let Some(is_accepted) = cache.get(name) {
            return *is_accepted;
        }
        let is_accepted = self.evaluate(name);
        if cache.len() < MAX_CACHED_NAMES {
            cache.insert(name.to_vec(), is_accepted);
        }
        is_accepted
    }

    fn evaluate(&self, name: &[u8]) -> bool {
        let takes = self.allows_self_test(name);
        let name = sluice_model::Name::from_bytes(name);
        let chosen = self.channels.is_empty() || self.channels.matches(name.text());
        // Evaluated first: the query has to see every channel, including those excluded here.
        let is_asked = self.query.may_want(name.text());
        is_asked && takes && chosen && !self.exclude.matches(name.text())
    }

    fn allows_self_test(&self, name: &[u8]) -> bool {
        name != SELF_TEST || self.self_test
    }
}

/// Makes batches.
pub(crate) struct Batcher {
    pub(crate) inbox: Inbox,
    run: RunHandle,
    blocks: BlockPool,
    channels: Arc<Channels>,
    ids: ChannelIds,
    builder: BatchBuilder,
    buffer: PayloadBuffer,
    /// Large payloads, which keep their own memory.
    owned: Vec<Bytes>,
    owned_bytes: usize,
    started: Instant,
    /// Payload bytes in the previous batch.
    last_batch_bytes: usize,
    /// The number of the next event.
    sequence: i64,
    /// Events left until `limit`.
    remaining: u64,
    /// Messages on channels beyond those a run may have.
    pub(crate) over_channel_limit: u64,
}

/// The payloads of a batch. A small batch gets memory of its own size: a pool block would be a
/// hundred times larger.
enum PayloadBuffer {
    Small(Vec<u8>),
    Block(PooledBlock),
}

impl Deref for PayloadBuffer {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        match self {
            Self::Small(bytes) => bytes,
            Self::Block(block) => block,
        }
    }
}

impl DerefMut for PayloadBuffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Small(bytes) => bytes,
            Self::Block(block) => block,
        }
    }
}

impl PayloadBuffer {
    fn freeze(self) -> Bytes {
        match self {
            Self::Small(bytes) => bytes.into(),
            Self::Block(block) => block.freeze(),
        }
    }
}

/// Payloads of at least this length stay in the memory they were received in.
const MIN_OWNED_LEN: usize = 256 << 10;

impl Batcher {
    pub(crate) fn new(inbox: Inbox, context: &ReadContext, limit: Option<u64>) -> Self {
        Self {
            inbox,
            run: context.run.clone(),
            blocks: context.blocks.clone(),
            ids: ChannelIds::new(Encoding::Lcm, context),
            channels: Arc::clone(&context.channels),
            builder: BatchBuilder::default(),
            buffer: PayloadBuffer::Small(Vec::new()),
            owned: Vec::new(),
            owned_bytes: 0,
            started: Instant::now(),
            last_batch_bytes: 0,
            sequence: 0,
            remaining: limit.unwrap_or(u64::MAX),
            over_channel_limit: 0,
        }
    }

    /// Whether `limit` is reached.
    pub(crate) fn is_done(&self) -> bool {
        self.remaining == 0
    }

    /// Events received so far.
    pub(crate) fn events(&self) -> u64 {
        self.sequence.unsigned_abs()
    }

    /// Adds a message received at `time`. LCM counts microseconds, so the rest is cut off.
    pub(crate) fn push(
        &mut self,
        channel: &[u8],
        payload: MessagePayload<'_>,
        time: i64,
    ) -> Result<(), Error> {
        if self.remaining == 0 {
            return Ok(());
        }
        let id = match self.ids.resolve(channel) {
            Ok(id) => id,
            Err(_) if self.channels.is_full() => {
                self.over_channel_limit += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let time = time - time.rem_euclid(1_000);
        if self.builder.is_empty() {
            self.start_batch();
        }
        match payload {
            MessagePayload::Owned(bytes) if bytes.len() >= MIN_OWNED_LEN => {
                let place = PayloadOffset { segment: self.owned.len() as u32 + 1, offset: 0 };
                self.builder.push(time, self.sequence, id, &bytes, place);
                self.owned_bytes += bytes.len();
                self.owned.push(bytes);
            }
            MessagePayload::Owned(bytes) => self.push_copy(&bytes, id, time),
            MessagePayload::Borrowed(bytes) => self.push_copy(bytes, id, time),
        }
        self.sequence += 1;
        self.remaining -= 1;
        if self.builder.len() >= MAX_EVENTS || self.buffer.len() + self.owned_bytes >= BATCH_BYTES {
            self.flush();
        }
        Ok(())
    }

    fn push_copy(&mut self, bytes: &[u8], id: sluice_model::ChannelId, time: i64) {
        let place = PayloadOffset { segment: 0, offset: self.buffer.len() as u32 };
        self.builder.push(time, self.sequence, id, bytes, place);
        self.buffer.extend_from_slice(bytes);
    }

    fn start_batch(&mut self) {
        self.started = Instant::now();
        // The next batch is likely to be as large as the last one.
        self.buffer = if self.last_batch_bytes * 4 >= BATCH_BYTES {
            PayloadBuffer::Block(self.blocks.buffer())
        } else {
            PayloadBuffer::Small(Vec::with_capacity(
                self.last_batch_bytes + self.last_batch_bytes / 4,
            ))
        };
    }

    /// Puts the batch into the inbox if it is old enough, or in any case if `all`.
    pub(crate) fn flush_due(&mut self, all: bool) {
        if !self.builder.is_empty() && (all || self.started.elapsed() >= MAX_AGE) {
            self.flush();
        }
    }

    /// Time until the batch has to be flushed; `None` if it is empty.
    pub(crate) fn time_to_flush(&self) -> Option<Duration> {
        (!self.builder.is_empty()).then(|| MAX_AGE.saturating_sub(self.started.elapsed()))
    }

    fn flush(&mut self) {
        let mut builder = std::mem::take(&mut self.builder);
        let space = std::mem::replace(&mut self.buffer, PayloadBuffer::Small(Vec::new()));
        self.last_batch_bytes = space.len();
        builder.segment(space.freeze());
        for bytes in self.owned.drain(..) {
            builder.segment(bytes);
        }
        self.owned_bytes = 0;
        let batch: Batch = builder.finish();
        let bytes = batch.payload_bytes();
        if self.inbox.push(batch) {
            self.run.count_read(bytes);
        }
    }
}
