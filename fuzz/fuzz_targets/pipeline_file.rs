//! No text makes reading a pipeline file panic, and every mistake can be shown.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sluice_all as _;
use sluice_core::Registry;
use sluice_pipeline::{Document, Pipeline, Variables, graph};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::linked);

fuzz_target!(|text: &str| {
    let document = Document::generated("fuzz.toml", text);
    match Pipeline::read(&document, &Variables::default(), &REGISTRY) {
        Ok(pipeline) => {
            for node in &pipeline.nodes {
                assert!(node.from.iter().all(|from| *from < pipeline.nodes.len()));
            }
            assert!(graph::mermaid(&pipeline).ends_with('\n'));
            assert!(graph::dot(&pipeline).ends_with('\n'));
        }
        Err(mistakes) => {
            assert!(!mistakes.list.is_empty());
            for mistake in &mistakes.list {
                assert!(mistake.span.start <= mistake.span.end && mistake.span.end <= text.len());
            }
            assert!(mistakes.render(false).contains("fuzz.toml"));
        }
    }
});
