//! Finds what arguments name: files, and the sources that read them. Reads no events.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sluice_io::escape::escaped;
use sluice_io::files::{self, NOT_UTF8};
use sluice_model::{Input, Plugin, PluginKind};
use sluice_pipeline::batch::FailurePolicy;

use crate::args::SelectionArgs;
use crate::exit::Failure;
pub(crate) use crate::file_url::{FileUrl, OpenMode, parse_file_url};
use crate::input_format::InputFormat;
use crate::plugin_lookup::{is_url, plugin_for_url, refuse_other_url};
use crate::shell::Shell;
use crate::sniffing::{FailedInputs, SniffMethod, common_source, sniff_all};

/// What reads inputs, and those of them that it does not read.
#[derive(Debug)]
pub(crate) struct FoundSource<'s> {
    pub(crate) plugin: &'s Plugin,
    /// The inputs that it reads: their names as given, or, if some have `failed`, the other files.
    pub(crate) names: Vec<String>,
    /// The inputs that fail alone.
    pub(crate) failed: FailedInputs,
}

/// The source for these inputs: the one of this format, or the one that they sniff as.
pub(crate) fn find_source<'s>(
    names: &[String],
    format: &InputFormat,
    shell: &'s Shell,
) -> Result<&'s Plugin, Failure> {
    Ok(find_source_of_usable(names, format, FailurePolicy::Stop, shell)?.plugin)
}

/// Like [`find_source`]; says which inputs have none, if others are to be read without them.
pub(crate) fn find_source_of_usable<'s>(
    names: &[String],
    format: &InputFormat,
    failing: FailurePolicy,
    shell: &'s Shell,
) -> Result<FoundSource<'s>, Failure> {
    let plugin = match format.named_source(shell)? {
        Some(plugin) => {
            names.iter().try_for_each(|name| refuse_other_url(plugin, name, shell))?;
            Some(plugin)
        }
        None => live_source(names, shell)?,
    };
    // Their inputs are first opened by the run.
    if let Some(plugin) = plugin {
        return Ok(FoundSource { plugin, names: names.to_vec(), failed: Vec::new() });
    }
    let (mut files, mut failed) = (Vec::new(), Vec::new());
    for name in names {
        match expand(shell, name) {
            Ok(found) => files.extend(found),
            Err(failure) if failing == FailurePolicy::Stop => return Err(failure),
            Err(failure) => failed.push((name.into(), failure)),
        }
    }
    files::refuse_repeated_streams(&files)?;
    let (known, unknown) = sniff_all(shell, &files, SniffMethod::Path, failing)?;
    failed.extend(unknown);
    if known.is_empty() && !failed.is_empty() {
        return Err(failed.swap_remove(0).1);
    }
    if failing == FailurePolicy::Stop {
        // Whoever reads them reports that they cannot be opened.
        failed.clear();
    }
    // Files of one format by their first bytes can be read together, even if a more specific source
    // exists for some of them.
    let plugin = match common_source(&known) {
        Ok(plugin) => plugin,
        Err(differ) => {
            let (by_head, unknown) = sniff_all(shell, &files, SniffMethod::Head, failing)?;
            let unknown: BTreeSet<&Path> = unknown.iter().map(|(path, _)| &**path).collect();
            // The source of the others would not be theirs.
            if failing == FailurePolicy::Continue
                && known.iter().any(|(input, _)| unknown.contains(&*input.path))
            {
                return Err(differ);
            }
            common_source(&by_head)?
        }
    };
    let text = |(input, _): &(&Input, _)| input.path.to_string_lossy().into_owned();
    let names = if failed.is_empty() { names.to_vec() } else { known.iter().map(text).collect() };
    Ok(FoundSource { plugin, names, failed })
}

/// The live source, if the only input is a URL.
fn live_source<'s>(inputs: &[String], shell: &'s Shell) -> Result<Option<&'s Plugin>, Failure> {
    match inputs.iter().find(|input| is_url(input)) {
        None => Ok(None),
        Some(url) if inputs.len() == 1 => plugin_for_url(shell, PluginKind::Source, url).map(Some),
        Some(url) => Err(Failure::Usage(format!(
            "{url} has no end, and cannot be read with other inputs; a pipeline file can merge them"
        ))),
    }
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
            warn_of_other_matches(Path::new(input), shell);
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

/// Warns of a file or folder whose exact name is a glob that others match.
pub(crate) fn warn_of_other_matches(name: &Path, shell: &Shell) {
    let count = files::other_matches(name);
    if count > 0 {
        let (others, name) = (if count == 1 { "other" } else { "others" }, name.display());
        shell.warn_once(&format!(
            "`{name}` is the exact name of a file or folder, so only that is read; as a glob it \
             would match {count} {others}: rename it to read them, too"
        ));
    }
}

/// A word, and the files that it stands for, or why there are none.
pub(crate) type ExpandedWord<'w> = (&'w String, Result<Vec<Input>, Failure>);

/// What words stand for, each a name or the URL of a file. `instead` as in [`path_of_url`].
///
/// `Err` if a stream is named twice.
pub(crate) fn expand_all<'w>(
    words: &'w [String],
    instead: &str,
    shell: &Shell,
) -> Result<Vec<ExpandedWord<'w>>, Failure> {
    let expand = |word: &'w String| {
        let found = path_of_url(word, instead, shell).and_then(|path| {
            warn_of_other_matches(Path::new(&path), shell);
            expand(shell, path)
        });
        (word, found)
    };
    let found: Vec<_> = words.iter().map(expand).collect();
    files::refuse_repeated_streams(found.iter().flat_map(|(_, found)| found).flatten())?;
    Ok(found)
}

/// The arguments that are text, as options are, and the others, which fail alone.
///
/// `Err` names one that is not, unless others are to be read without it.
pub(crate) fn texts(
    arguments: &[OsString],
    failing: FailurePolicy,
) -> Result<(Vec<String>, FailedInputs), Failure> {
    let (mut texts, mut failed) = (Vec::new(), FailedInputs::new());
    for argument in arguments {
        match utf8_path(Path::new(argument)) {
            Ok(text) => texts.push(text.to_owned()),
            Err(failure) => failed.push((argument.into(), failure)),
        }
    }
    let has_others = failing == FailurePolicy::Continue && !texts.is_empty();
    match failed.len() {
        1.. if !has_others => Err(failed.swap_remove(0).1),
        _ => Ok((texts, failed)),
    }
}

/// Expands a name to files, or to the folders that it means if a source reads folders like them.
pub fn expand(shell: &Shell, name: impl Into<PathBuf>) -> Result<Vec<Input>, Failure> {
    let path = name.into();
    refuse_live(shell, &path)?;
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
        if let Some(index) = shell.registry.index_of(&path) {
            return Err(Failure::Usage(format!(
                "{} is the folder of a log: pass {}",
                path.display(),
                index.display()
            )));
        }
        // The error of whoever needs a file.
        return Ok(files::expand(&[path])?);
    }
    for other in others {
        let (other, path) = (other.display(), path.display());
        shell.warn_once(&format!("`{path}` matches a folder that no source reads: {other}"));
    }
    Ok(logs)
}

/// Refuses the URL of a live source where a file is expected.
pub(crate) fn refuse_live(shell: &Shell, path: &Path) -> Result<(), Failure> {
    match path.to_str().and_then(|url| shell.registry.by_url(PluginKind::Source, url)) {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!(
            "{} is live, and not a file: `sluice spy` shows what is sent there, and \
             `sluice record` writes a log of it",
            path.display()
        ))),
    }
}

/// A path as text, which options are.
pub(crate) fn utf8_path(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        let name = escaped(path.as_os_str().as_encoded_bytes());
        Failure::Usage(format!("this path {NOT_UTF8}: {name}"))
    })
}

#[cfg(test)]
mod tests {
    use sluice_all as _;
    use sluice_model::Registry;

    use super::*;
    use crate::plugin_lookup::sources_of_plain_files;
    use crate::shell::Color;

    #[test]
    fn sources_that_need_more_options_are_not_proposed_and_are_refused_with_advice() {
        let shell = Shell::new(Registry::linked(), true, Color::Never);
        let find = |name: &str| {
            let from = Some(name.to_owned());
            find_source(&[], &InputFormat { from, options: Vec::new() }, &shell)
        };
        let proposed = sources_of_plain_files(&shell);
        assert!(proposed.contains(&"lcm-log") && proposed.contains(&"vel"), "{proposed:?}");
        for name in ["records", "exec"] {
            assert!(!proposed.contains(&name), "{proposed:?}");
            let refused = find(name).map(|plugin| plugin.name);
            let Err(Failure::Usage(message)) = refused else { panic!("{name}: {refused:?}") };
            assert!(message.contains(&format!("`sluice plugins {name}` shows how")), "{message}");
        }
        for name in proposed {
            assert!(find(name).is_ok(), "{name}");
        }
    }
}
