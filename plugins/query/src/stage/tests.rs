//! The stage, made from options and given batches.
