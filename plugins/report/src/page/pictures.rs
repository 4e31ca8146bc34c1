//! Thumbnails of each camera, evenly spaced over the log.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use maud::{Markup, html};
use sluice_io::escape::printable;
use sluice_model::units;

use super::text::{Clock, name};
use crate::{Figures, PictureFigures, Thumbnail};

/// Nothing without pictures.
pub(super) fn section(figures: &Figures, clock: Clock) -> Markup {
    html! {
        @if !figures.pictures.is_empty() {
            section #pictures {
                h2 { "Pictures" }
                @for (number, camera) in figures.pictures.iter().enumerate() {
                    h3 #{ "camera-" (number) } { (name(&camera.channel)) }
                    (counts(camera, clock))
                    div.pictures {
                        @for thumbnail in &camera.thumbnails {
                            (picture(&camera.channel, thumbnail, clock))
                        }
                    }
                }
            }
        }
    }
}

fn counts(camera: &PictureFigures, clock: Clock) -> Markup {
    let sizes: Vec<String> = camera.sizes.iter().take(4).map(|(size, _)| size.clone()).collect();
    html! {
        p {
            (units::pluralize(camera.count, "picture"))
            @if !sizes.is_empty() {
                " of " (name(&sizes.join(", ")))
                @if camera.sizes.len() > sizes.len() { " and other sizes" }
            }
            @if camera.bad > 0 {
                "; " strong.problem { (units::count(camera.bad)) " cut off or unreadable" }
                @if let Some(time) = camera.first_bad { ", the first at " (clock.offset(time)) }
            } @else if camera.unchecked == 0 { ", all whole" }
            @if camera.unchecked > 0 {
                "; " (units::count(camera.unchecked)) " of a format that is not checked"
            }
            "."
        }
    }
}

fn picture(channel: &str, thumbnail: &Thumbnail, clock: Clock) -> Markup {
    let time = clock.offset(thumbnail.time);
    html! {
        @if !thumbnail.jpeg.is_empty() {
            figure.picture {
                img src={ "data:image/jpeg;base64," (BASE64.encode(&thumbnail.jpeg)) }
                    width=(thumbnail.width) height=(thumbnail.height)
                    alt={ (printable(channel)) " at " (time) };
                figcaption { (time) }
            }
        }
    }
}
