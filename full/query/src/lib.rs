//! SQL over logs with DataFusion: logs as tables, and the stage `sql`.
//!
//! `statements` splits texts; `session` plans and runs queries; `table` makes tables of any source;
//! `cache` keeps columns of these on disk; `stage` runs a query over the events of a pipeline.
//! `functions` has those of payloads, `extremes` has `min` and `max`, `sums` has `sum`,
//! `arithmetic` sums, differences and products of two integers, `dates` dates and intervals;
//! `precedence` corrects what the parser misreads, and `refusals` refuses SQL that DataFusion
//! ignores or misreads, in sessions and stages.

#[macro_use]
mod delegation;

mod arithmetic;
pub mod cache;
mod dates;
mod extremes;
mod functions;
mod precedence;
mod refusals;
pub mod session;
mod stage;
pub mod statements;
mod sums;
pub mod table;
#[cfg(test)]
mod testing;
