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
mod window;

pub(crate) use catalog::compressed_one_by_one;
use catalog::{Catalog, has_statement};
use journal::is_journal;
use overlay::{
    Overlay, all_beside_names, beside, beside_names, beside_noted, changed, changed_if_missing,
};
use pages::{MAGIC, Pages, has_utf16};
use reader::Db3Reader;
use wal::{is_index, is_wal};
use window::Window;

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
    plain: FileCache<State>,
    /// Those with files beside them.
    #[serde(skip, default = "FileCache::of_one_state")]
    interrupted: FileCache<State>,
}

/// What is known of a database: the files beside it, and what it says of itself.
type State = (Vec<Arc<Overlay>>, Arc<Catalog>);

fn default_max_message() -> ByteSize {
    ByteSize(256 << 20)
}

fn sniff(head: &[u8]) -> SniffResult {
    match head.starts_with(MAGIC) {
        // It is on the first page, unless that is very short.
        true if has_statement(head) => SniffResult::Yes,
        // Opening it says why it is not read.
        true if has_utf16(head) && has_statement(&without_zeros(head)) => SniffResult::Yes,
        true => SniffResult::Maybe,
        false => SniffResult::No,
    }
}

/// The Latin letters of a text in UTF-16, of either byte order.
fn without_zeros(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|byte| *byte != 0).collect()
}

/// Recognizes a bag of which all but the first page, or even that, is in the log beside it.
fn sniff_path(path: &Path) -> Result<SniffResult, Error> {
    let is_named_so = path.extension().is_some_and(|extension| extension == "db3");
    let [_, log] = beside_names(path);
    if !is_named_so || !files::is_input_file(path) || !files::is_file(&log) {
        return Ok(SniffResult::No);
    }
    let (head, log) = (files::head(path, MAGIC.len())?, files::head(&log, 256 << 10)?);
    let is_bag = (head.is_empty() || head == MAGIC) && is_wal(&log) && has_statement(&log);
    Ok(if is_bag { SniffResult::Yes } else { SniffResult::No })
}

/// Whether this is a bag, as far as its first bytes tell, or those of the log beside it.
pub(crate) fn is_bag(path: &Path) -> Result<bool, Error> {
    let is_yes = |found| matches!(found, SniffResult::Yes);
    Ok(is_yes(sniff(&files::head(path, 64 << 10)?)) || is_yes(sniff_path(path)?))
}

/// Why a file that SQLite leaves beside a database is no log.
fn refusal(head: &[u8]) -> Option<&'static str> {
    (is_wal(head) || is_index(head) || is_journal(head)).then_some(
        "SQLite left it beside a database, whose name is its own up to `-wal`, `-shm` or \
         `-journal`; read that, and this is read with it",
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
        let beside = if log.is_seekable() { beside_noted(path, inputs)? } else { Vec::new() };
        let open_beside = || beside.iter().map(|path| open_beside(path, inputs, &open));
        let stamp = |path: &PathBuf| {
            inputs.open_plain(path).map_err(|error| changed_if_missing(error, path))
        };
        let stamps = beside.iter().map(stamp).collect::<Result<Vec<_>, _>>()?;
        let stamps: Vec<&LogFile> = stamps.iter().collect();
        let states = if beside.is_empty() { &self.plain } else { &self.interrupted };
        let read = |_| {
            let mut files = open_beside().collect::<Result<Vec<_>, _>>()?;
            let overlays = files.iter_mut().map(|file| Ok(Arc::new(read_beside(file)?)));
            let overlays = overlays.collect::<Result<Vec<_>, Error>>()?;
            let over = overlays.iter().cloned().zip(files).collect();
            let mut pages = Pages::open(open(path)?, over)?;
            Ok((overlays, Arc::new(Catalog::read(&mut pages, &path.to_string_lossy())?)))
        };
        let (overlays, catalog) = states.get_with(&log, &stamps, read)?;
        let files = open_beside().collect::<Result<Vec<_>, _>>()?;
        Ok((Pages::open(log, overlays.into_iter().zip(files).collect())?, catalog))
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

/// Opens a file beside a database, which was there when the run began.
fn open_beside(
    path: &Path,
    inputs: &InputFiles,
    open: impl Fn(&Path) -> Result<LogFile, Error>,
) -> Result<Window, Error> {
    let log = open(path).map_err(|error| changed_if_missing(error, path))?;
    let file = Window::open(log)?;
    match inputs.noted_len(path).is_some_and(|noted| file.len < noted) {
        true => Err(changed(&file.input)),
        false => Ok(file),
    }
}

/// Reads which pages a file beside a database has.
fn read_beside(file: &mut Window) -> Result<Overlay, Error> {
    if file.input.ends_with("-wal") { wal::read(file) } else { journal::read(file) }
}

impl Source for Db3Source {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        let mut inputs = files::expand(&self.path.0)?;
        // A glob may match what is beside a database, too.
        let all: BTreeSet<PathBuf> =
            inputs.iter().flat_map(|input| all_beside_names(&input.path)).collect();
        inputs.retain(|input| !all.contains(&input.path));
        Ok(inputs)
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        let mut files = Vec::new();
        for input in self.inputs()? {
            let beside = beside(&input.path)?;
            files.push(input);
            files.extend(beside);
        }
        Ok(files)
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
