//! Source `mcap`: options, splits, and what files say of themselves.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_io::files::{self, InputContent, InputFiles, LogFile};
use sluice_kit::InputFaults;
use sluice_model::options::{ByteSize, InPaths};
use sluice_model::{
    ConversionNodes, ConversionStage, Error, Input, Query, ReadContext, Reader, SniffResult,
    Source, Split, SplitStart,
};

use crate::chunk::DEFAULT_MAX_CHUNK;
use crate::index::{FileIndex, IndexCache, is_chunk};
use crate::reader::RecordReader;
use crate::wire::MAGIC;
use crate::{checksums, inspect};

/// Reads MCAP files.
///
/// Damage is skipped and reported. Events come in the order of the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McapSource {
    /// The files: a file, a glob, a list of them, or `-` for standard input, read in this order.
    /// Files compressed with zstd as a whole are decompressed.
    path: InPaths,
    /// The longest chunk accepted, uncompressed. A damaged file can claim any length.
    #[serde(default = "default_max_chunk")]
    max_chunk: ByteSize,
    #[serde(skip)]
    indexes: IndexCache,
}

fn default_max_chunk() -> ByteSize {
    DEFAULT_MAX_CHUNK
}

fn sniff(head: &[u8]) -> SniffResult {
    let is_mangled = head.starts_with(&MAGIC[..6]);
    match head.starts_with(&MAGIC) {
        true => SniffResult::Yes,
        false if is_mangled => SniffResult::Maybe,
        false => SniffResult::No,
    }
}

sluice_model::register! {
    source "mcap": McapSource,
    about: "reads MCAP files, including damaged and unfinished ones",
    sample: include_str!("../samples/mcap-source.toml"),
    extensions: &["mcap"],
    sniff: sniff,
    types: &["embedded"],
    conversion: |_| {
        let views = vec![("note_views", "true".to_owned())];
        let stage = ConversionStage::named("from-protobuf");
        let stages = vec![ConversionStage { with_named_channels: views, ..stage }];
        Ok(ConversionNodes { stages, ..ConversionNodes::default() })
    },
    sensors_share_names: true,
}

impl McapSource {
    /// The index of a file as it is now.
    fn index(&self, path: &Path) -> Result<Option<Arc<FileIndex>>, Error> {
        FileIndex::cached(&self.indexes, path, &InputFiles::default())
    }

    /// Splits of about `target` uncompressed bytes each, which start at chunks.
    fn cut(&self, path: &Path, index: &FileIndex, target: u64) -> Result<Vec<Split>, Error> {
        let whole = |bytes| Split::whole(path, Some(bytes));
        let Some(summary) = index.summary().filter(|_| index.sure_declarations().is_some()) else {
            return Ok(vec![Split::unbounded(path, index.len)]);
        };
        let mut unchecked = index.are_believed.then(|| LogFile::open_plain(path)).transpose()?;
        let mut is_there = |chunk| unchecked.as_mut().map_or(Ok(true), |log| is_chunk(log, chunk));
        let (mut splits, mut last) = (Vec::new(), whole(0));
        // Where the chunks so far end, and the bytes of the last split that may be others.
        let (mut end, mut unlisted) = (0, 0);
        for entry in &summary.chunks {
            if index.anchors.binary_search(&entry.chunk_start).is_err() {
                continue;
            }
            note_unlisted(&mut last, &mut unlisted, end..entry.chunk_start);
            if last.bytes >= Some(target) && is_there(entry)? {
                let next = Split { start: entry.chunk_start, ..whole(0) };
                let full = std::mem::replace(&mut last, next);
                splits.push(Split { end: Some(entry.chunk_start), ..full });
                unlisted = 0;
            }
            end = entry.chunk_start.saturating_add(entry.chunk_len);
            end = end.saturating_add(entry.message_indexes_len);
            let plain =
                entry.plain_len.clamp(entry.packed_len, self.max_chunk.0.max(entry.packed_len));
            last.bytes = last.bytes.map(|bytes| bytes.saturating_add(plain.max(1)));
        }
        note_unlisted(&mut last, &mut unlisted, end..summary.start);
        splits.push(last);
        Ok(splits)
    }
}

/// The bytes of a split in which chunks that the index does not list cannot hold much.
const MAX_UNLISTED: u64 = 4 << 10;

/// Adds a range between listed chunks to those of its split. If they may hold any number of bytes,
/// so may the split.
fn note_unlisted(split: &mut Split, unlisted: &mut u64, range: Range<u64>) {
    *unlisted = unlisted.saturating_add(range.end.saturating_sub(range.start));
    if *unlisted > MAX_UNLISTED {
        split.bytes = split.bytes.max(Some(Split::MAX_TASK_BYTES + 1));
    }
}

impl McapSource {
    /// What is found wrong with a file that is read as a stream. If it has no damage, all records
    /// are compared with the summary.
    fn stream_faults(&self, input: &Path, index: &FileIndex) -> Result<Vec<String>, Error> {
        let collected = Arc::new(InputFaults::collecting());
        let mut context = ReadContext::standalone("");
        context.run = context.run.sharing(&collected);
        let split = Split::whole(input, None);
        let mut reader = RecordReader::open(input, &split, None, self.max_chunk, &context)?;
        let mut is_damaged = false;
        while reader.next_batch()?.is_some() {
            is_damaged |= !context.damage.take_list().is_empty();
        }
        is_damaged |= !context.damage.take_list().is_empty();
        if is_damaged {
            collected.add(checksums::data_section_fault_of(input, index)?);
        }
        Ok(collected.take())
    }
}

impl Source for McapSource {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let inputs = self.inputs()?;
        files::refuse_foreign(&inputs, InputContent::Any, "an MCAP file")?;
        let mut splits = Vec::new();
        for Input { path, bytes } in inputs {
            let index = if bytes.is_some() { self.index(&path)? } else { None };
            match index {
                Some(index) => splits.extend(self.cut(&path, &index, target)?),
                None => splits.push(Split::whole(path, None)),
            }
        }
        Ok(splits)
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        let index = self.index(input)?;
        let summary = index.as_ref().and_then(|index| index.summary());
        let is_right = index.as_ref().is_some_and(|index| inspect::faults(index).is_empty());
        let statistics = summary.and_then(|summary| summary.statistics.as_ref());
        Ok(statistics.filter(|_| is_right).map(|statistics| statistics.messages))
    }

    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        match self.index(input)? {
            Some(index) => inspect::findings(input, &index),
            None if files::is_stream(input) => Ok(Vec::new()),
            None => inspect::findings_of_compressed(input),
        }
    }

    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        let Some(index) = self.index(input)? else { return Ok(Vec::new()) };
        let known = inspect::faults(&index);
        let mut faults = self.stream_faults(input, &index)?;
        faults.retain(|fault| !known.contains(fault));
        Ok([known, faults].concat())
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let inputs = context.run.shared::<InputFiles>();
        let index = FileIndex::cached(&self.indexes, &split.input, &inputs)?;
        let reader = RecordReader::open(&split.input, split, index, self.max_chunk, context)?;
        Ok(Box::new(reader))
    }
}
