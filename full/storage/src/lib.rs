//! Object stores: reads logs and writes outputs at addresses such as `s3://bucket/name`.
//!
//! Speaks the S3 protocol through the `object_store` library; `sluice_io` decides what is done
//! with objects. Credentials come from the environment only, never from a pipeline file, and never
//! appear in messages or outputs.

mod connector;
mod errors;
mod key;
mod listing;
mod runtime;
mod s3;
mod settings;
mod upload;
mod variables;

sluice_model::register! { store ["s3", "s3a"]: &s3::S3 }
