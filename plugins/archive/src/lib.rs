//! Archives: source and sink `archive`, and the byte format `arrow`.
//!
//! An archive is a zstd file of independent frames, each with whole events; then an index, in a frame that
//! decompressors skip; then a seek table. `zstd -d` gives the plain log. [`foot`] knows what stands at its
//! end, and [`index`] what that says of each frame. [`sink`] and [`source`] are the plugins; the source
//! reads by `reader` where the foot can be believed, by `scan` where it cannot, and leaves what is no
//! archive to the source that knows it, by [`other`].

pub mod arrow;
pub mod foot;
pub mod format;
pub mod index;
pub mod other;
pub mod sink;
pub mod source;

mod frame;
mod reader;
mod scan;
