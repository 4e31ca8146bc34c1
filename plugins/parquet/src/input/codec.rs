//! Which compressed tables can be read.

use parquet::basic::Compression;
use parquet::file::metadata::RowGroupMetaData;

/// The name of the first codec used by these row groups that this program does not read.
pub(super) fn unread_codec(groups: &[RowGroupMetaData]) -> Option<&'static str> {
    let groups = groups.iter().filter(|group| group.num_rows() > 0);
    groups
        .flat_map(RowGroupMetaData::columns)
        .find_map(|column| name_if_unread(column.compression()))
}

/// The name of a codec for which the Parquet library is built without support.
fn name_if_unread(codec: Compression) -> Option<&'static str> {
    match codec {
        Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_) => None,
        Compression::GZIP(_) => Some("gzip"),
        Compression::BROTLI(_) => Some("brotli"),
        Compression::LZO => Some("lzo"),
        Compression::LZ4 | Compression::LZ4_RAW => Some("lz4"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_of_this_build_are_read() {
        let read = [Compression::UNCOMPRESSED, Compression::SNAPPY];
        assert!(read.into_iter().all(|codec| name_if_unread(codec).is_none()));
        assert_eq!(name_if_unread(Compression::ZSTD(Default::default())), None);
        let unread = [
            (Compression::GZIP(Default::default()), "gzip"),
            (Compression::BROTLI(Default::default()), "brotli"),
            (Compression::LZO, "lzo"),
            (Compression::LZ4, "lz4"),
            (Compression::LZ4_RAW, "lz4"),
        ];
        for (codec, name) in unread {
            assert_eq!(name_if_unread(codec), Some(name));
        }
    }
}
