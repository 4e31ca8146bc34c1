//! Logs as files: cut, continued, compressed, joined and numbered.

use sluice_lcm::fuzzing::append_event;

use super::files::{assert_fails_unchanged, folder_with_log};
use crate::kit::{Folder, LcmEvent, decompressed, drive, log, run_sluice};

#[test]
fn a_log_is_cut_into_files_of_limited_size() {
    let folder = folder_with_log();
    let convert = ["convert", "in.lcm", "--to", "out.lcm", "--sink-option", "split_mb=0.03125"];
    run_sluice(&folder, &convert).expect(0);
    let names: Vec<String> = folder.names().into_iter().filter(|n| n.starts_with("out")).collect();
    assert!(names.len() > 2 && names[0] == "out-00000.lcm", "{names:?}");
    let files: Vec<Vec<u8>> = names.iter().map(|name| folder.read(name)).collect();
    assert!(files.concat() == folder.read("in.lcm"));
    assert!(files.iter().all(|file| file.len() <= 32 << 10));
    // Fewer files replace only the first ones, and a folder is emptied.
    let fewer = ["convert", "in.lcm", "--to", "out.lcm", "--overwrite", "--sink-option"];
    run_sluice(&folder, &[&fewer[..], &["split_mb=0.0625"]].concat())
        .expect(0)
        .expect_stderr("out-00002.lcm is of an older run");
    let all = run_sluice(&folder, &[&fewer[..], &["split_mb=0.03125"]].concat()).expect(0);
    assert!(!all.stderr.contains("older run"));
}

#[test]
fn formats_that_need_files_say_so_of_standard_input() {
    let folder = folder_with_log();
    for format in ["parquet", "rosbag2", "ros2-db3", "lerobot", "orca"] {
        run_sluice(&folder, &["convert", "-", "--from", format, "--to", "out.lcm"])
            .expect(2)
            .expect_stderr("expected a file or folder, found `-`");
    }
}

#[test]
fn numbers_are_kept_or_assigned_again_in_each_file() {
    let folder = Folder::new();
    let events: Vec<LcmEvent> =
        drive(1, 300).into_iter().map(|e| LcmEvent { number: e.number * 3 + 7, ..e }).collect();
    folder.write("in.lcm", log(&events));
    run_sluice(&folder, &["convert", "in.lcm", "--to", "kept.lcm"]).expect(0);
    assert_eq!(folder.read("kept.lcm"), log(&events));
    let anew = ["--sink-option", "renumber=true", "--sink-option", "split_mb=0.0625"];
    run_sluice(&folder, &[&["convert", "in.lcm", "--to", "new.lcm"][..], &anew].concat()).expect(0);
    let (first, second) = (folder.read("new-00000.lcm"), folder.read("new-00001.lcm"));
    for file in [&first, &second] {
        let numbers = crate::kit::numbers(file);
        assert_eq!(numbers, (0..numbers.len() as i64).collect::<Vec<_>>());
    }
}

#[test]
fn a_log_is_continued() {
    let folder = Folder::new();
    let (first, second) = (drive(1, 30), drive(2, 40));
    for (name, events) in [("1.lcm", &first), ("2.lcm", &second)] {
        folder.write(name, log(events));
    }
    for output in ["out.lcm", "out.lcm.zst"] {
        for input in ["1.lcm", "2.lcm"] {
            let append = ["convert", input, "--to", output, "--sink-option", "append=true"];
            run_sluice(&folder, &append).expect(0);
        }
    }
    assert_eq!(folder.read("out.lcm"), [log(&first), log(&second)].concat());
    let continued = decompressed(&folder.read("out.lcm.zst"));
    assert_eq!(continued, folder.read("out.lcm"));
    let renumber = ["--sink-option", "append=true", "--sink-option", "renumber=true"];
    for input in ["1.lcm", "2.lcm"] {
        run_sluice(&folder, &[&["convert", input, "--to", "n.lcm"][..], &renumber].concat())
            .expect(0);
    }
    assert_eq!(crate::kit::numbers(&folder.read("n.lcm")), (0..70).collect::<Vec<_>>());
    let both = ["--to", "n.lcm", "--overwrite", "--sink-option", "append=true"];
    let told = "is continued, and cannot be replaced as well";
    assert_fails_unchanged(&folder, &[&["convert", "1.lcm"][..], &both].concat(), told);
}

#[test]
fn a_run_that_fails_leaves_the_log_it_was_to_continue_as_it_was() {
    let folder = folder_with_log();
    folder.write("out.lcm", log(&drive(2, 10)));
    folder.write("cut.lcm", &folder.read("in.lcm")[..5_000]);
    let text = "[sources.log]\nplugin = \"lcm-log\"\npath = \"cut.lcm\"\non_damage = \"stop\"\n\
        [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"out.lcm\"\nappend = true\n";
    folder.write("stop.toml", text);
    assert_fails_unchanged(&folder, &["run", "stop.toml"], "could not be read");
}

#[test]
fn compressed_logs_are_read_and_written() {
    let folder = folder_with_log();
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.lcm.zst"]).expect(0);
    let plain = decompressed(&folder.read("out.lcm.zst"));
    assert!(plain == folder.read("in.lcm") && plain.len() > folder.read("out.lcm.zst").len());
    run_sluice(&folder, &["convert", "out.lcm.zst", "--to", "back.lcm"]).expect(0);
    assert!(folder.read("back.lcm") == plain);
    run_sluice(&folder, &["convert", "in.lcm", "--to", "out.jsonl.zst"]).expect(0);
    let lines = decompressed(&folder.read("out.jsonl.zst"));
    assert_eq!(String::from_utf8(lines).unwrap().lines().count(), 300);
}

#[test]
fn a_compressed_log_that_is_cut_off_is_never_taken_for_whole() {
    let folder = folder_with_log();
    let packed = zstd::encode_all(&folder.read("in.lcm")[..], 1).unwrap();
    folder.write("cut.lcm.zst", &packed[..packed.len() / 2]);
    let tried = run_sluice(&folder, &["convert", "cut.lcm.zst", "--to", "out.lcm"]).expect(3);
    assert!(tried.stderr.contains("damaged or cut off"), "{}", tried.stderr);
    assert!(folder.read("in.lcm").starts_with(&folder.read("out.lcm")));
}

#[test]
fn several_logs_become_one_and_a_window_is_cut_out() {
    let folder = Folder::new();
    folder.write("a.lcm", log(&drive(1, 100)));
    let mut later = drive(2, 100);
    later.iter_mut().for_each(|event| event.utime += 1_000_000);
    folder.write("b.lcm", log(&later));
    run_sluice(&folder, &["convert", "b.lcm", "a.lcm", "--to", "both.lcm"]).expect(0);
    assert!(folder.read("both.lcm") == [log(&later), log(&drive(1, 100))].concat());
    let window = ["convert", "[ab].lcm", "--to", "part.lcm", "--start", "+0.05", "--end", "+1.05"];
    run_sluice(&folder, &[&window[..], &["-c", "[A-C]", "-x", "B"]].concat()).expect(0);
    let begin = drive(1, 100)[0].utime;
    let mut expected = Vec::new();
    for event in drive(1, 100).iter().chain(&later) {
        let inside = (begin + 50_000..begin + 1_050_000).contains(&event.utime);
        if inside && matches!(&event.channel[..], b"A" | b"C") {
            let LcmEvent { number, utime, channel, payload } = event;
            append_event(&mut expected, *number, *utime, channel, payload).unwrap();
        }
    }
    assert!(!expected.is_empty() && folder.read("part.lcm") == expected);
}
