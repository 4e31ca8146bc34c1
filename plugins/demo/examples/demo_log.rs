//! Writes the demo drive as an LCM log file: `demo_log [--seconds N] [--seed N] OUT`.
//!
//! For checking the drive with other programs. It uses nothing but the plain format.

use std::fs::File;
use std::io::{BufWriter, Error, Result, Write};

use sluice_demo::drive::{Drive, DriveOptions, DriveSlice};

const SYNC: [u8; 4] = [0xed, 0xa1, 0xda, 0x01];

fn main() -> Result<()> {
    let mut options = DriveOptions::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => options.seconds = number(arguments.next())?,
            "--seed" => options.seed = number(arguments.next())?,
            out => return write(&Drive::new(options), out),
        }
    }
    Err(Error::other("usage: demo_log [--seconds N] [--seed N] OUT"))
}

fn number<T: std::str::FromStr>(argument: Option<String>) -> Result<T> {
    let number = argument.and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::other("expected a number after the option"))
}

fn write(drive: &Drive, out: &str) -> Result<()> {
    let mut file = BufWriter::new(File::create(out)?);
    let channels: Vec<_> = drive.channels().collect();
    let mut slice = DriveSlice::default();
    for i in 0..drive.slices() {
        drive.slice(i, &mut slice);
        for (number, event) in (drive.sequence_at(i)..).zip(&slice.events) {
            let channel = channels[event.channel].as_bytes();
            file.write_all(&SYNC)?;
            file.write_all(&number.to_be_bytes())?;
            file.write_all(&(event.timestamp_ns / 1_000).to_be_bytes())?;
            file.write_all(&(channel.len() as u32).to_be_bytes())?;
            file.write_all(&(event.payload.len() as u32).to_be_bytes())?;
            file.write_all(channel)?;
            file.write_all(&slice.payloads[event.payload.clone()])?;
        }
    }
    file.flush()
}
