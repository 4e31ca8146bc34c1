//! Versions of a type, and types with one fingerprint.

use std::fs;

use serde_json::Value;

use super::{check_round_trip, fingerprint, logged, payload, types};
use crate::kit::{Folder, run_sluice};

#[test]
fn versions_of_a_type_are_decoded_side_by_side() {
    let folder = Folder::new();
    types(&folder, "types/old/pose.lcm", "package p; struct pose_t { int32_t x; }");
    types(&folder, "types/new/pose.lcm", "package p; struct pose_t { int32_t x; double y; }");
    let (old, new) = (
        fingerprint(&folder, "types/old", "p.pose_t"),
        fingerprint(&folder, "types/new", "p.pose_t"),
    );
    let of_old = payload(old, &[&7_i32.to_be_bytes()]);
    let of_new = payload(new, &[&8_i32.to_be_bytes(), &0.5_f64.to_be_bytes()]);
    let raw = b"something else altogether".to_vec();
    logged(
        &folder,
        "in.lcm",
        &[("POSE", of_old.clone()), ("POSE", of_new), ("POSE", raw), ("POSE", of_old)],
    );
    check_round_trip(&folder, "types");
    let below = fs::read_dir(folder.at("tables/channel=POSE")).unwrap();
    let mut schemas: Vec<String> =
        below.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    schemas.sort();
    let mut expected =
        [format!("schema={old:016x}"), format!("schema={new:016x}"), "schema=raw".into()];
    expected.sort();
    assert_eq!(schemas, expected);
    run_sluice(&folder, &["types", "types"])
        .expect(0)
        .expect_stderr("p.pose_t has several versions");
}

#[test]
fn of_two_names_with_one_fingerprint_the_user_may_choose() {
    let folder = Folder::new();
    types(&folder, "types.lcm", "struct speed_t { double v; } struct angle_t { double v; }");
    let key = fingerprint(&folder, "types.lcm", "angle_t");
    assert_eq!(fingerprint(&folder, "types.lcm", "speed_t"), key);
    logged(&folder, "in.lcm", &[("SPEED", payload(key, &[&1.0_f64.to_be_bytes()]))]);
    run_sluice(&folder, &["types", "types.lcm"]).expect(0).expect_stderr("share the fingerprint");
    run_sluice(&folder, &["convert", "in.lcm", "--types", "types.lcm", "--to", "guessed/"])
        .expect(0)
        .expect_stderr("typed: SPEED: messages may be `angle_t` or `speed_t`")
        .expect_stderr("are decoded as the first; --type selects one");
    // Naming only the type has the same effect.
    for info in [
        &["info", "in.lcm", "--types", "types.lcm"][..],
        &["cat", "in.lcm", "--types", "types.lcm"],
    ] {
        let output = run_sluice(&folder, info).expect(0).text();
        assert!(
            info[0] == "cat" || output.contains("angle_t") && !output.contains("speed_t"),
            "{output}"
        );
    }
    folder.write(
        "told.toml",
        "[sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
         [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"types.lcm\"\n\
         channel_types = { \"SP*\" = \"speed_t\" }\n\
         [sinks.tables]\nplugin = \"parquet\"\nfrom = \"typed\"\npath = \"told/\"\n",
    );
    let untold = String::from_utf8(folder.read("told.toml")).unwrap();
    folder.write("untold.toml", untold.replace("channel_types", "# "));
    run_sluice(&folder, &["run", "untold.toml"])
        .expect(0)
        .expect_stderr("the option `channel_types` selects one");
    let output = run_sluice(&folder, &["run", "told.toml", "--overwrite"]).expect(0);
    assert!(!output.stderr.contains("may be"), "{}", output.stderr);
    let convert = ["convert", "in.lcm", "--types", "types.lcm", "--type", "S?EED=speed_t"];
    run_sluice(&folder, &[&convert[..], &["--to", "typed/"]].concat()).expect(0);
    for (tables, name) in [("guessed", "angle_t"), ("told", "speed_t"), ("typed", "speed_t")] {
        let output = run_sluice(&folder, &["info", tables, "--json"]).expect(0).text();
        assert!(output.contains(&format!("\"type\":\"{name}\"")), "{output}");
    }
    // A type of another fingerprint is not what the messages are.
    types(&folder, "other.lcm", "struct count_t { int64_t n; }");
    let other = ["--types", "other.lcm", "--type", "SPEED=count_t", "--to", "other/"];
    run_sluice(&folder, &[&convert[..4], &other].concat())
        .expect(0)
        .expect_stderr("SPEED: --type says `count_t`, but messages are `angle_t` (fingerprint ");
    // Nor is one that no payload of the channel has.
    logged(&folder, "raw.lcm", &[("RAW", b"payload of none".to_vec())]);
    let raw = ["convert", "raw.lcm", "--types", "other.lcm", "--type", "RAW=count_t"];
    run_sluice(&folder, &[&raw[..], &["--to", "raw/"]].concat()).expect(0).expect_stderr(
        "RAW: payload of no declared type; --type selects among types that match, not `count_t`",
    );
    let wrong = fs::read_to_string(folder.at("told.toml")).unwrap().replace("speed_t", "sped_t");
    folder.write("wrong.toml", wrong);
    run_sluice(&folder, &["check", "wrong.toml"])
        .expect(2)
        .expect_stderr("no type `sped_t` is declared");
}

#[test]
fn a_fingerprint_of_several_types_has_the_name_that_it_is_decoded_by() {
    let folder = Folder::new();
    // A fingerprint does not include the type's name: the built-in set has one with the same.
    let pose = "package lcmtypes; struct pose_t { int64_t utime; double pos[3]; double vel[3]; \
                double orientation[4]; double rotation_rate[3]; double accel[3]; }";
    types(&folder, "own/pose.lcm", &pose.replace("pose_t", "my_pose_t").replace("lcmtypes", "own"));
    let key = fingerprint(&folder, "own", "own.my_pose_t");
    let floats: Vec<u8> = (0..16).flat_map(|n| f64::from(n).to_be_bytes()).collect();
    logged(&folder, "in.lcm", &[("POSE", payload(key, &[&5_i64.to_be_bytes(), &floats]))]);
    let named = |types: &[&str]| {
        let types: Vec<&str> = types.iter().flat_map(|types| ["--types", *types]).collect();
        let output =
            run_sluice(&folder, &[&["info", "in.lcm", "--json"][..], &types].concat()).expect(0);
        let info: Value = serde_json::from_str(&output.text()).unwrap();
        let to = ["convert", "in.lcm", "--to", "out/", "--overwrite"];
        if !types.is_empty() {
            run_sluice(&folder, &[&to[..], &types].concat()).expect(0);
            let tables = run_sluice(&folder, &["info", "out", "--json"]).expect(0).text();
            let tables: Value = serde_json::from_str(&tables).unwrap();
            assert_eq!(info["channels"][0]["type"], tables["channels"][0]["type"], "{types:?}");
        }
        info["channels"][0]["type"].as_str().unwrap().to_owned()
    };
    assert_eq!(named(&["own"]), "own.my_pose_t");
    assert_eq!(fingerprint(&folder, "mit-dgc", "lcmtypes.pose_t"), key);
    assert_eq!(named(&["own", "mit-dgc"]), named(&["mit-dgc", "own"]));
    assert_eq!(named(&[]), "lcmtypes.pose_t");
}

#[test]
fn types_that_only_differ_inside_are_not_guessed() {
    let folder = Folder::new();
    let inner = "struct b_t { int32_t p; } struct c_t { float q; } ";
    types(&folder, "old/types.lcm", &format!("{inner} struct a_t {{ b_t x; c_t y; }}"));
    types(&folder, "new/types.lcm", &format!("{inner} struct a_t {{ c_t x; b_t y; }}"));
    let key = fingerprint(&folder, "old", "a_t");
    assert_eq!(fingerprint(&folder, "new", "a_t"), key);
    run_sluice(&folder, &["types", "old", "new"])
        .expect(0)
        .expect_stderr("a_t has several versions");
    logged(
        &folder,
        "in.lcm",
        &[("A", payload(key, &[&7_i32.to_be_bytes(), &1.5_f32.to_be_bytes()]))],
    );
    let convert = ["convert", "in.lcm", "--to", "out.jsonl", "--overwrite", "--types", "old"];
    run_sluice(&folder, &convert).expect(0);
    assert!(String::from_utf8(folder.read("out.jsonl")).unwrap().contains("\"p\":7"));
    run_sluice(&folder, &[&convert[..], &["--types", "new"]].concat())
        .expect(0)
        .expect_stderr("matches several declared types with different fields");
    assert!(!String::from_utf8(folder.read("out.jsonl")).unwrap().contains("fields"));
}

#[test]
fn a_type_with_two_versions_of_a_name_in_it_comes_back_from_tables() {
    let folder = Folder::new();
    types(&folder, "types/old/p.lcm", "package p; struct pt_t { double x; }");
    types(&folder, "types/old/q.lcm", "package q; struct c_t { p.pt_t w; }");
    types(
        &folder,
        "types/new/p.lcm",
        "package p; struct pt_t { double x; double y; } struct a_t { pt_t p; int32_t k; q.c_t c; }",
    );
    let key = fingerprint(&folder, "types", "p.a_t");
    let numbers = [1.0_f64, 2.0, 3.0].map(f64::to_be_bytes);
    let of_a = payload(key, &[&numbers[0], &numbers[1], &7_i32.to_be_bytes(), &numbers[2]]);
    logged(&folder, "in.lcm", &[("A", of_a)]);
    check_round_trip(&folder, "types");
}

/// Changes what the footer of a table says, and leaves out its checksum.
fn change_footer(folder: &Folder, table: &str, changes: &[(&str, &str)]) {
    let mut bytes = folder.read(table);
    for (from, to) in [&[("SluiceCk", "--------")], changes].concat() {
        assert_eq!(from.len(), to.len());
        let at = bytes.windows(from.len()).rposition(|found| found == from.as_bytes());
        let at = at.unwrap_or_else(|| panic!("no `{from}` in {table}"));
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    }
    folder.write(table, bytes);
}

#[test]
fn declared_types_replace_a_description_that_cannot_be_used() {
    let folder = Folder::new();
    types(&folder, "t.lcm", "struct t { int32_t x; }");
    let key = fingerprint(&folder, "t.lcm", "t");
    logged(&folder, "in.lcm", &[("A", payload(key, &[&1_i32.to_be_bytes()]))]);
    check_round_trip(&folder, "t.lcm");
    change_footer(&folder, "tables/channel=A/part-00000.parquet", &[("struct t", "strict t")]);
    let table =
        ["convert", "tables/channel=A/part-00000.parquet", "--overwrite", "--to", "back.lcm"];
    run_sluice(&folder, &table)
        .expect(3)
        .expect_stderr("strict")
        .expect_stderr("or see its note on why it has made none");
    run_sluice(&folder, &[&table[..], &["--types", "t.lcm"]].concat()).expect(0);
    assert!(folder.read("back.lcm") == folder.read("in.lcm"));
    // Not one with another fingerprint.
    types(&folder, "t.lcm", "struct t { int64_t x; }");
    run_sluice(&folder, &[&table[..], &["--types", "t.lcm"]].concat())
        .expect(3)
        .expect_stderr("strict");
}

#[test]
fn rows_without_a_type_are_of_the_one_whose_columns_have_their_types() {
    let folder = Folder::new();
    let vec = |number: &str| format!("struct vec_t {{ {number} x; {number} v[2]; string s; }}");
    types(&folder, "types/a.lcm", &format!("package a; {}", vec("float")));
    types(&folder, "types/b.lcm", &format!("package b; {}", vec("double")));
    let text = [&[0, 0, 0, 2][..], b"s\0"].concat();
    let of = |name: &str, numbers: &[&[u8]]| {
        let parts = [numbers, numbers, numbers, &[&text]].concat();
        payload(fingerprint(&folder, "types", name), &parts)
    };
    let (a, b) = (of("a.vec_t", &[&1_f32.to_be_bytes()]), of("b.vec_t", &[&0.1_f64.to_be_bytes()]));
    logged(&folder, "in.lcm", &[("A", a), ("B", b)]);
    check_round_trip(&folder, "types");
    for channel in ["A", "B"] {
        let table = format!("tables/channel={channel}/part-00000.parquet");
        let changes = [("sluice.type", "other.types"), ("sluice.lists", "other.length")];
        change_footer(&folder, &table, &changes);
    }
    fs::remove_file(folder.at("tables/_manifest.json")).unwrap();
    run_sluice(
        &folder,
        &["convert", "tables", "--types", "types", "--to", "back.lcm", "--overwrite"],
    )
    .expect(0);
    assert!(folder.read("back.lcm") == folder.read("in.lcm"));
}
