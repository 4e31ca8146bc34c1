//! Plugins and pipeline files described as JSON: for editors, and for programs that ask what there is.

use serde_json::{Map, Value, json};
use sluice_core::options::PATH_FORMAT;
use sluice_core::{Kind, Plugin, Registry};

use crate::spec::GROUPS;
use crate::spec::shape::Shape;

/// The JSON Schema (draft 2020-12) of pipeline files that use these plugins.
pub fn json_schema(registry: &Registry) -> Value {
    let mut definitions = Map::new();
    let mut properties = top_level();
    for (group, kind) in GROUPS {
        let plugins = || registry.iter().filter(move |plugin| plugin.kind() == kind);
        definitions.extend(plugins().map(|plugin| (definition(plugin), node(plugin))));
        definitions.insert(kind.to_string(), any_of_kind(kind, plugins()));
        properties.insert(group.to_owned(), group_of(kind));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice pipeline",
        "type": "object",
        "properties": properties,
        "required": ["sources", "sinks"],
        "additionalProperties": false,
        "$defs": definitions,
    })
}

/// A plugin with its options, its sample and the schema of its options.
pub fn plugin_json(plugin: &Plugin) -> Value {
    let schema = Value::from((plugin.schema)());
    let shape = Shape::of(&schema);
    let options: Vec<Value> = shape.keys().into_iter().map(|key| option(&shape, key)).collect();
    json!({
        "name": plugin.name,
        "kind": plugin.kind().to_string(),
        "about": plugin.about,
        "options": options,
        "runs_programs": plugin.program.is_some(),
        "sample": plugin.sample,
        "schema": schema,
    })
}

fn option(shape: &Shape<'_>, key: &str) -> Value {
    let described = shape.described(key);
    let note = |name: &str| described.and_then(|schema| schema.get(name)).cloned();
    json!({
        "name": key,
        "type": shape.property(key).words(),
        "default": note("default"),
        "required": shape.required().contains(&key),
        "doc": note("description"),
    })
}

fn top_level() -> Map<String, Value> {
    let name = json!({ "type": "string", "description": "what the pipeline is called" });
    let memory = json!({
        "type": ["string", "integer"],
        "description": "how much memory a run may use, such as \"512MiB\"",
    });
    Map::from_iter([("name".to_owned(), name), ("memory".to_owned(), memory)])
}

fn group_of(kind: Kind) -> Value {
    json!({
        "type": "object",
        "description": format!("the {kind}s, by names of your choice"),
        "propertyNames": { "pattern": "^[A-Za-z0-9_-]+$" },
        "additionalProperties": { "$ref": format!("#/$defs/{kind}") },
    })
}

/// Names the definitions of a plugin's node; the names of plugins are unique within a kind.
fn definition(plugin: &Plugin) -> String {
    format!("{}-{}", plugin.kind(), plugin.name)
}

fn any_of_kind<'p>(kind: Kind, plugins: impl Iterator<Item = &'p Plugin>) -> Value {
    let (mut names, mut nodes) = (Vec::new(), Vec::new());
    for plugin in plugins {
        names.push(plugin.name);
        nodes.push(json!({ "$ref": format!("#/$defs/{}", definition(plugin)) }));
    }
    let plugin = json!({ "enum": names, "description": format!("the {kind} plugin") });
    let mut schema = json!({
        "type": "object", "properties": { "plugin": plugin }, "required": ["plugin"],
    });
    // An empty `oneOf` is no schema.
    if !nodes.is_empty() {
        schema["oneOf"] = Value::Array(nodes);
    }
    schema
}

/// The schema of a node with this plugin: its options, and the keys that every node of its kind has.
fn node(plugin: &Plugin) -> Value {
    let mut schema = Value::from((plugin.schema)());
    move_references(&mut schema, &format!("#/$defs/{}", definition(plugin)));
    let Some(fields) = schema.as_object_mut() else { return schema };
    fields.shift_remove("$schema");
    fields.insert("title".to_owned(), plugin.name.into());
    if !plugin.about.is_empty() {
        fields.insert("description".to_owned(), plugin.about.into());
    }
    let own = own_keys(plugin);
    let required: Vec<Value> = match plugin.kind() {
        Kind::Source => vec!["plugin".into()],
        _ => vec!["plugin".into(), "from".into()],
    };
    extend(fields, "required", required);
    let options = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(options) = options.as_object_mut() {
        options.values_mut().for_each(allow_variable);
        options.extend(own);
    }
    schema
}

fn extend(fields: &mut Map<String, Value>, list: &str, more: Vec<Value>) {
    if let Some(list) = fields.entry(list).or_insert_with(|| json!([])).as_array_mut() {
        list.extend(more);
    }
}

fn own_keys(plugin: &Plugin) -> Map<String, Value> {
    let mut keys = Map::new();
    keys.insert("plugin".to_owned(), json!({ "const": plugin.name, "description": plugin.about }));
    let when = json!({
        "type": "string",
        "description": "the node is there only if this holds, such as \"${FORMAT:-table} == text\": \
                        two words with == or !=, and `or` between several of these",
    });
    keys.insert("when".to_owned(), when);
    if plugin.kind() == Kind::Source {
        keys.insert("on_damage".to_owned(), json!({
            "enum": ["skip", "stop", "quarantine"], "default": "skip",
            "description": "what to do about input that cannot be read: report it and go on, stop, \
                            or also write its bytes to a file",
        }));
        keys.insert(
            "quarantine".to_owned(),
            json!({
                "type": "string", "format": PATH_FORMAT,
                "description": "the file for damaged bytes, with `on_damage = \"quarantine\"`",
            }),
        );
    } else {
        let names = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
        keys.insert(
            "from".to_owned(),
            json!({
                "anyOf": [{ "type": "string" }, names],
                "description": "the source or stage to read from, or a list of them",
            }),
        );
    }
    keys
}

/// Files may say `"${NAME}"` where an option is a number or a boolean.
fn allow_variable(schema: &mut Value) {
    let types = schema.get("type").map(|types| match types {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    });
    let plain = types.is_some_and(|types| {
        types
            .iter()
            .all(|name| matches!(name.as_str(), Some("integer" | "number" | "boolean" | "null")))
    });
    if plain {
        let variable = json!({ "type": "string", "pattern": r"^\$\{[^}]*\}$" });
        let described: Vec<_> = ["description", "default"]
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), schema.as_object_mut()?.shift_remove(key)?)))
            .collect();
        *schema = json!({ "anyOf": [schema.take(), variable] });
        schema.as_object_mut().into_iter().for_each(|fields| fields.extend(described.clone()));
    }
}

/// A schema that becomes part of another one refers to its definitions by another way.
fn move_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| match value {
            Value::String(target) if key == "$ref" => {
                if let Some(rest) = target.strip_prefix('#') {
                    *target = format!("{place}{rest}");
                }
            }
            other => move_references(other, place),
        }),
        Value::Array(list) => list.iter_mut().for_each(|value| move_references(value, place)),
        _ => {}
    }
}
