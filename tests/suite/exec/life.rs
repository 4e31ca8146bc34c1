//! The lifetime of child programs: what ends them, what waits for them, and their environment.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// The process whose number is in this file.
fn read_pid(path: &Path) -> Pid {
    let text = fs::read_to_string(path).unwrap();
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// Waits until a process is gone or a zombie.
#[track_caller]
fn expect_gone(process: Pid) {
    let begun = Instant::now();
    let stat = format!("/proc/{}/stat", process.as_raw_pid());
    let is_there = || match fs::read_to_string(&stat) {
        Ok(stat) => !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => false,
    };
    while is_there() {
        assert!(begun.elapsed() < Duration::from_secs(20), "process {process:?} still exists");
        std::thread::yield_now();
    }
}

/// A command that starts a process which sleeps forever.
const HANGS: &str = r#"["sh", "-c", "sleep 1000 & echo $! > child; wait"]"#;

/// Starts a pipeline, and waits until its child program has written the number of its own child.
fn start_and_wait_for_child(folder: &Folder, text: &str) -> std::process::Child {
    folder.write("p.toml", text);
    let dir = format!("DIR={}", folder.path().display());
    started(folder, &["run", "p.toml", "--set", &dir, "--allow-exec", "--progress", "none"])
}

/// Starts the program, and waits until its child program has written the number of its own child.
fn started(folder: &Folder, arguments: &[&str]) -> std::process::Child {
    let mut command = sluice(folder);
    let command = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    let begun = Instant::now();
    while fs::read_to_string(folder.at("child")).map_or(0, |text| text.len()) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program does not begin");
        std::thread::yield_now();
    }
    run
}

fn signal(run: &std::process::Child, signal: Signal) {
    let process = Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap();
    kill_process(process, signal).unwrap();
}

#[test]
fn a_program_that_does_nothing_is_ended_with_all_it_started() {
    let folder = with_log(9000);
    // Long enough for any machine to start the programs.
    let timeout = "timeout = \"2s\"";
    for text in [
        source_pipeline(HANGS, timeout),
        sink_pipeline(HANGS, timeout),
        stage_pipeline(HANGS).replace("folder =", &format!("{timeout}\nfolder =")),
    ] {
        assert_contains(&failure(&text, &folder), &["inactive for 2 s", "`timeout`"]);
        expect_gone(read_pid(&folder.at("child")));
        fs::remove_file(folder.at("child")).unwrap();
    }
}

#[test]
fn processes_that_a_program_leaves_running_end_with_it() {
    let folder = with_log(100);
    let text = stage_pipeline(r#"["sh", "-c", "sleep 1000 & echo $! > child; cat"]"#);
    allowed(&text, &folder, 2).unwrap();
    expect_gone(read_pid(&folder.at("child")));
    assert!(folder.read("out.lcm") == folder.read("in.lcm"));
}

#[test]
fn when_a_run_fails_elsewhere_its_programs_end() {
    let folder = with_log(9000);
    stream(&folder);
    // The program of the source runs forever; that of the sink fails.
    let text = r#"
[sources.prog]
plugin = "exec"
folder = "${DIR}"
command = ["sh", "-c", "sleep 1000 & echo $! > child; head -c -8 in.arrows; wait"]
timeout = 0
[sources.log]
plugin = "lcm-log"
path = "${DIR}/in.lcm"
[sinks.bad]
plugin = "exec"
from = "log"
command = ["sh", "-c", "until test -s $0/child; do :; done; exit 5", "${DIR}"]
[sinks.none]
plugin = "null"
from = "prog"
"#;
    assert_contains(&failure(text, &folder), &["failed with exit code 5"]);
    expect_gone(read_pid(&folder.at("child")));
}

#[test]
fn ctrl_c_ends_a_source_and_all_it_started() {
    let folder = Folder::new();
    let run = start_and_wait_for_child(&folder, &source_pipeline(HANGS, "timeout = 0"));
    signal(&run, Signal::INT);
    let ended = ProgramOutput::from_output(run.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    expect_gone(read_pid(&folder.at("child")));
}

#[test]
fn the_second_ctrl_c_ends_stages_and_sinks_that_do_not_answer() {
    for text in [
        stage_pipeline(HANGS).replace("folder =", "timeout = 0\nfolder ="),
        sink_pipeline(HANGS, "timeout = 0"),
    ] {
        let folder = with_log(9000);
        let run = start_and_wait_for_child(&folder, &text);
        signal(&run, Signal::INT);
        // Pending signals of one kind are merged.
        let begun = Instant::now();
        let mut run = run;
        while run.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(60) {
            signal(&run, Signal::INT);
            std::thread::yield_now();
        }
        let ended = ProgramOutput::from_output(run.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        expect_gone(read_pid(&folder.at("child")));
        assert!(!folder.at("out.lcm").exists());
    }
}

#[test]
fn signals_that_end_cat_end_its_program_too() {
    let command = format!("command={}", HANGS.replace("wait\"", "wait\", \"{input}\""));
    let signals = [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1), (Signal::QUIT, 3)];
    for (name, number) in signals.into_iter().filter(|(name, _)| !is_ignored(*name)) {
        let folder = with_log(10);
        let cat = ["cat", "in.lcm", "--from", "exec", "--source-option", &command, "--allow-exec"];
        let run = started(&folder, &cat);
        signal(&run, name);
        let ended = run.wait_with_output().unwrap();
        assert_eq!(ended.status.signal(), Some(number));
        expect_gone(read_pid(&folder.at("child")));
    }
}

#[test]
fn a_closed_terminal_ends_a_run_as_ctrl_c_does() {
    if is_ignored(Signal::HUP) {
        return;
    }
    let folder = Folder::new();
    let run = start_and_wait_for_child(&folder, &source_pipeline(HANGS, "timeout = 0"));
    // From the terminal and from its shell: the second signal must not abort the orderly end.
    signal(&run, Signal::HUP);
    signal(&run, Signal::HUP);
    let ended = ProgramOutput::from_output(run.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    expect_gone(read_pid(&folder.at("child")));
    assert!(folder.names().iter().all(|name| !name.contains("sluice-tmp")));
}

#[test]
fn a_run_that_is_quit_leaves_no_program() {
    if is_ignored(Signal::QUIT) {
        return;
    }
    let folder = Folder::new();
    let run = start_and_wait_for_child(&folder, &source_pipeline(HANGS, "timeout = 0"));
    signal(&run, Signal::QUIT);
    assert_eq!(run.wait_with_output().unwrap().status.signal(), Some(3));
    expect_gone(read_pid(&folder.at("child")));
}

#[test]
fn cat_shows_the_messages_of_programs() {
    let folder = with_log(10);
    stream(&folder);
    let command = r#"command=["sh", "-c", "echo here we go >&2; cat $0", "{input}"]"#;
    let cat = ["cat", "in.arrows", "--from", "exec", "--source-option", command, "--allow-exec"];
    let ran = run_sluice(&folder, &cat).expect(0).expect_stderr("here we go");
    assert_eq!(ran.text().lines().count(), 10);
}

#[test]
fn a_batch_shows_the_messages_of_its_programs() {
    let folder = with_log(10);
    folder.write("other.lcm", folder.read("in.lcm"));
    let text = stage_pipeline(r#"["sh", "-c", "echo here we go >&2; cat"]"#);
    folder.write("p.toml", text.replace("in.lcm", "*.lcm").replace("out.lcm", "out/{name}"));
    let dir = format!("DIR={}", folder.path().display());
    let ran = run_sluice(&folder, &["run", "p.toml", "--set", &dir, "--allow-exec"]).expect(0);
    assert_eq!(ran.stderr.matches("prog: here we go").count(), 2, "{}", ran.stderr);
}

/// Writes the folder's log as an Arrow stream, and the offset of its events: after the schema,
/// whose length is in the second word.
fn stream_in_parts(folder: &Folder) {
    stream(folder);
    let bytes = folder.read("in.arrows");
    let schema = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
    folder.write("schema", format!("{}", schema + 8 + 1));
}

/// A pipeline that keeps the first five events of this command.
fn first_of(command: &str) -> String {
    stage_pipeline(command).replace(
        "[sinks.out]\nplugin = \"lcm-log\"\nfrom = \"prog\"",
        "[stages.first]\nplugin = \"limit\"\nfrom = \"prog\"\nevents = 5\n\
         [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"first\"",
    )
}

/// A command that writes the same events forever, once its input has started.
const ENDLESS: &str = r#"["sh", "-c", "sleep 1000 & echo $! > child; head -c -8 in.arrows > all; head -c 1024 > none; cat all; at=$(cat schema); while tail -c +$at all; do :; done"]"#;

#[test]
fn a_stage_that_continues_although_no_more_is_wanted_is_ended() {
    let folder = with_log(9000);
    stream_in_parts(&folder);
    let report = allowed(&first_of(ENDLESS), &folder, 2).unwrap();
    let expected = events(&folder.read("in.lcm"));
    assert!(events(&folder.read("out.lcm")) == expected[..5]);
    assert!(report.notes.iter().any(|note| note.what.contains("no node reads")));
    expect_gone(read_pid(&folder.at("child")));
}

#[test]
fn a_finished_stage_does_not_block_others() {
    let folder = with_log(9000);
    stream_in_parts(&folder);
    let all = "[sinks.all]\nplugin = \"lcm-log\"\nfrom = \"log\"\npath = \"${DIR}/all.lcm\"\n";
    allowed(&(first_of(ENDLESS) + all), &folder, 2).unwrap();
    assert_eq!(events(&folder.read("out.lcm")).len(), 5);
    assert!(folder.read("all.lcm") == folder.read("in.lcm"));
    expect_gone(read_pid(&folder.at("child")));
}

/// A command that writes a few events repeatedly, slowly.
const SLOW: &str = r#"["sh", "-c", "sleep 1000 & echo $! > child; head -c -8 in.arrows > all; cat all; at=$(cat schema); while sleep 0.02; do tail -c +$at all; done"]"#;

#[test]
fn a_slow_stage_that_continues_is_ended_too() {
    let folder = with_log(20);
    stream_in_parts(&folder);
    allowed(&first_of(SLOW), &folder, 2).unwrap();
    assert_eq!(events(&folder.read("out.lcm")).len(), 5);
    expect_gone(read_pid(&folder.at("child")));
}

#[test]
fn a_stage_may_finish_although_no_more_is_wanted() {
    let folder = with_log(9000);
    let text = first_of(r#"["sh", "-c", "cat; echo whole > whole"]"#);
    allowed(&text, &folder, 2).unwrap();
    assert_eq!(events(&folder.read("out.lcm")).len(), 5);
    assert_eq!(folder.read("whole"), b"whole\n");
}

#[test]
fn a_child_of_a_sink_program_may_print_after_the_program_ended() {
    let folder = with_log(500);
    // It prints after its parent is gone.
    let command = r#"["sh", "-c", "cat > raw; p=$$$$; (while kill -0 $p && ! grep -q 'State:.Z' /proc/$p/status; do :; done 2> none; echo summary) &"]"#;
    allowed(&sink_pipeline(command, r#"path = "${DIR}/out.txt""#), &folder, 2).unwrap();
    assert_eq!(folder.read("out.txt"), b"summary\n");
}

#[test]
fn a_child_of_a_sink_program_may_not_keep_its_output_open() {
    let folder = with_log(10);
    let command = r#"["sh", "-c", "cat > raw; sleep 1000 & echo $! > child"]"#;
    let message =
        failure(&sink_pipeline(command, "path = \"${DIR}/out.txt\"\ntimeout = \"2s\""), &folder);
    assert_contains(&message, &["a child of it kept its output open", "`timeout`"]);
    expect_gone(read_pid(&folder.at("child")));
}

#[test]
fn a_sink_may_do_without_the_mark_that_ends_its_events() {
    let folder = with_log(3);
    stream(&folder);
    let events = folder.read("in.arrows").len() - 8;
    let command = format!(r#"["head", "-c", "{events}"]"#);
    for _ in 0..25 {
        allowed(&sink_pipeline(&command, r#"path = "${DIR}/out.arrows""#), &folder, 2).unwrap();
        assert!(folder.read("out.arrows").len() == events);
    }
    fs::remove_file(folder.at("out.arrows")).unwrap();
    let command = format!(r#"["head", "-c", "{}"]"#, events - 1);
    assert_contains(
        &failure(&sink_pipeline(&command, r#"path = "${DIR}/out.arrows""#), &folder),
        &["all"],
    );
}

#[test]
fn a_program_that_says_how_far_it_is_is_at_work() {
    let folder = with_log(10);
    // More than the timeout.
    let command =
        r#"["sh", "-c", "cat > raw; for n in 1 2 3 4 5 6 7; do sleep 0.5; echo $n >&2; done"]"#;
    allowed(&sink_pipeline(command, "timeout = \"3s\""), &folder, 2).unwrap();
}

#[test]
fn names_of_programs_are_escaped_for_terminals() {
    let folder = with_log(10);
    let long = "x".repeat(5000);
    for command in ["false", "no-such-program-here"] {
        let text = sink_pipeline(&format!(r#"["{command}", "\u001b[31mred", "{long}"]"#), "");
        let message = failure(&text, &folder);
        assert_contains(&message, &["\\u{1b}[31mred"]);
        assert!(message.len() < 1500 && !message.contains('\u{1b}'), "{message}");
    }
}

#[test]
fn programs_have_the_usual_limit_of_open_files() {
    let folder = with_log(10);
    folder.write("p.toml", sink_pipeline(r#"["sh", "-c", "cat > raw; ulimit -Sn > files"]"#, ""));
    let dir = format!("DIR={}", folder.path().display());
    let mut command = std::process::Command::new("sh");
    let program = sluice(&folder).get_program().to_owned();
    command.args(["-c", "ulimit -Sn 512; exec \"$0\" \"$@\""]).arg(program);
    command.args(["run", "p.toml", "--set", &dir, "--allow-exec"]).current_dir(folder.path());
    assert!(command.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    assert_eq!(folder.read("files"), b"512\n");
}
