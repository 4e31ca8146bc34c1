//! Checks that a source recognises its own files, and does not claim those of others.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use sluice_io::files;
use sluice_model::{Plugin, PluginKind, Registry, SniffResult};

use crate::Promise;
use crate::finding::Fault;
use crate::heads::{FileHead, file_heads};

/// The number of bytes to sniff.
const HEAD: usize = 64 << 10;

/// Faults in recognising files. `sample` is a file of its own; `reads` are other formats that it
/// also reads. Writes into `folder`.
pub(crate) fn faults(
    plugin: &Plugin,
    sample: &Path,
    reads: &[String],
    (registry, folder): (&Registry, &Path),
) -> Vec<Fault> {
    let mut faults = own_sample_faults(plugin, sample, registry);
    faults.extend(foreign_file_faults(plugin, reads, folder));
    faults.extend(prefix_fault(plugin, sample));
    faults
}

/// What a source recognised a file by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecognizedBy {
    Path(SniffResult),
    Head(SniffResult),
    Extension,
    Nothing,
}

fn own_sample_faults(plugin: &Plugin, sample: &Path, registry: &Registry) -> Vec<Fault> {
    let head = files::head(sample, HEAD).unwrap_or_default();
    let by = match ((plugin.sniff_path)(sample), (plugin.sniff)(&head)) {
        (Ok(SniffResult::Yes), _) => RecognizedBy::Path(SniffResult::Yes),
        (Ok(SniffResult::Maybe), SniffResult::No) => RecognizedBy::Path(SniffResult::Maybe),
        (Err(error), _) => {
            let what = "it fails to sniff its own sample";
            return vec![Fault::new(Promise::Sniffing, what, error.to_string())];
        }
        (_, SniffResult::No) if has_extension(plugin, sample) => RecognizedBy::Extension,
        (_, SniffResult::No) => RecognizedBy::Nothing,
        (_, sure) => RecognizedBy::Head(sure),
    };
    if by == RecognizedBy::Nothing {
        let what = "its own sample is not recognised as its own, neither by bytes nor by name";
        let says = plugin.extensions.join(", ");
        return match plugin.extensions.is_empty() && !claims_any(plugin) {
            true => Vec::new(),
            false => vec![Fault::new(Promise::Sniffing, what, format!("extensions: {says}"))],
        };
    }
    let rivals = registry.iter().filter(|other| {
        other.kind() == PluginKind::Source
            && other.name != plugin.name
            && is_as_sure(other, by, sample, &head)
    });
    let names: Vec<&str> = rivals.map(|other| other.name).collect();
    let what = "another source claims the sample as strongly";
    (!names.is_empty())
        .then(|| Fault::new(Promise::Sniffing, what, names.join(", ")))
        .into_iter()
        .collect()
}

/// Whether a source claims any known head.
fn claims_any(plugin: &Plugin) -> bool {
    file_heads().iter().any(|head| (plugin.sniff)(&head.bytes) != SniffResult::No)
}

fn has_extension(plugin: &Plugin, path: &Path) -> bool {
    let plain = if path.extension().is_some_and(|last| last == "zst") {
        path.with_extension("")
    } else {
        path.to_owned()
    };
    let extension = plain.extension().unwrap_or_default().to_string_lossy().into_owned();
    plugin.extensions.iter().any(|known| known.eq_ignore_ascii_case(&extension))
}

/// Paths take precedence over first bytes, and those over names.
fn is_as_sure(other: &Plugin, by: RecognizedBy, sample: &Path, head: &[u8]) -> bool {
    let path = (other.sniff_path)(sample).unwrap_or(SniffResult::No);
    let (path, head) = (path, (other.sniff)(head));
    match by {
        RecognizedBy::Path(sure) => path >= sure,
        RecognizedBy::Head(sure) => path == SniffResult::Yes || head >= sure,
        RecognizedBy::Extension => path == SniffResult::Yes || head == SniffResult::Yes,
        RecognizedBy::Nothing => false,
    }
}

fn foreign_file_faults(plugin: &Plugin, reads: &[String], folder: &Path) -> Vec<Fault> {
    let foreign =
        file_heads().into_iter().filter(|head| !reads.iter().any(|name| name == head.name));
    foreign.filter_map(|head| claim_fault(plugin, &head, folder)).collect()
}

fn claim_fault(plugin: &Plugin, head: &FileHead, folder: &Path) -> Option<Fault> {
    let path = folder.join("foreign");
    let by_path = || {
        fs::write(&path, &head.bytes).ok()?;
        // Failing on a file does not claim it.
        (plugin.sniff_path)(&path).ok()
    };
    let sure =
        catch_panic(|| (plugin.sniff)(&head.bytes).max(by_path().unwrap_or(SniffResult::No)));
    drop(fs::remove_file(&path));
    match sure {
        Err(()) => Some(Fault::new(Promise::NoPanic, "sniffing panics", head.name)),
        Ok(SniffResult::Yes) => Some(Fault::new(
            Promise::Sniffing,
            "it claims files of another format",
            format!("{}; if it reads these, say so with `reads`", head.name),
        )),
        Ok(_) => None,
    }
}

fn prefix_fault(plugin: &Plugin, sample: &Path) -> Option<Fault> {
    let sample = files::head(sample, 4096).unwrap_or_default();
    let own = FileHead { name: "the sample", bytes: sample };
    for head in file_heads().into_iter().chain([own]) {
        for len in 0..head.bytes.len().min(4096) {
            let prefix = head.bytes.get(..len).unwrap_or_default();
            if catch_panic(|| (plugin.sniff)(prefix)).is_err() {
                let detail = format!("the first {len} bytes of {}", head.name);
                return Some(Fault::new(Promise::NoPanic, "sniffing panics", detail));
            }
        }
    }
    None
}

fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, ()> {
    catch_unwind(AssertUnwindSafe(work)).map_err(drop)
}
