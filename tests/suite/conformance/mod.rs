//! Every plugin of the repository, held to the conformance kit.

mod codecs;
mod sinks;
mod sources;
mod stages;
