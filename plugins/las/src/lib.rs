//! Sink `las`: writes the points of decoded events as LAS and LAZ files for point cloud viewers.
//!
//! Makes no points: a stage before has put lists of them into the events' fields.

mod cloud;
mod file;
mod gps;
mod options;
mod pack;
mod points;
mod sink;

pub use sink::LasSink;
