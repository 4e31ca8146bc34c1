//! SQL over logs, a cluster engine and object stores, for programs that link this crate:
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

// Registers its address schemes when linked.
#[cfg(feature = "s3")]
use sluice_storage as _;
