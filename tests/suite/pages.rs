//! Pages of reports in a real browser: Chromium without a window, which `.ci/run` unpacks to
//! `.cache/chromium`; reports if there is none.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::{BEGIN, Folder, LcmEvent, drive, log, report_skip, root, run_sluice};

/// The browser; `None`, with a message, if there is none.
fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("SLUICE_CHROMIUM").map(PathBuf::from);
    let unpacked = root().join(".cache/chromium/chromium");
    let installed = ["chromium-headless-shell", "chromium"].map(PathBuf::from);
    let works = |program: &PathBuf| {
        Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
    };
    let browser = named.into_iter().chain(installed).chain([unpacked]).find(works);
    if browser.is_none() {
        report_skip("there is no Chromium to look at pages with; .ci/run installs it");
    }
    browser
}

/// Asserts that nothing is wrong with a page at any width, light and dark, with and without
/// scripts.
#[track_caller]
fn check(page: &Path) {
    let Some(browser) = browser() else { return };
    let script = root().join("tests/suite/browser.py");
    let output = Command::new("python3").arg(script).arg(browser).arg("check").arg(page).output();
    let Ok(output) = output else {
        report_skip("there is no python3 to look at pages with");
        return;
    };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}

/// Makes a page of a log.
fn page(folder: &Folder, log: &str, code: i32) -> PathBuf {
    run_sluice(folder, &["report", log, "--to", "page.html"]).expect(code);
    let page = folder.read("page.html");
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    folder.at("page.html")
}

#[test]
fn the_page_of_the_quick_start_drive_works_in_a_browser() {
    let folder = Folder::new();
    run_sluice(&folder, &["run", "quickstart"]).expect(0);
    check(&page(&folder, "quickstart-out/drive.lcm", 0));
}

#[test]
fn the_page_of_a_ros_log_works_in_a_browser() {
    let folder = Folder::new();
    let log = std::fs::read(root().join("tests/suite/ros/wbag_0.mcap")).unwrap();
    folder.write("wbag.mcap", &log);
    check(&page(&folder, "wbag.mcap", 0));
}

#[test]
fn the_page_of_a_cut_ros_log_works_in_a_browser() {
    let folder = Folder::new();
    let log = std::fs::read(root().join("tests/suite/ros/array_msgs_0.mcap")).unwrap();
    folder.write("cut.mcap", &log[..log.len() / 2]);
    check(&page(&folder, "cut.mcap", 3));
}

#[test]
fn the_page_of_hostile_names_and_damage_works_in_a_browser() {
    let folder = Folder::new();
    let hostile = [
        "</script><script>alert(1)</script>",
        "\"'&<!--\u{202e}\0]]>",
        "<img src=x onerror=alert(1)>",
    ];
    let named = hostile
        .iter()
        .enumerate()
        .map(|(number, channel)| LcmEvent::new(number as i64, BEGIN, channel, b"payload"));
    let mut bytes = log(&named.collect::<Vec<_>>());
    let mut broken = LcmEvent::new(3, BEGIN + 5, "", b"payload");
    broken.channel = [0xff, b'<', 0xfe].repeat(85);
    bytes.extend(broken.bytes());
    bytes.extend([0x5a; 10_000]);
    bytes.extend(log(&drive(1, 2_000)));
    folder.write("hostile.lcm", bytes);
    check(&page(&folder, "hostile.lcm", 3));
}

#[test]
fn the_page_of_an_empty_log_works_in_a_browser() {
    let folder = Folder::new();
    folder.write("empty.lcm", "");
    check(&page(&folder, "empty.lcm", 0));
}
