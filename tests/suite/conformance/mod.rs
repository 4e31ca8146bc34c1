//! Conformance tests of every plugin in the repository.

mod codecs;
mod sinks;
mod sources;
mod stages;

use sluice_model::{PluginKind, Registry};

/// Plugins not tested here, and why.
const EXCEPTIONS: &[(PluginKind, &str, &str)] = &[
    (PluginKind::Source, "exec", "its program decides its events; plugins/exec has the tests"),
    (PluginKind::Sink, "exec", "its program decides its output; plugins/exec has the tests"),
    (
        PluginKind::Sink,
        "foxglove-layout",
        "its output depends on the channels of events only; tests/suite/views.rs has the tests",
    ),
    (
        PluginKind::Sink,
        "lcm-udp",
        "it sends to a network, where nothing can be withdrawn or read again",
    ),
    (PluginKind::Stage, "exec", "its program decides its output; plugins/exec has the tests"),
];

#[test]
fn every_linked_plugin_is_tried_or_there_is_a_reason_why_not() {
    let tried = [
        (PluginKind::Source, sources::NAMES),
        (PluginKind::Sink, sinks::NAMES),
        (PluginKind::Stage, stages::NAMES),
        (PluginKind::Codec, codecs::NAMES),
    ];
    let registry = Registry::linked();
    for (kind, names) in tried {
        let is_excepted = |name: &str| {
            EXCEPTIONS.iter().any(|(k, n, reason)| (*k, *n) == (kind, name) && !reason.is_empty())
        };
        let linked = registry.names(kind);
        for name in &linked {
            let known = names.contains(name) != is_excepted(name);
            assert!(known, "the {kind} `{name}` is tried nowhere, or both tried and excepted");
        }
        let gone: Vec<_> = names.iter().filter(|name| !linked.contains(name)).collect();
        assert!(gone.is_empty(), "there is no {kind} {gone:?}");
    }
    for (kind, name, _) in EXCEPTIONS {
        assert!(registry.get(*kind, name).is_some(), "there is no {kind} `{name}` to except");
    }
}
