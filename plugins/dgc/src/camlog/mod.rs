//! Source `camlog`: the camera logs in which the vehicle's full-size images lie, apart from its LCM
//! logs. Each frame becomes a message `image_t`, as the small images in the LCM logs are. Decodes
//! no image.

mod images;
#[cfg(test)]
mod tests;
mod wire;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;
use sluice_core::files::{self, InputContent};
use sluice_core::options::{self as core_options, InPaths};
use sluice_core::{
    Channel, Delimited, Encoding, Error, EventMarker, Input, Name, OptionsError, ParseOutcome,
    PluginFactory, Query, ReadContext, Reader, SniffResult, Source, Split, SplitStart,
};

use crate::calibration::{Calibration, CalibrationPath};
use images::ImageReader;
use wire::{Frame, ParsedFrame};

/// Options of `camlog`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CameraLogOptions {
    /// The camera logs: a file, a glob, a list of them, or `-` for standard input. Logs are read
    /// one after another; what is compressed with zstd is read as what it holds.
    path: InPaths,
    /// The channel of all images. Left out: the channel of the small images of the camera that a
    /// frame says it is of, which the calibration knows by the camera's `uid`.
    #[serde(default)]
    channel: Option<String>,
    /// Which cameras there are: `mit-dgc`, or a file.
    #[serde(default)]
    calibration: CalibrationPath,
}

/// Reads camera logs, and goes on after damage.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "CameraLogOptions")]
pub struct CameraLog {
    frames: Frames,
}

impl TryFrom<CameraLogOptions> for CameraLog {
    type Error = OptionsError;

    fn try_from(options: CameraLogOptions) -> Result<Self, OptionsError> {
        if options.channel.as_deref() == Some("") {
            return Err(OptionsError::at("channel", "expected a name"));
        }
        let load = options.calibration.load();
        let calibration = load.map_err(|message| OptionsError::at("calibration", message))?;
        let of_cameras = channels(&calibration)?;
        Ok(Self { frames: Frames { path: options.path, channel: options.channel, of_cameras } })
    }
}

impl JsonSchema for CameraLog {
    fn schema_name() -> Cow<'static, str> {
        "CameraLog".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        CameraLogOptions::json_schema(generator)
    }
}

/// Reads options so that mistakes in the calibration are told with their key.
fn make(options: Value) -> Result<Box<dyn Source>, OptionsError> {
    let options = core_options::read::<CameraLogOptions>(options)?;
    CameraLog::try_from(options).map(|log| Box::new(log) as _)
}

fn sniff(head: &[u8]) -> SniffResult {
    match wire::begins(head) {
        Some(true) => SniffResult::Yes,
        Some(false) => SniffResult::Maybe,
        None => SniffResult::No,
    }
}

sluice_core::register! {
    source "camlog": CameraLog,
    about: "reads camera logs, such as the full-size images of the MIT Urban Challenge vehicle",
    sample: include_str!("../../samples/camlog.toml"),
    extensions: &["camlog"],
    sniff: sniff,
    types: &["mit-dgc"],
    make: PluginFactory::Source(make),
}

/// The channels of the cameras' images, by the cameras' numbers.
fn channels(calibration: &Calibration) -> Result<BTreeMap<u64, String>, OptionsError> {
    let mut channels = BTreeMap::new();
    for camera in calibration.cameras() {
        let Some(text) = &camera.uid else { continue };
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let uid = number.map_err(|_| {
            let what = format!(
                "camera `{}`: expected a number as its `uid`, such as 0xb09d010062bd06, found `{text}`",
                camera.name
            );
            OptionsError::at("calibration", what)
        })?;
        let channel = camera.thumbnail_channel.clone().unwrap_or_else(|| camera.name.clone());
        channels.entry(uid).or_insert(channel);
    }
    Ok(channels)
}

/// The channel of images that no camera is known of.
const NO_CAMERA: &str = "CAMERA";

/// The frames of camera logs: events whose payload is a whole frame, as it stands in the log.
#[derive(Clone, Debug)]
struct Frames {
    path: InPaths,
    channel: Option<String>,
    of_cameras: BTreeMap<u64, String>,
}

impl Delimited for Frames {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let frame = match Frame::parse(bytes) {
            ParsedFrame::Frame(frame) => frame,
            ParsedFrame::More => return ParseOutcome::More,
            ParsedFrame::Not(why) => return ParseOutcome::NotAnEvent(why),
        };
        let (len, nanos) = (frame.len(), images::nanos(frame.micros));
        let timestamp = i64::try_from(nanos).unwrap_or(i64::MAX);
        // Until the run's channel is known by it, a channel has the number of its camera as its
        // name.
        let uid = bytes.get(frame.uid.clone()).unwrap_or_default();
        let parsed = ParseOutcome::event(len, timestamp, uid, 0..len);
        match frame.number.and_then(|number| i64::try_from(number).ok()) {
            Some(number) => parsed.numbered(number),
            None => parsed,
        }
    }

    fn mark(&self) -> EventMarker<'_> {
        EventMarker::Begins(&wire::MARK)
    }

    fn longest(&self) -> usize {
        wire::LONGEST
    }

    fn content(&self) -> Option<InputContent> {
        Some(InputContent::Binary)
    }

    fn has_complete_header(&self) -> bool {
        true
    }

    fn channel(&self, name: Name, source: Arc<str>) -> Channel {
        let uid = wire::uid_of(name.as_bytes());
        let of_camera = || match (self.of_cameras.get(&uid), uid) {
            (Some(channel), _) => channel.clone(),
            (None, 0) => NO_CAMERA.to_owned(),
            (None, uid) => format!("{NO_CAMERA}_{uid:016x}"),
        };
        let name = self.channel.clone().unwrap_or_else(of_camera);
        let mut channel = Channel::new(Name::from_text(&name), source, Encoding::Lcm);
        channel.type_name = Some("lcmtypes.image_t".into());
        if uid != 0 {
            channel.metadata.insert("camlog.uid".to_owned(), format!("0x{uid:016x}"));
        }
        channel
    }
}

impl Source for CameraLog {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        self.frames.inputs()
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        files::refuse_foreign(&self.inputs()?, InputContent::Binary, "a camera log")?;
        self.frames.splits(target, query)
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let frames = self.frames.read(split, entry, context)?;
        let is_named = self.frames.channel.is_some();
        Ok(Box::new(ImageReader::new(frames, is_named, context)))
    }
}
