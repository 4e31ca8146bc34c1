//! What the full program has beside the command line and the plugins of every program: SQL over logs, a
//! cluster engine, and object stores. A program of your own has them by naming this crate:
//!
//! ```text
//! use my_plugin as _;
//! use sluice_all as _;
//! use sluice_full as _;
//!
//! fn main() -> std::process::ExitCode {
//!     sluice::main()
//! }
//! ```

#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "query")]
mod query;

// Its addresses are known to whoever links it.
#[cfg(feature = "s3")]
use sluice_storage as _;
