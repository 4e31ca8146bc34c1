//! ROS for Sluice: messages of ROS 1 and ROS 2 as columns and back, by the types that logs and
//! `.msg` files declare.

mod bag;
mod codec;
mod db3;
mod rosbag2;
mod splits;
mod types;

pub use bag::BagSource;
pub use codec::{Ros1Types, Ros2Types};
pub use db3::Db3Source;
pub use rosbag2::Rosbag2;
