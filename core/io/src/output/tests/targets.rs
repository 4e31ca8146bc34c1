//! Which targets are refused: inputs, outputs that exist, and those of another sink.

use super::*;

/// The outputs of a run that reads this file.
fn reading(overwrite: Overwrite, input: &Path) -> Arc<Outputs> {
    Arc::new(Outputs::new(overwrite, false, &[input.to_owned()]))
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
        reading(overwrite, &input).create(target).unwrap_err().to_string()
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
    let through = |name: &str| at("new/deep/../..").join(name);
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
        let error = open(&reading(overwrite, &at("in")), &through(name)).unwrap_err().to_string();
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
    publish(&first).unwrap();
    let again = reading(Overwrite::Replace, &input);
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
    let outputs = reading(Overwrite::Replace, &input);
    write(&outputs, &target, b"ours");
    fs::hard_link(&input, &target).unwrap();
    let error = publish(&outputs).unwrap_err().to_string();
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
        drop(publish(&outputs));
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
fn two_files_of_one_name_are_refused_before_anything_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir_all(out.join("sub")).unwrap();
    std::os::unix::fs::symlink(&out, folder.path().join("link")).unwrap();
    for other in ["out/sub/x.csv", "link/./sub/x.csv"] {
        let outputs = outputs(Overwrite::Replace);
        write_many(&outputs, &out, &[("a", "1"), ("sub/x.csv", "many")]);
        write(&outputs, &folder.path().join(other), b"one");
        let error = publish(&outputs).unwrap_err().to_string();
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
    assert_eq!(publish(&outputs).unwrap().len(), 2);
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

#[test]
fn a_name_that_is_too_long_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let most = rustix::fs::statvfs(folder.path()).unwrap().f_namemax as usize;
    let target = |len: usize| folder.path().join("x".repeat(len));
    let outputs = outputs(Overwrite::Refuse);
    let refused = outputs.create(&target(most + 1)).unwrap_err().to_string();
    assert!(refused.contains(&format!("at most {most} bytes")), "{refused}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    for name in ["x".repeat(most), "\u{10348}".repeat(most / 4)] {
        write(&outputs, &folder.path().join(name), b"x");
    }
    outputs.publish(|_, _| Ok(String::new())).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
