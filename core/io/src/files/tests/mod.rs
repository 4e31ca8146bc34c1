//! Inputs: files, streams, and objects of a store in memory that records requests.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

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

#[test]
fn folders_and_links_that_lead_nowhere_come_with_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("b"), "12").unwrap();
    fs::create_dir(at("a")).unwrap();
    symlink("nowhere", at("c")).unwrap();
    let found = |name: &str| expand_with_folders(&at(name));
    let input = |name: &str, bytes| Input { path: at(name), bytes };
    let all = [input("a", None), input("b", Some(2)), input("c", None)];
    assert_eq!(found("*").unwrap(), all);
    assert_eq!(found("a").unwrap(), all[..1]);
    assert_eq!(found("b").unwrap(), all[1..2]);
    assert!(found("c").is_err() && found("x*").is_err());
}

#[test]
fn a_missing_file_that_looks_like_a_url_is_told_with_what_is_read() {
    for name in ["foo://bar/a.lcm", "foo://bar/*.lcm"] {
        let said = expand(&[name.into()]).unwrap_err().to_string();
        assert!(said.contains("files are not read from foo://"), "{said}");
        assert!(said.contains("or an address with mem://"), "{said}");
    }
    let said = expand(&["no/such.lcm".into()]).unwrap_err().to_string();
    assert!(!said.contains("not read from"), "{said}");
}
