//! Matches what a program returns with the events that were sent to it. Exchanges nothing with it.

use sluice_model::{Batch, ChannelId, Channels, ReadContext};

use crate::columns::EventColumns;
use crate::events::{Defaults, to_batch, with_origins};
use crate::in_flight::{Answer, InFlight, SentEvent};
use crate::sent_rows::{ReturnedRows, SentRows};
use crate::stream::EventStream;

const CHANGED: &str = "events lost their decoded fields because a program changed their payloads; \
                       `decode` after it decodes payloads that have a type";
const LATE: &str = "events that a program holds back, behind more than 128 MiB of decoded events, \
                    lost their decoded fields; `decode` after it decodes payloads that have a type";
const WITHOUT_PAYLOAD: &str =
    "events that are sent to a program without payloads return without decoded fields";
const NEW: &str = "new events of a program (without a `number`, or with one that has returned \
                   before) have no decoded fields; `decode` after it decodes payloads that have a \
                   type";

/// Matches a program's output with the events that were sent to it.
#[derive(Debug, Default)]
pub(crate) struct AnswerTracker {
    pub(crate) in_flight: InFlight,
    sent_rows: SentRows,
    /// Whether any event that was sent had decoded fields.
    has_decoded: bool,
    /// The sequence number of the next event that has none.
    sequence: i64,
}

/// A program's output as events of the run.
pub(crate) struct AnsweredEvents {
    /// The events, without rows.
    pub(crate) batch: Batch,
    pub(crate) rows: ReturnedRows,
    /// How many of them are new, if any that were sent had decoded fields.
    new: u64,
}

impl AnsweredEvents {
    /// Which events have no decoded fields, and why.
    pub(crate) fn notes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let ReturnedRows { changed, late, without_payload, .. } = self.rows;
        let counts = [changed, late, without_payload, self.new];
        [CHANGED, LATE, WITHOUT_PAYLOAD, NEW]
            .into_iter()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
    }
}

impl AnswerTracker {
    /// Records events that are sent.
    pub(crate) fn send(&mut self, batch: &Batch) {
        self.has_decoded |= !batch.rows().is_empty();
        self.sent_rows.send(self.in_flight.next(), batch);
        let channels = batch.origins().iter().zip(batch.channels()).zip(batch.decoded_mask());
        self.in_flight.send(channels.map(|((origin, channel), is_decoded)| SentEvent {
            origin: *origin,
            channel: *channel,
            is_decoded,
        }));
    }

    /// A program's output as events of the run. Adds the origins of new events to `added`. `Err`
    /// says what is wrong.
    pub(crate) fn take(
        &mut self,
        event_columns: &EventColumns,
        node: &str,
        channels: &Channels,
        added: &mut Vec<u32>,
    ) -> Result<AnsweredEvents, String> {
        let known = self.known(event_columns)?;
        let sent = known.iter().map(|sent| sent.map(|sent| ChannelId(sent.channel)));
        let defaults = Defaults::new(node, event_columns).sent(sent, channels);
        let batch = to_batch(event_columns, self.sequence, &defaults, channels);
        let batch = batch.map_err(|error| error.to_string())?;
        self.sequence = self.sequence.saturating_add(batch.len() as i64);
        let rows = event_columns.numbers.as_ref().map_or_else(ReturnedRows::default, |numbers| {
            let sent = |event: usize| known.get(event).copied().flatten();
            self.sent_rows
                .take(&batch, numbers, |event| sent(event).is_some_and(|sent| sent.is_decoded))
        });
        let new = known.iter().filter(|sent| sent.is_none() && self.has_decoded).count() as u64;
        let mut origins = batch.channels().to_vec();
        for (origin, sent) in origins.iter_mut().zip(known) {
            match sent {
                Some(SentEvent { origin: read, .. }) => *origin = read,
                None => added.push(*origin),
            }
        }
        let batch = with_origins(&batch, event_columns, origins);
        Ok(AnsweredEvents { batch, rows, new })
    }

    /// What is known of each event that was sent; `None` for new events.
    fn known(&mut self, event_columns: &EventColumns) -> Result<Vec<Option<SentEvent>>, String> {
        let Some(numbers) = &event_columns.numbers else {
            return Ok(vec![None; event_columns.len()]);
        };
        let known = numbers.iter().map(|number| match number.map(|n| self.in_flight.take(n)) {
            Some(Ok(Answer::Returned(sent))) => Ok(Some(sent)),
            Some(Ok(Answer::Repeat)) | None => Ok(None),
            Some(Err(what)) => Err(what),
        });
        known.collect()
    }
}

/// The result of a program for tests: its output matched with the events that were sent.
#[derive(Debug)]
pub struct ReturnedEvents {
    /// Its output.
    pub batches: Vec<Batch>,
    /// The origins of new events.
    pub added: Vec<u32>,
    /// How many of the events that were sent did not return.
    pub missing: u64,
}

/// What a stage returns if its program gets `sent` and then writes `bytes`. For tests and fuzzing.
///
/// `Err` says what is wrong with the bytes.
pub fn read_answers(
    bytes: &[u8],
    sent: &[Batch],
    context: &ReadContext,
) -> Result<ReturnedEvents, String> {
    let (mut answers, mut stream) = (AnswerTracker::default(), EventStream::new(bytes));
    sent.iter().for_each(|batch| answers.send(batch));
    let (mut batches, mut added) = (Vec::new(), Vec::new());
    while let Some(event_columns) = stream.next()? {
        let (source, channels) = (&context.source, &context.channels);
        let answered = answers.take(&event_columns, source, channels, &mut added)?;
        batches.push(answered.batch.with_rows(answered.rows.rows));
    }
    stream.end()?;
    Ok(ReturnedEvents { batches, added, missing: answers.in_flight.missing() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::events::write_stream;
    use arrow_array::*;
    use arrow_ipc::writer::StreamWriter;
    use sluice_model::{
        BatchBuilder, Channel, Encoding, MessageType, Name, Payloads, Rows, TypeKey,
    };

    /// Three events on two channels.
    fn sent(context: &ReadContext) -> Batch {
        let mut left = Channel::new(Name::from_text("A"), "left", Encoding::Lcm);
        left.type_name = Some("robot.pose".into());
        let right = Channel::new(Name::from_text("B"), "right", Encoding::Vel);
        let channels = [left, right].map(|channel| context.channels.intern(channel).unwrap());
        let mut batch = BatchBuilder::default();
        for (n, channel) in [0, 1, 0].into_iter().enumerate() {
            batch.push_copy(n as i64, n as i64, channels[channel], &[n as u8]);
        }
        batch.finish()
    }

    fn answer(numbers: Vec<Option<i64>>, more: Vec<(&str, ArrayRef)>) -> Vec<u8> {
        let len = numbers.len();
        let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("number", Arc::new(Int64Array::from(numbers)), true),
            ("timestamp", Arc::new(Int64Array::from(vec![7; len])), true),
            ("channel", Arc::new(StringArray::from(vec!["C"; len])), true),
            ("payload", Arc::new(BinaryArray::from(vec![&b"x"[..]; len])), true),
        ];
        columns.extend(more.into_iter().map(|(name, column)| (name, column, true)));
        stream(columns)
    }

    fn without_numbers(len: usize) -> Vec<u8> {
        stream(vec![
            ("timestamp", Arc::new(Int64Array::from(vec![7; len])), true),
            ("channel", Arc::new(StringArray::from(vec!["C"; len])), true),
            ("payload", Arc::new(BinaryArray::from(vec![&b"x"[..]; len])), true),
        ])
    }

    fn stream(columns: Vec<(&str, ArrayRef, bool)>) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    /// Source, encoding and type name of each event.
    fn said(
        answered: &ReturnedEvents,
        context: &ReadContext,
    ) -> Vec<(String, Encoding, Option<String>)> {
        let events = answered.batches.iter().flat_map(Batch::iter);
        let said = events.map(|event| {
            let channel = context.channels.get(event.channel);
            let kind = channel.type_name.as_ref().map(ToString::to_string);
            (channel.source.to_string(), channel.encoding.clone(), kind)
        });
        said.collect()
    }

    #[test]
    fn nulls_keep_what_an_event_had_and_new_events_get_the_nodes_name() {
        let context = ReadContext::standalone("keep");
        let sent = [sent(&context)];
        let numbers = vec![Some(1), None, Some(0), Some(1)];
        let mine = |name| -> Vec<(&str, ArrayRef)> {
            vec![(name, Arc::new(StringArray::from(vec![Some("mine"), None, None, None])))]
        };
        let was = [
            ("right".to_owned(), Encoding::Vel, None),
            ("keep".to_owned(), Encoding::Unknown, None),
            ("left".to_owned(), Encoding::Lcm, Some("robot.pose".to_owned())),
            ("keep".to_owned(), Encoding::Unknown, None),
        ];
        let nothing: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>; 4]));
        let nulls = ["source", "encoding", "attributes"].map(|name| (name, Arc::clone(&nothing)));
        for more in [Vec::new(), nulls.to_vec(), mine("source"), mine("encoding")] {
            let name = more.first().map(|(name, _)| *name).filter(|_| more.len() == 1);
            let answered = read_answers(&answer(numbers.clone(), more), &sent, &context).unwrap();
            let mut expected = was.clone();
            match name {
                Some("source") => expected[0].0 = "mine".to_owned(),
                Some(_) => expected[0].1 = Encoding::Unknown,
                None => {}
            }
            assert_eq!(said(&answered, &context), expected, "{name:?}");
            assert_eq!((answered.added.len(), answered.missing), (2, 1));
            let origins: Vec<u32> = answered.batches[0].origins().to_vec();
            assert_eq!([origins[0], origins[2]], [sent[0].channels()[1], sent[0].channels()[0]]);
        }
    }

    #[test]
    fn events_that_return_unchanged_are_the_same() {
        let context = ReadContext::standalone("keep");
        let sent = [sent(&context)];
        let bytes = write_stream(&sent, &context.channels).unwrap();
        let answered = read_answers(&bytes, &sent, &context).unwrap();
        let plain = |batches: &[Batch]| -> Vec<_> {
            let events = batches.iter().flat_map(Batch::iter);
            events.map(|e| (e.timestamp, e.sequence, e.channel, e.payload.to_vec())).collect()
        };
        assert_eq!(plain(&answered.batches), plain(&sent));
        assert_eq!((answered.added.len(), answered.missing), (0, 0));
    }

    #[test]
    fn events_that_lose_their_fields_are_noted() {
        let context = ReadContext::standalone("keep");
        let lens: ArrayRef = Arc::new(Int64Array::from(vec![1, 1]));
        let decoded = |payloads| Rows {
            message: Arc::new(MessageType::named("t", TypeKey(1))),
            payloads,
            events: vec![0, 2],
            columns: RecordBatch::try_from_iter([("len", Arc::clone(&lens))]).unwrap(),
        };
        let notes = |rows: Vec<Rows>, bytes: &[u8]| {
            let mut answers = AnswerTracker::default();
            answers.send(&sent(&context).with_rows(rows));
            let event_columns = EventStream::new(bytes).next().unwrap().unwrap();
            let added = &mut Vec::new();
            let answered = answers.take(&event_columns, "keep", &context.channels, added).unwrap();
            answered.notes().collect::<Vec<_>>()
        };
        let (kept, gone) = (decoded(Payloads::Kept), decoded(Payloads::Gone));
        // All payloads are changed. Number 1 is not decoded, and 0 returns twice.
        let bytes = answer(vec![Some(0), Some(1), None, Some(0)], Vec::new());
        assert_eq!(notes(vec![kept.clone()], &bytes), [(CHANGED, 1), (NEW, 2)]);
        assert_eq!(notes(vec![gone], &bytes), [(WITHOUT_PAYLOAD, 1), (NEW, 2)]);
        assert_eq!(notes(Vec::new(), &bytes), []);
        let without_numbers = without_numbers(3);
        assert_eq!(notes(vec![kept], &without_numbers), [(NEW, 3)]);
        assert_eq!(notes(Vec::new(), &without_numbers), []);
    }

    #[test]
    fn events_that_return_late_without_their_fields_are_noted() {
        let context = ReadContext::standalone("keep");
        let of_all = |batch: Batch| {
            let lens = Int64Array::from_iter_values((0..batch.len()).map(|n| n as i64));
            let columns: ArrayRef = Arc::new(lens);
            let rows = Rows {
                message: Arc::new(MessageType::named("t", TypeKey(1))),
                payloads: Payloads::Kept,
                events: (0..batch.len() as u32).collect(),
                columns: RecordBatch::try_from_iter([("n", columns)]).unwrap(),
            };
            batch.with_rows(vec![rows])
        };
        let mut long = BatchBuilder::default();
        long.push_copy(0, 3, ChannelId(0), &vec![0; 129 << 20]);
        let batches = [of_all(sent(&context)), of_all(long.finish())];
        let bytes = write_stream(&batches[..1], &context.channels).unwrap();
        let event_columns = EventStream::new(&bytes[..]).next().unwrap().unwrap();
        let notes = [0, 1].map(|more| {
            let mut answers = AnswerTracker::default();
            batches[..=more].iter().for_each(|batch| answers.send(batch));
            let added = &mut Vec::new();
            let answered = answers.take(&event_columns, "keep", &context.channels, added).unwrap();
            answered.notes().collect::<Vec<_>>()
        });
        assert_eq!(notes, [vec![], vec![(LATE, 3)]]);
    }

    #[test]
    fn numbers_that_were_not_sent_are_an_error() {
        let context = ReadContext::standalone("keep");
        let sent = [sent(&context)];
        let said = read_answers(&answer(vec![Some(3)], Vec::new()), &sent, &context).unwrap_err();
        assert!(said.contains("no event was sent with the number 3"), "{said}");
    }
}
