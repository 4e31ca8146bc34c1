//! ROS messages and bags, through the public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bags;
mod cases;
mod connections;
mod db3;
mod db3_interrupted;
mod flips;
mod folders;
mod gaps;
mod operations;
mod packed;
mod peers;
mod unsupported;
