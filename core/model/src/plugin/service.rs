//! Services: servers that run independently of any pipeline, until they are stopped.

use std::sync::atomic::AtomicBool;

use crate::Error;

/// Serves other programs, such as the hub of a network.
pub trait Service: Send + Sync {
    /// Serves until `stop` is set. Log messages are passed to `say`, one line each.
    fn serve(&self, stop: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<(), Error>;
}
