//! Outputs of runs: files under temporary names, and publishing them.

use super::publish::changed_folders;
use super::*;

mod extending;
mod faults;
mod indexes;
mod litter;
mod many;
mod objects;
mod replacing;
mod staging;
mod targets;

fn outputs(overwrite: Overwrite) -> Arc<Outputs> {
    Arc::new(Outputs::new(overwrite, true, &[]))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn write(outputs: &Arc<Outputs>, target: &Path, bytes: &[u8]) {
    let mut file = outputs.create(target).unwrap();
    file.write(bytes).unwrap();
    file.finish(1).unwrap();
}

/// Every file below a folder, by its path there.
fn below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            let inner = below(&path).into_iter();
            found.extend(inner.map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else {
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

fn write_many(outputs: &Arc<Outputs>, folder: &Path, files: &[(&str, &str)]) {
    outputs.folder(folder).unwrap();
    let mut many = outputs.many(folder).unwrap();
    files.iter().for_each(|(name, text)| many.write(name, text.as_bytes(), 1).unwrap());
    many.finish().unwrap();
}

/// A manifest that lists these files.
fn manifest(folder: &Path, files: &[PublishedFile]) -> Result<String, Error> {
    let listed = files.iter().filter_map(|file| {
        let name = file.path.strip_prefix(folder).ok()?.display();
        Some(format!("{{\"path\":\"{name}\",\"rows\":{},\"bytes\":{}}}", file.rows, file.bytes))
    });
    Ok(format!("{{\"files\":[{}]}}", listed.collect::<Vec<_>>().join(",")))
}

fn publish(outputs: &Outputs) -> Result<Vec<PublishedFile>, Error> {
    outputs.publish(manifest)
}

#[test]
fn nothing_has_its_final_name_before_all_is_published() {
    let folder = tempfile::tempdir().unwrap();
    let (target, outputs) = (folder.path().join("sub/out.bin"), outputs(Overwrite::Refuse));
    write(&outputs, &target, b"abc");
    assert!(!target.exists());
    let published = publish(&outputs).unwrap();
    assert_eq!(names(target.parent().unwrap()), ["out.bin"]);
    assert_eq!(fs::read(&target).unwrap(), b"abc");
    assert_eq!(published[0].blake3, Some(blake3::hash(b"abc").to_hex().to_string()));
}

#[test]
fn a_file_that_is_not_finished_leaves_nothing_beside_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = outputs(Overwrite::Refuse);
    drop(outputs.create(&folder.path().join("unfinished")).unwrap());
    write(&outputs, &folder.path().join("out.bin"), b"abc");
    publish(&outputs).unwrap();
    assert_eq!(names(folder.path()), ["out.bin"]);
}

#[test]
fn a_head_is_replaced_by_one_of_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    for (name, in_place, head) in
        [("same", false, 12), ("longer", false, 2_000_000), ("shorter", true, 1), ("none", true, 0)]
    {
        let target = folder.path().join(name);
        let outputs = Arc::new(Outputs::new(Overwrite::Refuse, true, &[]).in_place(in_place));
        let mut file = outputs.create(&target).unwrap();
        file.write(&[7; 12]).unwrap();
        file.write(&body).unwrap();
        assert!(file.can_replace_head());
        file.replace_head(12, &vec![9; head]).unwrap();
        file.write(b"more").unwrap();
        file.finish(1).unwrap();
        let published = publish(&outputs).unwrap();
        let wanted = [vec![9; head], body.clone(), b"more".to_vec()].concat();
        assert!(fs::read(&target).unwrap() == wanted, "{name}");
        assert_eq!(published[0].bytes, wanted.len() as u64);
        assert_eq!(published[0].blake3, Some(blake3::hash(&wanted).to_hex().to_string()));
    }
}

#[test]
fn what_is_compressed_keeps_its_head() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = outputs(Overwrite::Refuse).create(&folder.path().join("a.zst")).unwrap();
    file.write(b"abc").unwrap();
    assert!(!file.can_replace_head() && file.replace_head(1, b"").is_err());
}

#[test]
fn a_run_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = outputs(Overwrite::Refuse);
    write(&outputs, &folder.path().join("sub/deep/out.bin"), b"abc");
    drop(outputs);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn what_is_about_to_appear_is_announced_and_may_be_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (out, outputs) = (folder.path().join("out"), outputs(Overwrite::Refuse));
    outputs.folder(&out).unwrap();
    write(&outputs, &out.join("a"), b"abc");
    let mut told = Vec::new();
    let published = outputs.publish_announced(
        |_, _| Ok("{}".into()),
        |files| {
            told.extend(files.iter().map(|file| (file.path.clone(), file.bytes)));
            Err(Error::refused("no"))
        },
    );
    assert!(published.is_err() && !out.join("a").exists());
    assert_eq!(told, [(out.join("a"), 3), (out.join(MANIFEST), 2)]);
    drop(outputs);
    assert!(!out.exists());
}

#[test]
fn what_grows_in_place_stays_unless_it_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let in_place = |overwrite| Arc::new(Outputs::new(overwrite, true, &[]).in_place(true));
    for name in ["something", "nothing"] {
        let outputs = in_place(Overwrite::Refuse);
        let mut file = outputs.create(&folder.path().join(name)).unwrap();
        file.write(name.strip_prefix("some").unwrap_or_default().as_bytes()).unwrap();
        drop(file);
        assert_eq!(outputs.growing().len(), 1);
    }
    assert_eq!(names(folder.path()), ["something"]);
    assert!(in_place(Overwrite::Refuse).create(&folder.path().join("something")).is_err());
    let outputs = in_place(Overwrite::Replace);
    let mut file = outputs.extend(&folder.path().join("something")).unwrap();
    file.write(b" more").unwrap();
    file.finish(2).unwrap();
    let published = publish(&outputs).unwrap();
    assert_eq!((published[0].bytes, &published[0].blake3), (10, &None));
    assert_eq!(fs::read(folder.path().join("something")).unwrap(), b"thing more");
}

#[test]
fn a_folder_gets_its_manifest_last() {
    let folder = tempfile::tempdir().unwrap();
    let (out, outputs) = (folder.path().join("out"), outputs(Overwrite::Refuse));
    outputs.folder(&out).unwrap();
    write(&outputs, &out.join("a"), b"abc");
    outputs.publish(|_, files| Ok(format!("{} files", files.len()))).unwrap();
    assert_eq!(fs::read_to_string(out.join(MANIFEST)).unwrap(), "1 files");
    let again = Outputs::new(Overwrite::Refuse, false, &[]);
    assert!(again.folder(&out).unwrap_err().to_string().contains("not empty"));
}

#[test]
fn a_file_that_cannot_be_published_takes_the_others_back() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let outputs = outputs(Overwrite::Refuse);
    write(&outputs, &first, b"1");
    write(&outputs, &second, b"2");
    fs::create_dir(&second).unwrap();
    assert!(publish(&outputs).is_err());
    drop(outputs);
    assert_eq!(names(folder.path()), ["second"]);
}

#[test]
fn every_folder_that_has_changed_is_synced() {
    let published =
        |path: &str| PublishedFile { path: path.into(), rows: 0, bytes: 0, blake3: None };
    let files = ["in/out/a/b/c", "in/out/a/b/d", "in/out/x", "alone/y", "z"].map(published);
    let (roots, made) = (["in/out".into()], ["in".into(), "in/out".into()]);
    let changed = changed_folders(&files, &roots, &made);
    let wanted = [".", "alone", "in", "in/out", "in/out/a", "in/out/a/b"].map(Path::new);
    assert_eq!(changed.into_iter().collect::<Vec<_>>(), wanted);
}
