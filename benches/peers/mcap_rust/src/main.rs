//! Reads or writes an MCAP file with the crate `mcap`, with its defaults.
//!
//! ```text
//! mcap_rust read FILE            prints the number of messages
//! mcap_rust write FILE OUT [N]   copies them to a compressed file, with N threads for zstd
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::io::BufWriter;

use mcap::{MessageStream, WriteOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (mut count, mut options) = (0_u64, WriteOptions::new());
    match words[..] {
        ["read", file] => {
            for message in MessageStream::new(&fs::read(file)?)? {
                message?;
                count += 1;
            }
        }
        ["write", file, out, ref threads @ ..] => {
            if let [threads] = threads {
                options = options.compression_threads(threads.parse()?);
            }
            let mut writer = options.create(BufWriter::new(File::create(out)?))?;
            for message in MessageStream::new(&fs::read(file)?)? {
                writer.write(&message?)?;
                count += 1;
            }
            writer.finish()?;
        }
        _ => return Err("expected read FILE, or write FILE OUT [N]".into()),
    }
    println!("{count}");
    Ok(())
}
