//! The message types of Foxglove that the stage writes, and the channels that carry them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use sluice_model::{Channel, EmbeddedSchema, Encoding, Name};

/// The coordinate frame of a view.
pub(crate) const FRAME: &str = "sluice.view.frame";

/// A message type of Foxglove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ViewSchema {
    CameraCalibration,
    CompressedImage,
    FrameTransforms,
    LaserScan,
    LocationFix,
    Log,
    PointCloud,
    PoseInFrame,
    RawImage,
}

/// The descriptors, made by `schemas/fetch.py`.
macro_rules! descriptors {
    ($($schema:ident),* $(,)?) => {
        [$((
            ViewSchema::$schema,
            concat!("foxglove.", stringify!($schema)),
            include_bytes!(concat!("../schemas/", stringify!($schema), ".binpb")).as_slice(),
        )),*]
    };
}

/// The name and the descriptor set of each type, in the order of the enum. Shared by all channels.
static SCHEMAS: LazyLock<Vec<(Arc<str>, EmbeddedSchema)>> = LazyLock::new(|| {
    let all = descriptors![
        CameraCalibration,
        CompressedImage,
        FrameTransforms,
        LaserScan,
        LocationFix,
        Log,
        PointCloud,
        PoseInFrame,
        RawImage,
    ];
    let schema = |data: &[u8]| EmbeddedSchema { encoding: "protobuf".into(), data: data.into() };
    all.into_iter().map(|(_, name, data)| (name.into(), schema(data))).collect()
});

impl ViewSchema {
    /// Whether viewers need the place of its frame to show it.
    pub(crate) fn lies_in_frame(self) -> bool {
        use ViewSchema::{CompressedImage, LaserScan, PointCloud, RawImage};
        matches!(self, CompressedImage | LaserScan | PointCloud | RawImage)
    }

    /// A channel of this type.
    pub(crate) fn channel(self, topic: &str, like: &Channel, frame: &str) -> Channel {
        let (type_name, schema) = &SCHEMAS[self as usize];
        let mut metadata = BTreeMap::from([(Channel::VIEW.to_owned(), "1".to_owned())]);
        for (key, value) in [(Channel::VIEW_OF, like.name.text()), (FRAME, frame)] {
            if !value.is_empty() {
                metadata.insert(key.into(), value.to_owned());
            }
        }
        Channel {
            type_name: Some(Arc::clone(type_name)),
            schema: Some(schema.clone()),
            clock: like.clock,
            metadata,
            ..Channel::new(Name::from_text(topic), Arc::clone(&like.source), Encoding::Protobuf)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_descriptor_declares_its_type() {
        let like = Channel::new(Name::from_text("A"), "log", Encoding::Lcm);
        for schema in [
            ViewSchema::CameraCalibration,
            ViewSchema::CompressedImage,
            ViewSchema::FrameTransforms,
            ViewSchema::LaserScan,
            ViewSchema::LocationFix,
            ViewSchema::Log,
            ViewSchema::PointCloud,
            ViewSchema::PoseInFrame,
            ViewSchema::RawImage,
        ] {
            let channel = schema.channel("/view/A", &like, "");
            assert_eq!(channel.type_name.as_deref(), Some(&*format!("foxglove.{schema:?}")));
            let data = channel.schema.unwrap().data;
            let name = format!("foxglove/{schema:?}.proto");
            assert!(data.windows(name.len()).any(|part| part == name.as_bytes()));
        }
    }
}
