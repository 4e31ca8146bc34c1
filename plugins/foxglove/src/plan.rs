//! What the stage does, resolved from its options: maps, and the stages that they use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use serde_json::{Value, json};
use sluice_model::{
    Batch, Channel, ChannelId, Error, Fold, Map, OptionsError, Patterns, PluginKind, Registry,
    Rows, Stage, StageContext,
};
use sluice_views::{Times, ViewMap, ViewNames, maps};

use crate::convert::ViewColumns;
use crate::options::FoxgloveOptions;
use crate::schema::ViewSchema;

/// The maps, and the stages that turn packets into points.
pub(crate) struct ViewPlan {
    pub(crate) maps: Vec<ViewMap>,
    /// How many of them are the options' own.
    own: usize,
    /// Which of those have met a type that they are for.
    types_met: Vec<AtomicBool>,
    channels: Patterns,
    /// By map.
    packets: BTreeMap<u16, Box<dyn Map>>,
}

/// A map and the columns it found.
pub(crate) struct ResolvedMap {
    pub(crate) map: u16,
    pub(crate) columns: ViewColumns,
}

impl ViewPlan {
    pub(crate) fn new(
        options: &mut FoxgloveOptions,
        registry: &Registry,
    ) -> Result<Self, OptionsError> {
        let own = std::mem::take(&mut options.map);
        let (count, maps) = (own.len(), maps(own, options.built_in)?);
        if maps.len() > usize::from(u16::MAX) {
            return Err(OptionsError::at("map", "more than 65,535 maps"));
        }
        let mut packets = BTreeMap::new();
        for (at, map) in (0u16..).zip(&maps) {
            let Some(velodyne) = &map.velodyne else { continue };
            if registry.get(PluginKind::Stage, "velodyne").is_none() {
                continue;
            }
            packets.insert(at, packet_stage(velodyne, registry)?);
        }
        let types_met = maps.iter().take(count).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { maps, own: count, types_met, channels: options.channels.clone(), packets })
    }

    /// Whether a map is one of the options' own.
    pub(crate) fn is_own(&self, map: u16) -> bool {
        usize::from(map) < self.own
    }

    /// Takes note of a type of messages.
    pub(crate) fn meet_type(&self, type_name: &str) {
        for (map, is_met) in self.maps.iter().zip(&self.types_met) {
            if !is_met.load(Ordering::Relaxed) && map.is_for_type(type_name) {
                is_met.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The options' own maps that are for types of which no message came.
    pub(crate) fn maps_without_types(&self) -> impl Iterator<Item = usize> {
        let maps = self.maps.iter().zip(&self.types_met).enumerate();
        let is_idle = |map: &ViewMap, is_met: &AtomicBool| {
            !map.types.is_empty() && !is_met.load(Ordering::Relaxed)
        };
        maps.filter(move |(_, (map, is_met))| is_idle(map, is_met)).map(|(at, _)| at)
    }

    /// Whether views of this channel are wanted. Views have none.
    pub(crate) fn is_shown(&self, channel: &Channel) -> bool {
        let is_wanted = self.channels.is_empty() || self.channels.matches(channel.name.text());
        is_wanted && !channel.metadata.contains_key(Channel::VIEW)
    }

    /// The first map for messages of a channel whose fields they have. `Err` has the first of the
    /// options' own maps whose fields they lack.
    pub(crate) fn resolve(
        &self,
        channel: &Channel,
        type_name: &str,
        columns: &RecordBatch,
    ) -> Result<Option<ResolvedMap>, usize> {
        let mut lacking = None;
        for (map, at) in self.maps.iter().zip(0u16..) {
            if !map.is_for(channel.name.text(), type_name) {
                continue;
            }
            match ViewColumns::resolve(map, columns) {
                Some(ViewColumns::Packets) if !self.packets.contains_key(&at) => {}
                Some(columns) => return Ok(Some(ResolvedMap { map: at, columns })),
                None if usize::from(at) < self.own => {
                    lacking.get_or_insert(usize::from(at));
                }
                None => {}
            }
        }
        lacking.map_or(Ok(None), Err)
    }

    /// The points of packets.
    pub(crate) fn points(
        &self,
        map: u16,
        batch: Batch,
        context: &StageContext<'_>,
    ) -> Result<Batch, Error> {
        match self.packets.get(&map) {
            // Its notes are those of a stage that nobody asked for.
            Some(stage) => {
                stage.apply(batch, &mut StageContext::new(context.channels, context.origin))
            }
            None => Ok(batch),
        }
    }

    /// The names for events of a channel by a map.
    pub(crate) fn names(&self, map: u16, channel: &Channel) -> Option<ViewNames> {
        self.maps.get(usize::from(map)).map(|map| map.names(channel))
    }

    /// A message's own time.
    pub(crate) fn time(&self, map: u16, rows: &Rows, row: usize) -> Option<i64> {
        let map = self.maps.get(usize::from(map))?;
        Times::resolve(map.time.as_ref()?, map.time_unit.nanos(), &rows.columns)?.at(row)
    }

    /// The number of a view's channel.
    pub(crate) fn channel(
        &self,
        (map, schema): (u16, ViewSchema),
        of: &Channel,
        context: &StageContext<'_>,
    ) -> Result<ChannelId, Error> {
        let map = self.maps.get(usize::from(map));
        let names = map.map(|map| map.names(of));
        let (topic, frame) = names.map(|names| (names.topic, names.frame)).unwrap_or_default();
        let is_scan = map.is_some_and(|map| map.scan.is_some());
        let topic = match schema {
            ViewSchema::FrameTransforms => return transforms_channel(of, context),
            ViewSchema::PointCloud if is_scan => format!("{topic}/points"),
            ViewSchema::CameraCalibration => format!("{topic}/calibration"),
            _ => topic,
        };
        let frame = if schema.lies_in_frame() { frame.as_str() } else { "" };
        context.channels.intern(schema.channel(&topic, of, frame))
    }
}

/// The channel of all transforms: one tree is one channel, whoever places its frames.
pub(crate) fn transforms_channel(
    of: &Channel,
    context: &StageContext<'_>,
) -> Result<ChannelId, Error> {
    let any = Channel { source: "".into(), name: sluice_model::Name::from_text(""), ..of.clone() };
    context.channels.intern(ViewSchema::FrameTransforms.channel("/tf", &any, ""))
}

fn packet_stage(options: &Value, registry: &Registry) -> Result<Box<dyn Map>, OptionsError> {
    let mut options = options.clone();
    if let Some(options) = options.as_object_mut() {
        options.insert("channels".into(), json!(["*"]));
    }
    let in_map = |mut e: OptionsError| {
        e.path.insert(0, "velodyne".into());
        e
    };
    let parts = registry.stage("velodyne", options).map_err(in_map)?.into_parts();
    match <[Stage; 1]>::try_from(parts) {
        Ok([Stage::Map(map)]) => Ok(map),
        _ => Err(OptionsError::at("velodyne", "the stage of that name keeps state")),
    }
}

/// The stage `georeference` that places poses by a channel of GPS references, as a sequence of
/// folds and maps; empty if the program does not have it.
pub(crate) fn georeference(gps: &str, registry: &Registry) -> Result<GlobeStage, OptionsError> {
    if registry.get(PluginKind::Stage, "georeference").is_none() {
        return Ok(GlobeStage { parts: Vec::new() });
    }
    let parts = registry.stage("georeference", json!({ "gps": gps }))?.into_parts();
    Ok(GlobeStage { parts })
}

/// A stage that is run batch by batch.
pub(crate) struct GlobeStage {
    parts: Vec<Stage>,
}

impl GlobeStage {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What comes out for a batch.
    pub(crate) fn push(
        &mut self,
        batch: Batch,
        context: &StageContext<'_>,
    ) -> Result<Vec<Batch>, Error> {
        let mut batches = vec![batch];
        for part in &mut self.parts {
            let mut next = Vec::new();
            for batch in batches {
                // A pose before the first reference is no loss: it is shown in its own frame.
                let mut context = StageContext::new(context.channels, context.origin);
                match part {
                    Stage::Map(map) => next.push(map.apply(batch, &mut context)?),
                    Stage::Fold(fold) => push_all(fold.as_mut(), batch, &mut next, &mut context)?,
                    Stage::Chain(_) => {}
                }
            }
            batches = next;
        }
        Ok(batches)
    }
}

/// Pushes a batch into a fold, and takes all that it returns for it.
pub(crate) fn push_all(
    fold: &mut dyn Fold,
    batch: Batch,
    to: &mut Vec<Batch>,
    context: &mut StageContext<'_>,
) -> Result<(), Error> {
    let mut more = fold.push(batch, context)?;
    while !more.is_empty() {
        to.append(&mut more);
        more = fold.more(context)?;
    }
    Ok(())
}
