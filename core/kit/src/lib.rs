//! The toolkit for authors of plugins: framed and delimited logs, decoding payloads by their
//! layout, fields and lists, templates, and the contract that sources keep.
//!
//! Everything here could be written with the vocabulary of `sluice_model` alone. This crate knows
//! no plugin, no pipeline file and no thread pool.

pub mod census;
pub mod codecs;
pub mod column_types;
pub mod columns;
pub mod contract;
pub mod counts;
pub mod delimited;
pub mod event_table;
pub mod framed;
pub mod gap;
pub mod ids;
mod input_faults;
pub mod json;
pub mod lines;
pub mod lists;
pub mod merge;
pub mod mistake;
pub mod playback;
pub mod reading;
pub mod selection;
mod sink_plugins;
pub mod suggestion;
pub mod template;
mod type_choice;
pub mod type_library;
pub mod unnest;
mod wanted_channels;
pub mod window;

pub use codecs::{CodecOptions, Codecs, EMBEDDED_IF_ANY, EMBEDDED_TYPES, TypeFile, TypePaths};
pub use delimited::{
    Delimited, DelimitedSource, EventMarker, LineContent, ParseOutcome, TextLines,
};
pub use ids::{ChannelIds, KeptNames, KeyedChannelIds, is_same_name};
pub use input_faults::InputFaults;
pub use playback::Playback;
pub use sink_plugins::SinkPlugins;
pub use template::Template;
pub use type_choice::{TypeChoice, TypesByKey};
pub use wanted_channels::WantedChannels;
