//! Pipeline files with every plugin of the repository.

use sluice_pipeline::{Document, Outline, Pipeline, Variables, graph};

use crate::given;

/// No text makes reading a pipeline file panic, and every mistake can be shown.
pub fn pipeline_file(bytes: &[u8]) {
    let text = given::text(bytes);
    let document = Document::generated("fuzz.toml", text);
    match Pipeline::read(&document, &Variables::default(), given::registry()) {
        Ok(pipeline) => {
            for node in &pipeline.nodes {
                assert!(node.from.iter().all(|from| *from < pipeline.nodes.len()));
            }
            let outline = Outline::from(&pipeline);
            assert!(graph::mermaid(&outline).ends_with('\n'));
            assert!(graph::dot(&outline).ends_with('\n'));
        }
        Err(mistakes) => {
            assert!(!mistakes.list.is_empty());
            for mistake in &mistakes.list {
                assert!(mistake.span.start <= mistake.span.end && mistake.span.end <= text.len());
            }
            assert!(mistakes.render(false).contains("fuzz.toml"));
        }
    }
}
