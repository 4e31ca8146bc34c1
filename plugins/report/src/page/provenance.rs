//! How the report was made, and all its figures as JSON.

use maud::{Markup, PreEscaped, html};
use sluice_io::escape::{json_escaped, printable_lines};
use sluice_model::{Error, units};

use super::UPLOT_LICENCE;
use super::text::name;
use crate::Figures;

pub(super) fn section(figures: &Figures, with_plots: bool) -> Markup {
    let provenance = &figures.provenance;
    html! {
        section #provenance {
            h2 { "Provenance" }
            dl.facts {
                div { dt { "Made by" } dd { "sluice " (provenance.version) } }
                @if let Some(pipeline) = &provenance.name {
                    div { dt { "Pipeline" } dd { (name(pipeline)) } }
                }
            }
            @if !figures.thinned.is_empty() { (thinned(figures)) }
            @if !provenance.pipeline.is_empty() {
                details {
                    summary { "Pipeline file" }
                    pre { (printable_lines(&provenance.pipeline)) }
                }
            }
            p.script hidden {
                button type="button" #save-figures { "Save all figures as JSON" }
            }
            @if with_plots {
                details {
                    summary { "Licence of the plots (uPlot, MIT)" }
                    pre { (UPLOT_LICENCE) }
                }
            }
        }
    }
}

fn thinned(figures: &Figures) -> Markup {
    html! {
        table.thinned {
            caption { "Left out to keep this report small" }
            thead { tr {
                th scope="col" { "What" }
                th.number scope="col" { "In the log" }
                th.number scope="col" { "Shown" }
            } }
            tbody { @for thinned in &figures.thinned {
                tr {
                    th scope="row" { (name(&thinned.what)) }
                    td.number { (units::count(thinned.of)) }
                    td.number { (units::count(thinned.shown)) }
                }
            } }
        }
    }
}

/// The figures as a block of JSON that scripts read; nothing in it can end the block.
pub(super) fn json_block(figures: &Figures) -> Result<Markup, Error> {
    let json = figures.to_json()?;
    let json = json_escaped(&json).replace('<', "\\u003c");
    Ok(html! { script #figures type="application/json" { (PreEscaped(json)) } })
}
