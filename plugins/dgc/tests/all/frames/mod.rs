//! Points and poses in other frames and on the globe: by hand, in any order of events, and however
//! these are cut into batches.

mod codec;
mod georeference;
mod kit;
mod to_frame;
mod unproject;
