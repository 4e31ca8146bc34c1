//! Stage `align`: fields of several channels as rows of one channel, at a fixed rate or at the
//! times of a channel. Decodes nothing.
//!
//! `select` takes the values of the fields out of decoded events, on all cores. `fold` sees them in
//! the order of events and chooses those of each row: `guard` decides which times to believe,
//! `track` which value a row takes, `rows` when there are rows. `columns` computes the columns of
//! finished rows, a batch at a time.

mod buffer;
mod chunks;
mod columns;
mod figures;
mod fold;
mod grid;
mod guard;
mod incoming;
mod options;
mod plan;
mod rows;
mod select;
mod track;
mod values;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use sluice_model::{OptionsError, Stage};

use fold::AlignFold;
use options::AlignOptions;
use plan::AlignPlan;
use select::SelectMap;

impl TryFrom<AlignOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: AlignOptions) -> Result<Self, OptionsError> {
        let plan = Arc::new(AlignPlan::new(options)?);
        let select = Self::Map(Box::new(SelectMap::new(Arc::clone(&plan))));
        Ok(Self::Chain(vec![select, Self::Fold(Box::new(AlignFold::new(plan)))]))
    }
}

sluice_model::register! {
    stage "align": AlignOptions,
    about: "puts fields of several channels into rows on one time base",
    sample: include_str!("../../samples/align.toml"),
}
