//! Stage `to-protobuf`: decoded messages become protobuf, with descriptors made from their columns.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::BinaryArray;
use arrow_schema::SchemaRef;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use sluice_model::{
    Batch, Channel, ChannelId, Encoding, Error, Map, MapQuery, MessageType, Patterns, PayloadType,
    Payloads, PluginFactory, Registry, Rows, RowsEffect, Stage, StageContext, options,
};

use super::TypedLayer;

/// Options of `to-protobuf`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToProtobuf {
    /// The channels whose messages become protobuf. Default: all.
    channels: Patterns,
}

sluice_model::register! {
    stage "to-protobuf": ToProtobuf,
    make: PluginFactory::Stage(|value, registry| Ok(stage(options::read(value)?, registry))),
    about: "carries decoded messages as protobuf, which other programs can show",
    sample: include_str!("../../samples/to-protobuf.toml"),
}

fn stage(options: ToProtobuf, registry: &Registry) -> Stage {
    let (registry, state) = (registry.clone(), Mutex::default());
    Stage::Map(Box::new(Convert { channels: options.channels, registry, state }))
}

#[derive(Debug)]
struct Convert {
    channels: Patterns,
    /// Where codecs are found.
    registry: Registry,
    state: Mutex<Layers>,
}

/// The layers so far, and the channels that use them.
#[derive(Debug, Default)]
struct Layers {
    all: Vec<KnownLayer>,
    channels: HashMap<(u32, usize), ChannelId>,
    /// The channels with the declaration of their type, if there is a language for it.
    declared: HashMap<(u32, usize), Option<ChannelId>>,
}

/// The layer of rows of a type with these columns, or why there is none.
#[derive(Debug)]
struct KnownLayer {
    message: Arc<MessageType>,
    columns: SchemaRef,
    layer: Result<Arc<TypedLayer>, String>,
    /// The type itself, by its codec.
    own: Option<PayloadType>,
}

impl Convert {
    /// The index of the layer of these rows.
    fn layer(&self, rows: &Rows, state: &mut Layers) -> usize {
        let (message, columns) = (&rows.message, rows.columns.schema());
        let is_it = |known: &KnownLayer| {
            (Arc::ptr_eq(&known.message, message) || known.message == *message)
                && (Arc::ptr_eq(&known.columns, &columns) || known.columns == columns)
        };
        if let Some(at) = state.all.iter().position(is_it) {
            return at;
        }
        let layer = TypedLayer::new(message, &columns).map(Arc::new);
        let codec = self.registry.codec(&message.codec, json!({})).ok();
        let own = codec.and_then(|codec| codec.adopt(message, &columns).ok());
        let message = Arc::clone(message);
        state.all.push(KnownLayer { message, columns, layer, own });
        state.all.len() - 1
    }

    /// Encodes rows without payloads by their own codec, on channels that declare their types.
    /// Returns the events that have a payload then.
    fn restore(&self, batch: Batch, rows: &Rows) -> (Batch, Vec<u32>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.layer(rows, &mut state);
        let own = state.all.get(at).and_then(|known| known.own.clone());
        drop(state);
        let mut bad = Vec::new();
        let Some(Ok(payloads)) = own.map(|own| own.encode(&rows.columns, &mut bad)) else {
            return (batch, Vec::new());
        };
        let (good, payloads) = without_bad(rows, payloads, &bad);
        (batch.with_payloads(&good, &payloads), good)
    }

    /// The channel for messages of a channel in this layer.
    fn channel(
        &self,
        channel: u32,
        (at, layer): (usize, &TypedLayer),
        context: &StageContext<'_>,
    ) -> Result<u32, Error> {
        let known = |state: &Layers| state.channels.get(&(channel, at)).copied();
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = known(&lock()) {
            return Ok(id.0);
        }
        let id = context.channels.intern(layer.wrap(&context.channels.get(ChannelId(channel)))?)?;
        lock().channels.insert((channel, at), id);
        Ok(id.0)
    }

    /// Declares the type of these rows on the channels without a declaration, where there is a
    /// language for it: their messages can be shown as they are then. Returns the events for which
    /// that is done.
    fn declare_all(
        &self,
        batch: Batch,
        rows: &Rows,
        (channels, selected): (&mut [u32], &BTreeMap<u32, Selected>),
        context: &StageContext<'_>,
    ) -> Result<(Batch, Vec<u32>), Error> {
        let mut declaring: BTreeMap<u32, Option<ChannelId>> = BTreeMap::new();
        let mut last = None;
        for channel in rows.events.iter().filter_map(|event| channels.get(*event as usize)) {
            if last.replace(*channel) != Some(*channel) && !declaring.contains_key(channel) {
                let id = match selected.get(channel) {
                    Some(Selected::Yes) => self.declaring(rows, *channel, context)?,
                    // That may be all there is to declare.
                    Some(Selected::Empty) => {
                        let id = self.declaring(rows, *channel, context)?;
                        Some(id.unwrap_or(ChannelId(*channel)))
                    }
                    Some(Selected::Declared | Selected::No) | None => None,
                };
                declaring.insert(*channel, id);
            }
        }
        if declaring.values().all(Option::is_none) {
            return Ok((batch, Vec::new()));
        }
        let new_channel = |event: u32, channels: &[u32]| {
            declaring.get(channels.get(event as usize)?).copied().flatten()
        };
        let Some(picked) = rows.pick_events(|event| new_channel(event, channels).is_some()) else {
            return Ok((batch, Vec::new()));
        };
        let (batch, done) = match picked.payloads {
            Payloads::Gone => self.restore(batch, &picked),
            Payloads::Kept => (batch, picked.events),
        };
        for event in &done {
            let id = new_channel(*event, channels);
            if let Some((channel, id)) = channels.get_mut(*event as usize).zip(id) {
                *channel = id.0;
            }
        }
        Ok((batch, done))
    }

    /// A channel that declares the type of these rows; `None` if there is no language for it.
    fn declaring(
        &self,
        rows: &Rows,
        channel: u32,
        context: &StageContext<'_>,
    ) -> Result<Option<ChannelId>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (channel, self.layer(rows, &mut state));
        if let Some(known) = state.declared.get(&key) {
            return Ok(*known);
        }
        let channel = context.channels.get(ChannelId(channel));
        let codec = self.registry.codec(&rows.message.codec, json!({})).ok();
        let schema = codec.and_then(|codec| codec.declaration(&rows.message, &channel));
        let declaring = schema.map(|schema| Channel { schema: Some(schema), ..(*channel).clone() });
        let id = declaring.map(|declaring| context.channels.intern(declaring)).transpose()?;
        state.declared.insert(key, id);
        Ok(id)
    }

    /// Which channels are selected, and whether they declare their types.
    fn selected(&self, batch: &Batch, context: &StageContext<'_>) -> BTreeMap<u32, Selected> {
        let mut selected = BTreeMap::new();
        for channel in batch.channels() {
            selected.entry(*channel).or_insert_with(|| {
                let channel = context.channels.get(ChannelId(*channel));
                if !self.channels.is_empty() && !self.channels.matches(channel.name.text()) {
                    return Selected::No;
                }
                // JSON can be shown without a declaration.
                match &channel.schema {
                    _ if channel.encoding == Encoding::Json => Selected::Declared,
                    Some(schema) if schema.data.trim_ascii().is_empty() => Selected::Empty,
                    Some(_) => Selected::Declared,
                    None => Selected::Yes,
                }
            });
        }
        selected
    }

    fn convert(
        &self,
        batch: Batch,
        rows: &Rows,
        channels: &mut [u32],
        context: &mut StageContext<'_>,
    ) -> Result<(Batch, Vec<u32>), Error> {
        let name = &rows.message.name;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.layer(rows, &mut state);
        let layer = state.all.get(at).map_or(Err(String::new()), |known| known.layer.clone());
        drop(state);
        let mut bad = Vec::new();
        let encoded = layer.and_then(|layer| Ok((layer.encode(&rows.columns, &mut bad)?, layer)));
        let (messages, layer) = match encoded {
            Ok(encoded) => encoded,
            Err(reason) => {
                let count = rows.events.len() as u64;
                context.note(format!("messages of `{name}` not converted: {reason}"), count);
                return Ok((batch, Vec::new()));
            }
        };
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        bad.iter().for_each(|(_, reason)| *reasons.entry(reason).or_default() += 1);
        for (reason, count) in reasons {
            context.note(format!("message of `{name}` not converted: {reason}"), count);
        }
        let (good, messages) = without_bad(rows, messages, &bad);
        let mut last = None;
        for event in &good {
            let Some(channel) = channels.get_mut(*event as usize) else { continue };
            let id = match last {
                Some((same, id)) if same == *channel => id,
                _ => self.channel(*channel, (at, &layer), context)?,
            };
            last = Some((*channel, id));
            *channel = id;
        }
        Ok((batch.with_payloads(&good, &messages), good))
    }
}

/// Whether the messages of a channel become protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selected {
    No,
    Yes,
    /// Only those that have no payload and cannot be encoded: others can be shown as they are.
    Declared,
    /// Those as well, of a channel with an empty declaration, as recorders of ROS 2 write where
    /// they do not find a type: it may be given.
    Empty,
}

/// The events of the rows that were encoded, and their payloads.
fn without_bad(
    rows: &Rows,
    payloads: BinaryArray,
    bad: &[(u32, &'static str)],
) -> (Vec<u32>, BinaryArray) {
    if bad.is_empty() {
        return (rows.events.clone(), payloads);
    }
    let is_bad = |row: u32| bad.binary_search_by_key(&row, |(bad, _)| *bad).is_ok();
    let good = (0..).zip(&rows.events).filter(|(row, _)| !is_bad(*row));
    let good = good.map(|(_, event)| *event).collect();
    (good, BinaryArray::from_iter_values(payloads.iter().flatten()))
}

impl Map for Convert {
    fn apply(&self, mut batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let selected = self.selected(&batch, context);
        let mut channels = batch.channels().to_vec();
        let mut is_done = vec![false; batch.len()];
        let mut all = Vec::with_capacity(batch.rows().len());
        for rows in batch.rows().to_vec() {
            // Parts of messages are not what their events say, unless nothing else is left.
            let is_whole = rows.payloads == Payloads::Gone || !rows.message.is_part();
            let is_gone = rows.payloads == Payloads::Gone;
            let found = |event: u32| selected.get(&channels[event as usize]);
            let mut good = Vec::new();
            let declared = |event: u32| found(event) == Some(&Selected::Declared);
            if let Some(picked) = rows.pick_events(declared).filter(|_| is_gone) {
                (batch, good) = self.restore(batch, &picked);
                good.iter().for_each(|event| is_done[*event as usize] = true);
            }
            let more;
            (batch, more) = self.declare_all(batch, &rows, (&mut channels, &selected), context)?;
            more.iter().for_each(|event| is_done[*event as usize] = true);
            good.extend(more);
            let found = |event: u32| selected.get(&channels[event as usize]);
            let is_open = |event: u32| match found(event) {
                Some(Selected::Yes) => !is_done[event as usize],
                Some(Selected::Declared | Selected::Empty) => is_gone && !is_done[event as usize],
                Some(Selected::No) | None => false,
            };
            if let Some(picked) = rows.pick_events(is_open).filter(|_| is_whole) {
                let more;
                (batch, more) = self.convert(batch, &picked, &mut channels, context)?;
                more.iter().for_each(|event| is_done[*event as usize] = true);
                good.extend(more);
            }
            good.sort_unstable();
            all.extend(rows_after(rows, &good, &mut |event| {
                let origin = batch.origins()[event as usize];
                context.report.undecoded.push(origin);
            }));
        }
        let batch =
            if channels == batch.channels() { batch } else { batch.with_channels(channels) };
        Ok(batch.with_rows(all))
    }

    fn uses_rows(&self) -> bool {
        true
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, ..MapQuery::default() }
    }
}

/// The rows after those of the events `good` got a payload. Calls `left` for events without one.
fn rows_after(rows: Rows, good: &[u32], left: &mut dyn FnMut(u32)) -> Vec<Rows> {
    if rows.payloads == Payloads::Kept {
        return vec![rows];
    }
    let is_good = |event: u32| good.binary_search(&event).is_ok();
    let kept = rows.pick_events(is_good).map(|rows| Rows { payloads: Payloads::Kept, ..rows });
    let gone = rows.pick_events(|event| !is_good(event));
    gone.iter().flat_map(|rows| &rows.events).for_each(|event| left(*event));
    kept.into_iter().chain(gone).collect()
}
