//! Keys of objects, as the library for stores has them.

use std::io;

use object_store::path::Path;
use sluice_io::store::Address;

use crate::errors;

/// The key of an address, unchanged.
pub(crate) fn key(at: &Address) -> io::Result<Path> {
    Path::parse(at.key()).map_err(|error| errors::request_error(&error.into()))
}
