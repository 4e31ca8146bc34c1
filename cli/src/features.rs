//! Features that only the full program has, and the messages that say how to get it. Implements
//! none of them.

use sluice_io::{FULL_PROGRAM, store};

use crate::exit::Failure;
use crate::verb;

/// A part of the full program.
#[derive(Debug)]
pub(crate) struct Feature {
    /// What it adds, as shown to users.
    adds: &'static str,
    /// The verb that needs it.
    verb: Option<&'static str>,
    is_linked: fn() -> bool,
}

/// SQL over logs.
const QUERY: Feature = Feature {
    adds: "SQL over logs: `query`, the stage `sql`",
    verb: Some("query"),
    is_linked: || has_verb("query"),
};

/// Runs on many machines.
pub(crate) const CLUSTER: Feature = Feature {
    adds: "runs on a cluster: `cluster`, `--engine ballista`",
    verb: Some("cluster"),
    is_linked: || has_verb("cluster"),
};

/// Object stores.
const S3: Feature = Feature {
    adds: "logs and outputs in object stores: `s3://…`",
    verb: None,
    is_linked: || store::is_linked("s3"),
};

const ALL: [&Feature; 3] = [&QUERY, &CLUSTER, &S3];

impl Feature {
    /// Says that this program lacks the feature, and how to get it.
    fn message(&self) -> String {
        format!("this program was built without {}; nothing was done; {}", self.adds, FULL_PROGRAM)
    }

    /// Whether this program has it.
    pub(crate) fn is_linked(&self) -> bool {
        (self.is_linked)()
    }

    /// The failure of using the feature in a program that lacks it.
    pub(crate) fn failure(&self) -> Failure {
        Failure::Usage(self.message())
    }
}

fn has_verb(name: &str) -> bool {
    verb::verbs().any(|verb| verb.name == name)
}

/// Returns why this program lacks `verb`; `None` if it is not a verb of a missing feature.
pub(crate) fn missing_verb_message(verb: &str) -> Option<String> {
    let mut all = missing_features();
    all.find(|feature| feature.verb == Some(verb)).map(Feature::message)
}

/// Lists the missing features as the last part of the help; empty if there are none.
pub(crate) fn help() -> String {
    let lines: String = missing_features().map(|feature| format!("  {}\n", feature.adds)).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("\n\nNot in this program:\n{lines}To have them, {}", FULL_PROGRAM)
}

fn missing_features() -> impl Iterator<Item = &'static Feature> {
    ALL.into_iter().filter(|feature| !feature.is_linked())
}
