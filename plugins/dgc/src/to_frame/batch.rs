//! Moves the points and poses of one batch: decodes, drops and transforms its events.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sluice_model::{Batch, ChannelId, Error, Rows, StageContext};

use super::frame_change::FrameChange;
use super::plan::{ChannelPlan, DropReason, POSE, ToFrame};
use super::sensor_pose;
use crate::geometry::Transform;
use crate::points::{Points, refuse_unknown_frames};
use crate::poses::attach::{AttachedColumn, AttachedValue};
use crate::poses::rows::{map_rows, map_selected, with_decoded_rows};
use crate::poses::{Pose, lookup};

/// A batch and the plans of its channels.
pub(super) struct BatchMove<'w> {
    pub(super) stage: &'w ToFrame,
    pub(super) plans: Arc<Vec<Option<ChannelPlan>>>,
    pub(super) batch: Batch,
}

impl BatchMove<'_> {
    fn plan(&self, event: u32) -> Option<ChannelPlan> {
        self.plans[self.batch.channels()[event as usize] as usize]
    }

    /// Decodes poses on named channels.
    pub(super) fn decode_named_poses(mut self, context: &StageContext<'_>) -> Result<Self, Error> {
        if self.stage.sensor.is_none() {
            return Ok(self);
        }
        let named = |event: &u32| self.plan(*event).is_some_and(|plan| plan.is_named);
        let named: Vec<u32> = (0..self.batch.len() as u32).filter(named).collect();
        let decoder = (&self.stage.decoder, context.channels);
        self.batch = with_decoded_rows(self.batch, &named, decoder, sensor_pose::are_poses)?;
        Ok(self)
    }

    /// Notes events on named channels without points.
    pub(super) fn note_idle_events(&self, context: &mut StageContext<'_>) {
        if self.stage.channels.is_empty() {
            return;
        }
        let is_work = |rows: &Rows| self.are_poses(rows) || Points::from_rows(rows).is_some();
        let is_selected = |event| self.plan(event).is_some();
        lookup::note_idle_events(&self.batch, is_selected, is_work, ("points", context));
    }

    /// Refuses points of unknown frame on the selected channels.
    pub(super) fn refuse_unknown_frame(&self, context: &StageContext<'_>) -> Result<(), Error> {
        let is_selected = |event| self.plan(event).is_some();
        refuse_unknown_frames(&self.batch, is_selected, context.channels)
    }

    /// The events to drop, and why; ascending.
    pub(super) fn events_to_drop(&self) -> Result<Vec<(u32, DropReason)>, Error> {
        let mut wrong = Vec::new();
        for rows in self.batch.rows() {
            match Points::from_rows(rows) {
                Some(points) => self.check_points(&points, &mut wrong)?,
                None => self.check_poses(rows, &mut wrong),
            }
        }
        wrong.sort_unstable();
        wrong.dedup_by_key(|(event, _)| *event);
        Ok(wrong)
    }

    fn check_points(
        &self,
        points: &Points,
        wrong: &mut Vec<(u32, DropReason)>,
    ) -> Result<(), Error> {
        let change = FrameChange { from: points.frame(), to: self.stage.frame };
        let poses = AttachedColumn::from_column::<Pose>(points.column(Pose::COLUMN));
        for (row, event) in points.events().iter().enumerate() {
            let Some(plan) = self.plan(*event) else { continue };
            if change.needs_pose() && !self.stage.has_poses {
                return Err(Error::invalid(format!(
                    "moving points from the {} frame to the {} frame needs poses: name their \
                     channel, as in `pose = \"{POSE}\"`",
                    change.from.as_str(),
                    change.to.as_str(),
                )));
            }
            if change.needs_mount() && plan.mount.is_none() {
                wrong.push((*event, DropReason::NoMount));
            } else if change.needs_pose() && poses.values(row).is_none() {
                wrong.push((*event, DropReason::NoPose));
            }
        }
        Ok(())
    }

    fn check_poses(&self, rows: &Rows, wrong: &mut Vec<(u32, DropReason)>) {
        if self.are_poses(rows) {
            let invalid = sensor_pose::invalid_rows(rows, self.batch.timestamps());
            let events = invalid.iter().map(|row| rows.events[*row as usize]);
            let named = events.filter(|event| self.plan(*event).is_some_and(|plan| plan.is_named));
            wrong.extend(named.map(|event| (event, DropReason::BadPose)));
        }
    }

    fn are_poses(&self, rows: &Rows) -> bool {
        self.stage.sensor.is_some() && sensor_pose::are_poses(rows)
    }

    /// Drops these events.
    pub(super) fn drop_events(
        mut self,
        wrong: &[(u32, DropReason)],
        context: &mut StageContext<'_>,
    ) -> Result<Self, Error> {
        if wrong.is_empty() {
            return Ok(self);
        }
        let mut notes: BTreeMap<(ChannelId, DropReason), u64> = BTreeMap::new();
        for (event, wrong) in wrong {
            let channel = ChannelId(self.batch.channels()[*event as usize]);
            *notes.entry((channel, *wrong)).or_default() += 1;
        }
        for ((channel, wrong), count) in notes {
            let name = context.channels.get(channel).name.text().to_owned();
            self.stage.report(&name, wrong, count, context)?;
        }
        context.report.filtered += wrong.len() as u64;
        let is_left = |row: usize| wrong.binary_search_by_key(&(row as u32), |(e, _)| *e).is_err();
        self.batch = self.batch.retain(is_left);
        Ok(self)
    }

    /// The batch with its points and poses in the target frame.
    pub(super) fn move_batch(self) -> Result<Batch, Error> {
        map_rows(self.batch.clone(), Pose::COLUMN, |rows| self.move_rows(rows))
    }

    /// Moves the rows of selected channels; the others become separate rows.
    fn move_rows(&self, rows: &Rows) -> Result<Vec<Rows>, Error> {
        let points = Points::from_rows(rows);
        let are_poses = points.is_none() && self.are_poses(rows);
        let is_selected = |event: u32| match self.plan(event) {
            Some(plan) => points.is_some() || (are_poses && plan.is_named),
            None => false,
        };
        let change = |rows: &Rows| match points.is_some() {
            true => self.move_points(rows),
            false => self.sensor_poses(rows),
        };
        map_selected(rows, is_selected, change)
    }

    fn sensor_poses(&self, rows: &Rows) -> Result<Rows, Error> {
        match &self.stage.sensor {
            Some(mount) => sensor_pose::to_sensor_poses(rows, self.batch.timestamps(), mount),
            None => Ok(rows.clone()),
        }
    }

    fn move_points(&self, rows: &Rows) -> Result<Rows, Error> {
        let Some(points) = Points::from_rows(rows) else { return Ok(rows.clone()) };
        let change = FrameChange { from: points.frame(), to: self.stage.frame };
        if change.from == change.to {
            return Ok(rows.clone());
        }
        let moved = transform_runs(points.xyz(), &self.runs(&points, change)?);
        let members = ["x", "y", "z"].into_iter().zip(moved);
        Ok(points.without_column(Pose::COLUMN).with_members(members, change.to).into_rows())
    }

    /// The transforms of consecutive points. Consecutive events with the same transform share a
    /// run.
    fn runs(
        &self,
        points: &Points,
        change: FrameChange,
    ) -> Result<Vec<(Range<usize>, Transform)>, Error> {
        let poses = AttachedColumn::from_column::<Pose>(points.column(Pose::COLUMN));
        let channel = |event: u32| self.batch.channels()[event as usize];
        points.runs(
            |row, event| (channel(event), poses.values(row)),
            |row, event| {
                let mount = self.plan(event).and_then(|plan| plan.mount);
                let pose = poses.values(row).and_then(Pose::from_values);
                change.transform(mount, pose.map(|pose| pose.transform()))
            },
        )
    }
}

/// Transforms the points run by run. The runs cover them in order.
fn transform_runs(xyz: [&[f64]; 3], runs: &[(Range<usize>, Transform)]) -> [Vec<f64>; 3] {
    if let [(_, transform)] = runs {
        return transform.apply_all(xyz);
    }
    let mut all = [(); 3].map(|()| Vec::with_capacity(xyz[0].len()));
    for (run, transform) in runs {
        let moved = transform.apply_all(xyz.map(|axis| &axis[run.clone()]));
        all.iter_mut().zip(moved).for_each(|(all, moved)| all.extend_from_slice(&moved));
    }
    all
}
