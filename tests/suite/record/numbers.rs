//! Several recordings with one name.

use sluice_kit::contract::trials;

use crate::kit::{Folder, ProgramOutput, run_sluice};
use crate::recorder::{Recorder, Sender};

#[test]
fn recordings_with_one_name_take_different_numbers() {
    for name in ["a.lcm", "a.mcap", "a.parquet"] {
        let (folder, mut sender) = (Folder::new(), Sender::new());
        let arguments = ["--to", name, "--split-seconds", "0.05"];
        let mut recorders: Vec<Recorder> =
            (0..4).map(|_| sender.start(&folder, &arguments)).collect();
        for number in 0..10 {
            sender.send("A", &[number; 1024]);
            recorders.iter_mut().for_each(|recorder| recorder.wait_for("writing a."));
        }
        for recorder in recorders {
            recorder.stop().expect(0).expect_stderr("10 events");
        }
        assert!(!folder.names().iter().any(|name| name.starts_with('.')), "{:?}", folder.names());
        let names = folder.names();
        // The last file of each may be empty.
        let has_events = |name: &&str| !folder.read(name).is_empty();
        let files: Vec<&str> = names.iter().map(String::as_str).filter(has_events).collect();
        assert!(files.len() >= 4 * 10, "{names:?}");
        run_sluice(&folder, &[&["verify"], &files[..]].concat()).expect(0);
    }
}

#[test]
fn recordings_that_start_at_once_in_a_new_folder_take_different_numbers() {
    let sender = Sender::new();
    for _ in 0..trials(5, 100) {
        let folder = Folder::new();
        let record = || sender.record(&folder, &["--to", "new/a.lcm", "--increment"]);
        let recorders = std::thread::scope(|scope| {
            let start = |command| scope.spawn(move || Recorder::start(command));
            [record(), record()].map(start).map(|recorder| recorder.join().unwrap())
        });
        for recorder in recorders {
            recorder.stop().expect(0);
        }
        for name in ["new/a.lcm.00", "new/a.lcm.01"] {
            assert!(folder.at(name).is_file(), "{name}");
        }
    }
}

#[test]
fn a_recording_that_cannot_start_leaves_no_new_folder() {
    let folder = Folder::new();
    let too_long = format!("new/deep/{}.lcm", "a".repeat(300));
    let output = Sender::new().record(&folder, &["--to", &too_long]).output().unwrap();
    ProgramOutput::from_output(output).expect(1).expect_stderr("aaaa");
    assert_eq!(folder.names(), [""; 0]);
}
