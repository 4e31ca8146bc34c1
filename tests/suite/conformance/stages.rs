//! Stages, held to the conformance kit.
