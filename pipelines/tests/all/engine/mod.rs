//! The engine with made-up plugins: chains, pushdown, merges, and memory use.

mod chains;
mod faulty;
mod invalid;
mod kit;
mod live_merges;
mod memory;
mod merges;
mod windows;
