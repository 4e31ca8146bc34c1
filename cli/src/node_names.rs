//! The names of those nodes of generated pipelines that messages or other nodes refer to.

/// The source.
pub const SOURCE_NAME: &str = "log";

/// The sink.
pub(crate) const SINK_NAME: &str = "out";

/// The stage that decodes payloads.
pub const TYPED_NAME: &str = "typed";

/// The stage that makes rows on one time base.
pub(crate) const ALIGNED_NAME: &str = "aligned";

/// The stage that cuts rows into episodes.
pub(crate) const EPISODES_NAME: &str = "episodes";
