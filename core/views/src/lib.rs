//! Which fields of decoded messages are pictures, scans, points, poses and positions on the globe,
//! and how to read them.
//!
//! Maps in TOML say which: those of the built-in types are in the folder `maps/`, others are
//! options of plugins. Image files are checked, decoded and encoded here. Knows no log format.

mod columns;
mod fields;
mod fixes;
mod image_files;
mod jpeg;
mod maps;
mod pictures;
mod pixels;
mod points;
mod rotation;
mod scans;

pub use columns::{
    Blobs, Lists, Numbers, Placements, Texts, Times, count, doubles, list_parts, optional,
};
pub use fields::{
    FixFields, ImageFields, LogFields, MountFields, PlacementFields, PointsField, PoseFields,
    Scalar, ScanFields, TimeUnit, ViewMap,
};
pub use fixes::{FixColumns, Position};
pub use image_files::{DecodedImage, ImageDecoding, encode_jpeg, jpeg_dimensions};
pub use jpeg::{JpegFault, JpegSize, check_jpeg};
pub use maps::{ViewNames, maps, parse_maps};
pub use pictures::{ImageColumns, PixelLayout};
pub use pixels::{DeclaredFormat, PixelEncodings, compressed_format, row_bytes};
pub use points::PointLists;
pub use rotation::{Placement, Rotation};
pub use scans::ScanColumns;
