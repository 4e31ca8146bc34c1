//! The shared secret of a cluster: reads it, sends it with requests, and compares it in constant
//! time. Never prints it.

use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;
use std::sync::Arc;

use axum::http::HeaderValue;
use constant_time_eq::constant_time_eq;
use sluice_model::Error;

use super::files::{self, not_allowed};

/// How long a secret is, in characters. The shortest is 128 bits in hexadecimal digits.
const LENGTHS: std::ops::RangeInclusive<usize> = 32..=1024;

/// A secret that all processes of a cluster share. Sent as the bearer token of every request.
#[derive(Clone)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Reads the only line of a file.
    ///
    /// `Err` if it is not a secret, or if users other than its owner may read or change it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = files::read_private(path)?;
        Self::parse(&text).map_err(|what| not_allowed(format!("{}: {what}", path.display())))
    }

    /// Reads the next line, which the process that started this one writes.
    pub fn read_line(input: &mut impl BufRead) -> Result<Self, Error> {
        let mut line = String::new();
        let read = input.take(MAX_LINE).read_line(&mut line);
        read.map_err(|e| Error::io("read", "-", e))?;
        Self::parse(&line).map_err(|what| not_allowed(format!("standard input: {what}")))
    }

    /// A new random secret of 256 bits.
    pub fn generate() -> Result<Self, Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)
            .map_err(|e| Error::refused(format!("cannot get random numbers: {e}")))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()))
    }

    /// The secret as text, for a pipe to a child process.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// The value of the header `authorization`. Marked as sensitive: HTTP libraries do not log it.
    pub(crate) fn to_header(&self) -> HeaderValue {
        let value = HeaderValue::from_str(&format!("{SCHEME}{}", self.0));
        let mut value = value.expect("a secret has only characters that a header may have");
        value.set_sensitive(true);
        value
    }

    /// Whether this header contains the secret. Takes the same time for all secrets of a length.
    pub(crate) fn matches(&self, header: &HeaderValue) -> bool {
        let token = header.as_bytes().strip_prefix(SCHEME.as_bytes());
        token.is_some_and(|token| constant_time_eq(token, self.0.as_bytes()))
    }

    /// A secret is one line of visible ASCII characters. White space around it is ignored.
    fn parse(text: &str) -> Result<Self, String> {
        let secret = text.trim();
        let length = secret.chars().count();
        if length == 0 {
            return Err(format!("expected a secret, found nothing; {MAKE_ONE}"));
        }
        if !secret.chars().all(|c| c.is_ascii_graphic()) {
            return Err(format!(
                "expected a secret, one line of letters, digits and punctuation; {MAKE_ONE}"
            ));
        }
        if !LENGTHS.contains(&length) {
            let (least, most) = (LENGTHS.start(), LENGTHS.end());
            return Err(format!(
                "expected a secret of {least} to {most} characters, found {length}; {MAKE_ONE}"
            ));
        }
        Ok(Self(secret.into()))
    }
}

/// The authentication scheme in front of the secret.
const SCHEME: &str = "Bearer ";

/// The longest line that is read.
const MAX_LINE: u64 = 4 << 10;

/// Where to get a secret from.
const MAKE_ONE: &str = "make one with `openssl rand -hex 32`, or `sluice cluster keys`";

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
