//! The engine with made-up plugins: chains, pushdown, merges, and memory use.

mod chains;
mod faulty;
mod kit;
mod memory;
mod merges;
