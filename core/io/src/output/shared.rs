//! An output for libraries that take a writer for good, and only know `io::Error`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::OutputFile;
use crate::Error;

/// A handle of an output, which can be given away. Keeps the reason when a write fails.
#[derive(Clone, Debug)]
pub struct SharedOutput(Arc<Mutex<OutputState>>);

#[derive(Debug)]
struct OutputState {
    file: OutputFile,
    failed: Option<Error>,
}

impl SharedOutput {
    /// The first handle of an output.
    pub fn new(file: OutputFile) -> Self {
        Self(Arc::new(Mutex::new(OutputState { file, failed: None })))
    }

    /// The path it will be published as.
    pub fn target(&self) -> PathBuf {
        self.lock().file.target().to_owned()
    }

    /// The result of a library that writes to it: the error of the output if there is one.
    pub fn check<T, E>(
        &self,
        result: Result<T, E>,
        or_else: impl FnOnce(E) -> Error,
    ) -> Result<T, Error> {
        match self.lock().failed.take() {
            Some(error) => Err(error),
            None => result.map_err(or_else),
        }
    }

    /// The output. `Err` if there is another handle of it.
    pub fn into_file(self) -> Result<OutputFile, Error> {
        let state = Arc::into_inner(self.0)
            .ok_or_else(|| Error::internal("an output is still being written"))?;
        Ok(state.into_inner().unwrap_or_else(PoisonError::into_inner).file)
    }

    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for SharedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.lock();
        match state.file.write_binary(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                state.failed.get_or_insert(error);
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
