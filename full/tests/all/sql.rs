//! The stage `sql` in pipelines.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sluice_conformance::stage;

use crate::kit::{Folder, ProgramOutput, run_sluice, sluice};

/// A synthetic drive, decoded.
fn drive(channels: &str, seconds: f64) -> String {
    format!(
        "[sources.drive]\nplugin = \"demo\"\nseconds = {seconds}\n\
         [stages.few]\nplugin = \"filter\"\nfrom = \"drive\"\nchannels = {channels}\n\
         [stages.events]\nplugin = \"decode\"\nfrom = \"few\"\ntypes = [\"mit-dgc\"]\n"
    )
}

/// A folder with the log of a synthetic drive.
fn folder() -> Folder {
    let folder = Folder::new();
    let few = drive("[\"POSE\", \"GPS*\", \"SKIRT_FC\"]", 2.0);
    let sink = "[sinks.log]\nplugin = \"lcm-log\"\nfrom = \"few\"\npath = \"in.lcm\"\n";
    let (few, _) = few.split_once("[stages.events]").unwrap();
    run(&folder, &format!("{few}{sink}"), "2").expect(0);
    folder
}

/// A pipeline that decodes that log and queries it, read in many splits.
fn pipeline(query: &str, more: &str) -> String {
    format!(
        "memory = \"16MiB\"\n\
         [sources.log]\nplugin = \"lcm-log\"\npath = \"in.lcm\"\n\
         [stages.events]\nplugin = \"decode\"\nfrom = \"log\"\ntypes = [\"mit-dgc\"]\n\
         [stages.asked]\nplugin = \"sql\"\nfrom = \"events\"\nquery = '''\n{query}\n'''\n{more}\n"
    )
}

fn check_contract(options: Value) {
    stage("sql").options(options).fed_by(&drive("[\"POSE\", \"GPS*\"]", 0.5)).check();
}

#[test]
fn a_query_over_one_channel_meets_the_stage_contract() {
    check_contract(
        json!({ "query": "select timestamp, vel[1] as v, pos from POSE where vel[1] > 1" }),
    );
    check_contract(json!({ "query": "select unnest(pos) as p, 'X' as channel from POSE" }));
}

#[test]
fn a_query_over_all_events_meets_the_stage_contract() {
    let query =
        "select timestamp, payload, sequence + 1 as sequence from events where channel <> 'POSE'";
    check_contract(json!({ "query": query, "channel": "OTHER" }));
    let names = "select channel || '!' as channel, sequence * 2 as n from events";
    stage("sql").options(json!({ "query": names })).check();
}

#[test]
fn a_limit_meets_the_stage_contract() {
    check_contract(json!({ "query": "select vel[1] as v from POSE limit 17 offset 5" }));
}

#[test]
fn a_query_over_several_channels_meets_the_stage_contract() {
    let tables =
        json!({ "POSE": "utime bigint", "GPS_BODY": "utime bigint", "NONE": "utime bigint" });
    let query = "select utime from POSE union all select utime from NONE";
    let tables = json!({ "POSE": tables["POSE"], "NONE": tables["NONE"] });
    check_contract(json!({ "query": query, "tables": tables }));
}

#[test]
fn a_query_that_needs_all_rows_meets_the_stage_contract() {
    let query = "select max(timestamp) as timestamp, channel, 'sums' as source, count(*) as n, \
                 sum(sequence) as s from events group by channel";
    check_contract(json!({ "query": query, "memory": "32MiB" }));
    let query = "select timestamp, 'sorted' as source, 'S' as channel, vel[1] as v from POSE \
                 order by v desc";
    check_contract(json!({ "query": query, "memory": "32MiB" }));
}

/// Runs a pipeline with this many threads.
fn run(folder: &Folder, pipeline: &str, jobs: &str) -> ProgramOutput {
    folder.write("p.toml", pipeline);
    run_sluice(folder, &["run", "p.toml", "--jobs", jobs, "--overwrite", "-q"])
}

fn lines(folder: &Folder, name: &str) -> Vec<Value> {
    let text = String::from_utf8(folder.read(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sinks of every kind that writes rows.
const SINKS: &str = "[sinks.lines]\nplugin = \"jsonl\"\nfrom = \"asked\"\npath = \"out.jsonl\"\n\
    [sinks.cells]\nplugin = \"csv\"\nfrom = \"asked\"\npath = \"out.csv\"\n\
    [sinks.table]\nplugin = \"parquet\"\nfrom = \"asked\"\npath = \"tables/\"\n";

#[test]
fn any_number_of_threads_writes_the_same_lines_cells_and_tables() {
    let folder = folder();
    for (query, more) in [
        ("select timestamp, channel, vel[2] as v from POSE where vel[2] > 9", ""),
        ("select utime, unnest(vel) as v from POSE where utime % 3 = 0", ""),
        ("select timestamp, 'BARE' as channel from POSE", ""),
        ("select utime from POSE union all select sequence from events limit 100", ""),
        ("select timestamp, 'ALL' as channel, source, sequence, sequence % 7 as n from events", ""),
        (
            "select max(timestamp) as timestamp, channel, count(*) as n, avg(sequence) as mean \
             from events group by channel",
            "memory = \"16MiB\"",
        ),
        (
            "select a.timestamp, 'NEAR' as channel, a.vel[1] as v, b.n from POSE a join (select \
             date_trunc('second', timestamp) as s, count(*) as n from POSE group by 1) b on \
             date_trunc('second', a.timestamp) = b.s",
            "memory = \"32MiB\"",
        ),
    ] {
        let pipeline = pipeline(query, more) + SINKS;
        let written = |jobs: &str| {
            run(&folder, &pipeline, jobs).expect(0);
            let mut all = tables(&folder.at("tables"));
            all.extend(["out.jsonl", "out.csv"].map(|name| (name.to_owned(), folder.read(name))));
            all
        };
        let (one, four) = (written("1"), written("4"));
        assert!(one.len() > 2 && !one["out.jsonl"].is_empty(), "{query}: {:?}", one.keys());
        assert!(one == four, "{query}: {:?} and {:?}", one.keys(), four.keys());
    }
}

/// The tables below a folder, by name.
fn tables(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for channel in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if channel.is_dir() {
            for table in fs::read_dir(&channel).unwrap().map(|entry| entry.unwrap().path()) {
                all.insert(table.display().to_string(), fs::read(&table).unwrap());
            }
        }
    }
    all
}

#[test]
fn rows_have_the_fields_that_the_query_selects() {
    let folder = folder();
    let query = "select vel[2] as v, pos from POSE where vel[2] > 9.42";
    let all = "[sinks.all]\nplugin = \"jsonl\"\nfrom = \"events\"\npath = \"all.jsonl\"\n";
    run(&folder, &(pipeline(query, "") + SINKS + all), "2").expect(0);
    let fast = lines(&folder, "all.jsonl").into_iter().filter(|line| line["channel"] == "POSE");
    let fast: Vec<Value> =
        fast.filter(|line| line["fields"]["vel"][1].as_f64().unwrap() > 9.42).collect();
    let found = lines(&folder, "out.jsonl");
    assert!(!fast.is_empty() && fast.len() == found.len(), "{} and {}", fast.len(), found.len());
    for (event, row) in fast.iter().zip(&found) {
        assert_eq!(event["timestamp_ns"], row["timestamp_ns"]);
        assert_eq!(event["sequence"], row["sequence"]);
        assert_eq!(event["fields"]["vel"][1], row["fields"]["v"]);
        assert_eq!(event["fields"]["pos"], row["fields"]["pos"]);
    }
}

#[test]
fn the_report_balances_and_counts_filtered_and_added_events() {
    let folder = folder();
    let query = "select unnest(vel) as v from POSE where sequence % 2 = 0";
    folder.write("p.toml", pipeline(query, "") + SINKS);
    run_sluice(&folder, &["run", "p.toml", "-q", "--report", "report.json"]).expect(0);
    let report: Value = serde_json::from_slice(&folder.read("report.json")).unwrap();
    let pose = report["channels"].as_array().unwrap().iter();
    let pose: Vec<&Value> = pose.filter(|c| c["channel"] == "POSE").collect();
    assert!(!pose.is_empty());
    for channel in pose {
        let count = |key: &str| channel[key].as_u64().unwrap();
        assert_eq!(count("in"), count("out") + count("filtered") + count("damaged"));
        assert!(count("out") > 0 && count("filtered") > 0);
    }
}

#[test]
fn a_channel_that_never_comes_is_reported() {
    let folder = folder();
    for (query, more) in [
        ("select utime from POES", ""),
        (
            "select timestamp, utime from POES order by utime",
            "memory = \"64MiB\"\nchannel = \"POSE\"\n",
        ),
    ] {
        let more = format!("{more}tables = {{ POES = \"utime bigint\" }}\n");
        folder.write("p.toml", pipeline(query, &more) + SINKS);
        let message = "asked: `query`: no channel matches `POES`; did you mean `POSE`?";
        run_sluice(&folder, &["run", "p.toml", "--overwrite"]).expect(0).expect_stderr(message);
        run_sluice(&folder, &["run", "p.toml", "-q", "--overwrite", "--strict"])
            .expect(2)
            .expect_stderr(message);
    }
}

/// Ten thousand rows from some hundred.
const MANY: &str = "POSE a cross join POSE b";

const LINES: &str = "[sinks.lines]\nplugin = \"jsonl\"\nfrom = \"asked\"\npath = \"out.jsonl\"\n";

#[test]
fn a_large_sort_spills_and_removes_its_files() {
    let folder = folder();
    fs::create_dir(folder.at("spill")).unwrap();
    let query = format!(
        "select a.timestamp, 'S' as channel, a.sequence as sequence, b.sequence as other, \
         repeat(a.channel, 200) as long, (a.sequence * 7919 + b.sequence * 104729) % 1000 as n \
         from {MANY} order by n desc"
    );
    let sorted = |memory: &str| {
        let more = format!("memory = \"{memory}\"\nspill = \"spill\"");
        run(&folder, &(pipeline(&query, &more) + LINES), "2").expect(0);
        assert_eq!(fs::read_dir(folder.at("spill")).unwrap().count(), 0);
        folder.read("out.jsonl")
    };
    let (little, much) = (sorted("8MiB"), sorted("512MiB"));
    assert!(little == much, "{} and {} bytes", little.len(), much.len());
    let rows = lines(&folder, "out.jsonl");
    let rows: Vec<u64> = rows.iter().map(|l| l["fields"]["n"].as_u64().unwrap()).collect();
    assert!(rows.len() > 10_000 && rows.is_sorted_by(|a, b| a >= b), "{}", rows.len());
}

#[test]
fn exceeding_memory_and_spill_is_a_clear_error() {
    let folder = folder();
    let query = format!(
        "select max(a.timestamp) as timestamp, 'ALL' as channel, string_agg(repeat(a.channel, \
         200), '') as everything from {MANY}"
    );
    let ran = run(&folder, &(pipeline(&query, "memory = \"8MiB\"") + LINES), "2").expect(1);
    ran.expect_stderr("does not fit into `memory = \"8MiB\"`");
}

/// What `check` prints for a query.
fn check_query(query: &str, more: &str) -> ProgramOutput {
    let folder = Folder::new();
    let sink = "[sinks.none]\nplugin = \"null\"\nfrom = \"asked\"\n";
    folder.write("p.toml", pipeline(query, more) + sink);
    ProgramOutput::from_output(sluice(&folder).args(["check", "p.toml"]).output().unwrap())
}

#[test]
fn mistakes_are_found_when_a_pipeline_is_checked() {
    check_query("select vel[1] as v from POSE", "").expect(0);
    check_query("select vel from POSE wher vel[1] > 3", "")
        .expect(2)
        .expect_stderr("line 1, column 27");
    check_query("select sqroot(vel[1]) from POSE", "")
        .expect(2)
        .expect_stderr("did you mean `sqrt`?");
    check_query("select nothing from events", "").expect(2).expect_stderr("no column `nothing`");
    check_query("select count(*) from POSE", "").expect(2).expect_stderr("`memory = \"256MiB\"`");
    check_query("select * from POSE order by utime", "")
        .expect(2)
        .expect_stderr("ORDER BY needs all rows");
    check_query("select now() as t from POSE", "")
        .expect(2)
        .expect_stderr("another value in every run");
    check_query("select * from POSE; drop table POSE", "")
        .expect(2)
        .expect_stderr("several statements");
    let first = "timestamp '2007-11-03T14:00:00Z'";
    check_query(&format!("select * from events where timestamp - {first} > interval '1 day'"), "")
        .expect(2)
        .expect_stderr("write hours");
    let declared = "tables = { POSE = \"utime bigint\" }";
    check_query("select vel from POSE", declared).expect(2).expect_stderr("no column `vel`");
    check_query("select utime from POSE", declared).expect(0);
}

#[test]
fn queries_cannot_name_files() {
    let folder = folder();
    let path = folder.write("secret.csv", "a\n1\n").display().to_string();
    let query = format!("select * from \"{path}\"");
    run(&folder, &(pipeline(&query, "") + LINES), "2").expect(0);
    assert!(lines(&folder, "out.jsonl").is_empty());
}
