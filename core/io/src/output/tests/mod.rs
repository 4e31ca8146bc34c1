use super::publish::changed_folders;
use super::*;

mod extending;
mod faults;
mod objects;
mod staging;

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

#[test]
fn nothing_has_its_final_name_before_all_is_published() {
    let folder = tempfile::tempdir().unwrap();
    let (target, outputs) = (folder.path().join("sub/out.bin"), outputs(Overwrite::Refuse));
    write(&outputs, &target, b"abc");
    assert!(!target.exists());
    let published = outputs.publish(|_, _| Ok(String::new())).unwrap();
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
    outputs.publish(|_, _| Ok(String::new())).unwrap();
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
        let published = outputs.publish(|_, _| Ok(String::new())).unwrap();
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
fn what_a_killed_run_left_is_removed_and_what_a_running_one_uses_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out.bin");
    // No system has that many processes.
    fs::write(folder.path().join(".out.bin.4294967295-0.sluice-tmp"), b"stale").unwrap();
    let running = outputs(Overwrite::Refuse).create(&target).unwrap();
    write(&outputs(Overwrite::Refuse), &target, b"abc");
    assert_eq!(names(folder.path()).len(), 1, "{:?}", names(folder.path()));
    drop(running);
}

#[test]
fn what_a_killed_run_left_is_removed_also_where_it_had_this_ones_number() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    let own = std::process::id();
    for name in ["sub/.part.bin.4294967295-1", "sub/._manifest.json", ".out.bin.4294967295-7"] {
        fs::write(folder.path().join(format!("{name}{TEMPORARY}")), "").unwrap();
    }
    for number in 0..50 {
        // The names of older programs, and of a process that started at another time.
        for name in [format!("{own}-{number}"), format!("{own}-1-{number}")] {
            let name = format!(".out.bin.{name}{TEMPORARY}");
            fs::write(folder.path().join(name), "stale").unwrap();
        }
    }
    let running = outputs(Overwrite::Refuse).create(&folder.path().join("out.bin")).unwrap();
    sweep([folder.path()]);
    assert_eq!(names(folder.path()).len(), 2, "{:?}", names(folder.path()));
    assert!(names(&folder.path().join("sub")).is_empty());
    drop(running);
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
fn an_interrupted_run_does_not_continue_what_may_be_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("log");
    write(&outputs(Overwrite::Redo), &folder.path().join("other"), b"abc");
    let outputs = outputs(Overwrite::Redo);
    outputs.extend(&target).unwrap();
    fs::write(&target, "old").unwrap();
    let refused = outputs.extend(&target).unwrap_err().to_string();
    assert!(refused.contains("without --resume"), "{refused}");
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
    let published = outputs.publish(|_, _| Ok(String::new())).unwrap();
    assert_eq!((published[0].bytes, &published[0].blake3), (10, &None));
    assert_eq!(fs::read(folder.path().join("something")).unwrap(), b"thing more");
}

#[test]
fn a_folder_with_the_record_of_a_batch_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(MANIFEST), r#"{"units": []}"#).unwrap();
    let refused = outputs(Overwrite::Replace).folder(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("batch"), "{refused}");
}

#[test]
fn targets_that_exist_are_inputs_or_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (input, link) = (folder.path().join("in"), folder.path().join("link"));
    fs::write(&input, b"x").unwrap();
    fs::hard_link(&input, &link).unwrap();
    let refusal = |overwrite, target: &Path| {
        let outputs = Arc::new(Outputs::new(overwrite, false, std::slice::from_ref(&input)));
        outputs.create(target).unwrap_err().to_string()
    };
    assert!(refusal(Overwrite::Replace, &link).contains("also an input"));
    assert!(refusal(Overwrite::Replace, folder.path()).contains("folder"));
    fs::write(folder.path().join("old"), b"y").unwrap();
    assert!(refusal(Overwrite::Refuse, &folder.path().join("old")).contains("--overwrite"));
}

#[test]
fn what_a_target_is_is_judged_when_the_folders_on_the_way_to_it_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("in"), b"x").unwrap();
    fs::write(at("old"), b"y").unwrap();
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/of"), b"z").unwrap();
    let inputs = [at("in")];
    let through = |name: &str| at("new/deep/../..").join(name);
    let outputs = |overwrite| Arc::new(Outputs::new(overwrite, false, &inputs));
    type Open = fn(&Arc<Outputs>, &Path) -> Result<(), Error>;
    let opens: [(Open, Overwrite, &str, &str); 7] = [
        (|o, t| o.create(t).map(drop), Overwrite::Replace, "in", "also an input"),
        (|o, t| o.create_as_is(t).map(drop), Overwrite::Redo, "in", "also an input"),
        (|o, t| o.extend(t).map(drop), Overwrite::Refuse, "in", "also an input"),
        (|o, t| o.extend(t).map(drop), Overwrite::Redo, "old", "without --resume"),
        (|o, t| o.create(t).map(drop), Overwrite::Refuse, "old", "--overwrite"),
        (
            |o, t| o.create_below(t.parent().unwrap())?.finish_as(t, 0),
            Overwrite::Replace,
            "in",
            "also an input",
        ),
        (|o, t| o.folder(t), Overwrite::Refuse, "full", "--overwrite"),
    ];
    for (number, (open, overwrite, name, why)) in opens.into_iter().enumerate() {
        let error = open(&outputs(overwrite), &through(name)).unwrap_err().to_string();
        assert!(error.contains(why), "{number}: {error}");
        // Folders created to resolve the path are removed again.
        assert!(!at("new").exists(), "{number}");
        assert_eq!(fs::read(at("in")).unwrap(), b"x");
    }
}

#[test]
fn what_an_earlier_run_wrote_is_not_removed_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let input = out.join("part");
    let first = outputs(Overwrite::Refuse);
    first.folder(&out).unwrap();
    write(&first, &input, b"x");
    first.publish(|_, _| Ok(r#"{"files": [{"path": "part"}]}"#.into())).unwrap();
    let again = Arc::new(Outputs::new(Overwrite::Replace, false, std::slice::from_ref(&input)));
    let error = again.folder(&out).unwrap_err().to_string();
    assert!(error.contains("also an input"), "{error}");
    drop(again);
    assert_eq!(fs::read(&input).unwrap(), b"x");
}

#[test]
fn what_has_become_an_input_since_it_was_judged_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (input, target) = (folder.path().join("in"), folder.path().join("out"));
    fs::write(&input, b"x").unwrap();
    let outputs = Outputs::new(Overwrite::Replace, false, std::slice::from_ref(&input));
    let outputs = Arc::new(outputs);
    write(&outputs, &target, b"ours");
    fs::hard_link(&input, &target).unwrap();
    let error = outputs.publish(|_, _| Ok(String::new())).unwrap_err().to_string();
    assert!(error.contains("also an input"), "{error}");
    assert_eq!(fs::read(&input).unwrap(), b"x");
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("out");
    for (overwrite, kept) in [(Overwrite::Refuse, "theirs"), (Overwrite::Replace, "ours")] {
        drop(fs::remove_file(&target));
        let outputs = outputs(overwrite);
        write(&outputs, &target, b"ours");
        fs::write(&target, "theirs").unwrap();
        drop(outputs.publish(|_, _| Ok(String::new())));
        assert_eq!(fs::read_to_string(&target).unwrap(), kept);
    }
}

#[test]
fn two_sinks_cannot_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = outputs(Overwrite::Refuse);
    let _first = outputs.create(&folder.path().join("out")).unwrap();
    assert!(
        outputs.create(&folder.path().join("out")).unwrap_err().to_string().contains("two sinks")
    );
}

#[test]
fn extending_keeps_what_was_there_and_zst_is_compressed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["log", "log.zst"] {
        let target = folder.path().join(name);
        for text in ["one ", "two "] {
            let outputs = outputs(Overwrite::Refuse);
            let mut file = outputs.extend(&target).unwrap();
            file.write(text.as_bytes()).unwrap();
            file.finish(1).unwrap();
            let published = outputs.publish(|_, _| Ok(String::new())).unwrap();
            let hash = blake3::hash(&fs::read(&target).unwrap()).to_hex().to_string();
            assert_eq!(published[0].blake3, Some(hash));
        }
        let mut text = vec![0; 20];
        let read = crate::files::LogFile::open(&target).unwrap().read_at(0, &mut text).unwrap();
        assert_eq!(&text[..read], b"one two ");
    }
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
fn replacing_a_folder_removes_what_its_manifest_named_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    for name in ["a", "old", "mine"] {
        fs::write(out.join(name), name).unwrap();
    }
    let named = r#"{"files": [{"path": "a"}, {"path": "old"}, {"path": "../out/mine"}]}"#;
    fs::write(out.join(MANIFEST), named).unwrap();
    let outputs = outputs(Overwrite::Replace);
    outputs.folder(&out).unwrap();
    write(&outputs, &out.join("a"), b"new");
    outputs.publish(|_, _| Ok("{}".into())).unwrap();
    assert_eq!(names(&out), [MANIFEST, "a", "mine"]);
}

#[test]
fn a_file_that_cannot_be_published_takes_the_others_back() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let outputs = outputs(Overwrite::Refuse);
    write(&outputs, &first, b"1");
    write(&outputs, &second, b"2");
    fs::create_dir(&second).unwrap();
    assert!(outputs.publish(|_, _| Ok(String::new())).is_err());
    drop(outputs);
    assert_eq!(names(folder.path()), ["second"]);
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

#[test]
fn many_files_appear_together_and_are_described_as_others_are() {
    let folder = tempfile::tempdir().unwrap();
    let (out, outputs) = (folder.path().join("out"), outputs(Overwrite::Refuse));
    write_many(&outputs, &out, &[("a", "1"), ("sub/b", "22"), ("sub/deep/c", "")]);
    write(&outputs, &out.join("index"), b"i");
    assert!(!out.join("a").exists() && !out.join("sub").exists());
    let published = outputs.publish(|_, files| Ok(format!("{} files", files.len()))).unwrap();
    let found = below(&out);
    assert_eq!(found.keys().collect::<Vec<_>>(), [MANIFEST, "a", "index", "sub/b", "sub/deep/c"]);
    assert_eq!((&*found["sub/b"], &*found[MANIFEST]), (&b"22"[..], &b"4 files"[..]));
    let b = published.iter().find(|file| file.path == out.join("sub/b")).unwrap();
    assert_eq!((b.rows, b.bytes), (1, 2));
    assert_eq!(b.blake3, Some(blake3::hash(b"22").to_hex().to_string()));
}

#[test]
fn many_files_of_a_run_that_fails_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for finish in [true, false] {
        let outputs = outputs(Overwrite::Refuse);
        let out = folder.path().join("deep/out");
        outputs.folder(&out).unwrap();
        let mut many = outputs.many(&out).unwrap();
        many.write("sub/a", b"1", 1).unwrap();
        match finish {
            true => many.finish().unwrap(),
            false => drop(many),
        }
        drop(outputs);
        assert!(names(folder.path()).is_empty());
    }
}

#[test]
fn a_room_of_a_killed_run_is_removed_and_one_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let stale = folder.path().join(".many.4294967295-0.sluice-tmp");
    fs::create_dir_all(stale.join("sub")).unwrap();
    fs::write(stale.join("sub/a"), "stale").unwrap();
    let running = outputs(Overwrite::Refuse);
    let _many = running.many(folder.path()).unwrap();
    outputs(Overwrite::Refuse).folder(folder.path()).unwrap();
    assert_eq!(names(folder.path()).len(), 1, "{:?}", names(folder.path()));
    assert!(!stale.exists());
}

#[test]
fn many_files_replace_what_was_there_and_what_the_manifest_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let list = r#"{"files": [{"path": "a"}, {"path": "sub/b"}, {"path": "sub/old"}]}"#;
    for (text, files) in [("1", &["a", "sub/b", "sub/old"][..]), ("2", &["a", "sub/b", "sub/c"])] {
        let outputs = outputs(Overwrite::Replace);
        let files: Vec<(&str, &str)> = files.iter().map(|name| (*name, text)).collect();
        write_many(&outputs, &out, &files);
        outputs.publish(|_, _| Ok(list.to_owned())).unwrap();
    }
    let found = below(&out);
    assert_eq!(found.keys().collect::<Vec<_>>(), [MANIFEST, "a", "sub/b", "sub/c"]);
    assert!(["a", "sub/b", "sub/c"].iter().all(|name| found[*name] == b"2"));
}

#[test]
fn many_files_are_taken_back_when_one_cannot_be_published() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let outputs = outputs(Overwrite::Refuse);
    write_many(&outputs, &out, &[("a", "1"), ("sub/b", "1"), ("sub/c", "1"), ("z", "1")]);
    fs::create_dir(out.join("sub")).unwrap();
    fs::write(out.join("sub/c"), "theirs").unwrap();
    let error = outputs.publish(|_, _| Ok(String::new())).unwrap_err().to_string();
    assert!(error.contains("has appeared"), "{error}");
    drop(outputs);
    assert_eq!(below(&out).into_iter().collect::<Vec<_>>(), [("sub/c".into(), b"theirs".to_vec())]);
}

#[test]
fn names_that_lead_elsewhere_or_are_there_twice_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = outputs(Overwrite::Refuse);
    let mut many = outputs.many(folder.path()).unwrap();
    many.write("a", b"", 0).unwrap();
    for name in ["", "../a", "/a", "a/../../b", "a"] {
        assert!(many.write(name, b"", 0).is_err(), "{name}");
    }
    assert!(outputs.many(folder.path()).unwrap_err().to_string().contains("two sinks"));
}

#[test]
fn more_files_than_are_synced_each_are_published_too() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = outputs(Overwrite::Refuse);
    let mut many = outputs.many(folder.path()).unwrap();
    (0..300).for_each(|n| many.write(&format!("{n}"), b"x", 1).unwrap());
    many.finish().unwrap();
    assert_eq!(outputs.publish(|_, _| Ok(String::new())).unwrap().len(), 300);
    assert_eq!(names(folder.path()).len(), 300);
}

#[test]
fn two_files_of_one_name_are_refused_before_anything_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir_all(out.join("sub")).unwrap();
    std::os::unix::fs::symlink(&out, folder.path().join("link")).unwrap();
    for other in ["out/sub/x.csv", "link/./sub/x.csv"] {
        let outputs = outputs(Overwrite::Replace);
        write_many(&outputs, &out, &[("a", "1"), ("sub/x.csv", "many")]);
        write(&outputs, &folder.path().join(other), b"one");
        let error = outputs.publish(|_, _| Ok("{}".into())).unwrap_err().to_string();
        assert!(error.contains("two sinks write to one file"), "{error}");
        drop(outputs);
        assert_eq!(below(&out).len(), 0, "{other}");
    }
}

#[test]
fn a_link_to_nothing_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("missing", &link).unwrap();
    let refused = outputs(Overwrite::Replace).create(&link).unwrap_err().to_string();
    let advice = "it points to missing, and Sluice creates no files through links: remove the \
                  link, or create its target";
    assert!(refused.ends_with(advice), "{refused}");
}

#[test]
fn standard_output_and_devices_may_be_written_twice() {
    let outputs = outputs(Overwrite::Refuse);
    for _ in 0..2 {
        write(&outputs, Path::new("/dev/null"), b"x");
    }
    assert_eq!(outputs.publish(|_, _| Ok(String::new())).unwrap().len(), 2);
}

#[test]
fn folders_with_manifests_lie_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("real")).unwrap();
    std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
    for (one, other) in
        [("a", "a"), ("a/", "a/b"), ("a/b", "a"), ("real/x", "link/x"), ("a", "new/../a/b")]
    {
        let outputs = outputs(Overwrite::Replace);
        outputs.folder(&at(one)).unwrap();
        let error = outputs.folder(&at(other)).unwrap_err().to_string();
        assert!(error.contains("two sinks write into one folder"), "{one} {other}: {error}");
    }
    let outputs = outputs(Overwrite::Refuse);
    ["a", "ab", "c/a", "c/b"].iter().for_each(|name| outputs.folder(&at(name)).unwrap());
}

/// Replaces what is in a folder by these files, each described by the manifest.
fn replace(folder: &Path, files: &[(&str, &str)]) -> Result<Vec<PublishedFile>, Error> {
    let outputs = outputs(Overwrite::Replace);
    write_many(&outputs, folder, files);
    outputs.publish(|folder, files| {
        let name =
            |file: &PublishedFile| file.path.strip_prefix(folder).unwrap().display().to_string();
        let files = files.iter().map(|file| serde_json::json!({ "path": name(file) }));
        Ok(serde_json::json!({ "files": files.collect::<Vec<_>>() }).to_string())
    })
}

#[test]
fn files_take_the_places_of_folders_of_the_run_before_and_the_other_way_round() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for files in [
        &[("a.d", "1"), ("b", "1"), ("c/d/e", "1")][..],
        &[("a.d/1", "2"), ("a.d/2/3", "2"), ("b", "2"), ("c", "2")],
        &[("a.d", "3"), ("b/x", "3"), ("c/d/e", "3")],
    ] {
        replace(&out, files).unwrap();
        let found = below(&out);
        let wanted: Vec<_> = [MANIFEST].into_iter().chain(files.iter().map(|f| f.0)).collect();
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted);
        assert!(files.iter().all(|(name, text)| found[*name] == text.as_bytes()));
    }
}

#[test]
fn what_stood_in_the_way_is_put_back_when_the_run_fails() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    replace(&out, &[("a.d", "1"), ("c/d/e", "1"), ("z", "1")]).unwrap();
    fs::create_dir_all(out.join("theirs")).unwrap();
    fs::write(out.join("theirs/x"), "theirs").unwrap();
    let error = replace(&out, &[("a.d/1", "2"), ("c", "2"), ("theirs", "2")]).unwrap_err();
    assert!(error.to_string().contains("remove it, or write elsewhere"), "{error}");
    let found = below(&out);
    assert_eq!(found.keys().collect::<Vec<_>>(), [MANIFEST, "a.d", "c/d/e", "theirs/x", "z"]);
    assert_eq!((&*found["a.d"], &*found["c/d/e"]), (&b"1"[..], &b"1"[..]));
}

#[test]
fn folders_that_the_run_before_alone_had_something_in_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    replace(&out, &[("a/b/c", "1"), ("a/d/e", "1"), ("f/g", "1"), ("h/i", "1")]).unwrap();
    fs::write(out.join("a/mine"), "mine").unwrap();
    replace(&out, &[("f/x", "2")]).unwrap();
    assert_eq!(below(&out).keys().collect::<Vec<_>>(), [MANIFEST, "a/mine", "f/x"]);
    assert_eq!(
        (names(&out), names(&out.join("a"))),
        (vec![MANIFEST.into(), "a".into(), "f".into()], vec!["mine".into()])
    );
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
