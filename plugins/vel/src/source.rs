//! Source `vel`: one log or many, cut into splits, of a window of time by headers, or by its index
//! where the user says that times rise.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use sluice_core::files::{self, InputContent};
use sluice_core::options::{ByteSize, InPaths, Seek};
use sluice_core::time::TimePoint;
use sluice_core::{
    Clock, Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
    TimeWindow,
};

use crate::format::Datalog;
use crate::hash::MessageNames;
use crate::index::{self, IndexVerdict, MARGIN};
use crate::probe::Probe;
use crate::reader;
use crate::scan::{AfterDamage, Deleted, Rules};
use crate::time::to_millis;
use crate::wire::MAGIC;

/// Reads Koblenz VEL DataLog files.
///
/// Damage is stepped over and reported; every message that can be believed is an event, of whatever type.
/// Its number is the place in the file where it begins.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Options")]
pub struct Vel {
    options: Options,
    /// The times of logs' first messages, once they have been looked for.
    firsts: Arc<Mutex<BTreeMap<PathBuf, i64>>>,
}

impl JsonSchema for Vel {
    fn schema_name() -> Cow<'static, str> {
        "Vel".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Options::json_schema(generator)
    }
}

/// The options as they are written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The logs: a file, a glob, a list of them, or `-` for standard input. Logs are read one after
    /// another; what is compressed with zstd is read as what it holds.
    path: InPaths,
    /// The time of the logs' 0 ms, which is when the program that wrote them was started. Without it
    /// times are relative.
    epoch: Option<TimePoint>,
    /// The time of each log's first message, instead of `epoch`.
    first: Option<TimePoint>,
    /// Names of messages beside the built-in ones: files hold numbers only.
    #[serde(default)]
    message_names: Arc<MessageNames>,
    /// The largest size of a message that is believed. Damage can claim any.
    #[serde(default = "largest_message")]
    max_message: ByteSize,
    /// What comes after damage: the next believable message (`search`), or nothing (`stop`).
    #[serde(default)]
    after_damage: AfterDamage,
    /// What messages are that were marked as deleted: damage (`skip`), or events (`keep`).
    #[serde(default)]
    deleted: Deleted,
    /// How a window of time is read. `true`: by the headers of all messages, without the payloads of those
    /// outside of it. `false`: all of the log is read. `"sorted"`: you know that times rise, and no message
    /// is more than ten seconds out of place; then the window is found by the index, if that proves right,
    /// and what is elsewhere in the log is missed.
    #[serde(default = "headers")]
    seek: Seek,
}

fn largest_message() -> ByteSize {
    ByteSize(Rules::default().max_message)
}

fn headers() -> Seek {
    Seek::Headers
}

impl TryFrom<Options> for Vel {
    type Error = String;

    fn try_from(options: Options) -> Result<Self, String> {
        if options.epoch.is_some() && options.first.is_some() {
            return Err("`epoch` and `first` say the same in two ways; give one of them".into());
        }
        let relative = |when: &Option<TimePoint>| when.is_some_and(TimePoint::is_relative);
        if relative(&options.epoch) || relative(&options.first) {
            return Err(
                "`epoch` and `first` are points in time, such as 2007-11-03T14:00:00Z".into()
            );
        }
        Ok(Self { options, firsts: Arc::default() })
    }
}

fn sniff(head: &[u8]) -> SniffResult {
    if head.starts_with(&MAGIC) { SniffResult::Yes } else { SniffResult::No }
}

sluice_core::register! {
    source "vel": Vel,
    about: "reads Koblenz VEL DataLog files, and goes on after damage",
    sample: include_str!("../samples/vel-source.toml"),
    extensions: &["vel"],
    sniff: sniff,
    byte_format: Some(&Datalog),
    types: &["vel"],
    sensors_share_names: true,
}

impl Vel {
    fn rules(&self) -> Rules {
        Rules {
            max_message: self.options.max_message.0,
            after_damage: self.options.after_damage,
            deleted: self.options.deleted,
            names: Arc::clone(&self.options.message_names),
            epoch: self.options.epoch.map_or(0, |epoch| epoch.resolve(0)),
        }
    }

    /// The rules for one log, and what its times count from.
    fn rules_of(&self, path: &Path) -> Result<(Rules, Clock), Error> {
        let mut rules = self.rules();
        let Some(first) = self.options.first else {
            let is_absolute = self.options.epoch.is_some();
            return Ok((rules, if is_absolute { Clock::Utc } else { Clock::Relative }));
        };
        let found = self.first_time(path, &rules)?;
        let epoch = first.resolve(0).checked_sub(found);
        rules.epoch = epoch.ok_or_else(|| {
            let path = path.display();
            Error::invalid(format!(
                "`first` leads to a start that no time can say: the first message is {found} ns after \
                 it: {path}"
            ))
        })?;
        Ok((rules, Clock::Utc))
    }

    /// The time of a log's first message. It may lie behind much damage, so it is looked for once;
    /// meanwhile others wait.
    fn first_time(&self, path: &Path, rules: &Rules) -> Result<i64, Error> {
        let mut firsts = self.firsts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = firsts.get(path) {
            return Ok(*found);
        }
        let mut log = Probe::open(path)?;
        if !log.is_seekable() {
            let path = path.display();
            return Err(Error::invalid(format!(
                "`first` needs a log that can be read twice; give `epoch`, or unpack the log: {path}"
            )));
        }
        let found = log.look(|log| index::first_time(log, rules))?.unwrap_or(0);
        firsts.insert(path.to_owned(), found);
        Ok(found)
    }

    /// The part of a log that is read: all, unless the user says that times rise.
    fn wanted(&self, path: &Path, len: u64, query: &Query) -> Result<Range<u64>, Error> {
        let is_open = query.window().is_open();
        if self.options.seek != Seek::Sorted || is_open || len < WORTH_SEEKING {
            return Ok(0..len);
        }
        let (rules, _) = self.rules_of(path)?;
        let in_file = |time: i64| to_millis(time.saturating_sub(rules.epoch));
        let start = query.start.map(|start| in_file(start.saturating_sub(MARGIN)));
        let end = query.end.map(|end| in_file(end.saturating_add(MARGIN)));
        let mut log = Probe::open(path)?;
        let found = log.look(|log| index::narrowed(log, (start, end), len, &rules))?;
        let (start, end) = found.unwrap_or((0, None));
        let end = end.unwrap_or(len).min(len);
        Ok(start.min(end)..end)
    }
}

/// Logs below this length are read whole: that is as cheap as looking.
const WORTH_SEEKING: u64 = 16 << 20;

impl Vel {
    /// What the index of a file is worth; nothing if it has none, or cannot be read twice.
    fn index_verdict(&self, input: &Path) -> Result<Option<IndexVerdict>, Error> {
        if input == Path::new("-") || files::head(input, 1)?.is_empty() {
            return Ok(None);
        }
        index::inspect(input, &self.rules())
    }
}

impl Source for Vel {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.options.path.0)
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let inputs = self.inputs()?;
        files::refuse_foreign(&inputs, InputContent::Marked, "a VEL log")?;
        Split::from_files(inputs, target, |path, len| self.wanted(path, len, query))
    }

    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        let verdict = self.index_verdict(input)?;
        Ok(verdict.map(|verdict| verdict.sentences()).unwrap_or_default())
    }

    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        let verdict = self.index_verdict(input)?;
        Ok(verdict.map(|verdict| verdict.faults()).unwrap_or_default())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let rules = self.rules_of(&split.input)?;
        let window = match self.options.seek {
            Seek::Off => TimeWindow::default(),
            Seek::Headers | Seek::Sorted => context.query.window(),
        };
        Ok(Box::new(reader::open(window, &split.input, split, entry, rules, context)?))
    }
}
