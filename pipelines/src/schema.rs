//! Plugins and pipeline files described as JSON: for editors, and for programs that ask what there is.

use serde_json::{Map, Value, json};
use sluice_core::{Plugin, PluginKind, Registry};

use crate::spec::GROUPS;
use crate::spec::reference::{self, FileKey, TOP_LEVEL};
use crate::spec::shape::Shape;

/// The JSON Schema (draft 2020-12) of pipeline files that use these plugins.
pub fn json_schema(registry: &Registry) -> Value {
    let mut definitions = Map::new();
    for (_, kind) in GROUPS {
        let plugins = || registry.iter().filter(move |plugin| plugin.kind() == kind);
        definitions.extend(plugins().map(|plugin| (definition(plugin), node(plugin))));
        definitions.insert(kind.to_string(), any_of_kind(kind, plugins()));
    }
    let schemas = TOP_LEVEL.iter().map(|key| (key.name.to_owned(), key.schema()));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice pipeline",
        "type": "object",
        "properties": schemas.collect::<Map<_, _>>(),
        "required": required(TOP_LEVEL.iter()),
        "additionalProperties": false,
        "$defs": definitions,
    })
}

/// The keys at the top level of a pipeline file, described as options are in [`plugin_json`].
pub fn top_level_json() -> Value {
    keys_json(TOP_LEVEL.iter())
}

/// The keys that nodes of a kind have beside their plugin's options, described as these are in [`plugin_json`];
/// none for kinds that are no nodes.
pub fn node_keys_json(kind: PluginKind) -> Value {
    keys_json(reference::of_nodes(kind))
}

fn keys_json<'k>(keys: impl Iterator<Item = &'k FileKey> + Clone) -> Value {
    let schemas = keys.clone().map(|key| (key.name.to_owned(), key.schema()));
    let schema = json!({
        "properties": schemas.collect::<Map<_, _>>(), "required": required(keys.clone()),
    });
    let shape = Shape::of(&schema);
    keys.map(|key| option(&shape, key.name)).collect()
}

fn required<'k>(keys: impl Iterator<Item = &'k FileKey>) -> Vec<Value> {
    keys.filter(|key| key.required).map(|key| key.name.into()).collect()
}

/// A plugin with its options, the keys that its nodes have beside them, its sample and the schema of its options.
pub fn plugin_json(plugin: &Plugin) -> Value {
    let schema = Value::from((plugin.schema)());
    let shape = Shape::of(&schema);
    let options: Vec<Value> = shape.keys().into_iter().map(|key| option(&shape, key)).collect();
    json!({
        "name": plugin.name,
        "kind": plugin.kind().to_string(),
        "about": plugin.about,
        "options": options,
        "keys": node_keys_json(plugin.kind()),
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

/// Names the definitions of a plugin's node; the names of plugins are unique within a kind.
fn definition(plugin: &Plugin) -> String {
    format!("{}-{}", plugin.kind(), plugin.name)
}

/// What a node of a kind may be. Which keys it has follows from its plugin, so that an editor names the key that
/// is wrong instead of every plugin that the node is not.
fn any_of_kind<'p>(kind: PluginKind, plugins: impl Iterator<Item = &'p Plugin>) -> Value {
    let (mut names, mut choices) = (Vec::new(), Vec::new());
    for plugin in plugins {
        names.push(plugin.name);
        let name = json!({ "plugin": { "const": plugin.name } });
        let is_it = json!({ "properties": name, "required": ["plugin"] });
        let node = json!({ "$ref": format!("#/$defs/{}", definition(plugin)) });
        choices.push(json!({ "if": is_it, "then": node }));
    }
    let mut properties = Map::new();
    for key in reference::of_nodes(kind) {
        properties.insert(key.name.to_owned(), key.schema());
    }
    let about = format!("The {kind} plugin.");
    let plugin = json!({ "anyOf": [{ "enum": names }, variable()], "description": about });
    properties.insert("plugin".to_owned(), plugin);
    let mut schema = json!({
        "type": "object", "properties": properties, "required": required(reference::of_nodes(kind)),
    });
    // An empty `allOf` is no schema.
    if !choices.is_empty() {
        schema["allOf"] = Value::Array(choices);
    }
    schema
}

/// The schema of a node with this plugin: its options, and the keys that every node of its kind has.
fn node(plugin: &Plugin) -> Value {
    let mut schema = Value::from((plugin.schema)());
    let root = schema.clone();
    allow_variables(&root, &mut schema);
    move_references(&mut schema, &format!("#/$defs/{}", definition(plugin)));
    let Some(fields) = schema.as_object_mut() else { return schema };
    fields.shift_remove("$schema");
    fields.insert("title".to_owned(), plugin.name.into());
    if !plugin.about.is_empty() {
        fields.insert("description".to_owned(), plugin.about.into());
    }
    extend(fields, "required", required(reference::of_nodes(plugin.kind())));
    let options = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(options) = options.as_object_mut() {
        let keys = reference::of_nodes(plugin.kind());
        options.extend(keys.map(|key| (key.name.to_owned(), key.schema())));
        let name = json!({ "const": plugin.name, "description": plugin.about });
        options.insert("plugin".to_owned(), name);
    }
    schema
}

fn extend(fields: &mut Map<String, Value>, list: &str, more: Vec<Value>) {
    if let Some(list) = fields.entry(list).or_insert_with(|| json!([])).as_array_mut() {
        list.extend(more);
    }
}

/// What may stand in place of a value: text with a variable in it.
fn variable() -> Value {
    json!({ "type": "string", "pattern": r"\$\{" })
}

/// Files may say `"${NAME}"` wherever a value is no list and no table, also where that is no string.
fn allow_variables(root: &Value, schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for (key, below) in fields.iter_mut() {
        match (key.as_str(), below) {
            ("properties", Value::Object(all)) => {
                all.values_mut().for_each(|value| allow_variable(root, value));
            }
            ("items" | "additionalProperties", value) => allow_variable(root, value),
            ("prefixItems", Value::Array(all)) => {
                all.iter_mut().for_each(|value| allow_variable(root, value));
            }
            ("anyOf" | "oneOf" | "allOf", Value::Array(all)) => {
                all.iter_mut().for_each(|form| allow_variables(root, form));
            }
            ("$defs", Value::Object(all)) => {
                all.values_mut().for_each(|form| allow_variables(root, form));
            }
            _ => {}
        }
    }
}

/// The same for one value, and for what is in it.
fn allow_variable(root: &Value, schema: &mut Value) {
    if !schema.is_object() {
        return;
    }
    let shape = Shape::part(root, schema);
    let fits = shape.takes_any_text() || shape.is_nested();
    allow_variables(root, schema);
    if fits {
        return;
    }
    let described = ["description", "default"]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), schema.as_object_mut()?.shift_remove(key)?)));
    let described: Vec<_> = described.collect();
    *schema = json!({ "anyOf": [schema.take(), variable()] });
    schema.as_object_mut().into_iter().for_each(|fields| fields.extend(described.clone()));
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
