//! Folders of files: their content, their names, and the notes about events without a file.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_files as _;
use sluice_io::output::faults::FaultInjector;
use sluice_io::tasks::TaskPool;
use sluice_model::{
    Batch, BatchBuilder, BlockPool, Channel, Channels, DynSink, Encoding, Error, MessageType, Name,
    OptionsError, Outputs, Overwrite, Payloads, PrepareContext, Registry, Rows, SinkContext,
    TypeKey, Written,
};

/// 2007-11-03T14:00:00Z
const BEGIN: i64 = 1_194_098_400_000_000_000;

/// An event: channel, payload, and if decoded its time, image and label.
#[derive(Clone, Debug)]
struct FileEvent(&'static str, Vec<u8>, Option<(i64, Option<Vec<u8>>, String)>);

fn raw(channel: &'static str, payload: &[u8]) -> FileEvent {
    FileEvent(channel, payload.to_vec(), None)
}

fn image(channel: &'static str, utime: i64, image: &[u8]) -> FileEvent {
    FileEvent(channel, b"raw".to_vec(), Some((utime, Some(image.to_vec()), "label".to_owned())))
}

fn batch(events: &[FileEvent], first: usize, channels: &Channels) -> Batch {
    let (mut builder, mut decoded) = (BatchBuilder::default(), Vec::new());
    for (n, FileEvent(channel, payload, fields)) in events.iter().enumerate() {
        let channel = Channel::new(Name::from_text(channel), "log", Encoding::Lcm);
        let (id, number) = (channels.intern(channel).unwrap(), (first + n) as i64);
        builder.push_copy(BEGIN + number, number, id, payload);
        decoded.extend(fields.as_ref().map(|fields| (n as u32, fields)));
    }
    if decoded.is_empty() {
        return builder.finish();
    }
    let utimes = decoded.iter().map(|(_, fields)| fields.0).collect::<Vec<_>>();
    let images = decoded.iter().map(|(_, fields)| fields.1.as_deref()).collect::<Vec<_>>();
    let labels = decoded.iter().map(|(_, fields)| &*fields.2).collect::<Vec<_>>();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("utime", Arc::new(Int64Array::from(utimes))),
        ("image", Arc::new(BinaryArray::from(images))),
        ("label", Arc::new(StringArray::from(labels))),
    ];
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    let rows = Rows {
        message: MessageType::named("image_t", TypeKey(7)).into(),
        payloads: Payloads::Kept,
        events: decoded.iter().map(|(event, _)| *event).collect(),
        columns: RecordBatch::try_from_iter_with_nullable(columns).unwrap(),
    };
    builder.finish().with_rows(vec![rows])
}

fn make(options: Value) -> Result<DynSink, OptionsError> {
    Registry::linked().sink("files", options)
}

/// The result of writing events.
#[derive(Debug, Default, PartialEq)]
struct FilesOutcome {
    written: u64,
    left_out: usize,
    refused: Vec<String>,
    notes: Vec<(String, u64)>,
}

fn run(
    path: &Path,
    events: &[FileEvent],
    more: Value,
    cut: usize,
    width: usize,
) -> Result<FilesOutcome, Error> {
    run_with(Outputs::new(Overwrite::Replace, true, &[]), path, events, more, (cut, width))
}

fn run_with(
    outputs: Outputs,
    path: &Path,
    events: &[FileEvent],
    more: Value,
    (cut, width): (usize, usize),
) -> Result<FilesOutcome, Error> {
    let outputs = Arc::new(outputs);
    let context = SinkContext { outputs, ..SinkContext::standalone() };
    let mut options = json!({ "path": format!("{}/", path.display()) });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (sink, buffers) = (make(options).unwrap(), BlockPool::new(64, 2));
    let mut output = sink.open(&context, &TaskPool::thread_per_task(width))?;
    let (mut outcome, mut written, mut first) = (FilesOutcome::default(), Written::default(), 0);
    for some in events.chunks(cut.max(1)) {
        let mut encoding = PrepareContext::new(&context.channels, &buffers);
        let block = sink.prepare(batch(some, first, &context.channels), &mut encoding)?;
        outcome.refused.extend(encoding.report.refused.into_iter().map(|(_, why)| why));
        written.add(output.push(block)?);
        first += some.len();
    }
    written.add(output.finish()?);
    (outcome.written, outcome.left_out) = (written.events, written.skipped.len());
    outcome.notes = written.notes;
    context.outputs.publish(|_, files| Ok(format!("{} files", files.len())))?;
    Ok(outcome)
}

fn write(path: &Path, events: &[FileEvent], more: Value) -> FilesOutcome {
    run(path, events, more, events.len(), 1).unwrap()
}

/// Every file below a folder, by its path there.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let inner = files(&path).into_iter();
            found.extend(inner.map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A small picture.
fn picture() -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut bytes, 50);
    encoder.encode(&[90; 8 * 8], 8, 8, jpeg_encoder::ColorType::Luma).unwrap();
    bytes
}

#[test]
fn payloads_become_files_with_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = write(folder.path(), &[raw("A", b"one"), raw("B/x", b"two")], json!({}));
    assert_eq!(outcome, FilesOutcome { written: 2, ..FilesOutcome::default() });
    let found = files(folder.path());
    let names: Vec<&String> = found.keys().collect();
    assert_eq!(names, ["A-0.bin", "B%2Fx-1.bin", "_manifest.json", "index.csv"]);
    assert_eq!((&*found["A-0.bin"], text(&found["_manifest.json"])), (&b"one"[..], "3 files"));
    let index = "name,timestamp_ns,timestamp,source,channel,sequence,bytes,check\n\
        A-0.bin,1194098400000000000,2007-11-03T14:00:00.000000000Z,log,A,0,3,\n\
        B%2Fx-1.bin,1194098400000000001,2007-11-03T14:00:00.000000001Z,log,B/x,1,3,\n";
    assert_eq!(text(&found["index.csv"]), index);
}

#[test]
fn the_index_never_names_files_of_another_run() {
    let folder = tempfile::tempdir().unwrap();
    for index in ["csv", "names"] {
        let path = folder.path().join(index);
        let options = json!({ "index": index, "name": "{sequence}" });
        let mut before = None;
        for payload in [&b"1"[..], b"22"] {
            let (watched, found) = (path.clone(), Arc::new(Mutex::new(Vec::new())));
            let seen = Arc::clone(&found);
            let observer = move |_| {
                let all = if watched.exists() { files(&watched) } else { BTreeMap::new() };
                seen.lock().unwrap().push(all);
            };
            let outputs = Outputs::new(Overwrite::Replace, true, &[]);
            let outputs = outputs.with_faults(Arc::new(FaultInjector::observed(observer)));
            let events = [raw("A", payload), raw("A", payload), raw("A", payload)];
            run_with(outputs, &path, &events, options.clone(), (3, 1)).unwrap();
            let after = files(&path);
            let name = after.keys().find(|name| name.starts_with("index.")).unwrap();
            for found in found.lock().unwrap().iter().filter(|found| found.contains_key(name)) {
                let plain = |all: &BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
                    let mut all = all.clone();
                    all.retain(|name, _| !name.starts_with('.') && !name.starts_with('_'));
                    all
                };
                let whole = [before.as_ref(), Some(&after)].map(|all| all.map(plain));
                assert!(whole.contains(&Some(plain(found))), "{found:?}");
            }
            before = Some(after);
        }
    }
}

#[test]
fn a_field_becomes_files_named_by_other_fields() {
    let folder = tempfile::tempdir().unwrap();
    let events = [image("CAM", 12, b"jpeg"), raw("POSE", b"x"), image("CAM_2", 13, b"more")];
    let more = json!({ "field": "image", "name": "{channel}/{utime}.jpg", "index": "names" });
    let outcome = write(folder.path(), &events, more);
    assert_eq!((outcome.written, outcome.left_out), (2, 1));
    assert_eq!(outcome.notes, [("without bytes in `image` on POSE, left out".to_owned(), 1)]);
    let found = files(folder.path());
    assert_eq!(text(&found["index.txt"]), "CAM/12.jpg\nCAM_2/13.jpg\n");
    assert_eq!((&*found["CAM/12.jpg"], &*found["CAM_2/13.jpg"]), (&b"jpeg"[..], &b"more"[..]));
}

#[test]
fn a_field_that_is_null_or_not_bytes_yields_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let null = FileEvent("CAM", Vec::new(), Some((1, None, String::new())));
    for (field, left_out) in [("image", 1), ("utime", 1), ("nowhere", 1), ("label", 1)] {
        let outcome = write(folder.path(), std::slice::from_ref(&null), json!({ "field": field }));
        assert_eq!((outcome.written, outcome.left_out), (0, left_out), "{field}");
    }
}

#[test]
fn incomplete_images_are_noted_and_kept_or_dropped() {
    let whole = picture();
    let events = [
        image("CAM", 1, &whole),
        image("CAM", 2, &whole[..whole.len() - 2]),
        image("CAM", 3, b""),
        image("CAM_2", 4, b"no image"),
        image("CAM", 5, &whole[..30]),
    ];
    let options = |more: Value| {
        let mut options = json!({ "field": "image", "name": "{utime}.jpg", "check": "jpeg" });
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        options
    };
    let folder = tempfile::tempdir().unwrap();
    let kept = write(folder.path(), &events, options(json!({})));
    assert_eq!((kept.written, kept.left_out, kept.refused.len()), (4, 1, 0));
    let noted: Vec<&str> = kept.notes.iter().map(|(what, _)| &**what).collect();
    let expected = [
        "empty image on CAM, left out",
        "not a JPEG file: no FF D8 at its start on CAM_2",
        "truncated JPEG file: it ends in a header on CAM",
        "truncated JPEG file: it ends in the picture on CAM",
    ];
    assert_eq!(noted, expected);
    let index = files(folder.path()).remove("index.csv").unwrap();
    let states: Vec<&str> =
        text(&index).lines().skip(1).map(|line| line.rsplit(',').next().unwrap()).collect();
    assert_eq!(states[0], "ok");
    assert!(
        states[1].starts_with("truncated JPEG") && states[2].starts_with("not a JPEG"),
        "{states:?}"
    );
    let dropped = write(folder.path(), &events, options(json!({ "bad": "drop" })));
    assert_eq!((dropped.written, dropped.left_out), (1, 4));
    let empty = write(folder.path(), &events, options(json!({ "empty": "keep" })));
    assert_eq!((empty.written, empty.left_out), (5, 0));
    assert_eq!(files(folder.path())["3.jpg"], b"");
}

#[test]
fn names_never_lead_out_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let named = |label: &str| FileEvent("CAM", b"x".to_vec(), Some((1, None, label.to_owned())));
    let events = ["../up", "/abs", "..", "a/b", "", "ok", "index.csv"].map(named);
    let outcome = write(&folder.path().join("out"), &events, json!({ "name": "{label}" }));
    assert_eq!((outcome.written, outcome.refused.len()), (1, 6));
    let events = ["..", "../../up", "x"].map(named);
    let outcome =
        write(&folder.path().join("out"), &events, json!({ "name": "{label}/{channel}" }));
    assert_eq!((outcome.written, outcome.refused.len()), (1, 2));
    let channels = [raw("..", b"1"), raw(".", b"2"), raw("a/../b", b"3"), raw("", b"4")];
    let outcome = write(&folder.path().join("more"), &channels, json!({ "name": "{channel}" }));
    assert_eq!(outcome.written, 4);
    let found = files(&folder.path().join("more"));
    let names: Vec<&String> = found.keys().collect();
    assert_eq!(names, ["%", "%2E-2", "%2E.", "_manifest.json", "a%2F..%2Fb", "index.csv"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn an_event_without_a_name_is_refused_with_the_field_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let events = [raw("A", b"x"), image("A", 1, b"")];
    let outcome = write(folder.path(), &events, json!({ "name": "{utime}.bin" }));
    assert_eq!(outcome.written, 1);
    assert_eq!(outcome.refused, ["the file name needs `utime`, which the event does not have"]);
    let noted = "`name` needs `utime`, which events on A do not have; filter out such events, or \
        choose another `name`";
    assert_eq!(outcome.notes[0], (noted.to_owned(), 0));
}

#[test]
fn the_first_invalid_name_of_each_channel_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let named =
        |channel, label: &str| FileEvent(channel, b"x".to_vec(), Some((1, None, label.into())));
    let events = [named("A", "ok"), named("A", "a/\u{1b}b"), named("A", "c/d"), named("B", "..")];
    for cut in [4, 1] {
        let path = folder.path().join(format!("{cut}"));
        let outcome = run(&path, &events, json!({ "name": "{label}" }), cut, 1).unwrap();
        assert_eq!((outcome.written, outcome.refused.len()), (1, 3));
        let expected = [
            "`name` yields `..` on B: the file name is empty or leads out of the folder; choose \
             values for `name` that always fit",
            "`name` yields `a/\\u{1b}b` on A: a value in the file name contains a slash; choose \
             values for `name` that always fit",
        ];
        assert_eq!(outcome.notes, expected.map(|what| (what.to_owned(), 0)));
    }
}

#[test]
fn channels_without_the_field_share_a_note_after_those_of_bad_images() {
    let folder = tempfile::tempdir().unwrap();
    let null = FileEvent("CAM", Vec::new(), Some((1, None, String::new())));
    let mut events = vec![image("CAM", 1, b"no image"), null];
    events.extend(["G", "F", "E", "D", "C", "B", "A", "A"].map(|channel| raw(channel, b"x")));
    let more = json!({ "field": "image", "name": "{utime}.jpg", "check": "jpeg" });
    let expected = [
        ("not a JPEG file: no FF D8 at its start on CAM", 1),
        ("without bytes in `image` on 7 channels (A, B, C, D, E and 2 more), left out", 8),
        ("without bytes in `image` on CAM, left out", 1),
    ];
    for cut in [events.len(), 1] {
        let path = folder.path().join(format!("{cut}"));
        let outcome = run(&path, &events, more.clone(), cut, 1).unwrap();
        assert_eq!(outcome.notes, expected.map(|(what, n)| (what.to_owned(), n)));
    }
}

#[test]
fn names_with_a_time_have_no_colon() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[raw("A", b"0")], json!({ "name": "{channel}-{timestamp}.bin" }));
    let found = files(folder.path());
    assert_eq!(found["A-2007-11-03T14%3A00%3A00.000000000Z.bin"], b"0");
}

#[test]
fn taken_names_get_numbers_in_the_order_of_the_events() {
    let folder = tempfile::tempdir().unwrap();
    let events: Vec<FileEvent> = (0..4u8).map(|n| raw("A", &[b'0' + n])).collect();
    let outcome = write(folder.path(), &events, json!({ "name": "{channel}.bin" }));
    assert_eq!(outcome.notes[0].1, 3);
    let found = files(folder.path());
    for (n, name) in ["A.bin", "A-2.bin", "A-3.bin", "A-4.bin"].into_iter().enumerate() {
        assert_eq!(found[name], [b'0' + n as u8]);
    }
}

#[test]
fn batches_and_threads_do_not_change_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let events: Vec<FileEvent> = (0..300)
        .map(|n| match n % 4 {
            0 => raw("POSE", b"x"),
            1 => image("CAM", n / 8, &picture()),
            _ => image("CAM_2", n, &n.to_le_bytes()),
        })
        .collect();
    let more = json!({ "field": "image", "name": "{channel}/{utime}.jpg", "check": "jpeg" });
    let mut first = None;
    for (cut, threads) in [(300, 1), (7, 2), (1, 8)] {
        let path = folder.path().join(format!("{cut}"));
        let outcome = run(&path, &events, more.clone(), cut, threads).unwrap();
        let found = (outcome, files(&path));
        assert!(
            first.get_or_insert_with(|| (FilesOutcome { ..found.0 }, found.1.clone())).1 == found.1
        );
    }
}

#[test]
fn invalid_options_are_refused_with_their_key() {
    let wrong = [
        ("path", json!("images")),
        ("name", json!("{")),
        ("name", json!("")),
        ("name", json!("/{name}")),
        ("name", json!("../{name}")),
        ("name", json!("index.csv")),
        ("name", json!("{channel}\n")),
        ("field", json!("a[")),
        ("index", json!("json")),
        ("check", json!("png")),
        ("bad", json!("drop")),
    ];
    for (key, value) in wrong {
        let mut options = json!({ "path": "images/" });
        options[key] = value;
        assert_eq!(make(options).err().unwrap().path, [key]);
    }
}

proptest! {
    // Each case syncs its files to the disk.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_event_is_a_file_of_its_own_or_refused(
        labels in proptest::collection::vec("[ab./\u{0}-]{0,4}|\\PC{0,5}", 0..12),
        folders in any::<bool>())
    {
        let folder = tempfile::tempdir().unwrap();
        let events: Vec<FileEvent> = labels.iter().enumerate()
            .map(|(n, label)| FileEvent("A", vec![n as u8], Some((1, None, label.clone()))))
            .collect();
        let name = if folders { "{label}/{label}" } else { "{label}" };
        let path = folder.path().join("out");
        let outcome = write(&path, &events, json!({ "name": name }));
        prop_assert_eq!(outcome.written as usize + outcome.refused.len(), events.len());
        let found = files(&path);
        prop_assert_eq!(found.len(), outcome.written as usize + 2, "{:?}", found.keys());
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
