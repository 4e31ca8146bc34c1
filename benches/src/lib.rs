//! What the benchmark programs share: made-up logs, a bare loop over logs, and tables of counts.
//!
//! Nothing here uses Sluice: what is measured is not measured with itself.

pub mod bare;
pub mod counts;
pub mod mix;
mod noise;
pub mod points;
pub mod robots;
