//! LeRobot datasets, version 3.0: the sink `lerobot` writes rows as frames of episodes, the source
//! `lerobot` reads frames back as rows. Aligns no channels and cuts no episodes by conditions:
//! stages do that.

mod episode_table;
mod feature;
mod image;
mod info;
mod numbers;
mod parquet_io;
mod pixels;
mod sink;
mod source;
mod stats;
mod task_table;

pub use sink::LeRobotSink;
pub use source::LeRobotSource;
