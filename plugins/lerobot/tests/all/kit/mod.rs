//! Test fixtures: batches of rows, and sink and source run by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, Float64Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow_schema::{DataType, Field};
use jpeg_encoder::{ColorType, Encoder};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use sluice_io::tasks::TaskPool;
use sluice_lerobot as _;
use sluice_model::{
    Batch, BatchBuilder, BlockPool, Channel, Encoding, Error, MessageType, Name, Outputs,
    Overwrite, Payloads, PrepareContext, Query, ReadContext, Registry, Rows, SinkContext,
    SplitStart, TypeKey, Written,
};

/// The time of the first row: 2007-11-03T14:00:00Z.
pub(crate) const BEGIN: i64 = 1_194_098_400_000_000_000;

/// Nanoseconds between rows at ten per second.
pub(crate) const STEP: i64 = 100_000_000;

/// Rows of one channel: their times and columns.
#[derive(Clone)]
pub(crate) struct TestRows {
    pub(crate) times: Vec<i64>,
    pub(crate) columns: Vec<(&'static str, ArrayRef)>,
    pub(crate) source: &'static str,
}

impl TestRows {
    /// Rows on a grid of ten per second.
    pub(crate) fn on_grid(count: usize, columns: Vec<(&'static str, ArrayRef)>) -> Self {
        let times = (0..count as i64).map(|n| BEGIN + n * STEP).collect();
        Self { times, columns, source: "log" }
    }

    /// As a batch.
    pub(crate) fn batch(&self, context: &SinkContext) -> Batch {
        let channel = Channel::new(Name::from_text("aligned"), self.source, Encoding::Unknown);
        let channel = context.channels.intern(channel).unwrap();
        let mut builder = BatchBuilder::default();
        for (number, time) in self.times.iter().enumerate() {
            builder.push_copy(*time, number as i64, channel, b"");
        }
        let fields: Vec<(&str, ArrayRef, bool)> =
            self.columns.iter().map(|(name, array)| (*name, Arc::clone(array), true)).collect();
        builder.finish().with_rows(vec![Rows {
            message: MessageType::named("aligned", TypeKey(7)).into(),
            payloads: Payloads::Gone,
            events: (0..self.times.len() as u32).collect(),
            columns: RecordBatch::try_from_iter_with_nullable(fields).unwrap(),
        }])
    }
}

/// Numbers of one per row.
pub(crate) fn doubles(values: impl IntoIterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values))
}

pub(crate) fn ints(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

pub(crate) fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

/// Lists of `len` numbers that rise.
pub(crate) fn vectors(rows: usize, len: i32) -> ArrayRef {
    let values = doubles((0..rows * len as usize).map(|n| n as f64 / 10.0));
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    Arc::new(FixedSizeListArray::new(item, len, values, None))
}

pub(crate) fn files(files: Vec<Vec<u8>>) -> ArrayRef {
    Arc::new(BinaryArray::from_iter_values(files))
}

/// A JPEG file of one colour.
pub(crate) fn jpeg(width: u16, height: u16, shade: u8, color: ColorType) -> Vec<u8> {
    let channels = if color == ColorType::Luma { 1 } else { 3 };
    let pixels = vec![shade; usize::from(width) * usize::from(height) * channels];
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, 90).encode(&pixels, width, height, color).unwrap();
    bytes
}

/// The result of writing rows.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) written: u64,
    pub(crate) left_out: usize,
    pub(crate) refused: Vec<(u32, String)>,
    pub(crate) notes: Vec<(String, u64)>,
}

impl Outcome {
    /// The count of the note that contains a text.
    pub(crate) fn noted(&self, text: &str) -> Option<u64> {
        self.notes.iter().find(|(what, _)| what.contains(text)).map(|(_, count)| *count)
    }
}

pub(crate) fn context() -> SinkContext {
    let outputs = Arc::new(Outputs::new(Overwrite::Refuse, true, &[]));
    SinkContext { outputs, memory: 64 << 20, ..SinkContext::standalone() }
}

/// Writes rows, a batch each, through the sink with these options.
pub(crate) fn write(folder: &Path, rows: &[TestRows], more: Value) -> Result<Outcome, Error> {
    write_with(&context(), folder, rows, more)
}

pub(crate) fn write_with(
    context: &SinkContext,
    folder: &Path,
    rows: &[TestRows],
    more: Value,
) -> Result<Outcome, Error> {
    let batches = rows.iter().map(|rows| rows.batch(context)).collect();
    write_batches(context, folder, batches, more)
}

pub(crate) fn write_batches(
    context: &SinkContext,
    folder: &Path,
    batches: Vec<Batch>,
    more: Value,
) -> Result<Outcome, Error> {
    let mut options = json!({ "path": folder });
    let more = more.as_object().cloned().unwrap_or_default();
    options.as_object_mut().unwrap().extend(more);
    let sink = Registry::linked().sink("lerobot", options).unwrap();
    let mut output = sink.open(context, &TaskPool::thread_per_task(2))?;
    let buffers = BlockPool::new(64, 2);
    let (mut outcome, mut written) = (Outcome::default(), Written::default());
    for batch in batches {
        let mut preparing = PrepareContext::new(&context.channels, &buffers);
        let block = sink.prepare(batch, &mut preparing)?;
        outcome.refused.append(&mut preparing.report.refused);
        written.add(output.push(block)?);
    }
    written.add(output.finish()?);
    (outcome.written, outcome.left_out) = (written.events, written.skipped.len());
    outcome.notes = written.notes;
    let manifest = |folder: &Path, files: &[sluice_io::output::PublishedFile]| {
        let listed: Vec<Value> = files
            .iter()
            .map(|file| json!({ "path": file.path.strip_prefix(folder).unwrap(), "rows": file.rows }))
            .collect();
        Ok(json!({ "files": listed }).to_string())
    };
    context.outputs.publish(manifest)?;
    Ok(outcome)
}

/// What a source reads, in splits of about `target` bytes.
pub(crate) fn read(path: Value, target: u64, context: &ReadContext) -> Result<Vec<Batch>, Error> {
    let source = Registry::linked().source("lerobot", json!({ "path": path })).unwrap();
    let mut batches = Vec::new();
    for split in source.splits(target, &Query::default())? {
        let mut reader = source.read(&split, SplitStart::At(split.start), context)?;
        while let Some(batch) = reader.next_batch()? {
            batches.push(batch);
        }
    }
    Ok(batches)
}

pub(crate) fn read_json(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

pub(crate) fn info(folder: &Path) -> Value {
    read_json(folder.join("meta/info.json"))
}

/// The rows of a file, and the number of its row groups.
pub(crate) fn table(path: &Path) -> (RecordBatch, usize) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
    let groups = builder.metadata().num_row_groups();
    let schema = Arc::clone(builder.schema());
    let batches: Vec<RecordBatch> = builder.build().unwrap().map(Result::unwrap).collect();
    (arrow_select::concat::concat_batches(&schema, &batches).unwrap(), groups)
}

/// The first data file.
pub(crate) fn data(folder: &Path) -> (RecordBatch, usize) {
    table(&folder.join("data/chunk-000/file-000.parquet"))
}

pub(crate) fn int_column(rows: &RecordBatch, name: &str) -> Vec<i64> {
    let column = rows.column_by_name(name).unwrap_or_else(|| panic!("no column `{name}`"));
    assert_eq!(column.null_count(), 0);
    column.as_primitive::<Int64Type>().values().to_vec()
}

pub(crate) fn float_column(rows: &RecordBatch, name: &str) -> Vec<f32> {
    rows.column_by_name(name).unwrap().as_primitive::<Float32Type>().values().to_vec()
}

/// All files below a folder with their bytes.
pub(crate) fn snapshot(folder: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut left) = (std::collections::BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}
