//! Reads pipeline files: text in, a [`Pipeline`] with every plugin created, or all its mistakes
//! out.
//!
//! Opens no input; the only file it reads is the pipeline file itself.

mod batch;
mod check;
mod document;
pub(crate) mod instance;
mod keys;
mod links;
pub(crate) mod messages;
mod node;
pub(crate) mod options;
mod outline;
mod outputs;
mod payloads;
mod pipeline;
mod prune;
mod read;
pub(crate) mod reference;
mod relocation;
pub(crate) mod schema_view;
mod syntax;
pub(crate) mod templates;
mod values;
mod variables;
mod when;

pub use document::{Document, PresetOption};
pub use instance::PluginInstance;
pub use outline::{Outline, OutlineNode};
pub(crate) use pipeline::{GROUPS, TemplateTarget};
pub use pipeline::{OnDamage, Pipeline, PipelineNode, PrunedNode, StageFactory, TemplateSlot};
pub use reference::{DAMAGE_KEYS, is_node_key};
pub use relocation::{quoted, string_literal};
pub use variables::{Variables, has_variable};
