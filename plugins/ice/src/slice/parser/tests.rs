use proptest::prelude::*;

use super::*;
use crate::slice::syntax::TypeRef;

fn read(text: &str) -> SliceFile {
    let (unit, mistakes) = parse(text);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    unit
}

fn wrong(text: &str) -> Vec<String> {
    parse(text).1.into_iter().map(|mistake| mistake.message).collect()
}

#[test]
fn declarations_that_do_not_affect_records_are_skipped() {
    let unit = read(
        r#"#ifndef A
        #define A
        #include <orca/common.ice>
        #include "other.ice"
        [["java:package:x"]]
        module a { module b {
            class Forward;
            const string Text = "}; \" ;";
            const int Five = 5;
            local interface I extends J {
                void f(int a, out string b) throws E; ["x"] int g(); };
            exception E { string why = "none"; };
            interface Later;
            ["log:X", "other"] class C(5) extends ::a::D implements I {
                ["protected"] int x = 3;
                idempotent string name();
                void f();
                double \int;
            };
            ["log:X:config"] struct S { bool b; C* p; Object o; optional(1) int q; };
        }; };
        #endif"#,
    );
    assert_eq!(unit.includes, ["orca/common.ice", "other.ice"]);
    let names: Vec<&str> = unit.declarations.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["::a::b::I", "::a::b::E", "::a::b::C", "::a::b::S"]);
    assert_eq!(unit.declarations[2].metadata, ["log:X", "other"]);
    let DeclarationBody::Class { base, members } = &unit.declarations[2].body else { panic!() };
    let named = &base.as_ref().unwrap().target;
    let (name, scope) = ("::a::D".to_owned(), "::a::b".into());
    assert_eq!(*named, TypeRef::Declared { name, scope });
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["x", "int"]);
    let DeclarationBody::Struct(members) = &unit.declarations[3].body else { panic!() };
    assert!(members[1..].iter().all(|m| matches!(m.type_name.target, TypeRef::Unsupported(_))));
}

#[test]
fn enum_values_continue_from_explicit_ones() {
    let unit = read("enum E { a, b = 5, c, d = 0x10, }; enum F { x };");
    let DeclarationBody::Enum(values) = &unit.declarations[0].body else { panic!() };
    let numbers: Vec<i32> = values.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, [0, 5, 6, 16]);
    assert_eq!(wrong("enum E { a = 1, b = 0, c };").len(), 1);
    assert_eq!(wrong("enum E { a = -1 };"), ["an invalid value of an enum"]);
    assert_eq!(wrong("enum E { };"), ["an enum without values"]);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let all = wrong(
        "module m {
            struct S { int 1x; float y; float y; };
            sequence int> Q;
            class C { int x }
            struct NoMembers { };
            nonsense;
            dictionary<string> D;
        };
        }
        module open {",
    );
    let expected = [
        "expected the member's name, found `1x`",
        "`y` is declared twice here",
        "expected `<` after `sequence`, found `int`",
        "expected `;` after a member, found `}`",
        "a struct without members",
        "expected a declaration, found `nonsense`",
        "expected `,` after the type of the keys, found `>`",
        "an unmatched `}`",
        "expected the `}` of a module, found the end of the file",
    ];
    assert_eq!(all, expected);
}

#[test]
fn an_incomplete_declaration_is_a_mistake() {
    for text in ["module", "struct S", "struct S {", "struct S { int", "class C(", "[", "[\"x\""] {
        assert!(!wrong(text).is_empty(), "{text}");
    }
    assert!(wrong(&"module a {".repeat(40))[0].contains("more than 32"));
    assert!(wrong(&format!("module {} {{", "a".repeat(999)))[0].contains("longer than 1000"));
    assert!(wrong(&format!("struct {}", "a".repeat(1001)))[0].contains("longer than 1000"));
}

#[test]
fn an_unclosed_comment_is_reported_as_such() {
    for text in ["/* open", "struct X { int a; /* ", "module m { interface I { /* } };", "[ /*"] {
        let (_, mistakes) = parse(text);
        let messages: Vec<&str> = mistakes.iter().map(|one| one.message.as_str()).collect();
        assert_eq!(messages, ["an unclosed comment"], "{text}");
        assert_eq!(text.get(mistakes[0].span.clone()), Some("/*"));
    }
}

#[test]
fn the_number_of_mistakes_is_limited() {
    for piece in ["module m {", "} ", "struct S { int 1x; };", "enum E {};"] {
        assert_eq!(wrong(&piece.repeat(1_000)).len(), MAX_MISTAKES, "{piece}");
    }
    let word = "ü".repeat(1 << 20);
    assert!(wrong(&word).iter().all(|message| message.len() < 200 && message.contains("üü…`")));
    assert!(wrong(&format!("struct S {{ {word} x; }};")).iter().all(|message| message.len() < 200));
}

#[test]
fn a_small_text_with_long_names_does_not_use_much_memory() {
    let long = format!("module {} {{", "a".repeat(990));
    let enums: String = (0..40_000).map(|n| format!("enum E{n} {{ a }};")).collect();
    let (unit, mistakes) = parse(&(long + &enums + "};"));
    assert!(mistakes[0].message.starts_with("type names that are longer"), "{mistakes:?}");
    assert_eq!(mistakes.len(), 1);
    let names: usize = unit.declarations.iter().map(|declared| declared.name.len()).sum();
    assert!(names <= MAX_TOTAL_NAMES);
}

proptest! {
    #[test]
    fn no_text_is_too_much(text in "\\PC{0,200}") {
        parse(&text);
    }

    #[test]
    fn no_pieces_are_too_much(pieces in prop::collection::vec(0..30_usize, 0..60)) {
        let words = [
            "module", "struct", "class", "enum", "sequence", "dictionary", "interface",
            "{", "}",
            "<", ">", ";", ",", "(", ")", "[", "]", "\"x\"", "=", "int", "a", "::a::B",
            "extends",
            "/*", "*", "5", "#include \"x\"\n", "void", "optional", "const",
        ];
        let text: Vec<&str> = pieces.into_iter().map(|at| words[at]).collect();
        parse(&text.join(" "));
    }
}
