//! The vocabulary that all parts of Sluice share: events and batches, channels, options, damage,
//! the plugin traits and the registry.
//!
//! This crate knows no plugin, no pipeline file and no thread pool.
//!
//! # How the words fit together
//!
//! A [`Source`] lists its [`Split`]s; reading a split returns [`Batch`]es of events, in order. A
//! [`Stage`] turns batches into batches. A [`Sink`] prepares batches, gathers them into units, and
//! writes these in order. A [`Codec`] turns payloads of one type into Arrow columns and back.
//! Plugins use [`register!`] and are found by name in a [`Registry`].

pub mod batch;
pub mod cast;
pub mod channel;
pub mod codec;
pub mod cursor;
pub mod field;
pub mod loss;
pub mod options;
pub mod panics;
pub mod pattern;
pub mod plugin;
pub mod pool;
pub mod programs;
pub mod raw;
pub mod registry;
pub mod rows;
pub mod time;
pub mod units;

mod arrow;
mod channels;
mod column;
mod damage;
mod declared;
mod format;
mod message;
mod name;
mod payload_type;
mod run_handle;
mod unmet;

pub use arrow::UsedChannels;
pub use batch::{Batch, BatchBuilder, Event, PayloadOffset};
pub use channel::{Channel, ChannelId, Clock, EmbeddedSchema, Encoding};
pub use channels::{ChannelSet, Channels, PerChannel};
pub use codec::{Codec, DeclaredTypes, KeyOf, KnownType, UnusableTypes};
pub use damage::{Damage, DamageList, DamageLog, DamageTotals, RunDamage};
pub use declared::DeclaredColumns;
pub use field::FieldPath;
pub use format::ByteFormat;
pub use loss::LossLog;
pub use message::{MessageType, TypeKey};
pub use name::Name;
pub use pattern::{Pattern, Patterns, whole_name_regex};
pub use payload_type::{PayloadForm, PayloadType};
pub use plugin::{
    ChannelLog, ChannelQuery, DynSink, Fold, FoldQuery, LiveBatches, LiveSender, Map, MapQuery,
    OpenSink, PrepareContext, PrepareReport, PreparedBatch, Query, ReadContext, Reader, RowsEffect,
    RunInput, RunOrigin, Seam, Service, Sink, SinkContext, SinkInput, SinkTraits, Source, Split,
    SplitStart, Stage, StageContext, StageReport, TimeWindow, UndecodedPolicy, Written,
};
pub use pool::BlockPool;
pub use registry::{
    CompanionSink, Constructor, ConversionNodes, ConversionStage, DefaultRole, LogPayloads,
    PayloadProbe, Plugin, PluginFactory, PluginKind, Registry, SniffResult,
};
pub use rows::{Payloads, Rows, array_bytes};
pub use run_handle::{RunHandle, RunHost};
pub use sluice_io::{
    Error, ErrorKind, Input, Job, OptionsError, OutputFile, Outputs, Overwrite, error,
};
pub use unmet::{UnmetExpectation, UnmetTime};

// Re-exports for the `register!` macro, so that plugin crates need no dependencies for it.
#[doc(hidden)]
pub use inventory;
#[doc(hidden)]
pub use schemars;
#[doc(hidden)]
pub use serde_json;
#[doc(hidden)]
pub use sluice_io::store::LinkedStore;
