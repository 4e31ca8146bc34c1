//! What killed batches leave is removed when they are resumed.

use std::fs;

use super::{assert_same_files, folder, json, tree};
use crate::kit::{Folder, drive, log, run_sluice};

/// The end of a temporary name. Its process ended long ago.
const ENDED: &str = "1-999999999";

#[test]
fn what_was_an_index_is_removed_once_its_output_is_whole() {
    let folder = folder();
    let orca = ["convert", "in/*.lcm", "--to", "orca/{stem}.orca"];
    let files = ["convert", "in/*.lcm", "--to", "files/{stem}/", "--as", "files"];
    let single = ["convert", "in/1.lcm", "--to", "single/", "--as", "files"];
    for convert in [&orca[..], &files, &single] {
        run_sluice(&folder, convert).expect(0);
    }
    let outputs = ["orca", "files", "single"];
    let trees = || outputs.map(|name| tree(&folder.at(name)));
    let whole = trees();
    for index in ["orca/.1.orca", "files/1/.index.csv", "single/.index.csv"] {
        folder.write(&format!("{index}.{ENDED}-index2.sluice-tmp"), "index");
    }
    for convert in [&orca[..], &files, &single] {
        let resume = [convert, &["--resume"]].concat();
        let resumed = run_sluice(&folder, &resume).expect(0);
        assert!(resumed.stderr.contains("done"), "{}", resumed.stderr);
    }
    for (found, whole) in trees().iter().zip(&whole) {
        assert_same_files(found, whole);
    }
}

/// Leaves the batch in `out` as if it had been killed after it had published the outputs of its
/// only input over those that this manifest describes.
fn kill_after_publishing(folder: &Folder, earlier: &[u8]) {
    let manifest = json(&folder.read("out/_manifest.json"));
    folder.write("out/_units.jsonl", format!("{}\n", manifest["units"][0]));
    folder.write("out/_manifest.json", earlier);
}

#[test]
fn folders_that_a_killed_run_has_emptied_are_removed() {
    for to in ["out/{stem}/", "out/log={stem}/"] {
        let folder = Folder::new();
        let mut events = drive(1, 60);
        folder.write("x.lcm", log(&events));
        let convert = ["convert", "x.lcm", "--to", to];
        run_sluice(&folder, &convert).expect(0);
        let earlier = folder.read("out/_manifest.json");
        let output = folder.at(to.trim_end_matches('/').replace("{stem}", "x").as_str());
        let emptied = output.join("channel=A");
        assert!(emptied.exists());
        events.retain(|event| event.channel != b"A");
        folder.write("x.lcm", log(&events));
        run_sluice(&folder, &[&convert[..], &["--overwrite"]].concat()).expect(0);
        assert!(!emptied.exists());
        kill_after_publishing(&folder, &earlier);
        fs::create_dir(&emptied).unwrap();
        // One that no record names stays.
        fs::create_dir(output.join("other")).unwrap();
        run_sluice(&folder, &[&convert[..], &["--resume"]].concat())
            .expect(0)
            .expect_stderr("1 done before");
        assert!(!emptied.exists() && output.join("other").exists(), "{to}");
    }
}

#[test]
fn folders_that_only_a_killed_run_has_begun_are_removed() {
    let folder = folder();
    let batch = ["convert", "in/*.lcm", "--to", "out/{stem}/"];
    let single = ["convert", "in/1.lcm", "--to", "single/"];
    for (convert, output) in [(&batch[..], "out/1"), (&single, "single")] {
        run_sluice(&folder, convert).expect(0);
        for begun in ["channel=NEW", "a/b/channel=NEW", "other"] {
            fs::create_dir_all(folder.at(&format!("{output}/{begun}"))).unwrap();
            if begun != "other" {
                let name = format!("{output}/{begun}/.part-00000.parquet.{ENDED}-3.sluice-tmp");
                folder.write(&name, "PAR1");
            }
        }
        run_sluice(&folder, &[convert, &["--resume"]].concat()).expect(0);
        let exists = |name: &str| folder.at(&format!("{output}/{name}")).exists();
        assert!(!exists("channel=NEW") && !exists("a") && exists("other"), "{output}");
    }
}

#[test]
fn what_a_killed_merge_left_of_a_record_is_removed_by_the_next_batch() {
    let folder = folder();
    let convert = |more: &[&str]| {
        let convert = ["convert", "in/*.lcm", "--to", "out/{stem}/x.jsonl"];
        run_sluice(&folder, &[&convert[..], more].concat()).expect(0);
    };
    let leave = || {
        for record in ["_shard-1-of-2.json", "_manifest.json"] {
            folder.write(&format!("out/.{record}.{ENDED}-0.sluice-tmp"), "{");
        }
    };
    convert(&[]);
    let whole = tree(&folder.at("out"));
    for more in ["--resume", "--overwrite"] {
        leave();
        convert(&[more]);
        assert_same_files(&whole, &tree(&folder.at("out")));
    }
    convert(&["--overwrite", "--shard", "1/2"]);
    convert(&["--overwrite", "--shard", "2/2"]);
    leave();
    run_sluice(&folder, &["merge-manifests", "out"]).expect(0);
    assert_same_files(&whole, &tree(&folder.at("out")));
}
