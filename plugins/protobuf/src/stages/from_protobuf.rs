//! Stage `from-protobuf`: restores the messages that `to-protobuf` has carried as protobuf.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::BinaryArray;
use arrow_array::RecordBatch;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::{
    Batch, Channel, ChannelId, Error, Map, MapQuery, OptionsError, Payloads, PerChannel, Rows,
    Stage, StageContext,
};

use super::{CHANNEL, OriginalChannel, TypedLayer};

/// Options of `from-protobuf`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FromProtobuf {
    /// Whether to note the views that are dropped. Generated pipelines do if channels are named:
    /// otherwise nobody misses views, which only show what other events hold.
    note_views: bool,
}

sluice_model::register! {
    stage "from-protobuf": FromProtobuf,
    about: "restores messages that to-protobuf has carried as protobuf",
    sample: include_str!("../../samples/from-protobuf.toml"),
}

impl TryFrom<FromProtobuf> for Stage {
    type Error = OptionsError;

    fn try_from(options: FromProtobuf) -> Result<Self, OptionsError> {
        let FromProtobuf { note_views } = options;
        Ok(Stage::Map(Box::new(Restore { note_views, ..Restore::default() })))
    }
}

#[derive(Debug, Default)]
struct Restore {
    note_views: bool,
    /// The layers so far: channels of one type share theirs.
    layers: Mutex<Vec<Arc<TypedLayer>>>,
    plans: PerChannel<ChannelPlan>,
}

const DROPPED_VIEWS: &str = "events of views, which only show what other channels hold; dropped: a \
                             conversion to MCAP keeps them, or a pipeline without `from-protobuf`";

/// What happens to the events of a channel.
#[derive(Clone, Debug)]
enum ChannelPlan {
    /// They pass.
    Pass,
    /// They only show what others hold.
    Drop,
    /// They are restored on the channel they came from.
    Restore { layer: usize, of: Arc<TypedLayer>, channel: ChannelId },
    /// They should be restored, but cannot be.
    Broken(Arc<str>),
}

impl Restore {
    fn plan(&self, channel: &Channel, context: &StageContext<'_>) -> Result<ChannelPlan, Error> {
        if channel.is_view() {
            return Ok(ChannelPlan::Drop);
        }
        let layer = match TypedLayer::from_channel(channel) {
            Ok(Some(layer)) => layer,
            Ok(None) => return Ok(ChannelPlan::Pass),
            Err(reason) => return Ok(ChannelPlan::Broken(reason.into())),
        };
        let original = channel.metadata.get(CHANNEL).map_or("{}", String::as_str);
        let original: OriginalChannel = match serde_json::from_str(original) {
            Ok(original) => original,
            Err(e) => {
                return Ok(ChannelPlan::Broken(format!("its metadata `{CHANNEL}`: {e}").into()));
            }
        };
        let id = context.channels.intern(original.restore(channel))?;
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = layers.iter().position(|known| known.is_same(&layer));
        let at = known.unwrap_or_else(|| {
            layers.push(Arc::new(layer));
            layers.len() - 1
        });
        let of = Arc::clone(&layers[at]);
        Ok(ChannelPlan::Restore { layer: at, of, channel: id })
    }

    /// Restores the events of a layer: their rows, which have no payloads.
    fn restore(
        &self,
        batch: &Batch,
        layer: &TypedLayer,
        events: &[u32],
        context: &mut StageContext<'_>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let mut bad = Vec::new();
        let restored = layer.decode(batch, events, &mut bad)?;
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        for (event, reason) in bad {
            *reasons.entry(reason).or_default() += 1;
            context.report.undecoded.push(batch.origins()[event as usize]);
        }
        for (reason, count) in reasons {
            let name = &layer.message().name;
            context.note(format!("message of `{name}` not restored: {reason}"), count);
        }
        Ok(restored)
    }
}

impl Map for Restore {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let channels = context.channels;
        let plans = self.plans.table(channels, |channel| self.plan(channel, context))?;
        let plan = |row: usize| &plans[batch.channels()[row] as usize];
        let kept = batch.retain(|row| !matches!(plan(row), ChannelPlan::Drop));
        let views = (batch.len() - kept.len()) as u64;
        context.report.filtered += views;
        if views > 0 && self.note_views {
            context.note(DROPPED_VIEWS, views);
        }
        let mut batch = kept;

        let gone = batch.decoded_only_mask();
        let mut groups: BTreeMap<usize, (&Arc<TypedLayer>, Vec<u32>)> = BTreeMap::new();
        let mut ids = batch.channels().to_vec();
        for (row, channel) in batch.channels().iter().enumerate() {
            match &plans[*channel as usize] {
                // Its rows are all that is left of the message.
                ChannelPlan::Restore { channel, .. } if gone.as_ref().is_some_and(|g| g[row]) => {
                    ids[row] = channel.0;
                }
                ChannelPlan::Restore { layer, of, .. } => {
                    let group = groups.entry(*layer).or_insert_with(|| (of, Vec::new()));
                    group.1.push(row as u32);
                }
                ChannelPlan::Broken(reason) => {
                    let name = context.channels.get(ChannelId(*channel)).name.text().to_owned();
                    context.note(format!("{name}: messages not restored: {reason}"), 1);
                    context.report.undecoded.push(batch.origins()[row]);
                }
                ChannelPlan::Pass | ChannelPlan::Drop => {}
            }
        }
        let (mut restored, mut is_restored) = (Vec::new(), vec![false; batch.len()]);
        for (layer, events) in groups.into_values() {
            let (events, columns) = self.restore(&batch, layer, &events, context)?;
            for event in &events {
                let event = *event as usize;
                is_restored[event] = true;
                if let ChannelPlan::Restore { channel, .. } = &plans[ids[event] as usize] {
                    ids[event] = channel.0;
                }
            }
            if events.is_empty() {
                continue;
            }
            let none = BinaryArray::from_iter_values(events.iter().map(|_| b""));
            batch = batch.with_payloads(&events, &none);
            let message = Arc::clone(layer.message());
            restored.push(Rows { message, payloads: Payloads::Gone, events, columns });
        }
        // What was decoded from the carried form gives way to the messages themselves.
        let others = batch.rows().iter();
        let others = others.filter_map(|rows| rows.pick_events(|row| !is_restored[row as usize]));
        let all = others.chain(restored).collect();
        let batch = if ids == batch.channels() { batch } else { batch.with_channels(ids) };
        Ok(batch.with_rows(all))
    }

    fn uses_rows(&self) -> bool {
        true
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, ..MapQuery::default() }
    }
}
