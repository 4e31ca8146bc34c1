//! Valid pipeline files and their meaning; no text makes reading panic.

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;
use sluice_model::PluginKind;
use sluice_pipeline::{
    Document, OnDamage, Outline, Pipeline, PipelineNode, Variables, graph, library, schema,
};

use crate::toys;

const DIAMOND: &str = r#"
name = "both"
memory = "64MiB"

[sinks.out]
plugin = "table"
from = ["a", "rest"]
path = "out/"

[sources]
a = { plugin = "log", path = ["x.log", "-"], on_damage = "quarantine", quarantine = "bad.bin" }
b.plugin = "demo"
b.seconds = "${SECONDS:-10}"
b.noisy = "${NOISY:-true}"

[stages.rest]
plugin = "filter"
from = "b"
channels = ["A$", "$${x}", "$$"]
start = "${START}"
"#;

fn variables(set: &[(&str, &str)]) -> Variables {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Variables { set: set.iter().map(owned).collect(), environment: false }
}

fn read(text: &str, folder: Option<&str>, set: &[(&str, &str)]) -> Pipeline {
    let mut document = Document::generated("test.toml", text);
    document.file = folder.map(|folder| Path::new(folder).join("pipeline.toml"));
    Pipeline::read(&document, &variables(set), &toys::registry()).unwrap()
}

#[test]
fn nodes_come_in_the_order_of_the_file_with_links_resolved() {
    let pipeline = read(DIAMOND, None, &[("START", "5")]);
    assert_eq!(pipeline.name.as_deref(), Some("both"));
    assert_eq!(pipeline.memory.map(|size| size.0), Some(64 << 20));
    let nodes = pipeline.nodes.iter().map(|n| (n.name.as_str(), n.plugin, n.kind, n.from.clone()));
    let expected = [
        ("out", "table", PluginKind::Sink, vec![1, 3]),
        ("a", "log", PluginKind::Source, vec![]),
        ("b", "demo", PluginKind::Source, vec![]),
        ("rest", "filter", PluginKind::Stage, vec![2]),
    ];
    assert_eq!(nodes.collect::<Vec<_>>(), expected);
    assert_eq!(pipeline.nodes[1].damage, OnDamage::Quarantine("bad.bin".into()));
    assert_eq!(pipeline.nodes[2].damage, OnDamage::Skip);
}

#[test]
fn variables_become_what_the_option_wants() {
    let pipeline = read(DIAMOND, None, &[("START", "5"), ("SECONDS", "2.5")]);
    assert_eq!(pipeline.nodes[2].options, json!({ "seconds": 2.5, "noisy": true }));
    let filter = json!({ "channels": ["A$", "${x}", "$"], "start": 5 });
    assert_eq!(pipeline.nodes[3].options, filter);
}

#[test]
fn the_environment_is_asked_last_and_only_if_allowed() {
    let document =
        Document::generated("test.toml", DIAMOND.replace("${START}", "${CARGO_PKG_VERSION_MINOR}"));
    let read = |environment| {
        let variables = Variables { environment, ..Variables::default() };
        Pipeline::read(&document, &variables, &toys::registry())
    };
    assert!(read(false).is_err());
    assert_eq!(read(true).unwrap().nodes[3].options["start"], json!(1));
}

#[test]
fn relative_paths_are_relative_to_the_file() {
    let text = r#"
[sources.log]
plugin = "log"
path = ["a.log", "./b.log", "/abs/c.log", "-", "${IN}/d.log", "${NONE:-e}.log", "../${IN}"]
types = [["t/*.lcm"]]
epoch = "2007-11-03"
on_damage = "quarantine"
quarantine = "bad.bin"

[sinks.out]
plugin = "table"
from = "log"
path = "out/"
"#;
    let pipeline = read(text, Some("job/x"), &[("IN", "in")]);
    let paths =
        ["job/x/a.log", "job/x/b.log", "/abs/c.log", "-", "in/d.log", "job/x/e.log", "job/x/../in"];
    assert_eq!(pipeline.nodes[0].options["path"], json!(paths));
    assert_eq!(pipeline.nodes[0].options["types"], json!([["job/x/t/*.lcm"]]));
    assert_eq!(pipeline.nodes[0].options["epoch"], json!("2007-11-03"));
    assert_eq!(pipeline.nodes[0].damage, OnDamage::Quarantine("job/x/bad.bin".into()));
    assert_eq!(pipeline.nodes[1].options["path"], json!("job/x/out/"));
    // However the file is named, its paths are the same.
    for folder in [None, Some(""), Some("."), Some("./")] {
        let pipeline = read(text, folder, &[("IN", "./in")]);
        let paths = ["a.log", "b.log", "/abs/c.log", "-", "in/d.log", "e.log", "../in"];
        assert_eq!(pipeline.nodes[0].options["path"], json!(paths));
    }
    let pipeline = read(text, Some(".//job/./x/"), &[("IN", "in")]);
    assert_eq!(pipeline.nodes[0].options["path"], json!(paths));
    assert_eq!(pipeline.nodes[1].options["path"], json!("job/x/out/"));
}

#[test]
fn the_default_quarantine_file_is_beside_the_pipeline_file() {
    let text = "[sources.log]\nplugin = \"log\"\npath = \"a.log\"\non_damage = \"quarantine\"\n\
                [sinks.out]\nplugin = \"table\"\nfrom = \"log\"\npath = \"out/\"\n";
    for (folder, path) in [
        (Some("job/x"), "job/x/log.quarantine"),
        (Some("./{a}/"), "{a}/log.quarantine"),
        (Some(""), "log.quarantine"),
        (None, "log.quarantine"),
    ] {
        let pipeline = read(text, folder, &[]);
        assert_eq!(pipeline.nodes[0].damage, OnDamage::Quarantine(path.into()), "{folder:?}");
    }
}

#[test]
fn files_come_before_built_in_pipelines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "name = \"mine\"").unwrap();
    let document = Document::open(file.to_str().unwrap()).unwrap();
    assert_eq!(document.file.as_deref().and_then(Path::parent), Some(folder.path()));
    for name in ["quickstart", "quickstart.toml"] {
        let document = Document::open(name).unwrap();
        assert_eq!((document.name, document.file), (format!("{name} (built in)"), None));
    }
    let error = |name: &str| Document::open(name).unwrap_err().to_string();
    assert!(error("quikstart").contains("did you mean `quickstart`?"));
    assert!(error("nothing/like.it").contains("the built-in ones are `archive-to-log`"));
    std::fs::write(&file, [b'a', 0xff]).unwrap();
    assert!(error(file.to_str().unwrap()).contains("UTF-8"));
    assert!(Document::open(folder.path().to_str().unwrap()).is_err());
}

#[test]
fn every_file_of_the_library_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("library");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut stems: Vec<String> =
        files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    stems.sort();
    assert_eq!(library::names().collect::<Vec<_>>(), stems);
}

#[test]
fn a_byte_order_mark_and_line_ends_of_windows_are_fine() {
    let text = format!("\u{feff}{}", DIAMOND.replace('\n', "\r\n"));
    assert_eq!(read(&text, None, &[("START", "5")]).nodes.len(), 4);
    let wrong = text.replace("\"demo\"", "\"dmo\"");
    let document = Document::generated("x.toml", wrong);
    let mistakes = Pipeline::read(&document, &variables(&[("START", "5")]), &toys::registry());
    let said = mistakes.unwrap_err().to_string();
    assert!(said.contains("x.toml:12:12") && said.contains("^^^^^\n"), "{said}");
}

#[test]
fn graphs_are_drawn() {
    let pipeline = Outline::from(&read(DIAMOND, None, &[("START", "5")]));
    let mermaid = "flowchart LR
    n0[(\"out<br/>table\")]
    n1([\"a<br/>log\"])
    n2([\"b<br/>demo\"])
    n3[\"rest<br/>filter\"]
    n1 --> n0
    n3 --> n0
    n2 --> n3
";
    assert_eq!(graph::mermaid(&pipeline), mermaid);
    let dot = graph::dot(&pipeline);
    assert!(dot.starts_with("digraph") && dot.ends_with("}\n"));
    assert!(
        dot.contains("    n3 [label=\"rest\\nfilter\", shape=box];\n") && dot.contains("n2 -> n3;")
    );
}

const CHOICE: &str = r#"
[sources.log]
plugin = "log"
path = "x.log"

[sources.other]
plugin = "demo"
when = { OTHER = { not = "" } }

[stages.fields]
plugin = "pass"
from = ["other", "log"]

[stages.lines]
plugin = "pass"
from = "fields"

[sinks.text]
plugin = "jsonl"
from = "lines"
path = "out.txt"
when = { FORMAT = ["text", "both"] }

[sinks.table]
plugin = "file"
from = ["fields", "log"]
path = "{stem}.table"
when = { FORMAT = { not = "text" } }
"#;

/// The names of a pipeline's nodes with those they read from.
fn shape(pipeline: &Pipeline) -> Vec<(String, Vec<String>)> {
    let name = |at: &usize| pipeline.nodes[*at].name.clone();
    let of = |node: &PipelineNode| (node.name.clone(), node.from.iter().map(name).collect());
    pipeline.nodes.iter().map(of).collect()
}

fn expected_shape(shape: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    shape.iter().map(|(name, from)| ((*name).to_owned(), owned(from))).collect()
}

#[test]
fn a_condition_that_fails_takes_along_what_is_there_for_its_node_only() {
    let table: [(&str, &[&str]); 3] =
        [("log", &[]), ("fields", &["log"]), ("table", &["fields", "log"])];
    let by_default = read(CHOICE, None, &[]);
    assert_eq!(shape(&by_default), expected_shape(&table));
    // The only path with a placeholder is that of the table.
    assert_eq!(by_default.templates.len(), 1);
    let text: [(&str, &[&str]); 4] =
        [("log", &[]), ("fields", &["log"]), ("lines", &["fields"]), ("text", &["lines"])];
    let chosen = read(CHOICE, None, &[("FORMAT", "text")]);
    assert_eq!(shape(&chosen), expected_shape(&text));
    assert!(chosen.templates.is_empty());
    let both: [(&str, &[&str]); 5] = [
        ("log", &[]),
        ("other", &[]),
        ("fields", &["other", "log"]),
        ("lines", &["fields"]),
        ("text", &["lines"]),
    ];
    assert_eq!(
        shape(&read(CHOICE, None, &[("FORMAT", "text"), ("OTHER", "1")])),
        expected_shape(&both)
    );
}

#[test]
fn pruned_nodes_name_the_condition_that_pruned_them() {
    let told = |text: &str, set: &[(&str, &str)]| -> Vec<String> {
        read(text, None, set).pruned.iter().map(ToString::to_string).collect()
    };
    let chosen = told(CHOICE, &[("FORMAT", "text"), ("OTHER", "1")]);
    assert_eq!(
        chosen,
        ["table, since its condition fails (when = { FORMAT = { not = \"text\" } })"]
    );
    let expected = [
        "other, since its condition fails (when = { OTHER = { not = \"\" } })",
        "lines, since only text reads from it, which is left out \
         (when = { FORMAT = [\"text\", \"both\"] })",
        "text, since its condition fails (when = { FORMAT = [\"text\", \"both\"] })",
    ];
    assert_eq!(told(CHOICE, &[]), expected);
    // A string that has no form as a table is shown as it is.
    let joined = CHOICE.replace("{ FORMAT = { not = \"text\" } }", "\"${A:-}${B:-} == c\"");
    let expected = "table, since its condition fails (when = \"${A:-}${B:-} == c\")";
    assert!(told(&joined, &[("FORMAT", "text")]).contains(&expected.to_owned()));
    let unfed = CHOICE.replace("[sources.log]\n", "[sources.log]\nwhen = { A = \"b\" }\n")
        + "[sources.third]\nplugin = \"demo\"\n\
           [sinks.copy]\nplugin = \"jsonl\"\nfrom = \"third\"\npath = \"copy\"\n";
    let expected = [
        "log, since its condition fails (when = { A = \"b\" })",
        "other, since its condition fails (when = { OTHER = { not = \"\" } })",
        "fields, since its inputs other and log are left out (when = { OTHER = { not = \"\" } })",
        "lines, since its input fields is left out (when = { OTHER = { not = \"\" } })",
        "text, since its condition fails (when = { FORMAT = [\"text\", \"both\"] })",
        "table, since its inputs fields and log are left out (when = { OTHER = { not = \"\" } })",
    ];
    assert_eq!(told(&unfed, &[]), expected);
}

#[test]
fn whatever_a_variable_holds_is_one_word_of_a_condition() {
    for value in ["text or a == a", "'", "== text", "$", "${FORMAT}"] {
        let pipeline = read(CHOICE, None, &[("FORMAT", value)]);
        assert_eq!(pipeline.nodes.last().unwrap().name, "table", "{value}");
    }
    assert_eq!(read(CHOICE, None, &[("FORMAT", " text ")]).nodes.last().unwrap().name, "text");
}

#[test]
fn conditions_as_strings_do_the_same_and_say_how_to_write_them() {
    let former = CHOICE
        .replace("{ OTHER = { not = \"\" } }", "\"${OTHER:-} != ''\"")
        .replace("[\"text\", \"both\"]", "")
        .replace("{ FORMAT =  }", "\"${FORMAT:-table} == text or ${FORMAT:-table} == both\"")
        .replace("{ FORMAT = { not = \"text\" } }", "\"${FORMAT:-table} != text\"");
    assert_eq!(former.matches("= \"${").count(), 3, "{former}");
    let notes = |set: &[(&str, &str)]| -> Vec<String> {
        let (former, now) = (read(&former, None, set), read(CHOICE, None, set));
        assert_eq!(shape(&former), shape(&now), "{set:?}");
        let pruned = |pipeline: &Pipeline| -> Vec<String> {
            pipeline.pruned.iter().map(ToString::to_string).collect()
        };
        assert_eq!(pruned(&former), pruned(&now), "{set:?}");
        assert!(now.notes.is_empty() && now.nodes.iter().all(|node| node.notes().is_empty()));
        former.notes.into_iter().map(|note| format!("{}: {}", note.node, note.what)).collect()
    };
    let note = |node: &str, form: &str| {
        format!("{node}: `when` as a string is outdated: write `when = {form}`")
    };
    // Whether the conditions hold or not.
    let all = [
        note("other", "{ OTHER = { not = \"\" } }"),
        note("text", "{ FORMAT = [\"text\", \"both\"] }"),
        note("table", "{ FORMAT = { not = \"text\" } }"),
    ];
    assert_eq!(notes(&[]), all);
    assert_eq!(notes(&[("FORMAT", " text ")]), all);
    assert_eq!(notes(&[("FORMAT", "text"), ("OTHER", "1")]), all);
}

#[test]
fn every_variable_of_a_table_and_one_table_of_a_list_has_to_match() {
    let when = |when: &str, set: &[(&str, &str)]| {
        let text = CHOICE.replace("{ FORMAT = [\"text\", \"both\"] }", when);
        read(&text, None, set).nodes.iter().any(|node| node.name == "text")
    };
    let both = "{ A = \"1\", B = [\"\", \"${C:-2}\"] }";
    assert!(when(both, &[("A", "1")]) && when(both, &[("A", " 1 "), ("B", "2")]));
    assert!(!when(both, &[]) && !when(both, &[("A", "1"), ("B", "3")]));
    assert!(when(both, &[("A", "1"), ("B", "3"), ("C", "3")]));
    let one = "[{ A = \"1\" }, { B = { not = [\"\", \"0\"] } }]";
    assert!(when(one, &[("A", "1")]) && when(one, &[("B", "2")]));
    assert!(!when(one, &[]) && !when(one, &[("B", "0")]));
}

#[test]
fn what_reads_from_nodes_that_are_gone_is_gone_with_them() {
    let text = CHOICE.replace("[sources.log]\n", "[sources.log]\nwhen = { A = \"b\" }\n");
    let document = Document::generated("test.toml", &*text);
    let mistakes = Pipeline::read(&document, &Variables::default(), &toys::registry()).unwrap_err();
    let said = mistakes.to_string();
    assert!(
        said.contains("no sink is left: `log` has `when = { A = \"b\" }`, `other` has `when = "),
        "{said}"
    );
    let left = read(&text, None, &[("OTHER", "1"), ("FORMAT", "text")]);
    let shape: Vec<_> = shape(&left).into_iter().map(|(name, _)| name).collect();
    assert_eq!(shape, ["other", "fields", "lines", "text"]);
}

#[test]
fn the_schema_has_every_option_of_every_plugin() {
    let schema = schema::json_schema(&toys::registry());
    let log = &schema["$defs"]["source-log"];
    assert_eq!(log["properties"]["plugin"]["const"], "log");
    assert_eq!(log["required"], json!(["path", "plugin"]));
    assert_eq!(schema["$defs"]["sink"]["required"], json!(["plugin", "from"]));
    assert_eq!(log["additionalProperties"], json!(false));
    assert_eq!(log["description"], "reads a log");
    assert!(
        log["properties"].get("on_damage").is_some() && log["properties"].get("from").is_none()
    );
    for node in ["source-log", "stage-pass", "sink-table"] {
        let when = &schema["$defs"][node]["properties"]["when"]["anyOf"];
        assert_eq!(when[0]["type"], "object");
        assert_eq!(when[2], json!({ "type": "string", "deprecated": true }));
    }
    // A variable may be in every string, also where only some words are valid.
    for node in ["source-log", "source"] {
        let damage = &schema["$defs"][node]["properties"]["on_damage"];
        assert_eq!(damage["anyOf"][0]["enum"][0], "skip");
        assert_eq!(damage["anyOf"][1]["pattern"], r"\$\{");
        assert_eq!(damage["default"], "skip");
    }
    let demo = &schema["$defs"]["source-demo"]["properties"]["seconds"];
    assert_eq!(demo["anyOf"][1]["type"], "string");
    assert_eq!(demo["description"], "How long the drive is.");
    for choice in schema["$defs"]["sink"]["allOf"].as_array().unwrap() {
        let node = follow(&schema, choice["then"]["$ref"].as_str().unwrap());
        let meant = &choice["if"]["properties"]["plugin"]["const"];
        assert_eq!(&node["properties"]["plugin"]["const"], meant);
    }
    references(&schema, &mut |target| assert!(follow(&schema, target).is_object(), "{target}"));
}

fn follow<'s>(schema: &'s serde_json::Value, target: &str) -> &'s serde_json::Value {
    schema.pointer(target.strip_prefix('#').unwrap()).unwrap_or(&serde_json::Value::Null)
}

fn references(schema: &serde_json::Value, each: &mut impl FnMut(&str)) {
    if let Some(target) = schema.get("$ref").and_then(serde_json::Value::as_str) {
        each(target);
    }
    let object = schema.as_object().into_iter().flat_map(|fields| fields.values());
    object.chain(schema.as_array().into_iter().flatten()).for_each(|s| references(s, each));
}

#[test]
fn a_plugin_tells_its_options() {
    let registry = toys::registry();
    let log = schema::plugin_json(registry.get(PluginKind::Source, "log").unwrap());
    assert_eq!((&log["name"], &log["kind"]), (&json!("log"), &json!("source")));
    let path = json!({ "name": "path", "type": "path or list of path", "default": null,
                       "required": true, "doc": "The files." });
    assert_eq!(log["options"][0], path);
    let start = json!({ "name": "window.start", "type": "string or number", "default": null,
                        "required": true, "doc": null });
    assert_eq!(log["options"][3]["nested"][0], start);
    let table = schema::plugin_json(registry.get(PluginKind::Sink, "table").unwrap());
    assert_eq!(table["options"][1]["type"], "\"zstd\" or \"none\"");
    assert_eq!(table["options"][2]["type"], "integer or string");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_makes_reading_panic(text in "\\PC*|[\\[\\]{}=.\"'$\\-a-c0-9,#\\n \\r\u{e9}]{0,80}") {
        tell(&text);
    }

    #[test]
    fn no_change_to_a_pipeline_makes_reading_panic(
        at in 0..DIAMOND.len(), cut in 0..40usize,
        put in "[\\[\\]{}=.\"'$a-c0-9,\\n\u{1d11e}]{0,6}",
    ) {
        let end = (at + cut).min(DIAMOND.len());
        tell(&format!("{}{put}{}", &DIAMOND[..at], &DIAMOND[end..]));
    }
}

/// Reads `text`; if it has mistakes, they have places in it and can be shown.
fn tell(text: &str) {
    let document = Document::generated("any.toml", text);
    if let Err(mistakes) = Pipeline::read(&document, &variables(&[]), &toys::registry()) {
        assert!(!mistakes.list.is_empty());
        let shown = mistakes.to_string();
        for mistake in mistakes.list {
            assert!(text.get(mistake.span.clone()).is_some(), "{:?} of {text:?}", mistake.span);
        }
        assert!(shown.contains("error") && shown.contains('^') && shown.contains("any.toml:"));
    }
}

#[test]
fn paths_with_placeholders_are_kept_and_others_are_what_they_say() {
    let text = |path: &str| {
        format!(
            "[sources.log]\nplugin = \"log\"\npath = \"{{in}}\"\n\
             [sinks.out]\nplugin = \"file\"\nfrom = \"log\"\npath = \"{path}\"\n"
        )
    };
    let fixed = read(&text("a{{b}}"), Some("folder"), &[]);
    assert_eq!(fixed.nodes[0].options["path"], "folder/{in}");
    assert_eq!(fixed.nodes[1].options["path"], "folder/a{b}");
    assert!(fixed.templates.is_empty());
    let filled = read(&text("${OUT}/x.${EXT:-y}"), Some("folder"), &[("OUT", "out/{stem}")]);
    assert_eq!(filled.nodes[1].options["path"], "out/{stem}/x.y");
    assert_eq!(filled.templates.len(), 1);
}
