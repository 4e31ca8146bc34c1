//! The engine with made-up plugins: what stages of several parts do, what is read for them, how
//! streams are merged, and how much memory a run takes.

mod chains;
mod kit;
mod memory;
mod merges;
