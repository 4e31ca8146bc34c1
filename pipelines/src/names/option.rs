//! Names that users write into options.

use std::ops::Range;

use sluice_model::{FieldPath, Pattern};

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
    Field(FieldPath),
    /// The fields that the expressions of a stage need: the rows that it gets must have them.
    NeededField(FieldPath),
    /// The events in a time window, of which this is one bound as written.
    Window(String),
}

impl SearchedName {
    /// The field, if it is one.
    pub fn field(&self) -> Option<&FieldPath> {
        match self {
            Self::Field(field) | Self::NeededField(field) => Some(field),
            Self::Channel(_) | Self::Source(_) | Self::Window(_) => None,
        }
    }
}
