//! Fingerprints of every language feature, compared with lcm-gen. The types are in `wide`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::peer::{Peer, here};
use crate::kit::{Folder, run_sluice};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The fingerprints that `sluice types` prints for `wide`, by name.
fn sluice_fingerprints(folder: &Folder) -> BTreeMap<String, String> {
    let wide = here().join("wide");
    let output = run_sluice(folder, &["types", wide.to_str().unwrap(), "--json"]).expect(0).text();
    let ours: BTreeMap<_, _> = lines(&output)
        .iter()
        .map(|line| (text(&line["name"]), text(&line["fingerprint"])))
        .collect();
    assert!(ours.len() > 75, "{}", ours.len());
    ours
}

#[test]
fn they_are_those_of_lcm_gen() {
    let Some(peer) = Peer::with("lcm") else { return };
    let folder = Folder::new();
    let wide = here().join("wide");
    let theirs =
        lines(&peer.script("fingerprints.py", folder.path(), &[wide.to_str().unwrap(), "made"]));
    let by = |which: &str| -> BTreeMap<String, String> {
        theirs.iter().map(|line| (text(&line["name"]), text(&line[which]))).collect()
    };
    assert_eq!(sluice_fingerprints(&folder), by("debug"));

    // The fingerprints that Python reports, for types whose generated Python is valid.
    let (python, mut debug) = (by("python"), by("debug"));
    let unlike = |name: &str| name.starts_with("wide.unlike_python.");
    assert!(python.iter().all(|(name, of_class)| of_class.is_empty() == unlike(name)));
    debug.retain(|name, _| !unlike(name));
    assert!(debug.iter().all(|(name, fingerprint)| python[name] == *fingerprint));
}

/// Some fingerprints of lcm-gen 1.5.3, for machines without it.
#[test]
fn known_fingerprints_do_not_change() {
    let ours = sluice_fingerprints(&Folder::new());
    for (name, fingerprint) in KNOWN {
        assert_eq!(ours[*name], *fingerprint, "{name}");
    }
}

const KNOWN: &[(&str, &str)] = &[
    ("b.in_b_four", "295f363f05b2cead"),
    ("empty", "000000002468acf0"),
    ("holds_others", "4b2d7ca49f10a7aa"),
    ("list_node", "43d6a7bdc7d7fdef"),
    ("wide.comments.commented", "5d864a04f90192b3"),
    ("wide.crlf.crlf", "a8ac1c94d8aee9bf"),
    ("wide.enums.uses", "d609df7c1f14fd11"),
    ("wide.names.long", "8daeda75dbb68729"),
    ("wide.names.long_utf8", "fc00e15acdaec5f1"),
    ("wide.names.utf8", "2c5941ed542773f6"),
    ("wide.nested.around", "240f16348447a51b"),
    ("wide.nested.left", "f669aa05002f65bd"),
    ("wide.nested.right", "6fda999a54c44b61"),
    ("wide.nested.tree", "be592405274cf80d"),
    ("wide.numbers.sizes_as_written", "8702ab80ee9ac5e5"),
    ("wide.numbers.sizes_by_constants", "f54316d9eaabb196"),
    ("wide.primitives.each_counted", "05dbee6b69ced83c"),
    ("wide.sizes.mixed", "15ed3c92f12163e6"),
    ("wide.unlike_python.holds_them", "fdc456e57208f626"),
];
