//! Pipelines: reading pipeline files and running them.

pub mod batch;
pub mod dispatch;
mod equal_source_names;
pub mod graph;
pub mod library;
pub mod manifest;
pub mod mistake;
pub mod names;
mod note;
pub mod report;
mod resolved;
pub mod resume;
pub mod run;
pub mod schema;
mod source_name;
pub mod spec;
pub mod unused_rows;

pub use mistake::{Mistake, Mistakes};
pub use report::Report;
pub use spec::{
    Document, OnDamage, Outline, OutlineNode, Pipeline, PipelineNode, PluginInstance, PresetOption,
    Variables,
};
