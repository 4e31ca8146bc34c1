//! The cluster engine: the units of a pipeline, run on many machines by Apache Ballista.
//!
//! Empty without the feature `engine`.
#![cfg(feature = "engine")]
