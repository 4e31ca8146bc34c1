//! The page: figures as one self-contained HTML text.
//!
//! It fetches nothing, works without scripts, and depends on nothing but the figures: the same
//! figures give the same bytes. Names come from logs and are hostile: only this module's own style,
//! scripts and escaped JSON are written unescaped.

use std::panic::resume_unwind;
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};
use sluice_io::escape::printable;
use sluice_model::{Error, units};

use crate::Figures;
use text::Clock;
use thin::Detail;
use timeline::Span;

mod channels;
mod cloud;
mod damage;
mod fields;
mod intervals;
mod pictures;
mod provenance;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod thin;
mod timeline;
mod track;
mod verdict;

const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");
const UPLOT: &str = include_str!("../../assets/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../assets/uPlot.LICENSE");

/// The most bytes of a page without pictures.
const MOST_BYTES: usize = 2_000_000;
/// The most bytes of its pictures, as they are in the page.
const MOST_PICTURE_BYTES: usize = 2_900_000;

/// The page of a log.
///
/// Figures that would make it too large are thinned, and the page says so.
pub(crate) fn page(figures: &Figures) -> Result<String, Error> {
    let title = figures.provenance.title.clone().unwrap_or_else(|| input_names(figures));
    let mut page = String::new();
    for detail in thin::DETAILS {
        let thinned = thin::thinned(figures, &detail);
        page = render(&thinned, &title, &detail)?.into_string();
        if page.len().saturating_sub(thin::picture_bytes(&thinned)) <= MOST_BYTES {
            break;
        }
    }
    Ok(page)
}

fn input_names(figures: &Figures) -> String {
    match figures.inputs.as_slice() {
        [] => "Log".to_owned(),
        [input] => input.name.clone(),
        [first, rest @ ..] => {
            format!("{} and {}", first.name, units::pluralize(rest.len() as u64, "other input"))
        }
    }
}

fn render(figures: &Figures, title: &str, detail: &Detail) -> Result<Markup, Error> {
    // The JSON takes about as long as all sections.
    let (sections, json) = thread::scope(|threads| {
        let json = threads.spawn(|| provenance::json_block(figures));
        let sections = sections(figures, detail);
        (sections, json.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    let json = json?;
    let has_plots = figures.channels.iter().flat_map(|c| &c.fields).any(|f| !f.series.is_empty());
    let provenance = provenance::section(figures, has_plots);
    let scripts: &[&str] = if has_plots { &[UPLOT, SCRIPT] } else { &[SCRIPT] };
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, scripts, has_plots))
            body {
                a.skip href="#verdict" { "Skip to the verdict" }
                header {
                    h1 { bdi { (printable(title)) } }
                    nav aria-label="Sections" {
                        @for (id, name, section) in &sections {
                            @if !section.0.is_empty() { a href={ "#" (id) } { (name) } }
                        }
                        a href="#provenance" { "Provenance" }
                    }
                }
                main {
                    @for (_, _, section) in &sections { (section) }
                    (provenance)
                }
                (json)
                @for script in scripts { script { (PreEscaped(script)) } }
            }
        }
    })
}

/// All sections but the last: their ids, headings and contents.
fn sections(figures: &Figures, detail: &Detail) -> [(&'static str, &'static str, Markup); 9] {
    let clock = Clock::new(figures);
    let span = Span::new(figures.grid, clock);
    [
        ("verdict", "Verdict", verdict::section(figures, clock, detail.lanes)),
        ("damage", "Damage", damage::section(figures)),
        ("channels", "Channels", channels::section(figures, clock, detail)),
        ("timeline", "Time line", timeline::section(figures, span, clock, detail.lanes)),
        ("intervals", "Intervals", intervals::section(figures, clock)),
        ("track", "Track", track::section(figures, clock)),
        ("pictures", "Pictures", pictures::section(figures, clock)),
        ("fields", "Fields", fields::section(figures, span, clock, detail.rows)),
        ("cloud", "Laser", cloud::section(figures, clock)),
    ]
}

/// The head, with a policy that allows these scripts and nothing from elsewhere.
fn head(title: &str, scripts: &[&str], has_plots: bool) -> Markup {
    let hashes: Vec<String> = scripts
        .iter()
        .map(|script| format!("'sha256-{}'", BASE64.encode(Sha256::digest(script.as_bytes()))))
        .collect();
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src {}; img-src data:; \
         base-uri 'none'; form-action 'none'",
        hashes.join(" ")
    );
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (printable(title)) " – Sluice" }
            @if has_plots { style { (PreEscaped(UPLOT_STYLE)) } }
            style { (PreEscaped(STYLE)) }
        }
    }
}
