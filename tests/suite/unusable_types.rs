//! Folders of type files, some with mistakes: the others are used, and the unusable ones are
//! reported.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use crate::kit::{BEGIN, Folder, LcmEvent, ProgramOutput, log, run_sluice};

fn types(folder: &Folder, name: &str, text: &str) {
    let path = folder.at(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A folder `types` with a usable type, one that refers to a missing package, one that contains
/// that one, and a file that is not a type file; and a log with one event of each type.
fn mixed() -> Folder {
    let folder = Folder::new();
    types(&folder, "alone/good.lcm", "package p;\nstruct good_t { int32_t x; }\n");
    let output = run_sluice(&folder, &["types", "alone", "--json"]).expect(0).text();
    let output: Value = serde_json::from_str(output.trim()).unwrap();
    let key = u64::from_str_radix(output["fingerprint"].as_str().unwrap(), 16).unwrap();
    types(&folder, "types/good.lcm", "package p;\nstruct good_t { int32_t x; }\n");
    let lost = "package p;\nstruct beside_t { int32_t a; }\nstruct lost_t { absent.thing_t t; }\n";
    types(&folder, "types/lost.lcm", lost);
    types(&folder, "types/outer.lcm", "package p;\nstruct outer_t { p.lost_t l; }\n");
    types(&folder, "types/text.lcm", "Dear reader,\n");
    let good = [&key.to_be_bytes()[..], &7i32.to_be_bytes()].concat();
    let other = 42u64.to_be_bytes();
    let events =
        [LcmEvent::new(0, BEGIN, "GOOD", &good), LcmEvent::new(1, BEGIN + 1_000, "OTHER", &other)];
    folder.write("in.lcm", log(&events));
    folder
}

/// The messages about the folder `types` on standard error: each file once.
fn expect_each_message_once(ran: &ProgramOutput) {
    let output = &ran.stderr;
    for says in [
        "types/lost.lcm: `p.lost_t` cannot be used: no type `absent.thing_t` (type in line 3)",
        "types/outer.lcm: `p.outer_t` cannot be used: it holds `p.lost_t`, which cannot be used",
        "types/text.lcm: its types cannot be used: ",
    ] {
        assert_eq!(output.matches(says).count(), 1, "{says}\n{output}");
    }
    assert!(!output.contains("good_t") && !output.contains("beside_t"), "{output}");
}

#[test]
fn a_file_whose_name_is_not_utf_8_is_named() {
    let folder = mixed();
    fs::write(folder.at("types").join(OsStr::from_bytes(b"Gr\xfcn.lcm")), "struct a {}\n").unwrap();
    for arguments in [
        &["types", "types"][..],
        &["info", "in.lcm", "--types", "types"],
        &["convert", "in.lcm", "--types", "types/*.lcm", "--to", "out.jsonl"],
    ] {
        let message = run_sluice(&folder, arguments).expect(2).stderr;
        assert!(message.contains("n.lcm is not UTF-8; rename it"), "{message}");
    }
}

#[test]
fn one_file_that_names_an_absent_package_does_not_cost_the_others() {
    let folder = mixed();
    let arguments =
        ["convert", "in.lcm", "--types", "types", "--to", "out.jsonl", "--report", "report.json"];
    expect_each_message_once(&run_sluice(&folder, &arguments).expect(0));
    let lines = String::from_utf8(folder.read("out.jsonl")).unwrap();
    assert!(lines.contains(r#""fields":{"x":7}"#), "{lines}");
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    let notes = report["notes"].as_array().unwrap();
    let of_types = notes.iter().filter(|note| note["what"].to_string().contains("cannot be used"));
    assert_eq!(of_types.count(), 3, "{notes:?}");
    for arguments in [
        &["cat", "in.lcm", "--types", "types", "--json"][..],
        &["cat", "in.lcm", "--types", "types/*.lcm", "--json"],
    ] {
        let shown = run_sluice(&folder, arguments).expect(0);
        expect_each_message_once(&shown);
        assert!(shown.text().contains(r#""fields":{"x":7}"#), "{}", shown.text());
    }
    // Types are reported once, even for many files.
    folder.write("again.lcm", folder.read("in.lcm"));
    let info = run_sluice(&folder, &["info", "in.lcm", "again.lcm", "--types", "types"]).expect(0);
    expect_each_message_once(&info);
    assert!(info.text().contains("p.good_t"), "{}", info.text());
}

#[test]
fn types_still_fails_and_lists_the_others() {
    let folder = mixed();
    let listed = run_sluice(&folder, &["types", "types"]).expect(2);
    assert!(listed.text().contains("p.good_t") && listed.text().contains("p.beside_t"));
    assert!(listed.stderr.contains("types/lost.lcm:3:"), "{}", listed.stderr);
}

#[test]
fn a_file_that_is_named_itself_has_to_be_right() {
    let folder = mixed();
    let ran = |types: &[&str]| {
        let mut arguments = vec!["cat", "in.lcm"];
        types.iter().for_each(|path| arguments.extend(["--types", path]));
        run_sluice(&folder, &arguments)
    };
    let refused = ran(&["types", "types/lost.lcm"]).expect(2);
    assert!(refused.stderr.contains("types/lost.lcm:3:"), "{}", refused.stderr);
    // This one is valid; the type it contains is not, and is in the folder.
    expect_each_message_once(&ran(&["types", "types/outer.lcm"]).expect(0));
    // Without any usable type, the command fails.
    fs::remove_file(folder.at("types/good.lcm")).unwrap();
    types(&folder, "types/lost.lcm", "package p;\nstruct lost_t { absent.thing_t t; }\n");
    ran(&["types"]).expect(2);
}

#[test]
fn a_pipeline_is_right_and_says_which_types_it_cannot_use() {
    let folder = mixed();
    let decode = |types: &str| {
        format!(
            "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\n[stages.typed]\nplugin = \
             \"decode\"\nfrom = \"log\"\ntypes = [{types}]\n\n[sinks.out]\nplugin = \"jsonl\"\n\
             from = \"typed\"\npath = \"piped.jsonl\"\n"
        )
    };
    folder.write("folder.toml", decode("\"types\""));
    let checked = run_sluice(&folder, &["check", "folder.toml"]).expect(0);
    assert!(checked.text().contains("typed: "), "{}", checked.text());
    assert!(checked.text().contains("`p.lost_t` cannot be used"), "{}", checked.text());
    expect_each_message_once(&run_sluice(&folder, &["run", "folder.toml"]).expect(0));
    folder.write("named.toml", decode("\"types\", \"types/lost.lcm\""));
    run_sluice(&folder, &["check", "named.toml"]).expect(2);
}

#[test]
fn files_of_other_languages_do_not_cost_the_others_either() {
    let folder = mixed();
    types(&folder, "types/a.ice", "module m { struct GoodData { int i; }; };\n");
    types(&folder, "types/b.ice", "module m { struct BadData { Missing n; }; };\n");
    types(&folder, "types/c.ice", "module m { class Child extends BadBase {}; };\n");
    let message = |version: i32, fields: &str| {
        format!("[[messages]]\nname = \"AM\"\nversion = {version}\nfields = [{fields}]\n")
    };
    types(&folder, "types/a.veltypes", &message(1, "{ name = \"a\", type = \"u8\" }"));
    types(&folder, "types/b.veltypes", &message(1, "{ name = \"b\", type = \"u16\" }"));
    types(&folder, "types/c.veltypes", "[[messages]]\nname = 3\n");
    let good = "[[messages]]\nname = \"GoodM\"\nversion = 1\nfields = []\n";
    types(&folder, "types/d.veltypes", good);
    let shown = run_sluice(&folder, &["cat", "in.lcm", "--types", "types", "--json"]).expect(0);
    expect_each_message_once(&shown);
    for says in [
        "types/b.ice: `m.BadData` cannot be used: unknown type `Missing` (type in line 1)",
        "types/c.ice: `m.Child` cannot be used: unknown type `BadBase`",
        "version 1 of `AM` has conflicting declarations",
        "types/c.veltypes: its types cannot be used: ",
    ] {
        assert!(shown.stderr.contains(says), "{says}\n{}", shown.stderr);
    }
    assert!(!shown.stderr.contains("GoodM") && !shown.stderr.contains("GoodData"));
}
