//! Finds the sources of files, by their paths or first bytes. Reads no events.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::FileTypeExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use sluice_io::files::{self, ForeignFormat};
use sluice_io::store::is_address;
use sluice_model::{ErrorKind, Input, Plugin, PluginKind, SniffResult, units};
use sluice_pipeline::batch::FailurePolicy;

use crate::exit::Failure;
use crate::plugin_lookup::{extension, sources_of_plain_files};
use crate::shell::Shell;

/// Inputs that have no source, and why.
pub(crate) type FailedInputs = Vec<(PathBuf, Failure)>;

/// Inputs with their sources.
pub(crate) type SniffedInputs<'i, 's> = Vec<(&'i Input, &'s Plugin)>;

/// How the source of a file is found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SniffMethod {
    /// By its path, and by its first bytes if no source claims the path.
    Path,
    /// By its first bytes, uncompressed.
    Head,
}

/// The inputs whose source is found, with that, and the others, with the reasons: those that cannot
/// be opened, as whoever reads them reports that and a batch goes on with others, and those of no
/// known format, of which the first is the `Err` unless others are to be read without them.
pub(crate) fn sniff_all<'i, 's>(
    shell: &'s Shell,
    inputs: &'i [Input],
    by: SniffMethod,
    failing: FailurePolicy,
) -> Result<(SniffedInputs<'i, 's>, FailedInputs), Failure> {
    let is_unopened = |failure: &Failure| match failure {
        Failure::Error(error) => matches!(error.kind(), ErrorKind::Io { .. }),
        _ => false,
    };
    let sniffed = try_map(inputs, |input| match sniff_by(shell, &input.path, by) {
        Err(failure) if failing == FailurePolicy::Stop && !is_unopened(&failure) => Err(failure),
        sniffed => Ok(sniffed),
    })?;
    let (mut known, mut failed, mut doubts) = (Vec::new(), Vec::new(), Vec::new());
    for (input, sniffed) in inputs.iter().zip(sniffed) {
        match sniffed {
            Ok(claim) => {
                doubts.extend(claim.doubt(&input.path));
                known.push((input, claim.plugin));
            }
            Err(failure) => failed.push((input.path.clone(), failure)),
        }
    }
    warn_of_doubts(shell, &doubts);
    Ok((known, failed))
}

/// The source common to these inputs; `Err` says which two differ.
pub(crate) fn common_source<'s>(known: &[(&Input, &'s Plugin)]) -> Result<&'s Plugin, Failure> {
    let Some((input, first)) = known.first() else {
        return Err(Failure::Usage("there is no input".into()));
    };
    match known.iter().find(|(_, plugin)| plugin.name != first.name) {
        None => Ok(first),
        Some((other, plugin)) => Err(Failure::Usage(format!(
            "the inputs have different formats: {} is {}, {} is {}; give them one at a time",
            input.path.display(),
            first.name,
            other.path.display(),
            plugin.name
        ))),
    }
}

/// The source for this file: one that claims its path, or that of its first bytes.
pub(crate) fn sniff<'s>(shell: &'s Shell, path: &Path) -> Result<&'s Plugin, Failure> {
    let claim = sniff_by(shell, path, SniffMethod::Path)?;
    warn_of_doubts(shell, claim.doubt(path).as_slice());
    Ok(claim.plugin)
}

/// The source that is to read a file.
struct Claim<'s> {
    plugin: &'s Plugin,
    /// Another one that is no less certain to read it.
    rival: Option<&'s Plugin>,
}

/// A file that either of two sources may read; the first one does.
type Doubt<'p, 's> = (&'p Path, &'s Plugin, &'s Plugin);

impl<'s> Claim<'s> {
    fn doubt<'p>(&self, path: &'p Path) -> Option<Doubt<'p, 's>> {
        Some((path, self.plugin, self.rival?))
    }
}

/// Warns of each two sources that may read the same files. Inputs may be looked at again.
fn warn_of_doubts(shell: &Shell, doubts: &[Doubt<'_, '_>]) {
    let mut by_names: BTreeMap<_, Vec<&Path>> = BTreeMap::new();
    for (path, plugin, rival) in doubts {
        by_names.entry((plugin.name, rival.name)).or_default().push(path);
    }
    for ((name, rival), paths) in by_names {
        let [path, others @ ..] = &paths[..] else { continue };
        let (path, others) = (path.display(), others.len() as u64);
        let what = match others {
            0 => format!("{path} is read by `{name}`, and `{rival}` may read it, too"),
            _ => format!(
                "{path} and {} are read by `{name}`, and `{rival}` may read them, too",
                units::pluralize(others, "other input")
            ),
        };
        shell.warn_once(&format!("{what}: name the right one with --from"));
    }
}

/// The number of bytes sniffed. Large, because damage at the start of a log must not hide its
/// format.
const SNIFF_LEN: usize = 256 << 10;

fn sniff_by<'s>(shell: &'s Shell, path: &Path, by: SniffMethod) -> Result<Claim<'s>, Failure> {
    let is_stdin = path == Path::new("-");
    if by == SniffMethod::Path && !is_stdin {
        let sniffed = shell.registry.sniff_path(path)?;
        if let [plugin, others @ ..] = &sniffed[..] {
            let certainty = |plugin: &Plugin| (plugin.sniff_path)(path).ok();
            let is_rival = |other: &&&Plugin| certainty(other) == certainty(plugin);
            return Ok(Claim { plugin, rival: others.first().filter(is_rival).copied() });
        }
    }
    let head = match is_stdin {
        // On a terminal, reading would wait for the user to type.
        true if io::stdin().is_terminal() => Vec::new(),
        _ => match files::stream_head(path, SNIFF_LEN, |head| is_known(shell, head))? {
            Some(head) => head,
            None => files::head(path, SNIFF_LEN)?,
        },
    };
    match shell.registry.sniff_sure(&head)[..] {
        [] => {}
        [plugin] => return Ok(Claim { plugin, rival: None }),
        // Not `NotALog`, which to `verify` is a file that is only written.
        [one, other, ..] => {
            return Err(Failure::Failed(format!(
                "both `{}` and `{}` recognize {}; name the one that shall read it with --from",
                one.name,
                other.name,
                path.display()
            )));
        }
    }
    let sniffed = shell.registry.sniff(&head);
    refuse_foreign_formats(shell, path, &head)?;
    if let Some(index) = shell.registry.index_of(path) {
        return Err(Failure::NotALog(format!(
            "{} is a part of a log: pass {}, which names it",
            path.display(),
            index.display()
        )));
    }
    let by_extension =
        || extension(path).0.and_then(|e| shell.registry.by_extension(PluginKind::Source, &e));
    let mut sniffed = sniffed.into_iter();
    if let Some(plugin) = sniffed.next().or_else(by_extension) {
        return Ok(Claim { plugin, rival: sniffed.next() });
    }
    Err(unknown_format(shell, path, &head))
}

/// The failure that no source reads this file, which starts with these bytes.
fn unknown_format(shell: &Shell, input: &Path, head: &[u8]) -> Failure {
    let is_stdin = input == Path::new("-");
    let path = if is_stdin { "standard input".into() } else { input.display().to_string() };
    if head.is_empty() && is_empty(input) {
        return Failure::NotALog(format!(
            "cannot detect the format of {path}: it is empty (0 bytes); name the format with \
             --from: in some formats, that is a log without events"
        ));
    }
    if let Some(why) = shell.registry.iter().find_map(|plugin| (plugin.refusal)(head)) {
        return Failure::NotALog(format!("cannot read {path} as a log: {why}"));
    }
    let names = sources_of_plain_files(shell).join(", ");
    // Nothing is taken from terminals and other devices.
    let can_read = match is_stdin {
        true => !io::stdin().is_terminal(),
        false => files::is_address_or_file(input),
    };
    if can_read && files::has_damaged_start(input).unwrap_or(false) {
        return Failure::NotALog(format!(
            "cannot detect the format of {path}: its zstd data is damaged near the start; name \
             the format with --from, to read what is not: {names}"
        ));
    }
    Failure::NotALog(format!(
        "cannot detect the format of {path}; name it with --from: {names}; or describe it with \
         --describe FILE.toml"
    ))
}

/// Whether there is nothing in an input whose first bytes are none. Devices are not asked.
fn is_empty(path: &Path) -> bool {
    if path == Path::new("-") {
        return !io::stdin().is_terminal() && !files::has_damaged_start(path).unwrap_or(true);
    }
    match fs::metadata(path) {
        Ok(file) if file.is_file() => file.len() == 0,
        Ok(other) => other.file_type().is_fifo(),
        Err(_) => false,
    }
}

/// Whether these first bytes tell what a stream is, whatever follows.
fn is_known(shell: &Shell, head: &[u8]) -> bool {
    matches!(shell.registry.sniff_best(head), Some((SniffResult::Yes, _)))
        || ForeignFormat::from_head(head).is_some()
}

/// Refuses files that are not logs, whatever their names: formats that other programs read, and
/// files that declare types.
fn refuse_foreign_formats(shell: &Shell, path: &Path, head: &[u8]) -> Result<(), Failure> {
    if let Some(format) = ForeignFormat::from_head(head) {
        return Err(Failure::NotALog(format.refusal(path)));
    }
    let may_declare = !head.is_empty() && !is_address(path) && files::is_file(path);
    let may_declare = may_declare && files::is_text_bytes(head);
    if may_declare && sluice_kit::codecs::declares_types(&shell.registry, path) {
        let (name, folder) = (path.display(), path.parent().unwrap_or(Path::new("")));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        return Err(Failure::NotALog(format!(
            "{name} declares types, and is not a log: give it as --types {name}, or its whole \
             folder as --types {0}; without quotes, a shell expands --types {0}/* to one type file \
             and further inputs",
            folder.display()
        )));
    }
    Ok(())
}

/// The number of objects opened in parallel, as each costs a round trip to the store.
const PARALLEL_OBJECTS: usize = 16;

/// What `look` finds in each input, or the first `Err`. Looks at several objects at once.
pub(crate) fn try_map<T: Send, E: Send>(
    inputs: &[Input],
    look: impl Fn(&Input) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    if !inputs.iter().any(|input| is_address(&input.path)) {
        return inputs.iter().map(look).collect();
    }
    let share = |first: usize| {
        let mut found = Vec::new();
        for (place, input) in inputs.iter().enumerate().skip(first).step_by(PARALLEL_OBJECTS) {
            let result = look(input);
            let has_failed = result.is_err();
            found.push((place, result));
            if has_failed {
                break;
            }
        }
        found
    };
    let mut found = Vec::new();
    thread::scope(|scope| {
        let share = &share;
        let threads =
            (0..inputs.len().min(PARALLEL_OBJECTS)).map(|first| scope.spawn(move || share(first)));
        for thread in threads.collect::<Vec<_>>() {
            found.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, result)| result).collect()
}
