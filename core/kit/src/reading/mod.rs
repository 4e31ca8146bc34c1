//! Reading the splits of a source: ahead of the consumer, on threads that it provides, with results
//! in order.
//!
//! [`ReadAhead`] is the only loop over splits. Runs, queries and the contract tests use it; each
//! says what is done with a batch, who runs [tasks](ReadTask), and how far to read ahead
//! ([`ReadLimits`]). It knows no thread pool and no async runtime.

mod batches;
mod limits;
mod read_ahead;

pub use batches::Wake;
pub use limits::{ReadLimits, StepSizes};
pub use read_ahead::{ReadAhead, ReadStep, ReadTask};
