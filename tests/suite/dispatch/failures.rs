//! Workers, inputs and disks that fail.

use std::sync::atomic::Ordering;

use super::*;

#[test]
fn failures_of_workers_do_not_change_the_outputs() {
    let folder = folder();
    let (expected, report) = expected(KINDS, &folder);
    for seed in 0..5 {
        let threads = ThreadCarrier::random(seed);
        let carried = run_carried(KINDS, &folder, Overwrite::Refuse, &threads);
        let when = format!("seed {seed}");
        let undone = carried.units.iter().filter(|unit| unit.status == Status::Failed);
        assert_eq!(undone.count(), 0, "{when}: {:?}", carried.units);
        for late in threads.run_late() {
            assert!(matches!(late, OrderOutcome::Abandoned(_)), "{when}: {late:?}");
        }
        assert_same_files(&expected, &tree(&folder.at("out")), &when);
        assert_eq!(without_seconds(carried.to_json()), report, "{when}");
        fs::remove_dir_all(folder.at("out")).unwrap();
    }
}

#[test]
fn a_failed_unit_publishes_nothing_and_stops_no_other() {
    let folder = folder();
    let (expected, report) = expected(STRICT, &folder);
    let carried = run_carried(STRICT, &folder, Overwrite::Refuse, &ThreadCarrier::reliable());
    assert_eq!((carried.exit(), carried.count(Status::Failed)), (1, 1));
    assert_eq!(carried.units[3].status, Status::Failed);
    assert_eq!(without_seconds(carried.to_json()), report);
    assert_same_files(&expected, &tree(&folder.at("out")), "but one");
}

#[test]
fn a_unit_that_no_worker_finishes_fails_alone() {
    let folder = folder();
    let lost = [UnitFate::Lost; 5];
    let threads = ThreadCarrier::with_fates(&[(0, &lost), (2, &[UnitFate::Dies])]);
    let carried = run_carried(STRICT, &folder, Overwrite::Refuse, &threads);
    let errors: Vec<_> = carried.units.iter().map(|unit| unit.error.as_deref()).collect();
    assert!(errors[0].unwrap().contains("no worker"), "{errors:?}");
    assert_eq!(errors[2], Some("its process died"));
    // The first round settles the others.
    assert_eq!(threads.rounds.load(Ordering::Relaxed), 1 + dispatch::ATTEMPTS);
    assert_eq!(carried.count(Status::Done), 2);
}

#[test]
fn rounds_that_end_early_are_repeated_as_long_as_they_settle_units() {
    let folder = folder();
    let (expected, report) = expected(STRICT, &folder);
    let carried = run_carried(STRICT, &folder, Overwrite::Refuse, &FailingCarrier);
    assert_eq!(without_seconds(carried.to_json()), report);
    assert!(carried.units.len() > dispatch::ATTEMPTS);
    assert_same_files(&expected, &tree(&folder.at("out")), "one unit a round");
}

#[test]
fn an_unreadable_input_is_retried_and_then_reported() {
    let folder = folder();
    let batch = batch(STRICT, &folder);
    fs::remove_file(folder.at("in/1.lcm")).unwrap();
    let threads = ThreadCarrier::reliable();
    let carried = batch.run_by(&threads, &Registry::linked(), &options(Overwrite::Refuse)).unwrap();
    let error = carried.units[1].error.as_deref().unwrap();
    assert!(error.contains("it does not exist on"), "{error}");
    assert_eq!(threads.again.load(Ordering::Relaxed), dispatch::ATTEMPTS - 1);
}

#[test]
fn a_disk_failure_during_publishing_leaves_each_unit_complete_or_unchanged() {
    let folder = folder();
    let faults = Arc::new(FaultInjector::none());
    let run = |faults: &Arc<FaultInjector>| {
        let options = Options { faults: Some(Arc::clone(faults)), ..options(Overwrite::Replace) };
        batch(KINDS, &folder).run_by(&ThreadCarrier::reliable(), &Registry::linked(), &options)
    };
    run(&Arc::default()).unwrap();
    run(&faults).unwrap();
    let (steps, expected) = (faults.steps(), tree(&folder.at("out")));
    assert!(steps > 100, "{steps}");
    for step in (0..steps).step_by(steps as usize / 9) {
        let faults = Arc::new(FaultInjector::at(step, StepFault::Broken));
        let report = run(&faults).unwrap();
        assert!(faults.failed_step().is_some(), "step {step}");
        assert_eq!(report.count(Status::Failed), 1, "step {step}");
        assert_eq!(report.count(Status::Done), UNITS - 1, "step {step}");
        let mut found = tree(&folder.at("out"));
        let manifest =
            found.insert("_manifest.json".to_owned(), expected["_manifest.json"].clone());
        let manifest: serde_json::Value = serde_json::from_slice(&manifest.unwrap()).unwrap();
        assert_eq!(manifest["left"].as_array().unwrap().len(), 1, "step {step}");
        assert_same_files(&expected, &found, "failed");
    }
}

#[test]
fn a_worker_of_another_build_refuses_and_the_unit_fails_with_the_reason() {
    fn registry_without_jsonl() -> Registry {
        Registry::from_plugins(
            Registry::linked().iter().filter(|plugin| plugin.name != "jsonl").copied(),
        )
    }
    let folder = folder();
    let mut threads = ThreadCarrier::reliable();
    threads.registry = registry_without_jsonl;
    let carried = run_carried(STRICT, &folder, Overwrite::Refuse, &threads);
    assert_eq!(carried.count(Status::Failed), UNITS);
    let why = carried.units[0].error.as_deref().unwrap();
    assert!(why.contains("sink jsonl"), "{why}");
}
