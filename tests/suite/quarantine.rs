//! The files of `on_damage = "quarantine"`: the damaged bytes of whatever was read, and only those.

use serde_json::Value;

use crate::kit::{Folder, drive, log, run_sluice};

/// Reads a log, and writes its damaged bytes to `bad.bin`. Returns its damage, as offset and
/// length.
fn quarantine(folder: &Folder, plugin: &str, path: &str) -> Vec<(usize, usize)> {
    let text = format!(
        "[sources.log]\nplugin = \"{plugin}\"\npath = \"{path}\"\n\
         on_damage = \"quarantine\"\nquarantine = \"bad.bin\"\n\
         [sinks.none]\nplugin = \"null\"\nfrom = \"log\"\n"
    );
    folder.write("keep.toml", text);
    let run = ["run", "keep.toml", "--overwrite", "--report", "r.json"];
    run_sluice(folder, &run).expect(3);
    let report: Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
    let number = |range: &Value, key: &str| range[key].as_u64().unwrap() as usize;
    let ranges = report["damage"].as_array().unwrap().iter();
    ranges.map(|range| (number(range, "offset"), number(range, "length"))).collect()
}

/// The bytes at these places.
fn at(bytes: &[u8], ranges: &[(usize, usize)]) -> Vec<u8> {
    ranges.iter().flat_map(|(at, len)| &bytes[*at..at + len]).copied().collect()
}

#[test]
fn the_quarantine_of_an_archive_has_its_compressed_bytes() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 4_000)));
    for name in ["log.lcm.zst", "log.vel.zst", "log.arrow.zst"] {
        let small = ["--sink-option", "frame=32KiB"];
        run_sluice(&folder, &[&["convert", "in.lcm", "--to", name][..], &small].concat()).expect(0);
        let good = folder.read(name);
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        // The last one has damage at its end, behind which nothing was compressed.
        for bad in [&flipped[..], &good[..good.len() / 2], &[&good[..], b"stray"].concat()] {
            folder.write(name, bad);
            let ranges = quarantine(&folder, "archive", name);
            assert!(!at(bad, &ranges).is_empty(), "{name}: {ranges:?}");
            assert!(folder.read("bad.bin") == at(bad, &ranges), "{name}: {ranges:?}");
        }
    }
}

#[test]
fn the_quarantine_of_other_compressed_logs_has_their_decompressed_bytes() {
    let folder = Folder::new();
    folder.write("in.lcm", log(&drive(7, 400)));
    for (name, plugin) in [("log.vel", "vel"), ("log.mcap", "mcap"), ("log.jsonl", "jsonl")] {
        run_sluice(&folder, &["convert", "in.lcm", "--to", name]).expect(0);
        let mut bad = folder.read(name);
        let middle = bad.len() / 2;
        bad[middle..middle + 400].fill(0xee);
        folder.write("log.zst", zstd::encode_all(&bad[..], 1).unwrap());
        let ranges = quarantine(&folder, plugin, "log.zst");
        assert!(!at(&bad, &ranges).is_empty(), "{name}: {ranges:?}");
        assert!(folder.read("bad.bin") == at(&bad, &ranges), "{name}: {ranges:?}");
    }
}

#[test]
fn bytes_behind_a_compressed_log_are_told_with_their_place_in_its_file() {
    let folder = Folder::new();
    let plain = log(&drive(7, 400));
    folder.write("in.lcm", &plain);
    for name in ["log.lcm", "log.jsonl", "log.mcap"] {
        let with_payload: &[&str] =
            if name == "log.jsonl" { &["--sink-option", "payload=true"] } else { &[] };
        if name != "log.lcm" {
            run_sluice(&folder, &[&["convert", "in.lcm", "--to", name], with_payload].concat())
                .expect(0);
        }
        let contents = if name == "log.lcm" { plain.clone() } else { folder.read(name) };
        let packed = zstd::encode_all(&contents[..], 1).unwrap();
        let packed_name = format!("{name}.zst");
        folder.write(&packed_name, [&packed[..], &plain].concat());
        let place = format!(
            "; the compressed data from byte {} to {} is left out",
            packed.len(),
            packed.len() + plain.len()
        );
        let text = run_sluice(&folder, &["info", &packed_name, "--json"]).expect(3).text();
        assert!(text.contains(&place), "{name}: {text}");
    }
}
