//! The cluster simulation in `benches/` satisfies the invariants of any job.

use std::process::Command;

use crate::kit::{report_skip, root};

#[test]
fn the_model_of_scaling_keeps_what_holds_of_any_job() {
    let tests = ["-B", "-m", "unittest", "test_scaling"];
    let run = Command::new("python3").args(tests).current_dir(root().join("benches")).output();
    let Ok(run) = run else {
        return report_skip("there is no python3, in which the model is written");
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn the_model_reports_what_bounds_a_job() {
    let job = ["-B", "scaling.py", "--drives", "300", "--executors", "1,40", "--storage", "3000"];
    let run = Command::new("python3").args(job).current_dir(root().join("benches")).output();
    let Ok(run) = run else {
        return report_skip("there is no python3, in which the model is written");
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let rows = String::from_utf8(run.stdout).unwrap();
    let rows_of_jobs = rows.lines().filter(|row| !row.contains("---"));
    let bounds: Vec<&str> = rows_of_jobs.filter_map(|row| row.split(" | ").nth(4)).collect();
    assert_eq!(bounds, ["bound by", "network of an executor", "storage"], "{rows}");
}
