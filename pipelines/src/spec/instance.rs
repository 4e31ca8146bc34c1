//! The plugins of a pipeline, created with their options.

use std::fmt;

use sluice_model::{DynSink, Source, Stage};

/// A plugin instance in a pipeline.
pub enum PluginInstance {
    /// Reads events.
    Source(Box<dyn Source>),
    /// Changes events.
    Stage(Stage),
    /// Writes events.
    Sink(DynSink),
}

impl fmt::Debug for PluginInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source(_) => "Source",
            Self::Stage(_) => "Stage",
            Self::Sink(_) => "Sink",
        })
    }
}
