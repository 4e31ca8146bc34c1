//! Valid masters, and the damage found in invalid ones.

#![expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use sluice_io::files::LogFile;
use sluice_model::Clock;

use super::data::{decimal_numbers, number};
use super::header::MAX_FILES;
use super::*;
use crate::display::display_name;
use crate::subfile::RecordPrefix;

/// The number of subfiles of the logs whose lines are read.
const SUBFILES: usize = 4;

fn file(text: &[u8]) -> LogFile {
    let stream = Box::new(std::io::Cursor::new(text.to_owned()));
    LogFile::stream(Path::new("x"), stream).unwrap()
}

fn lines(text: &[u8]) -> MasterLines {
    MasterLines::new(file(text), 0)
}

fn header(text: &str) -> MasterHeader {
    MasterHeader::read(&mut lines(text.as_bytes())).unwrap()
}

fn data(text: &str) -> Result<Option<DataLine>, &'static str> {
    DataLine::parse(text.as_bytes())
}

#[test]
fn the_first_header_line_tells_the_dialect() {
    let a = header("::orca::Laser  ice  laser0.log\n#data\n");
    assert_eq!((a.dialect, a.data_start), (Dialect::A, 37));
    assert_eq!(
        (&a.files[0].name[..], &a.files[0].interface[..]),
        (&b"laser0.log"[..], &b"Laser"[..])
    );
    assert_eq!(header("laser0.log Laser ice\n#data\n").dialect, Dialect::B);
    for line in ["orca::Laser jose laser0.log", "Laser jose laser0.log"] {
        let unknown = header(&format!("{line}\n#data\n"));
        let FileLine { interface, encoding, name, .. } = &unknown.files[0];
        let words = [&interface[..], encoding, name];
        assert_eq!((unknown.dialect, words), (Dialect::A, [&b"Laser"[..], b"jose", b"laser0.log"]));
    }
    assert_eq!(header("laser0.log Laser jose\n#data\n").dialect, Dialect::B);
    assert_eq!(header("laser0 Laser jose 0\n#data\n").dialect, Dialect::C);
    let c = header("laser0.log Laser ice 0\npower.log Power ascii 1\n#data\n");
    assert_eq!((c.dialect, c.files[0].enabled, c.files[1].enabled), (Dialect::C, false, true));
}

#[test]
fn comments_and_blank_lines_are_passed_over() {
    let read = header(
        "# host: alpha\n\n\r\n# laser@alpha/laser2d\r\nlaser0.log Laser ice 1\r\n#data \r\n",
    );
    assert_eq!(read.files[0].proxy.as_deref(), Some("laser@alpha/laser2d"));
    assert_eq!((read.files.len(), read.damage.len()), (1, 0));
}

#[test]
fn a_mark_before_the_text_is_passed_over() {
    let read = header("\u{feff}::orca::Laser ice laser0.log\n#data\n");
    assert_eq!((read.dialect, &read.files[0].interface[..]), (Dialect::A, &b"Laser"[..]));
    assert_eq!(
        header("\u{feff}#data\n"),
        MasterHeader { data_start: 9, ..MasterHeader::default() }
    );
}

#[test]
fn reasons_hold_nothing_that_a_terminal_obeys() {
    let read = header("a/\u{1b}[31m P ice\n#data\n");
    let reason = read.files[0].refused.as_deref().unwrap();
    assert!(reason.contains("u{1b}") && !reason.contains('\u{1b}'), "{reason}");
}

#[test]
fn names_with_a_path_are_refused_and_counted() {
    let read = header("../x.log P ice 1\n/etc/passwd P ice 1\n.. P ice 1\na.log P ice 1\n#data\n");
    assert_eq!(read.files.iter().filter(|file| file.refused.is_some()).count(), 3);
    assert_eq!(read.files[3].refused, None);
    assert!(header("a P ice\na P ice\n#data\n").files[1].refused.is_some());
}

#[test]
fn a_line_with_too_few_columns_keeps_its_number() {
    let read = header("a.log Power ice 1\nb.log\nc.log Power ice 1\n#data\n");
    assert_eq!((read.files.len(), read.damage.len(), read.damage[0].len), (3, 1, 6));
    assert!(read.files[1].refused.is_some());
}

#[test]
fn without_its_mark_data_starts_with_the_first_line_of_numbers() {
    let read = header("a.log Power ice 1\n10 20 0 0\n");
    assert_eq!((read.data_start, read.damage[0].offset, read.damage[0].len), (18, 18, 0));
}

#[test]
fn a_header_of_any_length_is_bounded() {
    let many = "a b\n".repeat(MAX_FILES + 50) + "#data\n1 2 0 0\n";
    let read = header(&many);
    assert_eq!(read.files.len(), MAX_FILES);
    assert_eq!(read.data_start, many.len() as u64 - 8);
    assert_eq!((read.damage.last().map(|d| d.len), read.is_truncated), (Some(200), true));
}

#[test]
fn microseconds_are_a_number_and_no_fraction() {
    let line = data("1154412007          22   0   1 more").unwrap().unwrap();
    assert_eq!(line, DataLine { time: 1_154_412_007_000_022_000, subfile: 0, index: 1 });
}

#[test]
fn lines_without_a_valid_time_or_index_are_malformed() {
    for (line, says) in [
        ("1 2 3", "four numbers"),
        ("x 2 3 4", "seconds"),
        ("99999999999999999999 2 3 4", "seconds are not a whole number of 64 bits"),
        ("1 1000000 3 4", "microseconds"),
        ("1 -1 3 4", "microseconds"),
        ("1 2 -3 4", "subfile"),
        ("1 2 3 4.5", "index"),
        ("9223372036854775808 0 0 0", "seconds"),
    ] {
        assert!(data(line).unwrap_err().contains(says), "{line}");
    }
    let late = data("9223372036854775807 1 0 0").unwrap().unwrap();
    let time = i128::from(i64::MAX) * 1_000_000_000 + 1_000;
    assert_eq!((late.time, late.timestamp()), (time, i64::MAX));
    assert_eq!(data("-9223372037 0 0 0").unwrap().unwrap().timestamp(), i64::MIN);
    assert_eq!((data("  # 1 2 3 4"), data("\t")), (Ok(None), Ok(None)));
}

#[test]
fn a_last_index_that_may_be_cut_off_is_malformed() {
    let last = |text: &[u8]| lines(text).next().unwrap().unwrap().data(SUBFILES);
    for whole in
        [&b"1 2 3 10\n"[..], b"1 2 3 10\r\n", b"1 2 3 10 ", b"1 2 3 10 more", b"# 1 2 3 10"]
    {
        assert!(last(whole).is_ok(), "{}", display_name(whole));
    }
    assert!(last(b"1 2 3 10").unwrap_err().contains("cut off"));
}

#[test]
fn a_line_without_a_line_break_before_it_is_reported_where_it_starts() {
    let swallowed = |text: &[u8]| {
        let damage = lines(text).next().unwrap().unwrap().data(SUBFILES).unwrap().unwrap().damage;
        damage.map(|damage| damage.range)
    };
    for blank in [b' ', b'\t', 0x0b, 0x0c, b'\r'] {
        let text = [b"1 2 3 4", &[blank][..], b"1 2 3 5\n"].concat();
        assert_eq!(swallowed(&text), Some((8, 8)), "{blank}");
    }
    for rest in ["", " more", " 1 2 3", " # 1 2 3 4", " a # 1 2 3 4"] {
        assert_eq!(swallowed(format!("1 2 3 4{rest}\n").as_bytes()), None, "{rest}");
    }
    assert_eq!(swallowed(b"1 2 3 4 more and 1 2 3 5\n"), Some((17, 8)));
    // Numbers with a distant time, or of a subfile that does not exist, are extra columns.
    for extra in ["more and 1 2 4 5", "0.5 3602 3 3 5", "-3600 1 3 5", "1 2 3 -5"] {
        assert_eq!(swallowed(format!("1 2 3 4 {extra}\n").as_bytes()), None, "{extra}");
    }
    let text = "1154412007 22 0 1 0.5 12 3 3 4 1154412007 23 3 5\n";
    assert_eq!(swallowed(text.as_bytes()), Some((31, 18)));
    let says_more = |text: &[u8]| {
        lines(text).next().unwrap().unwrap().data(SUBFILES).unwrap().unwrap().has_extra_columns
    };
    assert!(says_more(b"1 2 3 4 5 6 7\n") && !says_more(b"1 2 3 4 # 5\n"));
    assert!(!says_more(b"1 2 3 4 \n"));
}

#[test]
fn zero_bytes_are_damage_from_there_to_the_end_of_the_line() {
    let parsed = |text: &[u8]| lines(text).next().unwrap().unwrap().data(SUBFILES);
    // Of the line behind them, the start may be missing.
    for (text, from) in [
        (&b"1 2 3 4 \0\0\0 1 2 3 6\n"[..], 8),
        (b"1 2 3 4 \0\0\x001 2 3 6\n", 8),
        (b"1 2 3 4 \0\n", 8),
        (b"1 2 3 4 # \0\0 1 2 3 6\n", 10),
        (b"1 2 3 4 more \0", 13),
    ] {
        let (at, len) = parsed(text).unwrap().unwrap().damage.unwrap().range;
        assert_eq!((at, at + len), (from, text.len() as u64), "{}", display_name(text));
    }
    for text in [&b"\0\0 1 2 3 4\n"[..], b"# host\0\0 1 2 3 4\n", b" \0\n", b"1 2 3 4\0 1\n"] {
        assert!(parsed(text).is_err(), "{}", display_name(text));
    }
}

#[test]
fn a_header_line_with_zero_bytes_is_damage_and_keeps_its_number() {
    let read =
        header("a.log Power ice 1\nb.log P\0\0er ice 1\n# x\0\0\nc.log Power ice 1\n#data\n");
    let lens: Vec<u64> = read.damage.iter().map(|damage| damage.len).collect();
    assert_eq!((read.files.len(), &lens[..]), (3, &[18, 6][..]));
    assert!(read.files[1].refused.is_some() && read.files[2].refused.is_none());
}

#[test]
fn lines_as_loggers_write_them_are_plain() {
    let text = [b"#\n1165454310 90210 3 17\n".as_slice(), &[b'\n'; 99]].concat();
    let mut lines = lines(&text);
    lines.next().unwrap();
    let data = DataLine { time: 1_165_454_310_090_210_000, subfile: 3, index: 17 };
    assert_eq!(lines.next_plain(), Some((data, (2, 22))));
    assert_eq!(lines.next_plain(), None);
}

#[test]
fn an_overlong_line_is_skipped_as_a_whole() {
    let long = [&[b'x'; LONGEST_LINE + 10][..], b"\n1 2 3 4"].concat();
    let mut lines = lines(&long);
    let first = lines.next().unwrap().unwrap();
    assert_eq!((first.len, first.text), (LONGEST_LINE as u64 + 11, None));
    assert!(first.data(SUBFILES).unwrap_err().contains("longer than 65536"));
    assert_eq!(lines.next().unwrap().unwrap().text, Some(&b"1 2 3 4"[..]));
    assert_eq!(lines.next().unwrap(), None);
}

#[test]
fn writer_comments_round_trip() {
    let own = WriterComment {
        config_records: 2,
        prefix: RecordPrefix { id: true, ..RecordPrefix::default() },
        channel: b"a b%\xff".to_vec(),
        source: "robot ü".into(),
        type_name: Some("exlcm.pose_t".into()),
        clock: Clock::Relative,
        interface: Some("a b".into()),
        is_disabled: true,
        metadata: BTreeMap::from([("a=key %".to_owned(), "a=b %".to_owned())]),
    };
    let text = own.to_line() + "x.log a lcm 1\n#data\n";
    let files = header(&text).files;
    assert_eq!((files[0].comment.as_ref(), files[0].enabled), (Some(&own), false));
}

#[test]
fn only_masters_look_like_masters() {
    assert_eq!(
        looks_like_master(b"# c\n::orca::Laser  ice  laser0.log\n#data\n1 2 0 1\n"),
        (true, true)
    );
    assert_eq!(looks_like_master(b"laser0.log Laser ice 1\nx.lo"), (false, true));
    assert_eq!(looks_like_master(b"#data\n"), (false, true));
    for header in ["orca::Laser jose laser0.log", "Laser jose laser0.log", "l.log Laser jose 1"] {
        let text = |data: &str| format!("{header}\n#data\n{data}");
        assert_eq!(looks_like_master(text("1 2 0 1\n").as_bytes()), (true, true), "{header}");
        assert_eq!(looks_like_master(text("").as_bytes()), (false, false), "{header}");
    }
    let behind_others = b"other\n::orca::Laser ice a.log\nLaser ice b.log\n#data\n1 2 0 1\n";
    assert_eq!(looks_like_master(behind_others), (true, true));
    let with_mark = "\u{feff}::orca::Laser ice f\u{fc}hler0.log\r\n#data\r\n";
    assert_eq!(looks_like_master(with_mark.as_bytes()), (true, true));
    for other in [
        &b"sec,usec\n1,2\n"[..],
        b"# a comment\n",
        b"",
        b"1 2 3 4\n",
        b"other\n::orca::Laser ice laser0.log\n1 2 0 1\n",
        b"[sources.a]\n",
        b"\xed\xa1",
    ] {
        assert_eq!(looks_like_master(other), (false, false));
    }
}

proptest! {
    #[test]
    fn fast_and_slow_number_parsers_agree(
        text in "[ 0-9]{0,60}[ \\ta+#-]{0,2}[ 0-9]{0,9}",
    ) {
        if let Some((plain, _)) = decimal_numbers(text.as_bytes()) {
            let slow: Vec<_> = words(text.as_bytes()).take(4).filter_map(number).collect();
            prop_assert_eq!(plain.to_vec(), slow);
        }
    }

    #[test]
    fn a_plain_line_is_what_any_line_is(
        text in "([0-9]{0,19}[ \\r]?){3,5}(\n|a)?[0-9a\n]{0,40}",
        padding in 0usize..80,
    ) {
        // The first line is there to have the others read.
        let text = [b"#\n".as_slice(), text.as_bytes(), &vec![b'\n'; padding]].concat();
        let (mut plain, mut general) = (lines(&text), lines(&text));
        plain.next().unwrap();
        general.next().unwrap();
        while let Some((data, at)) = plain.next_plain() {
            let line = general.next().unwrap().unwrap();
            let parsed = ParsedLine { data, damage: None, has_extra_columns: false };
            prop_assert_eq!((at, line.data(SUBFILES)), ((line.offset, line.len), Ok(Some(parsed))));
            prop_assert_eq!(plain.position(), general.position());
        }
    }

    #[test]
    fn any_text_has_a_header_and_lines(text in "[ a0-9#:\\n\\r./@=%-]{0,300}") {
        let mut lines = lines(text.as_bytes());
        let header = MasterHeader::read(&mut lines).unwrap();
        prop_assert!(header.data_start <= text.len() as u64);
        let all = super::tests::lines(text.as_bytes());
        let total = count(all);
        prop_assert_eq!(total, text.len() as u64);
        looks_like_master(text.as_bytes());
    }

    #[test]
    fn searching_a_range_finds_the_lines_that_start_in_it(
        text in "[a\\n]{0,60}", from in 0u64..60, len in 0u64..30)
    {
        let mut begins = vec![];
        let mut all = lines(text.as_bytes());
        while let Some(line) = all.next().unwrap() { begins.push(line.offset); }
        let found = MasterLines::search(file(text.as_bytes()), from, from + len).unwrap();
        let found = found.map(|lines| lines.position());
        let due = begins.into_iter().find(|at| (from..from + len).contains(at));
        if from > 0 { prop_assert_eq!(found, due); }
    }
}

fn count(mut lines: MasterLines) -> u64 {
    let mut total = 0;
    while let Some(line) = lines.next().unwrap() {
        total += line.len;
    }
    total
}
