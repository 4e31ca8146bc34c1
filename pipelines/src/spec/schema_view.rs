//! A view of a JSON Schema for one value: just enough to read options and to describe them.

use serde_json::Value;
use sluice_model::options::{PATH_FORMAT, TYPES_FORMAT};

/// Deeper than option schemas nest; ends the walk through recursive types.
const DEEPEST: usize = 16;
/// What excludes some strings, and so perhaps one with a variable.
const NARROWING: [&str; 4] = ["enum", "const", "pattern", "maxLength"];

/// The alternatives of a value, with references followed. Empty if nothing is known.
#[derive(Clone, Debug)]
pub(crate) struct SchemaView<'s> {
    root: &'s Value,
    forms: Vec<&'s Value>,
}

impl<'s> SchemaView<'s> {
    /// The view of a whole schema.
    pub(crate) fn from_schema(root: &'s Value) -> Self {
        Self::new(root, [root])
    }

    /// The view of one part of a schema.
    pub(crate) fn from_part(root: &'s Value, part: &'s Value) -> Self {
        Self::new(root, [part])
    }

    /// The view of an unknown value.
    pub(crate) fn unknown() -> Self {
        Self { root: &Value::Null, forms: Vec::new() }
    }

    fn new(root: &'s Value, nodes: impl IntoIterator<Item = &'s Value>) -> Self {
        let mut forms = Vec::new();
        for node in nodes {
            collect(root, node, DEEPEST, &mut forms);
        }
        Self { root, forms }
    }

    /// The value of a key.
    pub(crate) fn property(&self, key: &str) -> Self {
        let named = |form: &&'s Value| {
            let named = form.get("properties").and_then(|all| all.get(key));
            named.or_else(|| form.get("additionalProperties"))
        };
        Self::new(self.root, self.forms.iter().filter_map(named).collect::<Vec<_>>())
    }

    /// The values of keys that the schema does not name.
    pub(crate) fn other_keys(&self) -> Self {
        let others = |form: &&'s Value| form.get("additionalProperties");
        Self::new(self.root, self.forms.iter().filter_map(others).collect::<Vec<_>>())
    }

    /// The elements of a list.
    pub(crate) fn element(&self) -> Self {
        let items = |form: &&'s Value| form.get("items");
        Self::new(self.root, self.forms.iter().filter_map(items).collect::<Vec<_>>())
    }

    /// The names of all keys, in the order of the schema.
    pub(crate) fn keys(&self) -> Vec<&'s str> {
        let properties = self.forms.iter().filter_map(|form| form.get("properties")?.as_object());
        let mut keys = Vec::new();
        for key in properties.flat_map(|all| all.keys()).map(String::as_str) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// The schema of a key, with its description and default.
    pub(crate) fn described(&self, key: &str) -> Option<&'s Value> {
        self.forms.iter().find_map(|form| form.get("properties")?.get(key))
    }

    /// The required keys.
    pub(crate) fn required(&self) -> Vec<&'s str> {
        let lists = self.forms.iter().filter_map(|form| form.get("required")?.as_array());
        lists.flatten().filter_map(Value::as_str).collect()
    }

    /// Whether each of its tables requires this key.
    pub(crate) fn requires_always(&self, key: &str) -> bool {
        let requires = |form: &&'s Value| {
            let required = form.get("required").and_then(Value::as_array);
            required.is_some_and(|all| all.iter().any(|name| name == key))
        };
        let mut tables = self.forms.iter().filter(|form| form.get("properties").is_some());
        tables.all(requires)
    }

    /// Whether one of its alternatives is also one of `other`.
    pub(crate) fn shares_form(&self, other: &Self) -> bool {
        self.forms.iter().any(|form| other.forms.iter().any(|other| std::ptr::eq(*form, *other)))
    }

    /// Whether nothing is known of it.
    pub(crate) fn is_unknown(&self) -> bool {
        self.forms.is_empty()
    }

    /// Whether keys that the schema does not name are allowed.
    pub(crate) fn takes_any_key(&self) -> bool {
        let extra = self.forms.iter().filter_map(|form| form.get("additionalProperties"));
        extra.into_iter().any(|extra| extra.is_object() || *extra == Value::Bool(true))
    }

    /// Whether it is a path.
    pub(crate) fn is_path(&self) -> bool {
        self.is_format(PATH_FORMAT)
    }

    /// Whether it names types, by a path or in another way.
    pub(crate) fn is_types(&self) -> bool {
        self.is_format(TYPES_FORMAT)
    }

    /// Whether this text is one of its words, and so no path.
    pub(crate) fn is_word(&self, text: &str) -> bool {
        self.forms.iter().any(|form| form.get("const").is_some_and(|word| word == text))
    }

    /// Whether its keys are of this format.
    pub(crate) fn keys_are(&self, format: &str) -> bool {
        let mut keys =
            self.forms.iter().filter_map(|form| form.get("propertyNames")?.get("format"));
        keys.any(|found| found == format)
    }

    /// Whether it is of this format.
    pub(crate) fn is_format(&self, format: &str) -> bool {
        self.forms.iter().any(|form| form.get("format").is_some_and(|f| f == format))
    }

    /// Whether it may be a string, as far as is known.
    pub(crate) fn takes_text(&self) -> bool {
        let types = self.types();
        types.is_empty() || types.contains(&"string")
    }

    /// Whether it is a table, as far as is known, and no list.
    pub(crate) fn is_table(&self) -> bool {
        let types = self.types();
        types.contains(&"object") && !types.contains(&"array")
    }

    /// Whether any string will do.
    pub(crate) fn takes_any_text(&self) -> bool {
        let narrows = |form: &Value| NARROWING.iter().any(|key| form.get(key).is_some());
        let is_text = |form: &Value| types_of(form).any(|name| name == "string");
        self.forms.iter().any(|form| is_text(form) && !narrows(form))
    }

    /// Whether it is only lists and tables, or unknown.
    pub(crate) fn is_nested(&self) -> bool {
        self.forms
            .iter()
            .flat_map(|form| types_of(form))
            .all(|name| matches!(name, "array" | "object"))
            && !self.forms.iter().any(|form| form.get("enum").is_some())
    }

    /// `text` as the number or boolean that the schema accepts, if it is one.
    pub(crate) fn parse(&self, text: &str) -> Option<Value> {
        let (types, text) = (self.types(), text.trim());
        let takes = |name: &str| types.contains(&name);
        let whole = || {
            text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from))
        };
        let whole = (takes("integer") || takes("number")).then(whole).and_then(Result::ok);
        let float = || text.parse::<f64>().ok().filter(|float| float.is_finite()).map(Value::from);
        let boolean = || text.parse::<bool>().ok().filter(|_| takes("boolean")).map(Value::from);
        whole.or_else(|| takes("number").then(float).flatten()).or_else(boolean)
    }

    /// The type in a few words: `string`, `list of path`, `"zstd" or "none"`.
    pub(crate) fn words(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        for word in self.forms.iter().flat_map(|form| self.form_words(form)) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        if words.is_empty() { "any value".to_owned() } else { words.join(" or ") }
    }

    fn form_words(&self, form: &'s Value) -> Vec<String> {
        let constants = form.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        let constant = form.get("const").map(std::slice::from_ref);
        if let Some(constants) = constants.or(constant) {
            return constants.iter().filter(|c| !c.is_null()).map(Value::to_string).collect();
        }
        let types = types_of(form).filter(|name| *name != "null");
        types.map(|name| self.type_words(name)).collect()
    }

    fn type_words(&self, name: &str) -> String {
        match name {
            "string" if self.is_path() => "path".to_owned(),
            "array" => format!("list of {}", self.element().words()),
            "object" => "table".to_owned(),
            other => other.to_owned(),
        }
    }

    fn types(&self) -> Vec<&'s str> {
        self.forms.iter().flat_map(|form| types_of(form)).collect()
    }
}

/// The types of an alternative, or of its constants.
fn types_of(form: &Value) -> impl Iterator<Item = &str> {
    let named: Vec<&str> = match form.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ if form.get("const").is_some_and(Value::is_string) => vec!["string"],
        _ => Vec::new(),
    };
    named.into_iter()
}

fn collect<'s>(root: &'s Value, node: &'s Value, depth: usize, forms: &mut Vec<&'s Value>) {
    let Some(below) = depth.checked_sub(1) else { return };
    let referred = node.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
    if let Some(referred) = referred.and_then(|pointer| root.pointer(pointer)) {
        collect(root, referred, below, forms);
    }
    for alternatives in ["anyOf", "oneOf", "allOf"] {
        let listed = node.get(alternatives).and_then(Value::as_array);
        listed.into_iter().flatten().for_each(|node| collect(root, node, below, forms));
    }
    if node.is_object() {
        forms.push(node);
    }
}
