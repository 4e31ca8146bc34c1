//! SQL over logs with DataFusion: logs as tables, and the stage `sql`.
//!
//! `statements` splits texts; `session` plans and runs queries; `table` makes tables of any source;
//! `cache` keeps columns of these on disk; `stage` runs a query over the events of a pipeline.
//! `functions` has those of payloads, `extremes` has `min` and `max`, `arithmetic` sums and
//! products of integers; `refusals` refuses SQL that DataFusion ignores or misreads, in sessions
//! and stages.

mod arithmetic;
pub mod cache;
mod extremes;
mod functions;
mod refusals;
pub mod session;
mod stage;
pub mod statements;
pub mod table;
