//! Our tables read by DuckDB, Polars, pandas and pyarrow. Needs them in the Python of
//! `.cache/peers-venv`, where `.ci/run` installs them; reports if they are missing.

use std::process::Command;

use serde_json::json;

use crate::kit::{Folder, drive, log, python_with, run_sluice};

/// Runs a script in the folder; fails the test with its output if it fails.
#[track_caller]
pub(crate) fn asks(module: &str, folder: &Folder, script: &str) {
    let Some(python) = python_with(module) else { return };
    let ran =
        Command::new(python).args(["-c", script]).current_dir(folder.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Two seconds of driving as tables of every kind, and the number of events of each in a file.
fn tables() -> Folder {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart", "--set", "SECONDS=2", "--report", "report.json"])
        .expect(0);
    for out in ["all.parquet", "tables/"] {
        run_sluice(&folder, &["convert", "quickstart-out/drive.lcm", "--to", out]).expect(0);
    }
    let report: serde_json::Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    let events = report["sinks"]["tables"]["events"].as_u64().unwrap();
    std::fs::write(folder.at("events"), events.to_string()).unwrap();
    folder
}

#[test]
fn duckdb_opens_them_with_the_right_types_and_counts() {
    let folder = tables();
    asks(
        "duckdb",
        &folder,
        r#"
import duckdb
events = int(open("events").read())
tables, single = "'tables/**/*.parquet'", "'all.parquet'"
ask = lambda q: duckdb.sql(q).fetchall()
types = {row[0]: row[1] for row in ask(f"describe select * from {single}")}
assert types == {"timestamp": "TIMESTAMP WITH TIME ZONE", "source": "VARCHAR", "channel": "VARCHAR",
                 "sequence": "BIGINT", "payload": "BLOB"}, types
counts = lambda of: ask(f"""select channel, count(*), epoch_us(min(timestamp)), max(sequence),
    sum(octet_length(payload)) from {of} group by 1 order by 1""")
assert counts(single) == counts(tables)
assert ask(f"select count(*) from {tables}") == [(events,)]
assert ask(f"select count(distinct sequence) from {single}") == [(events,)]
assert ask(f"select count(*) from {single} where channel = 'POSE'")[0][0] > 0
typed = "'quickstart-out/tables/channel={}/*.parquet'".format
types = {row[0]: row[1] for row in ask(f"describe select * from {typed('POSE')}")}
assert types["pos"] == types["orientation"] == "DOUBLE[]" and types["utime"] == "BIGINT", types
types = {row[0]: row[1] for row in ask(f"describe select * from {typed('BROOM_C')}")}
assert types["ranges"] == "FLOAT[]" and types["nranges"] == "INTEGER", types
assert ask(f"select bool_and(len(ranges) = nranges) from {typed('BROOM_C')}") == [(True,)]
assert ask(f"""select max(abs(list_dot_product(orientation, orientation) - 1)) < 1e-6
    from {typed('POSE')}""") == [(True,)]
every = "read_parquet('quickstart-out/tables/**/*.parquet', union_by_name = true)"
totals = lambda of: ask(f"select count(*), count(distinct channel) from {of}")
assert totals(every) == totals(single)
"#,
    );
}

#[test]
fn polars_opens_them_with_the_right_types_and_counts() {
    let folder = tables();
    asks(
        "polars",
        &folder,
        r#"
import polars as pl
events = int(open("events").read())
single = pl.read_parquet("all.parquet")
assert single.schema == {
    "timestamp": pl.Datetime("us", "UTC"), "source": pl.String, "channel": pl.String,
    "sequence": pl.Int64, "payload": pl.Binary}, single.schema
tables = pl.read_parquet("tables/**/*.parquet")
assert len(single) == len(tables) == events
pose = pl.scan_parquet("all.parquet").filter(pl.col("channel") == "POSE").collect().sort("sequence")
other = pl.read_parquet("tables/channel=POSE/*.parquet", hive_partitioning=False).sort("sequence")
assert pose.drop("channel").equals(other)
# This one was made by the drive itself, the others from its log.
files = "quickstart-out/tables/channel=POSE/*.parquet"
typed = pl.read_parquet(files, hive_partitioning=False).sort("sequence")
assert typed.schema["pos"] == pl.List(pl.Float64), typed.schema
assert typed.schema["utime"] == pl.Int64, typed.schema
assert pose.select("timestamp", "sequence").equals(typed.select("timestamp", "sequence"))
laser = pl.read_parquet("quickstart-out/tables/channel=BROOM_C/*.parquet")
assert laser.schema["ranges"] == pl.List(pl.Float32)
assert laser["nranges"].equals(laser["ranges"].list.len().cast(pl.Int32).alias("nranges"))
"#,
    );
}

#[test]
fn pandas_opens_them_with_the_right_types_and_counts() {
    let folder = tables();
    asks(
        "pandas, pyarrow",
        &folder,
        r#"
import pandas as pd
events = int(open("events").read())
single = pd.read_parquet("all.parquet")
assert str(single.timestamp.dtype) == "datetime64[us, UTC]", single.dtypes
assert pd.api.types.is_string_dtype(single.channel) and str(single.sequence.dtype) == "int64"
tables = pd.read_parquet("tables/")
assert len(single) == len(tables) == events
assert set(tables.channel.unique()) == set(single.channel.unique())
"#,
    );
}

#[test]
fn the_footer_statistics_that_pyarrow_reads_match_the_rows() {
    let folder = tables();
    asks(
        "pyarrow",
        &folder,
        r#"
import json
import pyarrow as pa, pyarrow.parquet as pq, pyarrow.dataset as ds
events = int(open("events").read())
file = pq.ParquetFile("all.parquet")
assert file.schema_arrow.field("timestamp").type == pa.timestamp("us", "UTC")
assert file.schema_arrow.field("payload").type == pa.binary()
assert file.metadata.num_rows == events
meta = {k.decode(): v.decode() for k, v in file.metadata.metadata.items()}
assert meta["sluice.inputs"] and json.loads(meta["sluice.inputs"])[0]["blake3"]
assert "lcm-log" in meta["sluice.pipeline"]
for n in range(file.num_row_groups):
    group, rows = file.metadata.row_group(n), file.read_row_group(n)
    names = [group.column(c.column_index).path_in_schema for c in group.sorting_columns]
    assert names, "rows of this drive are numbered"
    keys = list(zip(*(rows.column(name).to_pylist() for name in names)))
    assert keys == sorted(keys)
    column = group.column(0)
    assert column.path_in_schema == "timestamp" and column.compression == "ZSTD"
    assert column.has_column_index and column.has_offset_index
    times = rows.column("timestamp").to_pylist()
    assert (column.statistics.min, column.statistics.max) == (min(times), max(times))
tables = ds.dataset("tables", format="parquet", partitioning="hive", exclude_invalid_files=True)
assert tables.count_rows() == events
assert tables.count_rows(filter=ds.field("channel") == "POSE") > 0
"#,
    );
}

#[test]
fn a_log_becomes_a_table_and_the_same_log_again() {
    let folder = Folder::new();
    let bytes = log(&drive(3, 20_000));
    folder.write("drive.lcm", &bytes);
    for table in ["drive.parquet", "tables/"] {
        run_sluice(&folder, &["convert", "drive.lcm", "--to", table]).expect(0);
        run_sluice(&folder, &["convert", table, "--to", "back.lcm", "--overwrite"]).expect(0);
        assert!(folder.read("back.lcm") == bytes, "{table}");
        run_sluice(&folder, &["verify", table]).expect(0);
    }
}

#[test]
fn tables_are_the_same_for_any_number_of_threads() {
    let folder = Folder::new();
    folder.write("drive.lcm", log(&drive(3, 40_000)));
    for (to, file) in [("t.parquet", "t.parquet"), ("t/", "t/channel=C/part-00000.parquet")] {
        let mut first: Option<Vec<u8>> = None;
        for jobs in ["1", "2", "8"] {
            let convert = ["convert", "drive.lcm", "--to", to, "--memory", "16MiB", "--overwrite"];
            run_sluice(&folder, &[&convert[..], &["--jobs", jobs]].concat()).expect(0);
            let bytes = folder.read(file);
            assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{to} {jobs}");
        }
    }
}

#[test]
fn a_damaged_table_gives_the_rest_and_says_so() {
    let folder = Folder::new();
    folder.write("drive.lcm", log(&drive(3, 2_000)));
    let rows = ["--sink-option", "row_group_rows=500"];
    run_sluice(&folder, &[&["convert", "drive.lcm", "--to", "t.parquet"][..], &rows].concat())
        .expect(0);
    let mut bytes = folder.read("t.parquet");
    bytes[1000] ^= 1;
    folder.write("t.parquet", bytes);
    let output = run_sluice(&folder, &["convert", "t.parquet", "--to", "back.lcm"]).expect(3);
    output.expect_stderr("row group 0").expect_stderr("checksum");
    assert_eq!(crate::kit::events(&folder.read("back.lcm")).len(), 1_500);
    run_sluice(&folder, &["verify", "t.parquet"]).expect(3);
}

#[test]
fn tables_that_pyarrow_has_written_anew_are_read_although_their_footers_say_more() {
    let folder = tables();
    if python_with("pyarrow").is_none() {
        return;
    }
    asks(
        "pyarrow",
        &folder,
        r#"
import pyarrow.parquet as pq
table = pq.read_table("quickstart-out/tables/channel=POSE/part-00000.parquet", partitioning=None)
assert b"sluice.row_groups" in table.schema.metadata
# The fields in another order, too.
names = table.column_names[:3] + table.column_names[:2:-1]
pq.write_table(table.select(names), "pose.parquet", row_group_size=50)
"#,
    );
    for (from, to) in [("quickstart-out/tables/channel=POSE", "a.lcm"), ("pose.parquet", "b.lcm")] {
        run_sluice(&folder, &["convert", from, "--to", to]).expect(0);
    }
    assert!(folder.read("a.lcm") == folder.read("b.lcm"));
    let both = ["convert", "pose.parquet", "quickstart-out/tables/channel=POSE/part-00000.parquet"];
    run_sluice(&folder, &[&both[..], &["--to", "both/"]].concat()).expect(0);
    run_sluice(&folder, &["cat", "both", "--json", "--limit", "2"]).expect(0);
}

#[test]
fn fields_of_tables_are_called_as_those_of_their_log() {
    let folder = tables();
    folder.write("expect.toml", "[channels.POSE]\nfields.\"vel[0]\" = { min = -500, max = 500 }\n");
    let csv = |from: &str| {
        run_sluice(&folder, &["check-log", from, "--expect", "expect.toml"]).expect(0);
        let to = ["--channel", "POSE", "--types", "mit-dgc", "--to", "pose.csv", "--overwrite"];
        run_sluice(&folder, &[&["convert", from][..], &to].concat()).expect(0);
        String::from_utf8(folder.read("pose.csv")).unwrap()
    };
    let of_log = csv("quickstart-out/drive.lcm");
    assert!(of_log.lines().next().unwrap().contains(",pos[2],vel[0],"), "{of_log}");
    let column = |csv: &str, name: &str| {
        let mut lines = csv.lines().map(|line| line.split(',').map(str::to_owned));
        let place = lines.next().unwrap().position(|field| field == name);
        place.map(|place| lines.map(|mut line| line.nth(place).unwrap()).collect::<Vec<_>>())
    };
    let of_tables = csv("quickstart-out/tables");
    for name in ["sequence", "utime", "pos[0]", "vel[2]", "orientation[3]"] {
        assert_eq!(column(&of_tables, name), column(&of_log, name), "{name}");
    }
}

#[test]
fn tables_that_others_have_written_anew_become_a_log_by_their_columns() {
    let folder = tables();
    if python_with("pyarrow, polars, duckdb").is_none() {
        return;
    }
    asks(
        "pyarrow, polars, duckdb",
        &folder,
        r#"
import os, duckdb, polars, pyarrow.parquet as pq
path = "quickstart-out/tables/channel=POSE/part-00000.parquet"
tools = ["pyarrow", "polars", "duckdb"]
for tool in tools: os.mkdir(tool)
pyarrow, by_polars, by_duckdb = (f"{tool}/POSE.parquet" for tool in tools)
table = pq.read_table(path, partitioning=None)
pq.write_table(table.replace_schema_metadata(None), pyarrow)
polars.read_parquet(path, hive_partitioning=False).write_parquet(by_polars)
duckdb.sql(f"copy (select * exclude channel from '{path}') to '{by_duckdb}'")
"#,
    );
    let as_log = |from: &str, to: &str| {
        run_sluice(&folder, &["convert", from, "--types", "mit-dgc", "--to", to]).expect(0);
        folder.read(to)
    };
    let expected = as_log("quickstart-out/tables/channel=POSE", "POSE.lcm");
    for by in ["pyarrow", "polars", "duckdb"] {
        let log = as_log(&format!("{by}/POSE.parquet"), &format!("{by}.lcm"));
        assert!(log == expected, "{by}");
    }
}

#[test]
fn aligned_rows_are_one_table_in_any_format() {
    let folder = tables();
    for out in ["aligned.parquet", "aligned.csv", "aligned.jsonl"] {
        let fields = ["--field", "POSE.vel", "--field", "scan=BROOM_C.ranges"];
        let args = ["convert", "quickstart-out/drive.lcm", "--align", "50Hz", "--to", out];
        run_sluice(&folder, &[&args[..], &fields[..]].concat()).expect(0);
    }
    asks(
        "duckdb",
        &folder,
        r#"
import duckdb, json, os
import pyarrow.parquet as pq
table = pq.read_table("aligned.parquet")
assert table.column_names == ["timestamp", "source", "sequence", "POSE.vel", "scan"], table.schema
assert os.path.isfile("aligned.parquet") and table.num_rows > 50
lines = [json.loads(line) for line in open("aligned.jsonl")]
assert len(lines) == table.num_rows
assert [line["fields"]["POSE.vel"] for line in lines] == table["POSE.vel"].to_pylist()
count, steps = duckdb.sql("""select count(*), count(distinct epoch_us(timestamp) % 20000)
    from 'aligned.parquet' where len("POSE.vel") = 3 and len(scan) > 0""").fetchall()[0]
assert (count, steps) == (table.num_rows, 1)
assert duckdb.sql("select count(*) from 'aligned.csv'").fetchall()[0] == (count,)
"#,
    );
}

#[test]
fn json_messages_without_a_schema_come_back_from_tables() {
    let folder = Folder::new();
    // `{"rate": 1}`, `[1,2]`, `"a"` and `{"rate":1.50,"rate":2}`.
    let payloads = [
        (11, "eyJyYXRlIjogMX0="),
        (5, "WzEsMl0="),
        (3, "ImEi"),
        (22, "eyJyYXRlIjoxLjUwLCJyYXRlIjoyfQ=="),
    ];
    let event = |(n, (size, payload)): (u64, (u64, &str))| {
        let event = json!({ "timestamp_ns": n * 1_000, "source": "log", "channel": "/config",
            "sequence": n, "encoding": "json", "size": size, "payload": payload });
        format!("{event}\n")
    };
    folder.write("in.jsonl", (0..).zip(payloads).map(event).collect::<String>());
    let events = |log: &str| {
        let printed = run_sluice(&folder, &["cat", log, "--json", "--payload"]).expect(0);
        String::from_utf8(printed.stdout).unwrap()
    };
    for format in ["mcap", "lcm"] {
        let [log, tables, back] =
            ["log", "tables", "back"].map(|name| format!("{name}-{format}.{format}"));
        let tables = tables + "/";
        run_sluice(&folder, &["convert", "in.jsonl", "--to", &log]).expect(0);
        run_sluice(&folder, &["convert", "in.jsonl", "--to", &tables]).expect(0);
        run_sluice(&folder, &["convert", &tables, "--to", &back]).expect(0);
        assert_eq!(events(&back), events(&log), "{format}");
        // What only `encode` needs is not shown.
        assert!(!events(&tables).contains("raw_payload"), "{format}");
    }
    assert!(events("back-mcap.mcap").contains("\"encoding\":\"json\""));
}
