//! The identity of a program, compared in the handshake between driver and worker: both must run
//! the same program to produce the same bytes.

use serde::{Deserialize, Serialize};
use sluice_model::Registry;

use crate::manifest::VERSION;

/// The version of a program and its plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramIdentity {
    /// The version of Sluice.
    pub sluice: String,
    /// `kind name` of each plugin, sorted.
    pub plugins: Vec<String>,
}

impl ProgramIdentity {
    /// The identity of a program with these plugins.
    pub fn new(registry: &Registry) -> Self {
        let names = registry.iter().map(|plugin| format!("{} {}", plugin.kind(), plugin.name));
        let mut plugins: Vec<String> = names.collect();
        plugins.sort();
        Self { sluice: VERSION.to_owned(), plugins }
    }

    /// Why this program cannot work with `other`, as a sentence; `None` if they are compatible.
    pub fn mismatch(&self, other: &Self) -> Option<String> {
        if self.sluice != other.sluice {
            let (ours, theirs) = (&self.sluice, &other.sluice);
            return Some(format!(
                "this is Sluice {ours} and that is Sluice {theirs}: a cluster needs one version \
                 everywhere"
            ));
        }
        let lacks = |one: &Self, other: &Self| {
            let missing = other.plugins.iter().filter(|plugin| !one.plugins.contains(plugin));
            missing.cloned().collect::<Vec<_>>().join(", ")
        };
        let (here, there) = (lacks(self, other), lacks(other, self));
        let sentence = match (here.is_empty(), there.is_empty()) {
            (true, true) => return None,
            (false, true) => format!("plugins are missing here: {here}"),
            (true, false) => format!("plugins are missing there: {there}"),
            (false, false) => {
                format!("plugins are missing here: {here}; and there: {there}")
            }
        };
        Some(format!("{sentence}; a cluster needs the same program everywhere"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(sluice: &str, plugins: &[&str]) -> ProgramIdentity {
        let plugins = plugins.iter().map(|name| (*name).to_owned()).collect();
        ProgramIdentity { sluice: sluice.to_owned(), plugins }
    }

    #[test]
    fn equal_programs_go_together() {
        let one = program("1", &["sink a", "source a"]);
        assert_eq!(one.mismatch(&one.clone()), None);
    }

    #[test]
    fn what_differs_is_named() {
        let one = program("1", &["sink a", "source a"]);
        let other = one.mismatch(&program("2", &["sink a", "source a"])).unwrap();
        assert!(other.contains("Sluice 1") && other.contains("Sluice 2"), "{other}");
        let lacking = one.mismatch(&program("1", &["sink a", "sink b"])).unwrap();
        assert!(lacking.contains("here: sink b"), "{lacking}");
        assert!(lacking.contains("there: source a"), "{lacking}");
    }
}
