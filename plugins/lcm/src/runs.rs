//! Events as the bytes of a log. Events that lie next to each other in the block they were read
//! into, as a log holds them, are taken from there together: most copies change nothing.

use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::Buffer;
use sluice_kit::is_same_name;
use sluice_model::pool::PooledBlock;
use sluice_model::{Batch, BlockPool, Error};

use crate::format::EncodableEvent;
use crate::reader::NANOS_PER_MICRO;
use crate::wire::{HEADER_LEN, LcmHeader};

/// The bytes of consecutive events.
pub(crate) enum EventBytes {
    /// In the block they were read into.
    Shared(Buffer),
    /// Copied or encoded.
    Own(PooledBlock),
}

impl EventBytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Own(bytes) => bytes,
        }
    }
}

/// Collects events of one batch, in order.
pub(crate) struct EventRuns<'b> {
    batch: &'b Batch,
    /// The names of channels, by number.
    names: &'b [Arc<[u8]>],
    buffers: &'b BlockPool,
    /// What precedes the run.
    copied: Option<PooledBlock>,
    run: Run,
}

/// Events next to each other in a segment of the batch.
#[derive(Clone, Default)]
struct Run {
    segment: usize,
    range: Range<usize>,
}

impl<'b> EventRuns<'b> {
    pub(crate) fn new(batch: &'b Batch, names: &'b [Arc<[u8]>], buffers: &'b BlockPool) -> Self {
        Self { batch, names, buffers, copied: None, run: Run::default() }
    }

    /// Appends event `row` of the batch if its payload lies in a segment, and what a log has before
    /// it precedes it there: nothing has changed it, and there is nothing to report. Returns
    /// whether it is so.
    #[inline]
    pub(crate) fn push_unchanged(&mut self, row: usize) -> bool {
        let Some(Run { segment, range }) = self.find(row) else { return false };
        if (segment, range.start) != (self.run.segment, self.run.range.end) {
            self.copy_run();
            (self.run.segment, self.run.range.start) = (segment, range.start);
        }
        self.run.range.end = range.end;
        true
    }

    /// Where event `row` is in the batch as a log holds it.
    #[inline]
    fn find(&self, row: usize) -> Option<Run> {
        let (batch, at) = (self.batch, self.batch.payload_offset(row)?);
        let name = self.names.get(batch.channels()[row] as usize)?;
        let (segment, payload) = (at.segment as usize, at.offset as usize);
        let (start, len) = (payload.checked_sub(HEADER_LEN + name.len())?, batch.payload_len(row));
        let bytes = batch.segments().get(segment)?.get(start..payload)?;
        let (head, named) = bytes.split_first_chunk()?;
        let header = LcmHeader::parse(head)?;
        let is_here = header.number == batch.sequences()[row]
            && header.utime.checked_mul(NANOS_PER_MICRO) == Some(batch.timestamps()[row])
            && batch.wide_time(row).is_none()
            && usize::try_from(header.channel_len) == Ok(name.len())
            && usize::try_from(header.data_len) == Ok(len)
            && is_same_name(named, name);
        is_here.then_some(Run { segment, range: start..payload + len })
    }

    /// Appends an event of the batch.
    pub(crate) fn push(&mut self, event: &EncodableEvent<'_>) -> Result<(), Error> {
        match self.find_short(event) {
            Some(end) => self.run.range.end = end,
            None => {
                self.copy_run();
                event.append(self.copied())?;
            }
        }
        Ok(())
    }

    /// The end of an event that follows the run. Payloads that are in no segment may do so.
    fn find_short(&self, event: &EncodableEvent<'_>) -> Option<usize> {
        let Run { segment, range: Range { end: start, .. } } = self.run;
        let bytes = self.batch.segments().get(segment)?.get(start..)?;
        let (head, rest) = bytes.split_at_checked(event.payload_start())?;
        let is_here = event.has_head(head) && rest.starts_with(event.payload());
        is_here.then_some(start + head.len() + event.payload().len())
    }

    fn copy_run(&mut self) {
        let Run { segment, range } = std::mem::take(&mut self.run);
        if let Some(run) = self.batch.segments().get(segment).and_then(|bytes| bytes.get(range))
            && !run.is_empty()
        {
            self.copied().extend_from_slice(run);
        }
    }

    fn copied(&mut self) -> &mut PooledBlock {
        let Self { batch, names, buffers, copied, .. } = self;
        copied.get_or_insert_with(|| buffer_for(batch, names, buffers))
    }

    /// All of them.
    pub(crate) fn finish(mut self) -> EventBytes {
        if self.copied.is_none()
            && let Some(bytes) = self.batch.segments().get(self.run.segment)
        {
            let Range { start, end } = self.run.range;
            return EventBytes::Shared(bytes.slice_with_length(start, end - start));
        }
        self.copy_run();
        EventBytes::Own(self.copied.unwrap_or_else(|| self.buffers.buffer()))
    }
}

/// A buffer that the encoded events of a batch fit into.
pub(crate) fn buffer_for(batch: &Batch, names: &[Arc<[u8]>], buffers: &BlockPool) -> PooledBlock {
    let mut buffer = buffers.buffer();
    let named = batch.channels().iter().map(|id| names[*id as usize].len());
    buffer
        .reserve(batch.payload_bytes() as usize + batch.len() * HEADER_LEN + named.sum::<usize>());
    buffer
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use proptest::prelude::*;
    use sluice_model::{
        ByteFormat, Channel, Channels, Encoding, Name, PrepareContext, ReadContext,
    };

    use super::*;
    use crate::format::LcmByteFormat;
    use crate::wire::append_event;

    /// Payloads around the length up to which views hold them.
    fn log(lengths: &[usize]) -> Vec<u8> {
        let mut log = Vec::new();
        for (n, len) in lengths.iter().enumerate() {
            let name: &[u8] = if n % 3 == 0 { b"POSE" } else { b"B" };
            append_event(&mut log, n as i64, 7 * n as i64, name, &vec![n as u8; *len]).unwrap();
        }
        log
    }

    fn read(log: Vec<u8>, context: &ReadContext) -> Batch {
        let read = LcmByteFormat.decode(Bytes::from(log), 0, Path::new("x"), context);
        read.unwrap().unwrap().pop().unwrap_or_default()
    }

    fn names(channels: &Channels) -> Vec<Arc<[u8]>> {
        channels.since(0).iter().map(|channel| channel.name.as_bytes().into()).collect()
    }

    /// The bytes of a batch, and those of its events one by one.
    fn written(batch: &Batch, channels: &Channels) -> (EventBytes, Vec<u8>) {
        let (names, buffers) = (names(channels), BlockPool::new(16, 1));
        let mut context = PrepareContext::new(channels, &buffers);
        let (mut runs, mut single) = (EventRuns::new(batch, &names, &buffers), Vec::new());
        for (row, event) in batch.iter().enumerate() {
            let name = &names[event.channel.index()];
            let timed = (&event, batch.wide_time(row));
            let event = EncodableEvent::check(row, timed, name, &mut context).unwrap();
            if !runs.push_unchanged(row) {
                runs.push(&event).unwrap();
            }
            event.append(&mut single).unwrap();
        }
        (runs.finish(), single)
    }

    #[test]
    fn events_that_nothing_changed_are_taken_from_their_block_together() {
        let (context, log) = (ReadContext::standalone("x"), log(&[20, 3, 0, 13, 12]));
        let batch = read(log.clone(), &context);
        let (bytes, _) = written(&batch, &context.channels);
        assert!(matches!(bytes, EventBytes::Shared(_)));
        assert_eq!(bytes.as_slice(), log);
        let (bytes, single) = written(&batch.slice(0, 4), &context.channels);
        assert!(matches!(bytes, EventBytes::Shared(_)));
        assert_eq!(bytes.as_slice(), single);
    }

    #[test]
    fn events_of_another_time_or_channel_are_encoded() {
        let context = ReadContext::standalone("x");
        let batch = read(log(&[20, 3, 30, 13]), &context);
        let other = Channel::new(Name::from_text("LONGER"), "x", Encoding::Lcm);
        let other = context.channels.intern(other).unwrap();
        let later = batch.timestamps().iter().map(|time| time + 1_000).collect();
        let mut channels = batch.channels().to_vec();
        channels[2] = other.0;
        for changed in [batch.clone().with_timestamps(later), batch.with_channels(channels)] {
            let (bytes, single) = written(&changed, &context.channels);
            assert!(matches!(bytes, EventBytes::Own(_)));
            assert_eq!(bytes.as_slice(), single);
        }
    }

    proptest! {
        #[test]
        fn runs_are_the_bytes_of_their_events(
            lengths in proptest::collection::vec(0..40usize, 0..40),
            dropped in proptest::collection::vec(any::<bool>(), 40),
            swapped in any::<bool>(),
        ) {
            let context = ReadContext::standalone("x");
            let batch = read(log(&lengths), &context).retain(|row| !dropped[row]);
            let order: Vec<u32> = (0..batch.len() as u32).rev().collect();
            let batch = if swapped { batch.take(order) } else { batch };
            let (bytes, single) = written(&batch, &context.channels);
            prop_assert_eq!(bytes.as_slice(), &single);
        }
    }
}
