//! The first bytes of well-known formats. None is a complete file.

use crate::hostile::SeededRandom;

/// The first bytes of a file.
pub(crate) struct FileHead {
    /// The format.
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// The heads of other formats. Deterministic.
pub(crate) fn file_heads() -> Vec<FileHead> {
    let marks: [(&str, &[u8]); 30] = [
        ("PNG", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\x01\0\x08\x02\0\0\0"),
        ("JPEG", b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xdb\0\x43\0"),
        ("GIF", b"GIF89a\x10\0\x10\0\xf7\0\0"),
        ("ZIP", b"PK\x03\x04\x14\0\0\0\x08\0\x21\x5a\x33\x4e"),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c\x4a\x06\0"),
        ("zstd", b"\x28\xb5\x2f\xfd\x24\x05\x29\0\0hello\x8a\x7e\x0b\x3d"),
        ("xz", b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46\x02\0\x21\x01"),
        ("bzip2", b"BZh91AY&SY\x94\x96\xd9\xb6"),
        ("LZ4", b"\x04\x22\x4d\x18\x64\x40\xa7"),
        ("ELF", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0"),
        ("PDF", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\n"),
        ("SQLite", b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20\0\0\0\x02"),
        ("HDF5", b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\x04\0\x10\0"),
        ("Parquet", b"PAR1\x15\x04\x15\x10\x15\x14\x4c\x15\x02\x15\0\x12"),
        ("Arrow file", b"ARROW1\0\0\xff\xff\xff\xff\x78\0\0\0\x10\0\0\0"),
        ("MCAP", b"\x89MCAP0\r\n\x01\x1b\0\0\0\0\0\0\0\x04\0\0\0ros2"),
        ("ROS bag", b"#ROSBAG V2.0\nE\0\0\0\x0c\0\0\0conn_count=\x05\0\0\0"),
        ("pcap", b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0"),
        ("pcapng", b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0"),
        ("WAV", b"RIFF\x24\x08\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x44\xac\0\0"),
        ("AVI", b"RIFF\x24\x08\0\0AVI LIST\xc0\0\0\0hdrlavih"),
        ("MP4", b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1mp41"),
        ("LAS", b"LASF\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x02"),
        ("JSON", b"{\n  \"name\": \"drive\",\n  \"wheels\": [1, 2, 3, 4]\n}\n"),
        ("JSON lines", b"{\"a\": 1, \"b\": \"two\"}\n{\"a\": 2, \"b\": \"three\"}\n"),
        ("CSV", b"time,x,y,z\n0.0,1.5,2.5,3.5\n0.1,1.6,2.6,3.6\n"),
        ("XML", b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<log><event time=\"1\"/></log>\n"),
        ("plain text", b"Dear reader,\nthis is a letter, and no log of a robot.\n"),
        ("TOML", b"[sources.log]\nplugin = \"demo\"\nseconds = 1\n"),
        ("empty", b""),
    ];
    let marked = marks.map(|(name, mark)| FileHead { name, bytes: mark.to_vec() });
    let mut heads: Vec<FileHead> = marked.into_iter().collect();
    heads.push(tar());
    heads.push(FileHead { name: "zeros", bytes: vec![0; 512] });
    heads.push(FileHead { name: "ff", bytes: vec![0xff; 512] });
    let mut dice = SeededRandom::new(11);
    heads.extend([(); 8].map(|()| FileHead { name: "random bytes", bytes: dice.bytes(512) }));
    heads
}

fn tar() -> FileHead {
    let mut bytes = vec![0; 512];
    let mut put = |at: usize, text: &[u8]| {
        bytes.splice(at..at + text.len(), text.iter().copied());
    };
    put(0, b"notes.txt");
    put(100, b"0000644\x000001750\x000001750\x0000000000014\x00");
    put(257, b"ustar\x0000");
    FileHead { name: "tar", bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_what_they_say() {
        let heads = file_heads();
        assert!(heads.len() > 35);
        let tar = heads.iter().find(|head| head.name == "tar").unwrap();
        assert_eq!((tar.bytes.len(), &tar.bytes[257..262]), (512, &b"ustar"[..]));
    }
}
