//! Finds the source for an input, by its first bytes or its extension. Reads no events.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::json;
use sluice_io::files::{self, ForeignFormat, NOT_UTF8};
use sluice_io::store::is_address;
use sluice_kit::suggestion::nearest;
use sluice_model::{DefaultRole, ErrorKind, Input, OptionsError, Plugin, PluginKind, SniffResult};

use crate::args::SelectionArgs;
use crate::exit::Failure;
pub(crate) use crate::file_url::{FileUrl, OpenMode, parse_file_url};
use crate::shell::Shell;

/// The number of bytes sniffed. Large, because damage at the start of a log must not hide its
/// format.
const SNIFF_LEN: usize = 256 << 10;

/// The source for these inputs: the one called `from`, or the one that all of them sniff as.
pub(crate) fn source_for<'s>(
    shell: &'s Shell,
    inputs: &[Input],
    from: Option<&str>,
) -> Result<&'s Plugin, Failure> {
    if let Some(name) = from {
        let plugin = plugin_named(shell, PluginKind::Source, name)?;
        check_path_suffices(plugin, shell)?;
        return Ok(plugin);
    }
    if inputs.is_empty() {
        return Err(Failure::Usage("there is no input".into()));
    }
    match common_source(shell, inputs, SniffMethod::Path)? {
        Ok(plugin) => Ok(plugin),
        // Files of one format by their first bytes can be read together, even if a more specific
        // source exists for some of them.
        Err(_) => common_source(shell, inputs, SniffMethod::Head)?.map_err(Failure::Usage),
    }
}

/// Whether this is the URL of something live, such as `udpm://…`: neither a path nor the URL of a
/// file or an object.
pub(crate) fn is_url(text: &str) -> bool {
    if is_address(Path::new(text)) {
        return false;
    }
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

/// Parses a `file://` URL and warns of unknown keys.
pub(crate) fn file_url_with_warnings(
    text: &str,
    shell: &Shell,
) -> Result<Option<FileUrl>, Failure> {
    let url = parse_file_url(text).map_err(Failure::Usage)?;
    url.iter().flat_map(FileUrl::warnings).for_each(|warning| shell.warn(&warning));
    Ok(url)
}

/// Returns the path of a `file://` URL, or `word` as it is. Warns that `start_timestamp` has no
/// effect; `instead` says what to use.
pub fn path_of_url(word: &str, instead: &str, shell: &Shell) -> Result<String, Failure> {
    let Some(url) = file_url_with_warnings(word, shell)? else { return Ok(word.to_owned()) };
    if url.start.is_some() {
        shell.warn(&format!("start_timestamp has no effect here; {instead}: {word}"));
    }
    Ok(url.path)
}

/// Resolves `file://` URLs to paths. A URL may also set the start time of the selection.
pub(crate) fn resolve_file_urls(
    inputs: &[String],
    selection: &SelectionArgs,
    shell: &Shell,
) -> Result<(Vec<String>, SelectionArgs), Failure> {
    let (mut paths, mut selection) = (Vec::new(), selection.clone());
    for input in inputs {
        let Some(url) = file_url_with_warnings(input, shell)? else {
            paths.push(input.clone());
            continue;
        };
        if matches!(url.mode, Some(OpenMode::Write | OpenMode::Append)) {
            let what = format!("{input} is an input: its mode can only be r");
            return Err(Failure::Usage(what));
        }
        if let Some(start) = url.start_text() {
            if inputs.len() > 1 || selection.start.is_some() {
                let what = "start_timestamp means --start, which can be given once, for all inputs";
                return Err(Failure::Usage(what.into()));
            }
            selection.start = Some(start);
        }
        paths.push(url.path);
    }
    Ok((paths, selection))
}

/// The plugin that handles this URL.
pub(crate) fn plugin_for_url<'s>(
    shell: &'s Shell,
    kind: PluginKind,
    url: &str,
) -> Result<&'s Plugin, Failure> {
    shell.registry.by_url(kind, url).ok_or_else(|| {
        let all = shell.registry.iter().filter(|plugin| plugin.kind() == kind);
        let schemes: Vec<String> =
            all.flat_map(|plugin| plugin.schemes).map(|s| format!("{s}://")).collect();
        Failure::Usage(format!(
            "this program has no {kind} for {url}; it has one for: {}",
            schemes.join(", ")
        ))
    })
}

/// How the source of a file is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SniffMethod {
    /// By its path, and by its first bytes if no source claims the path.
    Path,
    /// By its first bytes, uncompressed.
    Head,
}

/// The source common to all inputs. The inner `Err` says which two differ.
fn common_source<'s>(
    shell: &'s Shell,
    inputs: &[Input],
    by: SniffMethod,
) -> Result<Result<&'s Plugin, String>, Failure> {
    // The first bytes of a pipe that cannot be read are not there a second time.
    if let [input] = inputs {
        return sniff_source(shell, &input.path, by).map(Ok);
    }
    let formats = sniff_all(shell, inputs, by)?;
    let mut known = inputs.iter().zip(formats).filter_map(|(input, found)| Some((input, found?)));
    let Some((input, first)) = known.next() else {
        let Some(input) = inputs.first() else { return Ok(Err("there is no input".into())) };
        return sniff_source(shell, &input.path, by).map(Ok);
    };
    Ok(match known.find(|(_, plugin)| plugin.name != first.name) {
        None => Ok(first),
        Some((other, plugin)) => Err(format!(
            "the inputs have different formats: {} is {}, {} is {}; convert them one by one",
            input.path.display(),
            first.name,
            other.path.display(),
            plugin.name
        )),
    })
}

/// The source common to those of these files whose format can be detected; `None` if there are
/// none.
pub(crate) fn source_of_readable(
    shell: &Shell,
    files: Vec<Input>,
) -> Result<Option<&Plugin>, Failure> {
    let is_readable = |file: &Input| sniff_source(shell, &file.path, SniffMethod::Path).is_ok();
    let readable: Vec<Input> = files.into_iter().filter(is_readable).collect();
    (!readable.is_empty()).then(|| source_for(shell, &readable, None)).transpose()
}

/// Those of these inputs that cannot be read, with the reasons: names without a file and, if they
/// are to be `sniffed`, files whose format cannot be detected.
pub(crate) fn unreadable(
    shell: &Shell,
    names: &[&str],
    sniffed: bool,
) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for name in names {
        let files = match expand(shell, *name) {
            Ok(files) => files,
            Err(failure) => {
                all.insert(PathBuf::from(name), failure.message());
                continue;
            }
        };
        for Input { path, .. } in files.into_iter().filter(|_| sniffed) {
            if let Err(failure) = sniff_source(shell, &path, SniffMethod::Path) {
                all.insert(path, failure.message());
            }
        }
    }
    all
}

/// The number of objects sniffed in parallel, as each costs a round trip to the store.
const PARALLEL_SNIFFS: usize = 16;

/// The source of each input, or the first failure; `None` for those that cannot be read. Whoever
/// reads them reports that, and a batch goes on with the others.
fn sniff_all<'s>(
    shell: &'s Shell,
    inputs: &[Input],
    by: SniffMethod,
) -> Result<Vec<Option<&'s Plugin>>, Failure> {
    let format = |input: &Input| match sniff_source(shell, &input.path, by) {
        Err(Failure::Error(error)) if matches!(error.kind(), ErrorKind::Io { .. }) => Ok(None),
        found => found.map(Some),
    };
    if !inputs.iter().any(|input| is_address(&input.path)) {
        return inputs.iter().map(format).collect();
    }
    let share = |first: usize| {
        let mut found = Vec::new();
        for (place, input) in inputs.iter().enumerate().skip(first).step_by(PARALLEL_SNIFFS) {
            let format = format(input);
            let has_failed = format.is_err();
            found.push((place, format));
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
            (0..inputs.len().min(PARALLEL_SNIFFS)).map(|first| scope.spawn(move || share(first)));
        for thread in threads.collect::<Vec<_>>() {
            found.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, format)| format).collect()
}

/// The plugin of this kind and name.
pub(crate) fn plugin_named<'s>(
    shell: &'s Shell,
    kind: PluginKind,
    name: &str,
) -> Result<&'s Plugin, Failure> {
    let found = shell.registry.get(kind, name);
    found.ok_or_else(|| match nearest(name, &shell.registry.names(kind)) {
        Some(near) => {
            Failure::Usage(format!("this program has no {kind} `{name}`; did you mean `{near}`?"))
        }
        None => no_such_plugin(shell, kind, &format!("`{name}`")),
    })
}

/// The plugin of this kind that has a job by default.
pub(crate) fn default_plugin(
    shell: &Shell,
    kind: PluginKind,
    role: DefaultRole,
) -> Result<&Plugin, Failure> {
    let found = shell.registry.default_for(kind, role);
    found.ok_or_else(|| no_such_plugin(shell, kind, &format!("for {role}")))
}

/// The failure that this program has no such plugin.
pub(crate) fn no_such_plugin(shell: &Shell, kind: PluginKind, what: &str) -> Failure {
    let names = shell.registry.names(kind).join(", ");
    Failure::Usage(format!("this program has no {kind} {what}; it has: {names}"))
}

/// The extension of a path without `.zst`, and whether `.zst` was there.
pub fn extension(path: &Path) -> (Option<String>, bool) {
    let last = |path: &Path| path.extension().map(|e| e.to_string_lossy().into_owned());
    match last(path) {
        Some(packed) if packed == "zst" => (last(&path.with_extension("")), true),
        other => (other, false),
    }
}

fn sniff_source<'s>(shell: &'s Shell, path: &Path, by: SniffMethod) -> Result<&'s Plugin, Failure> {
    let is_stdin = path == Path::new("-");
    if by == SniffMethod::Path
        && !is_stdin
        && let Some(plugin) = shell.registry.sniff_path(path)?.into_iter().next()
    {
        return Ok(plugin);
    }
    let head = match is_stdin {
        // On a terminal, reading would wait for the user to type.
        true if io::stdin().is_terminal() => Vec::new(),
        _ => match files::stream_head(path, SNIFF_LEN, |head| is_known(shell, head))? {
            Some(head) => head,
            None => files::head(path, SNIFF_LEN)?,
        },
    };
    let sniffed = match shell.registry.sniff_best(&head) {
        Some((SniffResult::Yes, plugin)) => return Ok(plugin),
        sniffed => sniffed.map(|(_, plugin)| plugin),
    };
    refuse_foreign_formats(shell, path, &head)?;
    let by_extension =
        || extension(path).0.and_then(|e| shell.registry.by_extension(PluginKind::Source, &e));
    sniffed.or_else(by_extension).ok_or_else(|| {
        let path = if is_stdin { "standard input".into() } else { path.display().to_string() };
        if let Some(why) = shell.registry.iter().find_map(|plugin| (plugin.refusal)(&head)) {
            return Failure::NotALog(format!("cannot read {path} as a log: {why}"));
        }
        let names = sources_of_plain_files(shell).join(", ");
        Failure::NotALog(format!(
            "cannot detect the format of {path}; name it with --from: {names}; or describe it with \
             --describe FILE.toml"
        ))
    })
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
    let may_declare = !head.is_empty() && !is_address(path) && files::is_text_bytes(head);
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

/// The names of the sources that read files and require no other option.
fn sources_of_plain_files(shell: &Shell) -> Vec<&'static str> {
    let sources = shell.registry.iter().filter(|plugin| plugin.kind() == PluginKind::Source);
    let readers =
        sources.filter(|plugin| reads_files(plugin) && missing_options(plugin, shell).is_none());
    readers.map(|plugin| plugin.name).collect()
}

/// Whether a source reads files.
fn reads_files(plugin: &Plugin) -> bool {
    plugin.option_names().iter().any(|name| name == "path")
}

/// The error that names the options a source requires besides the path, if any.
fn missing_options(plugin: &Plugin, shell: &Shell) -> Option<OptionsError> {
    shell.registry.source(plugin.name, json!({ "path": "log" })).err()
}

/// Refuses a source that reads files but requires more options than the path.
pub(crate) fn check_path_suffices(plugin: &Plugin, shell: &Shell) -> Result<(), Failure> {
    match missing_options(plugin, shell).filter(|_| reads_files(plugin)) {
        None => Ok(()),
        Some(missing) => Err(Failure::Usage(format!(
            "`{0}` needs more options than the path: {missing}; give them with --describe \
             FILE.toml or --source-option, or in a pipeline file: `sluice plugins {0}` shows how",
            plugin.name
        ))),
    }
}

/// The name of the source in generated pipelines.
pub const SOURCE_NAME: &str = "log";

/// Expands a name to files, or to the folders that it means if a source reads folders like them.
pub fn expand(shell: &Shell, name: impl Into<PathBuf>) -> Result<Vec<Input>, Failure> {
    let path = name.into();
    if path.to_str().is_some_and(|url| shell.registry.by_url(PluginKind::Source, url).is_some()) {
        return Err(Failure::Usage(format!(
            "{} is live, and not a file: `sluice spy` shows what is sent there, and \
             `sluice record` writes a log of it",
            path.display()
        )));
    }
    let found = files::expand_with_folders(&path)?;
    let is_folder = |input: &Input| input.bytes.is_none() && files::is_folder(&input.path);
    let (folders, files): (Vec<_>, Vec<_>) = found.into_iter().partition(is_folder);
    if !files.is_empty() {
        return Ok(files);
    }
    let (mut logs, mut others) = (Vec::new(), Vec::new());
    for folder in folders {
        let is_log = !shell.registry.sniff_path(&folder.path)?.is_empty();
        if is_log { logs.push(folder) } else { others.push(folder.path) }
    }
    if logs.is_empty() {
        // The error of whoever needs a file.
        return Ok(files::expand(&[path])?);
    }
    for other in others {
        let (other, path) = (other.display(), path.display());
        shell.warn_once(&format!("`{path}` matches a folder that no source reads: {other}"));
    }
    Ok(logs)
}

/// A path as text, which options are.
pub(crate) fn utf8_path(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| Failure::Usage(format!("this path {NOT_UTF8}: {}", path.display())))
}

#[cfg(test)]
mod tests {
    use sluice_all as _;
    use sluice_model::Registry;

    use super::*;
    use crate::shell::Color;

    #[test]
    fn sources_that_need_more_options_are_not_proposed_and_are_refused_with_advice() {
        let shell = Shell::new(Registry::linked(), true, Color::Never);
        let proposed = sources_of_plain_files(&shell);
        assert!(proposed.contains(&"lcm-log") && proposed.contains(&"vel"), "{proposed:?}");
        for name in ["records", "exec"] {
            assert!(!proposed.contains(&name), "{proposed:?}");
            let refused = source_for(&shell, &[], Some(name)).map(|plugin| plugin.name);
            let Err(Failure::Usage(message)) = refused else { panic!("{name}: {refused:?}") };
            assert!(message.contains(&format!("`sluice plugins {name}` shows how")), "{message}");
        }
        for name in proposed {
            assert!(source_for(&shell, &[], Some(name)).is_ok(), "{name}");
        }
    }
}
