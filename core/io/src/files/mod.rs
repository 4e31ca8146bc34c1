//! Input files: expanding names to files, and reading at any position. A name may be an address in
//! an [object store](crate::store); all functions here accept both.
//!
//! Files are read, never mapped: a mapped file that shrinks kills the process.

mod below;
mod cache;
mod compressed_input;
pub(crate) mod folder_queue;
mod foreign;
mod frame_needs;
mod hash;
mod inputs;
mod log;
mod object_reader;
mod objects;
mod peek;
mod small;
mod stream;
mod unpack;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::escape::printable;
use crate::globs::{self, is_glob};
use crate::store::{self, StorePath};

pub use below::{FileChoice, below};
pub use cache::FileCache;
pub use foreign::{ForeignFormat, InputContent, is_text, is_text_bytes, refuse_foreign};
pub use hash::{InputHash, InputHashes, hash_file};
pub use inputs::InputFiles;
pub use log::LogFile;
use objects::is_pinned;
pub(crate) use objects::{forget, read_object};
pub use objects::{forget_states, objects_below};
use peek::stream_identity;
pub use peek::{has_damaged_start, stream_head};
pub use small::read_small;

/// A file or stream that a source reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Its path, as given by the user; `-` is standard input.
    #[serde(
        serialize_with = "crate::escape::path_as_text",
        deserialize_with = "crate::escape::path_from_text"
    )]
    pub path: PathBuf,
    /// Its length in bytes, if it has one.
    pub bytes: Option<u64>,
}

/// The end of the names of temporary files.
pub const TEMPORARY: &str = ".sluice-tmp";

/// What is wrong with a path that is not text, where it is to become an option, and what to do.
pub const NOT_UTF8: &str =
    "is not UTF-8, and options are text: rename the file, or make a link with another name";

/// Whether this is the name of a temporary file, not of an output.
pub fn is_litter(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TEMPORARY)
}

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SKIPPABLE_MAGIC: [u8; 3] = [0x2a, 0x4d, 0x18];

/// The files that these names mean: the file of that name if it exists, otherwise the files that
/// match it as a glob, sorted by name. `-` is standard input.
///
/// `Err` for a name without a file, a glob without a match, and a folder.
pub fn expand(names: &[PathBuf]) -> Result<Vec<Input>, Error> {
    let mut inputs = Vec::new();
    for name in names {
        if name == Path::new("-") {
            inputs.push(Input { path: name.clone(), bytes: None });
            continue;
        }
        if let Some(place) = StorePath::parse(name)? {
            objects::expand(name, &place, &mut inputs)?;
            continue;
        }
        match fs::metadata(name) {
            Ok(meta) => inputs.push(input(name, &meta)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_glob(name.as_os_str()) => {
                inputs.extend(matches(name)?);
            }
            Err(error) => return Err(not_found(name, Error::io("open", name, error))),
        }
    }
    Ok(inputs)
}

/// Like [`expand`], but also the folder of this name, or the folders that match it as a glob. They
/// have no length, nor have links that lead nowhere, which whoever opens them reports.
pub fn expand_with_folders(name: &Path) -> Result<Vec<Input>, Error> {
    let found = match is_glob_of_paths(name) {
        true => globs::expand(name)?,
        false if is_folder(name) => vec![name.to_owned()],
        false => return expand(&[name.to_owned()]),
    };
    if found.is_empty() {
        return Err(no_match(name));
    }
    let input = |path: PathBuf| {
        let file = fs::metadata(&path).ok().filter(fs::Metadata::is_file);
        Input { path, bytes: file.map(|meta| meta.len()) }
    };
    Ok(found.into_iter().map(input).collect())
}

/// The folders that a name means: the folder of that name, or, if it is a glob that matches no
/// file, the folders that match it, sorted by name. None for a file, and in object stores.
pub fn folders(name: &Path) -> Result<Vec<PathBuf>, Error> {
    if is_folder(name) {
        return Ok(vec![name.to_owned()]);
    }
    if !is_glob_of_paths(name) {
        return Ok(Vec::new());
    }
    let found = globs::expand(name)?;
    let has_file = found.iter().any(|path| !path.is_dir());
    Ok(if has_file { Vec::new() } else { found })
}

/// Whether a name is a glob, and no file, folder or object has that name. True on errors.
pub fn is_only_glob(name: &Path) -> bool {
    is_glob(name.as_os_str()) && !exists(name)
}

fn is_glob_of_paths(name: &Path) -> bool {
    !store::is_address(name) && is_only_glob(name)
}

fn matches(name: &Path) -> Result<Vec<Input>, Error> {
    let mut found = Vec::new();
    for path in globs::expand(name)? {
        let meta = fs::metadata(&path).map_err(|e| Error::io("open", &path, e))?;
        // A glob means files; matching folders are ignored.
        if !meta.is_dir() {
            found.push(input(&path, &meta)?);
        }
    }
    if found.is_empty() { Err(no_match(name)) } else { Ok(found) }
}

fn no_match(glob: &Path) -> Error {
    let bytes = glob.as_os_str().as_encoded_bytes();
    let advice = if glob.ends_with("**") && !bytes.ends_with(b"/") {
        "; `**` means folders: write `**/*` for the files in them"
    } else if bytes.contains(&b'[') {
        "; `[ab]` means one of these characters: write `[[]` for `[` itself"
    } else {
        ""
    };
    not_found(glob, Error::refused(format!("no file matches `{}`{advice}", glob.display())))
}

/// The error for a name without a file, which may be meant as a URL.
fn not_found(name: &Path, error: Error) -> Error {
    match store::advice_for_url(name) {
        Some(advice) => error.with_detail(&advice),
        None => error,
    }
}

fn input(path: &Path, meta: &fs::Metadata) -> Result<Input, Error> {
    if meta.is_dir() {
        return Err(Error::refused(format!(
            "expected a file, found a folder: pass its files, such as {}",
            path.join("*").display()
        )));
    }
    Ok(Input { path: path.to_owned(), bytes: meta.is_file().then_some(meta.len()) })
}

/// The first `len` bytes of a file, decompressed if necessary; fewer if the file is shorter.
///
/// Returns nothing for pipes, and does not consume them.
pub fn head(path: &Path, len: usize) -> Result<Vec<u8>, Error> {
    if !store::is_address(path)
        && !fs::metadata(path).map_err(|e| Error::io("open", path, e))?.is_file()
    {
        return Ok(Vec::new());
    }
    let mut log = LogFile::open(path)?;
    log.skip_checksums();
    log.first_bytes(len)
}

/// Whether a file is compressed with zstd, judging by its first bytes; by its name, if it ends
/// before them.
pub fn is_zstd(path: &Path) -> Result<bool, Error> {
    if let Some(mut ranges) = object_reader::ObjectReader::open(path)? {
        return ranges.is_zstd().map_err(|e| Error::io("read", path, e));
    }
    let mut magic = [0; 4];
    let file = open(path)?;
    let found = fill(|buf, at| file.read_at(buf, at), 0, &mut magic)
        .map_err(|e| Error::io("read", path, e))?;
    Ok(is_start_of_zstd(path, magic.get(..found).unwrap_or_default()))
}

/// Whether a file that starts with these bytes, at most four, is compressed with zstd. Fewer are
/// the start of a file that was cut off, if its name says what it was.
fn is_start_of_zstd(path: &Path, start: &[u8]) -> bool {
    match start.first_chunk() {
        Some(magic) => is_magic(*magic),
        None => path.extension().is_some_and(|end| end == "zst") && ZSTD_MAGIC.starts_with(start),
    }
}

/// Whether these are the first bytes of a zstd file.
fn is_magic(bytes: [u8; 4]) -> bool {
    bytes == ZSTD_MAGIC || bytes[1..] == SKIPPABLE_MAGIC && bytes[0] >> 4 == 5
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|e| Error::io("open", path, e))
}

/// Reads until `buffer` is full or the end is reached.
fn fill(
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    position: u64,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(&mut buffer[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The kind of thing at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A file or an object of this length.
    File(u64),
    /// A folder, or a prefix of objects in a store.
    Folder,
    /// A device, a pipe or a socket.
    Special,
}

/// The kind of thing at a path, following links; `None` if nothing is there.
///
/// An address is always looked up in the store, ignoring cached states.
pub fn path_kind(path: &Path) -> Result<Option<PathKind>, Error> {
    if let Some(place) = StorePath::parse(path)? {
        return objects::path_kind(&place).map_err(|e| Error::io("look at", path, e));
    }
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(Some(PathKind::Folder)),
        Ok(meta) if meta.is_file() => Ok(Some(PathKind::File(meta.len()))),
        Ok(_) => Ok(Some(PathKind::Special)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(Error::io("look at", path, error)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether there is a file or an object. False on errors.
pub fn is_file(path: &Path) -> bool {
    matches!(path_kind(path), Ok(Some(PathKind::File(_))))
}

/// Whether a path can be opened without waiting for a writer, as one does for a pipe: an address,
/// which is not looked up, or a file. False on errors.
pub fn is_address_or_file(path: &Path) -> bool {
    store::is_address(path) || is_file(path)
}

/// Whether there is a folder, or a prefix of objects in a store. False on errors, and for an object
/// that this process has listed or opened, which is not looked up again.
pub fn is_folder(path: &Path) -> bool {
    if StorePath::parse(path).is_ok_and(|place| place.is_some_and(|it| is_pinned(&it.at))) {
        return false;
    }
    matches!(path_kind(path), Ok(Some(PathKind::Folder)))
}

/// Whether anything is there. False on errors.
pub fn exists(path: &Path) -> bool {
    matches!(path_kind(path), Ok(Some(_)))
}

/// All bytes of a small file or object, as they are. [`read_small`] reads what options name.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    match StorePath::parse(path)? {
        Some(place) => match read_object(&place) {
            Ok((_, bytes)) => Ok(bytes.to_vec()),
            Err(error) => Err(Error::io("read", path, error)),
        },
        None => fs::read(path).map_err(|error| Error::io("read", path, error)),
    }
}

/// Like [`read`], but `None` if there is nothing.
pub fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The identity of a file: the same for all its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity(IdentityKey);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum IdentityKey {
    File {
        device: u64,
        inode: u64,
        /// Where the file system knows it: a new file can get the inode of one that was removed.
        created: Option<SystemTime>,
    },
    /// The hash of its address.
    Object([u8; blake3::OUT_LEN]),
}

impl FileIdentity {
    /// The identity of the regular file at `path`, following links; `None` if there is none. An
    /// address has one whether or not the object exists.
    pub fn read(path: &Path) -> Option<Self> {
        if let Some(place) = StorePath::parse(path).ok()? {
            return Some(Self(IdentityKey::Object(
                *blake3::hash(place.at.to_string().as_bytes()).as_bytes(),
            )));
        }
        Self::from_metadata(&fs::metadata(path).ok()?)
    }

    fn from_metadata(meta: &fs::Metadata) -> Option<Self> {
        meta.is_file().then(|| {
            Self(IdentityKey::File {
                device: meta.dev(),
                inode: meta.ino(),
                created: meta.created().ok(),
            })
        })
    }

    /// Whether a regular file is at `path`, and one of `others` is another name of it.
    pub fn is_one_of<P: AsRef<Path>>(path: &Path, others: impl IntoIterator<Item = P>) -> bool {
        let Some(identity) = Self::read(path) else { return false };
        others.into_iter().any(|other| Self::read(other.as_ref()) == Some(identity))
    }
}

/// Refuses inputs that name a stream twice: standard input, a named pipe or a socket. Two readers
/// would each get parts of it.
pub fn refuse_repeated_streams<'i>(
    inputs: impl IntoIterator<Item = &'i Input>,
) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for path in inputs.into_iter().filter(|input| input.bytes.is_none()).map(|input| &input.path) {
        if stream_identity(path).is_some_and(|identity| !seen.insert(identity)) {
            let is_stdin = path == Path::new("-");
            let name = if is_stdin { "standard input".into() } else { path.to_string_lossy() };
            return Err(Error::refused(format!(
                "{} is an input twice, and a stream can only be read once; name it once, or save \
                 it to a file first",
                printable(&name)
            )));
        }
    }
    Ok(())
}

/// Whether a path is a name of standard input.
pub fn is_standard_input(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// Whether a path is a name of standard output.
pub fn is_standard_output(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Whether a path is standard input (`-`), a device, a pipe or a socket.
pub fn is_stream(path: &Path) -> bool {
    path == Path::new("-") || is_special(path)
}

/// Whether a path is a device, a pipe or a socket.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| {
        let kind = meta.file_type();
        kind.is_char_device() || kind.is_fifo() || kind.is_socket() || kind.is_block_device()
    })
}

#[cfg(test)]
mod tests;
