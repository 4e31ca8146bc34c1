//! Logs as tables of DataFusion: SQL over what any source reads, and the stage `sql`.
//!
//! Empty without the feature `engine`.
#![cfg(feature = "engine")]
