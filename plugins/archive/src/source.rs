//! Source `archive`: cuts archives into splits of whole frames, less those that nobody wants.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::files::{self, LogFile, PathKind};
use sluice_core::frames::MAGIC;
use sluice_core::options::{ByteSize, InPaths};
use sluice_core::{
    ByteFormat, Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

use crate::arrow::Arrow;
use crate::foot::{self, Feet, Foot};
use crate::frame::{Limits, Unpacker};
use crate::other::Others;
use crate::reader::{CHANGED, FrameReader, wanted};
use crate::scan::{Doubt, NoArchive, Scan};

/// The name of the source, and of the sink.
pub(crate) const NAME: &str = "archive";

/// Reads archives, and what is in them only where it is wanted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// The archives: a file, a glob, a list of them, or `-` for standard input. Archives are read one
    /// after another. Plain and otherwise compressed logs may be among them.
    path: InPaths,
    /// The most that a frame may hold. Damage can claim any length.
    #[serde(default = "default_max_frame")]
    max_frame: ByteSize,
    #[serde(skip)]
    feet: Feet,
    #[serde(skip)]
    others: Others,
    #[serde(skip)]
    unpacked: AtomicU64,
}

sluice_core::register! {
    source "archive": Archive,
    about: "reads archives, by time and by channel, and goes on after damage",
    sample: include_str!("../samples/archive-source.toml"),
    sniff: sniff,
    sniff_path: foot::sniff,
}

/// The most that a frame may hold, unless something else is asked for.
pub(crate) const DEFAULT_MAX_FRAME: u64 = 256 << 20;

fn default_max_frame() -> ByteSize {
    ByteSize(DEFAULT_MAX_FRAME)
}

/// An archive of `arrow` whose foot is gone begins like this; no other source knows that format.
fn sniff(head: &[u8]) -> SniffResult {
    let is_ours = Arrow.head().is_ok_and(|stream| head.starts_with(&stream));
    if is_ours { SniffResult::Yes } else { SniffResult::No }
}

impl Archive {
    /// How many frames have been unpacked so far.
    pub fn frames_read(&self) -> u64 {
        self.unpacked.load(Ordering::Relaxed)
    }

    fn unpacker(&self, path: &Path, context: &ReadContext) -> Unpacker<'_> {
        let limits = Limits { max_frame: self.max_frame, unpacked: &self.unpacked };
        Unpacker::new(path, limits, context)
    }

    /// Reads a whole input that has no foot which could be believed.
    fn read_on<'s>(
        &'s self,
        path: &Path,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let Ok(Some(PathKind::File(len))) = files::path_kind(path) else {
            return self.read_other(path, context)?.ok_or_else(|| no_log(path));
        };
        let miss = |reason| {
            self.unpacker(path, context).miss(0, len, reason);
            Box::new(std::iter::empty()) as Box<dyn Reader + 's>
        };
        if len == 0 {
            return Ok(miss("the archive is empty: at least a frame is due"));
        }
        let is_packed = files::is_zstd(path)? || len < MAGIC.len() as u64;
        let scan = |doubt| {
            let (log, unpacker) = (LogFile::open_plain(path)?, self.unpacker(path, context));
            Scan::of(log, unpacker, self.max_frame.0, doubt)
        };
        if is_packed && let Ok(scan) = scan(Doubt::Other)? {
            return Ok(Box::new(scan));
        }
        if let Some(reader) = self.read_other(path, context)? {
            return Ok(reader);
        }
        match scan(Doubt::Archive)? {
            Ok(scan) => Ok(Box::new(scan)),
            Err(NoArchive::Damaged) if is_packed => {
                Ok(miss("no frame can be read: the archive is damaged or cut off"))
            }
            Err(_) => Err(no_log(path)),
        }
    }

    fn read_other<'s>(
        &'s self,
        path: &Path,
        context: &ReadContext,
    ) -> Result<Option<Box<dyn Reader + 's>>, Error> {
        self.others.read(path, &self.path.0, context)
    }
}

fn no_log(path: &Path) -> Error {
    let path = path.display();
    Error::refused(format!("neither an archive nor a log that this program reads: {path}"))
}

impl Source for Archive {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let mut splits = Vec::new();
        for Input { path, .. } in self.inputs()? {
            match self.feet.of(&path)? {
                Some(foot) => splits.extend(cut(&path, &foot, target, query)),
                None => splits.push(Split::whole(path, None)),
            }
        }
        Ok(splits)
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        Ok(self.feet.of(input)?.map(|foot| foot.index.events))
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let path = &split.input;
        let Some(end) = split.end else { return self.read_on(path, context) };
        let unpacker = self.unpacker(path, context);
        let Some(foot) = self.feet.of(path)? else {
            unpacker.miss(split.start, end, CHANGED);
            return Ok(Box::new(std::iter::empty()));
        };
        Ok(Box::new(FrameReader::new(LogFile::open_plain(path)?, foot, split, unpacker)))
    }
}

/// Splits of about `target` plain bytes each. What nobody wants may lie inside of one.
fn cut(path: &Path, foot: &Foot, target: u64, query: &Query) -> Vec<Split> {
    let mut splits: Vec<Split> = Vec::new();
    for frame in wanted(foot, 0..foot.spans.len(), query, None) {
        let Some(span) = foot.spans.get(frame) else { continue };
        let plain = u64::from(span.content_len);
        match splits.last_mut() {
            Some(Split { end, bytes: Some(bytes), .. }) if *bytes < target => {
                *bytes += plain;
                *end = Some(span.end());
            }
            _ => splits.push(Split {
                input: path.to_owned(),
                start: span.start,
                end: Some(span.end()),
                bytes: Some(plain),
                live: false,
            }),
        }
    }
    splits
}
