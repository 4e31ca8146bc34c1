//! The codec as a whole: the choice of a type for a record, and generated types and records.

use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;
use sluice_ice::fuzzing::IceCodec;
use sluice_kit::TypeFile;
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, Codec, Encoding, KnownType, MessageType, Name,
    PayloadType, TypeKey,
};

fn codec(files: &[(&str, &str)]) -> IceCodec {
    let file =
        |(path, text): &(&str, &str)| TypeFile { path: path.into(), text: (*text).to_owned() };
    let codec = IceCodec::from_files(files.iter().map(file).collect());
    assert!(codec.mistakes().is_empty(), "{}", codec.mistakes().join("\n"));
    codec
}

fn batch(records: &[&[u8]]) -> Batch {
    let mut batch = BatchBuilder::default();
    for (n, record) in (0..).zip(records) {
        batch.push_copy(n, n, ChannelId(0), record);
    }
    batch.finish()
}

fn channel(encoding: Encoding, interface: &str, is_config: bool) -> Channel {
    let mut channel = Channel::new(Name::from_text("c"), "log", encoding);
    if !interface.is_empty() {
        channel.metadata.insert("ice.interface".to_owned(), interface.to_owned());
    }
    channel.metadata.insert("ice.config".to_owned(), is_config.to_string());
    channel
}

fn known(codec: &IceCodec, key: Option<TypeKey>) -> Option<&KnownType> {
    codec.types().iter().find(|known| Some(known.message_type.key) == key)
}

/// The file and name of the type of a channel's record.
fn type_of(codec: &IceCodec, channel: &Channel, record: &[u8]) -> Option<String> {
    let key = codec.keys(channel)?(record);
    let known = known(codec, key)?;
    Some(format!("{} {}", known.file.as_ref().unwrap().display(), known.message_type.name))
}

const STRUCTS: [(&str, &str); 3] = [
    ("1.ice", "module m { struct PowerData { int a; }; struct PowerConfig { byte b; }; };"),
    ("2.ice", "module m { struct PowerData { int a; int b; }; struct Other { byte b; }; };"),
    ("3.ice", "module m { [\"log:Power\", \"log:Cpu\"] struct Any { string text; }; };"),
];

#[test]
fn a_struct_is_the_first_of_its_interface_with_the_same_length() {
    let codec = codec(&STRUCTS);
    let power = channel(Encoding::Ice, "Power", false);
    let type_of = |channel: &Channel, record: &[u8]| type_of(&codec, channel, record);
    assert_eq!(type_of(&power, &[0, 0, 0, 0, 0]).unwrap(), "1.ice m.PowerData");
    assert_eq!(type_of(&power, &[0; 9]).unwrap(), "2.ice m.PowerData");
    assert_eq!(type_of(&power, &[1, b'x', 0]).unwrap(), "3.ice m.Any");
    assert_eq!(type_of(&power, &[0; 8]), None);
    assert_eq!(
        type_of(&channel(Encoding::Ice, "Power", true), &[0; 2]).unwrap(),
        "1.ice m.PowerConfig"
    );
    let none = codec.keys(&power).unwrap()(&[0; 8]);
    assert_eq!(none, None, "a record of no known type has no number");
    // A single candidate is left to decoding, which reports what is wrong.
    assert_eq!(type_of(&channel(Encoding::Ice, "Cpu", false), &[9]).unwrap(), "3.ice m.Any");
    assert_eq!(type_of(&channel(Encoding::Ice, "", false), &[0; 9]), None);
    assert!(codec.keys(&channel(Encoding::Lcm, "Power", false)).is_none());
}

fn instance(classes: &[(&str, &[u8])]) -> Vec<u8> {
    let mut record = vec![255, 255, 255, 255, 1, 1, 0, 0, 0];
    for (name, body) in classes.iter().chain(&[("::Ice::Object", &[0][..])]) {
        record.extend([0, name.len() as u8]);
        record.extend(name.as_bytes());
        record.extend((body.len() as u32 + 4).to_le_bytes());
        record.extend(*body);
    }
    record.push(0);
    record
}

#[test]
fn a_class_is_the_most_derived_declared_one_in_the_matching_version() {
    let codec = codec(&[
        ("1.ice", "module m { class A { byte a; }; };"),
        ("2.ice", "module m { class A { byte a; byte b; }; class B extends A { byte c; }; };"),
    ]);
    let unknown = channel(Encoding::Unknown, "", false);
    let type_of = |record: &[u8]| type_of(&codec, &unknown, record);
    assert_eq!(type_of(&instance(&[("::m::A", &[1])])).unwrap(), "1.ice m.A");
    assert_eq!(type_of(&instance(&[("::m::A", &[1, 2])])).unwrap(), "2.ice m.A");
    assert_eq!(type_of(&instance(&[("::m::B", &[3]), ("::m::A", &[1, 2])])).unwrap(), "2.ice m.B");
    assert_eq!(type_of(&instance(&[("::m::C", &[3]), ("::m::A", &[1])])).unwrap(), "1.ice m.A");
    assert_eq!(type_of(&instance(&[("::m::C", &[3])])), None);
    assert_eq!(codec.keys(&unknown).unwrap()(&[1, 2, 3]), None);
}

#[test]
fn the_same_type_has_the_same_number_wherever_it_is_declared() {
    let one = codec(&[("a.ice", "module m { struct T { int i; }; struct U { T t; }; };")]);
    let other = codec(&[
        ("x/t.ice", "module m {\n struct T { /* : */ int i; }; };"),
        (
            "x/u.ice",
            "module n { struct T { int j; }; }; module m { [\"log:Z\"] struct U { T t; }; };",
        ),
    ]);
    let key = |codec: &IceCodec, name: &str| {
        codec
            .types()
            .iter()
            .find(|known| *known.message_type.name == *name)
            .unwrap()
            .message_type
            .key
    };
    assert_eq!(key(&one, "m.U"), key(&other, "m.U"));
    assert_ne!(key(&other, "m.T"), key(&other, "n.T"));
}

#[test]
fn types_without_columns_have_a_reason() {
    let codec = codec(&[(
        "a.ice",
        "interface I; class L { L next; }; class P { Object* p; }; class Q { Object o; };
         interface J { void f(); }; struct S { J j; }; sequence<S> Ss; struct R { Ss s; };
         class O { optional(1) int i; };",
    )]);
    let why = |name: &str| {
        let known = codec.types().iter().find(|known| *known.message_type.name == *name);
        let known = known.unwrap();
        known.payload_type.as_ref().unwrap_err().clone()
    };
    assert!(why("L").contains("may contain another one"), "{}", why("L"));
    assert!(why("P").contains("a proxy cannot be decoded"));
    let optional = "`i`: an optional member, which encoding 1.0 does not have, cannot be decoded";
    assert_eq!(why("O"), optional);
    assert!(why("Q").contains("an object of any class cannot be decoded"));
    assert!(why("R").contains("`s`: `j`: an interface cannot be decoded"), "{}", why("R"));
}

#[test]
fn a_foreign_description_is_refused() {
    let codec = codec(&STRUCTS);
    let payload_type = codec.types()[0].payload_type.as_ref().unwrap();
    let described = payload_type.message_type();
    assert!(codec.adopt(described, payload_type.schema()).is_ok());
    let with = |name: &str, text: &str| {
        let (name, text) = (name.into(), text.into());
        codec.adopt(&MessageType { name, text, ..(**described).clone() }, payload_type.schema())
    };
    let refused = |name: &str, text: &str| with(name, text).unwrap_err();
    assert!(refused("m.Any", "struct Any { int i; };").contains("does not declare it"));
    assert!(refused("Any", "struct Any { int i; };").contains("its number"));
    assert!(refused("Any", "struct Any {").contains("the description of Any"));
    assert!(refused("Any", &" ".repeat((1 << 20) + 1)).contains("too long"));
    let mut doubling = "struct S0 { int a; int b; };".to_owned();
    for n in 1..40 {
        write!(doubling, "struct S{n} {{ S{0} a; S{0} b; }};", n - 1).unwrap();
    }
    assert!(refused("S20", &doubling).contains("more than 2000 columns"));
    let deep = |n: usize| format!("class A{n} {{ A{} a; }};", n + 1);
    let deep: String = (0..200).map(deep).collect::<String>() + "class A200 { int i; };";
    assert!(refused("A0", &deep).contains("more than 32"));
}

#[test]
fn all_built_in_types_can_be_decoded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../orca/types");
    let mut files = Vec::new();
    for dialect in ["a-2006-08", "b-2006-12", "c-2007-2010"] {
        for entry in std::fs::read_dir(folder.join(dialect)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            files.push(TypeFile { path, text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let codec = IceCodec::from_files(files);
    assert!(codec.mistakes().is_empty(), "{}", codec.mistakes().join("\n"));
    for known in codec.types() {
        let payload_type = known
            .payload_type
            .as_ref()
            .unwrap_or_else(|e| panic!("{}: {e}", known.message_type.name));
        assert!(codec.adopt(&known.message_type, payload_type.schema()).is_ok());
    }
    // Among three layouts of one struct, the length of the record decides.
    let power = channel(Encoding::Ice, "Power", false);
    let battery = |rest: usize| [&[0; 8][..], &[1, 1, b'm'], &vec![0; rest], &[0]].concat();
    for (rest, file) in [(12, "power-2007.ice"), (13, "power-2008-06.ice"), (11, "power-2009.ice")]
    {
        assert!(type_of(&codec, &power, &battery(rest)).unwrap().contains(file), "{file}");
    }
}

/// A small pseudo-random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

#[derive(Clone, Copy)]
enum ElementType {
    Number(&'static str, usize),
    Bool,
    Text,
    Colour,
    Generated(usize),
}

/// A generated type. It contains only earlier types, so that none contains itself.
enum GeneratedType {
    Struct(Vec<ElementType>),
    Class { base: Option<usize>, members: Vec<ElementType> },
    List(ElementType),
    Pairs(ElementType, ElementType),
}

/// Generates types from a seed, and writes records of them.
struct TypeGenerator {
    types: Vec<GeneratedType>,
    random: Random,
}

const SIMPLE: [ElementType; 8] = [
    ElementType::Number("byte", 1),
    ElementType::Number("short", 2),
    ElementType::Number("int", 4),
    ElementType::Number("long", 8),
    ElementType::Number("double", 8),
    ElementType::Bool,
    ElementType::Text,
    ElementType::Colour,
];

impl TypeGenerator {
    fn new(seed: u64) -> Self {
        let mut world = Self { types: Vec::new(), random: Random(seed) };
        for _ in 0..3 + world.random.below(6) {
            let made = world.made_up();
            world.types.push(made);
        }
        let members = vec![ElementType::Generated(world.types.len() - 1), world.any()];
        world.types.push(GeneratedType::Struct(members.clone()));
        world.types.push(GeneratedType::Class { base: None, members });
        world
    }

    fn simple(&mut self) -> ElementType {
        SIMPLE[self.random.below(SIMPLE.len())]
    }

    fn any(&mut self) -> ElementType {
        match self.types.len() {
            0 => self.simple(),
            n if self.random.below(3) > 0 => ElementType::Generated(self.random.below(n)),
            _ => self.simple(),
        }
    }

    fn made_up(&mut self) -> GeneratedType {
        let count = 1 + self.random.below(3);
        let classes: Vec<usize> = self.classes(|_| true);
        match self.random.below(6) {
            0 | 1 => GeneratedType::Struct((0..count).map(|_| self.any()).collect()),
            2 => GeneratedType::List(self.any()),
            3 => GeneratedType::Pairs(self.simple(), self.any()),
            // Derived classes have only simple members: else classes might contain themselves.
            4 if !classes.is_empty() => {
                let base = Some(classes[self.random.below(classes.len())]);
                GeneratedType::Class {
                    base,
                    members: (0..count - 1).map(|_| self.simple()).collect(),
                }
            }
            _ => GeneratedType::Class {
                base: None,
                members: (0..count).map(|_| self.any()).collect(),
            },
        }
    }

    fn classes(&self, is_it: impl Fn(usize) -> bool) -> Vec<usize> {
        let is_class = |at: &usize| matches!(self.types[*at], GeneratedType::Class { .. });
        (0..self.types.len()).filter(is_class).filter(|at| is_it(*at)).collect()
    }

    /// A class and its bases.
    fn line(&self, class: usize) -> Vec<usize> {
        let base = |at: &usize| match self.types[*at] {
            GeneratedType::Class { base, .. } => base,
            _ => None,
        };
        std::iter::successors(Some(class), base).collect()
    }

    fn name(of: ElementType) -> String {
        match of {
            ElementType::Number(name, _) => name.to_owned(),
            ElementType::Bool => "bool".to_owned(),
            ElementType::Text => "string".to_owned(),
            ElementType::Colour => "Colour".to_owned(),
            ElementType::Generated(at) => format!("T{at}"),
        }
    }

    fn slice(&self) -> String {
        let mut text = "module w { enum Colour { red, green };\n".to_owned();
        for (at, made) in self.types.iter().enumerate() {
            let members = |members: &[ElementType]| {
                let each = members.iter().enumerate();
                each.map(|(n, of)| format!("{} m{at}_{n}; ", Self::name(*of))).collect::<String>()
            };
            match made {
                GeneratedType::Struct(of) => writeln!(text, "struct T{at} {{ {}}};", members(of)),
                GeneratedType::Class { base, members: of } => {
                    let extends = base.map(|base| format!("extends T{base} ")).unwrap_or_default();
                    writeln!(text, "class T{at} {extends}{{ {}}};", members(of))
                }
                GeneratedType::List(of) => writeln!(text, "sequence<{}> T{at};", Self::name(*of)),
                GeneratedType::Pairs(key, value) => {
                    let (key, value) = (Self::name(*key), Self::name(*value));
                    writeln!(text, "dictionary<{key}, {value}> T{at};")
                }
            }
            .unwrap();
        }
        text + "};"
    }

    fn record(&mut self, top: usize) -> Vec<u8> {
        let (mut out, mut state) = (Vec::new(), RecordState::default());
        match self.types[top] {
            GeneratedType::Class { .. } => state.refer(top, &mut out),
            _ => self.value(ElementType::Generated(top), &mut state, &mut out),
        }
        while !state.pending.is_empty() {
            let mut batch = std::mem::take(&mut state.pending);
            out.push(batch.len() as u8);
            while !batch.is_empty() {
                let (id, class) = batch.swap_remove(self.random.below(batch.len()));
                out.extend(id.to_le_bytes());
                self.instance(class, &mut state, &mut out);
            }
        }
        out.push(0);
        out
    }

    fn instance(&mut self, class: usize, state: &mut RecordState, out: &mut Vec<u8>) {
        for at in self.line(class) {
            let GeneratedType::Class { members, .. } = &self.types[at] else { continue };
            let (members, mut body) = (members.clone(), Vec::new());
            state.name(&format!("::w::T{at}"), out);
            members.into_iter().for_each(|of| self.value(of, state, &mut body));
            out.extend((body.len() as u32 + 4).to_le_bytes());
            out.extend(body);
        }
        state.name("::Ice::Object", out);
        out.extend([5, 0, 0, 0, 0]);
    }

    fn value(&mut self, of: ElementType, state: &mut RecordState, out: &mut Vec<u8>) {
        let at = match of {
            ElementType::Number(_, width) => {
                out.extend((0..width).map(|_| self.random.below(256) as u8));
                return;
            }
            ElementType::Bool | ElementType::Colour => return out.push(self.random.below(2) as u8),
            ElementType::Text => {
                let texts: [&[u8]; 3] = [b"\x03a\\\xff", b"\x01x", b"\x00"];
                return out.extend(texts[self.random.below(3)]);
            }
            ElementType::Generated(at) => at,
        };
        let count = if state.last > 20 || out.len() > 300 { 0 } else { self.random.below(4) };
        let members = match &self.types[at] {
            GeneratedType::Struct(members) => members.clone(),
            GeneratedType::List(of) => vec![*of; count],
            GeneratedType::Pairs(key, value) => [*key, *value].repeat(count),
            GeneratedType::Class { .. } if self.random.below(4) == 0 || state.last > 40 => {
                return out.extend([0; 4]);
            }
            GeneratedType::Class { .. } => {
                let derived = self.classes(|other| self.line(other).contains(&at));
                let own = derived[self.random.below(derived.len())];
                return state.refer(own, out);
            }
        };
        if !matches!(self.types[at], GeneratedType::Struct(_)) {
            out.push(count as u8);
        }
        members.into_iter().for_each(|of| self.value(of, state, out));
    }
}

#[derive(Default)]
struct RecordState {
    last: i32,
    pending: Vec<(i32, usize)>,
    names: Vec<String>,
}

impl RecordState {
    fn refer(&mut self, class: usize, out: &mut Vec<u8>) {
        self.last += 1;
        self.pending.push((self.last, class));
        out.extend((-self.last).to_le_bytes());
    }

    fn name(&mut self, name: &str, out: &mut Vec<u8>) {
        match self.names.iter().position(|known| known == name) {
            Some(at) => out.extend([1, at as u8 + 1]),
            None => {
                self.names.push(name.to_owned());
                out.extend([0, name.len() as u8]);
                out.extend(name.as_bytes());
            }
        }
    }
}

/// The records that can be decoded, all of which must be restored.
fn decoded(payload_type: &PayloadType, records: &[&[u8]]) -> Vec<u32> {
    let mut bad = Vec::new();
    let rows = payload_type.decode(
        &batch(records),
        &(0..records.len() as u32).collect::<Vec<_>>(),
        &mut bad,
    );
    let rows = rows.unwrap();
    assert_eq!(rows.events.len() + bad.len(), records.len());
    bad.clear();
    let again = payload_type.encode(&rows.columns, &mut bad).unwrap();
    assert_eq!(bad, []);
    for (event, again) in rows.events.iter().zip(again.iter()) {
        assert_eq!(again, Some(records[*event as usize]));
    }
    rows.events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn only_canonical_records_are_decoded(seed in any::<u64>(), flips in any::<u64>()) {
        let mut world = TypeGenerator::new(seed);
        let text = world.slice();
        let codec = codec(&[("w.ice", &text)]);
        let tops = world.types.len() - 2..world.types.len();
        for top in tops {
            let name = format!("w.T{top}");
            let known = codec.types().iter().find(|known| *known.message_type.name == *name);
            let known = known.unwrap();
            let payload_type = known.payload_type.as_ref();
            let payload_type = payload_type.unwrap_or_else(|reason| panic!("{reason}\n{text}"));
            for _ in 0..4 {
                let record = world.record(top);
                let events = decoded(payload_type, &[&record]);
                prop_assert_eq!(events, [0], "{}\n{:?}", text, record);
                let cut: Vec<&[u8]> = (0..record.len()).map(|end| &record[..end]).collect();
                prop_assert!(decoded(payload_type, &cut).is_empty());
                let mut random = Random(flips);
                let other = |_| {
                    let mut other = record.clone();
                    for _ in 0..1 + random.below(3) {
                        let at = random.below(other.len());
                        other[at] = [0, 1, 2, 255, random.below(256) as u8][random.below(5)];
                    }
                    other
                };
                let others: Vec<Vec<u8>> = (0..30).map(other).collect();
                let others: Vec<&[u8]> = others.iter().map(Vec::as_slice).collect();
                decoded(payload_type, &others);
            }
            let adopted = codec.adopt(&known.message_type, payload_type.schema()).unwrap();
            prop_assert_eq!(adopted.schema(), payload_type.schema());
        }
    }
}
