//! Programs as sources, stages and sinks, over Arrow IPC.
