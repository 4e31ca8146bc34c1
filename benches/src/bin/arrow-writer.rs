//! Writes a log as one Parquet table with the plain `parquet` crate: one thread, the crate's
//! defaults, no Sluice.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use arrow_array::builder::{
    BinaryBuilder, Int64Builder, StringDictionaryBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use clap::Parser;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use sluice_benches::bare;

/// The number of rows per write.
const ROWS: usize = 8192;
/// The payload bytes after which a row group is closed, unless the crate closes it earlier.
const ROW_GROUP: usize = 64 << 20;

#[derive(Parser)]
#[command(about)]
struct ArrowWriterArgs {
    /// The log to read
    log: PathBuf,
    /// The table to write
    out: PathBuf,
    /// none, snappy or zstd:LEVEL
    #[arg(long, default_value = "zstd:3", value_parser = compression)]
    compression: Compression,
}

fn compression(word: &str) -> anyhow::Result<Compression> {
    Ok(match word.split_once(':') {
        None if word == "none" => Compression::UNCOMPRESSED,
        None if word == "snappy" => Compression::SNAPPY,
        Some(("zstd", level)) => Compression::ZSTD(ZstdLevel::try_new(level.parse()?)?),
        _ => anyhow::bail!("expected none, snappy or zstd:LEVEL"),
    })
}

fn main() -> anyhow::Result<()> {
    let ArrowWriterArgs { log, out, compression } = ArrowWriterArgs::parse();
    let input = File::open(&log).with_context(|| format!("open {}", log.display()))?;
    let output = File::create(&out).with_context(|| format!("create {}", out.display()))?;
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut rows = RowBuilder::new();
    let mut writer = ArrowWriter::try_new(output, Arc::clone(&rows.schema), Some(properties))?;
    let mut waiting = 0;
    bare::for_each_event(input, |channel, payload, event| {
        rows.push(channel, payload, event).map_err(io::Error::other)?;
        waiting += payload.len();
        if rows.len == ROWS || waiting >= ROW_GROUP {
            writer.write(&rows.take().map_err(io::Error::other)?)?;
        }
        if waiting >= ROW_GROUP {
            writer.flush()?;
            waiting = 0;
        }
        Ok(())
    })?;
    writer.write(&rows.take()?)?;
    writer.close()?;
    Ok(())
}

/// Column builders, one row per event.
struct RowBuilder {
    schema: SchemaRef,
    len: usize,
    event_no: Int64Builder,
    timestamp: TimestampMicrosecondBuilder,
    channel: StringDictionaryBuilder<Int32Type>,
    payload: BinaryBuilder,
}

impl RowBuilder {
    fn new() -> Self {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let name = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let schema = Schema::new(vec![
            Field::new("event_no", DataType::Int64, false),
            Field::new("timestamp", time.clone(), false),
            Field::new("channel", name, false),
            Field::new("payload", DataType::Binary, false),
        ]);
        Self {
            schema: Arc::new(schema),
            len: 0,
            event_no: Int64Builder::with_capacity(ROWS),
            timestamp: TimestampMicrosecondBuilder::with_capacity(ROWS).with_data_type(time),
            channel: StringDictionaryBuilder::new(),
            payload: BinaryBuilder::new(),
        }
    }

    fn push(&mut self, channel: &[u8], payload: &[u8], event: &[u8]) -> anyhow::Result<()> {
        let (number, utime) = bare::number_and_utime(event);
        self.event_no.append_value(i64::try_from(number)?);
        self.timestamp.append_value(i64::try_from(utime)?);
        self.channel.append(str::from_utf8(channel)?)?;
        self.payload.append_value(payload);
        self.len += 1;
        Ok(())
    }

    /// The rows so far, as a batch.
    fn take(&mut self) -> anyhow::Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.event_no.finish()),
            Arc::new(self.timestamp.finish()),
            Arc::new(self.channel.finish()),
            Arc::new(self.payload.finish()),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.len = 0;
        Ok(batch)
    }
}
