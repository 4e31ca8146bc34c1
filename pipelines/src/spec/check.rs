//! What all checks of a pipeline file share: its text, and the list of mistakes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use sluice_model::Registry;
use toml::Spanned;
use toml::de::{DeString, DeValue};

use super::Document;
use super::messages::kind_of;
use super::variables::Variables;
use crate::mistake::Mistake;

pub(super) type TomlKey<'t> = Spanned<DeString<'t>>;
pub(super) type TomlValue<'t> = Spanned<DeValue<'t>>;

/// A replacement for a part of a file.
#[derive(Debug)]
pub(super) struct TextEdit {
    pub(super) span: Range<usize>,
    pub(super) text: String,
}

/// The state that all checks of a file share.
pub(super) struct Check<'c> {
    pub(super) document: &'c Document,
    /// The base of relative paths; `None` for the working folder.
    pub(super) folder: Option<&'c Path>,
    pub(super) variables: &'c Variables,
    pub(super) registry: &'c Registry,
    pub(super) mistakes: Vec<Mistake>,
    /// The variables without a value, and the number of mistakes about them.
    pub(super) unset: (BTreeSet<String>, usize),
    /// Whether paths are parsed as templates, in which braces are special.
    pub(super) reads_templates: bool,
    /// The edits that make every path of the file absolute.
    pub(super) edits: Vec<TextEdit>,
    /// The lines with TOML syntax errors. Nothing else is checked there.
    pub(super) broken_lines: Vec<Range<usize>>,
}

impl<'c> Check<'c> {
    pub(super) fn new(
        document: &'c Document,
        variables: &'c Variables,
        registry: &'c Registry,
    ) -> Self {
        let (mistakes, unset, broken) = (Vec::new(), Default::default(), Vec::new());
        let (reads_templates, edits) = (false, Vec::new());
        let folder = document.file.as_deref().and_then(Path::parent);
        Self {
            document,
            folder,
            variables,
            registry,
            mistakes,
            unset,
            reads_templates,
            edits,
            broken_lines: broken,
        }
    }

    /// Makes `folder` the base of relative paths.
    pub(super) fn in_folder(self, folder: &'c Path) -> Self {
        Self { folder: Some(folder), ..self }
    }

    /// Reports a variable without a value.
    pub(super) fn unset(&mut self, name: String, mistake: Mistake) {
        let before = self.mistakes.len();
        self.note(mistake);
        self.unset.1 += self.mistakes.len() - before;
        self.unset.0.insert(name);
    }

    /// Reports a mistake at a position.
    pub(super) fn mistake_at(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.note(Mistake { span, message: message.into(), help, detail: None });
    }

    /// Reports a mistake, unless it follows from another one.
    pub(super) fn note(&mut self, mistake: Mistake) {
        let span = &mistake.span;
        // Values that the parser invents for recovery have an empty span, and lines with syntax
        // errors do not mean what they say.
        let made_up = *span == (0..0) && !self.broken_lines.is_empty();
        let follows =
            made_up || self.broken_lines.iter().any(|broken| broken.contains(&span.start));
        if !follows {
            self.mistakes.push(mistake);
        }
    }

    /// Reports something missing. With syntax errors in the file it may well be there.
    pub(super) fn missing(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        if self.broken_lines.is_empty() {
            self.mistake_at(span, message, help);
        }
    }

    /// Reports a value of the wrong type.
    pub(super) fn expected(&mut self, what: &str, found: &TomlValue<'_>) {
        let message = format!("expected {what}, found {}", kind_of(found.get_ref()));
        self.mistake_at(found.span(), message, None);
    }
}
