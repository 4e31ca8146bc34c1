//! Source `ros1-bag`: options, splits, and what bags say of themselves.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_io::files::{self, InputFiles};
use sluice_model::options::{ByteSize, InPaths};
use sluice_model::{
    Error, Input, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

mod checks;
mod chunk;
mod connections;
mod index;
mod reader;
mod skip;
mod window;
mod wire;

use index::{BagIndex, IndexCache};
use reader::BagReader;

use crate::splits;

/// Reads bags of ROS 1.
///
/// Damage is skipped and reported. Events come in the order of the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BagSource {
    /// The bags: a file, a glob, a list of them, or `-` for standard input, read in this order.
    /// Files compressed with zstd are decompressed.
    path: InPaths,
    /// The longest chunk accepted, uncompressed. A damaged bag can claim any length.
    #[serde(default = "default_max_chunk")]
    max_chunk: ByteSize,
    #[serde(skip)]
    indexes: IndexCache,
}

/// The longest chunk by default.
const DEFAULT_MAX_CHUNK: u64 = 256 << 20;

fn default_max_chunk() -> ByteSize {
    ByteSize(DEFAULT_MAX_CHUNK)
}

fn sniff(head: &[u8]) -> SniffResult {
    // Of other versions, the error of this source says what to do.
    if head.starts_with(b"#ROSBAG V") { SniffResult::Yes } else { SniffResult::No }
}

sluice_model::register! {
    source "ros1-bag": BagSource,
    about: "reads bags of ROS 1, including damaged and unfinished ones",
    sample: include_str!("../../samples/ros1-bag.toml"),
    extensions: &["bag"],
    sniff: sniff,
    types: &["embedded"],
    sensors_share_names: true,
}

impl BagSource {
    /// The index of a bag as it is now.
    fn index(&self, path: &Path) -> Result<Option<Arc<BagIndex>>, Error> {
        self.indexes.get(path, &InputFiles::default(), self.max_chunk)
    }

    /// Splits of about `target` uncompressed bytes each, which start at chunks. A bag without a
    /// usable index is one split: only reading it tells its connections.
    fn cut(path: &Path, index: &BagIndex, target: u64) -> Vec<Split> {
        let Some(usable) = index.usable() else { return vec![Split::unbounded(path, index.len)] };
        let units = usable.chunks.iter().map(|chunk| (chunk.at, u64::from(chunk.plain_len).max(1)));
        splits::cut(path, units, target)
    }
}

impl Source for BagSource {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let mut splits = Vec::new();
        for Input { path, bytes } in self.inputs()? {
            let index = if bytes.is_some() { self.index(&path)? } else { None };
            match index {
                Some(index) => splits.extend(Self::cut(&path, &index, target)),
                None => splits.push(Split::whole(path, None)),
            }
        }
        Ok(splits)
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        let index = self.index(input)?;
        Ok(index.as_deref().and_then(BagIndex::usable).map(|index| index.messages))
    }

    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        let Some(index) = self.index(input)? else { return Ok(Vec::new()) };
        let mut findings = Vec::new();
        for (compression, count) in index.compressions() {
            let compression = compression.name();
            findings.push(format!("chunks with the compression `{compression}`: {count}"));
        }
        findings.extend(fault(&index));
        Ok(findings)
    }

    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        match self.index(input)? {
            Some(index) if index.usable().is_some() => {
                checks::faults(InputFiles::default().open(input)?, &index.chunks, self.max_chunk)
            }
            index => Ok(index.as_deref().and_then(fault).into_iter().collect()),
        }
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let inputs = context.run.shared::<InputFiles>();
        let index = self.indexes.get(&split.input, &inputs, self.max_chunk)?;
        let split_start = (split, entry);
        let reader = BagReader::open(&split.input, split_start, index, self.max_chunk, context)?;
        Ok(Box::new(reader))
    }
}

fn fault(index: &BagIndex) -> Option<String> {
    index.fault.as_ref().map(|why| format!("the index cannot be used: {why}"))
}
