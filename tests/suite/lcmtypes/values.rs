//! Messages of random types, written by generated Python: their fields in JSON and tables, and
//! restoring them byte for byte.
//!
//! `SLUICE_SEED` sets the seed, `SLUICE_CASES` the number of types.

use serde_json::Value;

use super::peer::Peer;
use crate::kit::{Folder, run_sluice};

const SEEDS: [u64; 2] = [1, 2];
const CASES: u64 = 60;

fn env_number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|e| panic!("{variable}: {e}")))
}

#[test]
fn values_of_random_types_are_those_that_the_python_classes_wrote() {
    let Some(peer) = Peer::with("lcm, pyarrow, duckdb") else { return };
    let seeds = env_number("SLUICE_SEED").map_or(SEEDS.to_vec(), |seed| vec![seed]);
    let cases = env_number("SLUICE_CASES").unwrap_or(CASES).to_string();
    for seed in seeds {
        println!("SLUICE_SEED={seed} SLUICE_CASES={cases}");
        let folder = Folder::new();
        peer.script("values.py", folder.path(), &[&seed.to_string(), &cases]);
        assert_shown_as_expected(&peer, &folder, "in.lcm");
        assert_tables_come_back(&folder);
        peer.script("tables.py", folder.path(), &[]);
        assert_tables_of_others_come_back(&peer, &folder);
    }
}

/// Checks that `sluice cat` shows what the writer reports.
fn assert_shown_as_expected(peer: &Peer, folder: &Folder, log: &str) {
    let shown = run_sluice(folder, &["cat", log, "--types", "types", "--json"]).expect(0);
    folder.write("shown.jsonl", shown.stdout);
    peer.script("same.py", folder.path(), &[]);
}

fn assert_tables_come_back(folder: &Folder) {
    let to = ["convert", "in.lcm", "--types", "types", "--to", "tables/", "--report", "r.json"];
    run_sluice(folder, &to).expect(0);
    let report: Value = serde_json::from_slice(&folder.read("r.json")).unwrap();
    let channels = report["channels"].as_array().unwrap();
    assert!(channels.len() > 1 && channels.iter().all(|channel| channel["undecoded"] == 0));
    // Without `--types`: the tables name their types.
    run_sluice(folder, &["convert", "tables/", "--to", "back.lcm"]).expect(0);
    assert!(folder.read("back.lcm") == folder.read("in.lcm"));
}

/// Tables written by others only have columns: their types must be given.
fn assert_tables_of_others_come_back(peer: &Peer, folder: &Folder) {
    for tool in ["pyarrow", "duckdb"] {
        let (tables, back) = (format!("{tool}/"), format!("{tool}.lcm"));
        run_sluice(folder, &["convert", &tables, "--types", "types", "--to", &back]).expect(0);
    }
    assert!(folder.read("pyarrow.lcm") == folder.read("in.lcm"));
    // DuckDB has a single NaN.
    assert_shown_as_expected(peer, folder, "duckdb.lcm");
}
