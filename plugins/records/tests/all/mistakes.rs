//! Invalid descriptions are refused before any log is opened, and the error names the key.
use sluice_records::fuzzing::RecordsSource;

const TIME: &str = r#"{ name = "t", type = "u32", role = "time", unit = "ms" }"#;

/// The key at fault, and the message.
fn mistake(text: &str) -> (String, String) {
    let text = format!("path = \"-\"\n{}", text.replace("TIME", TIME));
    let options = serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
    match RecordsSource::new(options) {
        Ok(_) => panic!("no mistake is found in {text}"),
        Err(error) => (error.path.join("."), error.message),
    }
}

/// A description, the key of its mistake, and part of the message.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("", "", "needs the fields"),
    ("fields = [TIME]\nsync = \"\"", "sync", "empty"),
    ("fields = [TIME]\nsync = \"0x5\"", "sync", "not hexadecimal"),
    ("fields = [{ type = \"u128\" }]", "fields.0.type", "unknown variant"),
    ("fields = [TIME, { name = \"a\" }]", "fields.1", "missing field `type`"),
    // A check leaves out what is wrong, and asks again.
    ("fields = [TIME, { name = \"a\" }, { type = \"f3\" }]", "fields.2.type", "unknown variant"),
    (
        "fields = [TIME, { type = \"u8\", bits = { a = \"6-4\" } }]",
        "fields.1.bits.a",
        "invalid value",
    ),
    ("fields = [{ type = \"u8\", sise = 1 }]", "fields.0.sise", "unknown field"),
    ("fields = [TIME, { type = \"text\" }]", "fields.1", "needs a `size`"),
    ("fields = [TIME, { type = \"u8\", size = 4 }]", "fields.1.size", "for a list give `count`"),
    ("fields = [TIME, { type = \"u8\", count = 0 }]", "fields.1.count", "expected from 1"),
    ("fields = [TIME, { type = \"f64\", count = 9000000 }]", "fields.1.count", "max_record"),
    ("fields = [TIME, { type = \"u8\", count = \"n\" }]", "fields.1", "called `n`"),
    (
        "fields = [TIME, { name = \"n\", type = \"i8\" }, { type = \"u8\", count = \"n\" }]",
        "fields.2",
        "cannot declare a size",
    ),
    ("fields = [{ name = \"a\", type = \"u8\" }]", "fields", "its events have no time"),
    ("fields = [{ type = \"u32\", role = \"time\" }]", "fields.0", "needs a `unit`"),
    (
        "fields = [{ type = \"u32\", role = \"time\", unit = \"m/s\" }]",
        "fields.0.unit",
        "not a unit of time",
    ),
    (
        "fields = [{ type = \"u32\", count = 2, role = \"time\", unit = \"s\" }]",
        "fields.0.role",
        "a single number",
    ),
    ("fields = [TIME, { name = \"t\", type = \"u8\" }]", "fields.1.name", "another field"),
    (
        "fields = [TIME, { type = \"bytes\", size = \"rest\" }]",
        "fields",
        "nothing tells where a record ends",
    ),
    (
        "sync = \"x\"\nfields = [TIME, { type = \"bytes\", size = \"rest\" }, { type = \"u8\" }]",
        "fields.2",
        "takes the rest of the record",
    ),
    (
        "fields = [TIME, { type = \"u16\", role = \"length\" }, { type = \"u16\", role = \
         \"length\" }]",
        "fields.2.role",
        "another field already has the role",
    ),
    (
        "fields = [TIME, { type = \"f32\", role = \"length\" }]",
        "fields.1.role",
        "a length must be a single integer",
    ),
    ("fields = [TIME, { type = \"u8\", counts = \"record\" }]", "fields.1.counts", "role `length`"),
    (
        "fields = [TIME, { type = \"u16\", role = \"checksum\" }]",
        "fields.1",
        "needs an `algorithm`",
    ),
    (
        "fields = [TIME, { type = \"u16\", role = \"checksum\", algorithm = \"crc32\" }]",
        "fields.1.algorithm",
        "32 bits",
    ),
    (
        "fields = [TIME, { type = \"u32\", role = \"checksum\", algorithm = \"crc32\", until = \
         \"x\" }]",
        "fields.1.until",
        "called `x`",
    ),
    (
        "fields = [{ type = \"u32\", role = \"checksum\", algorithm = \"crc32\" }, TIME]",
        "fields.0.role",
        "covers nothing",
    ),
    ("fields = [TIME, { type = \"u8\", value = 256 }]", "fields.1.value", "from 0 to 255"),
    (
        "fields = [TIME, { type = \"text\", size = 4, value = \"abc\" }]",
        "fields.1.value",
        "found 3",
    ),
    ("fields = [TIME, { type = \"u8\", bits = { a = 8 } }]", "fields.1.bits.a", "bits 0 to 7"),
    (
        "fields = [TIME, { name = \"x\", type = \"text\", size = 2, scale = 2 }]",
        "fields.1.scale",
        "only numbers",
    ),
    (
        "fields = [TIME, { name = \"x\", type = \"pad\", size = 2 }]",
        "fields.1.name",
        "padding has no name",
    ),
    ("fields = [TIME]\nchannel = \"{x}\"", "channel", "called `x`"),
    ("fields = [TIME]\nchannel = \"{sequence}\"", "channel", "a channel for every event"),
    ("fields = [TIME]\nchannel = \"{t[0]}\"", "channel", "does not have"),
    ("fields = [TIME]\nchannels = { 1 = \"a\" }", "channels", "needs a field with the role"),
    ("fields = [TIME]\nchannels = { a = \"a\" }", "channels.a", "whole number"),
    ("fields = [TIME]\nepoch = \"noon\"", "epoch", "not an epoch"),
    ("fields = [TIME]\nepoch = \"2020\"", "epoch", "not an epoch"),
    ("fields = [TIME]\nepoch = \"+5\"", "epoch", "not an epoch"),
    ("fields = [TIME]\nleap_seconds = 18", "leap_seconds", "gps"),
    ("fields = [TIME]\nmax_record = 3", "fields", "`max_record` is 3"),
    ("fields = [TIME]\nmagic = \"LOG\"\nheader = 2", "header", "fewer than the"),
    ("fields = [TIME]\nother_kinds = \"keep\"", "other_kinds", "needs `kinds`"),
    (
        "fields = [{ type = \"u64\", role = \"time\", unit = \"s\", wraps = true }]",
        "fields.0.wraps",
        "only u8",
    ),
    (
        "fields = [{ type = \"u8\", role = \"time\", unit = \"s\", wraps = 300 }]",
        "fields.0.wraps",
        "to 256",
    ),
    ("head = [TIME]\nkinds = { 1 = {} }", "kinds", "need a field of `head`"),
    (
        "head = [TIME, { type = \"u8\", role = \"kind\" }]\nkinds = { 300 = {} }",
        "kinds.300",
        "from 0 to 255",
    ),
    (
        "head = [TIME, { type = \"u8\", role = \"kind\" }]\nkinds = { 1 = {}, 0x01 = {} }",
        "kinds.1",
        "same value",
    ),
    ("head = [TIME, { type = \"bytes\", size = \"rest\" }]", "head.1", "fixed size"),
    (
        "head = [TIME]\nfields = [{ type = \"u8\", role = \"kind\" }]",
        "fields.0.role",
        "must be in `head`",
    ),
    (
        "head = [TIME, { type = \"text\", size = 2, role = \"kind\" }]\nkinds = { IMU = {} }",
        "kinds.IMU",
        "`IMU` has 3",
    ),
    (
        "head = [TIME, { type = \"u8\", role = \"kind\" }]\nkinds = { 1 = {} }\nother_kinds = \
         \"skip\"",
        "other_kinds",
        "cannot be skipped",
    ),
    (
        "fields = [TIME, { type = \"bool\", value = \"0x01\" }]",
        "fields.1.value",
        "expected true or false",
    ),
    ("fields = [TIME, { type = \"bool\", value = 2 }]", "fields.1.value", "true or false"),
    ("fields = [TIME, { type = \"u8\", value = true }]", "fields.1.value", "only a `bool`"),
    // Follows from a mistake in `head`: not reported as a mistake of the kind.
    ("kinds = { 1 = { fields = [{ type = \"u8\" }] } }", "", "role `kind`"),
    // Follows from a mistake in `kinds`: not reported as a mistake of others.
    (
        "head = [TIME, { type = \"u8\", role = \"kind\" }]\nother_kinds = \"keep\"",
        "",
        "a role `kind` needs `kinds`",
    ),
    (
        "head = [{ type = \"u8\", role = \"kind\" }]\nfields = [TIME]",
        "head.0.role",
        "a role `kind` needs `kinds`",
    ),
    ("fields = [TIME]\nmax_record = \"1GiB\"", "max_record", "256MiB"),
    ("fields = [TIME]\nunknown = 1", "unknown", "unknown field"),
];

#[test]
fn every_mistake_is_reported_with_its_key() {
    for (text, key, part) in MISTAKES {
        let (at, said) = mistake(text);
        assert!(said.contains(part), "{text}: {said}");
        assert_eq!(at, *key, "{text}: {said}");
    }
}

#[test]
fn mistakes_of_other_options_come_before_those_of_fields() {
    let (at, said) = mistake("fields = [{ type = \"text\" }]\nmax_record = 0");
    assert_eq!((&*at, said.contains("also")), ("max_record", false), "{said}");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let (at, said) = mistake("fields = [TIME, { type = \"text\" }, { type = \"u8\", value = -1 }]");
    assert_eq!(at, "fields.1");
    assert!(said.contains("also at `fields.2.value`: expected a number from 0 to 255"), "{said}");
}

#[test]
fn the_schema_says_that_a_field_needs_a_type() {
    let registry = sluice_model::Registry::linked();
    let plugin = registry.get(sluice_model::PluginKind::Source, "records").unwrap();
    let schema = serde_json::Value::from((plugin.schema)());
    assert_eq!(schema["$defs"]["Field"]["required"], serde_json::json!(["type"]));
    assert_eq!(schema["$defs"]["FieldType"]["enum"].as_array().unwrap().len(), 16);
}
