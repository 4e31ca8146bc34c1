//! Datasets whose files only mean something together.

use crate::kit::{Folder, run_sluice};

const DATASET: &str = "[sources.drive]\nplugin = \"demo\"\nseconds = 2\n\
    [stages.typed]\nplugin = \"decode\"\nfrom = \"drive\"\ntypes = [\"mit-dgc\"]\n\
    [stages.aligned]\nplugin = \"align\"\nfrom = \"typed\"\nrate = \"10Hz\"\n\
    fields = { action = [\"POSE.vel\"] }\n\
    [sinks.dataset]\nplugin = \"lerobot\"\nfrom = \"aligned\"\npath = \"set/\"\nfps = 10\n";

/// Its tables cannot be read alone, so that their rows are not counted: their bytes are compared.
#[test]
fn verify_finds_a_changed_file_of_a_dataset() {
    let folder = Folder::new();
    folder.write("set.toml", DATASET);
    run_sluice(&folder, &["run", "set.toml"]).expect(0);
    run_sluice(&folder, &["verify", "set"]).expect(0);
    let table = "set/data/chunk-000/file-000.parquet";
    let mut bytes = folder.read(table);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    folder.write(table, bytes);
    let text = run_sluice(&folder, &["verify", "set"]).expect(1).text();
    assert!(text.contains("file-000.parquet has the hash"), "{text}");
}
