//! Points and poses in other frames and on the globe: by hand, in any order of events, and however these are
//! cut into batches.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod codec;
mod georeference;
mod kit;
mod to_frame;
mod unproject;
