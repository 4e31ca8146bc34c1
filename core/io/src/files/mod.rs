//! Input files: expanding names to files, and reading at any position. A name may be an address in
//! an [object store](crate::store); all functions here accept both.
//!
//! Files are read, never mapped: a mapped file that shrinks kills the process.

mod below;
mod cache;
mod compressed_input;
mod expand;
pub(crate) mod folder_queue;
mod foreign;
mod frame_needs;
mod hash;
mod identity;
mod input;
mod inputs;
mod log;
mod names;
mod object_reader;
mod objects;
mod open;
mod path_kind;
mod small;
mod stream;
mod unpack;
mod upstream_error;

pub use below::{FileChoice, below};
pub use cache::FileCache;
pub use expand::{expand, expand_with_folders, folders, is_only_glob, other_matches};
pub use foreign::{ForeignFormat, InputContent, is_text, is_text_bytes, refuse_foreign};
pub use hash::{InputHash, InputHashes, hash_file};
pub use identity::{FileIdentity, refuse_repeated_streams};
pub use input::{Input, PathKind};
pub use inputs::InputFiles;
pub use log::LogFile;
pub use names::{NOT_UTF8, TEMPORARY, is_litter, is_standard_input, is_standard_output};
pub(crate) use objects::{forget, read_object};
pub use objects::{forget_states, objects_below};
pub use open::{has_damaged_start, head, is_zstd, stream_head};
pub use path_kind::{
    exists, is_address_or_file, is_file, is_folder, is_input_file, is_special, is_stream, path_kind,
};
pub use small::{read, read_if_exists, read_small};

#[cfg(test)]
mod tests;
