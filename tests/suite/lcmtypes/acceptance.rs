//! lcm-gen and `sluice types` accept and reject the same type declarations, except for those listed
//! here with a reason.

use std::process::Command;

use super::peer::Peer;
use crate::kit::{Folder, run_sluice};

/// Texts that both accept.
const BOTH_TAKE: &[&str] = &[
    "",
    "\n\t \r\n\x0b\x0c",
    "// nothing but this\n",
    "/* nothing but this */",
    "/* left open",
    "/* not /* nested */ package p;",
    "package p;",
    "package a.b.c; package d;",
    "package 5; package a..b; package -;",
    "struct t { }",
    "struct t\n{\n}\n",
    "struct t { int8_t a;}",
    "struct t { int8_t a;} struct u { t a; }",
    "struct t { int8_t a; int8_t b, c, d; }",
    "struct t\t{\tint8_t\ta\t;\t}",
    "struct t\r\n{\r\n    int8_t a;\r\n}\r\n",
    "struct t { int8_t struct, enum, const, package, int8_t, string; }",
    "struct struct { int8_t a; } struct enum { struct.x a; } struct struct.x { }",
    "struct t { int8_t _, __a, A9, a-b, a.b, a?, größe; }",
    "struct t { int8_t a // comment\n; // comment\n}",
    "struct /* a */ t /* b */ { /* c */ int8_t /* d */ a /* e */ [ /* f */ 3 /* g */ ] ; /* h */ }",
    "struct t { int8_t a[3]; string b[0x10][010]; double c[7ul]; }",
    "struct t { int8_t a[2147483647]; }",
    "struct t { int8_t n; int16_t m; int32_t o; int64_t p; byte a[n][m][o][p]; }",
    "struct t { int32_t n, a[n], b[n][2], c[2][n]; }",
    "struct t { const int32_t N = 3; int8_t a[N]; }",
    "struct t { const int8_t A = 1, B = 2; const int64_t C = 0x3; int8_t a[A][B][C]; }",
    "struct t { int8_t a; const int8_t B = -128, C=127, D = 0x7F, E = -0x80, F = 0177; }",
    "struct t { const int16_t A = -32768, B = 32767; const int32_t C = -2147483648; }",
    "struct t { const int64_t A = -9223372036854775808, B = 0x7fffffffffffffff; }",
    "struct t { const float A = 1, B = -1.5, C = .5, D = 5., E = 1e10, F = 1E-10, G = 3.4e38; }",
    "struct t { const double A = 1e308, B = 0x1p4, C = 0x.8p-1, D = inf, E = -INF, F = nan; }",
    "struct t { const double A = infinity, B = 1e999, C = 0x10, D = -0x1.8; }",
    "struct t { const int32_t ZERO = 0; int8_t a[ZERO]; }",
    "struct t { t a; }",
    "struct t { int8_t n; t a[n]; }",
    "package p; struct t { u a; p.u b; } struct u { int8_t a; }",
    "struct a.b { int8_t x; } struct c { a.b x; d y; } struct d { int8_t x; }",
    "struct t { int8_t a; } struct p.t { int8_t a; } package p; struct u { t a; }",
    "enum e { A }",
    "enum e { }",
    "enum e { A, B, C }",
    "enum e { A, B, C, }",
    "enum e { A; B; C; }",
    "enum e { A B C }",
    "enum e { A = 5, B, C = -3, D = 0x10, E = 010 }",
    "enum e { A = -2147483648, B = 2147483647 }",
    "enum e { a-b, 5, ä } struct t { e a; e b[3]; }",
    "enum e { A /* a */ , /* b */ B // c\n }",
];

/// Texts that both reject, and where `sluice types` reports the first mistake.
const BOTH_REFUSE: &[(&str, &str)] = &[
    ("x", "1:1"),
    ("int8_t a;", "1:1"),
    (";", "1:1"),
    ("}", "1:1"),
    ("package", "1:8"),
    ("package p", "1:10"),
    ("package p struct t { }", "1:11"),
    ("typedef struct t { }", "1:1"),
    ("struct", "1:7"),
    ("struct t", "1:9"),
    ("struct t {", "1:11"),
    ("struct { int8_t a; }", "1:8"),
    ("struct t int8_t a; }", "1:10"),
    ("struct t { int8_t a; } ;", "1:24"),
    ("struct t { int8_t a; };", "1:23"),
    ("struct t { int8_t a; } }", "1:24"),
    ("struct t { int8_t a; ", "1:22"),
    ("struct t { int8_t a }", "1:21"),
    ("struct t { int8_t; }", "1:18"),
    ("struct t { int8_t a;; }", "1:21"),
    ("struct t { int8_t a b; }", "1:21"),
    ("struct t { int8_t a, ; }", "1:22"),
    ("struct t { int8_t 5a; }", "1:19"),
    ("struct t { int8_t -a; }", "1:19"),
    ("struct t { int8_t ä; }", "1:19"),
    ("struct t {\n    int8_t a;\n    int16_t a;\n}", "3:13"),
    ("struct t { int8_t a, b, a; }", "1:25"),
    ("struct t { const int8_t a = 1; int8_t a; }", "1:39"),
    ("struct t { int8_t a; const int8_t a = 1; }", "1:35"),
    ("struct t { const int8_t a = 1, a = 2; }", "1:32"),
    ("struct t { int8_t a[]; }", "1:21"),
    ("struct t { int8_t a[0]; }", "1:21"),
    ("struct t { int8_t a[-1]; }", "1:21"),
    ("struct t { int8_t a[0x]; }", "1:21"),
    ("struct t { int8_t a[08]; }", "1:21"),
    ("struct t { int8_t a[2147483648]; }", "1:21"),
    ("struct t { int8_t a[3; }", "1:22"),
    ("struct t { int8_t a]3]; }", "1:20"),
    ("struct t { int8_t a[3]]; }", "1:23"),
    ("struct t { int8_t a[2,3]; }", "1:22"),
    ("struct t { int8_t a[n]; }", "1:21"),
    ("struct t { int8_t a[n]; int32_t n; }", "1:21"),
    ("struct t { double n; int8_t a[n]; }", "1:31"),
    ("struct t { byte n; int8_t a[n]; }", "1:29"),
    ("struct t { boolean n; int8_t a[n]; }", "1:32"),
    ("struct t { string n; int8_t a[n]; }", "1:31"),
    ("struct t { int32_t n[2]; int8_t a[n]; }", "1:35"),
    ("enum e { A } struct t { e n; int8_t a[n]; }", "1:39"),
    ("struct t { int8_t a[N]; const int32_t N = 3; }", "1:21"),
    ("struct t { const double N = 3; int8_t a[N]; }", "1:41"),
    ("struct t { const int8_t A; }", "1:26"),
    ("struct t { const int8_t A = ; }", "1:29"),
    ("struct t { const int8_t A = x; }", "1:29"),
    ("struct t { const int8_t A = 128; }", "1:29"),
    ("struct t { const int8_t A = -129; }", "1:29"),
    ("struct t { const int16_t A = 0x8000; }", "1:30"),
    ("struct t { const int32_t A = 2147483648; }", "1:30"),
    ("struct t { const int32_t A = 1.5; }", "1:30"),
    ("struct t { const int32_t A = 08; }", "1:30"),
    ("struct t { const int32_t A = 5x; }", "1:30"),
    ("struct t { const int32_t A = +5; }", "1:30"),
    ("struct t { const int32_t A = --5; }", "1:30"),
    ("struct t { const int32_t A = '5'; }", "1:30"),
    ("struct t { const int8_t A[2] = 3; }", "1:26"),
    ("struct t { const double A = 1.5f; }", "1:29"),
    ("struct t { const double A = 1e+5; }", "1:29"),
    ("struct t { const double A = 0x1p; }", "1:29"),
    ("struct t { const double A = --5; }", "1:29"),
    ("struct t { const double A = x; }", "1:29"),
    ("struct t { const string A = \"a\"; }", "1:18"),
    ("struct t { const boolean A = 1; }", "1:18"),
    ("struct t { const byte A = 1; }", "1:18"),
    ("struct t { const u A = 1; } struct u { }", "1:18"),
    ("struct t { const int8_t 5 = 1; }", "1:25"),
    ("struct t { struct u { int8_t a; } a; }", "1:12"),
    ("struct t { enum e { A } a; }", "1:12"),
    ("struct t { int8_t a; } struct t { int8_t b; }", "1:31"),
    ("package p; struct t { } struct p.t { }", "1:32"),
    ("enum", "1:5"),
    ("enum e", "1:7"),
    ("enum e { A", "1:11"),
    ("enum e { A, A }", "1:13"),
    ("enum e { A = 1, B = 1 }", "1:17"),
    ("enum e { A = 2, B, C = 3 }", "1:20"),
    ("struct t { /* open", "1:19"),
];

/// Texts that only we accept, and why.
const ONLY_WE_TAKE: &[(&str, &str)] = &[
    ("struct t{ int8_t a; }", BRACES),
    ("struct t {int8_t a; }", BRACES),
    ("struct t {}", BRACES),
    ("struct t { }struct u { }", BRACES),
    ("enum e {A, B}", BRACES),
    ("struct t { } // the end", "it does not find the end of a comment that ends the file"),
    ("//", "it does not find the end of a comment that ends the file"),
    ("struct t// a\n{ }", COMMENT),
    ("struct t { int8_t a/* a */; }", COMMENT),
    ("enum /* a */ e { A }", "it takes a comment there for the enum's name"),
    ("\u{feff}struct t { }", "some editors put this mark in front of a file"),
    (
        "struct 5t { } struct u { 5t a; }",
        "it checks the first letter of types only where they are used",
    ),
    (
        "struct ät { } struct u { ät a; }",
        "it checks the first letter of types only where they are used",
    ),
    ("struct t { const float A = 1e39; }", FLOAT),
    ("struct t { const float A = inf; }", FLOAT),
];

const BRACES: &str = "it takes braces for parts of words";
const COMMENT: &str = "it wants space between a word and a comment";
const FLOAT: &str = "it checks the size of floats; nothing here is made of them";

/// Texts that only lcm-gen accepts, why, and where `sluice types` reports the first mistake.
const ONLY_LCM_GEN_TAKES: &[(&str, &str, &str)] = &[
    ("struct t { u a; }", UNKNOWN, "1:12"),
    ("package p; struct t { p.u a; }", UNKNOWN, "1:23"),
    ("struct u { } package p; struct t { u a; }", UNKNOWN, "1:36"),
    ("struct t { uint8_t a; }", UNKNOWN, "1:12"),
    ("struct t { int a; }", UNKNOWN, "1:12"),
    ("struct t { package p; }", UNKNOWN, "1:12"),
    ("struct a.b { b x; }", UNKNOWN, "1:14"),
    ("struct t { const int64_t A = 9223372036854775808; }", CUT, "1:30"),
    ("struct t { const int64_t A = -99999999999999999999; }", CUT, "1:30"),
    ("struct t { int8_t a[4294967297]; }", CUT, "1:21"),
    ("enum e { A = 4294967296 }", CUT, "1:14"),
    ("enum e { A = 2147483647, B }", CUT, "1:26"),
    ("struct t { const int32_t N = -3; int8_t a[N]; }", "no array has that size", "1:43"),
    ("struct int8_t { int8_t a; }", "nothing can hold what is called like this", "1:8"),
    (
        "struct t { int8_t a[a]; }",
        "it looks at its size before it knows that it is an array",
        "1:21",
    ),
    ("enum e { A = x }", "it takes this for 0", "1:14"),
    ("enum e { A = 5x }", "it takes this for 5", "1:14"),
    ("enum e { A, , B }", VALUE, "1:13"),
    ("enum e { A ,; B }", "one mark is enough", "1:13"),
    ("enum e { = 3 }", VALUE, "1:10"),
    ("enum e { \"A b\" }", VALUE, "1:10"),
    ("enum e { A } enum e { B }", TWICE, "1:19"),
    ("enum t { A } struct t { int8_t a; }", TWICE, "1:21"),
];

const UNKNOWN: &str =
    "it does not look for the types of members; its output has to be compiled first";
const CUT: &str = "it cuts numbers that are too long";
const VALUE: &str = "it calls a value by any mark";
const TWICE: &str = "it finds out that a name is used twice only for structs";

/// Whether lcm-gen accepts a text.
fn lcm_gen_accepts(peer: &Peer, folder: &Folder) -> bool {
    let generate = ["-p", "--ppath", "made", "text.lcm"];
    let output =
        Command::new(&peer.lcm_gen).args(generate).current_dir(folder.path()).output().unwrap();
    output.status.success()
}

/// Where `sluice types` reports the first mistake in a text; `None` if it accepts the text.
fn first_mistake(folder: &Folder) -> Option<String> {
    let output = run_sluice(folder, &["types", "text.lcm"]);
    if output.code == Some(0) {
        return None;
    }
    let output = output.expect(2);
    let place = output.stderr.split_once("--> text.lcm:").map(|(_, place)| place.lines().next());
    Some(place.flatten().expect("a place in the text").to_owned())
}

#[test]
fn texts_are_accepted_and_rejected_as_by_lcm_gen() {
    let peer = Peer::with("lcm");
    let folder = Folder::new();
    let take = BOTH_TAKE.iter().map(|text| (*text, true, None));
    let refuse = BOTH_REFUSE.iter().map(|(text, place)| (*text, false, Some(*place)));
    let only_we = ONLY_WE_TAKE.iter().map(|(text, _)| (*text, false, None));
    let only_they = ONLY_LCM_GEN_TAKES.iter().map(|(text, _, place)| (*text, true, Some(*place)));
    let mut wrong = Vec::new();
    for (text, they_take, place) in take.chain(refuse).chain(only_we).chain(only_they) {
        folder.write("text.lcm", text);
        let ours = first_mistake(&folder);
        if ours.as_deref() != place {
            wrong.push(format!("{text:?}: ours is {ours:?} and not {place:?}"));
        }
        if let Some(peer) = &peer
            && lcm_gen_accepts(peer, &folder) != they_take
        {
            wrong.push(format!("{text:?}: lcm-gen takes it: {}", !they_take));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In lcm-gen it does: the meaning of a file depends on previous files.
#[test]
fn a_package_ends_with_its_file() {
    let folder = Folder::new();
    folder.write("a.lcm", "package p; struct t { }");
    folder.write("b.lcm", "struct u { }");
    let output = run_sluice(&folder, &["types", "a.lcm", "b.lcm", "--json"]).expect(0).text();
    assert!(output.contains(r#"{"name":"p.t""#) && output.contains(r#"{"name":"u""#), "{output}");
    let Some(peer) = Peer::with("lcm") else { return };
    let debug = ["-d", "a.lcm", "b.lcm"];
    let output =
        Command::new(&peer.lcm_gen).args(debug).current_dir(folder.path()).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains("struct p.t ") && output.contains("struct p.u "), "{output}");
}

#[test]
fn comments_may_be_in_any_encoding_but_names_are_utf_8() {
    let folder = Folder::new();
    folder.write("text.lcm", b"// by M\xfcller\nstruct t { int8_t a; }\n");
    run_sluice(&folder, &["types", "text.lcm"]).expect(0);
    assert!(Peer::with("lcm").is_none_or(|peer| lcm_gen_accepts(&peer, &folder)));
    // lcm-gen accepts it; the bytes in the fingerprint would be a guess.
    folder.write("text.lcm", b"struct t { int8_t a\xfc; }\n");
    run_sluice(&folder, &["types", "text.lcm"])
        .expect(2)
        .expect_stderr("is not UTF-8")
        .expect_stderr("text.lcm:1:19");
    assert!(Peer::with("lcm").is_none_or(|peer| lcm_gen_accepts(&peer, &folder)));
}
