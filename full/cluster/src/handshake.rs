//! The handshake: what a scheduler says of itself, and whether who asks may work with it. Orders carry a
//! greeting, too; the worker that fulfils one compares that once more.

use std::fmt;

use ballista_core::BALLISTA_VERSION;
use serde::{Deserialize, Serialize};
use sluice_core::{Error, ErrorKind};
use sluice_pipeline::dispatch::Greeting;

use crate::address::Address;
use crate::http::{RequestError, get_json};

/// Where a scheduler says what it is.
pub(crate) const PATH: &str = "/sluice";

/// What a scheduler says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SchedulerIdentity {
    /// The version of Sluice.
    pub(crate) sluice: String,
    /// The plugins that are linked, as their kind and name, sorted.
    pub(crate) plugins: Vec<String>,
    /// The version of Ballista.
    pub(crate) ballista: String,
    /// Another one each time a scheduler is started.
    pub(crate) instance: String,
}

impl SchedulerIdentity {
    /// What a scheduler of this program says.
    pub(crate) fn new(greeting: &Greeting, instance: &str) -> Self {
        Self {
            sluice: greeting.sluice.clone(),
            plugins: greeting.plugins.clone(),
            ballista: BALLISTA_VERSION.to_owned(),
            instance: instance.to_owned(),
        }
    }
}

/// Why one does not work with a scheduler.
#[derive(Clone, Debug)]
pub(crate) enum HandshakeError {
    /// It is not there now.
    Unreachable(String),
    /// Nothing is to be hoped for by trying again: it is something else, or another version.
    Mismatch(String),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(what) | Self::Mismatch(what) => f.write_str(what),
        }
    }
}

impl From<HandshakeError> for Error {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Unreachable(what) => Self::refused(what),
            HandshakeError::Mismatch(what) => ErrorKind::NotAllowed(what).into(),
        }
    }
}

/// Asks a scheduler what it is, and compares.
pub(crate) async fn check_scheduler(
    scheduler: &Address,
    mine: &Greeting,
) -> Result<SchedulerIdentity, HandshakeError> {
    let identity: SchedulerIdentity =
        get_json(scheduler, PATH).await.map_err(|error| handshake_error(scheduler, error))?;
    match difference(&identity, mine) {
        None => Ok(identity),
        Some(what) => Err(HandshakeError::Mismatch(format!(
            "the scheduler at {scheduler} is not the same program: {what}; nothing was done"
        ))),
    }
}

/// Why a question to a scheduler was not answered.
pub(crate) fn handshake_error(scheduler: &Address, error: RequestError) -> HandshakeError {
    match error {
        RequestError::Unreachable(why) => HandshakeError::Unreachable(format!(
            "cannot reach the scheduler at {scheduler}: {why}; is `sluice cluster scheduler` running there?"
        )),
        RequestError::NotSluice => HandshakeError::Mismatch(format!(
            "what listens at {scheduler} is no scheduler of Sluice; start one by `sluice cluster scheduler`"
        )),
    }
}

fn difference(identity: &SchedulerIdentity, mine: &Greeting) -> Option<String> {
    if identity.ballista != BALLISTA_VERSION {
        let theirs = &identity.ballista;
        return Some(format!(
            "this has Ballista {BALLISTA_VERSION} and that has Ballista {theirs}"
        ));
    }
    let theirs = Greeting { sluice: identity.sluice.clone(), plugins: identity.plugins.clone() };
    mine.differs(&theirs)
}
