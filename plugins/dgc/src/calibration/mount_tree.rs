//! Resolves mounts that are given relative to one another into mounts on the body. Reads no files.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use sluice_kit::mistake::Mistake;

use super::vehicle::Mount;

/// The frame that mounts are relative to by default.
pub(super) const BODY: &str = "body";

/// A mount as given in a file.
#[derive(Clone, Debug)]
pub(super) struct RelativeMount {
    pub(super) name: String,
    /// Relative to `relative_to`.
    pub(super) mount: Mount,
    /// The parent frame and its position in the file; `None` for the body.
    pub(super) relative_to: Option<(String, Range<usize>)>,
}

/// Resolution state of a mount.
#[derive(Clone, Copy)]
enum State {
    Unresolved,
    /// On the path that is being resolved.
    InProgress,
    Resolved(Mount),
}

/// Resolves all mounts relative to the body. Cycles and unknown parents are reported as mistakes.
pub(super) fn resolve_mounts(
    mounts: &[RelativeMount],
    mistakes: &mut Vec<Mistake>,
) -> BTreeMap<String, Mount> {
    let places: HashMap<&str, usize> =
        mounts.iter().enumerate().map(|(at, one)| (one.name.as_str(), at)).collect();
    let mut states = vec![State::Unresolved; mounts.len()];
    for start in 0..mounts.len() {
        let mut path = Vec::new();
        let mut base = None;
        let mut at = start;
        // Walks up to a resolved mount; each mount is visited once in total.
        loop {
            match states[at] {
                State::Resolved(mount) => {
                    base = Some(mount);
                    break;
                }
                State::InProgress => {
                    mistakes.extend(cycle_mistake(&mounts[at]));
                    break;
                }
                State::Unresolved => {}
            }
            states[at] = State::InProgress;
            path.push(at);
            let Some((other, span)) = &mounts[at].relative_to else { break };
            match places.get(other.as_str()) {
                Some(next) => at = *next,
                None => {
                    mistakes.push(unknown_frame(other, span));
                    break;
                }
            }
        }
        for at in path.into_iter().rev() {
            let mount = base.map_or(mounts[at].mount, |base| compose(&base, &mounts[at].mount));
            states[at] = State::Resolved(mount);
            base = Some(mount);
        }
    }
    let known = mounts.iter().zip(states).filter_map(|(one, state)| match state {
        State::Resolved(mount) => Some((one.name.clone(), mount)),
        State::Unresolved | State::InProgress => None,
    });
    known.collect()
}

/// The mount relative to the parent of `base`.
fn compose(base: &Mount, mount: &Mount) -> Mount {
    let turned = base.orientation.product(mount.orientation);
    Mount {
        position: base.to_body().apply(mount.position),
        orientation: turned.normalized().unwrap_or(turned),
    }
}

fn cycle_mistake(mount: &RelativeMount) -> Option<Mistake> {
    let (other, span) = mount.relative_to.as_ref()?;
    let message = format!("`{}` is relative to `{other}`, which leads back to it", mount.name);
    Some(mistake(span.clone(), &message))
}

fn unknown_frame(other: &str, span: &Range<usize>) -> Mistake {
    let help = "expected a sensor or camera of this file, or \"body\"";
    let message = format!("unknown frame `{other}`");
    Mistake { help: Some(help.to_owned()), ..mistake(span.clone(), &message) }
}

/// A mistake without help or detail.
pub(super) fn mistake(span: Range<usize>, message: impl Into<String>) -> Mistake {
    Mistake { span, message: message.into(), help: None, detail: None }
}
