//! Expectations that a log must meet: files of them, and comparing figures with them.

mod compare;
mod generate;
mod limit;
mod rules;
mod sink;
mod stage;
#[cfg(test)]
mod tests;
mod values;
mod words;

pub use compare::{Comparison, compare, unmet};
pub use generate::from_figures;
pub use limit::Limit;
pub use rules::{ChannelExpectation, ChannelRules, Expectations, LogRules, Rule};
pub use values::{
    CountRange, DroppedShare, DurationRange, FieldRange, LatencyRange, MustExist, RateRange,
};
