//! Services: what serves other programs beside any pipeline, until it is stopped.

use std::sync::atomic::AtomicBool;

use crate::Error;

/// Serves other programs: the hub of a network, say.
pub trait Service: Send + Sync {
    /// Serves until `stop` is raised. What is worth telling is given to `say`, a line each.
    fn serve(&self, stop: &AtomicBool, say: &(dyn Fn(&str) + Sync)) -> Result<(), Error>;
}
