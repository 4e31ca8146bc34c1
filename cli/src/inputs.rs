//! Finds out which source reads a file: by its first bytes, or else by its extension. Reads no event.

use std::io::{self, IsTerminal};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::{Map, Value, json};
use sluice_core::files::ForeignFormat;
use sluice_core::options::ByteSize;
use sluice_core::store::is_address;
use sluice_core::suggestion::nearest;
use sluice_core::{
    DynSink, Input, OptionsError, Plugin, PluginFactory, PluginKind, SniffResult, Source, files,
};
use sluice_pipeline::names;
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Node, OnDamage, Part, Pipeline, Report};

use crate::args::SelectionArgs;
use crate::ending::Failure;
pub(crate) use crate::file_url::{FileUrl, Mode, file_url};
use crate::shell::Shell;

/// How much of a file is looked at. Damage at the beginning of a log must not hide what follows.
const HEAD: usize = 256 << 10;

/// The source for these inputs: the one called `from`, or else the one they all look like.
pub(crate) fn source_of<'s>(
    shell: &'s Shell,
    inputs: &[Input],
    from: Option<&str>,
) -> Result<&'s Plugin, Failure> {
    if let Some(name) = from {
        let plugin = named(shell, PluginKind::Source, name)?;
        expect_path_to_do(plugin)?;
        return Ok(plugin);
    }
    if inputs.is_empty() {
        return Err(Failure::WrongUse("there is no input".into()));
    }
    match common(shell, inputs, By::Path)? {
        Ok(plugin) => Ok(plugin),
        // What is one format by its first bytes can be read together, though some files could be read
        // in a better way.
        Err(_) => common(shell, inputs, By::Head)?.map_err(Failure::WrongUse),
    }
}

/// Whether this is the address of something live, such as `udpm://…`, and neither a path nor an address in an
/// object store.
pub(crate) fn is_url(text: &str) -> bool {
    if is_address(Path::new(text)) {
        return false;
    }
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric()) && scheme != "file"
    })
}

/// Reads an address `file://…`, and warns of what means nothing in it.
pub(crate) fn told_file_url(text: &str, shell: &Shell) -> Result<Option<FileUrl>, Failure> {
    let url = file_url(text).map_err(Failure::WrongUse)?;
    url.iter().flat_map(FileUrl::warnings).for_each(|warning| shell.warn(&warning));
    Ok(url)
}

/// The path that an address `file://…` means, or the word as it is. When it begins means nothing to who
/// asks that in another way; `instead` says how.
pub fn path_of_url(word: &str, instead: &str, shell: &Shell) -> Result<String, Failure> {
    let Some(url) = told_file_url(word, shell)? else { return Ok(word.to_owned()) };
    if url.start.is_some() {
        shell.warn(&format!("{instead}; start_timestamp means nothing here: {word}"));
    }
    Ok(url.path_text())
}

/// The paths that inputs stand for, and the events that are wanted of them: an address `file://…` may
/// say from when on.
pub(crate) fn without_addresses(
    inputs: &[String],
    selection: &SelectionArgs,
    shell: &Shell,
) -> Result<(Vec<String>, SelectionArgs), Failure> {
    let (mut paths, mut selection) = (Vec::new(), selection.clone());
    for input in inputs {
        let Some(url) = told_file_url(input, shell)? else {
            paths.push(input.clone());
            continue;
        };
        if matches!(url.mode, Some(Mode::Write | Mode::Append)) {
            let what = format!("{input} is to be read: its mode can only be r");
            return Err(Failure::WrongUse(what));
        }
        if let Some(start) = url.start_text() {
            if inputs.len() > 1 || selection.start.is_some() {
                let what = "start_timestamp stands for --start, which is said once, for all inputs";
                return Err(Failure::WrongUse(what.into()));
            }
            selection.start = Some(start);
        }
        paths.push(url.path_text());
    }
    Ok((paths, selection))
}

/// The plugin that takes this address.
pub(crate) fn of_url<'s>(
    shell: &'s Shell,
    kind: PluginKind,
    url: &str,
) -> Result<&'s Plugin, Failure> {
    shell.registry.by_url(kind, url).ok_or_else(|| {
        let all = shell.registry.iter().filter(|plugin| plugin.kind() == kind);
        let schemes: Vec<String> =
            all.flat_map(|plugin| plugin.schemes).map(|s| format!("{s}://")).collect();
        Failure::WrongUse(format!(
            "this program has no {kind} for {url}; it has one for: {}",
            schemes.join(", ")
        ))
    })
}

/// What a file is judged by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// By all that can be found out of it, and else by its first bytes.
    Path,
    /// By its first bytes, uncompressed.
    Head,
}

/// The source that all inputs look like. The inner `Err` says which two differ.
fn common<'s>(
    shell: &'s Shell,
    inputs: &[Input],
    by: By,
) -> Result<Result<&'s Plugin, String>, Failure> {
    let formats = formats(shell, inputs, by)?;
    let (Some(first), Some(input)) = (formats.first(), inputs.first()) else {
        return Ok(Err("there is no input".into()));
    };
    let mut others = inputs.iter().zip(&formats);
    Ok(match others.find(|(_, plugin)| plugin.name != first.name) {
        None => Ok(first),
        Some((other, plugin)) => Err(format!(
            "the inputs are of different formats: {} is {}, {} is {}; convert them one by one",
            input.path.display(),
            first.name,
            other.path.display(),
            plugin.name
        )),
    })
}

/// How many objects are looked at at a time: each takes as long as the way to the store and back.
const BESIDE: usize = 16;

/// The source of each input, or the first failure.
fn formats<'s>(shell: &'s Shell, inputs: &[Input], by: By) -> Result<Vec<&'s Plugin>, Failure> {
    let format = |input: &Input| format_of(shell, &input.path, by);
    if !inputs.iter().any(|input| is_address(&input.path)) {
        return inputs.iter().map(format).collect();
    }
    let share = |first: usize| {
        let mut found = Vec::new();
        for (place, input) in inputs.iter().enumerate().skip(first).step_by(BESIDE) {
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
        let threads = (0..inputs.len().min(BESIDE)).map(|first| scope.spawn(move || share(first)));
        for thread in threads.collect::<Vec<_>>() {
            found.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, format)| format).collect()
}

/// The plugin of that kind and name.
pub(crate) fn named<'s>(
    shell: &'s Shell,
    kind: PluginKind,
    name: &str,
) -> Result<&'s Plugin, Failure> {
    let found = shell.registry.get(kind, name);
    found.ok_or_else(|| match nearest(name, &shell.registry.names(kind)) {
        Some(near) => Failure::WrongUse(format!(
            "this program has no {kind} `{name}`; did you mean `{near}`?"
        )),
        None => missing(shell, kind, &format!("`{name}`")),
    })
}

/// The failure that this program has no such plugin.
pub(crate) fn missing(shell: &Shell, kind: PluginKind, what: &str) -> Failure {
    let names = shell.registry.names(kind).join(", ");
    Failure::WrongUse(format!("this program has no {kind} {what}; it has: {names}"))
}

/// The extension of a path without `.zst`, and whether that was there.
pub fn extension(path: &Path) -> (Option<String>, bool) {
    let last = |path: &Path| path.extension().map(|e| e.to_string_lossy().into_owned());
    match last(path) {
        Some(packed) if packed == "zst" => (last(&path.with_extension("")), true),
        other => (other, false),
    }
}

fn format_of<'s>(shell: &'s Shell, path: &Path, by: By) -> Result<&'s Plugin, Failure> {
    let is_stdin = path == Path::new("-");
    if by == By::Path
        && !is_stdin
        && let Some(plugin) = shell.registry.sniff_path(path)?.into_iter().next()
    {
        return Ok(plugin);
    }
    let head = match is_stdin {
        // Nobody who is to type has said anything yet.
        true if io::stdin().is_terminal() => Vec::new(),
        true => files::stdin_head()?,
        false => files::head(path, HEAD)?,
    };
    let sniffed = shell.registry.sniff(&head).into_iter().next();
    if let Some(plugin) = sniffed.filter(|plugin| (plugin.sniff)(&head) == SniffResult::Yes) {
        return Ok(plugin);
    }
    refuse_no_log(shell, path, &head)?;
    let by_extension =
        || extension(path).0.and_then(|e| shell.registry.by_extension(PluginKind::Source, &e));
    sniffed.or_else(by_extension).ok_or_else(|| {
        let path = if is_stdin { "standard input".into() } else { path.display().to_string() };
        let names = readers(shell).join(", ");
        Failure::WrongUse(format!(
            "cannot tell the format of {path}; say --from with one of: {names}; or describe it with \
             --describe FILE.toml, if `sluice plugins` has a source for that"
        ))
    })
}

/// Refuses what is no log of any source, whatever it is called: files of formats that only others read, and files
/// that declare types.
fn refuse_no_log(shell: &Shell, path: &Path, head: &[u8]) -> Result<(), Failure> {
    if let Some(format) = ForeignFormat::of_head(head) {
        return Err(Failure::WrongUse(format.refusal(path)));
    }
    let may_declare = !head.is_empty() && !is_address(path) && files::is_text_bytes(head);
    if may_declare && sluice_core::codecs::declares_types(&shell.registry, path) {
        let (name, folder) = (path.display(), path.parent().unwrap_or(Path::new("")));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        return Err(Failure::WrongUse(format!(
            "{name} declares types, and is no log: give it with --types {name}, or all types of its folder with \
             --types {0}; a shell turns --types {0}/* without quotes into one file of types and inputs",
            folder.display()
        )));
    }
    Ok(())
}

/// The names of the sources that read files, and need to be told nothing else.
fn readers(shell: &Shell) -> Vec<&'static str> {
    let sources = shell.registry.iter().filter(|plugin| plugin.kind() == PluginKind::Source);
    let readers =
        sources.filter(|plugin| takes_path(plugin) && missing_beside_path(plugin).is_none());
    readers.map(|plugin| plugin.name).collect()
}

/// Whether a source reads files.
fn takes_path(plugin: &Plugin) -> bool {
    plugin.option_names().iter().any(|name| name == "path")
}

/// What a source that reads files has to be told beside their path.
fn missing_beside_path(plugin: &Plugin) -> Option<OptionsError> {
    let PluginFactory::Source(make) = plugin.make else { return None };
    make(json!({ "path": "log" })).err()
}

/// Refuses a source that reads files and needs to be told more of them than their path.
pub(crate) fn expect_path_to_do(plugin: &Plugin) -> Result<(), Failure> {
    match missing_beside_path(plugin).filter(|_| takes_path(plugin)) {
        None => Ok(()),
        Some(missing) => Err(Failure::WrongUse(format!(
            "`{0}` cannot read a file by its path alone: {missing}; give it the rest by \
             --describe FILE.toml or --source-option, or in a pipeline file: `sluice plugins {0}` shows how",
            plugin.name
        ))),
    }
}

/// Reads a file through its source, with these options beside the path, into a sink.
pub(crate) fn read_with(
    plugin: &Plugin,
    path: &Path,
    options: &Map<String, Value>,
    sink: Box<dyn DynSink>,
) -> Result<Report, Failure> {
    let nodes = vec![file_node(plugin, path, options)?, sink_node(sink)];
    let pipeline = Pipeline { name: None, memory: Some(MEMORY), nodes, ..Pipeline::default() };
    run::run(pipeline, &Options::default()).map_err(Failure::from)
}

/// What the source of a file has to say of it.
pub(crate) fn findings(
    plugin: &Plugin,
    path: &Path,
    options: &Map<String, Value>,
) -> Result<Vec<String>, Failure> {
    let node = file_node(plugin, path, options)?;
    let Part::Source(source) = node.part else { return Ok(Vec::new()) };
    source.findings(path).map_err(Failure::from)
}

/// What of a file's own table of contents is wrong, as its source sees it.
pub(crate) fn faults(
    plugin: &Plugin,
    path: &Path,
    options: &Map<String, Value>,
) -> Result<Vec<String>, Failure> {
    let node = file_node(plugin, path, options)?;
    let Part::Source(source) = node.part else { return Ok(Vec::new()) };
    source.faults(path).map_err(Failure::from)
}

/// Looking at a log takes little memory.
const MEMORY: ByteSize = ByteSize(256 << 20);

/// The source of a file with these options beside its path.
fn file_node(plugin: &Plugin, path: &Path, options: &Map<String, Value>) -> Result<Node, Failure> {
    let mut options = options.clone();
    options.insert("path".into(), text(path)?.into());
    source_node(plugin, options.into())
}

/// A source with these options, which is part of no pipeline file.
pub(crate) fn source_node(plugin: &Plugin, options: Value) -> Result<Node, Failure> {
    let PluginFactory::Source(make) = plugin.make else {
        return Err(Failure::Failed("no source".into()));
    };
    let unfit = |e| Failure::WrongUse(format!("`{}` cannot read that: {e}", plugin.name));
    let source: Box<dyn Source> = make(options.clone()).map_err(unfit)?;
    let part = Part::Source(source);
    let schema = Value::from((plugin.schema)());
    let names = names::of_node(&schema, &options, &part, |_| 0..0);
    Ok(Node {
        name: SOURCE.into(),
        plugin: plugin.name,
        kind: PluginKind::Source,
        from: Vec::new(),
        part,
        again: None,
        program: plugin.program.map(|program| program(&options)),
        options,
        damage: OnDamage::Skip,
        source_name: None,
        span: 0..0,
        names,
    })
}

/// What a source is called where the user has given it no name.
pub const SOURCE: &str = "log";

/// A sink that is part of no pipeline file, and reads from the source before it.
pub(crate) fn sink_node(sink: Box<dyn DynSink>) -> Node {
    Node {
        name: "sink".into(),
        plugin: "sink",
        kind: PluginKind::Sink,
        from: vec![0],
        part: Part::Sink(sink),
        options: json!({}),
        again: None,
        program: None,
        damage: OnDamage::Skip,
        source_name: None,
        span: 0..0,
        names: Vec::new(),
    }
}

/// The files that one name stands for; or the folder, if that is what a source reads.
pub fn expand(shell: &Shell, name: impl Into<PathBuf>) -> Result<Vec<Input>, Failure> {
    let path = name.into();
    if files::is_folder(&path) && !shell.registry.sniff_path(&path)?.is_empty() {
        return Ok(vec![Input { path, bytes: None }]);
    }
    Ok(files::expand(&[path])?)
}

fn text(path: &Path) -> Result<&str, Failure> {
    let not_text = || Failure::WrongUse(format!("this path is not UTF-8: {}", path.display()));
    path.to_str().ok_or_else(not_text)
}

#[cfg(test)]
mod tests {
    use sluice_all as _;
    use sluice_core::Registry;

    use super::*;
    use crate::args::Color;

    #[test]
    fn sources_that_need_more_than_a_path_are_not_proposed_and_are_refused_with_what_to_do() {
        let shell = Shell::new(Registry::linked(), true, Color::Never);
        let proposed = readers(&shell);
        assert!(proposed.contains(&"lcm-log") && proposed.contains(&"vel"), "{proposed:?}");
        for name in ["records", "exec"] {
            assert!(!proposed.contains(&name), "{proposed:?}");
            let refused = source_of(&shell, &[], Some(name)).map(|plugin| plugin.name);
            let Err(Failure::WrongUse(said)) = refused else { panic!("{name}: {refused:?}") };
            assert!(said.contains(&format!("`sluice plugins {name}` shows how")), "{said}");
        }
        for name in proposed {
            assert!(source_of(&shell, &[], Some(name)).is_ok(), "{name}");
        }
    }
}
