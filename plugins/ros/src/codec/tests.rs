use proptest::prelude::*;
use sluice_model::{BatchBuilder, ChannelId, EmbeddedSchema, Name, Rows};

use super::*;

mod idl;

/// A channel that declares the type of its payloads.
fn channel(generation: Generation, name: &str, text: &str) -> Channel {
    let mut channel = Channel::new(Name::from_text("/topic"), "log", generation.encoding());
    channel.type_name = Some(name.into());
    let encoding = generation.languages()[0].into();
    channel.schema = Some(EmbeddedSchema { encoding, data: text.as_bytes().into() });
    channel
}

fn codec(generation: Generation) -> RosCodec {
    RosCodec::from_files(Vec::new(), generation)
}

fn declared(generation: Generation, name: &str, text: &str) -> KnownType {
    codec(generation).embedded(&channel(generation, name, text)).unwrap()
}

fn usable(generation: Generation, text: &str) -> PayloadType {
    declared(generation, "pkg/msg/Top", text).payload_type.unwrap()
}

fn refusal(text: &str) -> String {
    declared(Generation::Ros2, "pkg/msg/Top", text).payload_type.unwrap_err()
}

type Faulty = Vec<(u32, &'static str)>;

fn decode(of: &PayloadType, payloads: &[Vec<u8>]) -> (Vec<Rows>, Faulty) {
    let mut batch = BatchBuilder::default();
    for (at, payload) in payloads.iter().enumerate() {
        batch.push_copy(at as i64, at as i64, ChannelId(0), payload);
    }
    let (events, mut bad): (Vec<u32>, _) = ((0..payloads.len() as u32).collect(), Vec::new());
    let rows = of.decode_all(&batch.finish(), &events, &mut bad).unwrap();
    (rows, bad)
}

/// Encodes rows by their description alone.
fn encode(generation: Generation, rows: &Rows) -> Vec<Vec<u8>> {
    let schema = rows.columns.schema();
    let of = codec(generation).adopt(&rows.message, &schema).unwrap();
    assert_eq!(*of.message_type(), rows.message);
    let mut bad = Vec::new();
    let encoded = of.encode(&rows.columns, &mut bad).unwrap();
    assert_eq!(bad, []);
    encoded.iter().flatten().map(<[u8]>::to_vec).collect()
}

/// Decodes all payloads, and checks that they come back; returns the numbers of rows.
#[track_caller]
fn there_and_back(generation: Generation, text: &str, payloads: &[Vec<u8>]) -> Vec<Rows> {
    let (all, bad) = decode(&usable(generation, text), payloads);
    assert_eq!(bad, []);
    assert_eq!(all.iter().map(|rows| rows.events.len()).sum::<usize>(), payloads.len());
    for rows in &all {
        let expected: Vec<_> = rows.events.iter().map(|at| &payloads[*at as usize]).collect();
        assert_eq!(encode(generation, rows).iter().collect::<Vec<_>>(), expected);
    }
    all
}

fn json(rows: &Rows) -> Vec<String> {
    let each = sluice_kit::json::JsonRows::new(&rows.columns).unwrap();
    let line = |row| {
        let mut line = Vec::new();
        each.write(row, &mut line);
        String::from_utf8(line).unwrap()
    };
    (0..rows.columns.num_rows()).map(line).collect()
}

#[test]
fn numbers_are_aligned_from_the_end_of_the_head() {
    let text = "uint8 a\nfloat64 b\nstring c\nint16[] d\nbool e\n";
    let payload = [
        &[0, 1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0][..],
        &1.5f64.to_le_bytes(),
        &[3, 0, 0, 0, b'h', b'i', 0, 0, 2, 0, 0, 0, 1, 0, 254, 255, 1],
    ]
    .concat();
    let rows = there_and_back(Generation::Ros2, text, &[payload]);
    assert_eq!(json(&rows[0]), [r#"{"a":7,"b":1.5,"c":"hi","d":[1,-2],"e":true}"#]);
}

#[test]
fn messages_without_columns_come_in_both_byte_orders() {
    let (little, big) = (vec![0, 1, 0, 0], vec![0, 0, 0, 0]);
    let longer = vec![0, 1, 0, 0, 0, 0];
    let payloads = [little, big.clone(), longer, big];
    let rows = there_and_back(Generation::Ros2, "uint8[0] none\n", &payloads);
    let events: Vec<_> = rows.iter().map(|rows| rows.events.clone()).collect();
    assert_eq!(events, [vec![0], vec![1, 2, 3]]);
}

#[test]
fn what_columns_do_not_say_comes_back() {
    let text = "uint8 a\nint32 b\nstring c\n";
    let plain = [0, 1, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0];
    let mut padded = plain;
    padded[5] = 0xcc;
    let big = [0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0];
    let tail = [&plain[..], &[0, 0, 0]].concat();
    let mut options = plain;
    options[3] = 3;
    let without_zero = &[&plain[..12], &[0, 0, 0, 0]].concat();
    let payloads = [&plain[..], &padded, &big, &tail, &options, without_zero].map(<[u8]>::to_vec);
    let rows = there_and_back(Generation::Ros2, text, &payloads);
    assert_eq!(
        rows.iter().map(|rows| rows.events.clone()).collect::<Vec<_>>(),
        [vec![0], vec![1, 2, 3, 4, 5]]
    );
    for line in rows.iter().flat_map(json) {
        assert_eq!(line, r#"{"a":7,"b":9,"c":""}"#);
    }
}

#[test]
fn a_changed_value_is_written_though_its_row_has_a_difference() {
    let of = usable(Generation::Ros2, "uint8 a\nint32 b\n");
    let padded = vec![0, 1, 0, 0, 7, 0xcc, 0, 0, 9, 0, 0, 0];
    let big = vec![0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 9];
    let (rows, _) = decode(&of, &[padded, big]);
    let mut arrays = rows[0].columns.columns().to_vec();
    arrays[1] = Arc::new(arrow_array::Int32Array::from(vec![10, 10]));
    let columns = arrow_array::RecordBatch::try_new(rows[0].columns.schema(), arrays).unwrap();
    let rows = Rows { columns, ..rows[0].clone() };
    // Padding is kept; the bytes of the old value are not.
    let padded = vec![0, 1, 0, 0, 7, 0xcc, 0, 0, 10, 0, 0, 0];
    let other = vec![0, 1, 0, 0, 7, 0, 0, 0, 10, 0, 0, 0];
    assert_eq!(encode(Generation::Ros2, &rows), [padded, other]);
}

#[test]
fn a_missing_column_is_named() {
    let padded = vec![0, 1, 0, 0, 7, 0xcc, 0, 0, 9, 0, 0, 0];
    let (rows, _) = decode(&usable(Generation::Ros2, "uint8 a\nint32 b\n"), &[padded]);
    let columns = &rows[0].columns;
    let of = codec(Generation::Ros2).adopt(&rows[0].message, &columns.schema()).unwrap();
    let encode = |kept: &[usize]| of.encode(&columns.project(kept).unwrap(), &mut Vec::new());
    assert_eq!(encode(&[0, 2]).unwrap_err(), "there is no column `b`");
    assert_eq!(encode(&[0, 1]).unwrap_err(), "there is no column `raw_difference`");
}

#[test]
fn payloads_of_other_types_are_refused() {
    let of = usable(Generation::Ros2, "int32 b\n");
    let wrong = [
        (vec![0, 1, 0], "head"),
        (vec![0, 7, 0, 0, 1, 0, 0, 0], "version 1"),
        (vec![0, 1, 0, 0, 1, 0, 0], "shorter"),
        (vec![0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], "longer"),
    ];
    let (rows, bad) = decode(&of, &wrong.clone().map(|(payload, _)| payload));
    assert_eq!(rows.len(), 0);
    for ((_, why), (_, expected)) in bad.iter().zip(wrong) {
        assert!(why.contains(expected), "{why}");
    }
    assert_eq!(bad.len(), 4);
}

#[test]
fn a_declaration_says_why_it_cannot_be_used() {
    for (text, why) in [
        ("wstring name\n", "wstring"),
        ("Other x\n", "`Other` is not declared"),
        ("Top x\n", "holds itself"),
        ("int32\n", "expected a name"),
        ("int32[x] a\n", "number of elements"),
        ("int32 a\nint32 a\n", "two fields"),
        ("int32 a\n---\nint32 b\n", "service"),
        ("", "does not declare"),
    ] {
        let found = refusal(text);
        assert!(found.contains(why), "{text:?}: {found}");
    }
    let mut idl = channel(Generation::Ros2, "a::T", "module a {}");
    idl.schema.as_mut().unwrap().encoding = "omgidl".into();
    let found = codec(Generation::Ros2).embedded(&idl).unwrap().payload_type.unwrap_err();
    assert!(found.contains("omgidl"), "{found}");
}

#[test]
fn a_declaration_that_cannot_be_read_leaves_the_type_to_the_files() {
    let file = TypeFile { path: "pkg/msg/Top.msg".into(), text: "int32 x\n".into() };
    let codec = RosCodec::from_files(vec![file], Generation::Ros2);
    for (language, text) in [("omgidl", "module pkg {}"), ("ros2idl", "union"), ("ros2msg", "")] {
        let mut declaring = channel(Generation::Ros2, "pkg/msg/Top", text);
        declaring.schema.as_mut().unwrap().encoding = language.into();
        let found = codec.embedded(&declaring).unwrap();
        assert_eq!(found.payload_type.unwrap().schema().field(0).name(), "x", "{language}");
    }
}

#[test]
fn text_is_parsed_as_writers_write_it() {
    let text = "# comment\r\nint32 X=7 # seven\r\nstring NAME=a # b\nstring<=5 name \"x # y\"\n\
                uint8[<=4] data\nbuiltin_interfaces/Time at # builtin\nother_pkg/msg/Part[2] p\n\
                Near near\nrmw/msg/Gid gid\n\
                ================================================================================\n\
                MSG: other_pkg/Part\nfloat32 v 1.5\n\
                ================================================================================\n\
                MSG: pkg/msg/Near\n\
                ================================================================================\n\
                MSG: fastdds/rmw/msg/Gid\nbyte[3] data";
    let of = usable(Generation::Ros2, text);
    let names: Vec<_> = of.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["name", "data", "at", "p", "near", "gid"]);
    let body = [&[1u8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0][..], &[1; 16], &[9], &[7; 3]];
    let payload = [&[0, 1, 0, 0][..], &body.concat()].concat();
    there_and_back(Generation::Ros2, text, &[payload]);
}

#[test]
fn channels_share_the_type_that_they_declare() {
    let codec = codec(Generation::Ros2);
    let find = |text| codec.embedded(&channel(Generation::Ros2, "pkg/msg/Top", text)).unwrap();
    let (a, b) = (find("int32 x\n"), find("int32 x\n"));
    assert!(Arc::ptr_eq(&a.message_type, &b.message_type));
    assert_eq!(find("int32 x # with a comment\n").message_type, a.message_type);
    assert_ne!(find("int32 y\n").message_type.key, a.message_type.key);
}

#[test]
fn files_declare_what_the_text_in_a_log_lacks() {
    let file = |path: &str, text: &str| TypeFile { path: path.into(), text: text.to_owned() };
    let top = file("m/pkg/msg/Top.msg", "q/B b");
    let files = vec![top, file("m/q/msg/B.msg", "int32 x"), file("m/q/msg/D.msg", "B b")];
    let codec = RosCodec::from_files(files, Generation::Ros2);
    let of_file = codec.types().iter().find(|known| &*known.message_type.name == "pkg/msg/Top");
    let of_file = of_file.unwrap().message_type.key;
    let key = |name: &str, text: &str| {
        let known = codec.embedded(&channel(Generation::Ros2, name, text)).unwrap();
        known.payload_type.map(|of| of.message_type().key)
    };
    assert_eq!(key("pkg/msg/Top", ""), Ok(of_file));
    assert_eq!(key("prefix/pkg/msg/Top", ""), Ok(of_file));
    assert!(key("pkg/msg/Other", "").is_err());
    assert!(key("other/msg/Top", "").is_err());
    // What the log says itself comes first.
    assert_ne!(key("pkg/msg/Top", "int8 a"), Ok(of_file));
    // Files only add the types that its text lacks.
    let whole = |text: &str| key("pkg/msg/Top", &format!("{text}\n{}int32 x", separator("q/B")));
    for text in ["q/B b", "int8 a\nq/B b", "float32 c\nq/B[] b"] {
        let declared = whole(text);
        assert!(declared.is_ok(), "{declared:?}");
        assert_eq!(key("pkg/msg/Top", text), declared, "{text}");
    }
    assert!(key("pkg/msg/Top", "q/C c").is_err());
    // Types that it has are not replaced, even where the file of `q/D` uses them.
    for field in ["int32 x", "int8 y"] {
        let text = format!("q/D d\n{}{field}", separator("q/B"));
        let whole = key("pkg/msg/Top", &format!("{text}\n{}B b", separator("q/D")));
        assert!(whole.is_ok(), "{whole:?}");
        assert_eq!(key("pkg/msg/Top", &text), whole);
    }
    let mut undeclared = channel(Generation::Ros2, "prefix/pkg/msg/Top", "");
    undeclared.schema = None;
    assert_eq!(codec.keys(&undeclared).unwrap()(b""), Some(of_file));
}

#[test]
fn files_declare_types_by_their_folders() {
    let file = |path: &str, text: &str| TypeFile { path: path.into(), text: text.into() };
    let files = vec![
        file("share/a/msg/One.msg", "Two two\nb/Three three\n"),
        file("share/a/msg/Two.msg", "int32 x\n"),
        file("share/b/msg/Three.msg", "string s\n"),
        file("share/b/msg/Broken.msg", "string s\nnothing/Here h\n"),
    ];
    let codec = RosCodec::from_files(files, Generation::Ros2);
    let names: Vec<_> = codec.types().iter().map(|known| &*known.message_type.name).collect();
    assert_eq!(names, ["a/msg/One", "a/msg/Two", "b/msg/Three"]);
    assert!(codec.mistakes()[0].contains("nothing/Here"), "{:?}", codec.mistakes());
    let mut channel = Channel::new(Name::from_text("/t"), "log", Encoding::Cdr);
    channel.type_name = Some("a/One".into());
    let key = codec.keys(&channel).unwrap()(&[]);
    assert_eq!(key, Some(codec.types()[0].message_type.key));
}

/// Makes types and payloads of them, from numbers that look random.
struct Generator {
    state: u64,
    generation: Generation,
    /// What padding is.
    padding: u8,
    is_big: bool,
    /// The text of the declarations besides the first.
    texts: String,
    names: usize,
}

enum Kind {
    Number(usize),
    Bool,
    Text,
    Struct(Vec<(Kind, Count)>),
}

#[derive(Clone, Copy)]
enum Count {
    One,
    Fixed(usize),
    List,
}

impl Generator {
    fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) % limit
    }

    fn members(&mut self, depth: u64, text: &mut String) -> Vec<(Kind, Count)> {
        let count = 1 + self.below(5);
        let member = |at: u64| {
            let (kind, name) = self.kind(depth);
            let (count, array) = match self.below(4) {
                0 => (Count::Fixed(3), "[3]"),
                1 => (Count::List, "[]"),
                _ => (Count::One, ""),
            };
            *text += &format!("{name}{array} m{at}\n");
            (kind, count)
        };
        (0..count).map(member).collect()
    }

    fn kind(&mut self, depth: u64) -> (Kind, String) {
        let kinds = ["uint8", "int16", "uint32", "float32", "int64", "float64"];
        match self.below(if depth > 2 { 8 } else { 11 }) {
            at @ 0..6 => (Kind::Number([1, 2, 4, 4, 8, 8][at as usize]), kinds[at as usize].into()),
            6 => (Kind::Bool, "bool".into()),
            7 => (Kind::Text, "string".into()),
            _ => {
                self.names += 1;
                let (name, mut text) = (format!("T{}", self.names), String::new());
                let members = self.members(depth + 1, &mut text);
                self.texts += &format!("{}\nMSG: pkg/{name}\n{text}", "=".repeat(80));
                (Kind::Struct(members), name)
            }
        }
    }

    fn align(&self, width: usize, out: &mut Vec<u8>) {
        while self.generation == Generation::Ros2 && !out.len().is_multiple_of(width) {
            out.push(self.padding);
        }
    }

    fn number(&self, value: u64, width: usize, out: &mut Vec<u8>) {
        self.align(width, out);
        match self.is_big {
            true => out.extend(&value.to_be_bytes()[8 - width..]),
            false => out.extend(&value.to_le_bytes()[..width]),
        }
    }

    fn value(&mut self, kind: &Kind, out: &mut Vec<u8>) {
        match kind {
            Kind::Number(width) => {
                let value = self.below(u64::MAX >> 20) << self.below(20);
                self.number(value, *width, out);
            }
            Kind::Bool => out.push(self.below(2) as u8),
            Kind::Text => {
                let text = vec![b'a'; self.below(6) as usize];
                let has_nul = self.generation == Generation::Ros2;
                self.number(text.len() as u64 + u64::from(has_nul), 4, out);
                out.extend(text);
                out.extend(has_nul.then_some(0));
            }
            Kind::Struct(members) => self.values(members, out),
        }
    }

    fn values(&mut self, members: &[(Kind, Count)], out: &mut Vec<u8>) {
        for (kind, count) in members {
            let count = match count {
                Count::One => 1,
                Count::Fixed(count) => *count,
                Count::List => {
                    let count = self.below(4);
                    self.number(count, 4, out);
                    count as usize
                }
            };
            (0..count).for_each(|_| self.value(kind, out));
        }
    }
}

proptest! {
    #[test]
    fn any_payload_of_any_type_comes_back(
        state in any::<u64>(),
        is_ros1 in any::<bool>(),
        is_big in any::<bool>(),
        padding in prop_oneof![Just(0u8), any::<u8>()],
    ) {
        let generation = if is_ros1 { Generation::Ros1 } else { Generation::Ros2 };
        let is_big = is_big && !is_ros1;
        let texts = String::new();
        let mut made = Generator { state, generation, padding, is_big, texts, names: 0 };
        let mut text = String::new();
        let members = made.members(0, &mut text);
        text += &made.texts;
        let mut payloads = Vec::new();
        for _ in 0..4 {
            let mut body = Vec::new();
            made.values(&members, &mut body);
            let head: &[u8] = match (is_ros1, is_big) {
                (true, _) => &[],
                (_, true) => &[0, 0, 0, 0],
                _ => &[0, 1, 0, 0],
            };
            payloads.push([head, &body].concat());
        }
        let rows = there_and_back(generation, &text, &payloads);
        prop_assert!(is_big || padding != 0 || rows.len() == 1);
    }

    #[test]
    fn any_difference_restores(from in any::<Vec<u8>>(), to in any::<Vec<u8>>(), same in 0..64usize) {
        let to = [from.get(..same).unwrap_or_default(), &to].concat();
        let mut made = Vec::new();
        difference::append_difference(&from, &to, &mut made);
        prop_assert_eq!(difference::restore(&from, &made), Some(to));
    }

    #[test]
    fn any_bytes_are_a_difference_or_not(from in any::<Vec<u8>>(), made in any::<Vec<u8>>()) {
        let restored = difference::restore(&from, &made).unwrap_or_default();
        prop_assert!(restored.len() <= from.len() + made.len());
    }
}
