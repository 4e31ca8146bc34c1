//! Path templates: output paths filled in for each input. Touches no output.

use std::path::{Path, PathBuf};

use sluice_io::escape::percent_encoded;
use sluice_model::{Error, ErrorKind};

use crate::spec::messages::{did_you_mean, listed};

/// Placeholders in output paths, by name.
const PLACEHOLDERS: [(&str, Placeholder); 5] = [
    ("stem", Placeholder::Stem),
    ("name", Placeholder::Name),
    ("ext", Placeholder::Ext),
    ("parent", Placeholder::Parent),
    ("index", Placeholder::Index),
];

/// Placeholders in source names, by name.
const SOURCE_PLACEHOLDERS: [(&str, Placeholder); 6] = [
    ("name", Placeholder::Name),
    ("stem", Placeholder::Stem),
    ("ext", Placeholder::Ext),
    ("parent", Placeholder::Parent),
    ("path", Placeholder::Path),
    ("source", Placeholder::Source),
];

/// An output path with placeholders: `out/{stem}.parquet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<TemplateSegment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplateSegment {
    Text(String),
    Placeholder(Placeholder),
    /// A placeholder in a folder called `key={…}`: readers of partitions decode its value.
    Partition(Placeholder),
}

/// The property of an input that a placeholder inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    /// The file's name without `.zst`, and then without its last extension.
    Stem,
    /// The whole name of the file.
    Name,
    /// The last extension, before `.zst`.
    Ext,
    /// The name of the folder that the file is in.
    Parent,
    /// Its index among the inputs, from 0, with five digits.
    Index,
    /// The whole path, as the user named it.
    Path,
    /// The default source name.
    Source,
}

/// Why a text is not a template, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateError {
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Template {
    /// Parses a template; `{{` and `}}` are literal braces. `Err` lists everything wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<TemplateError>> {
        let mut template = Self::parse_with(text, &PLACEHOLDERS)?;
        let in_folders = template.0.iter().rposition(|piece| piece.text().contains('/'));
        let mut is_after_key = false;
        for piece in template.0.iter_mut().take(in_folders.unwrap_or(0)) {
            match piece {
                TemplateSegment::Text(text) => {
                    let (rest, is_new) =
                        text.rsplit_once('/').map_or((&**text, false), |(_, rest)| (rest, true));
                    is_after_key = (is_after_key && !is_new) || rest.contains('=');
                }
                TemplateSegment::Placeholder(placeholder) if is_after_key => {
                    *piece = TemplateSegment::Partition(*placeholder);
                }
                _ => {}
            }
        }
        Ok(template)
    }

    /// Parses a template for source names.
    pub(crate) fn parse_source_name(text: &str) -> Result<Self, Vec<TemplateError>> {
        Self::parse_with(text, &SOURCE_PLACEHOLDERS)
    }

    fn parse_with(text: &str, all: &[(&str, Placeholder)]) -> Result<Self, Vec<TemplateError>> {
        let (mut pieces, mut wrong) = (Vec::new(), Vec::new());
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
                plain.push_str(&brace[..1]);
                rest = after;
                continue;
            }
            let Some(inner) = brace.strip_prefix('{') else {
                wrong.push(lone_brace("`}` without `{`"));
                rest = &brace[1..];
                continue;
            };
            let Some((name, after)) = inner.split_once('}') else {
                wrong.push(lone_brace("`{` without `}`"));
                rest = "";
                break;
            };
            match placeholder(name, all) {
                Ok(found) => {
                    pieces.extend(
                        (!plain.is_empty()).then(|| TemplateSegment::Text(plain.split_off(0))),
                    );
                    pieces.push(TemplateSegment::Placeholder(found));
                }
                Err(reason) => wrong.push(reason),
            }
            rest = after;
        }
        plain.push_str(rest);
        pieces.extend((!plain.is_empty()).then_some(TemplateSegment::Text(plain)));
        if wrong.is_empty() { Ok(Self(pieces)) } else { Err(wrong) }
    }

    /// The literal text; `None` if it has placeholders.
    pub(crate) fn literal(&self) -> Option<String> {
        let texts = self.0.iter().map(|piece| match piece {
            TemplateSegment::Text(text) => Some(text.as_str()),
            TemplateSegment::Placeholder(_) | TemplateSegment::Partition(_) => None,
        });
        texts.collect()
    }

    /// The folder that contains every path it can produce.
    pub(crate) fn folder(&self) -> PathBuf {
        let begin = match self.0.first() {
            Some(TemplateSegment::Text(text)) => text.rsplit_once('/').map(|(folder, _)| folder),
            _ => None,
        };
        match begin {
            Some("") => PathBuf::from("/"),
            Some(folder) => PathBuf::from(folder),
            None => PathBuf::new(),
        }
    }

    /// The path for the input at this index.
    ///
    /// `Err` if the input lacks a property that a placeholder needs.
    pub(crate) fn fill(&self, input: &Path, index: usize) -> Result<String, Error> {
        self.fill_with(input, "index", |placeholder| {
            (placeholder == Placeholder::Index).then(|| format!("{index:05}"))
        })
    }

    /// The source name for the events of this input; `source` is the default name.
    ///
    /// `Err` if the input lacks a property that a placeholder needs.
    pub(crate) fn source_name(&self, input: &Path, source: &str) -> Result<String, Error> {
        self.fill_with(input, "source", |placeholder| {
            (placeholder == Placeholder::Source).then(|| source.to_owned())
        })
    }

    /// Whether it contains the file name or its stem, which inputs in different folders may share.
    pub(crate) fn uses_file_name(&self) -> bool {
        let is_name = |piece: &TemplateSegment| {
            matches!(piece.placeholder(), Some(Placeholder::Name | Placeholder::Stem))
        };
        self.0.iter().any(is_name)
    }

    /// Fills the template; errors suggest the placeholder `other`.
    fn fill_with(
        &self,
        input: &Path,
        other: &str,
        known: impl Fn(Placeholder) -> Option<String>,
    ) -> Result<String, Error> {
        let value = |placeholder: Placeholder| match known(placeholder) {
            Some(value) => Ok(value),
            None => placeholder.value(input, other),
        };
        let parts = self.0.iter().map(|piece| match piece {
            TemplateSegment::Text(text) => Ok(text.clone()),
            TemplateSegment::Placeholder(placeholder) => value(*placeholder),
            TemplateSegment::Partition(placeholder) => Ok(partition_value(&value(*placeholder)?)),
        });
        parts.collect()
    }
}

impl TemplateSegment {
    fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    fn placeholder(&self) -> Option<Placeholder> {
        match self {
            Self::Text(_) => None,
            Self::Placeholder(placeholder) | Self::Partition(placeholder) => Some(*placeholder),
        }
    }
}

impl Placeholder {
    fn value(self, input: &Path, other: &str) -> Result<String, Error> {
        let value = match self {
            Self::Index | Self::Source => None,
            Self::Path => return Ok(input.to_string_lossy().into_owned()),
            Self::Name => input.file_name().map(|name| name.to_string_lossy().into_owned()),
            Self::Stem => without_zst(input).file_stem().map(|s| s.to_string_lossy().into_owned()),
            Self::Ext => without_zst(input).extension().map(|e| e.to_string_lossy().into_owned()),
            Self::Parent => parent(input),
        };
        // These would change the folder.
        let unusable = |value: &String| matches!(value.as_str(), "" | "." | "..");
        let value = value.filter(|value| !unusable(value) && input != Path::new("-"));
        value.ok_or_else(|| {
            let mut all = PLACEHOLDERS.iter().chain(&SOURCE_PLACEHOLDERS);
            let known = all.find(|(_, other)| *other == self);
            let name = known.map(|(name, _)| *name).unwrap_or_default();
            let input = if input == Path::new("-") {
                "standard input".into()
            } else {
                input.to_string_lossy()
            };
            let what = format!("{input} has no `{{{name}}}`: use `{{{other}}}` instead");
            ErrorKind::NotAllowed(what).into()
        })
    }
}

/// Percent-encodes what readers of partitions would decode or take for a key.
fn partition_value(text: &str) -> String {
    let encoded = |c: char| match c {
        '%' | '=' | '\0'..='\x1f' | '\x7f' => percent_encoded(&[c as u8], |_| false),
        c => c.to_string(),
    };
    text.chars().map(encoded).collect()
}

fn without_zst(input: &Path) -> PathBuf {
    if input.extension().is_some_and(|e| e == "zst") {
        input.with_extension("")
    } else {
        input.to_owned()
    }
}

/// The folder's name as the user wrote it, otherwise its name on disk.
fn parent(input: &Path) -> Option<String> {
    let folder = input.parent()?;
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    name(folder).or_else(|| name(&here.canonicalize().ok()?))
}

fn placeholder(name: &str, all: &[(&str, Placeholder)]) -> Result<Placeholder, TemplateError> {
    if let Some((_, found)) = all.iter().find(|(known, _)| *known == name) {
        return Ok(*found);
    }
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let hint = did_you_mean(name, &names).unwrap_or_else(|| listed("they are", &names));
    Err(TemplateError {
        message: format!("there is no placeholder `{{{name}}}`"),
        help: format!("{hint}; write `{{{{` for a brace itself"),
    })
}

fn lone_brace(message: &str) -> TemplateError {
    TemplateError {
        message: message.to_owned(),
        help: "write `{{` and `}}` for the braces themselves".to_owned(),
    }
}

/// Escapes braces, so that the text is a template for itself.
pub(crate) fn escape_braces(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &str, input: &str) -> Result<String, String> {
        let template = Template::parse(template).unwrap();
        template.fill(Path::new(input), 7).map_err(|e| e.to_string())
    }

    #[test]
    fn placeholders_are_filled_from_the_input() {
        let all = "{stem}|{name}|{ext}|{parent}|{index}|{{x}}";
        let filled = |input| fill(all, input).unwrap();
        assert_eq!(filled("a/b.lcm"), "b|b.lcm|lcm|a|00007|{x}");
        assert_eq!(filled("/x/a.b.lcm.zst"), "a.b|a.b.lcm.zst|lcm|x|00007|{x}");
        assert_eq!(fill("{stem}", ".hidden").unwrap(), ".hidden");
        let here = std::env::current_dir().unwrap();
        assert_eq!(fill("{parent}", "b.lcm").unwrap(), here.file_name().unwrap().to_str().unwrap());
    }

    #[test]
    fn what_an_input_cannot_give_is_refused() {
        for (template, input) in
            [("{ext}", "drive"), ("{stem}", "-"), ("{name}", "-"), ("{stem}/x", "...lcm")]
        {
            assert!(fill(template, input).unwrap_err().contains("{index}"), "{template} {input}");
        }
        assert_eq!(fill("{index}", "-").unwrap(), "00007");
    }

    #[test]
    fn values_of_partitions_are_percent_encoded() {
        for (template, input, path) in [
            ("runs/log={name}/", "in/a=b.lcm", "runs/log=a%3Db.lcm/"),
            ("runs/log={stem}/", "in/%41.lcm", "runs/log=%2541/"),
            (
                "runs/log={parent}-{stem}/{name}.parquet",
                "a b/c d.x",
                "runs/log=a b-c d/c d.x.parquet",
            ),
            ("k=v/{stem}/", "a=b.lcm", "k=v/a=b/"),
            ("runs/k={stem}.parquet", "a=b.lcm", "runs/k=a=b.parquet"),
        ] {
            assert_eq!(fill(template, input).unwrap(), path, "{template}");
        }
    }

    #[test]
    fn names_of_sources_have_placeholders_of_their_own() {
        let named = |text: &str, input: &str| {
            let template = Template::parse_source_name(text).unwrap();
            template.source_name(Path::new(input), "log").map_err(|e| e.to_string())
        };
        let all = "{path}|{parent}|{name}|{stem}|{source}";
        assert_eq!(named(all, "a/b.lcm.zst").unwrap(), "a/b.lcm.zst|a|b.lcm.zst|b|log");
        assert!(named("{name}", "-").unwrap_err().contains("use `{source}` instead"));
        assert_eq!(named("{path}", "-").unwrap(), "-");
        let wrong = Template::parse_source_name("{index}").unwrap_err();
        assert!(wrong[0].help.contains("`path`"), "{wrong:?}");
        assert!(Template::parse("{path}").is_err());
    }

    #[test]
    fn everything_wrong_with_a_template_is_reported() {
        let messages = |text: &str| -> Vec<String> {
            let wrong = Template::parse(text).unwrap_err();
            wrong.into_iter().map(|one| format!("{}; {}", one.message, one.help)).collect()
        };
        assert_eq!(messages("{steam}}{nme}").len(), 3);
        assert!(messages("{steam}")[0].contains("did you mean `stem`?"));
        assert!(messages("{}")[0].contains("`index`"));
        assert!(messages("x{stem")[0].contains("without"));
    }

    #[test]
    fn the_fixed_folder_ends_before_the_first_placeholder() {
        let folder = |text: &str| Template::parse(text).unwrap().folder();
        assert_eq!(folder("out/x-{stem}.lcm"), Path::new("out"));
        assert_eq!(folder("a/b/{stem}/c"), Path::new("a/b"));
        assert_eq!(folder("{stem}.lcm"), Path::new(""));
        assert_eq!(folder("/{stem}.lcm"), Path::new("/"));
    }

    #[test]
    fn braces_that_are_escaped_stand_for_themselves() {
        let parsed = Template::parse(&escape_braces("a{b}c}{")).unwrap();
        assert_eq!(parsed.literal().as_deref(), Some("a{b}c}{"));
        assert_eq!(Template::parse("{stem}").unwrap().literal(), None);
    }
}
