//! Runs that are stopped or killed, and what goes on from there.

use std::process::Stdio;

use super::*;

#[test]
fn each_engine_resumes_where_the_other_ended() {
    let folder = folder();
    let (expected, _) = expected(KINDS, &folder);
    let skipped = |report: &BatchReport| report.count(Status::Skipped);
    let first = run_carried(KINDS, &folder, Overwrite::Redo, &ThreadCarrier::reliable());
    assert_eq!((first.count(Status::Done), skipped(&first)), (UNITS, 0));
    assert_eq!(skipped(&local(KINDS, &folder, Overwrite::Redo)), UNITS);
    assert_eq!(
        skipped(&run_carried(KINDS, &folder, Overwrite::Redo, &ThreadCarrier::reliable())),
        UNITS
    );
    for lost in ["2.lcm.zst", "parts/4/part-00000.lcm", "tables/0/_manifest.json"] {
        fs::remove_file(folder.at("out").join(lost)).unwrap();
        let again = run_carried(KINDS, &folder, Overwrite::Redo, &ThreadCarrier::reliable());
        assert_eq!((again.count(Status::Done), skipped(&again)), (1, UNITS - 1), "{lost}");
        assert_same_files(&expected, &tree(&folder.at("out")), lost);
    }
}

#[test]
fn a_stopped_run_publishes_finished_units_and_reports_the_others() {
    let folder = folder();
    let (expected, _) = expected(KINDS, &folder);
    for after in [0, 2] {
        let options = options(Overwrite::Redo);
        let carrier = InterruptingCarrier { after, stop: Arc::clone(&options.stop) };
        let stopped = batch(KINDS, &folder).run_by(&carrier, &Registry::linked(), &options);
        let stopped = stopped.unwrap();
        assert_eq!((stopped.exit(), stopped.count(Status::Done)), (130, after));
        assert_eq!(stopped.count(Status::NotStarted), UNITS - after);
        assert_eq!(folder.at("out").exists(), after > 0);
    }
    assert_eq!(local(KINDS, &folder, Overwrite::Redo).count(Status::Skipped), 2);
    assert_same_files(&expected, &tree(&folder.at("out")), "gone on with");
}

/// The folder of the batch that this program drives when it is started again to be killed.
const KILLED: &str = "SLUICE_DISPATCH_KILLED";

#[test]
fn either_engine_resumes_a_driver_killed_at_any_moment() {
    if let Some(dir) = std::env::var_os(KILLED) {
        let document = Document::generated("batch.toml", KINDS);
        let set = BTreeMap::from([("DIR".to_owned(), dir.into_string().unwrap())]);
        let variables = Variables { set, environment: false };
        let pipeline = Pipeline::read(&document, &variables, &Registry::linked()).unwrap();
        let batch = Batch::new(&pipeline, &Registry::linked(), FailurePolicy::Stop).unwrap();
        let options = options(Overwrite::Redo);
        batch.run_by(&ThreadCarrier::random(1), &Registry::linked(), &options).unwrap();
        return;
    }
    let folder = folder();
    let (expected, _) = expected(KINDS, &folder);
    let name = "dispatch::interrupted::either_engine_resumes_a_driver_killed_at_any_moment";
    let out = folder.at("out");
    for (n, files) in [0, 1, 30, 90, 150].into_iter().enumerate() {
        let mut driver = std::process::Command::new(std::env::current_exe().unwrap());
        driver.args(["--exact", name]).env(KILLED, folder.path());
        driver.stdout(Stdio::null()).stderr(Stdio::null());
        let mut driver = driver.spawn().unwrap();
        // The moment is recognised by the files that exist.
        let published = || tree(&out).keys().filter(|name| !name.starts_with(".cluster")).count();
        while driver.try_wait().unwrap().is_none() && published() < files {
            std::thread::yield_now();
        }
        driver.kill().unwrap();
        driver.wait().unwrap();
        if out.exists() {
            assert_complete(&expected, &tree(&out));
        }
        match n % 2 {
            0 => run_carried(KINDS, &folder, Overwrite::Redo, &ThreadCarrier::reliable()),
            _ => local(KINDS, &folder, Overwrite::Redo),
        };
        // A local run leaves staging folders to the next run on a cluster.
        let mut found = tree(&out);
        found.retain(|name, _| n % 2 == 0 || !name.starts_with(".cluster"));
        assert_same_files(&expected, &found, &format!("killed with {files} files"));
        fs::remove_dir_all(&out).unwrap();
    }
}

/// Checks that everything under a final name is complete. Ignores the records and staging files of
/// unfinished work.
#[track_caller]
fn assert_complete(expected: &DispatchTree, found: &DispatchTree) {
    let is_output = |name: &str| {
        !name.contains(".sluice-tmp") && !matches!(name, "_manifest.json" | "_units.jsonl")
    };
    for (name, bytes) in found.iter().filter(|(name, _)| is_output(name)) {
        assert!(expected.get(name) == Some(bytes), "{name}");
    }
}

#[test]
fn staging_folders_of_dead_drivers_are_removed_and_disturb_no_run() {
    let folder = folder();
    let (expected, _) = expected(STRICT, &folder);
    let staging = folder.at("out/.cluster.0123456789abcdef.sluice-tmp");
    fs::create_dir_all(staging.join("unit-000001/attempt/out")).unwrap();
    fs::write(staging.join("unit-000001.attempt.json"), "{").unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let host: String = host.trim().chars().map(plain).take(40).collect();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let processes = fs::read_link("/proc/self/ns/pid").unwrap();
    let home = format!("{host} {} {}", boot.trim(), processes.display());
    // No process has this number.
    fs::write(staging.join("driver"), format!("{{\"home\":\"{home}\",\"process\":4294967295}}"))
        .unwrap();
    local(STRICT, &folder, Overwrite::Refuse);
    let out = folder.at("out").display().to_string();
    // One of the inputs is damaged and not done; the staging folder is not an output.
    let output = run_sluice(&folder, &["verify", &out]).expect(1).text();
    assert!(output.contains("1 input is not done (1 failed), of 5 in all"), "{output}");
    assert!(!output.contains(".cluster."), "{output}");
    run_carried(STRICT, &folder, Overwrite::Replace, &ThreadCarrier::reliable());
    assert!(!staging.exists());
    assert_same_files(&expected, &tree(&folder.at("out")), "beside a staging folder");
}
