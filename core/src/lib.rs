//! The vocabulary shared by all parts of Sluice: events and batches, channels, the plugin traits,
//! the registry, damage, errors, and the contract tests for plugins.
//!
//! This crate knows no plugin, no pipeline file and no thread pool.
//!
//! # How the words fit together
//!
//! A [`Source`] lists its [`Split`]s; reading a split returns [`Batch`]es of events, in order. A
//! [`Stage`] turns batches into batches. A [`Sink`] encodes batches and appends them to its output
//! in order. A [`Codec`] turns payloads of one type into Arrow columns and back. Plugins use
//! [`register!`] and are found by name in a [`Registry`].

pub mod batch;
pub mod booleans;
pub mod census;
pub mod channel;
pub mod codec;
pub mod codecs;
pub mod columns;
pub mod contract;
pub mod counts;
pub mod cursor;
pub mod damage;
pub mod declared;
pub mod delimited;
pub mod error;
pub mod field;
pub mod files;
pub mod format;
pub mod framed;
pub mod frames;
pub mod ids;
pub mod json;
pub mod lines;
pub mod lists;
pub mod loss;
pub mod merge;
pub mod mistake;
pub mod name;
pub mod options;
pub mod output;
pub mod pattern;
pub mod payload_form;
pub mod playback;
pub mod plugin;
pub mod pool;
pub mod programs;
pub mod registry;
pub mod rows;
pub mod run_handle;
pub mod selection;
pub mod store;
pub mod suggestion;
pub mod tasks;
pub mod template;
pub mod time;
mod type_choice;
pub mod type_library;
pub mod unnest;
pub mod window;

mod arrow;
mod column;
mod globs;

pub use batch::{Batch, BatchBuilder, Event, PayloadOffset};
pub use channel::{Channel, ChannelId, Channels, Clock, Encoding, PerChannel};
pub use codec::{Codec, KeyOf, KnownType, MessageType, PayloadType, TypeKey, UnusableTypes};
pub use codecs::{CodecOptions, Codecs, TypeFile, TypePaths};
pub use damage::{Damage, DamageLog};
pub use declared::DeclaredColumns;
pub use delimited::{Delimited, EventMarker, LineContent, ParseOutcome, TextLines};
pub use error::{Error, ErrorKind, OptionsError};
pub use field::FieldPath;
pub use format::ByteFormat;
pub use ids::ChannelIds;
pub use loss::LossLog;
pub use name::Name;
pub use output::{OutputFile, Outputs, Overwrite};
pub use pattern::{Pattern, Patterns};
pub use playback::Playback;
pub use plugin::{
    ChannelLog, ChannelQuery, DynSink, EncodeContext, Fold, FoldQuery, Input, Map, MapQuery, Query,
    ReadContext, Reader, RowsEffect, RunInput, RunOrigin, Seam, Service, Sink, SinkContext, Source,
    Split, SplitStart, Stage, StageContext, StageReport, TimeWindow, UndecodedPolicy,
};
pub use pool::BlockPool;
pub use registry::{FULL_PROGRAM, Plugin, PluginFactory, PluginKind, Registry, SniffResult};
pub use rows::{Payloads, Rows};
pub use run_handle::{RunHandle, RunHost};
pub use tasks::{OrderedTasks, Tasks};
pub use template::Template;
pub use type_choice::{TypeChoice, TypesByKey};

// Re-exports for the `register!` macro, so that plugin crates need no dependencies for it.
#[doc(hidden)]
pub use inventory;
#[doc(hidden)]
pub use schemars;
#[doc(hidden)]
pub use serde_json;
