//! Quarantine: the bytes of damaged ranges, written to a file of their own for whoever wants to look.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::files::LogFile;
use sluice_core::{Damage, Error, OutputFile, Outputs};

use crate::spec::{Node, OnDamage};

/// Open quarantine files, by the place of their source in the pipeline.
pub(super) type Quarantines = BTreeMap<usize, Quarantine>;

/// One source's quarantine file: the damaged ranges, one after another.
#[derive(Debug)]
pub(super) struct Quarantine {
    file: OutputFile,
    ranges: u64,
}

/// Opens the files of all sources that have one. Without a name it is `NAME.quarantine`.
pub(super) fn open(nodes: &[Node], outputs: &Arc<Outputs>) -> Result<Quarantines, Error> {
    let mut open = Quarantines::new();
    for (node, spec) in nodes.iter().enumerate() {
        let OnDamage::Quarantine(path) = &spec.damage else { continue };
        let path =
            path.clone().unwrap_or_else(|| PathBuf::from(format!("{}.quarantine", spec.name)));
        open.insert(node, Quarantine { file: outputs.create(&path)?, ranges: 0 });
    }
    Ok(open)
}

impl Quarantine {
    /// Adds the bytes of a damaged range: those that came with it, or read again from the input.
    pub(super) fn add(&mut self, damage: &Damage) -> Result<(), Error> {
        self.ranges += 1;
        if !damage.bytes.is_empty() {
            return damage.bytes.iter().try_for_each(|bytes| self.file.write_binary(bytes));
        }
        let input = Path::new(&*damage.input);
        if !input.is_file() {
            // A stream that has gone by, with damage longer than is kept.
            return Ok(());
        }
        let mut log = LogFile::open(input)?;
        let (mut buffer, mut at) = (vec![0; 1 << 20], damage.offset);
        let end = damage.offset.saturating_add(damage.length);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let read = log.read_at(at, &mut buffer[..want])?;
            if read == 0 {
                break;
            }
            self.file.write_binary(&buffer[..read])?;
            at += read as u64;
        }
        Ok(())
    }

    /// Completes the file.
    pub(super) fn finish(self) -> Result<(), Error> {
        self.file.finish(self.ranges)
    }
}
