//! Payloads and fields of events as files of their own, such as the images of a camera: sink `files`.
//!
//! Nothing here decodes a payload or an image.

pub mod jpeg;

mod index;
mod name;
mod sink;
mod told;
mod value;

pub use sink::Files;
