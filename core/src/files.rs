//! Input files: names turned into files, and reading at any place whatever the file really is.
//!
//! Files are read, never mapped: a mapped file that shrinks kills the process.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::globs::{self, is_glob};
use crate::{Error, Input};

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SKIPPABLE_MAGIC: [u8; 3] = [0x2a, 0x4d, 0x18];

/// The files that these names stand for: each as it is, if there is such a file, or else as a glob,
/// whose files come sorted by name, whatever bytes their names are of. `-` is standard input.
///
/// `Err` for a name without a file, a glob without a match, and a folder.
pub fn expand(names: &[PathBuf]) -> Result<Vec<Input>, Error> {
    let mut inputs = Vec::new();
    for name in names {
        if name == Path::new("-") {
            inputs.push(Input { path: name.clone(), bytes: None });
            continue;
        }
        match fs::metadata(name) {
            Ok(meta) => inputs.push(input(name, &meta)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_glob(name.as_os_str()) => {
                inputs.extend(matches(name)?);
            }
            Err(error) => return Err(Error::io("open", name, error)),
        }
    }
    Ok(inputs)
}

fn matches(name: &Path) -> Result<Vec<Input>, Error> {
    let mut found = Vec::new();
    for path in globs::expand(name)? {
        let meta = fs::metadata(&path).map_err(|e| Error::io("open", &path, e))?;
        // A glob means files; folders beside them are not what was asked for.
        if !meta.is_dir() {
            found.push(input(&path, &meta)?);
        }
    }
    if found.is_empty() {
        return Err(Error::refused(format!("no file matches `{}`", name.display())));
    }
    Ok(found)
}

fn input(path: &Path, meta: &fs::Metadata) -> Result<Input, Error> {
    if meta.is_dir() {
        return Err(Error::refused(format!(
            "a file is needed, and this is a folder: name its files, such as {}",
            path.join("*").display()
        )));
    }
    Ok(Input { path: path.to_owned(), bytes: meta.is_file().then_some(meta.len()) })
}

/// The first bytes of a file, uncompressed if it is compressed. Fewer than `len` where there are no more.
///
/// Does not consume pipes: they give nothing.
pub fn head(path: &Path, len: usize) -> Result<Vec<u8>, Error> {
    let meta = fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
    if !meta.is_file() {
        return Ok(Vec::new());
    }
    let mut log = LogFile::open(path)?;
    let mut bytes = vec![0; len];
    let found = log.read_at(0, &mut bytes)?;
    bytes.truncate(found);
    Ok(bytes)
}

/// Whether a file is compressed with zstd, by its first bytes.
pub fn is_zstd(path: &Path) -> Result<bool, Error> {
    let mut magic = [0; 4];
    let file = open(path)?;
    let found = fill(|buf, at| file.read_at(buf, at), 0, &mut magic)
        .map_err(|e| Error::io("read", path, e))?;
    Ok(found == magic.len()
        && (magic == ZSTD_MAGIC || magic[1..] == SKIPPABLE_MAGIC && magic[0] >> 4 == 5))
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|e| Error::io("open", path, e))
}

/// A log that can be read at any place: a file, or a stream of which what is still needed is kept.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    form: Form,
}

enum Form {
    File(File),
    Stream(Stream),
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::File(_)) { "File" } else { "Stream" })
    }
}

impl LogFile {
    /// Opens a file, a pipe, or standard input (`-`). What is compressed with zstd reads as what it
    /// holds.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path == Path::new("-") {
            return Self::stream(path, Box::new(io::stdin()));
        }
        let file = open(path)?;
        let kind = file.metadata().map_err(|e| Error::io("open", path, e))?;
        if kind.is_dir() {
            return Err(Error::io("read", path, io::ErrorKind::IsADirectory.into()));
        }
        if !kind.is_file() {
            return Self::stream(path, Box::new(file));
        }
        if is_zstd(path)? {
            return Ok(Self {
                path: path.to_owned(),
                form: Form::Stream(Stream::packed(decompressed(path, file)?)),
            });
        }
        Ok(Self { path: path.to_owned(), form: Form::File(file) })
    }

    /// Opens a file as it is, compressed or not.
    pub fn open_plain(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.to_owned(), form: Form::File(open(path)?) })
    }

    /// Reads `stream`, uncompressed if it is compressed, as the log that the user knows as `path`.
    pub fn stream(path: &Path, stream: Box<dyn Read + Send>) -> Result<Self, Error> {
        let mut stream = Stream::new(stream);
        let mut magic = [0; 4];
        let found = stream.read_at(0, &mut magic).map_err(|e| Error::io("read", path, e))?;
        if found == 4 && magic == ZSTD_MAGIC {
            stream = Stream::packed(decompressed(path, stream)?);
        }
        Ok(Self { path: path.to_owned(), form: Form::Stream(stream) })
    }

    /// The path as the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether any place can be read at any time, also again.
    pub fn is_seekable(&self) -> bool {
        matches!(self.form, Form::File(_))
    }

    /// How long it is now, where that can be known.
    pub fn len(&self) -> Option<u64> {
        match &self.form {
            Form::File(file) => file.metadata().ok().map(|meta| meta.len()),
            Form::Stream(_) => None,
        }
    }

    /// Whether it is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Fills as much of `buffer` as the log has at `position`: less only at its end.
    ///
    /// A stream keeps everything from the last [`forget`](Self::forget) on; places before are gone.
    pub fn read_at(&mut self, position: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let read = match &mut self.form {
            Form::File(file) => fill(|buf, at| file.read_at(buf, at), position, buffer),
            Form::Stream(stream) => stream.read_at(position, buffer),
        };
        read.map_err(|e| Error::io("read", &self.path, e))
    }

    /// What is wrong with a compressed log that could only be read up to here. Known once reading has
    /// come to its end.
    pub fn broken(&self) -> Option<&str> {
        match &self.form {
            Form::File(_) => None,
            Form::Stream(stream) => stream.broken.as_deref(),
        }
    }

    /// Says that nothing before `position` will be asked for again.
    pub fn forget(&mut self, position: u64) {
        if let Form::Stream(stream) = &mut self.form {
            stream.forget(position);
        }
    }
}

fn decompressed(
    path: &Path,
    from: impl Read + Send + 'static,
) -> Result<Box<dyn Read + Send>, Error> {
    let decoder = zstd::stream::read::Decoder::new(from).map_err(|e| Error::io("read", path, e))?;
    Ok(Box::new(decoder))
}

/// Reads until `buffer` is full or there is no more.
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

/// A stream of which a window is kept.
struct Stream {
    from: Box<dyn Read + Send>,
    /// The position of the first byte that is kept.
    base: u64,
    kept: Vec<u8>,
    /// How much of the front of `kept` has been forgotten but not yet moved out.
    stale: usize,
    ended: bool,
    /// Whether the bytes come out of a decompressor.
    packed: bool,
    broken: Option<String>,
}

impl Stream {
    /// How much is read at a time.
    const STEP: usize = 256 << 10;

    fn new(from: Box<dyn Read + Send>) -> Self {
        Self {
            from,
            base: 0,
            kept: Vec::new(),
            stale: 0,
            ended: false,
            packed: false,
            broken: None,
        }
    }

    fn packed(from: Box<dyn Read + Send>) -> Self {
        Self { packed: true, ..Self::new(from) }
    }

    fn read_at(&mut self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let missing =
            || io::Error::other("this part of the stream has gone by; it cannot be read twice");
        let start = position.checked_sub(self.base).ok_or_else(missing)?;
        let start = usize::try_from(start).map_err(io::Error::other)?;
        while !self.ended && self.kept.len() < start + buffer.len() {
            self.read_more()?;
        }
        let there = self.kept.get(start..).unwrap_or_default();
        let len = there.len().min(buffer.len());
        buffer[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    fn read_more(&mut self) -> io::Result<()> {
        let len = self.kept.len();
        self.kept.resize(len + Self::STEP, 0);
        let read = loop {
            match self.from.read(&mut self.kept[len..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.kept.truncate(len + *read.as_ref().unwrap_or(&0));
        match read {
            // What the system did not say, the decompressor did: the rest of the log cannot be had.
            Err(error) if self.packed && error.raw_os_error().is_none() => {
                self.broken = Some(format!("the compressed data is damaged or cut off: {error}"));
                self.ended = true;
            }
            read => self.ended = read? == 0,
        }
        Ok(())
    }

    fn forget(&mut self, position: u64) {
        let stale = position.saturating_sub(self.base).min(self.kept.len() as u64) as usize;
        // Moving bytes down costs what was read since: only when that is at least half.
        if stale > self.stale && stale >= self.kept.len() / 2 {
            self.kept.drain(..stale);
            self.base += stale as u64;
            self.stale = 0;
        }
    }
}

/// Reading on without looking back, for decompressing what was sniffed.
impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let position = self.base;
        let ready = if self.kept.is_empty() {
            1.min(buffer.len())
        } else {
            self.kept.len().min(buffer.len())
        };
        let read = self.read_at(position, &mut buffer[..ready])?;
        self.kept.drain(..read);
        self.base += read as u64;
        Ok(read)
    }
}

/// What a file is, whatever its name: two names of one file have one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// The identity of the regular file at `path`, also through links; nothing if there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        meta.is_file().then(|| Self { device: meta.dev(), inode: meta.ino() })
    }
}

/// Whether a path is something that takes bytes but holds none: a device, a pipe, a socket.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| {
        let kind = meta.file_type();
        kind.is_char_device() || kind.is_fifo() || kind.is_socket() || kind.is_block_device()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn names_become_files_and_globs_come_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.lcm", "a.lcm", "odd[1].lcm"] {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir(at("sub.lcm")).unwrap();
        let names = |pattern: &str| -> Vec<PathBuf> {
            expand(&[at(pattern)]).unwrap().into_iter().map(|input| input.path).collect()
        };
        assert_eq!(names("*.lcm"), [at("a.lcm"), at("b.lcm"), at("odd[1].lcm")]);
        assert_eq!(names("odd[1].lcm"), [at("odd[1].lcm")]);
        for wrong in ["c.lcm", "sub.lcm", "x*"] {
            assert!(expand(&[at(wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_stream_can_be_read_again_until_it_is_forgotten() {
        let bytes: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
        let mut log =
            LogFile::stream(Path::new("-"), Box::new(io::Cursor::new(bytes.clone()))).unwrap();
        let mut buffer = vec![0; 1000];
        for position in [900_000, 0, 999_500] {
            let read = log.read_at(position, &mut buffer).unwrap();
            assert_eq!(buffer[..read], bytes[position as usize..][..read]);
            assert_eq!(read, 1000.min(1_000_000 - position as usize));
        }
        log.forget(900_000);
        assert!(log.read_at(0, &mut buffer).is_err());
        assert_eq!(log.read_at(900_000, &mut buffer).unwrap(), 1000);
    }

    #[test]
    fn compressed_logs_read_as_what_they_hold() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let plain = b"events, events, events".repeat(1000);
        let packed = zstd::encode_all(&plain[..], 3).unwrap();
        file.write_all(&packed).unwrap();
        for mut log in [
            LogFile::open(file.path()).unwrap(),
            LogFile::stream(Path::new("-"), Box::new(io::Cursor::new(packed.clone()))).unwrap(),
        ] {
            let mut buffer = vec![0; plain.len() + 1];
            assert_eq!(log.read_at(0, &mut buffer).unwrap(), plain.len());
            assert!(buffer.starts_with(&plain));
        }
        assert_eq!(head(file.path(), 6).unwrap(), b"events");
    }

    #[test]
    fn a_compressed_log_that_is_cut_off_gives_what_is_left_and_says_so() {
        let plain: Vec<u8> =
            (0..400_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let mut packed = zstd::encode_all(&plain[..], 1).unwrap();
        packed.truncate(packed.len() / 2);
        let mut log = LogFile::stream(Path::new("-"), Box::new(io::Cursor::new(packed))).unwrap();
        let mut buffer = vec![0; plain.len()];
        let read = log.read_at(0, &mut buffer).unwrap();
        assert!(read > 0 && plain.starts_with(&buffer[..read]));
        assert!(log.broken().unwrap().contains("cut off"));
    }
}
