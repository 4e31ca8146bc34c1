//! Object stores: places where logs are read and outputs are written, by an address such as `s3://bucket/name`.
//!
//! Speaks the protocol of S3 through the `object_store` library; what is done with objects is decided in
//! `sluice_core`. How to get at a store comes from the environment only, never from a pipeline file, and is never
//! part of what is said or written.

mod errors;
mod runtime;
mod s3;
mod settings;
mod upload;

sluice_core::register! { store ["s3", "s3a"]: &s3::S3 }
