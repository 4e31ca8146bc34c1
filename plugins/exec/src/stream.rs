//! Decodes a program's Arrow stream, whatever the bytes are.
//!
//! Panics of the Arrow library are caught here.

use std::any::Any;
use std::io;
use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::{Endianness, MessageHeader};
use sluice_model::panics::{catch, message_of};
use sluice_model::{Batch, ReadContext};

use crate::columns::{EventColumns, StreamLayout};
use crate::dictionaries::Dictionaries;
use crate::events::{Defaults, to_batch};
use crate::wire::{IpcMessage, IpcMessages, fits, parse_metadata};

/// A stream of events.
pub(crate) struct EventStream<R> {
    messages: IpcMessages<R>,
    layout: Option<StreamLayout>,
    dictionaries: Dictionaries,
}

impl<R: io::Read> EventStream<R> {
    pub(crate) fn new(from: R) -> Self {
        let dictionaries = Dictionaries::default();
        Self { messages: IpcMessages::new(from), layout: None, dictionaries }
    }

    /// How many bytes have been read.
    pub(crate) fn position(&self) -> u64 {
        self.messages.position()
    }

    /// The next batch; `None` at the end. `Err` says what is wrong with the stream, which is then
    /// over.
    pub(crate) fn next(&mut self) -> Result<Option<EventColumns>, String> {
        loop {
            let Some(raw) = self.messages.next()? else {
                let closed = "the Arrow stream on standard output has no schema";
                return if self.layout.is_some() { Ok(None) } else { Err(closed.into()) };
            };
            if let Some(event_columns) = guarded(|| self.take(raw))? {
                return Ok(Some(event_columns));
            }
        }
    }

    /// Reads to the end of the output, where nothing may follow the stream.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        match self.messages.rest()? {
            None => Ok(()),
            Some(found) => Err(format!(
                "it printed {found} after the end of its Arrow stream; expected a single stream \
                 (print messages for people to standard error)"
            )),
        }
    }

    fn take(&mut self, raw: IpcMessage) -> Result<Option<EventColumns>, String> {
        let IpcMessage { metadata, body } = raw;
        let (message, len, body) = (parse_metadata(&metadata)?, body.len(), Buffer::from_vec(body));
        match (message.header_type(), &self.layout) {
            (MessageHeader::Schema, None) => {
                let schema =
                    message.header_as_schema().ok_or("a schema message without a schema")?;
                if schema.endianness() != Endianness::Little {
                    return Err(
                        "the Arrow stream is big-endian, which is not supported: write it \
                         little-endian"
                            .into(),
                    );
                }
                let layout = StreamLayout::from_schema(Arc::new(fb_to_schema(schema)))?;
                self.dictionaries = Dictionaries::for_layout(&layout);
                self.layout = Some(layout);
                Ok(None)
            }
            (MessageHeader::Schema, Some(_)) => Err("the Arrow stream has a second schema".into()),
            (MessageHeader::DictionaryBatch, Some(_)) => {
                let words = message.header_as_dictionary_batch().ok_or(
                    "a dictionary message \
                     without a dictionary",
                )?;
                self.dictionaries.take(words, metadata.len(), &body, message.version())?;
                Ok(None)
            }
            (MessageHeader::RecordBatch, Some(layout)) => {
                let columns = message.header_as_record_batch().ok_or(
                    "a batch message without a \
                     batch",
                )?;
                fits(&columns, len)?;
                let (schema, version) = (Arc::clone(&layout.schema), message.version());
                let places = Some(&layout.places[..]);
                let words = self.dictionaries.whole()?;
                let columns = read_record_batch(&body, columns, schema, words, places, &version)
                    .map_err(|e| format!("a batch of its Arrow stream is invalid: {e}"))?;
                layout.events(&columns).map(Some)
            }
            (_, None) => Err("the Arrow stream does not start with a schema".into()),
            (other, _) => Err(format!("the Arrow stream has a message of the kind {other:?}")),
        }
    }
}

/// Calls the Arrow library, which panics on some invalid streams.
fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let invalid = |panic: Box<dyn Any + Send>| {
        Err(format!("a message of its Arrow stream is invalid: {}", message_of(&*panic)))
    };
    catch(call).unwrap_or_else(invalid)
}

/// The events of a stream, as a source returns them. For tests and fuzzing.
///
/// `Err` says what is wrong with the bytes.
pub fn read_events(bytes: &[u8], context: &ReadContext) -> Result<Vec<Batch>, String> {
    let mut stream = EventStream::new(bytes);
    let (mut batches, mut events) = (Vec::new(), 0);
    while let Some(event_columns) = stream.next()? {
        let defaults = Defaults::new(&context.source, &event_columns);
        let batch = to_batch(&event_columns, events, &defaults, &context.channels);
        let batch = batch.map_err(|error| error.to_string())?;
        events += batch.len() as i64;
        batches.push(batch);
    }
    stream.end()?;
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dictionaries::MAX_DICTIONARY_BYTES;
    use crate::events::ProgramColumns;
    use crate::wire::END;
    use arrow_array::builder::StringViewBuilder;
    use arrow_array::*;
    use arrow_ipc::writer::{DictionaryHandling, IpcWriteOptions, StreamWriter};
    use arrow_schema::{DataType, Field, Schema};
    use proptest::prelude::*;
    use sluice_model::{BatchBuilder, Channel, Encoding, Name};

    /// Time, sequence, channel and payload.
    type Read = (i64, i64, String, Vec<u8>);
    type Columns = Vec<(&'static str, ArrayRef)>;

    fn stream(batches: &[RecordBatch]) -> Vec<u8> {
        let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.into_inner().unwrap()
    }

    fn stream_from(columns: Columns) -> Vec<u8> {
        stream(&[RecordBatch::try_from_iter(columns).unwrap()])
    }

    fn sample_columns() -> Columns {
        vec![
            ("timestamp", Arc::new(Int64Array::from(vec![5, 6])) as ArrayRef),
            ("channel", Arc::new(StringArray::from(vec!["A", "B"]))),
            (
                "payload",
                Arc::new(BinaryArray::from(vec![
                    &b"x"[..],
                    b"a payload that is longer than a view",
                ])),
            ),
        ]
    }

    fn with(name: &'static str, column: ArrayRef) -> Columns {
        let mut columns = sample_columns();
        columns.retain(|(known, _)| *known != name);
        columns.push((name, column));
        columns
    }

    fn read(bytes: &[u8]) -> Result<Vec<Read>, String> {
        let context = ReadContext::standalone("prog");
        let batches = read_events(bytes, &context)?;
        let events = batches.iter().flat_map(Batch::iter).map(|event| {
            let name = context.channels.get(event.channel).name.text().to_owned();
            (event.timestamp, event.sequence, name, event.payload.to_vec())
        });
        Ok(events.collect())
    }

    #[test]
    fn the_natural_types_of_columns_are_accepted() {
        let plain = read(&stream_from(sample_columns())).unwrap();
        assert_eq!(plain[1], (6, 1, "B".into(), b"a payload that is longer than a view".to_vec()));
        let keys = || Int8Array::from(vec![0, 1]);
        let words = || Arc::new(LargeStringArray::from(vec!["A", "B"])) as ArrayRef;
        let channels: [ArrayRef; 4] = [
            words(),
            Arc::new(StringViewArray::from(vec!["A", "B"])),
            Arc::new(DictionaryArray::new(keys(), Arc::new(StringArray::from(vec!["A", "B"])))),
            Arc::new(DictionaryArray::new(keys(), words())),
        ];
        for channel in channels {
            assert_eq!(read(&stream_from(with("channel", channel))).unwrap(), plain);
        }
        let long = "a payload that is longer than a view";
        let payloads: [ArrayRef; 5] = [
            Arc::new(LargeBinaryArray::from(vec![&b"x"[..], long.as_bytes()])),
            Arc::new(BinaryViewArray::from(vec![&b"x"[..], long.as_bytes()])),
            Arc::new(StringArray::from(vec!["x", long])),
            Arc::new(LargeStringArray::from(vec!["x", long])),
            Arc::new(StringViewArray::from(vec!["x", long])),
        ];
        for payload in payloads {
            assert_eq!(read(&stream_from(with("payload", payload))).unwrap(), plain);
        }
        let fixed = FixedSizeBinaryArray::try_from_iter([b"ab", b"cd"].into_iter()).unwrap();
        assert_eq!(read(&stream_from(with("payload", Arc::new(fixed)))).unwrap()[1].3, b"cd");
    }

    #[test]
    fn a_panic_of_the_library_is_a_fault_of_the_stream() {
        let said = guarded::<()>(|| panic!("index out of bounds")).unwrap_err();
        assert_eq!(said, "a message of its Arrow stream is invalid: index out of bounds");
    }

    #[test]
    fn times_of_any_unit_are_nanoseconds() {
        let units: [(ArrayRef, i64); 4] = [
            (Arc::new(TimestampSecondArray::from(vec![1, 2])), 1_000_000_000),
            (Arc::new(TimestampMillisecondArray::from(vec![1, 2])), 1_000_000),
            (
                Arc::new(
                    TimestampMicrosecondArray::from(vec![1, 2]).with_timezone("Europe/Berlin"),
                ),
                1_000,
            ),
            (Arc::new(TimestampNanosecondArray::from(vec![1, 2]).with_timezone("UTC")), 1),
        ];
        for (column, factor) in units {
            assert_eq!(read(&stream_from(with("timestamp", column))).unwrap()[1].0, 2 * factor);
        }
        let late = Arc::new(TimestampSecondArray::from(vec![1, i64::MAX]));
        assert!(read(&stream_from(with("timestamp", late))).unwrap_err().contains("1677 to 2262"));
    }

    #[test]
    fn sequence_numbers_are_read_or_generated() {
        let sequences = Arc::new(UInt16Array::from(vec![7, 9]));
        assert_eq!(read(&stream_from(with("sequence", sequences))).unwrap()[1].1, 9);
        let batch = RecordBatch::try_from_iter(sample_columns()).unwrap();
        let twice = read(&stream(&[batch.clone(), batch])).unwrap();
        assert_eq!(twice.iter().map(|event| event.1).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let large = Arc::new(UInt64Array::from(vec![1, u64::MAX]));
        assert!(read(&stream_from(with("sequence", large))).unwrap_err().contains("`sequence`"));
    }

    #[test]
    fn attributes_of_channels_are_kept_and_other_columns_are_ignored() {
        let context = ReadContext::standalone("prog");
        let mut columns = with("source", Arc::new(StringArray::from(vec!["left", "right"])));
        columns.push(("encoding", Arc::new(StringArray::from(vec![Some("lcm"), None]))));
        columns.push(("attributes", Arc::new(NullArray::new(2))));
        columns.push(("mine", Arc::new(Float64Array::from(vec![1.0, 2.0]))));
        let batches = read_events(&stream_from(columns), &context).unwrap();
        let channels: Vec<_> =
            batches[0].iter().map(|event| context.channels.get(event.channel)).collect();
        assert_eq!((&*channels[0].source, &channels[0].encoding), ("left", &Encoding::Lcm));
        assert_eq!((&*channels[1].source, &channels[1].encoding), ("right", &Encoding::Unknown));
        let batches = read_events(&stream_from(sample_columns()), &context).unwrap();
        assert_eq!(&*context.channels.get(batches[0].event(0).channel).source, "prog");
    }

    #[test]
    fn a_null_of_a_source_means_the_default() {
        let context = ReadContext::standalone("prog");
        let mut columns = with("source", Arc::new(StringArray::from(vec![None, Some("mine")])));
        columns.push(("encoding", Arc::new(StringArray::from(vec![None, Some("lcm")]))));
        columns.retain(|(name, _)| *name != "payload");
        columns.push(("payload", Arc::new(StringArray::from(vec!["x", "y"]))));
        let batches = read_events(&stream_from(columns), &context).unwrap();
        let said = batches[0].iter().map(|event| {
            let channel = context.channels.get(event.channel);
            (channel.source.to_string(), channel.encoding.clone())
        });
        let wanted = [("prog".to_owned(), Encoding::Text), ("mine".to_owned(), Encoding::Lcm)];
        assert_eq!(said.collect::<Vec<_>>(), wanted);
    }

    /// A text column that is a dictionary.
    fn words(words: &[&str]) -> ArrayRef {
        let keys = Int32Array::from_iter_values(0..words.len() as i32);
        Arc::new(DictionaryArray::new(keys, Arc::new(StringArray::from(words.to_vec()))))
    }

    #[test]
    fn dictionaries_are_added_to_and_replaced() {
        let lists: [&[&str]; 4] = [&["A", "B"], &["A", "B", "C"], &["A", "B", "C", "D"], &["X"]];
        let batch = |list: &&[&str]| {
            let len = list.len();
            let columns: [(&str, ArrayRef); 3] = [
                ("timestamp", Arc::new(Int64Array::from(vec![5; len]))),
                ("channel", words(list)),
                ("payload", Arc::new(BinaryArray::from(vec![&b"x"[..]; len]))),
            ];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let batches = lists.each_ref().map(batch);
        for handling in [DictionaryHandling::Delta, DictionaryHandling::Resend] {
            let options = IpcWriteOptions::default().with_dictionary_handling(handling);
            let schema = batches[0].schema();
            let writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options);
            let mut writer = writer.unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            let events = read(&writer.into_inner().unwrap()).unwrap();
            let names: Vec<&str> = events.iter().map(|event| &*event.2).collect();
            assert_eq!(names, lists.concat());
        }
    }

    #[test]
    fn words_take_bounded_memory_and_those_of_other_columns_none() {
        let long = "x".repeat(MAX_DICTIONARY_BYTES + 1);
        let other = stream_from(with("mine", words(&[&long, ""])));
        let mut stream = EventStream::new(&other[..]);
        assert_eq!(stream.next().unwrap().unwrap().len(), 2);
        assert!(stream.dictionaries.whole().unwrap().is_empty());
        let half = &long[..MAX_DICTIONARY_BYTES / 2];
        let mut columns = with("source", words(&[half, ""]));
        columns.push(("attributes", words(&[half, ""])));
        for stream in [stream_from(with("source", words(&[&long, ""]))), stream_from(columns)] {
            let said = read(&stream).unwrap_err();
            assert!(said.contains("bytes in total"), "{said}");
        }
    }

    #[test]
    fn a_long_word_in_many_rows_is_kept_once() {
        let (rows, long) = (3000, "x".repeat(1 << 20));
        let keys = || Int32Array::from(vec![0; rows]);
        let large: ArrayRef = Arc::new(LargeStringArray::from(vec![&*long]));
        let columns = |channel: ArrayRef| -> Columns {
            vec![
                ("timestamp", Arc::new(Int64Array::from(vec![5; rows]))),
                ("channel", Arc::new(StringArray::from(vec!["A"; rows]))),
                ("payload", Arc::new(BinaryArray::from(vec![&b""[..]; rows]))),
                ("source", channel),
            ]
        };
        let stream = stream_from(columns(Arc::new(DictionaryArray::new(keys(), large))));
        assert_eq!(read(&stream).unwrap().len(), rows);
        let mut views = StringViewBuilder::new();
        let block = views.append_block(long.into_bytes().into());
        (0..rows).for_each(|_| views.try_append_view(block, 0, 1 << 20).unwrap());
        let said = read(&stream_from(columns(Arc::new(views.finish())))).unwrap_err();
        assert!(said.contains("per batch, found 3145728000"), "{said}");
    }

    #[test]
    fn a_dictionary_with_a_null_that_is_used_has_a_null_row() {
        let values = Arc::new(StringArray::from(vec![Some("A"), None]));
        let channel =
            || DictionaryArray::new(Int8Array::from(vec![0, 1]), Arc::clone(&values) as _);
        let said = read(&stream_from(with("channel", Arc::new(channel())))).unwrap_err();
        assert!(said.contains("`channel` is null in row 1"), "{said}");
        let context = ReadContext::standalone("prog");
        let stream = stream_from(with("source", Arc::new(channel())));
        let batches = read_events(&stream, &context).unwrap();
        let sources =
            batches[0].iter().map(|event| context.channels.get(event.channel).source.to_string());
        assert_eq!(sources.collect::<Vec<_>>(), ["A", "prog"]);
    }

    #[test]
    fn big_endian_streams_are_refused() {
        let mut bytes = stream_from(sample_columns());
        let begins = 8;
        let message = arrow_ipc::root_as_message(&bytes[begins..]).unwrap();
        let schema = begins + message.header_as_schema().unwrap()._tab.loc();
        let back = i32::from_le_bytes(*bytes[schema..].first_chunk().unwrap());
        let places = (schema as i32 - back) as usize;
        // The first offset is that of the endianness, which is absent if little: it gets that of
        // the fields, which is not 0.
        bytes.copy_within(places + 6..places + 8, places + 4);
        let said = read(&bytes).unwrap_err();
        assert!(said.contains("big-endian"), "{said}");
    }

    #[test]
    fn every_wrong_column_is_named_with_what_is_there() {
        let mut columns = sample_columns();
        columns.retain(|(name, _)| *name != "payload");
        columns.push(("data", Arc::new(StringArray::from(vec!["", ""]))));
        let said = read(&stream_from(columns)).unwrap_err();
        assert!(said.contains("column `payload` is missing; it has `timestamp` (Int64)"), "{said}");
        assert!(said.contains("`data` (Utf8)"), "{said}");
        let floats = Arc::new(Float64Array::from(vec![0.5, 1.5]));
        let said = read(&stream_from(with("timestamp", floats))).unwrap_err();
        assert!(
            said.contains("`timestamp`: expected a timestamp, or int64")
                && said.contains("found Float64"),
            "{said}"
        );
        let holes = Arc::new(StringArray::from(vec![Some("A"), None]));
        assert!(
            read(&stream_from(with("channel", holes)))
                .unwrap_err()
                .contains("`channel` is null in row 1")
        );
        let kind = Field::new("payload", DataType::Binary, false);
        let twice = Arc::new(Schema::new(vec![kind.clone(), kind]));
        let said = read(&stream(&[RecordBatch::new_empty(twice)])).unwrap_err();
        assert!(
            said.contains("`payload` occurs twice") && said.contains("`channel` is missing"),
            "{said}"
        );
    }

    #[test]
    fn a_stream_that_is_cut_off_or_followed_by_something_is_none() {
        let whole = stream_from(sample_columns());
        assert!(read(&whole[..whole.len() - END.len()]).unwrap_err().contains("no end mark"));
        assert!(read(&whole[..whole.len() - 20]).unwrap_err().contains("cut off"));
        assert!(
            read(&[&whole[..], b"done\n"].concat())
                .unwrap_err()
                .contains("printed the text \"done\\n\"")
        );
        assert!(read(&[&whole[..], &whole].concat()).unwrap_err().contains("after the end"));
        assert!(read(&END).unwrap_err().contains("no schema"));
    }

    /// A stream as programs get it, with this many events.
    fn sent(count: usize, wanted: ProgramColumns) -> Vec<u8> {
        let context = ReadContext::standalone("log");
        let name =
            |n: usize| Channel::new(Name::from_text(["A", "B", "C"][n % 3]), "log", Encoding::Lcm);
        let mut batch = BatchBuilder::default();
        for n in 0..count {
            let channel = context.channels.intern(name(n)).unwrap();
            batch.push_copy(n as i64 * 7, n as i64, channel, &vec![n as u8; n * 3]);
        }
        let messages = wanted.messages(&batch.finish(), 0, &context.channels).unwrap();
        [wanted.head().unwrap(), messages.concat(), END.to_vec()].concat()
    }

    #[test]
    fn a_program_may_write_back_what_it_reads() {
        let stream = sent(40, ProgramColumns { numbers: true, fields: false });
        let events = read(&stream).unwrap();
        assert_eq!(events.len(), 40);
        assert_eq!(events[20], (140, 20, "C".into(), vec![20; 60]));
    }

    #[test]
    fn large_batches_are_sent_in_parts() {
        let context = ReadContext::standalone("log");
        let channel = Channel::new(Name::from_text("A"), "log", Encoding::Lcm);
        let channel = context.channels.intern(channel).unwrap();
        let mut batch = BatchBuilder::default();
        let payload = vec![1; 700 << 10];
        (0..5).for_each(|n| batch.push_copy(n, n, channel, &payload));
        let wanted = ProgramColumns { numbers: true, fields: false };
        assert_eq!(wanted.messages(&batch.finish(), 0, &context.channels).unwrap().len(), 5);
    }

    #[test]
    fn any_byte_may_be_wrong() {
        let mut bytes = sent(9, ProgramColumns { numbers: true, fields: true });
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                bytes[at] ^= flip;
                // Whatever it returns, it must return something, and soon.
                drop(read(&bytes));
                bytes[at] ^= flip;
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(read(&bytes).is_err());
        }

        #[test]
        fn several_wrong_bytes_do_not_panic(
            changes in proptest::collection::vec(
                (any::<prop::sample::Index>(), any::<u8>()), 1..12),
            cut in any::<prop::sample::Index>())
        {
            let mut bytes = sent(12, ProgramColumns { numbers: true, fields: false });
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            drop(read(&bytes));
            drop(read(&bytes[..cut.index(bytes.len())]));
        }
    }
}
