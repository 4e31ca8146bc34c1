//! Quarantine: the bytes of damaged ranges, written to a separate file for inspection.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_io::escape::unescaped_path;
use sluice_io::files::{self, LogFile};
use sluice_model::{Damage, Error, OutputFile, Outputs};

use crate::spec::OnDamage;

/// Quarantine files, by the index of their source node.
pub(super) type Quarantines = BTreeMap<usize, Quarantine>;

/// One source's quarantine file: its damaged ranges, concatenated. Created with the first damage.
#[derive(Debug)]
pub(super) struct Quarantine {
    path: PathBuf,
    outputs: Arc<Outputs>,
    file: Option<OutputFile>,
    ranges: u64,
}

/// Opens the quarantines of all sources that have one: sources as node and policy.
///
/// `Err` if a file cannot be written at its path.
pub(super) fn open<'s>(
    sources: impl Iterator<Item = (usize, &'s OnDamage)>,
    outputs: &Arc<Outputs>,
) -> Result<Quarantines, Error> {
    let mut open = Quarantines::new();
    for (node, damage) in sources {
        let OnDamage::Quarantine(path) = damage else { continue };
        outputs.check_target(path)?;
        let (path, outputs) = (path.clone(), Arc::clone(outputs));
        open.insert(node, Quarantine { path, outputs, file: None, ranges: 0 });
    }
    Ok(open)
}

impl Quarantine {
    /// Appends the bytes of a damaged range: those kept with it, or read again from the input.
    pub(super) fn add(&mut self, damage: &Damage) -> Result<(), Error> {
        self.ranges += 1;
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.outputs.create(&self.path)?),
        };
        let input = unescaped_path(&damage.input);
        if damage.bytes.is_empty() && files::is_address_or_file(&input) {
            return copy(damage, &mut LogFile::open(&input)?, file);
        }
        // Only long damage in a stream that cannot be read again is incomplete.
        damage.bytes.iter().try_for_each(|bytes| file.write_binary(bytes))
    }

    /// Completes the file. If there is no damage, returns a note about the file of an earlier run.
    pub(super) fn finish(self) -> Result<Option<String>, Error> {
        let Some(file) = self.file else {
            let note =
                || format!("no damage; {} is of an earlier run, and stays", self.path.display());
            return Ok(files::is_file(&self.path).then(note));
        };
        file.finish(self.ranges)?;
        Ok(None)
    }
}

fn copy(damage: &Damage, log: &mut LogFile, file: &mut OutputFile) -> Result<(), Error> {
    let (mut buffer, mut at) = (vec![0; 1 << 20], damage.offset);
    let end = damage.offset.saturating_add(damage.length);
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let read = log.read_at(at, &mut buffer[..want])?;
        if read == 0 {
            break;
        }
        file.write_binary(&buffer[..read])?;
        at += read as u64;
        log.forget(at);
    }
    Ok(())
}
