//! Logs as tables of DataFusion: SQL over what any source reads, and the stage `sql`.
//!
//! `session` is where queries are planned and run; `table` makes tables of a source. `stage` asks queries of the
//! events of a pipeline.

pub mod session;
pub mod stage;
pub mod table;
