//! Fields of messages, compared with the tables that `convert` writes.

use std::process::Command;

use datafusion::parquet::arrow::ArrowWriter;

use super::{demo, number, planned, rows, session, text};
use crate::kit::{Folder, events, log, python_with, run_sluice};

#[test]
fn events_of_other_types_or_undecodable_are_left_out_and_counted() {
    let folder = Folder::new();
    let path = demo(&folder, 2);
    let mut all = events(&std::fs::read(&path).unwrap());
    let other = all.iter().find(|event| event.channel != b"POSE").unwrap().payload.clone();
    let mut poses = all.iter_mut().filter(|event| event.channel == b"POSE");
    poses.next().unwrap().payload = b"no message at all".to_vec();
    poses.next();
    poses.next().unwrap().payload = other;
    let third = poses.next().unwrap();
    third.payload.truncate(30);
    let left = poses.count() as i64 + 1;
    let path = folder.write("changed.lcm", log(&all));
    let session = session("lcm-log", &path, &["mit-dgc"]);
    assert_eq!(number(&session, "select count(*) from drive.POSE"), left);
    let found = session.take_findings();
    assert_eq!(found.left_out.values().sum::<u64>(), 3, "{found:?}");
    assert!(!found.is_complete() && found.damage.is_empty());
    assert_eq!(number(&session, "select count(*) from drive.POSE where pos[1] is null"), 0);
    assert_eq!(number(&session, "select count(*) from drive where channel = 'POSE'"), left + 3);
}

/// Asserts that every table in `ours/` has the rows of the one in `tables/`, which `convert` wrote.
const COMPARED: &str = r#"
import duckdb, glob, os, sys
from urllib.parse import quote
ask = lambda query: duckdb.sql(query).fetchall()
done = 0
for ours in sorted(glob.glob("ours/*.parquet")):
    name = open(ours.replace(".parquet", ".name")).read()
    folder = "tables/channel=" + quote(name, safe="_-.~")
    theirs = sorted(glob.glob(folder + "/**/*.parquet", recursive=True))
    # A channel of several types has a folder for each; ours is that of the first event.
    if "schema=" in theirs[0]:
        continue
    columns = [row[0] for row in ask(f"describe select * from '{ours}'") if row[0] != "timestamp"]
    expected = [row[0] for row in ask(f"describe select * from read_parquet({theirs})")]
    ours_lack = ("timestamp", "timestamp_ns", "channel")
    fields = [name for name in expected if name not in ours_lack]
    assert columns == fields, (columns, expected)
    listed = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    a = f"select timestamp // 1000 t, {listed} from '{ours}'"
    read = f"read_parquet({theirs}, hive_partitioning = false)"
    b = f"select epoch_us(timestamp) t, {listed} from {read}"
    for x, y in ((a, b), (b, a)):
        rest = ask(f"select count(*) from (({x}) except all ({y}))")
        assert rest == [(0,)], (name, rest)
    if "timestamp_ns" in expected:
        both = f"'{ours}' o join read_parquet({theirs}) t using (sequence)"
        n = ask(f"select count(*) from {both} where o.timestamp != t.timestamp_ns")
        assert n == [(0,)], n
    done += 1
print(done)
"#;

/// Compares all typed tables of a log with those of `convert`; returns their number.
fn compare_tables(folder: &Folder, (plugin, name): (&str, &str), types: &[&str]) -> Option<usize> {
    let python = python_with("duckdb")?;
    let mut convert = vec!["convert", name, "--to", "tables/"];
    types.iter().for_each(|types| convert.extend(["--types", types]));
    run_sluice(folder, &convert);
    let session = session(plugin, &folder.at(name), types);
    std::fs::create_dir(folder.at("ours")).unwrap();
    let channels = session.log("drive").unwrap().channels().unwrap();
    for (at, channel) in channels.iter().enumerate() {
        let name = channel.replace('"', "\"\"");
        let all = "cast(timestamp as bigint) as timestamp, * except (timestamp)";
        let sql = format!("select {all} from drive.\"{name}\"");
        let plan = planned(&session, &sql);
        let file = std::fs::File::create(folder.at(&format!("ours/{at}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, plan.schema(), None).unwrap();
        rows(&session, &sql).iter().for_each(|rows| writer.write(rows).unwrap());
        writer.close().unwrap();
        folder.write(&format!("ours/{at}.name"), channel);
    }
    let output =
        Command::new(python).args(["-c", COMPARED]).current_dir(folder.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{plugin} {name}: {message}");
    Some(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
}

#[test]
fn fields_of_lcm_messages_match_tables_in_duckdb() {
    let folder = Folder::new();
    demo(&folder, 2);
    if let Some(tables) = compare_tables(&folder, ("lcm-log", "drive.lcm"), &["mit-dgc"]) {
        assert!(tables > 10, "{tables}");
    }
}

#[test]
fn fields_in_archives_and_tables_match_their_log() {
    for (plugin, name, types) in [
        ("archive", "drive.lcm.zst", &["mit-dgc"][..]),
        ("parquet", "tables-of-all", &[]),
        ("parquet", "one.parquet", &["mit-dgc"]),
    ] {
        let folder = Folder::new();
        demo(&folder, 1);
        let to = if name.contains('.') { name.to_owned() } else { format!("{name}/") };
        let types_given =
            if plugin == "parquet" && types.is_empty() { &["--types", "mit-dgc"][..] } else { &[] };
        let convert = ["convert", "drive.lcm", "--to", &to];
        run_sluice(&folder, &[&convert[..], types_given].concat()).expect(0);
        if let Some(tables) = compare_tables(&folder, (plugin, name), types) {
            assert!(tables > 10, "{name}: {tables}");
        }
    }
}

#[test]
fn fields_of_other_robots_match_tables_in_duckdb() {
    let folder = Folder::new();
    let vel = ["log.vel", "vel.json", "--messages", "300", "--seed", "4"];
    let Some(_) = crate::kit::python_script(&folder, "vel_writer.py", &vel) else { return };
    if let Some(tables) = compare_tables(&folder, ("vel", "log.vel"), &["vel"]) {
        assert!(tables > 2, "{tables}");
    }
    let folder = Folder::new();
    let orca = ["log", "orca.json", "--dialect", "A", "--lines", "120"];
    crate::kit::python_script(&folder, "orca_writer.py", &orca).unwrap();
    if let Some(tables) =
        compare_tables(&folder, ("orca", "log/060804_153321_master.log"), &["orca"])
    {
        assert!(tables > 1, "{tables}");
    }
}

#[test]
fn payloads_are_encoded_from_fields() {
    let folder = Folder::new();
    let path = demo(&folder, 1);
    run_sluice(&folder, &["convert", "drive.lcm", "--to", "typed/", "--types", "mit-dgc"])
        .expect(0);
    let sql = "select channel, sequence, payload from drive order by sequence";
    let of_log = text(&rows(&session("lcm-log", &path, &[]), sql));
    let of_tables = text(&rows(&session("parquet", &folder.at("typed"), &[]), sql));
    assert!(of_log == of_tables);
}
