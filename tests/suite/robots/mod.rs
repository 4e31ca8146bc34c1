//! VEL and Orca logs through the command line, compared with independent writers.

mod booleans;
mod lossless;
mod oddities;
mod pictures;
mod sensors;
mod typed_layer;
mod writers;

use crate::kit::{Folder, ProgramOutput, joined_lines, run_sluice};

/// A VEL DataLog of an inertial unit and two laser scanners, one event every 100 ms: `drive.vel`.
pub(crate) fn vel(folder: &Folder) -> Vec<u8> {
    let mut log = vec![0xa4, 0x56, 0x45, 0x4c, 1, 0, 1, 0, 0, 0, 0, 0];
    let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    for n in 0u32..60 {
        let (id, version, payload) = match n % 3 {
            0 => (
                0x0001_8d07_u32,
                102_i32,
                [text("XSens_MTi"), text("imu"), vec![n as u8; 28]].concat(),
            ),
            m => {
                let scan = [text("SICK"), text(if m == 1 { "front" } else { "back" })].concat();
                let ranges = [&2u32.to_le_bytes()[..], &n.to_le_bytes(), &[0; 4]].concat();
                (0x0003_0910, 101, [scan, ranges].concat())
            }
        };
        log.extend((payload.len() as u32 + 17).to_le_bytes());
        log.push(0x31);
        log.extend(id.to_le_bytes());
        log.extend(version.to_le_bytes());
        log.extend((f64::from(n) * 100.0).to_le_bytes());
        log.extend(payload);
    }
    folder.write("plain.vel", &log);
    // With an index, as the original software writes it.
    run_sluice(folder, &["convert", "plain.vel", "--to", "drive.vel"]).expect(0);
    folder.read("drive.vel")
}

/// An Orca log of 2006, of a laser scanner with its configuration and a position:
/// `orca/master.log`.
pub(crate) fn orca(folder: &Folder) {
    let at = folder.at("orca");
    std::fs::create_dir(&at).unwrap();
    let (mut laser, mut position, mut lines) = (Vec::new(), Vec::new(), String::new());
    let put = |file: &mut Vec<u8>, slices: &[(&str, &[u8])]| {
        let record = record(slices);
        file.extend((record.len() as u32).to_le_bytes());
        file.extend(record);
    };
    put(&mut laser, &[("::orca::RangeScannerConfig", &[0; 17]), ("::orca::OrcaObject", &[0; 8])]);
    put(&mut laser, &[("::orca::RangeScannerGeometry", &[0; 72]), ("::orca::OrcaObject", &[0; 8])]);
    put(
        &mut position,
        &[("::orca::Position2dGeometry", &[0; 40]), ("::orca::OrcaObject", &[0; 8])],
    );
    for n in 0u32..20 {
        let (seconds, micros) = (1_154_412_007 + n / 10, n % 10 * 100_000);
        let time = [seconds.to_le_bytes(), micros.to_le_bytes()].concat();
        let ranges = [&[2][..], &(n as f32).to_le_bytes(), &[0; 12]].concat();
        let scan = [
            ("::orca::LaserData", &[2, 7, n as u8][..]),
            ("::orca::RangeScannerData", &ranges),
            ("::orca::OrcaObject", &time),
        ];
        put(&mut laser, &scan);
        put(&mut position, &[("::orca::Position2dData", &[0; 49]), ("::orca::OrcaObject", &time)]);
        for file in 0..2 {
            lines += &format!("{seconds} {micros} {file} {}\n", n + 1);
        }
    }
    let header = "::orca::Laser ice laser0.log\n::orca::Position2d ice position2d0.log\n#data\n";
    std::fs::write(at.join("master.log"), header.to_owned() + &lines).unwrap();
    std::fs::write(at.join("laser0.log"), laser).unwrap();
    std::fs::write(at.join("position2d0.log"), position).unwrap();
}

/// An object of a class in Ice encoding: the members of each of its classes, derived first.
fn record(slices: &[(&str, &[u8])]) -> Vec<u8> {
    let mut record = vec![255, 255, 255, 255, 1, 1, 0, 0, 0];
    for (name, members) in slices.iter().chain(&[("::Ice::Object", &[0][..])]) {
        record.extend([0, name.len() as u8]);
        record.extend(name.as_bytes());
        record.extend((members.len() as u32 + 4).to_le_bytes());
        record.extend(*members);
    }
    record.push(0);
    record
}

/// The events of a log: time, source, channel, number and bytes.
fn events(folder: &Folder, log: &str) -> Vec<[String; 5]> {
    let output = run_sluice(folder, &["cat", log, "--json", "--payload"]).text();
    let line = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        ["timestamp_ns", "source", "channel", "sequence", "payload"]
            .map(|key| event[key].to_string())
    };
    output.lines().map(line).collect()
}

fn convert(folder: &Folder, from: &str, to: &str, options: &[&str]) -> ProgramOutput {
    run_sluice(folder, &[&["convert", from, "--to", to], options].concat())
}

#[test]
fn notes_of_a_file_source_reach_the_user() {
    let folder = Folder::new();
    let mut log = vel(&folder);
    log.extend([0xff; 4]);
    log.extend([7; 100]);
    folder.write("ended.vel", &log);
    let at = log.len() - 100;
    let note = format!("the log ends at byte {at}; the 100 bytes after it are not read: ended.vel");
    let convert = ["convert", "ended.vel", "--to", "out.lcm", "--report", "report.json"];
    run_sluice(&folder, &convert).expect(0).expect_stderr(&note);
    assert!(String::from_utf8(folder.read("report.json")).unwrap().contains(&note));
    let info = run_sluice(&folder, &["info", "ended.vel"]).expect(0).text();
    assert!(joined_lines(&info).contains(&note), "{info}");
    // Compressed, it is read by a separate thread; its end is not known then.
    folder.write("ended.vel.zst", zstd::encode_all(&log[..], 1).unwrap());
    run_sluice(&folder, &["convert", "ended.vel.zst", "--from", "vel", "--to", "packed.lcm"])
        .expect(0);
    assert!(folder.read("packed.lcm") == folder.read("out.lcm"));
}
