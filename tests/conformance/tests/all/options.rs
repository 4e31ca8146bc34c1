//! Options inside tables: unknown ones have to be refused there, too.

use std::collections::BTreeMap;

use serde::Deserialize;
use sluice_conformance::{Promise, source};
use sluice_kit::{Delimited, DelimitedSource, ParseOutcome};
use sluice_model::options::InPaths;
use sluice_model::register;
use sluice_model::schemars::JsonSchema;

use crate::found::expect_findings;

/// Reads nothing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
#[expect(dead_code, reason = "only the options are checked")]
struct Nested<T> {
    /// The files.
    path: InPaths,
    /// Tables.
    shapes: Option<Vec<T>>,
    /// A table of any names.
    #[serde(default)]
    names: BTreeMap<String, String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
#[expect(dead_code, reason = "only the options are checked")]
enum LooseShape {
    Circle { radius: f64 },
    Point,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "sluice_model::schemars")]
#[expect(dead_code, reason = "only the options are checked")]
struct LooseBox {
    height: f64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
#[expect(dead_code, reason = "only the options are checked")]
enum StrictShape {
    Circle { radius: f64 },
    Square(StrictBox),
    Other { properties: Option<StrictBox> },
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
#[expect(dead_code, reason = "only the options are checked")]
struct StrictBox {
    height: f64,
}

macro_rules! nested {
    ($($name:literal: $type:ty;)*) => {
        $(register! {
            source $name: DelimitedSource<Nested<$type>>,
            about: "reads nothing",
            sample: concat!("[sources.log]\nplugin = \"", $name, "\"\npath = \"a\"\n\
                             # shapes = []\n# names = { a = \"b\" }\n"),
        })*
    };
}

nested! {
    "strict-inside": StrictShape;
    "loose-variants": LooseShape;
    "loose-inside": LooseBox;
}

impl<T: Send + Sync> Delimited for Nested<T> {
    fn paths(&self) -> &InPaths {
        &self.path
    }

    fn parse<'b>(&self, _: &'b [u8]) -> ParseOutcome<'b> {
        ParseOutcome::More
    }
}

#[test]
fn options_in_tables_that_refuse_unknown_ones_have_no_findings() {
    source("strict-inside").unread().check();
}

#[test]
fn unknown_options_that_are_taken_in_tables() {
    let findings = source("loose-inside").unread().findings();
    expect_findings(&findings, &[Promise::Options], &["`LooseBox`", "deny_unknown_fields"]);
    let findings = source("loose-variants").unread().findings();
    expect_findings(&findings, &[Promise::Options], &["`LooseShape`", "deny_unknown_fields"]);
    assert_eq!(findings.len(), 1, "{findings:?}");
}
