//! Name resolution, and the mistakes for names that cannot be resolved.

use sluice_kit::type_library::MAX_SHOWN;

use super::*;

fn library(files: &[(&str, &str)]) -> SliceLibrary {
    let file =
        |(path, text): &(&str, &str)| TypeFile { path: path.into(), text: (*text).to_owned() };
    SliceLibrary::from_files(files.iter().map(file).collect())
}

fn id(library: &SliceLibrary, name: &str, file: &str) -> TypeId {
    let is_it = |id: &TypeId| library.name(*id) == name && library.file_of(*id) == Path::new(file);
    library.ids().find(is_it).unwrap()
}

#[test]
fn names_resolve_to_their_file_then_its_includes_then_the_only_type() {
    let library = library(&[
        ("a/time.ice", "module m { struct T { int a; }; };"),
        ("a/use.ice", "#include <x/time.ice>\nmodule m { struct U { T t; Only o; }; };"),
        ("b/time.ice", "module m { struct T { int b; }; };"),
        ("b/use.ice", "#include \"time.ice\"\nmodule m { struct U { T t; }; };"),
        ("b/own.ice", "module m { struct T { int c; }; struct V { T t; }; };"),
        ("c.ice", "struct T { int d; }; module m { module n { struct Only { ::T t; }; }; };"),
        ("d.ice", "module m { struct Only { int i; }; };"),
    ]);
    assert!(library.mistakes().is_empty(), "{:?}", library.mistakes());
    let used = |name, file| library.file_of(library.get(id(&library, name, file)).uses[0].unwrap());
    assert_eq!(used("::m::U", "a/use.ice"), Path::new("a/time.ice"));
    assert_eq!(used("::m::U", "b/use.ice"), Path::new("b/time.ice"));
    assert_eq!(used("::m::V", "b/own.ice"), Path::new("b/own.ice"));
    assert_eq!(used("::m::n::Only", "c.ice"), Path::new("c.ice"));
}

#[test]
fn unresolved_names_are_reported_with_their_position() {
    let library = library(&[
        ("a.ice", "module m { struct T { int a; }; };"),
        ("b.ice", "module m { struct T { int b; }; };"),
        ("c.ice", "module m {\n  struct U { T t; Nothing n; };\n  struct U { int i; };\n};"),
        ("d.ice", "module x { struct W { q::T t; }; };"),
    ]);
    let all = library.mistakes().join("\n");
    for expected in [
        "c.ice:2:14",
        "`::m::T` is ambiguous",
        "a.ice and b.ice",
        "unknown type `Nothing`",
        "`::m::U` is declared twice in this file",
        "c.ice:3:10",
        "there is `::m::T`",
    ] {
        assert!(all.contains(expected), "{expected} is not in\n{all}");
    }
    assert!(library.is_sound(id(&library, "::m::T", "a.ice")));
    assert!(!library.is_sound(id(&library, "::m::U", "c.ice")));
}

#[test]
fn mistakes_on_long_lines_are_reported_by_position() {
    let text = format!("struct S {{\n ü x; {}\n b y; }};", "ä c; ".repeat(90_000));
    let all = library(&[("a.ice", "struct T { q r; };"), ("b.ice", &text)]).mistakes();
    assert_eq!(all.len(), MAX_SHOWN + 1);
    assert!(all[0].contains("a.ice:1:12") && all[0].contains("struct T { q r; };"));
    assert!(all[1].ends_with("--> b.ice:2:2") && all[2].ends_with("--> b.ice:2:7"), "{}", all[2]);
    assert!(all.iter().all(|mistake| mistake.len() < 400), "{}", all[1]);
    assert_eq!(all[MAX_SHOWN], "and at least 101 more mistakes");
    let short = "struct S { q r; }; ".repeat(2);
    assert_eq!(library(&[("a.ice", &short)]).mistakes().len(), 2);
}

#[test]
fn a_file_full_of_mistakes_is_abandoned() {
    for piece in ["module m {", "/**/} ", "class C extends C {};", "struct S { q r; };\n"] {
        let library = library(&[("a.ice", &piece.repeat(90_000))]);
        assert_eq!(library.mistake_count(), MAX_MISTAKES, "{piece}");
        assert_eq!(library.mistakes().len(), MAX_SHOWN + 1);
    }
}

#[test]
fn classes_extend_classes_and_never_themselves() {
    let wrong = |text| library(&[("a.ice", text)]).mistakes().join("\n");
    assert!(wrong("class A extends B {}; class B extends A {};").contains("extends itself"));
    assert!(wrong("struct S { int i; }; class A extends S {};").contains("`::S` is not a class"));
    assert!(wrong("class A extends int {};").contains("this is not a class"));
    assert!(wrong("class A { int i; }; class B extends A { int i; };").contains("and its base"));
}

#[test]
fn derived_classes_are_known_by_name() {
    let library = library(&[(
        "a.ice",
        "class A { int a; }; class C extends A { int c; }; class B extends C { int b; };",
    )]);
    let names: Vec<&str> =
        library.derived(id(&library, "::A", "a.ice")).iter().map(|id| library.name(*id)).collect();
    assert_eq!(names, ["::B", "::C"]);
    assert_eq!(library.ancestry(id(&library, "::B", "a.ice")).len(), 3);
}
