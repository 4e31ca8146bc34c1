//! Pictures of Orca's cameras are separate files; each is an event of the log as well.

use std::path::Path;

use crate::kit::{Folder, run_sluice};

use super::{convert, events};

/// A copy of a log of the crate's test data.
fn log(folder: &Folder, case: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/orca/testdata").join(case);
    copy(&from, &folder.at(case));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn descriptions_of_pictures_reach_tables_and_are_restored() {
    for (case, infos) in [("jpeg_c", 3), ("jpeg_b", 3)] {
        let folder = Folder::new();
        log(&folder, case);
        let master = format!("{case}/master.log");
        // Missing pictures are damage.
        convert(&folder, &master, "direct/log.orca", &[]).expect(3);
        let all = events(&folder, "direct/log.orca");
        let descriptions = all.iter().filter(|event| event[2] == "\"orca.Camera.info\"").count();
        assert_eq!(descriptions, infos, "{case}");
        convert(&folder, &master, "by.arrow.zst", &[]).expect(3);
        convert(&folder, "by.arrow.zst", "back/log.orca", &[]).expect(0);
        for entry in std::fs::read_dir(folder.at("direct")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let (found, due) = (format!("back/{name}"), format!("direct/{name}"));
            assert!(folder.read(&found) == folder.read(&due), "{case}: {name}");
        }
        // Tables sort events of the same time by channel.
        convert(&folder, &master, "tables/", &[]).expect(3);
        convert(&folder, "tables/", "back/tables.orca", &[]).expect(0);
        let sorted = |mut events: Vec<[String; 5]>| {
            events.sort();
            events
        };
        assert_eq!(sorted(events(&folder, "back/tables.orca")), sorted(all), "{case}");
    }
}

#[test]
fn the_lines_are_texts_and_the_records_have_fields() {
    let folder = Folder::new();
    log(&folder, "jpeg_c");
    log(&folder, "jpeg_b");
    let cat = |case: &str| -> Vec<serde_json::Value> {
        let master = format!("{case}/master.log");
        let only = ["--channel", "orca.Camera.info", "--payload"];
        let line = [&["cat", &master, "--json"][..], &only].concat();
        let text = run_sluice(&folder, &line).expect(3).text();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let lines = cat("jpeg_c");
    assert_eq!(lines.len(), 3);
    let line = "NjAgMSA2NDAgNDgwIGpwZWc=";
    assert_eq!((&lines[1]["payload"], &lines[1]["encoding"]), (&line.into(), &"text".into()));
    let records = cat("jpeg_b");
    assert_eq!(records.len(), 3);
    let fields = serde_json::json!({
        "width": 640, "height": 480, "format": 1, "compression": 1, "time": 70.5,
        "file": "image00001.jpg"
    });
    assert_eq!(records[0]["fields"], fields, "{}", records[0]);
}
