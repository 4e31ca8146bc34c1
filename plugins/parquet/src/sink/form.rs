//! The form of a table: its columns and how they are encoded, told from its first row group.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::add_encoded_arrow_schema_to_metadata;
use parquet::arrow::arrow_writer::ArrowRowGroupWriterFactory;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::SchemaDescPtr;
use sluice_core::unnest::UnnestPiece;
use sluice_core::{Batch, ChannelId, Channels, Error, MessageType, SinkContext};

use super::tables::Key;
use super::{Compression, Order, ParquetSink};
use crate::encoding::{self, Choice};
use crate::group::{GroupEncoder, unfit};
use crate::meta::CREATED_BY;
use crate::shape::{self, PAYLOAD, Shape};
use crate::taking::Taking;

/// How long pages are before compression. zstd works on what lies in a core's own cache: with pages of a
/// quarter of a megabyte it takes a tenth to a sixth less time than with a whole one, for 0.2 % (by
/// channel) to 1 % (by time) more bytes.
const PAGE: usize = 256 << 10;

/// What is known of a table once its first row group is full.
#[derive(Clone)]
pub(super) struct Form {
    pub(super) encoder: Arc<GroupEncoder>,
    pub(super) schema: SchemaDescPtr,
    pub(super) properties: WriterPropertiesPtr,
    pub(super) message: Option<Arc<MessageType>>,
}

impl ParquetSink {
    fn compression(&self) -> Result<Codec, Error> {
        Ok(match self.compression {
            Compression::Zstd => Codec::ZSTD(ZstdLevel::try_new(self.level).map_err(unfit)?),
            Compression::Snappy => Codec::SNAPPY,
            Compression::None => Codec::UNCOMPRESSED,
        })
    }

    /// The form of a table whose first row group holds these events.
    pub(super) fn form(
        &self,
        key: &Key,
        first: &[UnnestPiece],
        taking: &Arc<Taking>,
        context: &SinkContext,
    ) -> Result<Form, Error> {
        let sample = sample(first, taking)?;
        let mut shape = Shape::of(&sample, key.is_none(), self.has_payload(key));
        shape.nanos = self
            .timestamp_ns
            .unwrap_or_else(|| first.iter().map(UnnestPiece::batch).any(shape::is_fine));
        // Formats that say more of a channel than its name may say it of several with one name.
        shape.variant = key.is_none() && says_more(first, &context.channels);
        let arrow = shape.schema();
        let schema = ArrowSchemaConverter::new().convert(&arrow).map_err(unfit)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(format!("{CREATED_BY}{}", env!("CARGO_PKG_VERSION")))
            .set_compression(self.compression()?)
            .set_data_page_size_limit(PAGE)
            .set_statistics_enabled(EnabledStatistics::Page);
        let leaves = shape::leaves(&shape.columns(&sample, &context.channels, &[])?);
        for (column, leaf) in schema.columns().iter().zip(&leaves) {
            let path = column.path().clone();
            if column.name() == PAYLOAD && shape.payload {
                // The least and greatest of payloads tell nothing.
                properties =
                    properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
            }
            properties = match encoding::choose(leaf) {
                Choice::Dictionary => properties.set_column_dictionary_enabled(path, true),
                Choice::Plain(encoding) => properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, encoding),
            };
        }
        let mut properties = properties.build();
        add_encoded_arrow_schema_to_metadata(&arrow, &mut properties);
        let properties = Arc::new(properties);
        // Row groups are encoded before their file exists; the library wants to see one.
        let root = schema.root_schema_ptr();
        let stand_in = SerializedFileWriter::new(io::sink(), root, Arc::clone(&properties));
        let stand_in = stand_in.map_err(unfit)?;
        let columns = ArrowRowGroupWriterFactory::new(&stand_in, Arc::clone(&arrow));
        let message = sample.rows().first().map(|rows| Arc::clone(&rows.message));
        let encoder = GroupEncoder {
            by_channel: self.order == Order::Channel && shape.channel,
            shape,
            schema: arrow,
            columns,
            channels: Arc::clone(&context.channels),
            taking: Arc::clone(taking),
        };
        Ok(Form { encoder: Arc::new(encoder), schema: Arc::new(schema), properties, message })
    }
}

/// Whether anything is said of the channels of these events beside name, source and encoding.
fn says_more(pieces: &[UnnestPiece], channels: &Channels) -> bool {
    let all = pieces.iter().flat_map(|piece| piece.batch().channels());
    let used: BTreeSet<u32> = all.copied().collect();
    used.into_iter().any(|id| !channels.get(ChannelId(id)).metadata.is_empty())
}

/// The first rows of these pieces, as many as encodings are chosen by.
fn sample(pieces: &[UnnestPiece], taking: &Taking) -> Result<Batch, Error> {
    const ROWS: usize = 8192;
    let (mut batches, mut picks) = (Vec::new(), Vec::new());
    for (n, piece) in pieces.iter().enumerate() {
        if picks.len() >= ROWS {
            break;
        }
        let rows = taking.rows(piece)?;
        let count = rows.len().min(ROWS - picks.len());
        picks.extend((0..count).map(|row| (n as u32, row as u32)));
        batches.push(rows);
    }
    Ok(Batch::interleave(&batches, &picks))
}
