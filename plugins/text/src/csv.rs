//! `csv`: a table with a row an event. Decoded fields are not in it.
//!
//! As RFC 4180 has it, but that lines end with a line feed alone.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use sluice_core::options::OutPath;
use sluice_core::schemars::JsonSchema;
use sluice_core::{Batch, Channel, EncodeContext, Error, Event, PerChannel, Sink, SinkContext};

use crate::file::{self, TextBlock, TextFile};
use crate::write::{self, Moments};

/// Options of `csv`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_core::schemars")]
pub struct Csv {
    /// The file to write; `-` is standard output.
    path: OutPath,
    /// How the column `payload` spells payloads; `none`, the default, leaves it out.
    #[serde(default)]
    payload: Payload,
    /// Whether the first line names the columns.
    #[serde(default = "yes")]
    header: bool,
    /// What separates values: one character, `,` by default.
    #[serde(default = "comma", deserialize_with = "delimiter")]
    delimiter: char,
    /// Source and channel, as rows have them.
    #[serde(skip)]
    origins: PerChannel<Arc<str>>,
}

/// How payloads are spelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_core::schemars")]
pub enum Payload {
    /// Not at all: there is no such column.
    #[default]
    None,
    /// Two lower-case digits a byte.
    Hex,
    /// Base64 with padding.
    Base64,
}

const COLUMNS: [&str; 7] =
    ["timestamp_ns", "timestamp", "source", "channel", "sequence", "size", "crc32"];

fn yes() -> bool {
    true
}

fn comma() -> char {
    ','
}

fn delimiter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<char, D::Error> {
    let delimiter = char::deserialize(deserializer)?;
    // What numbers, times, base64 and column names are made of cannot separate them.
    let is_taken = delimiter.is_ascii_alphanumeric() || "\"\r\n+-./:=_".contains(delimiter);
    if is_taken {
        let message = format!("{delimiter:?} also stands in values; take `,`, `;`, `|` or a tab");
        return Err(serde::de::Error::custom(message));
    }
    Ok(delimiter)
}

sluice_core::register! {
    sink "csv": Csv,
    about: "writes a table with a row an event, without decoded fields",
    sample: include_str!("../samples/csv.toml"),
    extensions: &["csv"],
}

impl Csv {
    fn head(&self) -> String {
        let mut columns = COLUMNS.to_vec();
        if self.payload != Payload::None {
            columns.push("payload");
        }
        columns.join(self.delimiter.encode_utf8(&mut [0; 4])) + "\n"
    }

    fn origin(&self, channel: &Channel) -> String {
        let quoted = |value: &str| match value.contains(['"', '\r', '\n', self.delimiter]) {
            true => format!("\"{}\"", value.replace('"', "\"\"")),
            false => value.to_owned(),
        };
        format!("{}{}{}", quoted(&channel.source), self.delimiter, quoted(channel.name.text()))
    }

    fn write(
        &self,
        batch: &Batch,
        context: &EncodeContext<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let origins =
            self.origins.table(context.channels, |channel| Ok(self.origin(channel).into()))?;
        let mut moments = Moments::default();
        for event in batch.iter() {
            self.write_row(&event, &origins[event.channel.index()], &mut moments, out);
        }
        Ok(())
    }

    fn write_row(&self, event: &Event<'_>, origin: &str, moments: &mut Moments, out: &mut Vec<u8>) {
        let mut encoded = [0; 4];
        let delimiter = self.delimiter.encode_utf8(&mut encoded).as_bytes();
        write::integer(out, event.timestamp);
        out.extend_from_slice(delimiter);
        moments.write(out, event.timestamp);
        out.extend_from_slice(delimiter);
        out.extend_from_slice(origin.as_bytes());
        out.extend_from_slice(delimiter);
        write::integer(out, event.sequence);
        out.extend_from_slice(delimiter);
        write::integer(out, event.payload.len());
        out.extend_from_slice(delimiter);
        write::integer(out, crc32fast::hash(event.payload));
        self.write_payload(event.payload, delimiter, out);
        out.push(b'\n');
    }

    fn write_payload(&self, payload: &[u8], delimiter: &[u8], out: &mut Vec<u8>) {
        let write = match self.payload {
            Payload::None => return,
            Payload::Hex => write::hex,
            Payload::Base64 => write::base64,
        };
        out.extend_from_slice(delimiter);
        write(out, payload);
    }
}

impl Sink for Csv {
    type Block = TextBlock;
    type Output = TextFile;

    fn targets(&self) -> Vec<PathBuf> {
        file::targets(&self.path)
    }

    fn open(&self, context: &SinkContext) -> Result<TextFile, Error> {
        let head = if self.header { self.head() } else { String::new() };
        TextFile::open(&self.path, head.as_bytes(), context)
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<TextBlock, Error> {
        TextBlock::of(&batch, context, |out| self.write(&batch, context, out))
    }

    fn append(&self, output: &mut TextFile, block: TextBlock) -> Result<u64, Error> {
        output.append(block)
    }

    fn finish(&self, output: TextFile) -> Result<u64, Error> {
        output.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Log, make};
    use serde_json::json;
    use sluice_core::Name;

    const HEAD: &str = "timestamp_ns,timestamp,source,channel,sequence,size,crc32";

    #[test]
    fn a_row_says_what_every_event_has() {
        let log = Log::of(&[(b"POSE", 1_194_098_400_000_000_007, b"123456789")]);
        let row = "1194098400000000007,2007-11-03T14:00:00.000000007Z,\"log \"\"1\"\"\",POSE,0,9,3421780262";
        assert_eq!(log.written("csv", json!({}), &[]), format!("{HEAD}\n{row}\n"));
    }

    #[test]
    fn the_header_is_there_once_even_without_events_unless_it_is_not_wanted() {
        let none = Log::of(&[]);
        assert_eq!(none.written("csv", json!({}), &[]), format!("{HEAD}\n"));
        assert_eq!(none.written("csv", json!({ "header": false }), &[]), "");
        let log = Log::of(&[(b"A", 0, b""), (b"A", 1, b"")]);
        assert_eq!(log.written("csv", json!({}), &[0, 1]).matches("timestamp_ns").count(), 1);
    }

    #[test]
    fn payloads_are_spelled_as_wanted() {
        let log = Log::of(&[(b"A", 0, &[0, 255, 16])]);
        let last = |payload: &str| {
            let text = log.written("csv", json!({ "payload": payload }), &[]);
            let last = |line: &str| line.rsplit(',').next().map(str::to_owned);
            text.lines().filter_map(last).collect::<Vec<_>>()
        };
        assert_eq!(last("hex"), ["payload", "00ff10"]);
        assert_eq!(last("base64"), ["payload", "AP8Q"]);
        assert_eq!(last("none")[0], "crc32");
    }

    #[test]
    fn odd_names_read_back_with_every_delimiter() {
        let names: [&[u8]; 5] = [b"a,b;c\td|", b"\"", b"x\r\ny", b"\xff\x01", "ü→".as_bytes()];
        let events: Vec<_> = names.iter().map(|name| (*name, 0, b"".as_slice())).collect();
        let log = Log::of(&events);
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
    fn a_delimiter_that_stands_in_values_is_refused() {
        for delimiter in ["1", "T", "\"", "\n", ":", ""] {
            let error = make("csv", json!({ "path": "x", "delimiter": delimiter })).err().unwrap();
            assert_eq!(error.path, ["delimiter"], "{delimiter}");
        }
    }
}
