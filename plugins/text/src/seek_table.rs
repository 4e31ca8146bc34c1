//! Reports a wrong seek table of a compressed file. Nothing is read by it here, but other readers
//! rely on it.

use std::path::Path;

use sluice_io::escape::escaped_path;
use sluice_io::files::{self, InputFiles};
use sluice_io::{seek_table, store};
use sluice_model::{Damage, Error, ReadContext};

/// Compares the seek table of a compressed file that was read to `end` with its frames, of which
/// none was damaged: such frames contradict a right table.
///
/// Skips objects, of which each frame would be a request, and files that cannot be opened again as
/// they were. Compares nothing once the run is cancelled.
pub(crate) fn report_fault(path: &Path, end: u64, context: &ReadContext) -> Result<(), Error> {
    if context.run.is_cancelled() || files::is_stream(path) || store::is_address(path) {
        return Ok(());
    }
    let Ok(mut file) = context.run.shared::<InputFiles>().open_plain(path) else { return Ok(()) };
    if let Some(fault) = seek_table::fault(&mut file)? {
        let input = escaped_path(path).into();
        let reason = format!("the seek table of the compressed file is wrong: {fault}");
        context.damage.report(Damage::new(&input, end, 0, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use serde_json::json;
    use sluice_io::frames;
    use sluice_io::seek_table::SeekTableBuilder;
    use sluice_model::{Query, Registry, SplitStart};

    use super::*;

    /// Three lines that are events of this source.
    fn lines(source: &str) -> [String; 3] {
        ["1", "2", "3"].map(|time| match source {
            "csv" => format!("{time},0.5\n"),
            _ => format!(
                "{{\"timestamp_ns\":{time},\"source\":\"log\",\"channel\":\"A\",\"sequence\":0,\
                 \"size\":0,\"crc32\":0,\"payload\":\"\"}}\n"
            ),
        })
    }

    /// A file with a frame per line and a seek table, and the start of the last frame.
    fn seekable(source: &str) -> (Vec<u8>, usize) {
        let (mut file, mut table, mut last) = (Vec::new(), SeekTableBuilder::default(), 0);
        for line in lines(source) {
            let frame = frames::compress(line.as_bytes(), 3).unwrap();
            table.push(frame.len(), line.len()).unwrap();
            last = file.len();
            file.extend(frame);
        }
        file.extend(table.finish());
        (file, last)
    }

    /// The number of events of a file, and its damage. `meanwhile` is called once it is open.
    fn read(
        source: &str,
        file: &[u8],
        meanwhile: impl FnOnce(&Path, &ReadContext),
    ) -> (usize, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("log.zst");
        fs::write(&path, file).unwrap();
        let options = match source {
            "csv" => json!({ "path": path, "header": false, "columns": ["t", "x"] }),
            _ => json!({ "path": path }),
        };
        let source = Registry::linked().source(source, options).unwrap();
        let context = ReadContext::standalone("log");
        let split = &source.splits(u64::MAX, &Query::default()).unwrap()[0];
        let mut reader = source.read(split, SplitStart::At(0), &context).unwrap();
        meanwhile(&path, &context);
        let mut events = 0;
        while let Some(batch) = reader.next_batch().unwrap() {
            events += batch.len();
        }
        let damage = context.damage.take();
        (events, damage.into_iter().map(|damage| damage.reason).collect())
    }

    #[test]
    fn a_wrong_table_is_damage() {
        for source in ["csv", "jsonl"] {
            let (mut file, _) = seekable(source);
            assert_eq!(read(source, &file, |_, _| {}), (3, vec![]), "{source}");
            let at = file.len() - 12;
            file[at] ^= 1;
            let (events, damage) = read(source, &file, |_, _| {});
            assert!(events == 3 && damage.len() == 1, "{source}: {damage:?}");
            assert!(damage[0].contains("frame 3, of"), "{source}: {damage:?}");
        }
    }

    #[test]
    fn a_damaged_frame_is_not_a_wrong_table() {
        for source in ["csv", "jsonl"] {
            let (good, last) = seekable(source);
            // The magic, and the length of the content.
            for at in [0, 5, last, last + 5] {
                let mut file = good.clone();
                file[at] ^= 1;
                let (_, damage) = read(source, &file, |_, _| {});
                assert!(!damage.is_empty(), "{source}, byte {at}");
                let is_table = damage.iter().any(|reason| reason.contains("seek table"));
                assert!(!is_table, "{source}, byte {at}: {damage:?}");
            }
        }
    }

    #[test]
    fn a_file_that_is_gone_or_need_not_be_read_is_not_compared() {
        for source in ["csv", "jsonl"] {
            let (mut file, _) = seekable(source);
            let at = file.len() - 12;
            file[at] ^= 1;
            let gone = read(source, &file, |path, _| fs::remove_file(path).unwrap());
            assert_eq!(gone, (3, vec![]), "{source}");
            let cancelled = read(source, &file, |_, context| context.run.cancel());
            assert_eq!(cancelled.1, Vec::<String>::new(), "{source}");
        }
    }
}
