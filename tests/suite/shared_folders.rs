//! Batches whose units write several files into one folder.

use std::fs;

use crate::batch::tree;
use crate::kit::{Folder, LcmEvent, log, run_sluice};

/// An Orca log in a folder of its own: its subfile is named like those of the others.
fn write_orca_log(folder: &Folder, number: u8) {
    let record = |index: u8| {
        let mut record = vec![number; usize::from(number) * 3 + 20];
        record.extend([index, 0]);
        let length = (record.len() as u32).to_le_bytes();
        [&length[..], &record].concat()
    };
    let lines: String =
        (0..50).map(|index| format!("{} 0 0 {}\n", 100 + index, index + 1)).collect();
    fs::create_dir_all(folder.at(&format!("in/r{number}"))).unwrap();
    let subfile: Vec<u8> = (0..50).flat_map(record).collect();
    folder.write(&format!("in/r{number}/laser0.log"), subfile);
    let master = format!("::orca::Laser ice laser0.log\n#data\n{lines}");
    folder.write(&format!("in/r{number}/master.log"), master);
}

#[test]
fn orca_logs_of_one_folder_keep_their_subfiles_apart() {
    let folder = Folder::new();
    (1..=6).for_each(|number| write_orca_log(&folder, number));
    // The channel of each, with the stem of its name, is that of the other.
    let event = |channel: &str| log(&[LcmEvent::new(0, 1_000_000, channel, channel.as_bytes())]);
    folder.write("a.lcm", event("b_c"));
    folder.write("a_b.lcm", event("c"));
    folder.write("a_b_c0.lcm", event("d"));
    // So long that the names of subfiles cannot have all of it.
    let long = ["x", "y"].map(|end| format!("{}{end}", "a".repeat(230)));
    long.iter().for_each(|stem| drop(folder.write(&format!("{stem}.lcm"), event("pose_of_arm"))));
    let sink = |name: &str, plugin: &str, path: &str| {
        format!("[sinks.{name}]\nplugin = \"{plugin}\"\nfrom = \"log\"\npath = \"{path}\"\n")
    };
    let two = [
        "[sources.log]\nplugin = \"orca\"\npath = \"in/*/master.log\"\n",
        "config_records = { \"laser0.log\" = 0 }\n",
        &sink("own", "orca", "two/{parent}/drive.log"),
        &sink("lines", "jsonl", "lines/{parent}.jsonl"),
    ];
    folder.write("two.toml", two.concat());
    let records = ["--source-option", "config_records={\"laser0.log\"=0}"];
    let mut first = None;
    for jobs in ["1", "2", "4"] {
        for name in ["out", "apart", "lcm", "long", "two", "lines"] {
            drop(fs::remove_dir_all(folder.at(name)));
        }
        let common = ["--as", "orca", "--overwrite", "--jobs", jobs];
        let convert = |from: &[&str], to: &str| {
            let command = [&["convert"], from, &["--to", to], &common].concat();
            run_sluice(&folder, &command).expect(0);
        };
        let logs = [&["in/*/master.log"][..], &records].concat();
        convert(&logs, "out/{parent}.log");
        convert(&logs, "apart/{parent}/drive.log");
        // A folder of its own, although another sink has one for all.
        run_sluice(&folder, &["run", "two.toml", "--overwrite", "--jobs", jobs]).expect(0);
        assert!(folder.at("two/r1/laser0.log").exists());
        convert(&["a.lcm", "a_b.lcm", "a_b_c0.lcm"], "lcm/{stem}.log");
        convert(&["a*x.lcm", "a*y.lcm"], "long/{stem}.log");
        run_sluice(&folder, &["verify", "long"]).expect(0);
        assert_eq!(tree(&folder.at("long")).len(), 5);
        let found = ["out", "apart", "lcm"].map(|name| tree(&folder.at(name)));
        assert_eq!(found.each_ref().map(|files| files.len()), [13, 13, 7], "--jobs {jobs}");
        for number in 1..=6 {
            let subfile = folder.read(&format!("in/r{number}/laser0.log"));
            assert!(folder.read(&format!("out/r{number}.log.laser0.log")) == subfile);
            assert!(folder.read(&format!("apart/r{number}/laser0.log")) == subfile);
        }
        let [out, apart, lcm] = found;
        let files = [out, apart, lcm].into_iter().flat_map(|files| {
            files.into_iter().filter(|(name, _)| !name.ends_with("_manifest.json"))
        });
        let files: Vec<(String, Vec<u8>)> = files.collect();
        assert!(first.get_or_insert_with(|| files.clone()) == &files, "--jobs {jobs}");
        run_sluice(&folder, &["verify", "out"]).expect(0);
    }
}

#[test]
fn an_orca_log_is_converted_again_if_one_of_its_files_has_changed() {
    let folder = Folder::new();
    (1..=3).for_each(|number| write_orca_log(&folder, number));
    let records = ["--source-option", "config_records={\"laser0.log\"=0}"];
    let convert = ["convert", "in/*/master.log", "--to", "out/{parent}.lcm", "--resume"];
    let resume = || run_sluice(&folder, &[&convert[..], &records].concat()).expect(0);
    resume();
    let whole = tree(&folder.at("out"));
    resume().expect_stderr("3 done before");
    let subfile = "in/r2/laser0.log";
    let mut bytes = folder.read(subfile);
    let payload = bytes.len() - 10;
    bytes[payload] ^= 1;
    folder.write(subfile, bytes);
    resume().expect_stderr("2 done before");
    let again = tree(&folder.at("out"));
    assert!(again["r2.lcm"] != whole["r2.lcm"]);
    assert!(again["r1.lcm"] == whole["r1.lcm"] && again["r3.lcm"] == whole["r3.lcm"]);
    fs::remove_file(folder.at("in/r3/laser0.log")).unwrap();
    let ran = run_sluice(&folder, &[&convert[..], &records].concat());
    assert!(ran.code != Some(0), "{}", ran.stderr);
}
