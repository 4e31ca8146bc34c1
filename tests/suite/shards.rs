//! Batches that are run in parts, whose records are put together.
