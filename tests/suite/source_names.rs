//! Several logs in one output: what distinguishes them in rows and folders; and fields that no
//! output writes.

use serde_json::Value;

use crate::kit::{Folder, drive, log, run_sluice};
use crate::tables::asks;

/// Two seconds of the demo drive, as two logs whose names differ only after the dot.
fn two_logs() -> Folder {
    let folder = Folder::new();
    let text = "[sources.demo]\nplugin = \"demo\"\nseconds = 2\n\
                [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"demo\"\npath = \"lcmlog-2022.00\"\n";
    folder.write("demo.toml", text);
    run_sluice(&folder, &["run", "demo.toml"]).expect(0);
    folder.write("lcmlog-2022.01", folder.read("lcmlog-2022.00"));
    folder
}

/// The distinct sources in a file of JSON lines.
fn sources(folder: &Folder, name: &str) -> Vec<String> {
    let text = String::from_utf8(folder.read(name)).unwrap();
    let source = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["source"].as_str().unwrap().to_owned()
    };
    let mut sources: Vec<String> = text.lines().map(source).collect();
    sources.sort();
    sources.dedup();
    sources
}

const LOGS: [&str; 3] = ["convert", "lcmlog-2022.00", "lcmlog-2022.01"];

#[test]
fn rows_say_which_input_they_are_from() {
    let folder = two_logs();
    let convert = |more: &[&str]| run_sluice(&folder, &[&LOGS[..], more].concat());
    convert(&["-c", "POSE", "--to", "plain.jsonl"]).expect(0);
    assert_eq!(sources(&folder, "plain.jsonl"), ["log"]);
    convert(&["-c", "POSE", "--to", "named.jsonl", "--source-name", "{name}"]).expect(0);
    assert_eq!(sources(&folder, "named.jsonl"), ["lcmlog-2022.00", "lcmlog-2022.01"]);
    convert(&["-c", "POSE", "--to", "path.jsonl", "--source-name", "robot/{source}/{path}"])
        .expect(0);
    assert_eq!(
        sources(&folder, "path.jsonl"),
        ["robot/log/lcmlog-2022.00", "robot/log/lcmlog-2022.01"]
    );
    // Sources are selected by their new names, even if the format could skip channels.
    folder.write(
        "one.toml",
        "[sources.log]\nplugin = \"lcm-log\"\npath = \"lcmlog-2022.*\"\nsource_name = \"{name}\"\n\
         [stages.keep]\nplugin = \"filter\"\nfrom = \"log\"\nchannels = \"POSE\"\n\
         source = \"*.01\"\n\
         [sinks.out]\nplugin = \"jsonl\"\nfrom = \"keep\"\npath = \"one.jsonl\"\n",
    );
    run_sluice(&folder, &["run", "one.toml", "--strict"]).expect(0);
    assert_eq!(sources(&folder, "one.jsonl"), ["lcmlog-2022.01"]);
}

#[test]
fn damage_is_counted_for_the_source_that_its_input_names() {
    let folder = Folder::new();
    for name in ["a.lcm", "b.lcm"] {
        folder.write(name, log(&drive(7, 500)));
    }
    let mut cut = folder.read("b.lcm");
    cut.truncate(cut.len() - 3);
    folder.write("b.lcm", &cut);
    let convert = ["convert", "a.lcm", "b.lcm", "--to", "out.parquet", "--source-name", "{name}"];
    let run = |jobs: &str| {
        let more = ["--jobs", jobs, "--overwrite", "--report", "report.json"];
        run_sluice(&folder, &[&convert[..], &more].concat()).expect(3);
        folder.read("out.parquet")
    };
    assert!(run("1") == run("4"), "as many threads as one likes give the same bytes");
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    let rows = report["channels"].as_array().unwrap();
    let events = |source: &str| -> u64 {
        let of = rows.iter().filter(|row| row["source"] == source);
        of.map(|row| row["in"].as_u64().unwrap()).sum()
    };
    assert_eq!((events("a.lcm"), events("log")), (500, 0));
    assert!(events("b.lcm") >= 499, "{rows:?}");
    assert_eq!(report["damage"][0]["input"], "b.lcm");
}

#[test]
fn inputs_with_the_same_name_are_reported() {
    let folder = two_logs();
    let convert = |name: &str| {
        let more = ["--to", "out.jsonl", "--overwrite", "--source-name", name];
        run_sluice(&folder, &[&LOGS[..], &more].concat())
    };
    convert("{stem}")
        .expect(0)
        .expect_stderr("2 inputs are called `lcmlog-2022`")
        .expect_stderr("`{name}`");
    let fine = convert("{name}").expect(0);
    assert!(!fine.stderr.contains("are called"), "{}", fine.stderr);
    convert("{index}").expect(2).expect_stderr("--source-name: there is no placeholder `{index}`");
    let piped = ["cat", "lcmlog-2022.00", "--source-option", "source_name={nam}"];
    run_sluice(&folder, &piped).expect(2).expect_stderr("did you mean `name`?");
}

#[test]
fn a_dataset_of_several_logs_is_partitioned_by_log() {
    let folder = two_logs();
    let types = ["--types", "mit-dgc", "-c", "POSE", "-c", "BROOM_C"];
    let convert =
        |more: &[&str]| run_sluice(&folder, &[&LOGS[..], &types, more].concat()).expect(0);
    convert(&["--to", "runs/log={name}/"]);
    convert(&["--to", "all/", "--source-name", "{name}"]);
    run_sluice(&folder, &["verify", "runs", "all"]).expect(0);
    let pose = folder.at("runs/log=lcmlog-2022.01/channel=POSE/part-00000.parquet");
    assert!(pose.exists(), "{:?}", folder.names());
    asks(
        "duckdb",
        &folder,
        r#"
import duckdb
ask = lambda q: duckdb.sql(q).fetchall()
runs = "read_parquet('runs/**/*.parquet', hive_partitioning = true, union_by_name = true)"
rows = ask(f"select log, channel, count(*), count(pos) from {runs} group by all order by all")
assert [row[:2] for row in rows] == [(log, channel) for log in ("lcmlog-2022.00", "lcmlog-2022.01")
                                     for channel in ("BROOM_C", "POSE")], rows
assert rows[1][2] == rows[1][3] == rows[3][2] > 0, rows
every = "read_parquet('all/**/*.parquet', hive_partitioning = true, union_by_name = true)"
assert rows == ask(
    f"select source, channel, count(*), count(pos) from {every} group by all order by all")
"#,
    );
    asks(
        "pyarrow",
        &folder,
        r#"
import pyarrow.dataset as ds
runs = ds.dataset("runs", partitioning="hive", exclude_invalid_files=True)
table = runs.to_table(
    filter=(ds.field("log") == "lcmlog-2022.01") & (ds.field("channel") == "POSE"))
assert len(table) > 0 and set(table["log"].to_pylist()) == {"lcmlog-2022.01"}, table
"#,
    );
}

#[test]
fn fields_that_no_output_writes_are_reported_with_advice() {
    let folder = two_logs();
    let convert = |more: &[&str]| {
        let types = ["convert", "lcmlog-2022.00", "--types", "mit-dgc", "--overwrite"];
        run_sluice(&folder, &[&types[..], more].concat()).expect(0)
    };
    let single = convert(&["--to", "out.parquet", "--report", "report.json"]);
    single.expect_stderr("decoded fields are not written").expect_stderr("`tables/`");
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["node"] == "out"), "{notes:?}");
    convert(&["--to", "{name}.parquet"]).expect_stderr("decoded fields are not written");
    for to in ["out.lcm", "out.lcm.zst", "out.arrow.zst"] {
        convert(&["--to", to])
            .expect_stderr("decoded fields are not written")
            .expect_stderr("`.jsonl`");
    }
    // No message if they are written or used in a condition.
    for more in [
        &["--to", "out.lcm", "--where", "exists(pos)"][..],
        &["--to", "out/"],
        &["--to", "out.jsonl"],
        &["--to", "out.jsonl", "--sink-option", "payload=true"],
        &["--to", "pose.csv", "-c", "POSE"],
        &["--to", "pose.csv", "-c", "POSE", "--sink-option", "payload=hex"],
    ] {
        let fine = convert(more);
        assert!(!fine.stderr.contains("are not written"), "{more:?}: {}", fine.stderr);
    }
    folder.write(
        "p.toml",
        "[sources.log]\nplugin = \"lcm-log\"\npath = \"lcmlog-2022.00\"\n\
         [stages.typed]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = \"mit-dgc\"\n\
         [stages.few]\nplugin = \"limit\"\nfrom = \"typed\"\nevents = 5\n\
         [sinks.single]\nplugin = \"parquet\"\nfrom = \"few\"\npath = \"single.parquet\"\n",
    );
    assert!(run_sluice(&folder, &["check", "p.toml"]).expect(0).text().contains("are not written"));
    run_sluice(&folder, &["run", "p.toml"])
        .expect(0)
        .expect_stderr("single: decoded fields are not written");
}

#[test]
fn columns_of_a_csv_or_a_described_log_that_no_output_writes_are_reported() {
    let folder = Folder::new();
    folder.write("in.csv", "time,a\n1700000000,1\n1700000001,2\n");
    folder.write("in.bin", [1, 0, 0, 0, 7, 2, 0, 0, 0, 8]);
    folder.write(
        "in.toml",
        "plugin = \"records\"\nfields = [\n\
         {name = \"s\", type = \"u32\", role = \"time\", unit = \"s\"},\n\
         {name = \"a\", type = \"u8\"}]\n",
    );
    for input in [&["in.csv"][..], &["in.bin", "--describe", "in.toml"]] {
        let convert = |more: &[&str]| {
            let all = [&["convert", "--overwrite"][..], input, more].concat();
            run_sluice(&folder, &all).expect(0)
        };
        for lossy in [
            &["--to", "out.parquet"][..],
            &["--to", "out.lcm"],
            &["--to", "out.arrow.zst"],
            &["--to", "out.parquet", "--where", "a > 1"],
        ] {
            convert(lossy).expect_stderr("note: out: decoded fields are not written");
        }
        for fine in ["out/", "out.csv", "out.jsonl", "out.mcap"] {
            let fine = convert(&["--to", fine]);
            assert!(!fine.stderr.contains("are not written"), "{}", fine.stderr);
        }
    }
}

#[test]
fn a_csv_that_would_lose_fields_is_refused_with_advice() {
    let folder = two_logs();
    let types = ["convert", "lcmlog-2022.00", "--types", "mit-dgc", "--to", "out.csv"];
    let convert = |more: &[&str]| run_sluice(&folder, &[&types[..], more].concat());
    // The first event is not decoded.
    let refused = convert(&["--report", "report.json"]).expect(2);
    let refused =
        refused.expect_stderr("the first event is not decoded").expect_stderr("(`--channel ");
    refused.expect_stderr("`--to tables/`").expect_stderr("nothing was published");
    // The first event is of another type than those of the second channel.
    let two = ["-c", "POSE", "-c", "BROOM_L"];
    convert(&two)
        .expect(2)
        .expect_stderr("`POSE` (`lcmtypes.pose_t`)")
        .expect_stderr("would be lost");
    assert_eq!(folder.names(), ["demo.toml", "lcmlog-2022.00", "lcmlog-2022.01", "report.json"]);
    // The advice works, as do channels with one type or without lost fields.
    for more in [
        &["-c", "POSE"][..],
        &["-c", "BROOM_L", "-c", "BROOM_R"],
        &["-c", "POSE", "-c", "BROOM_L", "--field", "utime", "--field", "pos[0]"],
        &["--sink-option", "fields=[]"],
    ] {
        convert(&[more, &["--overwrite"]].concat()).expect(0);
    }
    run_sluice(&folder, &["convert", "lcmlog-2022.00", "--to", "raw.csv"]).expect(0);
    // Only that input of a batch is refused.
    let batch = [&LOGS[..], &["--types", "mit-dgc", "--to", "{name}.csv"]].concat();
    run_sluice(&folder, &batch).expect(1).expect_stderr("would be lost");
}

#[test]
fn messages_of_a_vel_archive_have_the_sources_and_names_of_its_log() {
    let folder = two_logs();
    let convert = ["convert", "lcmlog-2022.00", "-c", "POSE", "--to", "drive.vel"];
    run_sluice(&folder, &convert).expect(0);
    run_sluice(&folder, &["convert", "drive.vel", "--to", "drive.vel.zst"]).expect(0);
    folder.write("later.vel.zst", folder.read("drive.vel.zst"));
    let mut cut = folder.read("drive.vel.zst");
    cut.truncate(cut.len() - 9);
    folder.write("cut.vel.zst", cut);
    for (log, code) in
        [("drive.vel", 0), ("drive.vel.zst", 0), ("later.vel.zst", 0), ("cut.vel.zst", 3)]
    {
        let stem = log.split('.').next().unwrap();
        run_sluice(&folder, &["convert", log, "--to", "all.jsonl", "--overwrite"]).expect(code);
        assert_eq!(sources(&folder, "all.jsonl"), [stem], "{log}");
        // The index has the source that the messages were written with.
        let plugin = if log == "drive.vel" { "vel" } else { "archive" };
        let text = format!(
            "[sources.log]\nplugin = \"{plugin}\"\npath = \"{log}\"\n\
             [stages.keep]\nplugin = \"filter\"\nfrom = \"log\"\nsource = \"{stem}\"\n\
             [sinks.out]\nplugin = \"jsonl\"\nfrom = \"keep\"\npath = \"some.jsonl\"\n"
        );
        folder.write("some.toml", text);
        run_sluice(&folder, &["run", "some.toml", "--overwrite"]).expect(code);
        assert!(folder.read("some.jsonl") == folder.read("all.jsonl"), "{log}");
    }
    // So does it have the name, where messages have a number.
    let convert = ["convert", "lcmlog-2022.00", "-c", "POSE", "--to", "direct.vel.zst"];
    run_sluice(&folder, &convert).expect(0);
    let all = run_sluice(&folder, &["cat", "--json", "direct.vel.zst"]).expect(0).text();
    let event: Value = serde_json::from_str(all.lines().next().unwrap()).unwrap();
    let channel = event["channel"].as_str().unwrap();
    assert_ne!(channel, "POSE");
    let some = run_sluice(&folder, &["cat", "--json", "direct.vel.zst", "-c", channel]).expect(0);
    assert_eq!(some.text(), all);
}
