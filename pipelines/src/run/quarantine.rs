//! Quarantine: the bytes of damaged ranges, written to a separate file for inspection.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_io::escape::unescaped_path;
use sluice_io::files::{self, LogFile};
use sluice_model::{Damage, Error, OutputFile, Outputs, units};

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
    /// Damaged bytes that are not in it, as they could not be read again.
    missing: u64,
    /// The gaps in damaged ranges of decompressed logs.
    gaps: u64,
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
        open.insert(node, Quarantine { path, outputs, file: None, ranges: 0, missing: 0, gaps: 0 });
    }
    Ok(open)
}

impl Quarantine {
    /// Appends the bytes of a damaged range: those kept with it, or read again from the input.
    /// Only long damage in a stream, and what is gone by now, is incomplete.
    pub(super) fn add(&mut self, damage: &Damage) -> Result<(), Error> {
        self.ranges += 1;
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.outputs.create(&self.path)?),
        };
        let input = unescaped_path(&damage.input);
        let kept: u64 = damage.bytes.iter().map(|bytes| bytes.len() as u64).sum();
        let Copied { bytes, gaps } = if kept < damage.length && files::is_address_or_file(&input) {
            let mut log = match damage.counts_compressed {
                true => LogFile::open_plain(&input)?,
                false => LogFile::open(&input)?,
            };
            copy(damage, &mut log, file)?
        } else {
            damage.bytes.iter().try_for_each(|bytes| file.write_binary(bytes))?;
            Copied { bytes: kept, gaps: 0 }
        };
        self.gaps += gaps;
        self.missing = self.missing.saturating_add(damage.length.saturating_sub(bytes + gaps));
        Ok(())
    }

    /// Completes the file. Returns a note if damaged bytes are missing in it or, without damage, if
    /// there is a file of an earlier run.
    pub(super) fn finish(self) -> Result<Option<String>, Error> {
        let Some(file) = self.file else {
            let note =
                || format!("no damage; {} is of an earlier run, and stays", self.path.display());
            return Ok(files::is_file(&self.path).then(note));
        };
        file.finish(self.ranges)?;
        let path = self.path.display();
        let missing = || {
            let missing = units::pluralize(self.missing, "damaged byte");
            format!("{missing} could not be read again, and are missing in {path}")
        };
        let gaps = || {
            let gaps = units::pluralize(self.gaps, "gap");
            format!(
                "{path} leaves out {gaps} in damaged compressed data, each counted as one damaged \
                 byte: how much was there is not known"
            )
        };
        let notes = [(self.missing > 0).then(missing), (self.gaps > 0).then(gaps)];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        Ok(Some(notes.join("; ")).filter(|note| !note.is_empty()))
    }
}

/// How much of a damaged range was copied.
struct Copied {
    bytes: u64,
    /// Where reading went on behind damage of compressed data. Each takes one position.
    gaps: u64,
}

/// Copies what there is of a damaged range from its log.
fn copy(damage: &Damage, log: &mut LogFile, file: &mut OutputFile) -> Result<Copied, Error> {
    let (start, end) = (damage.offset, damage.offset.saturating_add(damage.length));
    let (mut buffer, mut copied) = (vec![0; 1 << 20], Copied { bytes: 0, gaps: 0 });
    // What is decompressed is read from its beginning.
    let mut at = if log.is_seekable() { start } else { 0 };
    while at < end {
        let part_end = if at < start { start } else { end };
        let want = usize::try_from(part_end - at).unwrap_or(usize::MAX).min(buffer.len());
        let read = log.read_at(at, &mut buffer[..want])?;
        if at >= start {
            file.write_binary(&buffer[..read])?;
            copied.bytes += read as u64;
        }
        at += read as u64;
        log.forget(at);
        if read == want {
            continue;
        }
        // Positions behind damage of compressed data count on.
        let Some(behind) = log.resume()? else { break };
        copied.gaps += u64::from(at >= start);
        at = behind;
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sluice_model::Overwrite;

    use super::*;

    /// What the quarantine of this damage holds, and the note about it.
    fn quarantined(damage: &Damage) -> (Vec<u8>, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.bin");
        let outputs = Arc::new(Outputs::new(Overwrite::Refuse, false, &[]));
        let policy = OnDamage::Quarantine(path.clone());
        let mut open = open([(0, &policy)].into_iter(), &outputs).unwrap();
        let mut quarantine = open.remove(&0).unwrap();
        quarantine.add(damage).unwrap();
        let note = quarantine.finish().unwrap();
        outputs.publish(|_, _| Ok(String::new())).unwrap();
        (fs::read(path).unwrap(), note)
    }

    #[test]
    fn what_could_not_be_read_again_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, b"0123456789").unwrap();
        let input = path.to_str().unwrap().into();
        let note = |note: Option<String>| note.unwrap_or_default();
        // As of a file that became shorter, and of a stream whose bytes were not all kept.
        let cut = quarantined(&Damage::new(&input, 8, 5, "cut"));
        assert_eq!(cut.0, b"89");
        assert!(note(cut.1).starts_with("3 damaged bytes could not be read again"));
        let kept = vec![b"4567".as_slice().into()];
        let stream = |length| Damage {
            bytes: kept.clone(),
            ..Damage::new(&Arc::from("-"), 4, length, "long")
        };
        assert_eq!(quarantined(&stream(4)), (b"4567".to_vec(), None));
        let (bytes, missing) = quarantined(&stream(5));
        assert_eq!(bytes, b"4567");
        assert!(note(missing).starts_with("1 damaged byte could not be read again"));
        // What a file has is read again if not all of it was kept.
        let long = Damage { bytes: kept, ..Damage::new(&input, 4, 5, "long") };
        assert_eq!(quarantined(&long), (b"45678".to_vec(), None));
    }

    #[test]
    fn positions_of_compressed_logs_count_on_behind_their_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.zst");
        let frame = |plain: &[u8]| sluice_io::frames::compress(plain, 1).unwrap();
        let packed = [&frame(b"0123456789")[..], b"stray", &frame(b"abcdef")].concat();
        fs::write(&path, &packed).unwrap();
        let input = path.to_str().unwrap().into();
        let damage = Damage::new(&input, 13, 3, "cdef");
        assert_eq!(quarantined(&damage), (b"cde".to_vec(), None));
        let (bytes, note) = quarantined(&Damage::new(&input, 8, 6, "89?abc"));
        assert_eq!(bytes, b"89abc");
        let note = note.unwrap_or_default();
        assert!(note.contains("leaves out 1 gap in damaged compressed data"), "{note}");
        assert_eq!(quarantined(&Damage::new(&input, 8, 2, "89")), (b"89".to_vec(), None));
        let damage = Damage { counts_compressed: true, ..Damage::new(&input, 9, 8, "stray") };
        assert_eq!(quarantined(&damage), (packed[9..17].to_vec(), None));
    }
}
