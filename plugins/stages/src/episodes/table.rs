//! Tables of episodes: when each begins and ends, and what is done in it. Opens the file only.

use std::path::Path;

use serde::Deserialize;
use sluice_io::files;
use sluice_model::time::{self, TimePoint};
use sluice_model::{Error, OptionsError};

/// The longest file.
const MAX_BYTES: usize = 16 << 20;

/// A table of episodes as it is written.
#[derive(Debug)]
pub(super) struct EpisodeTable {
    rows: Vec<TableRow>,
    /// Whether any of them has a task.
    pub(super) has_tasks: bool,
    pub(super) fingerprint: String,
    name: String,
}

/// An episode as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableRow {
    /// Its first time.
    #[serde(deserialize_with = "time_of_toml")]
    start: TimePoint,
    /// The first time after it.
    #[serde(deserialize_with = "time_of_toml")]
    end: TimePoint,
    /// What is done in it.
    task: Option<String>,
}

/// The same file in TOML.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlTable {
    episodes: Vec<TableRow>,
}

/// An episode in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start: i64,
    /// The first time after it.
    pub(super) end: i64,
    pub(super) task: Option<String>,
}

impl EpisodeTable {
    /// Reads a file: TOML if that is its extension, otherwise CSV.
    pub(super) fn open(path: &Path) -> Result<Self, OptionsError> {
        let wrong = |what: String| OptionsError::at("table", format!("{what}: {}", path.display()));
        let bytes = files::read_small(path, MAX_BYTES)
            .map_err(|error| OptionsError::at("table", error.to_string()))?;
        if bytes.len() > MAX_BYTES {
            return Err(wrong("expected a table of episodes, found over 16 MiB".to_owned()));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| wrong("expected a table of episodes, found no UTF-8 text".to_owned()))?;
        let is_toml = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml"));
        let rows = if is_toml { from_toml(&text) } else { from_csv(&text) }.map_err(wrong)?;
        if rows.is_empty() {
            return Err(wrong("expected episodes with `start` and `end`, found none".to_owned()));
        }
        let has_tasks = rows.iter().any(|row| row.task.is_some());
        let fingerprint = format!("episodes, blake3 {}", blake3::hash(text.as_bytes()).to_hex());
        Ok(Self { rows, has_tasks, fingerprint, name: path.display().to_string() })
    }

    /// Whether it has times relative to the first event.
    pub(super) fn is_relative(&self) -> bool {
        self.rows.iter().any(|row| row.start.is_relative() || row.end.is_relative())
    }

    /// The episodes in order. `Err` if one is empty, or two overlap.
    pub(super) fn intervals(&self, origin: Option<i64>) -> Result<Vec<Interval>, Error> {
        let refused = |what: String| Error::invalid(format!("episodes: {what}: {}", self.name));
        if self.is_relative() && origin.is_none() {
            let what =
                "times count from the first event, whose time is unknown; give absolute ones";
            return Err(refused(what.to_owned()));
        }
        let origin = origin.unwrap_or(0);
        let mut intervals: Vec<Interval> = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let (start, end) = (row.start.resolve(origin), row.end.resolve(origin));
            if start >= end {
                let start = time::format(start);
                return Err(refused(format!("the episode from {start} on ends before it begins")));
            }
            intervals.push(Interval { start, end, task: row.task.clone() });
        }
        intervals.sort_by_key(|interval| interval.start);
        let overlap = intervals.windows(2).find(|pair| pair[0].end > pair[1].start);
        match overlap {
            Some(pair) => {
                let (one, two) = (time::format(pair[0].start), time::format(pair[1].start));
                Err(refused(format!("the episodes from {one} and from {two} on overlap")))
            }
            None => Ok(intervals),
        }
    }
}

fn from_toml(text: &str) -> Result<Vec<TableRow>, String> {
    toml::from_str::<TomlTable>(text).map(|table| table.episodes).map_err(|e| e.to_string())
}

/// A time, or a date without quotes, which TOML has of its own.
fn time_of_toml<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<TimePoint, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::Datetime(date) => TimePoint::parse_chosen(&date.to_string()),
        other => TimePoint::deserialize(other).map_err(|error| error.message().to_owned()),
    }
    .map_err(serde::de::Error::custom)
}

fn from_csv(text: &str) -> Result<Vec<TableRow>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    check_header(reader.headers().map_err(|error| error.to_string())?)?;
    let rows = reader.deserialize::<CsvRow>().map(|row| match row {
        Ok(row) => {
            let task = row.task.filter(|task| !task.is_empty());
            Ok(TableRow { start: row.start, end: row.end, task })
        }
        Err(wrong) => Err(wrong.to_string()),
    });
    rows.collect()
}

/// `Err` if a column is unknown or missing: serde would say so of the first row.
fn check_header(columns: &csv::StringRecord) -> Result<(), String> {
    const NEEDED: [&str; 2] = ["start", "end"];
    let is_known = |column: &str| column == "task" || NEEDED.contains(&column);
    let unknown = columns.iter().find(|column| !is_known(column));
    let missing = NEEDED.into_iter().find(|needed| !columns.iter().any(|column| column == *needed));
    let what = match (unknown, missing) {
        (Some(unknown), _) => format!("unknown column `{unknown}`"),
        (None, Some(missing)) => format!("no column `{missing}`"),
        (None, None) => return Ok(()),
    };
    Err(format!("line 1: {what}: expected `start`, `end` and perhaps `task`"))
}

/// A row of CSV.
#[derive(Deserialize)]
struct CsvRow {
    #[serde(deserialize_with = "time_of_text")]
    start: TimePoint,
    #[serde(deserialize_with = "time_of_text")]
    end: TimePoint,
    #[serde(default)]
    task: Option<String>,
}

fn time_of_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<TimePoint, D::Error> {
    let text = String::deserialize(deserializer)?;
    TimePoint::parse_chosen(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(rows: Vec<TableRow>, origin: Option<i64>) -> Result<Vec<Interval>, String> {
        let (fingerprint, name) = (String::new(), "t".to_owned());
        let table = EpisodeTable { rows, has_tasks: true, fingerprint, name };
        table.intervals(origin).map_err(|error| error.to_string())
    }

    #[test]
    fn both_forms_say_the_same() {
        let csv = "start,end,task\n+2,+3.5,\"push, then pull\"\n1970-01-01T00:00:01Z, +2,\n";
        let toml = "[[episodes]]\nstart = '+2'\nend = '+3.5'\ntask = 'push, then pull'\n\
                    [[episodes]]\nstart = '1970-01-01T00:00:01Z'\nend = '+2'";
        let read = |rows: Result<Vec<TableRow>, String>| intervals(rows.unwrap(), Some(0)).unwrap();
        let both = read(from_csv(csv));
        assert_eq!(both, read(from_toml(toml)));
        let s = 1_000_000_000;
        let task = Some("push, then pull".to_owned());
        assert_eq!(
            both,
            [
                Interval { start: s, end: 2 * s, task: None },
                Interval { start: 2 * s, end: 3_500_000_000, task }
            ]
        );
    }

    #[test]
    fn times_may_be_dates_of_toml() {
        let table = |start: &str| from_toml(&format!("[[episodes]]\nstart = {start}\nend = '+2'"));
        let found = table("1970-01-01T00:00:01Z").unwrap();
        assert_eq!(found[0].start, TimePoint::At(1_000_000_000));
        let number = table("1194098400.5").unwrap();
        assert_eq!(number[0].start, TimePoint::At(1_194_098_400_500_000_000));
        let local = table("1970-01-01T00:00:01").unwrap_err();
        assert!(local.contains("has no time zone") && local.contains("line 2"), "{local}");
        let wrong = table("'soon'").unwrap_err();
        assert!(wrong.contains("is not a time") && wrong.contains("line 2"), "{wrong}");
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |text: &str| from_csv(text).and_then(|rows| intervals(rows, Some(0)));
        let message = |text: &str| wrong(text).unwrap_err();
        assert!(
            message("start,end\n+1,soon\n").contains("line: 2"),
            "{}",
            message("start,end\n+1,soon\n")
        );
        assert!(message("start,stop\n+1,+2\n").contains("line 1: unknown column `stop`"));
        assert!(message("start,task\n+1,push\n").contains("line 1: no column `end`"));
        assert!(message("start,end\n+2,+1\n").contains("ends before it begins"));
        assert!(message("start,end\n+1,+3\n+2,+4\n").contains("overlap"));
        let relative = intervals(from_csv("start,end\n+1,+2\n").unwrap(), None).unwrap_err();
        assert!(relative.contains("give absolute ones"), "{relative}");
    }
}
