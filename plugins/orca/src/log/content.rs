//! The content of subfiles, by their declared encoding.

use crate::display::display_name;
use crate::master::{Dialect, FileLine, is_encoding_of_payloads};

/// The content of a subfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubfileContent {
    /// Length-prefixed records.
    Records,
    /// One object per line of text.
    Lines,
    /// One line per picture; the pictures are in a folder that the second line names.
    PictureLines,
    /// One record per picture, with the name of its file.
    PictureRecords,
    /// Content that is not read, with the reason.
    Unsupported(String),
}

impl SubfileContent {
    pub(super) fn from_header_line(dialect: Dialect, file: &FileLine) -> Self {
        let unsupported = |why: &str| {
            Self::Unsupported(format!(
                "`{}` objects of `{}` {why}",
                display_name(&file.encoding),
                display_name(&file.interface)
            ))
        };
        match (file.encoding.as_slice(), dialect) {
            (word, _) if is_encoding_of_payloads(word) => Self::Records,
            (b"asciigenerated", _) => Self::Lines,
            (b"ascii", Dialect::C) if is_one_line_per_object(&file.interface) => Self::Lines,
            (b"ascii", _) => unsupported("span several lines and are not supported"),
            (b"jpeg", Dialect::C) => Self::PictureLines,
            (b"jpeg", Dialect::B) => Self::PictureRecords,
            (b"jpeg", Dialect::A) => unsupported("are not supported in logs of dialect A"),
            _ => unsupported(
                "are not supported; supported encodings are `ice`, `ascii`, `asciigenerated` and \
                 `jpeg`",
            ),
        }
    }
}

/// Whether the later loggers wrote each object of this interface as one line of text.
pub(super) fn is_one_line_per_object(interface: &[u8]) -> bool {
    matches!(
        interface,
        b"LaserScanner2d" | b"RangeScanner2d" | b"Power" | b"Gps" | b"Imu" | b"Localise2d"
    )
}

/// What an event of a subfile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Configuration, which the master does not count.
    Config,
    /// An object, or a picture.
    Object,
    /// The subfile's record or line about a picture, which is in a file of its own.
    PictureInfo,
}

impl RecordKind {
    /// The suffix that the channel's name has after that of the objects.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Config => ".config",
            Self::Object => "",
            Self::PictureInfo => ".info",
        }
    }
}

/// Whether the subfile refers to pictures in files of their own.
pub(crate) fn is_picture(content: &SubfileContent) -> bool {
    matches!(content, SubfileContent::PictureLines | SubfileContent::PictureRecords)
}
