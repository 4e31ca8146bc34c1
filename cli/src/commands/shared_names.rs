//! Finds channel names shared by several sources, which would be merged by a sink that keeps only
//! names. The stage `rename` gives each its own name.

use std::collections::{BTreeMap, BTreeSet};

use sluice_model::Plugin;
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::spec::DAMAGE_KEYS;

use crate::args::Assignment;
use crate::commands::generated::parse_generated;
use crate::conversion;
use crate::exit::Failure;
use crate::inputs;
use crate::recipe::Recipe;
use crate::shell::Shell;

/// The channel names shared by several sources in one of these inputs, sorted; none if source or
/// sink keeps them apart.
///
/// Reads the inputs in full, since the last event may be the first with a shared name. Errors are
/// reported when the input is converted. Inputs that can only be read once are skipped.
pub(super) fn find(
    given: &[String],
    options: &[Assignment],
    (source, sink): (&Plugin, &Plugin),
    shell: &Shell,
) -> Result<Vec<String>, Failure> {
    let may_merge = source.sensors_share_names && sink.keeps_names_only && source.name != sink.name;
    if !may_merge {
        return Ok(Vec::new());
    }
    // Events that the conversion leaves out share no name.
    let from_source = conversion::behind(source, options)?;
    // What is damaged is reported, and kept, when the input is converted.
    let is_of_damage = |option: &&Assignment| DAMAGE_KEYS.contains(&option.name.as_str());
    let options: Vec<Assignment> =
        options.iter().filter(|option| !is_of_damage(option)).cloned().collect();
    let files = given.iter().filter_map(|name| inputs::expand(shell, name).ok()).flatten();
    let mut shared = BTreeSet::new();
    for file in files.filter(|file| file.path.is_file()) {
        let path = [file.path.to_string_lossy().into_owned()];
        let recipe = Recipe {
            source: source.name,
            inputs: &path,
            source_options: &options,
            from_source: &from_source,
            sink: "null",
            ..Recipe::default()
        };
        let Ok(pipeline) = parse_generated("sluice convert", &recipe.text(), None, shell) else {
            continue;
        };
        let Ok(report) = run::run(pipeline, &Options::default()) else { continue };
        let mut sources: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for channel in report.channels.into_iter().filter(|channel| channel.out > 0) {
            sources.entry(channel.channel).or_default().insert(channel.source);
        }
        shared.extend(sources.into_iter().filter(|(_, of)| of.len() > 1).map(|(name, _)| name));
    }
    Ok(shared.into_iter().collect())
}
