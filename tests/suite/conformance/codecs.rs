//! Codecs, held to the conformance kit.
