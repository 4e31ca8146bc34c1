//! The schema and column encodings of a table, chosen from its first row group.

use std::collections::BTreeSet;
use std::sync::Arc;

use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use sluice_kit::event_table::PAYLOAD;
use sluice_kit::unnest::UnnestPiece;
use sluice_model::{Batch, ChannelId, Channels, Error};

use super::tables::{ChannelVariants, TableBuffer, TableKey};
use super::{Compression, ParquetSink, RowSorting};
use crate::column_types::check_types;
use crate::columns::{self, TableColumns};
use crate::encoding::{self, ColumnEncoding};
use crate::group::{GroupEncoder, encode_error};
use crate::meta::CREATED_BY;
use crate::projection::TableProjection;
use crate::writers::{ColumnWriters, PAGE};

impl ParquetSink {
    fn compression(&self) -> Result<Codec, Error> {
        Ok(match self.compression {
            Compression::Zstd => Codec::ZSTD(ZstdLevel::try_new(self.level).map_err(encode_error)?),
            Compression::Snappy => Codec::SNAPPY,
            Compression::None => Codec::UNCOMPRESSED,
        })
    }

    /// The columns of a table whose first row group has these events.
    fn table_columns(
        &self,
        key: &TableKey,
        first: &[UnnestPiece],
        sample: &Batch,
        (channels, variants): (&Channels, &ChannelVariants),
    ) -> TableColumns {
        let has_nanos = || first.iter().map(UnnestPiece::batch).any(columns::has_sub_micros);
        TableColumns {
            nanos: self.timestamp_ns.unwrap_or_else(has_nanos),
            channel: key.is_none(),
            variant: key.is_none() && has_variants(first, channels, variants),
            fields: sample.rows().first().map(columns::message_fields).unwrap_or_default(),
            payload: self.has_payload_column(key),
        }
    }

    /// Refuses a type that Parquet does not have, or that nests so deep that its table could not be
    /// read back. All these events are of one table.
    pub(super) fn check_types(&self, events: &Batch) -> Result<(), Error> {
        if events.is_empty() {
            return Ok(());
        }
        let first = UnnestPiece::elements(events.slice(0, 1), 0..1);
        let rows = self.projection().rows(&first)?;
        let Some(rows) = rows.rows().first() else { return Ok(()) };
        check_types(rows.columns.schema_ref().fields()).map_err(|what| {
            Error::invalid(format!(
                "the type `{}` does not fit into a table: {what}; select others, or parts of it, \
                 with `fields`: {}",
                rows.message.name,
                self.path.0.display()
            ))
        })
    }

    /// The encoder of a table. `first` has the events of its first row group.
    pub(super) fn encoder(
        &self,
        table: &mut TableBuffer,
        first: &[UnnestPiece],
        channels: (&Arc<Channels>, &ChannelVariants),
    ) -> Result<Arc<GroupEncoder>, Error> {
        if let Some(encoder) = &table.encoder {
            return Ok(Arc::clone(encoder));
        }
        let encoder = Arc::new(self.new_encoder(&table.key, first, channels)?);
        table.encoder = Some(Arc::clone(&encoder));
        Ok(encoder)
    }

    fn new_encoder(
        &self,
        key: &TableKey,
        first: &[UnnestPiece],
        (channels, variants): (&Arc<Channels>, &ChannelVariants),
    ) -> Result<GroupEncoder, Error> {
        let projection = self.projection();
        let sample = sample(first, &projection)?;
        let table_columns = self.table_columns(key, first, &sample, (channels, variants));
        let arrow = table_columns.schema();
        let schema = ArrowSchemaConverter::new().convert(&arrow).map_err(encode_error)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(format!("{CREATED_BY}{}", env!("CARGO_PKG_VERSION")))
            .set_compression(self.compression()?)
            .set_data_page_size_limit(PAGE)
            .set_statistics_enabled(EnabledStatistics::Page);
        let leaves = columns::leaves(&table_columns.columns(&sample, channels, &[])?);
        for (column, leaf) in schema.columns().iter().zip(&leaves) {
            let path = column.path().clone();
            if column.name() == PAYLOAD && table_columns.payload {
                // Minimum and maximum of payloads are useless.
                properties =
                    properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
            }
            properties = match encoding::choose_encoding(leaf) {
                ColumnEncoding::Dictionary => properties.set_column_dictionary_enabled(path, true),
                ColumnEncoding::Plain(encoding) => properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, encoding),
            };
        }
        let writers = ColumnWriters::new(arrow, Arc::new(schema), Arc::new(properties.build()));
        Ok(GroupEncoder {
            by_channel: self.order == RowSorting::Channel && table_columns.channel,
            table_columns,
            writers: writers.map_err(encode_error)?,
            message: sample.rows().first().map(|rows| Arc::clone(&rows.message)),
            channels: Arc::clone(channels),
            projection,
        })
    }
}

/// Whether rows need the number of their channel's variant: a channel of these events is one of
/// several of a name, or is of a format with metadata of channels, where others may follow.
fn has_variants(pieces: &[UnnestPiece], channels: &Channels, variants: &ChannelVariants) -> bool {
    let all = pieces.iter().flat_map(|piece| piece.batch().channels());
    let used: BTreeSet<u32> = all.copied().collect();
    let has_metadata = |id: u32| !channels.get(ChannelId(id)).metadata.is_empty();
    used.into_iter().any(|id| variants.get(id) > 0 || has_metadata(id))
}

/// The first rows of these pieces, from which encodings are chosen.
fn sample(pieces: &[UnnestPiece], projection: &TableProjection) -> Result<Batch, Error> {
    const ROWS: usize = 8192;
    let (mut batches, mut picks) = (Vec::new(), Vec::new());
    for (n, piece) in pieces.iter().enumerate() {
        if picks.len() >= ROWS {
            break;
        }
        let rows = projection.rows(piece)?;
        let count = rows.len().min(ROWS - picks.len());
        picks.extend((0..count).map(|row| (n as u32, row as u32)));
        batches.push(rows);
    }
    Ok(Batch::interleave(&batches, &picks))
}
