//! Computes figures: what each batch contributes, on any thread, and their sum in the order of the
//! log.
//!
//! The sum is exact: it depends neither on how the log is cut into batches nor on the grouping of
//! additions. Memory is bounded, whatever the log.

mod bins;
mod channel;
mod fields;
mod finish;
mod gaps;
mod grid;
mod part;
mod plots;
mod sum;
#[cfg(test)]
mod tests;

pub(crate) use grid::BucketWidth;
pub(crate) use part::Part;
use part::{FieldBudget, Limits};

/// The most channels with figures of their own.
const MAX_CHANNELS: usize = 1_000;
/// The most fields with figures: of all channels, and of each.
const MAX_FIELDS: usize = 1_000;
const MAX_FIELDS_OF_CHANNEL: usize = 128;

/// What computing the contribution of a batch needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartContext {
    /// [`Collection::width`], possibly an earlier one: makes parts smaller, and changes no figure.
    pub(crate) least_width: BucketWidth,
}

/// What has been collected of a log so far.
#[derive(Debug)]
pub(crate) struct Collection {
    part: Part,
    limits: Limits,
}

impl Default for Collection {
    fn default() -> Self {
        let fields = FieldBudget { left: MAX_FIELDS, of_channel: MAX_FIELDS_OF_CHANNEL };
        Self { part: Part::default(), limits: Limits { channels: MAX_CHANNELS, fields } }
    }
}

impl Collection {
    /// Adds the part that follows in the order of the log.
    pub(crate) fn append(&mut self, next: Part) {
        self.part.append(next, &mut self.limits);
    }

    /// The width of the buckets of time, which never becomes less.
    pub(crate) fn width(&self) -> BucketWidth {
        self.part.width
    }
}
