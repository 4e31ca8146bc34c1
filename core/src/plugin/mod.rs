//! The kinds of plugin, and what the engine hands them. Knows no plugin and runs nothing.
//!
//! A plugin is one type that holds its options and implements one of these traits. Making one reads
//! options and nothing else: inputs are opened by [`Source::splits`] and [`Source::read`], outputs by
//! [`Sink::open`].

mod query;
mod service;
mod sink;
mod source;
mod stage;

pub use query::{ChannelLog, ChannelQuery, Query, Window};
pub use service::Service;
pub use sink::{
    DynSink, EncodeContext, Origin, OriginInput, SOURCES_LOST, Sink, SinkContext, times_clamped,
};
pub use source::{Entry, Input, ReadContext, Reader, Seam, Source, Split};
pub use stage::{Fold, FoldQuery, Map, MapQuery, RowsAfter, Stage, StageContext, Undecoded};
