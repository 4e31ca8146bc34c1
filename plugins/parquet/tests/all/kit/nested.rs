//! Tables whose columns nest deep. The tests of `sluice-lerobot` use it as well.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::Int64Type;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Writes a table of one row: the columns `first`, each with the value 5, and a column of so many
/// groups inside each other, which begin and end like this, without a value. On a stack that is
/// large enough for the library, which recurses.
pub(crate) fn write_nested(
    path: &Path,
    first: &[&str],
    groups: usize,
    (open, close): (&str, &str),
) {
    let (open, close) = (open.repeat(groups), close.repeat(groups));
    let schema = format!("message table {{ {} {open} required int64 a; {close} }}", first.concat());
    let values = [vec![&[5][..]; first.len()], vec![&[]]].concat();
    let file = fs::File::create(path).unwrap();
    let write = || {
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for values in values {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(values, Some(&[0]), Some(&[0])).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(1 << 28);
        thread.spawn_scoped(scope, write).unwrap().join().unwrap();
    });
}
