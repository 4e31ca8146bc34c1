//! The index of the files: one line per file, as a table or as names only. Opens no files.

use serde::{Deserialize, Serialize};
use sluice_kit::json::integer;
use sluice_model::schemars::JsonSchema;
use sluice_model::{Channel, Clock, Event, time};

/// The kind of index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum FileIndex {
    /// A table `index.csv`.
    #[default]
    Csv,
    /// Names only, in `index.txt`.
    Names,
    /// None.
    None,
}

impl FileIndex {
    /// The file names of all kinds of index.
    pub(crate) const NAMES: [&'static str; 2] = ["index.csv", "index.txt"];

    /// The file name of this index.
    pub(crate) fn file(self) -> Option<&'static str> {
        match self {
            Self::Csv => Some("index.csv"),
            Self::Names => Some("index.txt"),
            Self::None => None,
        }
    }

    /// The header line.
    pub(crate) fn head(self) -> &'static [u8] {
        match self {
            Self::Csv => b"name,timestamp_ns,timestamp,source,channel,sequence,bytes,check\n",
            Self::Names | Self::None => b"",
        }
    }

    /// Appends the rest of a line after the file name.
    pub(crate) fn write_rest(
        self,
        (event, channel): (&Event<'_>, &Channel),
        bytes: usize,
        check: &str,
        out: &mut Vec<u8>,
    ) {
        if self == Self::Csv {
            out.push(b',');
            integer(out, event.timestamp);
            out.push(b',');
            push_time(channel.clock, event.timestamp, out);
            for text in [&*channel.source, channel.name.text()] {
                out.push(b',');
                push_quoted(text, out);
            }
            out.push(b',');
            integer(out, event.sequence);
            out.push(b',');
            integer(out, bytes);
            out.push(b',');
            push_quoted(check, out);
        }
        out.push(b'\n');
    }

    /// Appends the file name, which starts a line.
    pub(crate) fn write_name(self, name: &str, out: &mut Vec<u8>) {
        match self {
            Self::Csv => push_quoted(name, out),
            Self::Names | Self::None => out.extend_from_slice(name.as_bytes()),
        }
    }
}

/// Appends a time as templates format it: as seconds if the clock counts from an unknown start.
fn push_time(clock: Clock, nanos: i64, out: &mut Vec<u8>) {
    const SECOND: u64 = 1_000_000_000;
    if clock != Clock::Relative {
        return out.extend_from_slice(time::format(nanos).as_bytes());
    }
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let text = format!("{sign}{}.{:09}", nanos / SECOND, nanos % SECOND);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a CSV value, quoted if necessary.
fn push_quoted(text: &str, out: &mut Vec<u8>) {
    if text.contains([',', '"', '\r', '\n']) {
        out.push(b'"');
        out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::{ChannelId, Encoding, Name};

    #[test]
    fn a_line_describes_a_file() {
        let channel = Channel::new(Name::from_text("CAM,\"1\""), "log", Encoding::Lcm);
        let (timestamp, sequence) = (1_194_098_400_000_000_000, 7);
        let event = Event { timestamp, sequence, channel: ChannelId(0), payload: b"" };
        let line = |index: FileIndex| {
            let mut out = Vec::new();
            index.write_name("a,b", &mut out);
            index.write_rest((&event, &channel), 12, "ok", &mut out);
            String::from_utf8(out).unwrap()
        };
        let wanted = "\"a,b\",1194098400000000000,2007-11-03T14:00:00.000000000Z,log,\
                      \"CAM,\"\"1\"\"\",7,12,ok\n";
        assert_eq!(line(FileIndex::Csv), wanted);
        assert_eq!(line(FileIndex::Names), "a,b\n");
    }

    #[test]
    fn times_of_relative_clocks_are_seconds_as_templates_write_them() {
        let mut channel = Channel::new(Name::from_text("A"), "log", Encoding::Lcm);
        channel.clock = Clock::Relative;
        for timestamp in [0, 1, -1, 12_500_000_000, -12_500_000_000, i64::MIN, i64::MAX] {
            let event = Event { timestamp, sequence: 0, channel: ChannelId(0), payload: b"" };
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            push_time(channel.clock, timestamp, &mut ours);
            let template = sluice_kit::Template::parse("{timestamp}").unwrap();
            assert!(template.bind(None).write(&channel, &event, None, &mut theirs));
            assert_eq!(String::from_utf8(ours).unwrap(), String::from_utf8(theirs).unwrap());
        }
    }
}
