//! Points of decoded events as LAS and LAZ files, which viewers of point clouds open: sink `las`.
//!
//! Nothing here makes points: a stage before has put lists of them into the events' fields.

mod cloud;
mod file;
mod gps;
mod pack;
mod points;
mod sink;

pub use sink::Las;
