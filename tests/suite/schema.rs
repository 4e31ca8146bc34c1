//! The keys of pipeline files are the same in the program, its schema and the documentation.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use sluice_model::options::ByteSize;
use sluice_model::{PluginKind, Registry};
use sluice_pipeline::run::DEFAULT_MEMORY;
use sluice_pipeline::{library, schema};

use crate::kit::{Folder, python_with, root, run_sluice};
use crate::samples::complete_sample;

/// The errors of a validator, by pipeline file: places and messages.
type ValidationErrors = BTreeMap<String, Vec<(String, String)>>;

/// Runs a JSON Schema validator; `None`, with a message, if there is none.
fn validate(files: &BTreeMap<String, String>) -> Option<ValidationErrors> {
    let python = python_with("jsonschema")?;
    let folder = Folder::new();
    let schema: Value =
        serde_json::from_str(&run_sluice(&folder, &["schema"]).expect(0).text()).unwrap();
    folder.write("asked.json", json!({ "schema": schema, "files": files }).to_string());
    let script = root().join("tests/suite/peers_py/validate.py");
    let said = Command::new(python).arg(script).arg(folder.at("asked.json")).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    Some(serde_json::from_slice(&said.stdout).unwrap())
}

#[test]
fn pipelines_that_the_program_takes_fit_its_schema() {
    let registry = Registry::linked();
    let nodes =
        registry.iter().filter(|p| !matches!(p.kind(), PluginKind::Codec | PluginKind::Service));
    let samples = nodes.map(|plugin| (format!("{plugin:?}"), complete_sample(plugin)));
    let shipped =
        library::names().filter_map(|name| Some((name.to_owned(), library::get(name)?.to_owned())));
    let example = root().join("docs/examples/drives-to-tables.toml");
    let example = ("an example".to_owned(), fs::read_to_string(example).unwrap());
    let files: BTreeMap<String, String> = samples.chain(shipped).chain([example]).collect();
    let Some(errors) = validate(&files) else { return };
    assert_eq!(errors.len(), files.len());
    let wrong: Vec<_> = errors.iter().filter(|(_, mistakes)| !mistakes.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A pipeline with this sink.
fn with_sink(sink: &str) -> String {
    format!("[sources.drive]\nplugin = \"demo\"\n[sinks.out]\n{sink}\n")
}

#[test]
fn a_validator_names_the_key_that_is_wrong() {
    let csv = "plugin = \"csv\"\nfrom = \"drive\"\n";
    let whole = format!("{csv}path = \"out.csv\"\n");
    let cases = [
        (
            format!("{csv}pth = \"out.csv\"\npath = \"out.csv\""),
            "sinks/out",
            "'pth' was unexpected",
        ),
        (format!("{whole}layout = \"channel\""), "sinks/out", "'layout' was unexpected"),
        (format!("{whole}on_damage = \"skip\""), "sinks/out", "'on_damage' was unexpected"),
        (csv.to_owned(), "sinks/out", "'path' is a required property"),
        ("plugin = \"csv\"\npath = \"x\"".into(), "sinks/out", "'from' is a required property"),
        ("from = \"drive\"".into(), "sinks/out", "'plugin' is a required property"),
        (whole.replace("\"csv\"", "\"cvs\""), "sinks/out/plugin", "'cvs' is not valid"),
        (format!("{whole}when = true"), "sinks/out/when", "True is not valid"),
        (format!("{whole}[snks]"), "", "'snks' was unexpected"),
    ];
    let texts = cases.iter().map(|(sink, ..)| (sink.clone(), with_sink(sink)));
    let Some(errors) = validate(&texts.collect()) else { return };
    for (sink, place, message) in cases {
        let said = &errors[&sink];
        let is_meant = |(at, what): &(String, String)| at == place && what.contains(message);
        // A key of the wrong type is reported for each alternative, all at the same place.
        assert!(!said.is_empty() && said.iter().all(is_meant), "{sink}\n{message}: {said:#?}");
    }
    let variable = with_sink(&whole.replace("\"csv\"", "\"${SINK}\""));
    let delimiter = with_sink(&format!("{whole}delimiter = \"${{SEP:-;}}\""));
    let files = [("variable", variable), ("delimiter", delimiter)];
    let said = validate(&files.map(|(name, file)| (name.to_owned(), file)).into()).unwrap();
    assert!(said.values().all(Vec::is_empty), "{said:?}");
}

/// The row for a key in the tables of the page.
fn row(key: &Value) -> String {
    let word = |name: &str| key[name].as_str().unwrap();
    let left_out = match (&key["default"], &key["required"]) {
        (_, Value::Bool(true)) => "required".to_owned(),
        (Value::Null, _) => String::new(),
        (default, _) => format!("`{default}`"),
    };
    format!("| `{}` | {} | {left_out} | {} |", word("name"), word("type"), word("doc"))
        .replace("|  |", "| |")
}

/// The rows of the first table below a heading.
fn rows<'p>(page: &'p str, heading: &str) -> Vec<&'p str> {
    let (_, below) = page.split_once(&format!("\n## {heading}\n")).expect(heading);
    let table = below.lines().skip_while(|line| !line.starts_with('|'));
    table.take_while(|line| line.starts_with('|')).skip(2).collect()
}

#[test]
fn the_documentation_lists_every_key_as_the_program_does() {
    let page = fs::read_to_string(root().join("docs/pipeline-files.md")).unwrap();
    let table_rows = |keys: Value| keys.as_array().unwrap().iter().map(row).collect::<Vec<_>>();
    assert_eq!(rows(&page, "Keys of the file"), table_rows(schema::top_level_json()));
    for (heading, kind) in [
        ("Keys of every source", PluginKind::Source),
        ("Keys of every stage and sink", PluginKind::Stage),
        ("Keys of every stage and sink", PluginKind::Sink),
    ] {
        assert_eq!(rows(&page, heading), table_rows(schema::node_keys_json(kind)), "{kind}");
    }
    let memory = schema::top_level_json()[1]["default"].as_str().map(ByteSize::parse);
    assert_eq!(memory, Some(Ok(DEFAULT_MEMORY)));
}

#[test]
fn the_help_of_a_plugin_lists_the_keys_of_every_node() {
    let folder = Folder::new();
    let text = |name: &str| run_sluice(&folder, &["plugins", name]).expect(0).text();
    for (plugin, kind) in
        [("demo", PluginKind::Source), ("filter", PluginKind::Stage), ("csv", PluginKind::Sink)]
    {
        let (text, keys) = (text(plugin), schema::node_keys_json(kind));
        assert!(text.contains(&format!("\nkeys of every {kind}\n")), "{text}");
        for key in keys.as_array().unwrap() {
            let (name, doc) = (key["name"].as_str().unwrap(), key["doc"].as_str().unwrap());
            assert!(text.contains(&format!("\n  {name}  (")), "{name}: {text}");
            assert!(text.contains(doc), "{doc}: {text}");
        }
    }
    let codec = text("ice");
    assert!(!codec.contains("keys of"), "{codec}");
    let json = run_sluice(&folder, &["plugins", "demo", "--json"]).expect(0).text();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["keys"], schema::node_keys_json(PluginKind::Source));
}

#[test]
fn a_choice_of_names_has_its_default_in_the_schema() {
    let mut without = Vec::new();
    for plugin in Registry::linked().iter() {
        let schema = Value::from((plugin.schema)());
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, option) in schema["properties"].as_object().into_iter().flatten() {
            let definition = option["$ref"].as_str().and_then(|path| schema.pointer(&path[1..]));
            let form = definition.unwrap_or(option);
            let is_choice = ["enum", "oneOf"].iter().any(|key| form.get(key).is_some());
            let is_optional = !required.contains(&Value::from(name.as_str()));
            if is_choice && is_optional && option.get("default").is_none() {
                without.push(format!("{plugin:?}: {name}"));
            }
        }
    }
    assert!(without.is_empty(), "{without:#?}");
}

#[test]
fn the_help_of_a_plugin_lists_the_keys_inside_its_options() {
    let folder = Folder::new();
    let nested = |plugin: &str, kind: &str| -> Vec<Value> {
        let text = run_sluice(&folder, &["plugins", plugin]).expect(0).text();
        let json = run_sluice(&folder, &["plugins", plugin, "--json"]).expect(0).text();
        let json: Value = serde_json::from_str(&json).unwrap();
        let plugin = json.as_array().unwrap().iter().find(|one| one["kind"] == kind).unwrap();
        let options = plugin["options"].as_array().unwrap();
        let keys = options.iter().filter_map(|option| option["nested"].as_array()).flatten();
        for key in keys.clone() {
            let name = key["name"].as_str().unwrap();
            assert!(text.contains(&format!("\n  {name}  (")), "{name}: {text}");
        }
        keys.cloned().collect()
    };
    let find = |keys: &[Value], name: &str| {
        let found: Vec<_> = keys.iter().filter(|key| key["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name}: {keys:#?}");
        found[0].clone()
    };
    let align = nested("align", "stage");
    let field = find(&align, "fields.*.field");
    assert_eq!(
        (&field["required"], &field["type"]),
        (&true.into(), &"string or list of string".into())
    );
    let angle = find(&align, "fields.*.angle");
    assert_eq!((&angle["required"], &angle["default"]), (&false.into(), &false.into()));
    assert!(angle["doc"].as_str().unwrap().contains("angles in radians"));
    let rename = find(&nested("rename", "stage"), "channels[].from");
    assert_eq!((&rename["required"], &rename["type"]), (&true.into(), &"string".into()));
    let foxglove = nested("foxglove", "stage");
    assert_eq!(find(&foxglove, "map[].pose.at.yaw")["type"], "number or string");
    find(&foxglove, "map[].image.data");
    // A field of a record may have fields.
    let records = nested("records", "source");
    let deepest = records.iter().map(|key| key["name"].as_str().unwrap().len()).max();
    assert!(deepest.unwrap() < 60, "{records:#?}");
    find(&records, "head[].type");
}
