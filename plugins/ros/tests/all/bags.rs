//! What the source `ros1-bag` promises, whatever the bag looks like.

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;
use sluice_kit::contract::{
    SourceContents, any_splitting_is_the_same, gather, overwrite, sample_positions,
    splits_cover_the_inputs,
};
use sluice_model::{Query, Registry, Source};

fn bag(case: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(case);
    std::fs::read(folder.join("log.bag")).unwrap()
}

fn source(path: &Path) -> Box<dyn Source> {
    Registry::linked().source("ros1-bag", json!({ "path": path })).unwrap()
}

fn contents(path: &Path) -> SourceContents {
    any_splitting_is_the_same(&*source(path), &[1, 100, 300, 5000])
}

#[test]
fn a_bag_is_the_same_in_any_splits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    let mut all = Vec::new();
    for case in ["bag-plain", "bag-bz2", "bag-lz4"] {
        overwrite(&path, &bag(case)).unwrap();
        splits_cover_the_inputs(&*source(&path), 100);
        assert!(source(&path).splits(100, &Query::default()).unwrap().len() > 1);
        let found = contents(&path);
        assert_eq!(found.damage, []);
        assert_eq!(source(&path).events_in(&path).unwrap(), Some(found.events.len() as u64));
        assert_eq!(source(&path).faults(&path).unwrap(), [""; 0]);
        all.push(found.events);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn a_cut_bag_has_the_events_before_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bag");
    for case in ["bag-plain", "bag-bz2", "bag-lz4"] {
        let whole = bag(case);
        overwrite(&path, &whole).unwrap();
        let expected = contents(&path).events;
        let mut before = 0;
        for cut in sample_positions(whole.len(), 60) {
            overwrite(&path, whole.get(..cut).unwrap()).unwrap();
            let found = gather(&*source(&path), u64::MAX).unwrap();
            assert!(expected.starts_with(&found.events), "{case} cut at {cut}");
            assert!(found.events.len() >= before, "{case} cut at {cut}");
            before = found.events.len();
            for (offset, length, reason) in &found.damage {
                assert!(offset + length <= cut as u64 && !reason.is_empty());
            }
        }
    }
}

proptest! {
    #[test]
    fn any_change_is_read_the_same_in_pieces(
        case in prop_oneof![Just("bag-plain"), Just("bag-lz4")],
        at in any::<prop::sample::Index>(),
        len in 0usize..12,
        put in prop::collection::vec(any::<u8>(), 0..12),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bag");
        let mut bytes = bag(case);
        let at = at.index(bytes.len()).max(13);
        let end = (at + len).min(bytes.len());
        bytes.splice(at..end, put);
        overwrite(&path, &bytes).unwrap();
        let found = contents(&path);
        let mut last = 0;
        for (offset, length, reason) in &found.damage {
            prop_assert!(*offset >= last && !reason.is_empty(), "{:?}", found.damage);
            last = offset + length;
        }
        prop_assert!(last <= bytes.len() as u64);
    }
}
