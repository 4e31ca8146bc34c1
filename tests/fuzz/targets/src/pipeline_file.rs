//! Pipeline files with every plugin of the repository.

use std::path::Path;

use sluice_pipeline::{Document, Outline, Pipeline, Variables, graph};

use crate::inputs;

/// No text makes reading a pipeline file panic, and every mistake can be rendered.
pub fn pipeline_file(bytes: &[u8]) {
    let text = inputs::text(bytes);
    let document = Document::generated("fuzz.toml", text);
    match Pipeline::read(&document, &Variables::default(), inputs::registry()) {
        Ok(pipeline) => {
            for node in &pipeline.nodes {
                assert!(node.from.iter().all(|from| *from < pipeline.nodes.len()));
            }
            check_relocated(&document, &pipeline);
        }
        Err(mistakes) => {
            assert!(!mistakes.list.is_empty());
            for mistake in &mistakes.list {
                assert!(mistake.span.start <= mistake.span.end && mistake.span.end <= text.len());
            }
            assert!(mistakes.render(false).contains("fuzz.toml"));
        }
    }
    if let Ok(outline) = Outline::read(&document, &Variables::default(), inputs::registry()) {
        for node in &outline.nodes {
            assert!(node.from.iter().all(|from| *from < outline.nodes.len()));
        }
        assert!(graph::mermaid(&outline).ends_with('\n'));
        assert!(graph::dot(&outline).ends_with('\n'));
    }
}

/// A relocated file is the same pipeline.
fn check_relocated(document: &Document, pipeline: &Pipeline) {
    let (variables, registry) = (Variables::default(), inputs::registry());
    // Types may be files, which then have other paths.
    let Ok(text) = document.relocated(Path::new("/nowhere"), &variables, registry) else { return };
    let again = Pipeline::read(&Document::generated("moved.toml", text), &variables, registry);
    let again = again.expect("a file that is as right as before");
    let names = |pipeline: &Pipeline| {
        pipeline.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&again), names(pipeline));
}
