//! Stage `mounts`: adds the calibration of the vehicle to a log, an event per sensor and camera.
//!
//! Other stages and tools read mounts by that, without reading calibration files. Moves nothing.

use std::sync::Arc;

use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Float64Array, RecordBatch, StringArray};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::{
    Batch, BatchBuilder, Channel, Encoding, Error, Fold, Name, OptionsError, Payloads, Rows,
    RowsEffect, Stage, StageContext,
};

use crate::calibration::{Calibration, CalibrationPath, Mount};
use crate::poses::rows::with_type;

/// Options of `mounts`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MountsOptions {
    /// Where sensors and cameras are mounted: a `.toml` or `.cfg` file, or a built-in name.
    pub(crate) calibration: CalibrationPath,
    /// The channel of the added events.
    pub(crate) channel: String,
}

impl Default for MountsOptions {
    fn default() -> Self {
        Self { calibration: CalibrationPath::default(), channel: "MOUNTS".into() }
    }
}

sluice_model::register! {
    stage "mounts": MountsOptions,
    about: "adds events that say where sensors and cameras are mounted",
    sample: include_str!("../samples/mounts.toml"),
}

/// The type of the rows.
const TYPE: &str = "sluice.mount";
/// The frame that mounts are relative to.
const BODY: &str = "body";

/// Adds the events before the first one.
struct MountsStage {
    channel: String,
    /// The columns of the events; `None` once they are added.
    columns: Option<RecordBatch>,
    fingerprint: String,
}

impl TryFrom<MountsOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: MountsOptions) -> Result<Self, OptionsError> {
        let refused = |message: String| OptionsError::at("calibration", message);
        let calibration = options.calibration.load().map_err(refused)?;
        let columns = mount_columns(&calibration)
            .map_err(|e| refused(format!("its columns do not fit: {e}")))?;
        let fingerprint = calibration.fingerprint().to_owned();
        let (channel, columns) = (options.channel, Some(columns));
        Ok(Self::Fold(Box::new(MountsStage { channel, columns, fingerprint })))
    }
}

/// A row per mount, by name.
fn mount_columns(calibration: &Calibration) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let names: Vec<&str> = calibration.names().collect();
    let mounts: Vec<Mount> = names.iter().filter_map(|name| calibration.mount(name)).collect();
    let cameras: Vec<_> = names
        .iter()
        .map(|name| calibration.cameras().iter().find(|camera| camera.name == **name))
        .collect();
    let channels = names.iter().zip(&cameras).map(|(name, camera)| {
        camera.and_then(|camera| camera.thumbnail_channel.as_deref()).unwrap_or(name)
    });
    let numbers = |number: &dyn Fn(&crate::calibration::Camera) -> f64| -> ArrayRef {
        Arc::new(cameras.iter().map(|camera| camera.map(number)).collect::<Float64Array>())
    };
    let positions = mounts.iter().map(|mount| Some(mount.position.map(Some)));
    let orientations = mounts.iter().map(|mount| {
        let turn = mount.orientation;
        Some([turn.w, turn.x, turn.y, turn.z].map(Some))
    });
    RecordBatch::try_from_iter_with_nullable([
        ("name", Arc::new(StringArray::from(names.clone())) as ArrayRef, false),
        (
            "channel",
            Arc::new(channels.collect::<Vec<_>>().into_iter().map(Some).collect::<StringArray>()),
            false,
        ),
        ("parent", Arc::new(StringArray::from(vec![BODY; names.len()])), false),
        ("position", list::<3>(positions), false),
        ("orientation", list::<4>(orientations), false),
        ("width", numbers(&|camera| f64::from(camera.width)), true),
        ("height", numbers(&|camera| f64::from(camera.height)), true),
        ("fx", numbers(&|camera| camera.pinhole.fx), true),
        ("fy", numbers(&|camera| camera.pinhole.fy), true),
        ("cx", numbers(&|camera| camera.pinhole.cx), true),
        ("cy", numbers(&|camera| camera.pinhole.cy), true),
        ("skew", numbers(&|camera| camera.pinhole.skew), true),
    ])
}

fn list<const N: usize>(rows: impl Iterator<Item = Option<[Option<f64>; N]>>) -> ArrayRef {
    Arc::new(FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(rows, N as i32))
}

impl MountsStage {
    /// The events, at the time of the first event of the log.
    fn events(
        &self,
        columns: RecordBatch,
        first: i64,
        context: &StageContext<'_>,
    ) -> Result<Batch, Error> {
        let channel = Channel::new(Name::from_text(&self.channel), "", Encoding::Unknown);
        let channel = context.channels.intern(channel)?;
        let mut builder = BatchBuilder::default();
        let count = columns.num_rows() as u32;
        (0..count).for_each(|n| builder.push_copy(first, i64::from(n), channel, b""));
        let message = Arc::default();
        let rows =
            Rows { message, payloads: Payloads::Gone, events: (0..count).collect(), columns };
        Ok(builder.finish().with_rows(vec![with_type(rows, TYPE)]))
    }
}

impl Fold for MountsStage {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        if batch.is_empty() {
            return Ok(vec![batch]);
        }
        let Some(columns) = self.columns.take() else { return Ok(vec![batch]) };
        let first = batch.timestamps()[0];
        let events = self.events(columns, first, context)?;
        context.report.added.extend_from_slice(events.channels());
        Ok(vec![events, batch])
    }

    fn delays_events(&self) -> bool {
        false
    }

    fn fingerprint(&self) -> Option<String> {
        Some(self.fingerprint.clone())
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Unclear
    }
}
