//! The error of what a stream is read from.

use std::{fmt, io};

/// A failure to read compressed bytes, as opposed to a failure to decompress them.
#[derive(Debug)]
pub(super) struct UpstreamError(io::Error);

impl UpstreamError {
    pub(super) fn error(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(error))
    }

    pub(super) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for UpstreamError {}
