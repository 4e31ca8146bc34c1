//! Sink `csv`: a table with one row per event. [`crate::table`] decides about columns of fields.
//!
//! The syntax is RFC 4180, except that lines end with a line feed.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use sluice_kit::selection::FieldList;
use sluice_kit::unnest::list_path;
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channel, Error, Event, FieldPath, PerChannel, PrepareContext, Sink, SinkContext,
    SinkTraits, Written, raw,
};

use crate::fields::GonePayloads;
use crate::file::{Blocks, LinePiece, TextBlock, TextFile};
use crate::leading_columns::{self, LeadingColumns};
use crate::payload::CsvPayload;
use crate::table::{self, ColumnValues, CsvTable, DetachedFields, TableBlock};
use crate::write::{self, TimestampWriter};

/// Options of `csv`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct Csv {
    /// The file to write; `-` is standard output.
    #[serde(deserialize_with = "OutPath::without_folder")]
    path: OutPath,
    /// The columns that every event has, in this order. Default: all of them.
    #[serde(default = "all_columns", deserialize_with = "distinct_columns")]
    event_columns: Vec<EventColumn>,
    /// How to write payloads in a column `payload`; `none`, the default, leaves the column out.
    #[serde(default)]
    payload: CsvPayload,
    /// The fields to write as columns, in this order. Default: all fields of the first event's
    /// type, if it is decoded; an event with other fields then ends the run.
    #[serde(default)]
    fields: Option<FieldList>,
    /// A list in decoded events to unnest: each element is a row of its own.
    #[serde(default, deserialize_with = "list_path")]
    unnest: Option<FieldPath>,
    /// Whether the first line names the columns.
    #[serde(default = "yes")]
    header: bool,
    /// The separator of values: one character, `,` by default.
    #[serde(default = "comma", deserialize_with = "delimiter")]
    delimiter: char,
    /// Source and channel, quoted if needed.
    #[serde(skip)]
    origins: PerChannel<Origin>,
}

/// A column that every event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum EventColumn {
    /// The time in nanoseconds since 1970.
    TimestampNs,
    /// The time as in RFC 3339.
    Timestamp,
    /// The source of its channel.
    Source,
    /// Its channel.
    Channel,
    /// The sequence number.
    Sequence,
    /// The length of the payload in bytes.
    Size,
    /// The CRC-32 of its payload.
    Crc32,
}

/// Source and channel, quoted if needed.
#[derive(Clone, Debug)]
struct Origin {
    source: Arc<str>,
    channel: Arc<str>,
}

const COLUMNS: [(EventColumn, &str); 7] = [
    (EventColumn::TimestampNs, "timestamp_ns"),
    (EventColumn::Timestamp, "timestamp"),
    (EventColumn::Source, "source"),
    (EventColumn::Channel, "channel"),
    (EventColumn::Sequence, "sequence"),
    (EventColumn::Size, "size"),
    (EventColumn::Crc32, "crc32"),
];

fn yes() -> bool {
    true
}

fn comma() -> char {
    ','
}

fn all_columns() -> Vec<EventColumn> {
    COLUMNS.map(|(column, _)| column).to_vec()
}

fn distinct_columns<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<EventColumn>, D::Error> {
    let columns = Vec::<EventColumn>::deserialize(deserializer)?;
    for (column, name) in COLUMNS {
        if columns.iter().filter(|found| **found == column).count() > 1 {
            return Err(serde::de::Error::custom(format!("`{name}` is named twice")));
        }
    }
    Ok(columns)
}

fn delimiter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<char, D::Error> {
    let delimiter = char::deserialize(deserializer)?;
    // Numbers, times, base64 and column names contain these characters.
    let is_taken = delimiter.is_ascii_alphanumeric() || "\"\r\n+-./:=_".contains(delimiter);
    if is_taken {
        let message = format!("{delimiter:?} may occur in values; use `,`, `;`, `|` or a tab");
        return Err(serde::de::Error::custom(message));
    }
    Ok(delimiter)
}

sluice_model::register! {
    sink "csv": Csv,
    about: "writes a table with one row per event, and columns for decoded fields",
    sample: include_str!("../samples/csv.toml"),
    extensions: &["csv"],
    when_recorded: &[("payload", "\"base64\"")],
    is_for_reading_only: true,
}

impl<'de> Deserialize<'de> for Csv {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sink = Self::deserialize(deserializer)?;
        if sink.payload != CsvPayload::None && sink.unnest.is_some() {
            return Err(serde::de::Error::custom(
                "`unnest` writes elements, which have no payload; leave out `payload` or `unnest`",
            ));
        }
        if sink.leading().names.is_empty()
            && sink.fields.as_ref().is_some_and(|f| f.paths().is_empty())
        {
            return Err(serde::de::Error::custom(table::NO_COLUMN));
        }
        Ok(sink)
    }
}

impl Csv {
    /// The columns before those of fields.
    fn leading(&self) -> LeadingColumns {
        let name = |wanted: &EventColumn| {
            COLUMNS.into_iter().find(|(column, _)| column == wanted).map(|(_, name)| name)
        };
        let payload = (self.payload != CsvPayload::None).then_some("payload");
        let names = self.event_columns.iter().filter_map(name).chain(payload).collect();
        LeadingColumns { names, delimiter: self.delimiter }
    }

    fn origin(&self, channel: &Channel) -> Origin {
        let quoted = |value: &str| {
            let mut quoted = Vec::new();
            write::csv_value(&mut quoted, value, self.delimiter);
            String::from_utf8_lossy(&quoted).into()
        };
        Origin { source: quoted(&channel.source), channel: quoted(channel.name.text()) }
    }

    /// Writes one line per event: the leading columns, and then what `behind` writes.
    fn write(
        &self,
        batch: &Batch,
        context: &PrepareContext<'_>,
        out: &mut Vec<u8>,
        mut behind: impl FnMut(usize, &mut Vec<u8>),
    ) -> Result<(), Error> {
        let origins = self.origins.table(context.channels, |channel| Ok(self.origin(channel)))?;
        let (mut timestamps, gone_payloads) =
            (TimestampWriter::default(), GonePayloads::from_batch(batch));
        for (row, event) in batch.iter().enumerate() {
            let payload = (!gone_payloads.has(row)).then_some(event.payload);
            let start = out.len();
            self.write_leading(
                &event,
                payload,
                &origins[event.channel.index()],
                &mut timestamps,
                out,
            );
            behind(row, out);
            leading_columns::end_line(start, out);
        }
        Ok(())
    }

    fn write_leading(
        &self,
        event: &Event<'_>,
        payload: Option<&[u8]>,
        origin: &Origin,
        timestamps: &mut TimestampWriter,
        out: &mut Vec<u8>,
    ) {
        for (at, column) in self.event_columns.iter().enumerate() {
            if at > 0 {
                write::delimiter(out, self.delimiter);
            }
            match (column, payload) {
                (EventColumn::TimestampNs, _) => write::integer(out, event.timestamp),
                (EventColumn::Timestamp, _) => timestamps.write(out, event.timestamp),
                (EventColumn::Source, _) => out.extend_from_slice(origin.source.as_bytes()),
                (EventColumn::Channel, _) => out.extend_from_slice(origin.channel.as_bytes()),
                (EventColumn::Sequence, _) => write::integer(out, event.sequence),
                (EventColumn::Size, Some(payload)) => write::integer(out, payload.len()),
                (EventColumn::Crc32, Some(payload)) => {
                    write::integer(out, crc32fast::hash(payload));
                }
                // The payload was dropped, so size and checksum are unknown.
                (EventColumn::Size | EventColumn::Crc32, None) => {}
            }
        }
        self.write_payload(event.payload, out);
    }

    fn write_payload(&self, payload: &[u8], out: &mut Vec<u8>) {
        if self.payload != CsvPayload::None && !self.event_columns.is_empty() {
            write::delimiter(out, self.delimiter);
        }
        self.payload.write(payload, self.delimiter, out);
    }

    fn encode_selected(
        &self,
        fields: &FieldList,
        piece: &LinePiece,
        context: &PrepareContext<'_>,
    ) -> Result<TableBlock, Error> {
        let batch = &piece.batch;
        let (leading, mut found) = (self.leading(), fields.none_found());
        let columns = ColumnValues::selected(fields, batch, &mut found);
        let (mut types, count) = (columns.cells(batch, self.delimiter)?, fields.paths().len());
        let text = TextBlock::new(piece, context, |out| {
            self.write(batch, context, out, |event, out| {
                table::write_selected(&mut types, event, count, &leading, out);
            })
        })?;
        Ok(TableBlock::complete(text, found))
    }

    fn encode_detached(
        &self,
        piece: &LinePiece,
        context: &PrepareContext<'_>,
    ) -> Result<TableBlock, Error> {
        let batch = &piece.batch;
        let (mut parts, columns) = DetachedFields::from_batch(batch);
        let mut types = columns.cells(batch, self.delimiter)?;
        let text = TextBlock::new(piece, context, |out| {
            self.write(batch, context, out, |event, out| parts.push(&mut types, event, out))
        })?;
        Ok(TableBlock::detached(text, parts))
    }
}

impl Csv {
    fn encode_piece(
        &self,
        piece: &LinePiece,
        context: &PrepareContext<'_>,
    ) -> Result<(TableBlock, usize), Error> {
        let block = if let Some(fields) = &self.fields {
            self.encode_selected(fields, piece, context)?
        } else if piece.batch.rows().is_empty() {
            let write = |out: &mut _| self.write(&piece.batch, context, out, |_, _| {});
            TableBlock::plain(TextBlock::new(piece, context, write)?)
        } else {
            self.encode_detached(piece, context)?
        };
        let bytes = block.bytes();
        Ok((block, bytes))
    }
}

impl Sink for Csv {
    type Block = Blocks<TableBlock>;
    type Unit = Blocks<TableBlock>;
    type Output = CsvTable;

    fn traits(&self) -> SinkTraits {
        TextFile::traits(&self.path, self.payload == CsvPayload::None)
    }

    fn open(&self, context: &SinkContext) -> Result<CsvTable, Error> {
        let file = TextFile::open(&self.path, b"", context)?;
        CsvTable::new((file, &self.path), self.leading(), self.header, self.fields.as_ref())
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<Blocks<TableBlock>, Error> {
        let encode = |piece, context: &PrepareContext<'_>| self.encode_piece(&piece, context);
        // A table for people has one form of each type.
        let batch = raw::drop_raw_columns(batch);
        Blocks::encode(batch, self.unnest.as_ref(), context, encode)
    }

    fn write(&self, output: &mut CsvTable, blocks: Blocks<TableBlock>) -> Result<Written, Error> {
        let (channels, path) = (output.channels(), self.unnest.as_ref());
        let encode = |piece, context: &PrepareContext<'_>| self.encode_piece(&piece, context);
        blocks.write(path, &channels, encode, |block| output.append(block))
    }

    fn flush(&self, output: &mut CsvTable) -> Result<(), Error> {
        output.flush()
    }

    fn finish(&self, output: CsvTable) -> Result<Written, Error> {
        output.finish(self.unnest.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{SampleLog, make};
    use serde_json::json;
    use sluice_model::Name;

    const HEAD: &str = "timestamp_ns,timestamp,source,channel,sequence,size,crc32";

    #[test]
    fn a_row_says_what_every_event_has() {
        let log = SampleLog::new(&[(b"POSE", 1_194_098_400_000_000_007, b"123456789")]);
        let row = "1194098400000000007,2007-11-03T14:00:00.000000007Z,\"log \
                   \"\"1\"\"\",POSE,0,9,3421780262";
        assert_eq!(log.written("csv", json!({}), &[]), format!("{HEAD}\n{row}\n"));
    }

    #[test]
    fn the_header_is_written_once_even_without_events_unless_turned_off() {
        let none = SampleLog::new(&[]);
        assert_eq!(none.written("csv", json!({}), &[]), format!("{HEAD}\n"));
        assert_eq!(none.written("csv", json!({ "header": false }), &[]), "");
        let log = SampleLog::new(&[(b"A", 0, b""), (b"A", 1, b"")]);
        assert_eq!(log.written("csv", json!({}), &[0, 1]).matches("timestamp_ns").count(), 1);
    }

    #[test]
    fn payloads_are_written_in_the_chosen_format() {
        let log = SampleLog::new(&[(b"A", 0, &[0, 255, 16])]);
        let last = |payload: &str| {
            let text = log.written("csv", json!({ "payload": payload }), &[]);
            let last = |line: &str| line.rsplit(',').next().map(str::to_owned);
            text.lines().filter_map(last).collect::<Vec<_>>()
        };
        assert_eq!(last("hex"), ["payload", "00ff10"]);
        assert_eq!(last("base64"), ["payload", "AP8Q"]);
        assert_eq!(last("text"), ["payload", "\\x00\\xff\u{10}"]);
        assert_eq!(last("none")[0], "crc32");
    }

    #[test]
    fn odd_names_read_back_with_every_delimiter() {
        let names: [&[u8]; 5] = [b"a,b;c\td|", b"\"", b"x\r\ny", b"\xff\x01", "ü→".as_bytes()];
        let events: Vec<_> = names.iter().map(|name| (*name, 0, b"".as_slice())).collect();
        let log = SampleLog::new(&events);
        for delimiter in [",", ";", "\t", "|", " "] {
            let text = log.written("csv", json!({ "delimiter": delimiter }), &[2]);
            let mut reader = ::csv::ReaderBuilder::new()
                .delimiter(delimiter.as_bytes()[0])
                .from_reader(text.as_bytes());
            let rows: Vec<_> = reader.records().map(|row| row.unwrap()).collect();
            let found: Vec<_> = rows.iter().map(|row| Name::from_text(&row[3])).collect();
            assert_eq!(found, names.map(Name::from_bytes), "{delimiter:?}");
            assert_eq!(&rows[0][2], "log \"1\"");
        }
    }

    #[test]
    fn a_delimiter_that_may_occur_in_values_is_refused() {
        for delimiter in ["1", "T", "\"", "\n", ":", ""] {
            let error = make("csv", json!({ "path": "x", "delimiter": delimiter })).err().unwrap();
            assert_eq!(error.path, ["delimiter"], "{delimiter}");
        }
    }

    /// The cells of every line, read back.
    fn cells(text: &str, delimiter: u8) -> Vec<Vec<String>> {
        let mut reader = ::csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            .from_reader(text.as_bytes());
        let row =
            |row: Result<::csv::StringRecord, _>| row.unwrap().iter().map(str::to_owned).collect();
        reader.records().map(row).collect()
    }

    fn mixed() -> SampleLog {
        let log =
            SampleLog::new(&[(b"A", 1, b"ab"), (b"B", 2, b""), (b"C", 3, b""), (b"A", 4, b"")]);
        log.decoded_pose(&[0, 3]).decoded(&[2], &[7])
    }

    #[test]
    fn chosen_fields_are_columns_named_by_their_paths() {
        let options = json!({ "fields": ["v", "pos[0]", "names", "hash"],
            "event_columns": ["channel", "timestamp_ns"], "delimiter": ";" });
        let text = mixed().written("csv", options, &[1]);
        let expected = "channel;timestamp_ns;v;pos[0];names;hash\nA;1;;NaN;\"[\"\"a;\"\",\"\"\"\"]\";/wA=\nB;2;;;;\nC;3;7;;;\nA;4;;NaN;\"[\"\"a;\"\",\"\"\"\"]\";/wA=\n";
        assert_eq!(text, expected);
        assert_eq!(cells(&text, b';')[1][4], "[\"a;\",\"\"]");
    }

    #[test]
    fn the_first_event_decides_which_fields_are_columns() {
        let options = json!({ "event_columns": ["sequence"] });
        let refused = mixed().failure("csv", options.clone());
        assert!(
            refused.contains("the fields of `C` (`") && refused.contains("`--channel C`"),
            "{refused}"
        );
        let one_channel = SampleLog::new(&[(b"A", 1, b""), (b"A", 2, b"")]);
        let refused = one_channel.decoded_pose(&[0]).decoded(&[1], &[7]);
        let refused = refused.failure("csv", options.clone());
        assert!(refused.contains("Write one table per channel") && !refused.contains("--channel"));
        let (text, notes) = mixed().recorded_with_notes("csv", options.clone(), &[1, 2]);
        let expected = [
            ["sequence", "utime", "pos[0]", "pos[1]", "names", "s.x", "text", "hash"],
            ["0", "5", "NaN", "2.5", "[\"a;\",\"\"]", "1", "", "/wA="],
            ["1", "", "", "", "", "", "", ""],
            ["2", "", "", "", "", "", "", ""],
            ["3", "5", "NaN", "2.5", "[\"a;\",\"\"]", "1", "", "/wA="],
        ];
        assert_eq!(cells(&text, b','), expected);
        // An empty text is not the same as none.
        assert_eq!(text.matches(",\"\",").count(), 2);
        assert!(notes[0].0.contains("not of the first one's type") && notes[0].1 == 1, "{notes:?}");

        let bare = SampleLog::new(&[(b"A", 1, b""), (b"B", 2, b"")]).decoded(&[1], &[7]);
        let refused = bare.failure("csv", options.clone());
        assert!(refused.contains("the first event is not decoded"), "{refused}");
        let (text, notes) = bare.recorded_with_notes("csv", options, &[1]);
        assert_eq!(text, "sequence\n0\n1\n");
        assert!(notes[0].0.contains("first event is not decoded") && notes[0].1 == 1, "{notes:?}");
    }

    #[test]
    fn lines_of_one_blank_column_are_read_back() {
        for (options, expected) in [
            (json!({ "event_columns": [], "fields": ["v"] }), ["v", "", "", "7", ""]),
            (json!({ "event_columns": ["size"], "fields": [] }), ["size", "", "0", "", ""]),
        ] {
            let text = mixed().without_payloads().written("csv", options, &[2]);
            let found: Vec<_> = cells(&text, b',').into_iter().map(|row| row[0].clone()).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn names_of_fields_are_quoted_where_they_need_it() {
        let options = json!({ "fields": ["`a;b`.`\"`"], "event_columns": [], "delimiter": ";" });
        let text = SampleLog::new(&[]).written("csv", options, &[]);
        assert_eq!(cells(&text, b';'), [["`a;b`.`\"`"]]);
    }

    #[test]
    fn a_field_that_no_event_has_is_noted() {
        let options = json!({ "fields": ["v", "vv"] });
        let notes = mixed().written_with_notes("csv", options.clone(), &[3]).1;
        assert_eq!(notes, [("no event has a field `vv`".to_owned(), 0)]);
        assert!(SampleLog::new(&[]).written_with_notes("csv", options, &[]).1.is_empty());
    }

    #[test]
    fn columns_named_twice_and_unknown_ones_are_refused() {
        for columns in [json!(["size", "size"]), json!(["length"])] {
            let options = json!({ "path": "x", "event_columns": columns });
            assert_eq!(make("csv", options).err().unwrap().path[0], "event_columns");
        }
    }

    #[test]
    fn each_element_of_a_list_is_a_line() {
        let log = SampleLog::new(&[(b"A", 1, b""), (b"A", 2, b""), (b"B", 3, b""), (b"A", 4, b"")])
            .scans(&[0, 1, 3], &[2, 0, 1])
            .decoded(&[2], &[7]);
        let options = json!({ "unnest": "points", "event_columns": ["sequence", "size"] });
        assert!(log.failure("csv", options.clone()).contains("`--channel B`"));
        let (text, notes) = log.recorded_with_notes("csv", options, &[1]);
        let expected = "sequence,size,utime,x,points_sequence,sequence_\n\
            0,,0,0.0,0,0\n0,,0,0.5,1,0\n2,0,,,,\n3,,2,1.0,2,2\n";
        assert_eq!(text, expected);
        assert!(
            notes.len() == 1 && notes[0].0.contains("not of the first one's type"),
            "{notes:?}"
        );
        let options =
            json!({ "unnest": "points", "event_columns": ["sequence"], "fields": ["x", "v"] });
        let (text, notes) = log.lines_with_notes("csv", options, &[2]);
        assert_eq!((&*text, notes), ("sequence,x,v\n0,0.0,\n0,0.5,\n2,,7\n3,1.0,\n", vec![]));
    }

    #[test]
    fn payload_and_unnest_are_refused_together() {
        let options = json!({ "path": "x", "payload": "hex", "unnest": "points" });
        assert!(make("csv", options).err().unwrap().message.contains("leave out `payload`"));
    }
}
