//! What files declare: fingerprints that are known from elsewhere, versions, and every mistake in
//! one go.

use proptest::prelude::*;
use sluice_kit::TypeFile;
use sluice_lcm::LcmCodec;
use sluice_lcm::fuzzing::{Library, TypeBody, fingerprints, parse};
use sluice_model::{Codec, PayloadType};

use crate::messages::random_types::{Random, RandomTypes};

pub(crate) fn files(files: &[(&str, &str)]) -> Vec<TypeFile> {
    let file = |(path, text): &(&str, &str)| TypeFile { path: path.into(), text: (*text).into() };
    files.iter().map(file).collect()
}

/// The fingerprint of the only type of this name.
fn print(texts: &[(&str, &str)], name: &str) -> u64 {
    let codec = LcmCodec::from_files(files(texts), 1);
    assert!(codec.mistakes().is_empty(), "{}", codec.mistakes().join("\n"));
    let found: Vec<_> =
        codec.types().iter().filter(|known| &*known.message_type.name == name).collect();
    assert_eq!(found.len(), 1, "{name}");
    found[0].message_type.key.0
}

fn mistakes(text: &str) -> Vec<String> {
    let codec = LcmCodec::from_files(files(&[("types.lcm", text)]), 1);
    codec.mistakes().to_vec()
}

#[test]
fn fingerprints_of_known_types() {
    // Those of lcm-gen 1.5.3.
    let pose = "package lcmtypes; struct pose_t { int64_t utime; double pos[3]; double vel[3]; \
        double orientation[4]; double rotation_rate[3]; double accel[3]; }";
    assert_eq!(print(&[("pose.lcm", pose)], "lcmtypes.pose_t"), 0x2e16_efb0_52b0_105e);
    let laser = "struct laser_t { int64_t utime; int32_t nranges; float ranges[nranges]; \
        int32_t nintensities; float intensities[nintensities]; float rad0; float radstep; }";
    assert_eq!(print(&[("laser.lcm", laser)], "laser_t"), 0xe3d1_7423_180b_5e8d);
}

#[test]
fn the_name_of_a_type_and_its_package_are_not_in_its_fingerprint() {
    let plain = print(&[("a.lcm", "struct t { int32_t x; }")], "t");
    assert_eq!(print(&[("a.lcm", "package p.q; struct other { int32_t x; }")], "p.q.other"), plain);
    assert_ne!(print(&[("a.lcm", "struct t { int32_t y; }")], "t"), plain);
    assert_ne!(print(&[("a.lcm", "struct t { int32_t x[1]; }")], "t"), plain);
}

#[test]
fn sizes_are_in_a_fingerprint_as_they_are_written() {
    let of = |size: &str| print(&[("a.lcm", &format!("struct t {{ int8_t x[{size}]; }}"))], "t");
    assert_ne!(of("16"), of("0x10"));
    assert_ne!(of("16"), of("020"));
    let constant = "struct t { const int32_t N = 0x10; int8_t x[N]; }";
    assert_eq!(print(&[("a.lcm", constant)], "t"), of("0x10"));
}

#[test]
fn a_dotted_name_of_a_type_holds_for_that_type_only() {
    let dotted = [("a.lcm", "struct a.b_t { int8_t x; } struct c_t { a.b_t b; }")];
    let spelled = [("a.lcm", "package a; struct b_t { int8_t x; } struct c_t { b_t b; }")];
    assert_eq!(print(&dotted, "c_t"), print(&spelled, "a.c_t"));
}

#[test]
fn types_that_hold_each_other_have_fingerprints() {
    let text = "struct a { int32_t n; b list[n]; } struct b { int32_t n; a list[n]; b more[n]; }";
    let (a, b) = (print(&[("t.lcm", text)], "a"), print(&[("t.lcm", text)], "b"));
    assert_ne!(a, b);
}

#[test]
fn a_file_without_a_package_does_not_take_over_the_one_before() {
    let texts =
        [("a.lcm", "package p; struct a_t { int8_t x; }"), ("b.lcm", "struct b_t { int8_t x; }")];
    assert_eq!(print(&texts, "b_t"), print(&texts, "p.a_t"));
}

#[test]
fn what_a_member_means_is_the_nearest_version() {
    let outer = "package p; struct outer_t { inner_t inner; }";
    let texts = [
        ("old/inner.lcm", "package p; struct inner_t { int8_t x; }"),
        ("old/outer.lcm", outer),
        ("new/inner.lcm", "package p; struct inner_t { int16_t x; }"),
        ("new/outer.lcm", outer),
    ];
    let codec = LcmCodec::from_files(files(&texts), 1);
    assert!(codec.mistakes().is_empty());
    let outers = codec.types().iter().filter(|known| &*known.message_type.name == "p.outer_t");
    let prints: Vec<u64> = outers.map(|known| known.message_type.key.0).collect();
    assert_eq!(prints.len(), 2);
    assert_ne!(prints[0], prints[1]);
}

#[test]
fn two_versions_that_are_as_near_are_a_mistake_unless_they_are_the_same() {
    let outer = ("c/outer.lcm", "struct outer_t { inner_t inner; }");
    let one = ("a/inner.lcm", "struct inner_t { int8_t x; }");
    let other = ("b/inner.lcm", "struct inner_t { int16_t x; }");
    let codec = LcmCodec::from_files(files(&[one, other, outer]), 1);
    assert!(codec.mistakes()[0].contains("is ambiguous"), "{:?}", codec.mistakes());
    let same = ("b/inner.lcm", "struct inner_t { int8_t x; /* the same */ }");
    assert!(LcmCodec::from_files(files(&[one, same, outer]), 1).mistakes().is_empty());
}

#[test]
fn every_mistake_is_shown_with_its_place() {
    let text = "\
package a.b
struct x_t {
   uint8_t q[5];
   int32_t n; float x[m]; double y[n], y;
   const int8_t K = 300;
   struct inside { int8_t z; }
   string s[q];
}
enum e { A, B=5, C, D=6 };
struct nearly_t { x_tt other; }
";
    let shown = mistakes(text).join("\n\n");
    let places = [
        ("2:1", "expected `;` after the package name, found `struct`"),
        ("4:23", "`m` is neither a number nor declared above"),
        ("4:40", "`y` is declared twice"),
        ("5:21", "`300` is not a valid int8_t"),
        ("6:4", "a struct inside a struct"),
        ("9:21", "another value of this enum has the name `D` or the number 6"),
        ("10:19", "no type `a.b.x_tt`"),
    ];
    for (place, what) in places {
        assert!(shown.contains(&format!("types.lcm:{place}\n")), "{place}:\n{shown}");
        assert!(shown.contains(what), "{what}:\n{shown}");
    }
}

#[test]
fn mistakes_are_reported_with_what_to_do() {
    for (text, help) in [
        ("struct t { uint8_t x; }", "the language has `byte`"),
        ("struct t { int x; }", "the language has `int32_t`"),
        ("package p; struct a_t { int8_t x; } package q; struct t { a_t x; }", "there is `p.a_t`"),
        ("struct point_t { int8_t x; } struct t { pont_t x; }", "did you mean `point_t`?"),
        ("struct t { int8_t x; };", "remove it"),
        ("struct t { int8_t x[0]; }", "sizes range from 1"),
        ("struct t { double n; int8_t x[n]; }", "counted by a single int8_t"),
        ("struct t { const string S = a; }", "constants are int8_t"),
        ("struct t { int8_t 2x; }", "names start with a letter"),
        ("struct t { int8_t x;", "found the end of the file"),
        ("struct double { int8_t x; }", "choose another name"),
        ("struct t { const int32_t N = -1; int8_t x[N]; }", "sizes are integers from 0"),
        ("struct t { int8_t x; } struct t { int8_t y; }", "declared twice in this file"),
    ] {
        let shown = mistakes(text);
        assert!(shown.iter().any(|mistake| mistake.contains(help)), "{text}: {shown:?}");
    }
}

#[test]
fn what_lcm_gen_reads_is_read() {
    for text in [
        "",
        "// nothing\n/* nothing */ /* left open",
        "\u{feff}package a.b.c;\r\nstruct t{int8_t x;}struct u{}//end",
        "struct t { int8_t a-b, größe, _x[2][0x3][010]; string s; }",
        "struct t { const int64_t A = -0x7f, B=017; const double C = 1e-5; const float D = -2.5; }",
        "struct t { const int8_t N = 3; int16_t n; float x[n][N][2]; t others[n]; }",
        "enum e { A, B; C = -5 D, E = 0x20 }",
        "struct t { int32_t x[3abc]; }",
        "struct t { e x; u y[2]; } enum e { A } struct u { }",
    ] {
        assert_eq!(mistakes(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn values_of_enums_go_on_above_the_greatest() {
    let (declared, mistakes) = parse("enum e { A, B = 5, C, D = -7, E }");
    assert!(mistakes.is_empty());
    let TypeBody::Enum(values) = &declared[0].body else { panic!("an enum") };
    let numbers: Vec<i32> = values.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, [1, 5, 6, -7, 7]);
}

#[test]
fn hostile_types_cost_little() {
    let mut doubling = String::from("struct t0 { int8_t x; }");
    for n in 1..60 {
        doubling += &format!("struct t{n} {{ t{m} a; t{m} b; }}", m = n - 1);
    }
    let codec = LcmCodec::from_files(files(&[("doubling.lcm", &doubling)]), 1);
    assert!(codec.mistakes().is_empty());
    let last = codec.types().iter().find(|known| &*known.message_type.name == "t59").unwrap();
    assert!(last.payload_type.as_ref().unwrap_err().contains("columns"), "{:?}", last.payload_type);

    let mut chain = String::from("struct t0 { int8_t x; }");
    for n in 1..20_000 {
        chain += &format!("struct t{n} {{ t{m} a; }}", m = n - 1);
    }
    let library = Library::from_files(files(&[("chain.lcm", &chain)]));
    assert!(fingerprints(&library).iter().all(Result::is_ok));

    let mut tangle = String::new();
    for n in 0..30 {
        let members: String = (0..30).map(|m| format!("t{m} m{m}[n]; ")).collect();
        tangle += &format!("struct t{n} {{ int32_t n; {members} }}");
    }
    assert!(mistakes(&tangle)[0].contains("too many types contain each other"));

    let endless = "struct t { t self; }";
    assert!(mistakes(endless).is_empty());
    let wide: String = (0..5000).map(|n| format!("int8_t m{n};")).collect();
    assert!(mistakes(&format!("struct t {{ {wide} }}")).is_empty());
    assert!(mistakes(&"struct t { int8_t x[".repeat(10_000)).len() <= 101);
    let booleans = "struct t { boolean x[2000000000]; }";
    assert!(mistakes(booleans).is_empty());
    let lines: String = (0..60_000).map(|n| format!("struct t{n} {{ int8_t x; }}\n")).collect();
    assert!(mistakes(&lines).is_empty());
    let members: String = (0..1900).map(|n| format!("int8_t m{n}; ")).collect();
    let wide: String = (0..3000).map(|n| format!("struct s{n} {{ w x; }} ")).collect();
    let codec = LcmCodec::from_files(
        files(&[("wide.lcm", &format!("struct w {{ {members} }} {wide}"))]),
        1,
    );
    let mut refused = codec.types().iter().filter_map(|known| known.payload_type.as_ref().err());
    assert!(refused.next_back().unwrap().contains("too many columns in total"));
    let huge = "struct t { double x[2147483647][2147483647]; }";
    let codec = LcmCodec::from_files(files(&[("huge.lcm", huge)]), 1);
    assert!(codec.types()[0].payload_type.as_ref().unwrap_err().contains("2 GiB"));
}

/// The type of this name with these columns, made again from its description, and the description.
fn described(texts: &[(&str, &str)], name: &str) -> (PayloadType, PayloadType, String) {
    let codec = LcmCodec::from_files(files(texts), 1);
    let known = codec.types().iter().find(|known| &*known.message_type.name == name).unwrap();
    let form = known.payload_type.clone().unwrap();
    let other = LcmCodec::from_files(Vec::new(), 1);
    let again = other.adopt(&known.message_type, form.schema()).unwrap();
    (form, again, known.message_type.text.to_string())
}

#[test]
fn a_type_that_has_two_versions_of_a_name_in_it_describes_both() {
    let texts = [
        ("old/p.lcm", "package p; struct pt_t { double x; } enum e_t { A = 1 }"),
        ("old/q.lcm", "package q; struct c_t { p.pt_t w; p.e_t e; }"),
        (
            "new/p.lcm",
            "package p; struct pt_t { double x; double y; } enum e_t { A = 1, B = 2 }
            struct version2 { byte a; }
            struct a_t { pt_t p; e_t e; int32_t k; q.c_t c; q.c_t n[k]; version2 v; }",
        ),
    ];
    let (form, again, text) = described(&texts, "p.a_t");
    assert_eq!(again.schema(), form.schema());
    assert_eq!(again.message_type().key, form.message_type().key);
    assert_eq!(text.matches("pt_t {").count(), 2, "{text}");
}

#[test]
fn a_type_is_described_without_its_constants_if_there_are_too_many() {
    let constants: String =
        (1..6_000).map(|n| format!("const int64_t {}_{n} = {n};\n", "LONG".repeat(50))).collect();
    let text =
        format!("struct t {{ {constants} const int32_t NONE = 0; int8_t a[NONE]; int8_t b; }}");
    let (form, again, text) = described(&[("t.lcm", &text)], "t");
    assert_eq!(again.schema(), form.schema());
    assert!(text.contains("NONE = 0") && !text.contains("LONG"), "{text}");
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(struct|enum|package|const|int8_t|t|n|[{}\\[\\];,=]|[0-9x\\-]{1,3}|ü|/\\*|//|\\PC| |\n){0,60}") {
        let codec = LcmCodec::from_files(files(&[("any.lcm", &text)]), 1);
        prop_assert!(codec.types().len() <= text.len());
    }

    #[test]
    fn the_description_of_a_type_declares_the_same_messages(seed in any::<u64>()) {
        let types = RandomTypes::random(&mut Random(seed));
        let codec = LcmCodec::from_files(files(&[("made/up.lcm", &types.text())]), 1);
        prop_assert!(codec.mistakes().is_empty(), "{:?}\n{}", codec.mistakes(), types.text());
        for known in codec.types() {
            let columns = known.payload_type.as_ref().unwrap().schema();
            let again = codec.adopt(&known.message_type, columns).map_err(TestCaseError::fail)?;
            prop_assert_eq!(again.schema(), columns);
        }
    }
}
