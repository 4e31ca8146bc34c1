//! Names that users write into options.

use std::borrow::Cow;
use std::ops::Range;

use sluice_kit::unnest::unnested_columns;
use sluice_model::{DeclaredColumns, FieldPath, Pattern};

/// A name that the user wrote into an option.
#[derive(Clone, Debug)]
pub struct NameOption {
    /// The option: the first of the keys that lead to it.
    pub option: String,
    /// What the name has to match.
    pub name: SearchedName,
    /// Its position in the pipeline file, for error messages.
    pub span: Range<usize>,
}

/// What a name in an option refers to.
#[derive(Clone, Debug)]
pub enum SearchedName {
    /// The channels of events.
    Channel(Pattern),
    /// The sources of events.
    Source(Pattern),
    /// The fields of decoded messages.
    Field(SearchedField),
    /// The events in a time window, of which this is one bound as written.
    Window(String),
}

/// A field of decoded messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchedField {
    /// The field.
    pub path: FieldPath,
    /// Whether an expression or a template needs it: the rows of some event must have it. A plugin
    /// itself notes which of other fields no event had.
    pub is_needed: bool,
    /// The list that the plugin unnests before it looks for the field.
    pub unnest: Option<FieldPath>,
}

impl SearchedField {
    /// Whether any of these types has it.
    pub(crate) fn is_in(&self, types: &DeclaredColumns) -> bool {
        self.columns(types).has(&self.path)
    }

    /// The columns among which the plugin looks for it, of rows of these types.
    pub(crate) fn columns<'t>(&self, types: &'t DeclaredColumns) -> Cow<'t, DeclaredColumns> {
        match &self.unnest {
            Some(list) => Cow::Owned(unnested_columns(types, list)),
            None => Cow::Borrowed(types),
        }
    }
}

impl SearchedName {
    /// The field, if it is one.
    pub fn field(&self) -> Option<&SearchedField> {
        match self {
            Self::Field(field) => Some(field),
            Self::Channel(_) | Self::Source(_) | Self::Window(_) => None,
        }
    }
}
