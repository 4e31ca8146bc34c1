//! Valid records, and records that are invalid in one way each: `testdata/CASE/record.hex`, with
//! the result in `expected`.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_ice::fuzzing::IceCodec;
use sluice_kit::TypeFile;
use sluice_model::{BatchBuilder, ChannelId, Codec};

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// `decoded` if the record is restored byte for byte, else the reason it stays undecoded.
fn outcome(codec: &IceCodec, name: &str, record: &[u8]) -> String {
    let known = codec.types().iter().find(|known| &*known.message_type.name == name).unwrap();
    let (payload_type, mut bad) = (known.payload_type.clone().unwrap(), Vec::new());
    let mut batch = BatchBuilder::default();
    batch.push_copy(0, 0, ChannelId(0), record);
    let rows = payload_type.decode_all(&batch.finish(), &[0], &mut bad).unwrap();
    let Some(rows) = rows.first() else { return bad.first().unwrap().1.to_owned() };
    let payload_type = codec.adopt(&rows.message, &rows.columns.schema()).unwrap();
    let made = payload_type.encode(&rows.columns, &mut bad).unwrap();
    assert_eq!((made.value(0), bad), (record, vec![]));
    let is_odd = rows.base_key() != rows.message.key;
    if is_odd { "decoded with raw booleans" } else { "decoded" }.to_owned()
}

#[test]
fn every_case_has_the_expected_result() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let text = fs::read_to_string(folder.join("types.ice")).unwrap();
    let codec = IceCodec::from_files(vec![TypeFile { path: "types.ice".into(), text }]);
    assert_eq!(codec.mistakes(), [""; 0]);
    let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    cases.sort();
    assert!(cases.len() > 25);
    for case in cases {
        let record = bytes_of(&fs::read_to_string(case.join("record.hex")).unwrap());
        let expected = fs::read_to_string(case.join("expected")).unwrap();
        let (name, expected_result) = expected.split_once('\n').unwrap();
        let found = outcome(&codec, name, &record);
        if std::env::var_os("BLESS").is_some() {
            fs::write(case.join("expected"), format!("{name}\n{found}\n")).unwrap();
        } else {
            assert_eq!(found, expected_result.trim_end(), "{}", case.display());
        }
        // Truncated anywhere, a valid record is invalid.
        let cuts = if found.starts_with("decoded") { record.len() } else { 0 };
        for cut in 0..cuts {
            let found = outcome(&codec, name, record.get(..cut).unwrap());
            assert!(!found.starts_with("decoded"), "{} cut at {cut}", case.display());
        }
    }
}
