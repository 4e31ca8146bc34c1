//! Reports a wrong seek table of a compressed file. Nothing is read by it here, but other readers
//! rely on it.

use std::path::Path;

use sluice_io::files::{self, InputFiles};
use sluice_io::frames;
use sluice_model::{Damage, Error, ReadContext};

/// Compares the seek table of a compressed file that was read to `end` with its frames.
///
/// Of an object nothing: each frame would be a request.
pub(crate) fn report_fault(path: &Path, end: u64, context: &ReadContext) -> Result<(), Error> {
    if files::is_stream(path) {
        return Ok(());
    }
    let mut file = context.run.shared::<InputFiles>().open_plain(path)?;
    if file.version().is_some() {
        return Ok(());
    }
    if let Some(fault) = frames::table_fault(&mut file)? {
        let input = path.to_string_lossy().into();
        let reason = format!("the seek table of the compressed file is wrong: {fault}");
        context.damage.report(Damage::new(&input, end, 0, reason));
    }
    Ok(())
}
