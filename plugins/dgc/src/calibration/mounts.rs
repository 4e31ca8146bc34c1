//! Places that are told relative to one another, as places on the vehicle. Reads nothing.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use sluice_core::mistake::Mistake;

use super::Mount;
use super::read::mistake;

/// What places are relative to if nothing is said.
pub(super) const BODY: &str = "body";

/// A place as a file tells it.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) name: String,
    /// Relative to the other one.
    pub(super) mount: Mount,
    /// The other one, and where that is said; nothing for the body.
    pub(super) relative_to: Option<(String, Range<usize>)>,
}

/// How far a place is known.
#[derive(Clone, Copy)]
enum State {
    Unknown,
    /// It leads to the one that is being looked for.
    Asked,
    Known(Mount),
}

/// All places relative to the body, however many lie between. What leads in a circle or to nothing is a
/// mistake.
pub(super) fn resolve(told: &[Told], mistakes: &mut Vec<Mistake>) -> BTreeMap<String, Mount> {
    let places: HashMap<&str, usize> =
        told.iter().enumerate().map(|(at, one)| (one.name.as_str(), at)).collect();
    let mut states = vec![State::Unknown; told.len()];
    for start in 0..told.len() {
        let mut way = Vec::new();
        let mut base = None;
        let mut at = start;
        // Up to a place that is known; each is passed once in all.
        loop {
            match states[at] {
                State::Known(mount) => {
                    base = Some(mount);
                    break;
                }
                State::Asked => {
                    mistakes.extend(circle(&told[at]));
                    break;
                }
                State::Unknown => {}
            }
            states[at] = State::Asked;
            way.push(at);
            let Some((other, span)) = &told[at].relative_to else { break };
            match places.get(other.as_str()) {
                Some(next) => at = *next,
                None => {
                    mistakes.push(unknown(other, span));
                    break;
                }
            }
        }
        for at in way.into_iter().rev() {
            let mount = base.map_or(told[at].mount, |base| on(&base, &told[at].mount));
            states[at] = State::Known(mount);
            base = Some(mount);
        }
    }
    let known = told.iter().zip(states).filter_map(|(one, state)| match state {
        State::Known(mount) => Some((one.name.clone(), mount)),
        State::Unknown | State::Asked => None,
    });
    known.collect()
}

/// What sits on something else, on what that sits on.
fn on(base: &Mount, mount: &Mount) -> Mount {
    let turned = base.orientation.product(mount.orientation);
    Mount {
        position: base.to_body().apply(mount.position),
        orientation: turned.normalized().unwrap_or(turned),
    }
}

fn circle(told: &Told) -> Option<Mistake> {
    let (other, span) = told.relative_to.as_ref()?;
    let message =
        format!("`{}` is relative to `{other}`, which is in the end relative to it", told.name);
    Some(mistake(span.clone(), &message))
}

fn unknown(other: &str, span: &Range<usize>) -> Mistake {
    let help = "name another sensor or camera of this file, or \"body\"";
    let message = format!("nothing is called `{other}`");
    Mistake { help: Some(help.to_owned()), ..mistake(span.clone(), &message) }
}
