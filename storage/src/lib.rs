//! Object stores: places where logs are read and outputs are written, by an address such as `s3://bucket/name`.
//!
//! Empty without the feature `engine`.
#![cfg(feature = "engine")]
