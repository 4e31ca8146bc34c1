//! Shared by the benchmark programs: generated logs, a minimal loop over logs, and tables of
//! counts.
//!
//! Does not use Sluice, so that it is not measured with itself.

pub mod bare;
pub mod counts;
pub mod mix;
mod noise;
pub mod points;
pub mod robots;
