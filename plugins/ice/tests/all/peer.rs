//! Records written by Ice's own library: all values are decoded, and the bytes are restored.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use arrow_array::cast::AsArray;
use serde_json::{Map, Value, json};
use sluice_ice::fuzzing::IceCodec;
use sluice_ice::fuzzing::SliceLibrary;
use sluice_ice::fuzzing::type_names;
use sluice_ice::fuzzing::{DeclarationBody, TypeName, TypeRef};
use sluice_kit::TypeFile;
use sluice_kit::json::JsonRows;
use sluice_kit::type_library::TypeId;
use sluice_model::{BatchBuilder, ChannelId, Codec, PayloadType};

/// A Python that has Ice, if there is one.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("SLUICE_ICE_PYTHON").map(PathBuf::from);
    let usual = ["python3", "/usr/bin/python3"].map(PathBuf::from);
    named.into_iter().chain(usual).find(|python| {
        let asked = Command::new(python).args(["-c", "import Ice; Ice.loadSlice"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn read(path: &Path) -> TypeFile {
    TypeFile { path: path.to_owned(), text: std::fs::read_to_string(path).unwrap() }
}

/// Types in the form that the peer reads.
fn described(library: &SliceLibrary, is_known: &dyn Fn(TypeId) -> bool) -> Value {
    let each = library.ids().map(|id| {
        let declared = library.get(id);
        let body = &declared.declaration.body;
        let names = type_names(body).into_iter().zip(&declared.uses);
        let names: Vec<Value> = names.map(|(of, used)| spelled(library, of, *used)).collect();
        let members = |members: &[sluice_ice::fuzzing::SliceMember]| {
            let pairs = members.iter().zip(&names).map(|(member, of)| json!([member.name, of]));
            pairs.collect::<Vec<_>>()
        };
        let shown = match body {
            DeclarationBody::Struct(own) => json!({ "kind": "struct", "members": members(own) }),
            DeclarationBody::Class { base, members: own } => {
                let base = base.as_ref().and(names.last());
                let is_known = is_known(id);
                let members = members(own);
                json!({ "kind": "class", "base": base, "members": members, "is_known": is_known })
            }
            DeclarationBody::Sequence(_) => json!({ "kind": "sequence", "of": names[0] }),
            DeclarationBody::Dictionary { .. } => {
                json!({ "kind": "dictionary", "key": names[0], "value": names[1] })
            }
            DeclarationBody::Enum(values) => {
                let values: Vec<i32> = values.iter().map(|(_, value)| *value).collect();
                json!({ "kind": "enum", "values": values })
            }
            DeclarationBody::Undecoded(what) => json!({ "kind": what }),
        };
        (library.name(id).to_owned(), shown)
    });
    Value::Object(each.collect())
}

fn spelled(library: &SliceLibrary, of: &TypeName, used: Option<TypeId>) -> Value {
    match (&of.target, used) {
        (TypeRef::Builtin(builtin), _) => builtin.name().into(),
        (_, Some(used)) => library.name(used).into(),
        _ => Value::Null,
    }
}

/// Whether records of a type may refer to instances, which they then list at their end.
fn has_list(library: &SliceLibrary, id: TypeId) -> bool {
    let declared = library.get(id);
    matches!(declared.declaration.body, DeclarationBody::Class { .. })
        || declared.uses.iter().flatten().any(|used| has_list(library, *used))
}

/// What the peer writes for each struct and class in `files`.
fn written(python: &Path, files: &[PathBuf], known: &[PathBuf], count: usize) -> Vec<Value> {
    let library = SliceLibrary::from_files(files.iter().map(|path| read(path)).collect());
    assert!(library.mistakes().is_empty(), "{}", library.mistakes().join("\n"));
    let is_top = |id: &TypeId| {
        matches!(
            library.get(*id).declaration.body,
            DeclarationBody::Struct(_) | DeclarationBody::Class { .. }
        )
    };
    let tops: Vec<TypeId> = library.ids().filter(is_top).collect();
    let is_known = |id: TypeId| known.iter().any(|path| path == library.file_of(id));
    let asked = json!({
        "files": files,
        "folder": files[0].parent(),
        "types": described(&library, &is_known),
        "tops": tops.iter().map(|id| library.name(*id)).collect::<Vec<_>>(),
        "has_list": tops.iter().map(|id| has_list(&library, *id)).collect::<Vec<_>>(),
        "count": count,
        "seed": 7,
    });
    let mut peer = Command::new(python)
        .arg(folder().join("peer.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    peer.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let done = peer.wait_with_output().unwrap();
    assert!(done.status.success());
    let lines = String::from_utf8(done.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

/// Whether columns have the values that the peer wrote; columns unknown to it are empty.
fn is_same(found: &Value, put: &Value) -> bool {
    match (found, put) {
        (Value::Object(found), Value::Object(put)) => is_same_struct(found, put),
        (Value::Array(found), Value::Array(put)) => {
            found.len() == put.len() && found.iter().zip(put).all(|(a, b)| is_same(a, b))
        }
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::String(a), Value::String(b)) => {
            a == b || String::from_utf8_lossy(&sluice_io::escape::unescaped(a)) == *b
        }
        _ => found == put,
    }
}

fn is_same_struct(found: &Map<String, Value>, put: &Map<String, Value>) -> bool {
    let ours = |name: &str| matches!(name, "sliced" | "order" | "references" | "class");
    let put_is_found = put.iter().all(|(name, put)| match name.as_str() {
        "@class" => found.get("class").is_none_or(|class| class == put),
        name => found.get(name).is_some_and(|found| is_same(found, put)),
    });
    put_is_found
        && found.iter().all(|(name, found)| ours(name) || put.contains_key(name) || found.is_null())
}

/// Decodes a record, compares it with the written values, and encodes it again.
fn check(codec: &IceCodec, name: &str, line: &Value) {
    let record = bytes(line["record"].as_str().unwrap());
    let known = codec.types().iter().find(|known| *known.message_type.name == *name).unwrap();
    let payload_type =
        known.payload_type.as_ref().unwrap_or_else(|reason| panic!("{name}: {reason}"));
    let mut batch = BatchBuilder::default();
    batch.push_copy(0, 0, ChannelId(0), &record);
    let mut bad = Vec::new();
    let rows = payload_type.decode(&batch.finish(), &[0], &mut bad).unwrap();
    assert!(bad.is_empty(), "{name}: {bad:?}: {line}");
    let mut cell = Vec::new();
    JsonRows::new(&rows.columns).unwrap().write(0, &mut cell);
    let found: Value = serde_json::from_slice(&cell).unwrap();
    assert!(is_same(&found, &line["value"]), "{name}\nfound {found}\nput   {}", line["value"]);
    let again = payload_type.encode(&rows.columns, &mut bad).unwrap();
    assert!(bad.is_empty() && again.value(0) == record, "{name}: {line}");
    assert_adopted(codec, payload_type, &rows.columns, &record);
    let mut cut = BatchBuilder::default();
    let ends = record.len().min(400) as u32;
    for end in 0..ends {
        cut.push_copy(0, i64::from(end), ChannelId(0), &record[..end as usize]);
    }
    let events: Vec<u32> = (0..ends).collect();
    assert!(payload_type.decode(&cut.finish(), &events, &mut bad).unwrap().events.is_empty());
}

/// Whether a record has an instance with several references.
fn has_shared(codec: &IceCodec, line: &Value) -> bool {
    let name = dotted(line["type"].as_str().unwrap());
    let known = codec.types().iter().find(|known| *known.message_type.name == *name).unwrap();
    let mut batch = BatchBuilder::default();
    batch.push_copy(0, 0, ChannelId(0), &bytes(line["record"].as_str().unwrap()));
    let payload_type = known.payload_type.as_ref().unwrap();
    let rows = payload_type.decode(&batch.finish(), &[0], &mut Vec::new()).unwrap();
    let references = rows.columns.column_by_name("references");
    references.is_some_and(|ids| ids.as_list::<i32>().value_length(0) > 0)
}

/// Asserts that the description of a type suffices to restore the record.
fn assert_adopted(
    codec: &IceCodec,
    payload_type: &PayloadType,
    columns: &arrow_array::RecordBatch,
    record: &[u8],
) {
    let adopted = codec.adopt(payload_type.message_type(), payload_type.schema()).unwrap();
    assert_eq!(adopted.schema(), payload_type.schema());
    assert_eq!(adopted.encode(columns, &mut Vec::new()).unwrap().value(0), record);
}

fn dotted(name: &str) -> String {
    name.trim_start_matches("::").replace("::", ".")
}

const SKIPPED: &str =
    "skipped: no Python with Ice is there; install python3-zeroc-ice and zeroc-ice-slice";

#[test]
fn everything_that_ice_writes_is_decoded_and_restored() {
    let Some(python) = python() else { return println!("{SKIPPED}") };
    let files = [folder().join("types/everything.ice")];
    let codec = IceCodec::from_files(vec![read(&files[0])]);
    let lines = written(&python, &files, &files, 40);
    assert_eq!(lines.len(), 11 * 40);
    for line in &lines {
        check(&codec, &dotted(line["type"].as_str().unwrap()), line);
    }
    // Some have an instance with several references.
    let shared = lines.iter().filter(|line| has_shared(&codec, line)).count();
    assert!(shared > 10, "{shared}");
}

#[test]
fn data_known_only_to_the_writer_is_restored() {
    let Some(python) = python() else { return println!("{SKIPPED}") };
    let everything = folder().join("types/everything.ice");
    let extra = folder().join("types/extra.ice");
    let codec = IceCodec::from_files(vec![read(&everything)]);
    let mut seen = 0;
    for line in written(&python, &[everything.clone(), extra], &[everything], 40) {
        let known = match line["type"].as_str().unwrap() {
            // A class inside an undeclared slice cannot be found.
            "::m::Odd" | "::m::Odder" => "m.Named".to_owned(),
            "::m::Wild" => "m.Wood".to_owned(),
            other => dotted(other),
        };
        check(&codec, &known, &line);
        seen += 1;
    }
    assert_eq!(seen, 14 * 40);
}

#[test]
fn the_types_of_orca_agree_with_ice() {
    let Some(python) = python() else { return println!("{SKIPPED}") };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../orca/types");
    for dialect in ["a-2006-08", "b-2006-12", "c-2007-2010"] {
        let common = folder.join(dialect).join("common.ice");
        let entries = std::fs::read_dir(folder.join(dialect)).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files.into_iter().filter(|file| *file != common) {
            let both = [common.clone(), file];
            let codec = IceCodec::from_files(both.iter().map(|path| read(path)).collect());
            for line in written(&python, &both, &both, 4) {
                check(&codec, &dotted(line["type"].as_str().unwrap()), &line);
            }
        }
    }
}
