//! Inputs: files, streams, and objects of a store in memory that records requests.

use std::collections::VecDeque;
use std::io::Write;

use super::*;

mod compressed_damage;
mod frame_needs;
mod objects;
mod streams;

/// What a reader finds, in turn: bytes, or that nothing comes for a moment. Then the end.
struct Arriving(VecDeque<Option<Vec<u8>>>);

impl io::Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.pop_front() {
            None => Ok(0),
            Some(None) => Err(io::ErrorKind::WouldBlock.into()),
            Some(Some(mut bytes)) => {
                let rest = bytes.split_off(bytes.len().min(buffer.len()));
                buffer[..bytes.len()].copy_from_slice(&bytes);
                if !rest.is_empty() {
                    self.0.push_front(Some(rest));
                }
                Ok(bytes.len())
            }
        }
    }
}

fn arriving(pieces: &[Option<&[u8]>]) -> LogFile {
    let pieces = pieces.iter().map(|piece| piece.map(<[u8]>::to_vec)).collect();
    LogFile::stream(Path::new("-"), Box::new(Arriving(pieces))).unwrap()
}

#[test]
fn names_become_files_and_globs_come_sorted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["b.lcm", "a.lcm", "odd[1].lcm"] {
        fs::write(at(name), name).unwrap();
    }
    fs::create_dir(at("sub.lcm")).unwrap();
    let names = |pattern: &str| -> Vec<PathBuf> {
        expand(&[at(pattern)]).unwrap().into_iter().map(|input| input.path).collect()
    };
    assert_eq!(names("*.lcm"), [at("a.lcm"), at("b.lcm"), at("odd[1].lcm")]);
    assert_eq!(names("odd[1].lcm"), [at("odd[1].lcm")]);
    for wrong in ["c.lcm", "sub.lcm", "x*"] {
        assert!(expand(&[at(wrong)]).is_err(), "{wrong}");
    }
}
