//! The batcher: makes batches of messages as they come in, and puts them into the inbox when they are
//! large or old enough.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_core::pool::PooledBlock;
use sluice_core::{
    Batch, BatchBuilder, BlockPool, ChannelIds, ChannelQuery, Encoding, Error, Patterns,
    PayloadOffset, ReadContext,
};

use hashbrown::HashMap;

use crate::inbox::Inbox;
use crate::intake::Payload;

/// Most events of a batch.
const MOST_EVENTS: usize = 8192;
/// Bytes after which a batch is complete.
const FULL: usize = 1 << 20;
/// How old the first message of a batch may get before it goes on.
const MOST_AGE: Duration = Duration::from_millis(10);
/// How many channels there may be. Whoever can send can invent them.
const MOST_CHANNELS: usize = 1 << 16;
/// How many names are remembered with whether they are wanted.
const MOST_NAMES: usize = 1 << 16;

/// What every LCM subscriber sends to itself when it starts.
const SELF_TEST: &[u8] = b"LCM_SELF_TEST";

/// Which channels are wanted.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) channels: Patterns,
    pub(crate) exclude: Patterns,
    pub(crate) query: ChannelQuery,
    pub(crate) self_test: bool,
    pub(crate) known: std::cell::RefCell<HashMap<Vec<u8>, bool, foldhash::fast::RandomState>>,
}

impl Wanted {
    /// Whether the channel of that name is.
    pub(crate) fn wants(&self, name: &[u8]) -> bool {
        if self.takes_self_tests(name)
            && self.channels.is_empty()
            && self.exclude.is_empty()
            && self.query.is_all()
        {
            return true;
        }
        let mut known = self.known.borrow_mut();
        if let Some(wanted) = known.get(name) {
            return *wanted;
        }
        let wanted = self.judge(name);
        if known.len() < MOST_NAMES {
            known.insert(name.to_vec(), wanted);
        }
        wanted
    }

    fn judge(&self, name: &[u8]) -> bool {
        let takes = self.takes_self_tests(name);
        let name = sluice_core::Name::from_bytes(name);
        let chosen = self.channels.is_empty() || self.channels.matches(name.text());
        // Asked first: what is left out here exists all the same.
        let is_asked = self.query.may_want(name.text());
        is_asked && takes && chosen && !self.exclude.matches(name.text())
    }

    fn takes_self_tests(&self, name: &[u8]) -> bool {
        name != SELF_TEST || self.self_test
    }
}

/// Makes batches.
pub(crate) struct Batcher {
    inbox: Arc<Inbox>,
    blocks: BlockPool,
    ids: ChannelIds,
    builder: BatchBuilder,
    space: Space,
    /// Payloads that lie in memory of their own.
    owned: Vec<Bytes>,
    owned_bytes: usize,
    begun: Instant,
    /// Bytes of payloads in the batch before.
    before: usize,
    /// The number of the next event.
    sequence: i64,
    /// How many more events there may be.
    left: u64,
    /// Messages on more channels than there may be.
    pub(crate) homeless: u64,
}

/// Where payloads of a batch are gathered. Small batches have memory of their own size: a block for each
/// would be a hundred times what they hold.
enum Space {
    Small(Vec<u8>),
    Block(PooledBlock),
}

impl Deref for Space {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        match self {
            Self::Small(bytes) => bytes,
            Self::Block(block) => block,
        }
    }
}

impl DerefMut for Space {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Small(bytes) => bytes,
            Self::Block(block) => block,
        }
    }
}

impl Space {
    fn freeze(self) -> Bytes {
        match self {
            Self::Small(bytes) => bytes.into(),
            Self::Block(block) => block.freeze(),
        }
    }
}

/// Payloads from this length on stay in the memory they came in.
const KEPT: usize = 256 << 10;

impl Batcher {
    pub(crate) fn new(inbox: Arc<Inbox>, context: &ReadContext, limit: Option<u64>) -> Self {
        let (source, channels) = (Arc::clone(&context.source), Arc::clone(&context.channels));
        Self {
            inbox,
            blocks: context.blocks.clone(),
            ids: ChannelIds::new(source, Encoding::Lcm, channels),
            builder: BatchBuilder::default(),
            space: Space::Small(Vec::new()),
            owned: Vec::new(),
            owned_bytes: 0,
            begun: Instant::now(),
            before: 0,
            sequence: 0,
            left: limit.unwrap_or(u64::MAX),
            homeless: 0,
        }
    }

    /// Whether as many events have come as were asked for.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// How many events have come.
    pub(crate) fn events(&self) -> u64 {
        self.sequence.unsigned_abs()
    }

    /// Adds a message that came at that time, of which whole microseconds are kept: LCM counts these.
    pub(crate) fn push(
        &mut self,
        channel: &[u8],
        payload: Payload<'_>,
        time: i64,
    ) -> Result<(), Error> {
        if self.left == 0 {
            return Ok(());
        }
        if self.ids.len() >= MOST_CHANNELS && !self.ids.contains(channel) {
            self.homeless += 1;
            return Ok(());
        }
        let id = self.ids.resolve(channel)?;
        let time = time - time.rem_euclid(1_000);
        if self.builder.is_empty() {
            self.begin();
        }
        match payload {
            Payload::Owned(bytes) if bytes.len() >= KEPT => {
                let place = PayloadOffset { segment: self.owned.len() as u32 + 1, offset: 0 };
                self.builder.push(time, self.sequence, id, &bytes, place);
                self.owned_bytes += bytes.len();
                self.owned.push(bytes);
            }
            Payload::Owned(bytes) => self.copy(&bytes, id, time),
            Payload::Borrowed(bytes) => self.copy(bytes, id, time),
        }
        self.sequence += 1;
        self.left -= 1;
        if self.builder.len() >= MOST_EVENTS || self.space.len() + self.owned_bytes >= FULL {
            self.hand_over();
        }
        Ok(())
    }

    fn copy(&mut self, bytes: &[u8], id: sluice_core::ChannelId, time: i64) {
        let place = PayloadOffset { segment: 0, offset: self.space.len() as u32 };
        self.builder.push(time, self.sequence, id, bytes, place);
        self.space.extend_from_slice(bytes);
    }

    fn begin(&mut self) {
        self.begun = Instant::now();
        // What comes is likely to be as much as what came.
        self.space = if self.before * 4 >= FULL {
            Space::Block(self.blocks.buffer())
        } else {
            Space::Small(Vec::with_capacity(self.before + self.before / 4))
        };
    }

    /// Hands over what is old enough; or all there is, if `all`.
    pub(crate) fn tick(&mut self, all: bool) {
        if !self.builder.is_empty() && (all || self.begun.elapsed() >= MOST_AGE) {
            self.hand_over();
        }
    }

    /// When what is there has to go on.
    pub(crate) fn due(&self) -> Option<Duration> {
        (!self.builder.is_empty()).then(|| MOST_AGE.saturating_sub(self.begun.elapsed()))
    }

    fn hand_over(&mut self) {
        let mut builder = std::mem::take(&mut self.builder);
        let space = std::mem::replace(&mut self.space, Space::Small(Vec::new()));
        self.before = space.len();
        builder.segment(space.freeze());
        for bytes in self.owned.drain(..) {
            builder.segment(bytes);
        }
        self.owned_bytes = 0;
        let batch: Batch = builder.finish();
        self.inbox.put(batch);
    }
}
