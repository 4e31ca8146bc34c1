//! The stage: a map makes the views of single messages on all cores, a fold what needs order.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_model::{
    Batch, Channel, ChannelId, Error, FieldPath, Map, MapQuery, OptionsError, PluginFactory,
    Registry, Rows, RowsEffect, Stage, StageContext,
};
use sluice_views::{Times, ViewNames};

use crate::added::AddedEvents;
use crate::calibration::Calibration;
use crate::convert::{SkipReason, ViewColumns, ViewRow};
use crate::fold::ViewFold;
use crate::options::FoxgloveOptions;
use crate::parts::{self, TimedPart, ViewPart};
use crate::plan::{ResolvedMap, ViewPlan};
use crate::points::PointColumns;
use crate::schema::ViewSchema;

sluice_model::register! {
    stage "foxglove": FoxgloveOptions,
    make: PluginFactory::Stage(|value, registry| stage(sluice_model::options::read(value)?, registry)),
    about: "adds what viewers such as Foxglove and Rerun show: images, points, transforms, positions",
    sample: include_str!("../samples/foxglove.toml"),
}

fn stage(mut options: FoxgloveOptions, registry: &Registry) -> Result<Stage, OptionsError> {
    if options.repeat.0 <= 0 {
        return Err(OptionsError::at("repeat", "expected a duration above 0"));
    }
    let calibration = Calibration::load(options.calibration.as_deref(), registry)?;
    let plan = Arc::new(ViewPlan::new(&mut options, registry)?);
    let fold = ViewFold::new(Arc::clone(&plan), calibration, options.repeat.0, registry)?;
    Ok(Stage::Chain(vec![Stage::Map(Box::new(ViewStage { plan })), Stage::Fold(Box::new(fold))]))
}

/// Makes the views of single messages.
struct ViewStage {
    plan: Arc<ViewPlan>,
}

/// Longer messages are not shown.
const MAX_VIEW: usize = 1 << 30;

/// What a batch gets.
#[derive(Default)]
struct BatchViews {
    added: AddedEvents,
    parts: Vec<(u32, Vec<u8>)>,
    notes: BTreeMap<(u32, SkipReason), u64>,
}

impl BatchViews {
    fn note(&mut self, channel: u32, why: SkipReason, count: u64) {
        if count > 0 {
            *self.notes.entry((channel, why)).or_default() += count;
        }
    }
}

/// The rows of one channel and their map.
struct ChannelRows<'r> {
    batch: &'r Batch,
    rows: &'r Rows,
    channel: Arc<Channel>,
    /// Indices of rows.
    picks: Vec<u32>,
    map: ResolvedMap,
    names: ViewNames,
    times: Option<Times>,
}

impl ViewStage {
    /// Adds the views of the messages of one type.
    fn view_rows(
        &self,
        batch: &Batch,
        rows: &Rows,
        views: &mut BatchViews,
        context: &mut StageContext<'_>,
    ) -> Result<(), Error> {
        let mut by_channel: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (row, event) in (0u32..).zip(&rows.events) {
            by_channel.entry(batch.channels()[*event as usize]).or_default().push(row);
        }
        for (channel, picks) in by_channel {
            let channel = context.channels.get(ChannelId(channel));
            if !self.plan.is_shown(&channel) {
                continue;
            }
            let name = channel.name.text();
            let map = match self.plan.resolve(&channel, &rows.message.name, &rows.columns) {
                Ok(Some(map)) => map,
                Ok(None) => continue,
                Err(map) => {
                    let note = format!(
                        "map {map} is for channel `{name}`, but `{}` does not have its fields",
                        rows.message.name
                    );
                    context.note(note, picks.len() as u64);
                    continue;
                }
            };
            let Some(names) = self.plan.names(map.map, &channel) else { continue };
            let view = self.plan.maps.get(usize::from(map.map));
            let field = view.and_then(|view| Some((view.time.as_ref()?, view.time_unit.nanos())));
            let times = field.and_then(|(time, unit)| Times::resolve(time, unit, &rows.columns));
            if let Some((time, _)) = field.filter(|_| times.is_none() && self.plan.is_own(map.map))
            {
                let note = format!(
                    "map {}: `{}` has no time in `{time}`: its views have the time of the event",
                    map.map, rows.message.name
                );
                context.note(note, picks.len() as u64);
            }
            let work = ChannelRows { batch, rows, channel, picks, map, names, times };
            match work.map.columns {
                ViewColumns::Packets => self.view_packets(&work, views, context)?,
                _ => self.view_channel(&work, views, context)?,
            }
        }
        Ok(())
    }

    fn view_channel(
        &self,
        work: &ChannelRows<'_>,
        views: &mut BatchViews,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let mut ids: BTreeMap<ViewSchema, ChannelId> = BTreeMap::new();
        for row in &work.picks {
            let (event, row) = (work.rows.events[*row as usize], *row as usize);
            let timestamp = work.batch.timestamps()[event as usize];
            let time = work.times.as_ref().and_then(|times| times.at(row)).unwrap_or(timestamp);
            let at = ViewRow { row, map: work.map.map, time, names: &work.names };
            let made = work.map.columns.views(at);
            for (schema, bytes) in made.messages {
                if bytes.len() > MAX_VIEW {
                    let channel = work.batch.channels()[event as usize];
                    views.note(channel, SkipReason::Size, 1);
                    continue;
                }
                let id = match ids.get(&schema) {
                    Some(id) => *id,
                    None => {
                        let of = &work.channel;
                        let id = self.plan.channel((work.map.map, schema), of, context)?;
                        *ids.entry(schema).or_insert(id)
                    }
                };
                let like = (timestamp, work.batch.sequences()[event as usize]);
                views.added.push(event as usize + 1, like, id, bytes);
            }
            views.parts.extend(made.part.map(|part| (event, part)));
            if let Some((why, count)) = made.skipped {
                views.note(work.batch.channels()[event as usize], why, count);
            }
        }
        Ok(())
    }

    /// Attaches the points of packets to their events.
    fn view_packets(
        &self,
        work: &ChannelRows<'_>,
        views: &mut BatchViews,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let events: Vec<u32> =
            work.picks.iter().map(|row| work.rows.events[*row as usize]).collect();
        let packets = work.batch.clone().with_rows(vec![work.rows.clone()]).take(events.clone());
        let packets = self.plan.points(work.map.map, packets, context)?;
        for rows in packets.rows() {
            let Some(points) = PointColumns::resolve(&FieldPath::column("points"), &rows.columns)
            else {
                continue;
            };
            for (row, position) in rows.events.iter().enumerate() {
                let Some(azimuth) = points.first_azimuth(row) else { continue };
                let event = events[*position as usize];
                let own = work.rows.events.binary_search(&event).ok();
                let own = own.and_then(|own| work.times.as_ref()?.at(own));
                let time = own.unwrap_or(work.batch.timestamps()[event as usize]);
                let Some(packed) = points.pack(row, time) else { continue };
                let channel = work.batch.channels()[event as usize];
                views.note(channel, SkipReason::Positions, packed.without_position);
                let (layout, points) = (points.layout(), packed.data.as_slice());
                let part = ViewPart::Packet { layout, azimuth, points };
                let part = TimedPart { map: work.map.map, time, part };
                views.parts.push((event, part.to_bytes()));
            }
        }
        Ok(())
    }
}

impl Map for ViewStage {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let mut views = BatchViews::default();
        for rows in batch.rows().iter().filter(|rows| !rows.message.is_part()) {
            self.plan.meet_type(&rows.message.name);
            self.view_rows(&batch, rows, &mut views, context)?;
        }
        for ((channel, why), count) in views.notes {
            let name = context.channels.get(ChannelId(channel)).name.text().to_owned();
            context.note(format!("channel `{name}`: {}", why.text()), count);
        }
        let batch = parts::attach(batch, views.parts)?;
        Ok(views.added.merge_into(batch, context))
    }

    fn query(&self) -> MapQuery {
        // Views are on channels that no source knows, so a filter on channels is not pushed down.
        MapQuery { keeps_times: true, ..MapQuery::default() }
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }

    fn uses_rows(&self) -> bool {
        true
    }
}
