//! Conformance tests of the sources.

use std::fs;
use std::ops::Range;
use std::time::Duration;

use serde_json::json;
use sluice_conformance::{Integrity, SourceTrial, source};

use crate::kit::{Folder, drive, log, root, run};
use crate::robots;

/// The sources tested here.
pub(super) const NAMES: &[&str] = &[
    "archive", "camlog", "csv", "demo", "jsonl", "lcm-log", "lcm-udp", "lerobot", "mcap", "orca",
    "parquet", "records", "ros1-bag", "ros2-db3", "rosbag2", "vel",
];

/// What a sink with these options writes as `name` for a small log.
fn written(name: &str, sink: &str) -> Vec<u8> {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 8)));
    let text = format!(
        "[sources.log]\nplugin = \"lcm-log\"\npath = \"${{DIR}}/in.lcm\"\n\
         [sinks.out]\nfrom = \"log\"\npath = \"${{DIR}}/{name}\"\n{sink}"
    );
    run(&text, folder.path(), 2).unwrap();
    folder.read(name)
}

#[test]
fn lcm_log() {
    source("lcm-log").sample("drive.lcm", log(&drive(7, 10))).check();
}

#[test]
fn lcm_log_of_some_length() {
    source("lcm-log").sample("drive.lcm", log(&drive(8, 60))).check();
}

#[test]
fn lcm_log_compressed() {
    let packed = zstd::encode_all(&log(&drive(7, 8))[..], 1).unwrap();
    source("lcm-log").sample("drive.lcm.zst", packed).check();
}

/// A sample of the vehicle's camera logs.
fn camlog(name: &str) -> Vec<u8> {
    fs::read(root().join("plugins/dgc/testdata/camlog").join(name)).unwrap()
}

#[test]
fn camlog_of_frame_infos() {
    source("camlog").sample("forward.camlog", camlog("frame-info.camlog")).check();
}

#[test]
fn camlog_of_the_legacy_form() {
    source("camlog").sample("forward.camlog", camlog("legacy.camlog")).check();
}

#[test]
fn vel() {
    let folder = Folder::new();
    source("vel").sample("drive.vel", robots::vel(&folder)).check();
}

#[test]
fn orca() {
    let folder = Folder::new();
    robots::orca(&folder);
    let read = |name: &str| fs::read(folder.at("orca").join(name)).unwrap();
    let master = String::from_utf8(read("master.log")).unwrap();
    // Enough for a last index of two digits: truncated, it would be a different index.
    let lines: Vec<&str> = master.lines().take(3 + 2 * 10).collect();
    let master = lines.join("\n") + "\n";
    // Configuration has the time of the first event, so everything depends on that line.
    let header: usize = lines.iter().take(4).map(|line| line.len() + 1).sum();
    source("orca")
        .sample("master.log", master)
        .sample("laser0.log", read("laser0.log"))
        .sample("position2d0.log", read("position2d0.log"))
        .header(header)
        .check();
}

#[test]
fn parquet_as_one_table() {
    let table = written("drive.parquet", "plugin = \"parquet\"\n");
    source("parquet").sample("drive.parquet", table).reads(&["Parquet"]).whole_or_nothing().check();
}

#[test]
fn parquet_as_a_folder() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 8)));
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"${DIR}/in.lcm\"\n\
         [sinks.out]\nplugin = \"parquet\"\nfrom = \"log\"\npath = \"${DIR}/tables/\"\n";
    run(text, folder.path(), 2).unwrap();
    let tables = folder.at("tables");
    let mut trial = source("parquet")
        .options(json!({ "path": "tables" }))
        .reads(&["Parquet"])
        .whole_or_nothing();
    let mut names: Vec<String> = fs::read_dir(&tables)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("channel="))
        .collect();
    names.sort();
    for name in names {
        let table = format!("{name}/part-00000.parquet");
        let bytes = fs::read(tables.join(&table)).unwrap();
        trial = trial.sample(&format!("tables/{table}"), bytes);
    }
    trial.check();
}

fn archive(name: &str, bytes: Vec<u8>) -> SourceTrial {
    source("archive").sample(name, bytes).integrity(Integrity::Checksummed)
}

#[test]
fn archive_of_an_lcm_log() {
    let bytes = written("drive.lcm.zst", "plugin = \"archive\"\nframe = \"2KiB\"\n");
    archive("drive.lcm.zst", bytes).check();
}

#[test]
fn archive_of_any_events() {
    let sink = "plugin = \"archive\"\nformat = \"arrow\"\nframe = \"2KiB\"\n";
    let bytes = written("drive.zst", sink);
    archive("drive.zst", bytes).check();
}

#[test]
fn archive_of_a_vel_log() {
    let folder = Folder::new();
    robots::vel(&folder);
    let text = "[sources.log]\nplugin = \"vel\"\npath = \"${DIR}/drive.vel\"\n\
         [sinks.out]\nplugin = \"archive\"\nfrom = \"log\"\npath = \"${DIR}/drive.vel.zst\"\n\
         format = \"vel\"\nframe = \"2KiB\"\n";
    run(text, folder.path(), 2).unwrap();
    let bytes = folder.read("drive.vel.zst");
    archive("drive.vel.zst", bytes).check();
}

#[test]
fn jsonl() {
    let lines = written("drive.jsonl", "plugin = \"jsonl\"\npayload = true\n");
    source("jsonl").sample("drive.jsonl", lines).check();
}

#[test]
fn csv() {
    let rows = (0..12).map(|n| format!("{},{},{}\n", n * 20, "ab".repeat(n % 4), n as f64 / 8.0));
    let table = "time,name,value\n".to_owned() + &rows.collect::<String>();
    source("csv")
        .sample("run.csv", table)
        .options(json!({
            "unit": "ms",
            "channel": "RUN",
            "types": { "name": "text", "value": "f64" },
        }))
        .integrity(Integrity::Nothing)
        .check();
}

/// `0xb5 62`, kind, length, milliseconds, bytes, and the checksum that u-blox receivers write.
fn checked_record(n: u32) -> Vec<u8> {
    let data: Vec<u8> = (0..n % 5 * 3).map(|at| (n * 31 + at * 7) as u8).collect();
    let mut record = vec![1];
    record.extend((data.len() as u16).to_le_bytes());
    record.extend((n * 10).to_le_bytes());
    record.extend(&data);
    let sums = record.iter().fold((0u8, 0u8), |(a, b), byte| {
        let a = a.wrapping_add(*byte);
        (a, b.wrapping_add(a))
    });
    [&[0xb5, 0x62], &record[..], &[sums.0, sums.1]].concat()
}

#[test]
fn records() {
    let log: Vec<u8> = (0..10).flat_map(checked_record).collect();
    source("records")
        .sample("run.bin", log)
        .options(json!({
            "sync": "0xb5 62",
            "head": [
                { "type": "u8", "role": "kind" },
                { "type": "u16", "role": "length", "counts": "payload" },
                { "name": "clock", "type": "u32", "role": "time", "unit": "ms" },
            ],
            "kinds": { "1": { "name": "DATA", "fields": [
                { "name": "data", "type": "bytes", "size": "rest" },
            ] } },
            "tail": [{ "type": "u16", "role": "checksum", "algorithm": "ubx", "from": 2 }],
            "epoch": "start",
        }))
        .check();
}

#[test]
fn demo() {
    source("demo").options(json!({ "seconds": 0.2 })).patience(Duration::from_mins(5)).check();
}

#[test]
fn lcm_udp() {
    source("lcm-udp").options(json!({ "url": "udpm://239.255.76.67:7667?ttl=0" })).unread().check();
}

/// A small MCAP file, written with these options.
fn mcap(options: &str) -> Vec<u8> {
    written("drive.mcap", &format!("plugin = \"mcap\"\n{options}"))
}

#[test]
fn mcap_of_zstd_chunks() {
    let file = mcap("chunk = \"1KiB\"");
    let footer = mcap_summary_len(&file);
    let frames = mcap_chunks(&file);
    mcap_source().sample("drive.mcap", file).frames(frames).footer(footer).check();
}

#[test]
fn mcap_of_lz4_chunks() {
    let file = mcap("chunk = \"2KiB\"\ncompression = \"lz4\"");
    let footer = mcap_summary_len(&file);
    let frames = mcap_chunks(&file);
    mcap_source().sample("drive.mcap", file).frames(frames).footer(footer).check();
}

#[test]
fn mcap_of_plain_chunks() {
    let file = mcap("chunk = \"1KiB\"\ncompression = \"none\"");
    let footer = mcap_summary_len(&file);
    let frames = mcap_chunks(&file);
    mcap_source().sample("drive.mcap", file).frames(frames).footer(footer).check();
}

/// A file as recorders leave it that lose their power.
#[test]
fn mcap_without_a_summary() {
    let file = mcap("chunk = \"1KiB\"\ncompression = \"none\"");
    let end = file.len() - mcap_summary_len(&file) - 13;
    let frames = mcap_chunks(&file[..end]);
    mcap_source().sample("drive.mcap", &file[..end]).frames(frames).check();
}

#[test]
fn mcap_without_chunks() {
    let file = mcap("chunk = \"128MiB\"\ncompression = \"none\"");
    // What a chunk contains is what a file without chunks contains: `09 00 … 00` is its checksum's
    // neighbour, the length of the name of its compression, followed by that of its records.
    let header = 8 + 9 + u64::from_le_bytes(file[9..17].try_into().unwrap()) as usize;
    let records = header + 9 + 40;
    let len = u64::from_le_bytes(file[records - 8..records].try_into().unwrap()) as usize;
    let plain = [&file[..header], &file[records..records + len]].concat();
    mcap_source().sample("drive.mcap", plain).check();
}

#[test]
fn mcap_compressed_as_a_whole() {
    let packed = zstd::encode_all(&mcap("chunk = \"1KiB\"")[..], 1).unwrap();
    mcap_source().sample("drive.mcap.zst", packed).check();
}

fn mcap_source() -> SourceTrial {
    source("mcap").reads(&["MCAP"])
}

/// Where the chunks of an MCAP file are.
fn mcap_chunks(file: &[u8]) -> Vec<Range<usize>> {
    let (mut chunks, mut at) = (Vec::new(), 8);
    while let Some(head) = file.get(at..at + 9) {
        let end = at + 9 + u64::from_le_bytes(head[1..].try_into().unwrap()) as usize;
        if head[0] == 6 {
            chunks.push(at..end);
        }
        at = end;
    }
    chunks
}

/// The length of the summary of an MCAP file, with footer and magic.
fn mcap_summary_len(file: &[u8]) -> usize {
    let footer = file.len() - 8 - 20;
    let start = u64::from_le_bytes(file[footer..footer + 8].try_into().unwrap());
    file.len() - start as usize
}

/// A bag of the family's cases whose chunks end at this byte.
fn ros1_bag(case: &str, chunks_end: usize) -> (SourceTrial, Vec<u8>) {
    let file = root().join("plugins/ros/testdata").join(case).join("log.bag");
    let bag = fs::read(file).unwrap();
    let footer = bag.len() - chunks_end;
    let trial = source("ros1-bag").sample("drive.bag", bag.clone()).reads(&["ROS bag"]);
    (trial.footer(footer), bag)
}

/// Where the only chunk of that bag ends.
const ONE_CHUNK_END: usize = 6199;

#[test]
fn ros1_bag_without_compression() {
    ros1_bag("bag-one-chunk", ONE_CHUNK_END).0.check();
}

#[test]
fn ros1_bag_of_lz4() {
    ros1_bag("bag-lz4", 6206).0.check();
}

#[test]
fn ros1_bag_that_was_not_closed() {
    let (_, bag) = ros1_bag("bag-one-chunk", ONE_CHUNK_END);
    let start = &bag[..ONE_CHUNK_END];
    source("ros1-bag").sample("drive.bag", start).reads(&["ROS bag"]).check();
}

/// A SQLite bag of the family's cases, and its length up to the page with the last description.
fn db3(case: &str, header: usize) -> SourceTrial {
    let file = root().join("plugins/ros/testdata").join(case).join("log.db3");
    let trial = source("ros2-db3").sample("log.db3", fs::read(file).unwrap());
    trial.header(header).reads(&["SQLite"])
}

#[test]
fn ros2_db3() {
    db3("db3-plain", 12 * 512).check();
}

#[test]
fn ros2_db3_without_declarations() {
    db3("db3-without-declarations", 3 * 512).check();
}

#[test]
fn lerobot() {
    // Its sample is a folder; plugins/lerobot has the tests.
    source("lerobot").unread().check();
}

#[test]
fn rosbag2() {
    source("rosbag2").unread().check();
}
