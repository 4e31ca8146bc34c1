//! Tests all column types in all formats.

use std::fs;

use arrow_array::builder::{
    ListBuilder, MapBuilder, StringBuilder, TimestampSecondBuilder, UInt8Builder,
};
use arrow_array::types::Int32Type;
use arrow_array::*;
use arrow_schema::{DataType, TimeUnit};
use clap::Parser;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;

#[derive(Debug, Parser)]
struct CommandLine {
    #[command(flatten)]
    args: QueryArgs,
}

fn args(arguments: &[&str]) -> QueryArgs {
    let all = ["query", "select 1"].iter().chain(arguments);
    CommandLine::try_parse_from(all).unwrap().args
}

/// Writes these rows to a file, and returns its bytes.
fn written(name: &str, batches: &[RecordBatch]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let to = OutputTarget::from_args(&args(&["--to", path.to_str().unwrap()]), Vec::new());
    let mut out = open(&to.unwrap_or_else(|e| panic!("{e:?}")), &batches[0].schema());
    for batch in batches {
        out.append(batch).unwrap();
    }
    assert!(!path.exists());
    out.finish().unwrap();
    fs::read(path).unwrap()
}

fn open(to: &OutputTarget, schema: &SchemaRef) -> RowOutput {
    to.open(schema, &ResultMetadata { query: "select 1", inputs: "[]" }).unwrap()
}

fn text(name: &str, batches: &[RecordBatch]) -> String {
    String::from_utf8(written(name, batches)).unwrap()
}

fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

/// One row with every column type, and one of nulls.
fn all_kinds() -> RecordBatch {
    let time = TimestampNanosecondArray::from(vec![Some(1_194_098_400_250_000_000), None]);
    let mut list = ListBuilder::new(UInt8Builder::new());
    list.append_value([Some(1), None]);
    list.append_null();
    let mut map = MapBuilder::new(None, StringBuilder::new(), UInt8Builder::new());
    map.keys().append_value("k");
    map.values().append_value(7);
    map.append(true).unwrap();
    map.append(false).unwrap();
    let word: DictionaryArray<Int32Type> = [Some("a,\"b\""), None].into_iter().collect();
    let inner: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![Some(0), Some(1)]));
    let nested = StructArray::try_from(vec![("at", inner)]).unwrap();
    let decimal = Decimal128Array::from(vec![Some(12_345), None]);
    rows(vec![
        ("t", Arc::new(time.with_timezone("UTC"))),
        ("word", Arc::new(word)),
        ("f", Arc::new(Float64Array::from(vec![Some(f64::NAN), None]))),
        ("d", Arc::new(decimal.with_precision_and_scale(9, 2).unwrap())),
        ("b", Arc::new(BinaryViewArray::from(vec![Some(&[0_u8, 255, 16][..]), None]))),
        ("l", Arc::new(list.finish())),
        ("m", Arc::new(map.finish())),
        ("s", Arc::new(nested)),
        ("day", Arc::new(Date32Array::from(vec![Some(13_820), None]))),
        ("n", Arc::new(NullArray::new(2))),
    ])
}

#[test]
fn csv_has_all_types_and_distinguishes_null_from_empty_text() {
    let expected = "t,word,f,d,b,l,m,s,day,n\n\
        2007-11-03T14:00:00.25Z,\"a,\"\"b\"\"\",NaN,123.45,AP8Q,\"[1,null]\",\
        \"[{\"\"keys\"\":\"\"k\"\",\"\"values\"\":7}]\",\"{\"\"at\"\":\"\"1970-01-01T00:00:00\"\"}\",2007-11-03,\n\
        ,,,,,,,\"{\"\"at\"\":\"\"1970-01-01T00:00:00.000001\"\"}\",,\n";
    assert_eq!(text("x.csv", &[all_kinds()]), expected);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some(""), None, Some("x")]));
    let one = rows(vec![("a", Arc::clone(&texts))]);
    assert_eq!(text("x.csv", &[one]), "a\n\"\"\n\"\"\nx\n");
    let two = rows(vec![("a", Arc::clone(&texts)), ("b", texts)]);
    assert_eq!(text("x.csv", &[two]), "a,b\n\"\",\"\"\n,\nx,x\n");
}

#[test]
fn json_lines_have_all_types() {
    let text = text("x.jsonl", &[all_kinds()]);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = serde_json::json!({
        "t": "2007-11-03T14:00:00.25Z", "word": "a,\"b\"", "f": "NaN", "d": "123.45", "b": "AP8Q",
        "l": [1, null], "m": [{ "keys": "k", "values": 7 }], "s": { "at": "1970-01-01T00:00:00" },
        "day": "2007-11-03", "n": null,
    });
    assert_eq!(lines[0], expected);
    assert_eq!((&lines[1]["t"], lines.len()), (&serde_json::Value::Null, 2));
}

#[test]
fn json_is_an_array_of_the_objects_of_json_lines() {
    let batch = all_kinds();
    let lines = text("x.jsonl", &[batch.clone(), batch.clone()]);
    let objects: Vec<&str> = lines.lines().collect();
    assert_eq!(objects.len(), 4);
    let array = text("x.json", &[batch.slice(0, 0), batch.clone(), batch.clone()]);
    assert_eq!(array, format!("[\n{}\n]\n", objects.join(",\n")));
    assert_eq!(text("x.json", &[batch.slice(0, 0)]), "[]\n");
    assert_eq!(text("x.jsonl", &[batch.slice(0, 0)]), "");
}

#[test]
fn parquet_and_arrow_round_trip_and_record_the_query() {
    let written_parquet = written("x.parquet", &[all_kinds(), all_kinds()]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    fs::write(&path, written_parquet).unwrap();
    let file = fs::File::open(&path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let entries = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
    assert!(
        entries.iter().any(|e| e.key == "sluice.query" && e.value.as_deref() == Some("select 1"))
    );
    let read: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    assert_eq!(read.iter().map(RecordBatch::num_rows).sum::<usize>(), 4);
    assert_eq!(*read[0].column(1).data_type(), DataType::Utf8);
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    assert_eq!(*read[0].column(0).data_type(), time);

    let arrow = std::io::Cursor::new(written("x.arrow", &[all_kinds(), all_kinds()]));
    let reader = arrow_ipc::reader::FileReader::try_new(arrow, None).unwrap();
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 4);
}

#[test]
fn dates_and_times_beyond_the_calendar_are_numbers_with_their_unit() {
    let days: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX, i32::MIN, 13_820]));
    let millis: ArrayRef = Arc::new(Date64Array::from(vec![i64::MAX, i64::MIN, 0]));
    let moments: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX, i64::MIN, 0]));
    let rows = rows(vec![("d", days), ("m", millis), ("t", moments)]);
    let (max, min) = (i64::MAX, i64::MIN);
    let expected = [
        format!("2147483647d,{max}ms,{max}s"),
        format!("-2147483648d,{min}ms,{min}s"),
        "2007-11-03,1970-01-01T00:00:00,1970-01-01T00:00:00".to_owned(),
    ];
    let csv = text("x.csv", std::slice::from_ref(&rows));
    assert_eq!(csv.lines().skip(1).collect::<Vec<_>>(), expected);
    let lines = text("x.jsonl", std::slice::from_ref(&rows));
    let first = format!("{{\"d\":\"2147483647d\",\"m\":\"{max}ms\",\"t\":\"{max}s\"}}");
    assert_eq!(lines.lines().next(), Some(first.as_str()));
    let table = shown(&[rows], &[]);
    assert_eq!(
        table.lines().nth(2).unwrap().split_whitespace().collect::<Vec<_>>(),
        expected[0].split(',').collect::<Vec<_>>()
    );
}

#[test]
fn times_of_day_in_dates_are_not_cut() {
    let day = 86_400_000;
    let dates = |millis: Vec<Option<i64>>| rows(vec![("d", Arc::new(Date64Array::from(millis)))]);
    for name in ["d.parquet", "d.arrow"] {
        assert!(!written(name, &[dates(vec![Some(day), None, Some(-3 * day)])]).is_empty());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let to = OutputTarget::from_args(&args(&["--to", path.to_str().unwrap()]), Vec::new());
        let batch = dates(vec![Some(day + 3_600_000)]);
        let mut out = open(&to.unwrap_or_else(|e| panic!("{e:?}")), &batch.schema());
        let error = out.append(&batch).unwrap_err();
        assert!(error.to_string().contains("a date has a time of day"), "{error}");
    }
}

/// Maps of times in seconds.
fn seconds_in_maps() -> ArrayRef {
    let mut map = MapBuilder::new(None, StringBuilder::new(), TimestampSecondBuilder::new());
    for at in [5, 6] {
        map.keys().append_value("k");
        map.values().append_value(at);
        map.append(true).unwrap();
    }
    Arc::new(map.finish())
}

#[test]
fn values_in_every_nested_type_are_converted_for_files() {
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![5, 6]));
    let item = Arc::new(arrow_schema::Field::new("item", seconds.data_type().clone(), true));
    let mut lists = ListBuilder::new(TimestampSecondBuilder::new());
    // The first is cut off.
    [i64::MAX, 5, 6].into_iter().for_each(|at| lists.append_value([Some(at)]));
    let list = lists.finish().slice(1, 2);
    let cast = |to: DataType| sluice_model::cast::cast(&list, &to).unwrap();
    let list_item = match list.data_type() {
        DataType::List(item) => Arc::clone(item),
        other => panic!("{other}"),
    };
    let fixed = FixedSizeListArray::new(Arc::clone(&item), 1, Arc::clone(&seconds), None);
    let keys = Int32Array::from(vec![0, 1]);
    let words = DictionaryArray::<Int32Type>::new(keys, Arc::clone(&seconds));
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2]), &seconds).unwrap();
    let word = arrow_schema::Field::new("word", words.data_type().clone(), true);
    let member = StructArray::from(vec![(Arc::new(word), Arc::new(words.clone()) as ArrayRef)]);
    let rows = rows(vec![
        ("map", seconds_in_maps()),
        ("list", Arc::new(list.clone())),
        ("large", cast(DataType::LargeList(Arc::clone(&list_item)))),
        ("view", cast(DataType::ListView(list_item))),
        ("fixed", Arc::new(fixed)),
        ("words", Arc::new(words)),
        ("runs", Arc::new(runs)),
        ("member", Arc::new(member)),
    ]);
    let expected = text("x.jsonl", std::slice::from_ref(&rows));
    assert_eq!(expected.matches("1970-01-01T00:00:06").count(), 8);
    let parquet = written("x.parquet", std::slice::from_ref(&rows));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    fs::write(&path, parquet).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
    let parquet: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    let arrow = std::io::Cursor::new(written("x.arrow", &[rows]));
    let reader = arrow_ipc::reader::FileReader::try_new(arrow, None).unwrap();
    let arrow: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    for stored in [parquet, arrow] {
        let types = format!("{}", stored[0].schema());
        assert!(!types.contains("Timestamp(s") && !types.contains("Second"), "{types}");
        assert_eq!(text("x.jsonl", &stored), expected);
    }
}

#[test]
fn a_file_appears_when_complete_and_is_not_overwritten_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.csv");
    let schema = all_kinds().schema();
    let to = |more: &[&str]| {
        let arguments = [&["--to", path.to_str().unwrap()], more].concat();
        OutputTarget::from_args(&args(&arguments), Vec::new()).unwrap()
    };
    let mut out = open(&to(&[]), &schema);
    out.append(&all_kinds()).unwrap();
    drop(out);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    open(&to(&[]), &schema).finish().unwrap();
    assert!(to(&[]).check().is_err());
    let replacing = to(&["--overwrite"]);
    replacing.check().unwrap();
    open(&replacing, &schema).finish().unwrap();
}

#[test]
fn formats_follow_the_extension() {
    for (path, expected) in [
        ("-", Some(RowFormat::Table)),
        ("a/x.parquet", Some(RowFormat::Parquet)),
        ("x.jsonl.zst", Some(RowFormat::Jsonl)),
        ("x.ndjson", Some(RowFormat::Jsonl)),
        ("x.json", Some(RowFormat::Json)),
        ("x.csv", Some(RowFormat::Csv)),
        ("x.arrow", Some(RowFormat::Arrow)),
        ("x.parquet.zst", None),
        ("x.lcm", None),
        ("x", None),
    ] {
        assert_eq!(row_format(path, None).ok(), expected, "{path}");
    }
    assert_eq!(row_format("x", Some(RowFormat::Csv)).ok(), Some(RowFormat::Csv));
}

#[test]
fn duplicate_column_names_are_made_unique() {
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let fields =
        ["x", "x", "x_2", "x"].map(|n| arrow_schema::Field::new(n, DataType::Int32, false));
    let columns = vec![column; 4];
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).unwrap();
    assert_eq!(text("x.csv", &[rows]), "x,x_3,x_2,x_4\n1,1,1,1\n");
}

#[test]
fn tables_are_aligned_escaped_and_cut() {
    let long = "x".repeat(300);
    let words: ArrayRef =
        Arc::new(StringArray::from(vec![Some("a\u{1b}[31m"), None, Some(&*long), Some("日本")]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, -20, 300, 4]));
    let payloads: ArrayRef =
        Arc::new(BinaryArray::from(vec![&[1_u8; 20][..], b"", b"\x00", b"ab"]));
    let rows = rows(vec![("word", words), ("n", numbers), ("payload", payloads)]);
    let table = shown(&[rows], &[]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["word", "n", "payload"]);
    assert!(
        lines[2].starts_with("a\\u{1b}[31m ") && lines[2].ends_with("   1  20 B 0101010101010101…")
    );
    assert!(lines[3].starts_with("NULL  ") && lines[3].ends_with("-20  0 B"));
    assert!(lines[4].starts_with("xxxx") && lines[4].contains("x…  300  1 B 00"));
    assert_eq!(sluice::extension::width(lines[1]), 100 + 2 + 3 + 2 + 22);
}

#[test]
fn a_table_stops_at_the_row_limit_and_counts_the_rest() {
    let numbers = || rows(vec![("n", Arc::new(Int64Array::from_iter_values(0..700)) as _)]);
    let batches = [numbers(), numbers(), numbers()];
    assert_eq!(shown(&batches, &[]).lines().count(), 2 + 2100);
    assert_eq!(shown(&batches, &["--limit-rows", "701"]).lines().last(), Some("  0"));
    assert_eq!(shown(&batches, &["--limit-rows", "0"]).lines().count(), 2);
}

/// These rows as a table, without a terminal.
fn shown(batches: &[RecordBatch], arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.txt");
    let arguments = [&["--to", path.to_str().unwrap(), "--format", "table"], arguments].concat();
    let mut out = open(
        &OutputTarget::from_args(&args(&arguments), Vec::new()).unwrap(),
        &batches[0].schema(),
    );
    for batch in batches {
        out.append(batch).unwrap();
    }
    let written = out.finish().unwrap();
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    assert_eq!(written.rows, rows);
    let table = fs::read_to_string(path).unwrap();
    let shown = table.lines().count() as u64 - 2;
    assert_eq!(written.notes.len(), usize::from(shown < rows), "{:?}", written.notes);
    table
}
