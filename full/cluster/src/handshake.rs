//! The handshake: checks that a scheduler is the same program with the same plugins. Orders carry
//! the identity of the program too, and the process of a unit checks it once more.

use std::fmt;

use ballista_core::BALLISTA_VERSION;
use serde::{Deserialize, Serialize};
use sluice_model::{Error, ErrorKind};
use sluice_pipeline::dispatch::ProgramIdentity;

use crate::endpoint::SchedulerEndpoint;
use crate::http::get_json;
use crate::request_error::RequestError;

/// The path of the identity on a scheduler.
pub(crate) const PATH: &str = "/sluice";

/// What a scheduler is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SchedulerIdentity {
    /// The version of Sluice.
    pub(crate) sluice: String,
    /// The linked plugins, as kind and name, sorted.
    pub(crate) plugins: Vec<String>,
    /// The version of Ballista.
    pub(crate) ballista: String,
    /// Changes each time a scheduler starts.
    pub(crate) instance: String,
}

impl SchedulerIdentity {
    /// The identity of a scheduler of this program.
    pub(crate) fn new(program: &ProgramIdentity, instance: &str) -> Self {
        Self {
            sluice: program.sluice.clone(),
            plugins: program.plugins.clone(),
            ballista: BALLISTA_VERSION.to_owned(),
            instance: instance.to_owned(),
        }
    }
}

/// Why a handshake failed.
#[derive(Clone, Debug)]
pub(crate) enum HandshakeError {
    /// The scheduler is not reachable now.
    Unreachable(String),
    /// It is a different program or version, or has other credentials; retrying is no use.
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

/// Fetches the scheduler's identity and compares it with ours.
pub(crate) async fn check_scheduler(
    scheduler: &SchedulerEndpoint,
    mine: &ProgramIdentity,
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

/// The handshake error for a failed request.
pub(crate) fn handshake_error(
    scheduler: &SchedulerEndpoint,
    error: RequestError,
) -> HandshakeError {
    match error {
        RequestError::Unreachable(why) => HandshakeError::Unreachable(format!(
            "cannot reach the scheduler at {scheduler}: {why}; is `sluice cluster scheduler` \
             running there?"
        )),
        RequestError::NotSluice => HandshakeError::Mismatch(format!(
            "{scheduler} is not a Sluice scheduler: start one with `sluice cluster scheduler`; if \
             it uses TLS, pass --tls here, too"
        )),
        RequestError::Refused(why) => HandshakeError::Mismatch(why),
    }
}

fn difference(identity: &SchedulerIdentity, mine: &ProgramIdentity) -> Option<String> {
    if identity.ballista != BALLISTA_VERSION {
        let theirs = &identity.ballista;
        return Some(format!("Ballista is {BALLISTA_VERSION} here and {theirs} there"));
    }
    let theirs =
        ProgramIdentity { sluice: identity.sluice.clone(), plugins: identity.plugins.clone() };
    mine.mismatch(&theirs)
}
