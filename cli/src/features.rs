//! Verbs and options that only the full program has, and how to come by it. What they do is decided
//! elsewhere.

use sluice_core::{FULL_PROGRAM, store};

use crate::ending::Failure;
use crate::extension;

/// A part of the full program.
#[derive(Debug)]
pub(crate) struct Feature {
    /// What it adds, for people.
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
    /// Why there is nothing that this program can do, and what to do.
    fn refusal(&self) -> String {
        format!("this program was built without {}; nothing was done; {}", self.adds, FULL_PROGRAM)
    }

    /// The failure of asking for it in a program that lacks it.
    pub(crate) fn missing(&self) -> Failure {
        Failure::WrongUse(self.refusal())
    }
}

fn has_verb(name: &str) -> bool {
    extension::verbs().any(|verb| verb.name == name)
}

/// Why a verb can do nothing in this program; nothing if it can.
pub(crate) fn refusal_of_verb(verb: &str) -> Option<String> {
    let mut all = lacking();
    all.find(|feature| feature.verb == Some(verb)).map(Feature::refusal)
}

/// What this program lacks, as the last part of its help; empty if it has everything.
pub(crate) fn help() -> String {
    let lines: String = lacking().map(|feature| format!("  {}\n", feature.adds)).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("\n\nNot in this program:\n{lines}To have them, {}", FULL_PROGRAM)
}

fn lacking() -> impl Iterator<Item = &'static Feature> {
    ALL.into_iter().filter(|feature| !(feature.is_linked)())
}
