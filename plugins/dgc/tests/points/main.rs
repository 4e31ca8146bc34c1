//! The stages `velodyne` and `laser`, as pipelines run them: by name, from options, on batches.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod golden;
mod kit;
mod laser;
mod velodyne;
