//! Common file formats that a source cannot read, recognized by their first bytes, so that the
//! error can say what to do instead. Decompresses nothing.

use std::path::Path;

use super::log::LogFile;
use super::open::head;
use crate::escape::printable;
use crate::store::is_address;
use crate::{Error, Input, ReadBuffer};

/// A format recognized by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignFormat {
    /// Compressed with gzip.
    Gzip,
    /// Compressed with bzip2.
    Bzip2,
    /// Compressed with xz.
    Xz,
    /// Compressed with LZ4.
    Lz4,
    /// A ZIP archive.
    Zip,
    /// A tar archive.
    Tar,
    /// A bag of ROS 1.
    RosBag,
    /// A database, as bags of ROS 2 are.
    Sqlite,
    /// An MCAP file.
    Mcap,
    /// A network capture: pcap or pcapng.
    Pcap,
}

/// The kind of content of a source's files: decides what cannot be one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputContent {
    /// Binary data, never text.
    Binary,
    /// Text, or a format with its own magic bytes.
    Marked,
    /// Anything the user describes: only compressed files are excluded.
    Any,
}

/// The bytes needed to recognize any of these formats: tar has its magic at offset 257.
const HEAD: usize = 512;
/// The bytes that suffice of a stream that pauses: all but tar are recognized by as many.
const ENOUGH: usize = 16;

impl ForeignFormat {
    /// Recognizes the format of a file by its first bytes.
    pub fn from_head(head: &[u8]) -> Option<Self> {
        let at = |place: usize, mark: &[u8]| {
            head.get(place..).is_some_and(|rest| rest.starts_with(mark))
        };
        let begins = |mark: &[u8]| at(0, mark);
        let is_bzip2 = || {
            let blocks: [&[u8]; 2] = [b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90"];
            begins(b"BZh") && blocks.iter().any(|block| at(4, block))
        };
        let is_pcap = || {
            let marks: [&[u8]; 4] = [
                b"\xd4\xc3\xb2\xa1",
                b"\xa1\xb2\xc3\xd4",
                b"\x4d\x3c\xb2\xa1",
                b"\xa1\xb2\x3c\x4d",
            ];
            let orders: [&[u8]; 2] = [b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a"];
            marks.iter().any(|mark| begins(mark))
                || begins(b"\x0a\x0d\x0d\x0a") && orders.iter().any(|order| at(8, order))
        };
        let tests: [(Self, bool); 10] = [
            // Deflate is the only method, and the upper three flags are reserved.
            (Self::Gzip, begins(b"\x1f\x8b\x08") && head.get(3).is_some_and(|flags| *flags < 32)),
            (Self::Bzip2, is_bzip2()),
            (Self::Xz, begins(b"\xfd7zXZ\0")),
            (Self::Lz4, begins(b"\x04\x22\x4d\x18")),
            (Self::Zip, begins(b"PK\x03\x04") || begins(b"PK\x05\x06")),
            (Self::Tar, is_tar(head)),
            (Self::RosBag, begins(b"#ROSBAG V")),
            (Self::Sqlite, begins(b"SQLite format 3\0")),
            (Self::Mcap, begins(b"\x89MCAP0\r\n")),
            (Self::Pcap, is_pcap()),
        ];
        tests.into_iter().find(|(_, is_it)| *is_it).map(|(format, _)| format)
    }

    /// The compression or archive format of files with this extension.
    pub fn of_packed_extension(extension: &str) -> Option<Self> {
        Some(match extension.to_ascii_lowercase().as_str() {
            "gz" | "tgz" => Self::Gzip,
            "bz2" | "tbz2" => Self::Bzip2,
            "xz" | "txz" => Self::Xz,
            "lz4" => Self::Lz4,
            "zip" => Self::Zip,
            "tar" => Self::Tar,
            _ => return None,
        })
    }

    /// Whether it is an archive or compression format.
    fn is_packed(self) -> bool {
        matches!(self, Self::Gzip | Self::Bzip2 | Self::Xz | Self::Lz4 | Self::Zip | Self::Tar)
    }

    /// An error message that says what the file is, and how to read its contents.
    pub fn refusal(self, path: &Path) -> String {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "FILE".to_owned() } else { shell_word(path) };
        let piped = |program: &str| {
            format!(
                "decompress it in a pipe: {program} {name} | sluice …, with `-` as input, and \
                 the format of its contents (--from)"
            )
        };
        let is_tar = path.to_string_lossy().contains(".tar.") || name.ends_with(".tgz");
        let (what, advice) = match self {
            Self::Gzip | Self::Bzip2 | Self::Xz if is_tar => {
                let what = "a compressed tar archive";
                (what, format!("unpack it, and pass the files in it: tar -xf {name}"))
            }
            Self::Gzip => ("compressed with gzip", piped("gzip -dc")),
            Self::Bzip2 => ("compressed with bzip2", piped("bzip2 -dc")),
            Self::Xz => ("compressed with xz", piped("xz -dc")),
            Self::Lz4 => ("compressed with LZ4", piped("lz4 -dc")),
            Self::Zip => ("a ZIP archive", piped("unzip -p")),
            Self::Tar => {
                ("a tar archive", format!("unpack it, and pass the files in it: tar -xf {name}"))
            }
            Self::RosBag => {
                ("a ROS 1 bag", "read it with the source `ros1-bag` (--from ros1-bag)".to_owned())
            }
            Self::Sqlite => (
                "an SQLite database",
                "read a bag of ROS 2 with the source `ros2-db3` (--from ros2-db3); export others \
                 as CSV, or print them with a program of your own (source `exec`)"
                    .to_owned(),
            ),
            Self::Mcap => {
                ("an MCAP file", "read it with the source `mcap` (--from mcap)".to_owned())
            }
            Self::Pcap => (
                "a network capture",
                format!(
                    "replay it on a network where `sluice record` listens (tcpreplay -i INTERFACE \
                     {name}), and read the recording"
                ),
            ),
        };
        let path = path.to_string_lossy();
        let path = if is_stdin { "standard input".into() } else { printable(&path) };
        match self {
            Self::RosBag | Self::Mcap => format!("{path} is {what}; {advice}"),
            _ => format!("{path} is {what}, which cannot be read directly; {advice}"),
        }
    }
}

/// Whether this is the header of a tar archive, by magic and checksum: a payload may contain the
/// magic.
fn is_tar(head: &[u8]) -> bool {
    const SUM: std::ops::Range<usize> = 148..156;
    let Some(header) = head.get(..512) else { return false };
    let field = header.get(SUM).unwrap_or_default();
    let digits = field.iter().copied().filter(|byte| (b'0'..b'8').contains(byte));
    let said = digits.fold(0u64, |sum, digit| sum * 8 + u64::from(digit - b'0'));
    let counted =
        |(place, byte): (usize, &u8)| u64::from(if SUM.contains(&place) { b' ' } else { *byte });
    let sum: u64 = header.iter().enumerate().map(counted).sum();
    header.get(257..).is_some_and(|rest| rest.starts_with(b"ustar")) && sum == said
}

/// A path quoted for a shell.
fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "._-/+,=@%:".contains(c);
    let text = printable(&text);
    if text.chars().all(is_plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Refuses inputs that cannot have this content, with advice. `format` is the name of a valid file:
/// `an LCM log`. Called when splits are made. Examines files only: pipes are examined when they are
/// read ([`LogFile::refuse_foreign`]), and objects in stores never.
pub fn refuse_foreign(inputs: &[Input], content: InputContent, format: &str) -> Result<(), Error> {
    for Input { path, bytes } in inputs {
        if bytes.is_none() || path == Path::new("-") || is_address(path) {
            continue;
        }
        refuse(&head(path, HEAD)?, path, content)?;
        if content == InputContent::Binary && is_text(path)? {
            return Err(Error::refused(format!(
                "{} is text, not {format}; if it declares types, pass it as types (`types` of \
                 `decode`, --types); to read its lines as events, use a source for text (`sluice \
                 plugins`)",
                printable(&path.to_string_lossy())
            )));
        }
    }
    Ok(())
}

impl LogFile {
    /// Refuses input that can only be read once (standard input, a named pipe, a decompressed file)
    /// if it starts like another format than one with this content. The bytes examined can still
    /// be read.
    pub fn refuse_foreign(&mut self, content: InputContent) -> Result<(), Error> {
        if self.is_seekable() {
            return Ok(());
        }
        let mut head = vec![0; HEAD];
        let there = self.read_arrived(0, &mut head, ENOUGH)?;
        refuse(head.get(..there).unwrap_or_default(), self.path(), content)
    }
}

fn refuse(head: &[u8], path: &Path, content: InputContent) -> Result<(), Error> {
    match ForeignFormat::from_head(head) {
        Some(format) if content != InputContent::Any || format.is_packed() => {
            Err(Error::refused(format.refusal(path)))
        }
        _ => Ok(()),
    }
}

/// Whether bytes can be text in an encoding based on ASCII: at least half of them are ASCII, and
/// there are no control characters except those for lines, tabs and terminals.
pub fn is_text_bytes(bytes: &[u8]) -> bool {
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 14..=26 | 28..=31 | 127);
    let ascii = bytes.iter().filter(|byte| byte.is_ascii()).count();
    !bytes.iter().any(is_control) && ascii * 2 >= bytes.len()
}

/// Whether a file contains only text. Stops at the first byte that is not.
pub fn is_text(path: &Path) -> Result<bool, Error> {
    let mut log = LogFile::open(path)?;
    log.skip_checksums();
    let (mut chunk, mut len, mut position) = (ReadBuffer::default(), HEAD, 0u64);
    loop {
        let bytes = chunk.replace(len, |space| log.read_at(position, space))?;
        if !is_text_bytes(bytes) || log.decompression_error().is_some() {
            return Ok(false);
        }
        position += bytes.len() as u64;
        if bytes.len() < len {
            return Ok(position > 0);
        }
        log.forget(position);
        len = 256 << 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognized_by_their_first_bytes() {
        let mut tar = [vec![b'a'; 257], b"ustar\0".to_vec(), vec![0; 249]].concat();
        let unsummed = tar.clone();
        let sum = tar.iter().map(|byte| u32::from(*byte)).sum::<u32>() - 8 * (97 - 32);
        tar[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let cases: [(&[u8], Option<ForeignFormat>); 15] = [
            (b"\x1f\x8b\x08\0rest", Some(ForeignFormat::Gzip)),
            (b"BZh91AY&SYrest", Some(ForeignFormat::Bzip2)),
            (b"\xfd7zXZ\0rest", Some(ForeignFormat::Xz)),
            (b"PK\x03\x04rest", Some(ForeignFormat::Zip)),
            (&tar, Some(ForeignFormat::Tar)),
            (&unsummed, None),
            (b"#ROSBAG V2.0\n", Some(ForeignFormat::RosBag)),
            (b"SQLite format 3\0", Some(ForeignFormat::Sqlite)),
            (b"\x89MCAP0\r\n", Some(ForeignFormat::Mcap)),
            (b"\xd4\xc3\xb2\xa1\x02\0\x04\0", Some(ForeignFormat::Pcap)),
            (b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a", Some(ForeignFormat::Pcap)),
            (b"BZhello", None),
            (b"\x1f\x8b", None),
            (b"\x0a\x0d\x0d\x0a", None),
            (b"", None),
        ];
        for (head, format) in cases {
            assert_eq!(ForeignFormat::from_head(head), format, "{head:?}");
        }
    }

    #[test]
    fn names_in_commands_are_words_of_a_shell() {
        let said = ForeignFormat::Gzip.refusal(Path::new("it's here/a.log.gz"));
        assert!(said.contains(r"gzip -dc 'it'\''s here/a.log.gz' | sluice"), "{said}");
        let said = ForeignFormat::Gzip.refusal(Path::new("runs/a.tar.gz"));
        assert!(said.contains("tar -xf runs/a.tar.gz"), "{said}");
    }

    #[test]
    fn bytes_with_other_control_characters_are_not_text() {
        assert!(is_text_bytes("struct p {\r\n\tü x; }\x1b[0m\x0c\n".as_bytes()));
        assert!(is_text_bytes(b"\xe4 in Latin-1"));
        // The first bytes of a truncated LCM event.
        assert!(!is_text_bytes(b"\xed\xa1\xda"));
        for byte in [0, 1, 8, 14, 31, 127] {
            assert!(!is_text_bytes(&[b'a', byte]), "{byte}");
        }
    }
}
