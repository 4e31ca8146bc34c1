//! Source `ros2-db3`: a file of a ROS 2 bag in SQLite. Options and splits.
//!
//! The library would add much C to every build, and it stops at the first damaged page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_io::files::{self, FileCache, InputFiles, LogFile};
use sluice_model::options::{ByteSize, InPaths};
use sluice_model::{
    Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

mod catalog;
mod journal;
mod overlay;
mod pages;
mod reader;
mod record;
mod tree;
mod wal;

use catalog::Catalog;
use journal::is_journal;
use overlay::{Overlay, beside, beside_names, beside_noted, changed};
use pages::{MAGIC, Pages, Window};
use reader::Db3Reader;
use wal::is_wal;

use crate::splits;

/// Reads files of ROS 2 bags in SQLite.
///
/// Damage is skipped and reported. Events come in the order of their ids, in which they were
/// recorded.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Db3Source {
    /// The files: a file, a glob, or a list of them, read in this order.
    #[serde(deserialize_with = "InPaths::without_stdin")]
    path: InPaths,
    /// The longest message accepted. A damaged file can claim any length.
    #[serde(default = "default_max_message")]
    max_message: ByteSize,
    #[serde(skip)]
    overlays: FileCache<Arc<Overlay>>,
    #[serde(skip)]
    catalogs: FileCache<Arc<Catalog>>,
}

fn default_max_message() -> ByteSize {
    ByteSize(256 << 20)
}

/// Whether the statement that makes the table is here: on the first page, unless that is very
/// short.
fn has_statement(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"CREATE TABLE messages(").is_some()
}

fn sniff(head: &[u8]) -> SniffResult {
    match head.starts_with(MAGIC) {
        true if has_statement(head) => SniffResult::Yes,
        true => SniffResult::Maybe,
        false => SniffResult::No,
    }
}

/// Recognizes a bag of which all but the first page, or even that, is in the log beside it.
fn sniff_path(path: &Path) -> Result<SniffResult, Error> {
    let is_named_so = path.extension().is_some_and(|extension| extension == "db3");
    let log = if is_named_so { beside(path).pop() } else { None };
    let Some(log) = log.filter(|_| files::is_file(path)) else { return Ok(SniffResult::No) };
    let (head, log) = (files::head(path, MAGIC.len())?, files::head(&log.path, 256 << 10)?);
    let is_bag = (head.is_empty() || head == MAGIC) && is_wal(&log) && has_statement(&log);
    Ok(if is_bag { SniffResult::Yes } else { SniffResult::No })
}

/// Why a file that SQLite leaves beside a database is no log.
fn refusal(head: &[u8]) -> Option<&'static str> {
    (is_wal(head) || is_journal(head)).then_some(
        "SQLite left it beside a database, whose name is its own up to `-wal` or `-journal`; read \
         that, and this is read with it",
    )
}

sluice_model::register! {
    source "ros2-db3": Db3Source,
    about: "reads the files of ROS 2 bags in SQLite, including damaged and interrupted ones",
    sample: include_str!("../../samples/ros2-db3.toml"),
    extensions: &["db3"],
    sniff: sniff,
    sniff_path: sniff_path,
    refusal: refusal,
    types: &["embedded"],
    sensors_share_names: true,
}

impl Db3Source {
    /// Opens a database, and what is beside it.
    fn open(
        &self,
        path: &Path,
        inputs: &InputFiles,
        open: impl Fn(&Path) -> Result<LogFile, Error>,
    ) -> Result<(Pages, Arc<Catalog>), Error> {
        let log = open(path)?;
        let beside = if log.is_seekable() { beside_noted(path, inputs) } else { Vec::new() };
        let mut overlays = Vec::new();
        for path in beside {
            // It was there when the run began.
            let is_gone = |error: Error| match error.is_missing() {
                true => changed(&path.to_string_lossy()),
                false => error,
            };
            let mut file = Window::open(open(&path).map_err(is_gone)?)?;
            let overlay = self
                .overlays
                .get(inputs.open_plain(&path)?, |_| Ok(Arc::new(Overlay::read(&mut file)?)))?;
            overlays.push((overlay, file));
        }
        let mut pages = Pages::open(log, overlays)?;
        let beside: Vec<LogFile> = pages
            .overlays()
            .map(|(_, file)| inputs.open_plain(file.log.path()))
            .collect::<Result<_, Error>>()?;
        let beside: Vec<&LogFile> = beside.iter().collect();
        let known = self.catalogs.get_with(inputs.open_plain(path)?, &beside, |_| {
            Ok(Arc::new(Catalog::read(&mut pages, &path.to_string_lossy())?))
        })?;
        Ok((pages, known))
    }

    /// Splits of about `target` bytes each: positions are those of leaves, one behind the other.
    fn cut(path: &Path, (pages, catalog): &(Pages, Arc<Catalog>), target: u64) -> Vec<Split> {
        let size = pages.size() as u64;
        let units = catalog.leaves.iter().enumerate().map(|(at, leaf)| {
            // Pages of long messages follow the leaf that has their beginning.
            let next = catalog.leaves.get(at + 1).map_or(pages.count(), |next| next.page);
            let count = next.saturating_sub(leaf.page).max(1);
            (at as u64 * size, u64::from(count) * size)
        });
        splits::cut(path, units, target)
    }
}

impl Source for Db3Source {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        let mut inputs = files::expand(&self.path.0)?;
        // A glob may match what is beside a database, too.
        let all: BTreeSet<PathBuf> =
            inputs.iter().flat_map(|input| beside_names(&input.path)).collect();
        inputs.retain(|input| !all.contains(&input.path));
        Ok(inputs)
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        let each = self.inputs()?.into_iter();
        Ok(each.flat_map(|input| [vec![input.clone()], beside(&input.path)].concat()).collect())
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let mut splits = Vec::new();
        for Input { path, .. } in self.inputs()? {
            let opened = self.open(&path, &InputFiles::default(), LogFile::open)?;
            splits.extend(Self::cut(&path, &opened, target));
        }
        Ok(splits)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let open = |path: &Path| context.open_log(path, None);
        let (pages, catalog) = self.open(&split.input, &context.run.shared(), open)?;
        Ok(Box::new(Db3Reader::new(split, (pages, catalog), self.max_message, context)))
    }
}
