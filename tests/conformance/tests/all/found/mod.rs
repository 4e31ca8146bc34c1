//! What the tests of the kit expect of findings.

use std::collections::BTreeSet;

use sluice_conformance::{Finding, Promise};

/// Expects that exactly these promises are broken, in these words.
#[track_caller]
pub(crate) fn expect_findings(findings: &[Finding], promises: &[Promise], words: &[&str]) {
    let text: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    let broken: BTreeSet<Promise> = findings.iter().map(|finding| finding.promise).collect();
    assert_eq!(broken, promises.iter().copied().collect(), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is not in:\n{text}");
    }
}
