//! Source `ros2-db3`: a file of a ROS 2 bag in SQLite. Options and splits.
//!
//! The library would add much C to every build, and it stops at the first damaged page.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_io::files::{self, FileCache, InputFiles, LogFile};
use sluice_model::options::{ByteSize, InPaths};
use sluice_model::{
    Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

mod catalog;
mod pages;
mod reader;
mod record;
mod tree;

use catalog::Catalog;
use pages::{MAGIC, Pages};
use reader::Db3Reader;

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
    catalogs: FileCache<Arc<Catalog>>,
}

fn default_max_message() -> ByteSize {
    ByteSize(256 << 20)
}

/// The statement that makes the table is on the first page, unless that is very short.
fn sniff(head: &[u8]) -> SniffResult {
    let statement = b"CREATE TABLE messages(";
    match head.starts_with(MAGIC) {
        true if memchr::memmem::find(head, statement).is_some() => SniffResult::Yes,
        true => SniffResult::Maybe,
        false => SniffResult::No,
    }
}

sluice_model::register! {
    source "ros2-db3": Db3Source,
    about: "reads the files of ROS 2 bags in SQLite, including damaged ones",
    sample: include_str!("../../samples/ros2-db3.toml"),
    extensions: &["db3"],
    sniff: sniff,
    types: &["embedded"],
    sensors_share_names: true,
}

/// What precedes each page in a journal that is not used up.
const JOURNAL: &[u8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";

/// `Err` if a file is not complete without what is beside it.
fn check_merged(path: &Path) -> Result<(), Error> {
    // SQLite has them beside the file that a link leads to.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    for (suffix, start) in [("-wal", &[][..]), ("-journal", JOURNAL)] {
        let mut beside = real.as_os_str().to_owned();
        beside.push(suffix);
        let beside = Path::new(&beside);
        let head = if files::is_file(beside) { files::head(beside, 8)? } else { Vec::new() };
        if !head.is_empty() && head.starts_with(start) {
            let (path, beside) = (path.display(), beside.display());
            return Err(Error::refused(format!(
                "its recording was interrupted, or goes on: a part of it is in a file beside it; \
                 have SQLite complete the bag: sqlite3 '{path}' 'SELECT count(*) FROM messages': \
                 {beside}"
            )));
        }
    }
    Ok(())
}

impl Db3Source {
    fn open(&self, log: LogFile) -> Result<(Pages, Arc<Catalog>), Error> {
        let path = log.path().to_owned();
        let mut pages = Pages::open(log)?;
        let known = self.catalogs.get(LogFile::open_plain(&path)?, |_| {
            check_merged(&path)?;
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
        files::expand(&self.path.0)
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let mut splits = Vec::new();
        for Input { path, .. } in self.inputs()? {
            let opened = self.open(InputFiles::default().open(&path)?)?;
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
        let (pages, catalog) = self.open(context.open_log(&split.input, None)?)?;
        Ok(Box::new(Db3Reader::new(split, (pages, catalog), self.max_message, context)))
    }
}
