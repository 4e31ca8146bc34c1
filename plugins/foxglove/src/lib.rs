//! Stage `foxglove`: adds messages that viewers such as Foxglove, Lichtblick and Rerun show by
//! themselves: images, point clouds, laser scans, transforms, poses and positions.
//!
//! It reads decoded rows, by the names of their columns, and knows no log format. Which fields of
//! which types are a picture or a pose is said by `maps` in TOML: those of the built-in types are
//! in the folder `core/views/maps/`, others are options. The messages are protobuf, with Foxglove's
//! own descriptors. Points of packets, positions on the globe and mounts come from the stages
//! `velodyne`, `georeference` and `mounts`, through the registry.

mod added;
mod calibration;
mod convert;
mod fold;
mod gather;
mod layout;
mod layout_sink;
mod messages;
mod options;
mod parts;
mod plan;
mod points;
mod schema;
mod stage;
mod wire;
