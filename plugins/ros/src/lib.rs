//! ROS for Sluice: messages of ROS 1 and ROS 2 as columns and back, by the types that logs and
//! `.msg` files declare.

mod codec;
mod types;

pub use codec::{Ros1Types, Ros2Types};
