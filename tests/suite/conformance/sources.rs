//! Sources, held to the conformance kit.
