//! Sinks, held to the conformance kit.
