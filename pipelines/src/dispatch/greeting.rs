//! Who a driver or a worker is: what both must have in common so that either makes the same bytes of a unit.

use serde::{Deserialize, Serialize};
use sluice_core::Registry;

use crate::manifest::VERSION;

/// The version of a program, and its plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The version of Sluice.
    pub sluice: String,
    /// `kind name` of each plugin, sorted.
    pub plugins: Vec<String>,
}

impl Greeting {
    /// That of a program with these plugins.
    pub fn of(registry: &Registry) -> Self {
        let names = registry.iter().map(|plugin| format!("{} {}", plugin.kind(), plugin.name));
        let mut plugins: Vec<String> = names.collect();
        plugins.sort();
        Self { sluice: VERSION.to_owned(), plugins }
    }

    /// What keeps this program from doing the work of `other`, or giving it work, as a sentence; nothing if they
    /// go together.
    pub fn differs(&self, other: &Self) -> Option<String> {
        if self.sluice != other.sluice {
            let (ours, theirs) = (&self.sluice, &other.sluice);
            return Some(format!(
                "this is Sluice {ours} and that is Sluice {theirs}: a cluster has one version everywhere"
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
        Some(format!("{sentence}; a cluster has the same program everywhere"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(sluice: &str, plugins: &[&str]) -> Greeting {
        let plugins = plugins.iter().map(|name| (*name).to_owned()).collect();
        Greeting { sluice: sluice.to_owned(), plugins }
    }

    #[test]
    fn equal_programs_go_together() {
        let one = greeting("1", &["sink a", "source a"]);
        assert_eq!(one.differs(&one.clone()), None);
    }

    #[test]
    fn what_differs_is_named() {
        let one = greeting("1", &["sink a", "source a"]);
        let other = one.differs(&greeting("2", &["sink a", "source a"])).unwrap();
        assert!(other.contains("Sluice 1") && other.contains("Sluice 2"), "{other}");
        let lacking = one.differs(&greeting("1", &["sink a", "sink b"])).unwrap();
        assert!(lacking.contains("here: sink b"), "{lacking}");
        assert!(lacking.contains("there: source a"), "{lacking}");
    }
}
