//! Source `archive`: divides archives into splits of whole frames, without the frames that a query
//! does not need.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sluice_io::files::{self, InputFiles, PathKind};
use sluice_io::frames::MAGIC;
use sluice_model::options::{self, ByteSize, InPaths};
use sluice_model::{
    Error, Input, OptionsError, PluginFactory, Query, ReadContext, Reader, Registry, Source, Split,
    SplitStart,
};

use crate::arrow;
use crate::fallback::FallbackSources;
use crate::footer::{self, ArchiveFooter, FooterCache};
use crate::frame::{UnpackLimits, Unpacker};
use crate::reader::{CHANGED, FrameReader, matching_frames};
use crate::scan::{AmbiguousFile, FrameScan, ScanRefusal};

/// Reads archives, and only the frames that are needed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// The archives: a file, a glob, a list of them, or `-` for standard input. They are read one
    /// after another. Plain logs and logs compressed by other programs may be among them.
    path: InPaths,
    /// The maximum uncompressed length of a frame: damaged frames can claim any length.
    #[serde(default = "default_max_frame")]
    max_frame: ByteSize,
    #[serde(skip)]
    footers: FooterCache,
    #[serde(skip)]
    fallbacks: FallbackSources,
    #[serde(skip)]
    unpacked: AtomicU64,
    /// The program's plugins: formats of archives, and sources for other files.
    #[serde(skip)]
    registry: Registry,
}

sluice_model::register! {
    source "archive": Archive,
    make: PluginFactory::Source(|value, registry| {
        Archive::new(value, registry).map(|archive| Box::new(archive) as _)
    }),
    about: "reads archives, by time and by channel, and recovers after damage",
    sample: include_str!("../samples/archive-source.toml"),
    sniff: arrow::sniff,
    sniff_path: footer::sniff,
    payloads: Some(footer::payloads),
}

/// The default of `max_frame`.
pub(crate) const DEFAULT_MAX_FRAME: u64 = 256 << 20;

fn default_max_frame() -> ByteSize {
    ByteSize(DEFAULT_MAX_FRAME)
}

impl Archive {
    /// An archive with these options, of a program with these plugins.
    pub fn new(options: Value, registry: &Registry) -> Result<Self, OptionsError> {
        Ok(Self { registry: registry.clone(), ..options::read(options)? })
    }

    /// The number of frames unpacked so far.
    pub fn frames_read(&self) -> u64 {
        self.unpacked.load(Ordering::Relaxed)
    }

    fn footer(
        &self,
        path: &Path,
        inputs: &InputFiles,
    ) -> Result<Option<Arc<ArchiveFooter>>, Error> {
        ArchiveFooter::cached(&self.footers, path, inputs, &self.registry)
    }

    fn unpacker(&self, path: &Path, context: &ReadContext) -> Unpacker<'_> {
        let limits = UnpackLimits { max_frame: self.max_frame, unpacked: &self.unpacked };
        Unpacker::new(path, limits, context)
    }

    /// Reads a whole input that has no consistent footer.
    fn read_without_footer<'s>(
        &'s self,
        path: &Path,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let Ok(Some(PathKind::File(len))) = files::path_kind(path) else {
            return self.read_fallback(path, context)?.ok_or_else(|| not_a_log(path));
        };
        let miss = |reason| {
            self.unpacker(path, context).report_damage(0, len, reason);
            Box::new(std::iter::empty()) as Box<dyn Reader + 's>
        };
        if len == 0 {
            return Ok(miss("the archive is empty: expected at least one frame"));
        }
        let is_packed = files::is_zstd(path)? || len < MAGIC.len() as u64;
        let scan = |doubt| {
            let log = context.run.shared::<InputFiles>().open_plain(path)?;
            FrameScan::open(
                log,
                self.unpacker(path, context),
                self.max_frame.0,
                doubt,
                &self.registry,
            )
        };
        if is_packed && let Ok(scan) = scan(AmbiguousFile::NotArchive)? {
            return Ok(Box::new(scan));
        }
        if let Some(reader) = self.read_fallback(path, context)? {
            return Ok(reader);
        }
        match scan(AmbiguousFile::DamagedArchive)? {
            Ok(scan) => Ok(Box::new(scan)),
            Err(ScanRefusal::Damaged) if is_packed => {
                Ok(miss("no frame can be read: the archive is damaged or cut off"))
            }
            Err(_) => Err(not_a_log(path)),
        }
    }

    fn read_fallback<'s>(
        &'s self,
        path: &Path,
        context: &ReadContext,
    ) -> Result<Option<Box<dyn Reader + 's>>, Error> {
        self.fallbacks.read(path, &self.path.0, context, &self.registry)
    }
}

fn not_a_log(path: &Path) -> Error {
    let path = path.display();
    Error::refused(format!("neither an archive nor a log that this program can read: {path}"))
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
            match self.footer(&path, &InputFiles::default())? {
                Some(footer) => splits.extend(cut_splits(&path, &footer, target, query)),
                None => splits.push(Split::whole(path, None)),
            }
        }
        Ok(splits)
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        let footer = self.footer(input, &InputFiles::default())?;
        Ok(footer.map(|footer| footer.index.events))
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let path = &split.input;
        let Some(end) = split.end else { return self.read_without_footer(path, context) };
        let unpacker = self.unpacker(path, context);
        let inputs = context.run.shared::<InputFiles>();
        let Some(footer) = self.footer(path, &inputs)? else {
            unpacker.report_damage(split.start, end, CHANGED);
            return Ok(Box::new(std::iter::empty()));
        };
        let mut log = inputs.open_plain(path)?;
        log.hash_reads(&context.run.shared());
        Ok(Box::new(FrameReader::new(log, footer, split, unpacker)))
    }
}

/// Splits of about `target` uncompressed bytes each. They may contain frames that are not needed.
fn cut_splits(path: &Path, footer: &ArchiveFooter, target: u64, query: &Query) -> Vec<Split> {
    let mut splits: Vec<Split> = Vec::new();
    for frame in matching_frames(footer, 0..footer.spans.len(), query, None) {
        let Some(span) = footer.spans.get(frame) else { continue };
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
