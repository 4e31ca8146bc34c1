//! Source `camlog`: camera logs with the vehicle's full-size images, which are separate from its
//! LCM logs. Each frame becomes an `image_t` message, like the thumbnails in the LCM logs. Decodes
//! no images.

mod images;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sluice_io::files::{self, InputContent};
use sluice_kit::{Delimited, DelimitedSource, EventMarker, ParseOutcome};
use sluice_model::options::{self as core_options, InPaths};
use sluice_model::{
    Channel, Encoding, Error, Input, Name, OptionsError, PluginFactory, Query, ReadContext, Reader,
    Registry, SniffResult, Source, Split, SplitStart,
};

use crate::calibration::{Calibration, CalibrationPath};
use images::ImageReader;
use wire::{CameraFrame, ParsedFrame};

/// Options of `camlog`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CameraLogOptions {
    /// The camera logs: a file, a glob, a list of them, or `-` for standard input. Logs are read
    /// one after another; zstd-compressed files are decompressed.
    path: InPaths,
    /// Channel of all images. Default: the thumbnail channel of the frame's camera, which the
    /// calibration finds by its `uid`.
    #[serde(default)]
    channel: Option<String>,
    /// The calibration with the cameras: `mit-dgc`, or a file.
    #[serde(default)]
    calibration: CalibrationPath,
}

/// Reads camera logs and continues after damage.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "CameraLogOptions")]
#[schemars(with = "CameraLogOptions")]
pub(crate) struct CameraLog {
    frames: DelimitedSource<CameraLogFrames>,
}

impl TryFrom<CameraLogOptions> for CameraLog {
    type Error = OptionsError;

    fn try_from(options: CameraLogOptions) -> Result<Self, OptionsError> {
        if options.channel.as_deref() == Some("") {
            return Err(OptionsError::at("channel", "expected a name"));
        }
        let load = options.calibration.load();
        let calibration = load.map_err(|message| OptionsError::at("calibration", message))?;
        let channels_by_uid = channels_by_uid(&calibration)?;
        Ok(Self {
            frames: DelimitedSource(CameraLogFrames {
                path: options.path,
                channel: options.channel,
                channels_by_uid,
            }),
        })
    }
}

/// Reads options, so that mistakes in the calibration name their key.
fn make(options: Value, _: &Registry) -> Result<Box<dyn Source>, OptionsError> {
    let options = core_options::read::<CameraLogOptions>(options)?;
    CameraLog::try_from(options).map(|log| Box::new(log) as _)
}

fn sniff(head: &[u8]) -> SniffResult {
    match wire::starts_camera_log(head) {
        Some(true) => SniffResult::Yes,
        Some(false) => SniffResult::Maybe,
        None => SniffResult::No,
    }
}

sluice_model::register! {
    source "camlog": CameraLog,
    make: PluginFactory::Source(make),
    about: "reads camera logs, such as the full-size images of the MIT Urban Challenge vehicle",
    sample: include_str!("../../samples/camlog.toml"),
    extensions: &["camlog"],
    sniff: sniff,
    types: &["mit-dgc"],
}

/// The image channels of the cameras, by `uid`.
fn channels_by_uid(calibration: &Calibration) -> Result<BTreeMap<u64, String>, OptionsError> {
    let mut channels = BTreeMap::new();
    for camera in calibration.cameras() {
        let Some(text) = &camera.uid else { continue };
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let uid = number.map_err(|_| {
            let what = format!(
                "camera `{}`: expected a number such as 0xb09d010062bd06 as `uid`, found `{text}`",
                camera.name
            );
            OptionsError::at("calibration", what)
        })?;
        let channel = camera.thumbnail_channel.clone().unwrap_or_else(|| camera.name.clone());
        channels.entry(uid).or_insert(channel);
    }
    Ok(channels)
}

/// The channel of images of unknown cameras.
const NO_CAMERA: &str = "CAMERA";

/// The frames of camera logs: events whose payload is a whole frame as stored in the log.
#[derive(Clone, Debug)]
struct CameraLogFrames {
    path: InPaths,
    channel: Option<String>,
    channels_by_uid: BTreeMap<u64, String>,
}

impl Delimited for CameraLogFrames {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn parse<'b>(&self, bytes: &'b [u8]) -> ParseOutcome<'b> {
        let frame = match CameraFrame::parse(bytes) {
            ParsedFrame::Frame(frame) => frame,
            ParsedFrame::More => return ParseOutcome::More,
            ParsedFrame::Not(why) => return ParseOutcome::NotAnEvent(why),
        };
        let (len, nanos) = (frame.len(), images::nanos(frame.micros));
        let timestamp = i64::try_from(nanos).unwrap_or(i64::MAX);
        // The `uid` stands for the channel until `channel` resolves it.
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

    /// A frame has several fields, each with its mark, a kind, and mostly the length of this kind.
    fn is_unmistakable(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        wire::MAX_FRAME_LEN
    }

    fn content(&self) -> Option<InputContent> {
        Some(InputContent::Binary)
    }

    fn has_complete_header(&self) -> bool {
        true
    }

    fn channel(&self, name: Name, source: Arc<str>) -> Channel {
        let uid = wire::parse_uid(name.as_bytes());
        let of_camera = || match (self.channels_by_uid.get(&uid), uid) {
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
        let has_channel_option = self.frames.0.channel.is_some();
        Ok(Box::new(ImageReader::new(frames, has_channel_option, context)))
    }
}
