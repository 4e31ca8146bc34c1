//! Tests of source `csv`.

use std::io::Write;
use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_io::frames;
use sluice_kit::contract::{
    SourceContents, any_splitting_is_the_same, gather, splits_cover_the_inputs,
};
use sluice_model::{Clock, ReadContext, Registry, Source, Split, SplitStart};

const SECOND: i64 = 1_000_000_000;

/// A source for a file with this text, and the folder to keep.
fn csv(text: &[u8], options: Value) -> (tempfile::TempDir, Box<dyn Source>) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("table.csv");
    std::fs::write(&path, text).unwrap();
    let mut all = json!({ "path": path });
    all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    (folder, Registry::linked().source("csv", all).unwrap())
}

fn gathered(text: &str, options: Value) -> SourceContents {
    let (_folder, source) = csv(text.as_bytes(), options);
    gather(&*source, u64::MAX).unwrap()
}

/// The fields of all rows, which are one batch.
fn fields(text: &str, options: Value) -> RecordBatch {
    let (_folder, source) = csv(text.as_bytes(), options);
    let split = &source.splits(u64::MAX, &Default::default()).unwrap()[0];
    let context = ReadContext::standalone("imu");
    let mut reader = source.read(split, SplitStart::At(0), &context).unwrap();
    let batch = reader.next_batch().unwrap().unwrap();
    assert_eq!(batch.rows()[0].events.len(), batch.len());
    batch.rows()[0].columns.clone()
}

fn refusal(text: &str, options: Value) -> String {
    let (_folder, source) = csv(text.as_bytes(), options);
    gather(&*source, u64::MAX).unwrap_err().to_string()
}

fn times(gathered: &SourceContents) -> Vec<i64> {
    gathered.events.iter().map(|event| event.timestamp).collect()
}

#[test]
fn a_row_is_an_event_with_typed_fields() {
    let text =
        "t,x,ok,name,n\n1.5,2.5,true,a,9007199254740993\n2,-3,FALSE,\"b \"\"c\"\"\",1\n2.5,,,,\n";
    let all = gathered(text, json!({}));
    assert_eq!(times(&all), [SECOND * 3 / 2, 2 * SECOND, SECOND * 5 / 2]);
    assert_eq!(all.events[0].payload, b"1.5,2.5,true,a,9007199254740993");
    assert_eq!((&all.events[0].channel[..], all.events[0].sequence), ("test", 14));
    let columns = fields(text, json!({}));
    let column = |name: &str| columns.column_by_name(name).unwrap().clone();
    assert_eq!(
        column("x").as_primitive::<Float64Type>().iter().collect::<Vec<_>>(),
        [Some(2.5), Some(-3.0), None]
    );
    assert_eq!(
        column("ok").as_boolean().iter().collect::<Vec<_>>(),
        [Some(true), Some(false), None]
    );
    assert_eq!(
        column("name").as_string::<i32>().iter().collect::<Vec<_>>(),
        [Some("a"), Some("b \"c\""), None]
    );
    assert_eq!(
        column("n").as_primitive::<Int64Type>().iter().collect::<Vec<_>>(),
        [Some(9_007_199_254_740_993), Some(1), None]
    );
    assert!(columns.column_by_name("t").is_none());
}

#[test]
fn blanks_are_a_text_in_columns_of_texts_and_null_in_others() {
    let text = "t,s,x\n1, , \n2,\t,1\n3, x , 2\n4,,\n5,\"\",3\n6,\"  \",4\n";
    for options in [json!({}), json!({ "types": { "s": "text" } })] {
        let columns = fields(text, options);
        let texts: Vec<_> = columns.column(0).as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some(" "), Some("\t"), Some(" x "), None, Some(""), Some("  ")]);
        let numbers: Vec<_> = columns.column(1).as_primitive::<Float64Type>().iter().collect();
        assert_eq!(numbers, [None, Some(1.0), Some(2.0), None, Some(3.0), Some(4.0)]);
    }
}

#[test]
fn digits_with_zeros_in_front_stay_texts() {
    let columns = fields("t,code,x\n1,007,0\n2,0,0.5\n", json!({}));
    assert_eq!(columns.column(0).as_string::<i32>().value(0), "007");
    assert_eq!(columns.column(1).as_primitive::<Float64Type>().value(1), 0.5);
}

#[test]
fn columns_say_channel_and_number() {
    let text = "timestamp_ns,channel,sequence,v\n5,GPS,7,1\n6,IMU,8,2\n";
    let all = gathered(text, json!({}));
    let plain: Vec<_> =
        all.events.iter().map(|e| (e.timestamp, &e.channel[..], e.sequence)).collect();
    assert_eq!(plain, [(5, "GPS", 7), (6, "IMU", 8)]);
    let named = gathered(text, json!({ "channel": "ONE", "sequence": "v" }));
    let plain: Vec<_> = named.events.iter().map(|e| (&e.channel[..], e.sequence)).collect();
    assert_eq!(plain, [("ONE", 1), ("ONE", 2)]);
}

#[test]
fn times_are_numbers_of_a_unit_or_dates() {
    let of = |name: &str, cell: &str, options: Value| {
        times(&gathered(&format!("{name},v\n\"{cell}\",1\n"), options))
    };
    let parse_time = 1_194_098_400 * SECOND;
    assert_eq!(of("time", "1194098400.25", json!({})), [parse_time + SECOND / 4]);
    assert_eq!(of("t", "1194098400000001", json!({ "unit": "us" })), [parse_time + 1000]);
    assert_eq!(of("stamp_ms", "5", json!({ "timestamp": "stamp_ms" })), [5_000_000]);
    for number in ["1.194098400e+09", "1194098400E0", "11940984000.0e-1", "+1194.0984e6"] {
        assert_eq!(of("time", number, json!({})), [parse_time], "{number}");
    }
    assert_eq!(of("time", "-25e-9", json!({})), [-25]);
    for date in [
        "2007-11-03T14:00:00Z",
        "2007-11-03 14:00:00",
        "2007-11-03T15:00:00+01:00",
        "2007-11-03T10:00:00-04:00",
        "2007-11-03 10:00:00-0400",
        "2007-11-03 10:00:00.0-04",
        "2007-11-03T14:00:00-00:00",
    ] {
        assert_eq!(of("timestamp", date, json!({})), [parse_time], "{date}");
    }
    for cut in ["-", "-0", "-04:", "-04:0", "-040", "+04:0"] {
        let text = format!("time,v\n2007-11-03T10:00:00{cut},1\n");
        let all = gathered(&text, json!({}));
        assert_eq!((all.events.len(), all.damage.len()), (0, 1), "{cut}");
    }
}

#[test]
fn lines_before_the_names_comments_and_blank_lines_are_left_out() {
    let text = "made by a logger\n# \"unfinished\n\n t ; x \r\n1;2\r\n# 3;\"4\n\r\n5;6";
    let all = gathered(text, json!({ "skip": 1, "comment": "#", "delimiter": ";" }));
    assert_eq!((times(&all), all.damage.len()), (vec![SECOND, 5 * SECOND], 0));
    assert_eq!(all.events[0].payload, b"1;2");
    let all = gathered("t;x\n1;2\n#3;4\n", json!({ "comment": "", "delimiter": ";" }));
    assert_eq!((times(&all), all.damage.len()), (vec![SECOND], 1));
}

#[test]
fn columns_of_a_file_without_header_come_from_options() {
    let options = json!({ "header": false, "columns": ["x", "when"], "timestamp": "when",
        "clock": "relative" });
    let (_folder, source) = csv(b"1,2\n3,4\n", options);
    let context = ReadContext::standalone("test");
    let split = Split::whole(source.inputs().unwrap()[0].path.clone(), None);
    let mut reader = source.read(&split, SplitStart::At(0), &context).unwrap();
    let batch = reader.next_batch().unwrap().unwrap();
    assert_eq!(batch.len(), 2);
    let channel = context.channels.get(batch.iter().next().unwrap().channel);
    assert_eq!(channel.clock, Clock::Relative);
}

#[test]
fn names_of_columns_are_a_list_or_a_text_with_commas() {
    let read = |columns: Value| {
        let options = json!({ "header": false, "columns": columns, "fields": "y, x" });
        let columns = fields("1,2,3,4\n", options);
        columns.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
    };
    assert_eq!(read(json!("x, t,y,z")), ["x", "y"]);
    assert_eq!(read(json!(["x", "t", "y", "z"])), ["x", "y"]);
}

#[test]
fn a_time_that_fits_a_smaller_unit_is_refused_with_that_unit() {
    for (time, unit) in
        [("1194098400123", "ms"), ("1194098400123456", "us"), ("1194098400123456789", "ns")]
    {
        let all = gathered(&format!("t,x\n{time},1\n"), json!({}));
        let set =
            format!("`unit = \"{unit}\"` (on the command line: `--source-option unit={unit}`)");
        assert!(all.damage[0].2.contains(&set), "{:?}", all.damage);
    }
    let all = gathered("t,x\n99999999999999999999,1\n", json!({}));
    assert!(all.damage[0].2.ends_with("is out of the range of times"), "{:?}", all.damage);
}

#[test]
fn a_file_of_utf_16_is_refused_with_what_to_do() {
    for bytes in [&b"\xff\xfet\0,\0x\0\n\0"[..], b"\xfe\xff\0t\0,\0x\0\n"] {
        let (_folder, source) = csv(bytes, json!({}));
        let message = gather(&*source, u64::MAX).unwrap_err().to_string();
        assert!(message.contains("UTF-16") && message.contains("`iconv"), "{message}");
    }
}

#[test]
fn a_file_without_header_needs_columns() {
    let options = json!({ "path": "table.csv", "header": false });
    let message = Registry::linked().source("csv", options).err().unwrap().to_string();
    assert!(message.contains("`columns` has to name all columns"), "{message}");
    assert!(message.contains("`--source-option columns=t,x,y`"), "{message}");
}

#[test]
fn rows_have_one_channel_or_a_column_with_channels() {
    let options = json!({ "path": "table.csv", "channel": "A", "channel_column": "c" });
    let error = Registry::linked().source("csv", options).err().unwrap();
    assert_eq!(error.path, ["channel_column"]);
    assert!(error.message.contains("either `channel` or `channel_column`"), "{error}");
}

#[test]
fn numbers_that_no_float_has_are_guessed_as_text() {
    for number in ["9223372036854775809", "-9223372036854775809", "1e400", "-1e400"] {
        let all = gathered(&format!("t,x\n1,{number}\n2,1\n"), json!({}));
        assert_eq!((all.events.len(), all.damage.len()), (2, 0), "{number}");
    }
    let all = gathered("t,x\n1,1e400\n2,inf\n", json!({ "types": { "x": "f64" } }));
    assert_eq!(times(&all), [2 * SECOND]);
    assert!(all.damage[0].2.contains("`1e400` is too large"), "{:?}", all.damage);
}

#[test]
fn rows_that_do_not_fit_are_damage_and_say_why() {
    let text = "t,x\n1,2\n2\n3,abc\nnoon,1\n9999-12-31,1\n2262-05-01T00:00:00Z,1\n4,\"5\"6\n\
        7,8\n1e400,1\n9,99999999999999999\n";
    let all = gathered(text, json!({ "types": { "x": "f64" } }));
    assert_eq!(times(&all), [SECOND, 7 * SECOND]);
    let reasons: Vec<&str> = all.damage.iter().map(|(_, _, reason)| &reason[..]).collect();
    let expected = [
        "expected 2 cells, found 1",
        "column `x`: `abc` is not a number",
        "column `t`: `noon` is neither a number nor a date",
        "column `t`: `9999-12-31` is out of the range of times (1677 to 2262); correct it, or",
        "column `t`: `2262-05-01T00:00:00Z` is out of the range of times",
        "expected the end of the cell after a quote",
        "column `t`: `1e400` is neither",
        "column `x`: `99999999999999999` is too many digits",
    ];
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    for (reason, expected) in reasons.iter().zip(expected) {
        assert!(reason.contains(expected), "{reason}");
    }
    assert_eq!((all.damage[0].0, all.damage[0].1), (8, 2));
}

#[test]
fn a_file_whose_columns_cannot_be_known_is_refused_with_what_to_do() {
    let refused = |text: &str, options: Value, says: &[&str]| {
        let message = refusal(text, options);
        assert!(says.iter().all(|part| message.contains(part)), "{message}");
        assert!(message.contains("table.csv: at byte"), "{message}");
    };
    let set = "`timestamp = \"NAME\"` (on the command line: `--source-option timestamp=NAME`)";
    refused("a,b\n1,2\n", json!({}), &["`timestamp`", "`a`, `b`", set]);
    for (name, given) in
        [("%time", "timestamp=%time"), ("Timestamp", "timestamp=Timestamp"), ("T", "timestamp=T")]
    {
        let meant = format!("did you mean `{name}`?");
        refused(&format!("a,{name}\n1,2\n"), json!({}), &[&meant, given]);
    }
    let set = "`--source-option 'delimiter=;'`";
    refused("time;x\n1;2\n", json!({}), &["';' and no ','", "`delimiter = \";\"`", set]);
    refused("t\tx\n1\t2\n", json!({}), &["`delimiter = \"\\t\"`", "'delimiter=\"\\t\"'"]);
    refused("t,x\n1,2\n", json!({ "delimiter": ";" }), &["`delimiter = \",\"`"]);
    refused("t;x\n1;2\n", json!({ "columns": "a,b" }), &["`delimiter = \";\"`"]);
    refused("t;x\n1;2\n", json!({ "timestamp": "t" }), &["`delimiter = \";\"`"]);
    let named = json!({ "header": false, "columns": ["a b"] });
    refused("1\n", named, &["no column is called"]);
    refused("1,2\n3,4\n", json!({}), &["header=false", "`columns = \"t,x,y\"`"]);
    for text in ["1,2\n3,4\n", "\u{feff}1,2\n3,4\n"] {
        refused(text, json!({ "columns": ["t", "x"] }), &["a time", "`header = false`"]);
        let all = gathered(text, json!({ "header": false, "columns": ["t", "x"] }));
        assert_eq!((times(&all), all.damage.len()), (vec![SECOND, 3 * SECOND], 0));
    }
    refused("t,b\n1,2\n", json!({ "timestamp": "when" }), &["no column `when`"]);
    refused("t,b\n1,2\n", json!({ "types": { "c": "f64" } }), &["no column `c`"]);
    refused("t,b,b\n1,2,3\n", json!({}), &["two columns are called `b`"]);
    refused("t,\"b\n", json!({}), &["the header is not a valid row"]);
    refused("t,b\n", json!({ "columns": ["t"] }), &["`columns` names 1"]);
    refused("t,x\r1,2\r3,4\r", json!({}), &["end with a line feed"]);
    refused(&"t,".repeat(3000), json!({}), &["`delimiter`"]);
    assert_eq!(gathered("", json!({})), SourceContents::default());
    assert_eq!(gathered("t,x\n", json!({})), SourceContents::default());
}

#[test]
fn a_row_that_is_too_long_costs_its_line_only() {
    let text = format!("t,x\n1,2\n2,{}\n3,4\n", "y".repeat(5000));
    let options = json!({ "max_row": "1KiB", "types": { "x": "text" } });
    let all = gathered(&text, options);
    assert_eq!((times(&all), all.damage.len()), (vec![SECOND, 3 * SECOND], 1));
}

#[test]
fn long_rows_and_comments_of_streams_are_not_kept() {
    let long = "y".repeat(3 << 20);
    let text = format!("t,x\n1,2\n2,{long}\n#{long}\n# short\n3,4\n");
    let options = json!({ "max_row": "1KiB", "types": { "x": "text" }, "comment": "#" });
    for packed in [text.clone().into_bytes(), frames::compress(text.as_bytes(), 3).unwrap()] {
        let (_folder, source) = csv(&packed, options.clone());
        let all = gather(&*source, u64::MAX).unwrap();
        assert_eq!(times(&all), [SECOND, 3 * SECOND]);
        let reasons: Vec<&str> = all.damage.iter().map(|(.., why)| why.as_str()).collect();
        let [row, comment] = reasons[..] else { panic!("{reasons:?}") };
        assert!(row.contains("a row of more than 1024 bytes"), "{row}");
        assert!(comment.contains("a comment of more than 1024 bytes"), "{comment}");
    }
}

#[test]
fn quotes_that_never_end_do_not_swallow_the_file() {
    let text = format!("t,x\n1,\"2\n{}", "3,4\n".repeat(2000));
    let all = gathered(&text, json!({ "max_row": "1KiB", "types": { "x": "f64" } }));
    assert_eq!((all.events.len(), all.damage.len()), (2000, 1));
}

/// The times of a table's rows, and what is damaged by zeros, without these.
fn times_and_damage(text: &str, options: Value) -> (Vec<i64>, Vec<String>) {
    let all = gathered(text, options);
    let damaged = |(offset, length, reason): &(u64, u64, String)| {
        assert!(reason.contains("zero bytes in a cell"), "{reason}");
        text[*offset as usize..(offset + length) as usize].replace('\0', "")
    };
    (times(&all), all.damage.iter().map(damaged).collect())
}

#[test]
fn zeros_in_place_of_rows_are_damage_of_the_lines_that_they_join() {
    let zeros = |len: usize| "\0".repeat(len);
    // In any cell of the first rows or later ones, in a field or not.
    for (len, options) in [
        (512, json!({})),
        (600, json!({ "fields": "x" })),
        (4096, json!({ "types": { "name": "text" } })),
    ] {
        let zeros = zeros(len);
        let text = format!("t,name,x\n1,a,1\n2,b{zeros}d,4\n5,e,5\n");
        let expected = (vec![SECOND, 5 * SECOND], vec!["2,bd,4\n".to_owned()]);
        assert_eq!(times_and_damage(&text, options.clone()), expected, "{len}");
        let rows = "1,a,1\n".repeat(300);
        let text = format!("t,name,x\n{rows}2,b,{zeros},4\n5,e,5\n");
        let (times, damage) = times_and_damage(&text, options);
        assert_eq!((times.len(), damage), (301, vec!["2,b,,4\n".to_owned()]), "{len}");
    }
}

/// The sink `csv` writes such texts of decoded events.
#[test]
fn zero_bytes_in_quotes_and_few_others_are_text() {
    let [few, many] = [511, 4096].map(|len| "\0".repeat(len));
    let text = format!("t,name\n1,\"a\0b\"\n2,\"{many}\"\n3,{few}\n");
    let columns = fields(&text, json!({}));
    let texts: Vec<_> = columns.column(0).as_string::<i32>().iter().flatten().collect();
    assert_eq!(texts, ["a\0b", &many, &few]);
}

#[test]
fn cells_with_zeros_do_not_decide_types() {
    let text = format!("t,x\n1,1.5\n2,2{}.5\n3,3\n", "\0".repeat(512));
    let all = gathered(&text, json!({}));
    assert_eq!((times(&all), all.damage.len()), (vec![SECOND, 3 * SECOND], 1));
    let columns = fields(&text, json!({}));
    assert_eq!(columns.column(0).as_primitive::<Float64Type>().value(1), 3.0);
}

#[test]
fn compressed_tables_are_read_too() {
    let (folder, source) = csv(b"t,x\n1,2\n", json!({}));
    let path = folder.path().join("table.csv");
    let packed = frames::compress(&std::fs::read(&path).unwrap(), 3).unwrap();
    std::fs::File::create(&path).unwrap().write_all(&packed).unwrap();
    assert_eq!(times(&gather(&*source, 1).unwrap()), [SECOND]);
}

/// Rows with everything that makes splitting hard.
fn hard_text() -> impl Strategy<Value = String> {
    let cell = prop_oneof![
        "[0-9]{1,3}",
        Just("\"a\nb\"".to_owned()),
        Just("\"\"\"\n\"\"\"".to_owned()),
        Just("\"1,\n2,3\n\"".to_owned()),
        Just("x\"y".to_owned()),
        Just("\"".to_owned()),
        Just("a\0b".to_owned()),
        Just("\"\0\n\0\"".to_owned()),
        Just(String::new())
    ];
    let row = (0..500i64, vec(cell, 0..3))
        .prop_map(|(time, cells)| format!("{time},{}\n", cells.join(",")));
    vec(prop_oneof![4 => row, 1 => Just("\n".to_owned()), 1 => Just("#,\"\n".to_owned())], 0..30)
        .prop_map(|rows| format!("t,x\n{}", rows.concat()))
}

proptest! {
    #[test]
    fn any_splitting_gives_the_same(text in hard_text(), target in 1u64..60) {
        let options = json!({ "types": { "x": "text" }, "comment": "#", "max_row": 64 });
        let (_folder, source) = csv(text.as_bytes(), options);
        any_splitting_is_the_same(&*source, &[target, 1, 7]);
        splits_cover_the_inputs(&*source, target);
    }

    #[test]
    fn any_bytes_are_rows_damage_or_a_refusal(bytes in vec(any::<u8>(), 0..300)) {
        let text = [b"t,x\n".as_slice(), &bytes].concat();
        let (_folder, source) = csv(&text, json!({}));
        let all = gather(&*source, u64::MAX).unwrap();
        let mut at = 4;
        for (offset, length, _) in &all.damage {
            prop_assert!(*offset >= at && offset + length <= text.len() as u64);
            at = offset + length;
        }
        let (_folder, bare) = csv(&bytes, json!({}));
        drop(gather(&*bare, 16));
    }
}
