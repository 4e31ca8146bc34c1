//! The plugin traits, and the contexts the engine passes to them. Knows no plugin and runs nothing.
//!
//! A plugin is one type that holds its options and implements one of these traits. Constructing one
//! only parses options: inputs are opened by [`Source::splits`] and [`Source::read`], outputs by
//! [`Sink::open`].

mod fold;
mod live;
mod open_sink;
mod query;
mod service;
mod sink;
mod source;
mod stage;
mod stage_context;
mod undecoded;

pub use fold::{Fold, FoldQuery};
pub use live::{LiveBatches, LiveSender};
pub use open_sink::{DynSink, OpenSink, PreparedBatch};
pub use query::{ChannelLog, ChannelQuery, Query, TimeWindow};
pub use service::Service;
pub use sink::{
    PrepareContext, PrepareReport, RunInput, RunOrigin, SOURCES_LOST, Sink, SinkContext, SinkInput,
    SinkTraits, Written, times_clamped,
};
pub use source::{ReadContext, Reader, Seam, Source, Split, SplitStart};
pub use stage::{Map, MapQuery, Stage};
pub use stage_context::{RowsEffect, StageContext, StageReport};
pub use undecoded::UndecodedPolicy;
