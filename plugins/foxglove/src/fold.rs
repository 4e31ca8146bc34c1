//! What needs the order of events: revolutions, mounts and calibrations that are repeated, scans
//! whose angles another event has, and positions on the globe.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::Array as _;
use sluice_model::{
    Batch, Channel, ChannelId, Error, Fold, OptionsError, Pattern, Registry, RowsEffect,
    StageContext,
};

use crate::added::AddedEvents;
use crate::calibration::Calibration;
use crate::convert::{BASE, ODOM, ViewRow, scan_messages, transform};
use crate::gather::{MAX_TOTAL_BYTES, Packet, Revolution};
use crate::messages::{self, CameraMatrix, FrameTransform, Stamp};
use crate::parts::{TimedPart, ViewPart, detach};
use crate::plan::{GlobeStage, ViewPlan, georeference, transforms_channel};
use crate::schema::{FRAME, ViewSchema};

/// Messages have times from before they were logged, and viewers look up frames at those times: so
/// mounts are dated back.
const DATED_BACK: i64 = 1_000_000_000;

/// The fold of the stage.
pub(crate) struct ViewFold {
    plan: Arc<ViewPlan>,
    repeat: i64,
    fixed: FixedViews,
    /// By channel id, as far as channels are known.
    channels: Vec<ViewChannel>,
    /// By channel id.
    revolutions: BTreeMap<u32, Revolution>,
    /// Their bytes.
    gathered: usize,
    globes: Vec<Globe>,
    /// Scans whose field of view was not known, by frame and channel.
    scans_left: BTreeMap<(String, String), u64>,
}

/// What the fold needs to know about a channel.
#[derive(Default)]
struct ViewChannel {
    /// The frame of a view and the channel that it shows.
    frame: Option<(String, String)>,
}

/// Poses that are placed on the globe by one channel.
struct Globe {
    gps: Pattern,
    stage: GlobeStage,
}

/// Mounts and calibrations: what does not change, and is repeated.
struct FixedViews {
    calibration: Calibration,
    mounts: BTreeMap<String, FrameTransform>,
    /// Fields of view by frame, in radians.
    fields_of_view: BTreeMap<String, f64>,
    /// By channel: the frame, and the matrix for pictures of the last size.
    cameras: BTreeMap<String, (ChannelId, String, CameraMatrix)>,
    /// Frames of views that were looked up.
    frames: BTreeSet<String>,
    /// The event at which all were last repeated.
    repeated: Option<i64>,
}

/// The event at which something is added.
#[derive(Clone, Copy)]
struct AddedAt {
    place: usize,
    /// Time and number.
    event: (i64, i64),
}

impl ViewFold {
    pub(crate) fn new(
        plan: Arc<ViewPlan>,
        calibration: Calibration,
        repeat: i64,
        registry: &Registry,
    ) -> Result<Self, OptionsError> {
        let mut globes: Vec<Globe> = Vec::new();
        for gps in plan.maps.iter().filter_map(|map| map.pose.as_ref()?.gps.as_ref()) {
            let stage = georeference(gps.text(), registry)?;
            if !stage.is_empty() && !globes.iter().any(|globe| globe.gps.text() == gps.text()) {
                globes.push(Globe { gps: gps.clone(), stage });
            }
        }
        let fixed = FixedViews {
            calibration,
            mounts: BTreeMap::new(),
            fields_of_view: BTreeMap::new(),
            cameras: BTreeMap::new(),
            frames: BTreeSet::new(),
            repeated: None,
        };
        let (channels, revolutions, scans_left) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Self { plan, repeat, fixed, channels, revolutions, gathered: 0, globes, scans_left })
    }

    fn learn_channels(&mut self, context: &StageContext<'_>) {
        for channel in context.channels.since(self.channels.len()) {
            let view = channel.metadata.get(Channel::VIEW).and(channel.metadata.get(FRAME));
            let frame = view.zip(channel.metadata.get(Channel::VIEW_OF));
            let frame = frame.map(|(frame, of)| (frame.clone(), of.clone()));
            self.channels.push(ViewChannel { frame });
        }
    }

    /// Adds what belongs before or to an event.
    fn push_event(
        &mut self,
        at: AddedAt,
        channel: u32,
        added: &mut AddedEvents,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let own = || context.channels.get(ChannelId(channel));
        if let Some(ViewChannel { frame: Some((frame, of)) }) = self.channels.get(channel as usize)
            && !self.fixed.frames.contains(frame)
        {
            self.fixed.place_frame(frame, of, at, &own(), added, context)?;
        }
        let since = self.fixed.repeated.map(|last| at.event.0.saturating_sub(last));
        if since.is_none_or(|since| !(-self.repeat..self.repeat).contains(&since)) {
            self.fixed.repeat(at, &own(), added, context)?;
        }
        Ok(())
    }

    /// Uses a part that the map made of an event.
    fn push_part(
        &mut self,
        at: AddedAt,
        channel: u32,
        timed: TimedPart<'_>,
        added: &mut AddedEvents,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let of = context.channels.get(ChannelId(channel));
        let TimedPart { map, time, part } = timed;
        let Some(names) = self.plan.names(map, &of) else { return Ok(()) };
        let stamp = Stamp { time, frame: &names.frame };
        match part {
            ViewPart::Packet { layout, azimuth, points } => {
                let event = at.event;
                let packet = Packet { map, time, event, layout, azimuth, points };
                self.push_packet(at, channel, packet, added, context)
            }
            ViewPart::Picture { width, height } => {
                let channel =
                    || self.plan.channel((map, ViewSchema::CameraCalibration), &of, context);
                let size = [width, height];
                self.fixed.size_camera(of.name.text(), stamp, size, channel, at, added)
            }
            ViewPart::Mount { placement, field_of_view } => {
                if field_of_view > 0.0 {
                    self.fixed.fields_of_view.insert(names.frame.clone(), field_of_view);
                }
                let mount = self.plan.maps.get(usize::from(map)).and_then(|map| map.mount.as_ref());
                let parent = mount.and_then(|mount| mount.parent.as_deref()).unwrap_or(BASE);
                let mount = transform(parent, &names.frame, placement);
                self.fixed.mount(mount, at, &of, added, context)
            }
            ViewPart::Scan { ranges, intensities } => {
                let Some(span) = self.fixed.fields_of_view.get(&names.frame) else {
                    let key = (names.frame.clone(), of.name.text().to_owned());
                    *self.scans_left.entry(key).or_default() += 1;
                    return Ok(());
                };
                let angles = [-span / 2.0, span / 2.0];
                for (schema, bytes) in scan_messages(stamp, angles, &ranges, &intensities) {
                    let id = self.plan.channel((map, schema), &of, context)?;
                    added.push(at.place + 1, at.event, id, bytes);
                }
                Ok(())
            }
        }
    }

    fn push_packet(
        &mut self,
        at: AddedAt,
        channel: u32,
        packet: Packet<'_>,
        added: &mut AddedEvents,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let before = self.revolutions.get(&channel).map_or(0, |one| one.points.len());
        let done = match self.revolutions.get_mut(&channel) {
            Some(revolution) if !revolution.ends_before(&packet) => {
                revolution.push(packet);
                None
            }
            _ => self.revolutions.insert(channel, Revolution::start(packet)),
        };
        if let Some(done) = done {
            self.add_revolution(at, channel, &done, added, context)?;
        }
        let after = self.revolutions.get(&channel).map_or(0, |one| one.points.len());
        self.gathered = (self.gathered + after).saturating_sub(before);
        if self.gathered > MAX_TOTAL_BYTES
            && let Some(done) = self.revolutions.remove(&channel)
        {
            self.gathered -= done.points.len();
            self.add_revolution(
                AddedAt { place: at.place + 1, ..at },
                channel,
                &done,
                added,
                context,
            )?;
        }
        Ok(())
    }

    /// Adds the cloud of a revolution, and places its frame before.
    fn add_revolution(
        &mut self,
        at: AddedAt,
        channel: u32,
        done: &Revolution,
        added: &mut AddedEvents,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let of = context.channels.get(ChannelId(channel));
        let Some(names) = self.plan.names(done.map, &of) else { return Ok(()) };
        if !self.fixed.frames.contains(&names.frame) {
            self.fixed.place_frame(&names.frame, of.name.text(), at, &of, added, context)?;
        }
        let (fields, stride) = done.layout.fields();
        let stamp = Stamp { time: done.time, frame: &names.frame };
        let cloud = messages::point_cloud(stamp, stride, &fields, &done.points);
        let id = self.plan.channel((done.map, ViewSchema::PointCloud), &of, context)?;
        added.push(at.place, at.event, id, cloud);
        Ok(())
    }

    /// Adds positions on the globe for the poses of a batch.
    fn push_poses(
        &mut self,
        batch: &Batch,
        added: &mut AddedEvents,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let Self { plan, globes, .. } = self;
        for globe in globes {
            let events = globe_events(plan, &globe.gps, batch, context);
            if events.is_empty() {
                continue;
            }
            let placed = globe.stage.push(batch.take(events.clone()), context)?;
            let mut left = events.iter();
            for placed in &placed {
                add_positions(plan, placed, added, context, |event| {
                    // Not by the payload, which the stage has replaced by rows.
                    let key = |batch: &Batch, event: usize| {
                        let channel = batch.channels()[event];
                        (batch.timestamps()[event], batch.sequences()[event], channel)
                    };
                    let is_same = |at: &&u32| key(batch, **at as usize) == key(placed, event);
                    left.find(is_same).map_or(0, |at| *at as usize + 1)
                })?;
            }
        }
        Ok(())
    }
}

/// The events of a batch that the stage `georeference` needs: poses whose map names the channel of
/// GPS references, and that channel's.
fn globe_events(
    plan: &ViewPlan,
    gps: &Pattern,
    batch: &Batch,
    context: &StageContext<'_>,
) -> Vec<u32> {
    let mut events = BTreeSet::new();
    for rows in batch.rows() {
        let mut known: BTreeMap<u32, bool> = BTreeMap::new();
        for event in &rows.events {
            let channel = batch.channels()[*event as usize];
            let is_needed = known.entry(channel).or_insert_with(|| {
                let channel = context.channels.get(ChannelId(channel));
                let name = channel.name.text();
                let is_pose = plan.maps.iter().any(|map| {
                    let globe = map.pose.as_ref().and_then(|pose| pose.gps.as_ref());
                    globe.is_some_and(|other| other.text() == gps.text())
                        && map.is_for(name, &rows.message.name)
                });
                gps.matches(name) || (is_pose && plan.is_shown(&channel))
            });
            if *is_needed {
                events.insert(*event);
            }
        }
    }
    events.into_iter().collect()
}

/// Adds the positions in the rows of a batch. `place` is called with its events in order.
fn add_positions(
    plan: &ViewPlan,
    placed: &Batch,
    added: &mut AddedEvents,
    context: &StageContext<'_>,
    mut place: impl FnMut(usize) -> usize,
) -> Result<(), Error> {
    for rows in placed.rows() {
        let mut known: BTreeMap<u32, Option<_>> = BTreeMap::new();
        for (row, event) in rows.events.iter().enumerate() {
            let (event, channel) = (*event as usize, placed.channels()[*event as usize]);
            let of = context.channels.get(ChannelId(channel));
            let map = known.entry(channel).or_insert_with(|| {
                let map = plan.resolve(&of, &rows.message.name, &rows.columns).ok().flatten();
                map.and_then(|map| Some((plan.names(map.map, &of)?, map)))
            });
            let Some((names, map)) = map else { continue };
            let time = plan.time(map.map, rows, row).unwrap_or(placed.timestamps()[event]);
            let at = ViewRow { row, map: map.map, time, names };
            let place = place(event);
            for (schema, bytes) in map.columns.views(at).messages {
                if schema == ViewSchema::LocationFix {
                    let id = plan.channel((map.map, schema), &of, context)?;
                    let like = (placed.timestamps()[event], placed.sequences()[event]);
                    added.push(place, like, id, bytes);
                }
            }
        }
    }
    Ok(())
}

impl FixedViews {
    /// Places the frame of a view by the calibration, if that has its channel.
    fn place_frame(
        &mut self,
        frame: &str,
        of: &str,
        at: AddedAt,
        like: &Channel,
        added: &mut AddedEvents,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        self.frames.insert(frame.to_owned());
        let Some(mount) = self.calibration.mount(of) else { return Ok(()) };
        let mount = transform(&mount.parent, frame, mount.placement);
        self.mount(mount, at, like, added, context)
    }

    /// Adds a mount, unless it is known already.
    fn mount(
        &mut self,
        mount: FrameTransform,
        at: AddedAt,
        like: &Channel,
        added: &mut AddedEvents,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        if self.mounts.get(&mount.child) == Some(&mount) {
            return Ok(());
        }
        let time = at.event.0.saturating_sub(DATED_BACK);
        let bytes = messages::frame_transforms(time, [&mount]);
        added.push(at.place, at.event, transforms_channel(like, context)?, bytes);
        self.frames.insert(mount.child.clone());
        self.mounts.insert(mount.child.clone(), mount);
        Ok(())
    }

    /// Adds the calibration of a camera whose pictures have this size, unless it is known already.
    fn size_camera(
        &mut self,
        of: &str,
        stamp: Stamp<'_>,
        [width, height]: [u32; 2],
        channel: impl FnOnce() -> Result<ChannelId, Error>,
        at: AddedAt,
        added: &mut AddedEvents,
    ) -> Result<(), Error> {
        let known = self.cameras.get(of).map(|(_, _, matrix)| [matrix.width, matrix.height]);
        if known == Some([width, height]) {
            return Ok(());
        }
        let camera = self.calibration.mount(of).and_then(|mount| mount.camera);
        let Some(camera) = camera.map(|camera| camera.scaled_to(width, height)) else {
            return Ok(());
        };
        let id = channel()?;
        let stamp = Stamp { time: at.event.0.saturating_sub(DATED_BACK), ..stamp };
        added.push(at.place, at.event, id, messages::camera_calibration(stamp, &camera));
        self.cameras.insert(of.to_owned(), (id, stamp.frame.to_owned(), camera));
        Ok(())
    }

    /// Adds all mounts and calibrations again.
    fn repeat(
        &mut self,
        at: AddedAt,
        like: &Channel,
        added: &mut AddedEvents,
        context: &StageContext<'_>,
    ) -> Result<(), Error> {
        let is_first = self.repeated.replace(at.event.0).is_none();
        if is_first {
            return Ok(());
        }
        let time = at.event.0.saturating_sub(DATED_BACK);
        if !self.mounts.is_empty() {
            let bytes = messages::frame_transforms(time, self.mounts.values());
            added.push(at.place, at.event, transforms_channel(like, context)?, bytes);
        }
        for (id, frame, camera) in self.cameras.values() {
            let bytes = messages::camera_calibration(Stamp { time, frame }, camera);
            added.push(at.place, at.event, *id, bytes);
        }
        Ok(())
    }

    /// Frames of views that nothing places.
    fn loose(&self) -> impl Iterator<Item = &str> {
        let is_loose =
            |frame: &&str| ![BASE, ODOM].contains(frame) && !self.mounts.contains_key(*frame);
        self.frames.iter().map(String::as_str).filter(is_loose)
    }
}

impl Fold for ViewFold {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.learn_channels(context);
        let (batch, columns) = detach(batch);
        let mut parts: BTreeMap<u32, &[u8]> = BTreeMap::new();
        for (events, column) in &columns {
            let values = (0..column.len()).map(|row| column.value(row));
            parts.extend(events.iter().copied().zip(values));
        }
        let mut added = AddedEvents::default();
        for event in 0..batch.len() {
            let channel = batch.channels()[event];
            let at = AddedAt {
                place: event,
                event: (batch.timestamps()[event], batch.sequences()[event]),
            };
            self.push_event(at, channel, &mut added, context)?;
            let part = parts.get(&(event as u32)).and_then(|bytes| TimedPart::from_bytes(bytes));
            if let Some(part) = part {
                self.push_part(at, channel, part, &mut added, context)?;
            }
        }
        self.push_poses(&batch, &mut added, context)?;
        Ok(vec![added.merge_into(batch, context)])
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let mut left: Vec<(Arc<Channel>, u32, Revolution)> = std::mem::take(&mut self.revolutions)
            .into_iter()
            .map(|(channel, done)| (context.channels.get(ChannelId(channel)), channel, done))
            .collect();
        // Channel ids depend on threads.
        left.sort_by(|a, b| {
            let key = |(channel, _, done): &(Arc<Channel>, u32, Revolution)| {
                (done.last, channel.name.text().to_owned(), Arc::clone(&channel.source))
            };
            key(a).cmp(&key(b))
        });
        let mut added = AddedEvents::default();
        for (_, channel, done) in left {
            let at = AddedAt { place: 0, event: done.last };
            self.add_revolution(at, channel, &done, &mut added, context)?;
        }
        for ((frame, channel), count) in std::mem::take(&mut self.scans_left) {
            if !self.fixed.fields_of_view.contains_key(&frame) {
                let note = format!(
                    "channel `{channel}`: scans not shown: their map has neither `step` nor \
                     `field_of_view`, and no mount of the frame `{frame}` has the latter"
                );
                context.note(note, count);
            }
        }
        for map in self.plan.maps_without_types() {
            context.note(format!("map {map}: no message has one of its `types`"), 0);
        }
        let loose: Vec<&str> = self.fixed.loose().collect();
        if let Some(first) = loose.first() {
            let note = format!(
                "frames without a mount, such as `{first}`: viewers cannot show them beside \
                 others; name a `calibration`, or add a `map` with a `mount`"
            );
            context.note(note, loose.len() as u64);
        }
        let batch = added.merge_into(Batch::default(), context);
        Ok(if batch.is_empty() { Vec::new() } else { vec![batch] })
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }
}
