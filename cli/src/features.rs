//! Verbs and options that only programs built with a feature have, and how to come by them. What
//! they do is decided elsewhere.

use crate::ending::Failure;

/// A part of the program that is only there if it was built with a feature.
#[derive(Debug)]
pub(crate) struct Feature {
    /// The feature's name.
    pub(crate) name: &'static str,
    /// What it adds, for people.
    adds: &'static str,
    /// The verb that needs it.
    pub(crate) verb: Option<&'static str>,
    is_built: bool,
}

/// SQL over logs.
pub(crate) const QUERY: Feature = Feature {
    name: "query",
    adds: "SQL over logs: `query`, the stage `sql`",
    verb: Some("query"),
    is_built: cfg!(feature = "query"),
};

/// Runs on many machines.
pub(crate) const CLUSTER: Feature = Feature {
    name: "cluster",
    adds: "runs on a cluster: `cluster`, `--engine ballista`",
    verb: Some("cluster"),
    is_built: cfg!(feature = "cluster"),
};

/// Object stores.
const S3: Feature = Feature {
    name: "s3",
    adds: "logs and outputs in object stores: `s3://…`",
    verb: None,
    is_built: cfg!(feature = "s3"),
};

const ALL: [&Feature; 3] = [&QUERY, &CLUSTER, &S3];

impl Feature {
    /// Refuses to go on in a program that was built without it.
    pub(crate) fn require(&self) -> Result<(), Failure> {
        if self.is_built { Ok(()) } else { Err(Failure::WrongUse(self.refusal())) }
    }

    /// Why there is nothing that this program can do, and what to do.
    fn refusal(&self) -> String {
        format!(
            "this program was built without the feature `{0}` ({1}); nothing was done; build it with: \
             cargo build --release --features {0}",
            self.name, self.adds
        )
    }
}

/// Why a verb can do nothing in this program; nothing if it can.
pub(crate) fn refusal_of_verb(verb: &str) -> Option<String> {
    let mut all = ALL.iter().filter(|feature| !feature.is_built);
    all.find(|feature| feature.verb == Some(verb)).map(|feature| feature.refusal())
}

/// What this program lacks, as the last part of its help; empty if it has everything.
pub(crate) fn help() -> String {
    let lacking = || ALL.iter().filter(|feature| !feature.is_built);
    if lacking().next().is_none() {
        return String::new();
    }
    let names: Vec<&str> = lacking().map(|feature| feature.name).collect();
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let lines: String =
        lacking().map(|feature| format!("  {:width$}  {}\n", feature.name, feature.adds)).collect();
    let names = names.join(",");
    format!(
        "\n\nNot in this program, since it was built without these features:\n{lines}\
         To have them: cargo build --release --features {names}"
    )
}
