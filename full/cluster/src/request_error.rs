//! Why the scheduler does not answer.

use std::error::Error;
use std::fmt;

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// Nothing is listening, or it does not respond.
    Unreachable(String),
    /// Something other than a Sluice scheduler is listening.
    NotSluice,
    /// One side does not accept the credentials of the other; why, and what to do.
    Refused(String),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) | Self::Refused(why) => f.write_str(why),
            Self::NotSluice => f.write_str("it is not a Sluice scheduler"),
        }
    }
}

impl Error for RequestError {}
