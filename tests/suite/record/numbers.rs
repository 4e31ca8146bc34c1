//! Several recordings with one name.

use crate::kit::{Folder, run_sluice};
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
