//! Orca logs that the format description allows, but few loggers wrote.

use crate::kit::{Folder, run_sluice};

use super::{convert, events, orca};

#[test]
fn interfaces_without_colons_in_front_are_those_of_the_first_dialect() {
    let folder = Folder::new();
    orca(&folder);
    let before = events(&folder, "orca/master.log");
    let master = folder.at("orca/master.log");
    let text = std::fs::read_to_string(&master).unwrap();
    for bare in ["orca::", ""] {
        std::fs::write(&master, text.replace("::orca::", bare)).unwrap();
        assert!(events(&folder, "orca/master.log") == before, "`{bare}`");
        let info = run_sluice(&folder, &["info", "orca/master.log"]).expect(0).text();
        assert!(info.contains("orca.Laser") && info.contains("damage   none"), "{info}");
    }
}

#[test]
fn an_encoding_that_is_not_known_is_named_whatever_the_interface_looks_like() {
    let folder = Folder::new();
    orca(&folder);
    let master = folder.at("orca/master.log");
    let text = std::fs::read_to_string(&master).unwrap();
    for bare in ["::orca::", "orca::", ""] {
        let lines = text.lines().map(|line| match line.split_once("::orca::Laser") {
            Some(_) => format!("{bare}Laser jose laser0.log\n"),
            None => line.replace("::orca::", bare) + "\n",
        });
        std::fs::write(&master, lines.collect::<String>()).unwrap();
        let info = run_sluice(&folder, &["info", "orca/master.log"]).expect(3).text();
        let words = info.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("`jose` objects of `Laser` are not supported"), "{info}");
        assert!(info.contains("orca.Position2d"), "{info}");
        // Even if it is the only one.
        let data = text.split("#data\n").nth(1).unwrap();
        std::fs::write(folder.at("only.log"), format!("{bare}Laser jose l.log\n#data\n{data}"))
            .unwrap();
        let line = ["convert", "only.log", "--to", "out.lcm", "--overwrite"];
        let stderr = run_sluice(&folder, &line).expect(3).stderr;
        assert!(stderr.contains("`jose` objects of `Laser` are not supported"), "{stderr}");
    }
}

#[test]
fn an_empty_record_does_not_hide_the_following_ones() {
    let folder = Folder::new();
    orca(&folder);
    let before = events(&folder, "orca/master.log");
    let file = folder.at("orca/position2d0.log");
    let mut bytes = std::fs::read(&file).unwrap();
    // Instead of the third object, which is the fourth record.
    let len = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize + 4;
    let third = (0..3).fold(0, |at, _| at + len(at));
    bytes.splice(third..third + len(third), [0; 4]);
    std::fs::write(&file, &bytes).unwrap();
    let after = events(&folder, "orca/master.log");
    assert_eq!(after.len(), before.len());
    let changed: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].1[4], "\"\"");
    // Zeros at the end are not records.
    bytes.extend([0; 4096]);
    std::fs::write(&file, &bytes).unwrap();
    let info = run_sluice(&folder, &["info", "orca/master.log"]).expect(3).text();
    assert!(info.contains("a record has length 0"), "{info}");
}

#[test]
fn times_are_written_to_the_nearest_microsecond() {
    let folder = Folder::new();
    let mut log = vec![0xa4, 0x56, 0x45, 0x4c, 1, 0, 1, 0, 0, 0, 0, 0];
    let micros = 1_194_098_400_123_457_i64;
    for n in 0..50 {
        log.extend(17_u32.to_le_bytes());
        log.push(0x31);
        log.extend(7_u32.to_le_bytes());
        log.extend(1_i32.to_le_bytes());
        log.extend(((micros + n * 1001) as f64 / 1000.0).to_le_bytes());
    }
    folder.write("unix.vel", &log);
    let epoch = ["--source-option", "epoch=1970-01-01T00:00:00Z"];
    convert(&folder, "unix.vel", "out/log.orca", &epoch).expect(0);
    let times = events(&folder, "out/log.orca").into_iter().map(|[time, ..]| time);
    let expected = (0..50).map(|n| ((micros + n * 1001) * 1000).to_string());
    assert!(times.eq(expected));
}

#[test]
fn events_disabled_for_playback_are_not_played() {
    let folder = Folder::new();
    orca(&folder);
    let played =
        run_sluice(&folder, &["play", "orca/master.log", "--print-pipeline"]).expect(0).text();
    assert!(played.contains("disabled = \"skip\""), "{played}");
    let copied = ["convert", "orca/master.log", "--to", "x.lcm", "--print-pipeline"];
    assert!(!run_sluice(&folder, &copied).expect(0).text().contains("disabled"));
}

#[test]
fn descriptions_of_vehicles_are_decoded() {
    let folder = Folder::new();
    let double = |value: f64| value.to_le_bytes();
    let slice = |name: &str, members: &[u8]| {
        let mut slice = vec![0, name.len() as u8];
        slice.extend(name.as_bytes());
        slice.extend((members.len() as u32 + 4).to_le_bytes());
        slice.extend(members);
        slice
    };
    let mut vehicle = (-1_i32).to_le_bytes().to_vec();
    vehicle.extend([double(0.25); 6].concat());
    vehicle.extend((-2_i32).to_le_bytes());
    vehicle.push(2);
    vehicle.extend(1_i32.to_le_bytes());
    vehicle.extend(slice(
        "::orca::VehicleControlVelocityDifferentialDescription",
        &[double(1.5); 7].concat(),
    ));
    vehicle.extend(slice("::orca::VehicleControlDescription", &[0]));
    vehicle.extend(slice("::Ice::Object", &[0]));
    vehicle.extend(2_i32.to_le_bytes());
    vehicle
        .extend(slice("::orca::VehicleGeometryCylindricalDescription", &[double(0.5); 8].concat()));
    vehicle.extend(slice("::orca::VehicleGeometryDescription", &[1]));
    // A class already named in this record is referenced by number.
    vehicle.extend([1, 3]);
    vehicle.extend(5_u32.to_le_bytes());
    vehicle.extend([0, 0]);
    let mut file = Vec::new();
    let odometry = [&[0; 8][..], &[0; 48], &[0]].concat();
    for record in [&vehicle, &odometry, &odometry] {
        file.push(0);
        file.extend((record.len() as u32).to_le_bytes());
        file.extend(record);
    }
    folder.write("odometry2d0.log", file);
    let master = "odometry2d0.log Odometry2d ice 1\n#data\n5 0 0 0\n5 100 0 1\n";
    folder.write("log.orca", master);
    let lines =
        run_sluice(&folder, &["cat", "log.orca", "--json", "--from", "orca"]).expect(0).text();
    let line: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(line["channel"], "orca.Odometry2d.config", "{line}");
    assert_eq!(line["fields"]["control"]["maxForwardSpeed"], 1.5, "{line}");
    assert_eq!(line["fields"]["geometry"]["radius"], 0.5, "{line}");
}
