//! Sniffing: whether a source knows its own files, and leaves those of others alone.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use sluice_core::{Plugin, PluginKind, Registry, SniffResult, files};

use crate::Promise;
use crate::finding::Fault;
use crate::heads::{Head, heads};

/// How much of a file is looked at.
const HEAD: usize = 64 << 10;

/// What is wrong with how a source tells its files. `sample` is one of them; `reads` are the names of
/// formats of others that it reads too. Writes into `folder`.
pub(crate) fn faults(
    plugin: &Plugin,
    sample: &Path,
    reads: &[String],
    (registry, folder): (&Registry, &Path),
) -> Vec<Fault> {
    let mut faults = own(plugin, sample, registry);
    faults.extend(others(plugin, reads, folder));
    faults.extend(any_prefix(plugin, sample));
    faults
}

/// How a source came to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Path(SniffResult),
    Head(SniffResult),
    Extension,
    Nothing,
}

fn own(plugin: &Plugin, sample: &Path, registry: &Registry) -> Vec<Fault> {
    let head = files::head(sample, HEAD).unwrap_or_default();
    let by = match ((plugin.sniff_path)(sample), (plugin.sniff)(&head)) {
        (Ok(SniffResult::Yes), _) => By::Path(SniffResult::Yes),
        (Ok(SniffResult::Maybe), SniffResult::No) => By::Path(SniffResult::Maybe),
        (Err(error), _) => {
            let what = "it fails to judge its own sample";
            return vec![Fault::new(Promise::Sniffing, what, error.to_string())];
        }
        (_, SniffResult::No) if has_extension(plugin, sample) => By::Extension,
        (_, SniffResult::No) => By::Nothing,
        (_, sure) => By::Head(sure),
    };
    if by == By::Nothing {
        let what = "its own sample is not known as its own, neither by bytes nor by its name";
        let says = plugin.extensions.join(", ");
        return match plugin.extensions.is_empty() && !judges(plugin) {
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
    let what = "another source is as sure of the sample";
    (!names.is_empty())
        .then(|| Fault::new(Promise::Sniffing, what, names.join(", ")))
        .into_iter()
        .collect()
}

/// Whether a source says anything at all about files, as far as can be seen.
fn judges(plugin: &Plugin) -> bool {
    heads().iter().any(|head| (plugin.sniff)(&head.bytes) != SniffResult::No)
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

/// Paths are judged before first bytes, and those before names.
fn is_as_sure(other: &Plugin, by: By, sample: &Path, head: &[u8]) -> bool {
    let path = (other.sniff_path)(sample).unwrap_or(SniffResult::No);
    let (path, head) = (path, (other.sniff)(head));
    match by {
        By::Path(sure) => path >= sure,
        By::Head(sure) => path == SniffResult::Yes || head >= sure,
        By::Extension => path == SniffResult::Yes || head == SniffResult::Yes,
        By::Nothing => false,
    }
}

fn others(plugin: &Plugin, reads: &[String], folder: &Path) -> Vec<Fault> {
    let foreign = heads().into_iter().filter(|head| !reads.iter().any(|name| name == head.name));
    foreign.filter_map(|head| claimed(plugin, &head, folder)).collect()
}

fn claimed(plugin: &Plugin, head: &Head, folder: &Path) -> Option<Fault> {
    let path = folder.join("foreign");
    let by_path = || {
        fs::write(&path, &head.bytes).ok()?;
        // To fail on a file is no claim.
        (plugin.sniff_path)(&path).ok()
    };
    let sure = caught(|| (plugin.sniff)(&head.bytes).max(by_path().unwrap_or(SniffResult::No)));
    drop(fs::remove_file(&path));
    match sure {
        Err(()) => Some(Fault::new(Promise::NoPanic, "sniffing panics", head.name)),
        Ok(SniffResult::Yes) => Some(Fault::new(
            Promise::Sniffing,
            "it is sure of files of another format",
            format!("{}; if it reads these, say so with `reads`", head.name),
        )),
        Ok(_) => None,
    }
}

fn any_prefix(plugin: &Plugin, sample: &Path) -> Option<Fault> {
    let sample = files::head(sample, 4096).unwrap_or_default();
    let own = Head { name: "the sample", bytes: sample };
    for head in heads().into_iter().chain([own]) {
        for len in 0..head.bytes.len().min(4096) {
            let prefix = head.bytes.get(..len).unwrap_or_default();
            if caught(|| (plugin.sniff)(prefix)).is_err() {
                let detail = format!("the first {len} bytes of {}", head.name);
                return Some(Fault::new(Promise::NoPanic, "sniffing panics", detail));
            }
        }
    }
    None
}

fn caught<T>(work: impl FnOnce() -> T) -> Result<T, ()> {
    catch_unwind(AssertUnwindSafe(work)).map_err(drop)
}
