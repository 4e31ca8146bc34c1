//! Deterministic generated logs of other robots: a VEL DataLog, and an Orca log with its files.
//!
//! Both mostly contain laser scans of 361 beams, as their robots recorded them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::counts::CountTable;
use crate::noise::Noise;

const BEAMS: usize = 361;
/// The write size.
const BLOCK: usize = 1 << 20;

/// The numbers of message names in a VEL DataLog.
const IMAGE: u32 = 0x0001_09c9;
const IMU: u32 = 0x0001_8d07;
const LASER: u32 = 0x0003_0910;

/// Writes at least `bytes` of a VEL DataLog without an index: of its bytes, 40 % are of a laser
/// scanner, 57 % of a camera and 3 % of an inertial unit.
pub fn vel(bytes: u64, to: impl Write) -> io::Result<CountTable> {
    let mut log = BufWriter::with_capacity(BLOCK, to);
    log.write_all(&[0xa4, 0x56, 0x45, 0x4c, 1, 0, 1, 0, 0, 0, 0, 0])?;
    let (mut counts, mut noise, mut payload, mut written) =
        (CountTable::default(), Noise::new(7), Vec::new(), 0u64);
    for n in 0u64.. {
        if written >= bytes {
            break;
        }
        // A hundred steps a second: a state in each, a scan in most, an image in every tenth.
        let mut messages = vec![("IMUStateM", IMU)];
        if n % 8 < 3 {
            messages.push(("LaserRange2DDataM", LASER));
        }
        if n.is_multiple_of(10) {
            messages.push(("ImageM", IMAGE));
        }
        for (name, id) in messages {
            payload.clear();
            match id {
                IMU => state(&mut noise, &mut payload),
                LASER => vel_scan(n as u32, &mut noise, &mut payload),
                _ => image(&mut noise, &mut payload),
            }
            log.write_all(&(payload.len() as u32 + 17).to_le_bytes())?;
            log.write_all(&[0x31])?;
            log.write_all(&id.to_le_bytes())?;
            log.write_all(&102u32.to_le_bytes())?;
            log.write_all(&(n as f64 * 10.0).to_le_bytes())?;
            log.write_all(&payload)?;
            written += payload.len() as u64 + 21;
            counts.add(name, 1, payload.len() as u64);
        }
    }
    log.flush()?;
    Ok(counts)
}

fn text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn state(noise: &mut Noise, out: &mut Vec<u8>) {
    text("XSens_MTi", out);
    text("imu", out);
    for _ in 0..7 {
        out.extend_from_slice(&(noise.below(2000) as f32 * 0.001).to_le_bytes());
    }
}

/// The payload of a `LaserRange2DDataM`, version 102.
pub fn vel_scan_payload(n: u32, out: &mut Vec<u8>) {
    vel_scan(n, &mut Noise::new(u64::from(n)), out);
}

fn vel_scan(n: u32, noise: &mut Noise, out: &mut Vec<u8>) {
    text("SICK_LMS200", out);
    text("laser_front", out);
    for least in [500, 0] {
        out.extend_from_slice(&(BEAMS as u32).to_le_bytes());
        let mut value = least + u64::from(n % 100);
        for _ in 0..BEAMS {
            value = (value + noise.below(9)).saturating_sub(4).max(least);
            out.extend_from_slice(&(value as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(&(n * 10).to_le_bytes());
}

fn image(noise: &mut Noise, out: &mut Vec<u8>) {
    text("Sony", out);
    text("camera", out);
    for word in [1u32, 640, 480] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let words = 1_500 + noise.below(3_000);
    out.extend_from_slice(&(8 * words as u32).to_le_bytes());
    (0..words).for_each(|_| out.extend_from_slice(&noise.word().to_le_bytes()));
}

/// Writes an Orca log of 2008 with at least `bytes` of records: a master file, and beside it the
/// files of a laser scanner (95 % of the bytes) and of an odometer.
pub fn orca(bytes: u64, master: &Path) -> io::Result<CountTable> {
    let (folder, stem) = (master.parent(), master.file_stem());
    let stem = stem.unwrap_or_default().to_string_lossy();
    let beside = |name: &str| {
        let path = folder.unwrap_or(Path::new("")).join(format!("{stem}_{name}.log"));
        File::create(path).map(|file| BufWriter::with_capacity(BLOCK, file))
    };
    let mut lines = BufWriter::with_capacity(BLOCK, File::create(master)?);
    let mut files = [beside("laserscanner2d0")?, beside("odometry2d0")?];
    writeln!(lines, "{stem}_laserscanner2d0.log LaserScanner2d ice 1")?;
    writeln!(lines, "{stem}_odometry2d0.log Odometry2d ice 1\n#data")?;
    let (mut counts, mut record, mut written) = (CountTable::default(), Vec::new(), 0u64);
    // A description precedes the first scan; no line counts it.
    record.extend_from_slice(&[0; 8 + 8 * 4 + 4 + 9 * 8]);
    record.push(0);
    written += put(&record, &mut files[0])?;
    counts.add("orca.LaserScanner2d.config", 1, record.len() as u64);
    record.clear();
    record.extend_from_slice(&[0; 8 + 5 * 8]);
    record.push(0);
    written += put(&record, &mut files[1])?;
    counts.add("orca.Odometry2d.config", 1, record.len() as u64);
    for n in 0u64.. {
        if written >= bytes {
            break;
        }
        let (seconds, micros) = (1_200_000_000 + n / 50, n % 50 * 20_000);
        for (file, name) in ["LaserScanner2d", "Odometry2d"].into_iter().enumerate() {
            record.clear();
            match file {
                0 => ice_scan(n as u32, &mut record),
                _ => odometry(n as u32, &mut record),
            }
            writeln!(lines, "{seconds} {micros} {file} {n}")?;
            written += put(&record, &mut files[file])?;
            counts.add(&format!("orca.{name}"), 1, record.len() as u64);
        }
    }
    lines.flush()?;
    files.iter_mut().try_for_each(Write::flush)?;
    Ok(counts)
}

fn put(record: &[u8], file: &mut impl Write) -> io::Result<u64> {
    file.write_all(&[0])?;
    file.write_all(&(record.len() as u32).to_le_bytes())?;
    file.write_all(record)?;
    Ok(record.len() as u64 + 5)
}

fn time(n: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&(1_200_000_000 + n / 50).to_le_bytes());
    out.extend_from_slice(&(n % 50 * 20_000).to_le_bytes());
}

fn odometry(n: u32, out: &mut Vec<u8>) {
    time(n, out);
    for k in 0..6 {
        out.extend_from_slice(&(f64::from(n + k) * 0.01).to_le_bytes());
    }
    out.push(0);
}

/// A record with an `orca::LaserScanner2dData`, a class.
pub fn ice_scan(n: u32, out: &mut Vec<u8>) {
    let mut noise = Noise::new(u64::from(n));
    out.extend_from_slice(&(-1i32).to_le_bytes());
    out.push(1);
    out.extend_from_slice(&1i32.to_le_bytes());
    slice("::orca::LaserScanner2dData", out, |out| {
        size(BEAMS, out);
        (0..BEAMS).for_each(|_| out.push(noise.below(8) as u8));
    });
    slice("::orca::RangeScanner2dData", out, |out| {
        time(n, out);
        size(BEAMS, out);
        let mut metres = 5.0 + f64::from(n % 100) * 0.01;
        for _ in 0..BEAMS {
            metres += noise.below(9) as f64 * 0.01 - 0.04;
            out.extend_from_slice(&(metres as f32).to_le_bytes());
        }
        for value in [0.1, 80.0, 3.125, -1.5] {
            out.extend_from_slice(&f64::to_le_bytes(value));
        }
    });
    slice("::Ice::Object", out, |out| out.push(0));
    out.push(0);
}

fn size(length: usize, out: &mut Vec<u8>) {
    if length < 255 {
        out.push(length as u8);
    } else {
        out.push(255);
        out.extend_from_slice(&(length as i32).to_le_bytes());
    }
}

fn slice(name: &str, out: &mut Vec<u8>, members: impl FnOnce(&mut Vec<u8>)) {
    out.push(0);
    size(name.len(), out);
    out.extend_from_slice(name.as_bytes());
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    members(out);
    let length = (out.len() - start) as i32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}
