//! Where sensors are mounted and how cameras project, as the stage `mounts` says. Reads no file.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use serde_json::json;
use sluice_model::{
    BatchBuilder, Channel, Channels, Encoding, Error, FieldPath, Name, OptionsError, PluginKind,
    Registry, Stage, StageContext,
};
use sluice_views::{Lists, Numbers, Placement, Rotation, Scalar, Texts, count};

use crate::convert::BASE;
use crate::messages::CameraMatrix;
use crate::options::NO_CALIBRATION;
use crate::plan::push_all;

/// The stage that knows calibrations.
const MOUNTS: &str = "mounts";
/// Its name for the vehicle's frame.
const BODY: &str = "body";

/// The mount of a sensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SensorMount {
    /// The frame in which it is given.
    pub(crate) parent: String,
    pub(crate) placement: Placement,
    /// How it projects, if it is a camera.
    pub(crate) camera: Option<CameraMatrix>,
}

/// Mounts by channel.
#[derive(Debug, Default)]
pub(crate) struct Calibration {
    mounts: BTreeMap<String, SensorMount>,
}

impl Calibration {
    /// The calibration of that name, that of the stage `mounts` by default, or none.
    pub(crate) fn load(name: Option<&str>, registry: &Registry) -> Result<Self, OptionsError> {
        if name == Some(NO_CALIBRATION) {
            return Ok(Self::default());
        }
        if registry.get(PluginKind::Stage, MOUNTS).is_none() {
            return match name {
                None => Ok(Self::default()),
                Some(_) => Err(OptionsError::at(
                    "calibration",
                    "calibrations are read by a stage `mounts`, which is not linked into this \
                     program",
                )),
            };
        }
        let options = name.map_or_else(|| json!({}), |name| json!({ "calibration": name }));
        let stage = registry.stage(MOUNTS, options)?;
        Self::from_stage(stage).map_err(|e| OptionsError::at("calibration", e.to_string()))
    }

    /// The mounts that the stage adds to a log of one event.
    fn from_stage(stage: Stage) -> Result<Self, Error> {
        let channels = Channels::default();
        let mut context = StageContext::new(&channels, None);
        let any = Channel::new(Name::from_text("any"), "", Encoding::Unknown);
        let mut event = BatchBuilder::default();
        event.push_copy(0, 0, channels.intern(any)?, b"");
        let mut batches = vec![event.finish()];
        for part in stage.into_parts() {
            let mut next = Vec::new();
            for batch in batches {
                match &part {
                    Stage::Map(map) => next.push(map.apply(batch, &mut context)?),
                    Stage::Fold(_) | Stage::Chain(_) => next.push(batch),
                }
            }
            if let Stage::Fold(mut fold) = part {
                for batch in std::mem::take(&mut next) {
                    push_all(fold.as_mut(), batch, &mut next, &mut context)?;
                }
            }
            batches = next;
        }
        let mut mounts = BTreeMap::new();
        for rows in batches.iter().flat_map(|batch| batch.rows()) {
            if let Some(more) = read_mounts(&rows.columns) {
                mounts.extend(more);
            }
        }
        Ok(Self { mounts })
    }

    /// The mount of the sensor of a channel.
    pub(crate) fn mount(&self, channel: &str) -> Option<&SensorMount> {
        self.mounts.get(channel)
    }
}

/// The mounts in decoded rows; `None` if they have none.
fn read_mounts(columns: &RecordBatch) -> Option<Vec<(String, SensorMount)>> {
    let path = |name: &str| FieldPath::column(name);
    let text = |name| Texts::resolve(&path(name), columns);
    let (channel, parent) = (text("channel")?, text("parent")?);
    let list = |name| Lists::resolve(&path(name), f64::NAN, columns);
    let (position, orientation) = (list("position")?, list("orientation")?);
    let number = |name| Numbers::resolve(&Scalar::Field(path(name)), columns);
    let size = [number("width")?, number("height")?];
    let camera = [number("fx")?, number("fy")?, number("cx")?, number("cy")?, number("skew")?];
    let mut mounts = Vec::new();
    for row in 0..columns.num_rows() {
        let camera = || {
            let [fx, fy, cx, cy, skew] = &camera;
            Some(CameraMatrix {
                width: count(size.first(), row)?,
                height: count(size.last(), row)?,
                fx: fx.at(row)?,
                fy: fy.at(row)?,
                cx: cx.at(row)?,
                cy: cy.at(row)?,
                skew: skew.at(row)?,
            })
        };
        let [w, x, y, z] = *orientation.at(row).first_chunk()?;
        let rotation = Rotation::from_xyzw([x, y, z, w])?;
        let placement = Placement { position: *position.at(row).first_chunk()?, rotation };
        let parent = match parent.at(row) {
            BODY => BASE.to_owned(),
            other => other.to_owned(),
        };
        let mount = SensorMount { parent, placement, camera: camera() };
        mounts.push((channel.at(row).to_owned(), mount));
    }
    Some(mounts)
}
