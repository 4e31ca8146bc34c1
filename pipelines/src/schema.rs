//! JSON descriptions of plugins and pipeline files, for editors and scripts.

use serde_json::{Map, Value, json};
use sluice_model::{Plugin, PluginKind, Registry};

use crate::spec::GROUPS;
use crate::spec::reference::{self, FileKey, TOP_LEVEL};
use crate::spec::schema_view::SchemaView;

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

/// The keys at the top level of a pipeline file, in the form of [`plugin_json`]'s options.
pub fn top_level_json() -> Value {
    keys_json(TOP_LEVEL.iter())
}

/// The keys that nodes of a kind have besides their plugin's options, in the same form; empty for
/// kinds that are not nodes.
pub fn node_keys_json(kind: PluginKind) -> Value {
    keys_json(reference::node_keys(kind))
}

fn keys_json<'k>(keys: impl Iterator<Item = &'k FileKey> + Clone) -> Value {
    let schemas = keys.clone().map(|key| (key.name.to_owned(), key.schema()));
    let schema = json!({
        "properties": schemas.collect::<Map<_, _>>(), "required": required(keys.clone()),
    });
    let shape = SchemaView::from_schema(&schema);
    keys.map(|key| option(&shape, key.name)).collect()
}

fn required<'k>(keys: impl Iterator<Item = &'k FileKey>) -> Vec<Value> {
    keys.filter(|key| key.required).map(|key| key.name.into()).collect()
}

/// A plugin: its options with the keys inside them, the other keys of its nodes, its sample and its
/// schema.
pub fn plugin_json(plugin: &Plugin) -> Value {
    let schema = Value::from((plugin.schema)());
    let shape = SchemaView::from_schema(&schema);
    let options: Vec<Value> =
        shape.keys().into_iter().map(|key| option_with_keys(&shape, key)).collect();
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

/// An option with the keys inside its tables, if it has any, as `nested`: each with its whole name,
/// such as `key.sub`, `key[].sub` in a list of tables, and `key.*.sub` in a table of any names.
fn option_with_keys(shape: &SchemaView<'_>, key: &str) -> Value {
    let mut nested = Vec::new();
    add_nested(&shape.property(key), key, &mut Vec::new(), &mut nested);
    let mut option = option(shape, key);
    if !nested.is_empty() {
        option["nested"] = nested.into();
    }
    option
}

/// Adds the keys in a value of this shape. The values that it is in are `outer`: a type that
/// contains itself is listed once.
fn add_nested<'s>(
    shape: &SchemaView<'s>,
    name: &str,
    outer: &mut Vec<SchemaView<'s>>,
    nested: &mut Vec<Value>,
) {
    if shape.is_unknown() || outer.iter().any(|outer| outer.shares_form(shape)) {
        return;
    }
    outer.push(shape.clone());
    for key in shape.keys() {
        let name = format!("{name}.{key}");
        let mut described = option(shape, key);
        described["name"] = name.as_str().into();
        described["required"] = shape.requires_always(key).into();
        nested.push(described);
        add_nested(&shape.property(key), &name, outer, nested);
    }
    add_nested(&shape.other_keys(), &format!("{name}.*"), outer, nested);
    add_nested(&shape.element(), &format!("{name}[]"), outer, nested);
    outer.pop();
}

fn option(shape: &SchemaView<'_>, key: &str) -> Value {
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

/// The name of a plugin node's definition; plugin names are unique within a kind.
fn definition(plugin: &Plugin) -> String {
    format!("{}-{}", plugin.kind(), plugin.name)
}

/// The schema of nodes of a kind. The plugin selects the keys, so that an editor reports the wrong
/// key instead of every plugin that the node is not.
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
    for key in reference::node_keys(kind) {
        properties.insert(key.name.to_owned(), node_key(key));
    }
    let about = format!("The {kind} plugin.");
    let plugin = json!({ "anyOf": [{ "enum": names }, variable()], "description": about });
    properties.insert("plugin".to_owned(), plugin);
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "required": required(reference::node_keys(kind)),
    });
    // An empty `allOf` is not a valid schema.
    if !choices.is_empty() {
        schema["allOf"] = Value::Array(choices);
    }
    schema
}

/// The schema of a node with this plugin: its options and the keys that every node of its kind has.
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
    extend(fields, "required", required(reference::node_keys(plugin.kind())));
    let options = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(options) = options.as_object_mut() {
        let keys = reference::node_keys(plugin.kind());
        options.extend(keys.map(|key| (key.name.to_owned(), node_key(key))));
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

/// The schema of a key that is not an option.
fn node_key(key: &FileKey) -> Value {
    let mut schema = key.schema();
    allow_variable(&Value::Null, &mut schema);
    schema
}

/// Accepted in place of any scalar: a string with a variable in it.
fn variable() -> Value {
    json!({ "type": "string", "pattern": r"\$\{" })
}

/// Allows `"${NAME}"` in place of every value that is not a list or table.
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

/// The same for one value and everything in it.
fn allow_variable(root: &Value, schema: &mut Value) {
    if !schema.is_object() {
        return;
    }
    let shape = SchemaView::from_part(root, schema);
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

/// Redirects references of a schema that becomes part of another one.
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
