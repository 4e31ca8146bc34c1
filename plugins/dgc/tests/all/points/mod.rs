//! The stages `velodyne` and `laser`, as pipelines run them: by name, from options, on batches.

mod golden;
mod kit;
mod laser;
mod velodyne;
