//! LCM event logs, source and sink `lcm-log`; and LCM messages, codec `lcm`.
//!
//! [`wire`] is the bytes of one event; [`scan`] decides what is an event where damage makes that a
//! question; [`reader`] goes through a log block by block; [`source`] and [`sink`] are the plugins;
//! [`types`] is the `.lcm` language, [`codec`] messages as columns.
//! [`format`](mod@format) is the log as a byte format, which archives hold.

pub mod codec;
pub mod format;
pub mod reader;
pub mod scan;
pub mod sink;
pub mod source;
pub mod types;
pub mod wire;
