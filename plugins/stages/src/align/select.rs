//! The first half of `align`, without state and on all cores: selects the events of the channels
//! that are read, and the values of their fields in the form in which they are aligned.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StructArray, UInt32Array,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::take::take;
use sluice_model::{
    Batch, Channel, ChannelId, Error, FieldPath, Map, MapQuery, MessageType, Pattern, Payloads,
    PerChannel, Rows, RowsEffect, StageContext, TypeKey,
};
use sluice_views::Times;

use super::plan::AlignPlan;
use super::values::{describe, track_values};

/// The map.
pub(super) struct SelectMap {
    plan: Arc<AlignPlan>,
    /// The channel of the plan.
    channels: PerChannel<Option<usize>>,
    message: Arc<MessageType>,
}

/// The column of an input's own times.
pub(super) fn time_column(input: usize) -> String {
    format!("time {input}")
}

/// The column of a track's values.
pub(super) fn value_column(track: usize) -> String {
    format!("value {track}")
}

impl SelectMap {
    pub(super) fn new(plan: Arc<AlignPlan>) -> Self {
        let message = Arc::new(MessageType::part("values to align", TypeKey(0)));
        Self { plan, channels: PerChannel::default(), message }
    }

    /// The values of the rows of one channel of the plan: `rows` are their numbers, all if `None`.
    fn values(
        &self,
        of: &Rows,
        channel: usize,
        rows: Option<&[u32]>,
        context: &mut StageContext<'_>,
    ) -> Result<Rows, Error> {
        let name = &self.plan.channels[channel].name;
        let events: Vec<u32> = match rows {
            Some(rows) => rows.iter().map(|row| of.events[*row as usize]).collect(),
            None => of.events.clone(),
        };
        let numbers = rows.map(|rows| UInt32Array::from(rows.to_vec()));
        let mut columns: Vec<(String, ArrayRef)> = Vec::new();
        for input in &self.plan.channels[channel].inputs {
            if let Some((path, unit)) = &self.plan.inputs[*input].time {
                if let Some(times) = Times::resolve(path, *unit, &of.columns) {
                    let times: Int64Array = (0..of.events.len()).map(|row| times.at(row)).collect();
                    let times = picked(Arc::new(times), numbers.as_ref())?;
                    columns.push((time_column(*input), times));
                } else if let Some(values) = path.resolve(&of.columns) {
                    return Err(no_time(name, path, values.data_type()));
                } else {
                    note_missing(context, name, path, events.len());
                }
            }
            for track in &self.plan.inputs[*input].tracks {
                let plan = &self.plan.tracks[*track];
                let found = match &plan.path {
                    Some(path) => path.resolve(&of.columns),
                    None => Some(Arc::new(StructArray::from(of.columns.clone())) as ArrayRef),
                };
                let Some(values) = found else {
                    plan.path.iter().for_each(|p| note_missing(context, name, p, events.len()));
                    continue;
                };
                let values = picked(values, numbers.as_ref())?;
                let values = track_values(plan, &values, context)?;
                columns.push((value_column(*track), values));
            }
        }
        let fields = columns
            .iter()
            .map(|(name, column)| Field::new(name.as_str(), column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(events.len()));
        let columns = RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|error| Error::internal(format!("columns to align: {error}")))?;
        let message = Arc::clone(&self.message);
        Ok(Rows { message, payloads: Payloads::Gone, events, columns })
    }

    /// The values of all selected events of these rows.
    fn select_rows(
        &self,
        of: &Rows,
        channel_of: impl Fn(u32) -> Option<usize>,
        selected: &mut Vec<Rows>,
        context: &mut StageContext<'_>,
    ) -> Result<(), Error> {
        let mut by_channel: Vec<Vec<u32>> = vec![Vec::new(); self.plan.channels.len()];
        for (row, event) in (0..).zip(&of.events) {
            if let Some(channel) = channel_of(*event) {
                by_channel[channel].push(row);
            }
        }
        for (channel, rows) in by_channel.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let some = (rows.len() < of.events.len()).then_some(rows.as_slice());
            let values = self.values(of, channel, some, context)?;
            if values.columns.num_columns() > 0 {
                selected.push(values);
            }
        }
        Ok(())
    }

    /// Notes selected events without rows, if their fields are needed.
    fn note_undecoded(&self, batch: &Batch, events: &[bool], context: &mut StageContext<'_>) {
        let is_decoded = batch.decoded_mask();
        let needs_rows = |channel: &Channel| {
            let of = self.plan.channels.iter().find(|plan| plan.name == channel.name.text());
            let inputs = of.map(|of| of.inputs.as_slice()).unwrap_or_default();
            let needs = |input: &usize| {
                let input = &self.plan.inputs[*input];
                input.time.is_some() || !input.tracks.is_empty()
            };
            inputs.iter().any(needs)
        };
        for (event, channel) in batch.channels().iter().enumerate() {
            if events[event] && !is_decoded[event] {
                let channel = context.channels.get(ChannelId(*channel));
                if needs_rows(&channel) {
                    let name = channel.name.text();
                    let note = format!(
                        "`{name}`: not decoded, so it has no fields: no stage `decode` before it \
                         knows the type"
                    );
                    context.note(note, 1);
                }
            }
        }
    }
}

fn picked(values: ArrayRef, rows: Option<&UInt32Array>) -> Result<ArrayRef, Error> {
    let Some(rows) = rows else { return Ok(values) };
    take(&values, rows, None).map_err(|error| Error::internal(format!("rows to align: {error}")))
}

fn no_time(channel: &str, path: &FieldPath, kind: &DataType) -> Error {
    let kind = describe(kind);
    Error::invalid(format!(
        "the `time` of `{channel}`, `{path}`, is {kind}: expected a number, a timestamp, or \
         a structure of seconds and nanoseconds"
    ))
}

fn note_missing(context: &mut StageContext<'_>, channel: &str, path: &FieldPath, events: usize) {
    context.note(format!("`{channel}`: messages without a field `{path}`"), events as u64);
}

impl Map for SelectMap {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let of = |channel: &Channel| {
            let name = channel.name.text();
            Ok(self.plan.channels.iter().position(|plan| plan.name == name))
        };
        let channels = self.channels.table(context.channels, of)?;
        // Sources may skip events outside the window, so none of them may have an effect.
        let selected: Vec<bool> = (batch.channels().iter().zip(batch.timestamps()))
            .map(|(channel, time)| {
                channels[*channel as usize].is_some() && context.window.wants_time(*time)
            })
            .collect();
        let channel_of = |event: u32| {
            let channel = channels[batch.channels()[event as usize] as usize];
            channel.filter(|_| selected[event as usize])
        };
        let mut rows = Vec::new();
        for of in batch.rows() {
            self.select_rows(of, channel_of, &mut rows, context)?;
        }
        self.note_undecoded(&batch, &selected, context);
        let batch = batch.with_rows(rows).without_payloads();
        Ok(crate::keep(&batch, context, |event| selected[event]))
    }

    fn query(&self) -> MapQuery {
        MapQuery {
            channels: self.plan.channel_query(),
            keeps_times: true,
            keeps_channels: true,
            ..MapQuery::default()
        }
    }

    fn named_fields(&self) -> Vec<(&'static str, FieldPath)> {
        let fields = self.plan.tracks.iter().filter_map(|track| track.path.clone());
        let times = self.plan.inputs.iter().filter_map(|input| Some(input.time.clone()?.0));
        let fields = fields.map(|field| ("fields", field));
        let mut fields: Vec<_> = fields.chain(times.map(|field| ("time", field))).collect();
        fields.sort();
        fields.dedup();
        fields
    }

    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        self.plan.named_patterns().collect()
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Unclear
    }
}
