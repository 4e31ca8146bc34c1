//! How records get the names of their channels.

use std::collections::BTreeMap;
use std::fmt;

use sluice_kit::Template;

use crate::offset::RecordOffset;
use crate::wire::BinaryNumber;

/// How records of a kind get their channel.
#[derive(Clone, Debug)]
pub(crate) enum ChannelNaming {
    /// A fixed name.
    Fixed(String),
    /// The name of the source in the pipeline.
    Source,
    /// From bytes of the record.
    ByFields {
        /// The offsets and lengths of these bytes.
        places: Vec<(RecordOffset, usize)>,
        /// How they form a name.
        name_from: NameSource,
    },
}

/// How fields form a channel name.
#[derive(Clone)]
pub(crate) enum NameSource {
    /// An integer that is looked up, or used as the name.
    Number(BinaryNumber, BTreeMap<i128, String>),
    /// The name itself.
    Text,
    /// A template that is filled in.
    Template(Template),
}

impl fmt::Debug for NameSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(..) => f.write_str("Number"),
            Self::Text => f.write_str("Text"),
            Self::Template(template) => write!(f, "Template({template})"),
        }
    }
}
