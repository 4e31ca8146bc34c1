//! Notes on sources whose inputs get equal names from `source_name`. Reads nothing.

use std::collections::BTreeMap;

use crate::batch::template::Template;
use crate::run::plan::SourcePlan;
use crate::spec::PipelineNode;

/// The notes, by node index.
pub(crate) fn notes(nodes: &[PipelineNode], reading: &[SourcePlan]) -> Vec<(usize, String)> {
    reading.iter().filter_map(|source| Some((source.node, note(nodes, source)?))).collect()
}

fn note(nodes: &[PipelineNode], source: &SourcePlan) -> Option<String> {
    let node = nodes.get(source.node)?;
    let text = node.source_name.as_deref()?;
    let name = Template::parse_source_name(text).ok().filter(Template::uses_file_name)?;
    // Reading reports why it fails.
    let logs = node.source()?.logs().ok()?;
    let mut inputs: BTreeMap<String, usize> = BTreeMap::new();
    for log in logs {
        *inputs.entry(name.source_name(&log.path, "").ok()?).or_default() += 1;
    }
    let (called, count) = inputs.into_iter().find(|(_, count)| *count > 1)?;
    Some(format!(
        "{count} inputs are called `{called}` by `source_name`: `{{name}}`, \
         `{{parent}}/{{name}}` or `{{path}}` tells them apart"
    ))
}
