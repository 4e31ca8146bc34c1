//! The file that describes a bag, and the files that it lists.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use sluice_io::files;
use sluice_model::Error;

use crate::db3::compressed_one_by_one;

/// The file that describes a bag.
pub(super) const METADATA: &str = "metadata.yaml";
/// The key of the list of parts.
const LIST: &str = "relative_file_paths";
/// The longest that is read.
const MAX_METADATA: usize = 16 << 20;
/// The storages of parts, and the sources that read them.
const STORAGES: [(&str, &str); 2] = [("mcap", "mcap"), ("sqlite3", "ros2-db3")];

/// Whether a file that begins so describes a bag.
pub(super) fn is_description(head: &[u8]) -> bool {
    memchr::memmem::find(head, b"rosbag2_bagfile_information").is_some()
}

/// The folder of the bag that this file describes.
pub(super) fn folder_of(description: &Path) -> &Path {
    let folder = description.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// The files of a bag, and the source that reads them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) source: &'static str,
    pub(super) paths: Vec<PathBuf>,
}

/// What is needed of a bag's description.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    storage: String,
    compression_mode: String,
    pub(super) parts: Vec<String>,
    /// Whether it ends before its list of parts, as after a loss of power.
    pub(super) is_cut: bool,
    /// The number of messages in all parts.
    pub(super) messages: Option<u64>,
}

impl Metadata {
    pub(super) fn read(description: &Path) -> Result<Self, Error> {
        let text = files::head(description, MAX_METADATA)?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Finds the keys in the text, which programs write in a few forms only.
    fn parse(text: &str) -> Self {
        let list = text.split_once(LIST).map(|(_, list)| list);
        let is_blank = |list: &str| list.trim_start_matches(':').chars().all(is_of_no_part);
        let mut metadata = Self { is_cut: list.is_none_or(is_blank), ..Self::default() };
        let indent = |line: &str| line.len() - line.trim_start().len();
        let is_key = |line: &&str| line.trim_start().starts_with("storage_identifier:");
        let indent_of_keys = text.lines().find(is_key).map_or(0, indent);
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let Some((key, value)) = line.trim().split_once(':') else { continue };
            match key {
                "storage_identifier" => metadata.storage = plain(value),
                "compression_mode" => metadata.compression_mode = plain(value),
                // Those of parts and topics are further to the right.
                "message_count" if indent(line) <= indent_of_keys => {
                    metadata.messages = plain(value).parse().ok();
                }
                LIST if metadata.parts.is_empty() => {
                    if plain(value).is_empty() {
                        while lines.next_if(|line| plain(line).is_empty()).is_some() {}
                    }
                    let starts = |line: &&str| line.trim_start().starts_with('[');
                    let first = Some(value).filter(starts).or_else(|| lines.next_if(starts));
                    if let Some(first) = first {
                        metadata.parts = FlowList::read(first, &mut lines);
                    }
                    let is_next = |line: &&str| line.trim_start().starts_with("- ");
                    let goes_on = |line: &&str| is_next(line) || plain(line).is_empty();
                    while let Some(line) = lines.next_if(goes_on) {
                        let part = line.trim_start().strip_prefix("- ").map(plain);
                        metadata.parts.extend(part.filter(|part| !part.is_empty()));
                    }
                }
                _ => {}
            }
        }
        metadata
    }

    /// The files of the bag that this file describes.
    pub(super) fn parts(&self, file: &Path) -> Result<Parts, Error> {
        let shown = file.display();
        let folder = folder_of(file);
        let known = STORAGES.iter().find(|(storage, _)| *storage == self.storage);
        let Some((_, source)) = known else {
            let found = &self.storage;
            return Err(Error::refused(format!(
                "expected a bag with `storage_identifier: mcap` or `sqlite3`, found `{found}`: \
                 {shown}"
            )));
        };
        if self.compression_mode.eq_ignore_ascii_case("message") {
            return Err(compressed_one_by_one(shown));
        }
        if self.parts.is_empty() {
            return Err(Error::refused(format!("the bag has no parts: {shown}")));
        }
        let paths = self.parts.iter().map(|part| locate(folder, part));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let mut before = BTreeSet::new();
        if let Some(twice) = paths.iter().find(|path| !before.insert(*path)) {
            let twice = twice.display();
            return Err(Error::refused(format!("a part is listed twice, as {twice}: {shown}")));
        }
        Ok(Parts { source, paths })
    }
}

/// Whether a list of such characters lists nothing. A loss of power may leave zeros.
fn is_of_no_part(char: char) -> bool {
    char.is_whitespace() || ['\0', '-', '"', '\''].contains(&char)
}

/// The value of a key, without quotes and without the comment behind it.
fn plain(value: &str) -> String {
    let value = value.trim();
    if let Some(quote) = value.chars().next().filter(|first| ['"', '\''].contains(first)) {
        return value.trim_start_matches(quote).split(quote).next().unwrap_or_default().to_owned();
    }
    let is_comment = |at: usize| value.get(..at).is_some_and(|before| before.trim_end() != before);
    let comment = value.match_indices('#').map(|(at, _)| at).find(|at| *at == 0 || is_comment(*at));
    value.get(..comment.unwrap_or(value.len())).unwrap_or(value).trim_end().to_owned()
}

/// A list in brackets, such as `[a.mcap, "b.mcap"]`, line by line: long ones are wrapped.
#[derive(Default)]
struct FlowList {
    elements: Vec<String>,
    /// The element that the next character belongs to.
    open: String,
    /// The quote that ends it.
    quote: Option<char>,
    is_closed: bool,
}

impl FlowList {
    /// The elements of the list that begins in this line; none if it does not end.
    fn read<'t>(first: &'t str, more: &mut impl Iterator<Item = &'t str>) -> Vec<String> {
        let mut list = Self::default();
        let first = first.trim_start();
        list.add_line(first.strip_prefix('[').unwrap_or(first));
        while !list.is_closed {
            let Some(line) = more.next() else { return Vec::new() };
            list.add_line(line);
        }
        list.elements
    }

    fn add_line(&mut self, line: &str) {
        let (mut chars, mut before) = (line.trim().chars().peekable(), ' ');
        while let Some(char) = chars.next() {
            match (self.quote, char) {
                (Some('"'), '\\') => self.open.extend(chars.next()),
                (Some('\''), '\'') if chars.next_if_eq(&'\'').is_some() => self.open.push('\''),
                (Some(quote), _) if char == quote => self.quote = None,
                (None, '"' | '\'') if self.open.trim().is_empty() => self.quote = Some(char),
                (None, '#') if before.is_whitespace() => break,
                (None, ',') => self.end_element(),
                (None, ']') => {
                    self.end_element();
                    self.is_closed = true;
                    return;
                }
                _ => self.open.push(char),
            }
            before = char;
        }
        self.open.push(' ');
    }

    fn end_element(&mut self) {
        let element = std::mem::take(&mut self.open).trim().to_owned();
        self.elements.extend(Some(element).filter(|element| !element.is_empty()));
    }
}

/// The file of a part. Old versions put the name of the folder before it.
fn locate(folder: &Path, part: &str) -> Result<PathBuf, Error> {
    let part = Path::new(part);
    if !part.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        let (part, folder) = (part.display(), folder.display());
        return Err(Error::refused(format!("a part is not in its bag: {part}: {folder}")));
    }
    let path = folder.join(part);
    let beside = part.file_name().map(|name| folder.join(name));
    // One that was decompressed is still listed as it was.
    let others = [unpacked(&path), beside].into_iter().flatten();
    if files::exists(&path) {
        return Ok(path);
    }
    Ok(others.fold(path, |path, other| if files::exists(&other) { other } else { path }))
}

/// The path of a compressed part once it is decompressed; `None` if it is not compressed.
pub(super) fn unpacked(part: &Path) -> Option<PathBuf> {
    part.extension().is_some_and(|extension| extension == "zstd").then(|| part.with_extension(""))
}

/// What is wrong if there are files like the parts of a bag that its description does not list.
pub(super) fn unlisted(description: &Path, parts: &[PathBuf]) -> Option<String> {
    let extension = parts.first()?.extension()?;
    let folder = std::fs::read_dir(folder_of(description)).ok()?;
    // One that was decompressed may lie beside the part that is read.
    let plain = parts.iter().filter_map(|part| unpacked(part));
    let known: BTreeSet<PathBuf> = parts.iter().cloned().chain(plain).collect();
    let is_like = |path: &PathBuf| path.extension() == Some(extension) && !known.contains(path);
    let mut names: Vec<String> = folder
        .filter_map(|entry| Some(entry.ok()?.path()).filter(is_like))
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    let first = names.first()?;
    let count = names.len();
    Some(format!("{METADATA} does not list {count} of the files, such as {first}: not read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "rosbag2_bagfile_information:\n  version: 5\n  \
        storage_identifier: mcap\n  relative_file_paths:\n    - \"a_0.mcap\"\n    - a_1.mcap\n  \
        compression_format: \"\"\n  compression_mode: \"\"\n  files:\n    - path: a_0.mcap\n      \
        message_count: 3\n  \
        message_count: 7\n  topics_with_message_count:\n    - message_count: 7\n";

    #[test]
    fn metadata_names_the_parts() {
        let metadata = Metadata::parse(TEXT);
        assert_eq!(metadata.parts, ["a_0.mcap", "a_1.mcap"]);
        assert_eq!(metadata.messages, Some(7));
        let found = metadata.parts(Path::new("bag/metadata.yaml")).unwrap();
        let paths = ["bag/a_0.mcap", "bag/a_1.mcap"].map(PathBuf::from).to_vec();
        assert_eq!(found, Parts { source: "mcap", paths });
        let text = TEXT.replace("mcap", "db3").replace("identifier: db3", "identifier: sqlite3");
        let found = Metadata::parse(&text).parts(Path::new("bag/metadata.yaml")).unwrap();
        assert_eq!((found.source, found.paths.len()), ("ros2-db3", 2));
        let inline = Metadata::parse("relative_file_paths: [bag/a.mcap, 'b.mcap']\n");
        assert_eq!(inline.parts, ["bag/a.mcap", "b.mcap"]);
        let wrapped =
            Metadata::parse("relative_file_paths: [a.mcap,\n      b.mcap,\n c.mcap\n ]\n");
        assert_eq!(wrapped.parts, ["a.mcap", "b.mcap", "c.mcap"]);
    }

    #[test]
    fn comments_are_no_parts_and_end_no_list() {
        let parts = |list: &str| {
            let rest = "\n  storage_identifier: mcap  # as always\n";
            let metadata = Metadata::parse(&format!("relative_file_paths:{list}{rest}"));
            assert_eq!((metadata.storage.as_str(), metadata.is_cut), ("mcap", false), "{list:?}");
            metadata.parts
        };
        for list in [
            " [a.mcap, b.mcap] # two, or [more]",
            " [a.mcap,  # the first, not ] the last\n  # nothing\n  b.mcap]",
            " # wrapped\n  [\n    \"a.mcap\", # \"x.mcap\",\n    'b.mcap',\n  ] # end",
            "\n    # two of them\n    - a.mcap # the first\n\n    # and\n    - \"b.mcap\"  # [x]",
        ] {
            assert_eq!(parts(list), ["a.mcap", "b.mcap"], "{list:?}");
        }
        assert_eq!(
            parts(" ['a, #1].mcap', \"b\\\"#.mcap\", c#d.mcap]"),
            ["a, #1].mcap", "b\"#.mcap", "c#d.mcap"]
        );
        assert_eq!(parts("\n    - 'a #1.mcap'\n    - c#d.mcap"), ["a #1.mcap", "c#d.mcap"]);
        let unclosed = Metadata::parse("relative_file_paths: [a.mcap, # ]\n  b.mcap\n");
        assert_eq!((unclosed.parts, unclosed.is_cut), (Vec::new(), false));
    }

    #[test]
    fn one_without_parts_is_cut_only_if_nothing_is_where_they_would_be() {
        let is_cut = |text: &str| {
            let metadata = Metadata::parse(text);
            assert_eq!(metadata.parts, [""; 0], "{text:?}");
            metadata.is_cut
        };
        for text in ["", "\0\0", "version: 5\n", "relative_file", "relative_file_paths"] {
            assert!(is_cut(text), "{text:?}");
        }
        for rest in ["", "\n    ", "\n\0\0", "\n    -", "\n    - \""] {
            assert!(is_cut(&format!("relative_file_paths:{rest}")), "{rest:?}");
        }
        for rest in [" []\n", " [a.mcap, b.mcap # two ]\n", " &list\n    *a\n"] {
            assert!(!is_cut(&format!("relative_file_paths:{rest}")), "{rest:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (from, to, why) in [
            ("identifier: mcap", "identifier: other", "found `other`"),
            ("mode: \"\"", "mode: MESSAGE", "one by one"),
            ("a_1.mcap", "/etc/passwd", "not in its bag"),
            ("a_1.mcap", "../b.mcap", "not in its bag"),
            ("a_1.mcap", "a_0.mcap", "listed twice"),
            ("relative_file_paths", "paths", "no parts"),
        ] {
            let metadata = Metadata::parse(&TEXT.replace(from, to));
            let error = metadata.parts(Path::new("bag/metadata.yaml")).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
