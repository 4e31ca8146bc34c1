//! Source `vel`: one or more logs, cut into splits. A time window is read by headers, or by the
//! index if the user says that times rise.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_io::files::{self, InputContent, InputFiles, LogFile};
use sluice_model::options::{ByteSize, InPaths, Seek};
use sluice_model::time::AbsoluteTime;
use sluice_model::{
    Clock, Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
    TimeWindow,
};

use crate::format::VelByteFormat;
use crate::hash::MessageNames;
use crate::index::{self, IndexReport, MARGIN};
use crate::reader;
use crate::rules::{AfterDamage, DeletedMessages, Rules};
use crate::time::to_millis;
use crate::wire::MAGIC;

/// Reads Koblenz VEL DataLog files.
///
/// Damage is skipped and reported. Every plausible message becomes an event, whatever its type. Its
/// number is its position in the file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "Options")]
#[schemars(with = "Options")]
pub struct Vel {
    options: Options,
    /// Cached times of the first messages of logs.
    first_times: Arc<Mutex<BTreeMap<PathBuf, i64>>>,
}

/// The options as written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The logs: a file, a glob, a list of them, or `-` for standard input, read in this order.
    /// Logs compressed with zstd are decompressed.
    path: InPaths,
    /// The time of 0 ms, when the program that wrote the logs was started. Without it times are
    /// relative.
    epoch: Option<AbsoluteTime>,
    /// The time of each log's first message, instead of `epoch`.
    first: Option<AbsoluteTime>,
    /// Further message names besides the built-in ones: files contain only numbers.
    #[serde(default)]
    message_names: Arc<MessageNames>,
    /// Largest message accepted. A damaged log can claim any size.
    #[serde(default = "default_max_message")]
    max_message: ByteSize,
    /// Where reading continues after damage: at the next plausible message (`search`), or not at
    /// all (`stop`). After an erased block, too.
    #[serde(default)]
    after_damage: AfterDamage,
    /// Treats deleted messages as damage (`skip`) or as events (`keep`).
    #[serde(default)]
    deleted: DeletedMessages,
    /// How a time window is read. `true`: reads all headers, and skips payloads outside the window.
    /// `false`: reads the whole log. `"sorted"`: finds the window by the index, if that is right,
    /// which requires that times rise and no message is more than ten seconds out of place;
    /// messages elsewhere are missed.
    #[serde(default = "default_seek")]
    seek: Seek,
}

fn default_max_message() -> ByteSize {
    ByteSize(Rules::default().max_message)
}

fn default_seek() -> Seek {
    Seek::Headers
}

impl TryFrom<Options> for Vel {
    type Error = String;

    fn try_from(options: Options) -> Result<Self, String> {
        if options.epoch.is_some() && options.first.is_some() {
            return Err("`epoch` and `first` exclude each other; set one of them".into());
        }
        Ok(Self { options, first_times: Arc::default() })
    }
}

fn sniff(head: &[u8]) -> SniffResult {
    if head.starts_with(&MAGIC) { SniffResult::Yes } else { SniffResult::No }
}

sluice_model::register! {
    source "vel": Vel,
    about: "reads Koblenz VEL DataLog files, including damaged ones",
    sample: include_str!("../samples/vel-source.toml"),
    extensions: &["vel"],
    sniff: sniff,
    byte_format: Some(&VelByteFormat),
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
            epoch: self.options.epoch.map_or(0, |epoch| epoch.0),
        }
    }

    /// The rules for one log, and the clock of its times.
    fn rules_for(&self, path: &Path, inputs: &InputFiles) -> Result<(Rules, Clock), Error> {
        let mut rules = self.rules();
        let Some(first) = self.options.first else {
            let is_absolute = self.options.epoch.is_some();
            return Ok((rules, if is_absolute { Clock::Utc } else { Clock::Relative }));
        };
        let found = self.first_time(path, inputs, &rules)?;
        let epoch = first.0.checked_sub(found);
        rules.epoch = epoch.ok_or_else(|| {
            let path = path.display();
            Error::invalid(format!(
                "`first` leads to a start time out of range: the first message is {found} ns after \
                 it: {path}"
            ))
        })?;
        Ok((rules, Clock::Utc))
    }

    /// The time of a log's first message. It may follow long damage, so it is searched for only
    /// once, while others wait.
    fn first_time(&self, path: &Path, inputs: &InputFiles, rules: &Rules) -> Result<i64, Error> {
        let mut firsts = self.first_times.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = firsts.get(path) {
            return Ok(*found);
        }
        if files::is_stream(path) {
            let path = path.display();
            return Err(Error::invalid(format!(
                "`first` needs a log that can be read twice; set `epoch` instead, or read a file: \
                 {path}"
            )));
        }
        let mut log = inputs.open(path)?;
        let found = index::first_time(&mut log, rules)?;
        if let (None, Some(reason)) = (found, log.decompression_error()) {
            return Err(Error::invalid(format!(
                "`first` cannot be found before damage: {reason}; set `epoch` instead: {}",
                path.display()
            )));
        }
        let found = found.unwrap_or(0);
        firsts.insert(path.to_owned(), found);
        Ok(found)
    }

    /// The part of a log to read: all, unless the user says that times rise.
    fn range_to_read(&self, path: &Path, len: u64, query: &Query) -> Result<Range<u64>, Error> {
        let is_open = query.window().is_open();
        if self.options.seek != Seek::Sorted || is_open || len < MIN_SEEK_LEN {
            return Ok(0..len);
        }
        let (rules, _) = self.rules_for(path, &InputFiles::default())?;
        let in_file = |time: i64| to_millis(time.saturating_sub(rules.epoch));
        let start = query.start.map(|start| in_file(start.saturating_sub(MARGIN)));
        let end = query.end.map(|end| in_file(end.saturating_add(MARGIN)));
        let mut log = LogFile::open(path)?;
        let found = index::narrow(&mut log, (start, end), len, &rules)?;
        let (start, end) = found.unwrap_or((0, None));
        let end = end.unwrap_or(len).min(len);
        Ok(start.min(end)..end)
    }
}

/// Shorter logs are read completely, which is as cheap as seeking.
const MIN_SEEK_LEN: u64 = 16 << 20;

impl Vel {
    /// Checks the index of a file; `None` if it has none, or cannot be read twice.
    fn index_report(&self, input: &Path) -> Result<Option<IndexReport>, Error> {
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
        Split::from_files(inputs, target, |path, len| self.range_to_read(path, len, query))
    }

    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        let verdict = self.index_report(input)?;
        Ok(verdict.map(|verdict| verdict.findings()).unwrap_or_default())
    }

    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        let verdict = self.index_report(input)?;
        Ok(verdict.map(|verdict| verdict.faults()).unwrap_or_default())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let rules = self.rules_for(&split.input, &context.run.shared())?;
        let window = match self.options.seek {
            Seek::Off => TimeWindow::default(),
            Seek::Headers | Seek::Sorted => context.query.window(),
        };
        Ok(Box::new(reader::open(window, &split.input, split, entry, rules, context)?))
    }
}
