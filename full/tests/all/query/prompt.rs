//! Statements on standard input, and the prompt in a terminal.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{drive, info, run_with_stdin};
use crate::kit::{
    BEGIN, Folder, LcmEvent, ProgramOutput, log, report_skip, root, run_sluice, sluice,
};

#[test]
fn each_query_sees_what_was_appended_to_a_log() {
    let folder = Folder::new();
    let mut events = vec![LcmEvent::new(0, BEGIN, "A", b"a")];
    folder.write("day.lcm", log(&events));
    let mut command = sluice(&folder);
    command.args(["query", "day.lcm", "--format", "csv"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().map(BufReader::new));
    let mut send = |message: &str, lines: usize| {
        to.write_all(message.as_bytes()).unwrap();
        let mut text = String::new();
        for _ in 0..lines {
            from.as_mut().unwrap().read_line(&mut text).unwrap();
        }
        text
    };
    assert_eq!(send(".tables\n", 2), "day\nday.A\n");
    assert_eq!(send("select count(*) as n from day;\n", 2), "n\n1\n");
    events.push(LcmEvent::new(1, BEGIN, "B", b"b"));
    folder.write("day.lcm", log(&events));
    assert_eq!(send("select count(*) as n from day.B;\n", 2), "n\n1\n");
    assert_eq!(send(".tables\n", 3), "day\nday.A\nday.B\n");
    drop(to);
    assert!(child.wait().unwrap().success());
}

#[test]
fn statements_come_on_standard_input_or_in_a_file() {
    let folder = drive();
    let input = b"select 1 as a; select\n ';' as b;\n-- the end;\n.format csv\nselect 2 as c";
    let output = run_with_stdin(&folder, &["query", "drive.lcm"], input).expect(0);
    assert_eq!(output.text(), "a\n-\n1\n\nb\n-\n;\nc\n2\n");
    let output =
        run_with_stdin(&folder, &["query", "drive.lcm"], b"select 1 as a;\nselect b;\nselect 3;")
            .expect(2);
    assert_eq!(output.text(), "a\n-\n1\n");
    run_with_stdin(&folder, &["query", "drive.lcm"], b".nonsense\n")
        .expect(2)
        .expect_stderr(".help");
    let output = run_with_stdin(
        &folder,
        &["query", "drive.lcm", "--types", "mit-dgc"],
        b".tables\n.schema drive.POSE\n",
    );
    let text = output.expect(0).text();
    assert!(text.contains("\ndrive.POSE\n") && text.contains("utime"), "{text}");
    folder.write("two.sql", "select 1 as a;\nselect 2 as b;\n");
    let arguments = ["query", "--format", "csv", "-f", "two.sql", "drive.lcm"];
    assert_eq!(run_sluice(&folder, &arguments).expect(0).text(), "a\n1\nb\n2\n");
    let count = run_with_stdin(
        &folder,
        &["query", "--format", "csv", "-f", "-", "drive.lcm"],
        b"select 7 as n",
    );
    assert_eq!(count.expect(0).text(), "n\n7\n");
    let events = info(&folder, "drive.lcm")["events"].to_string();
    let log = folder.read("drive.lcm");
    let arguments =
        ["query", "select count(*) as n from stdin", "-", "--from", "lcm-log", "--format", "csv"];
    assert_eq!(
        run_with_stdin(&folder, &arguments, &log).expect(0).text(),
        format!("n\n{events}\n")
    );
}

/// The result of a program in a terminal, step by step.
fn in_terminal(folder: &Folder, arguments: &[&str], steps: &[Value]) -> Option<Value> {
    let has_pty = Command::new("python3").args(["-c", "import pty, termios"]).output();
    if !has_pty.is_ok_and(|output| output.status.success()) {
        report_skip("there is no python3 with pty, to press keys with");
        return None;
    }
    let mut command = Command::new("python3");
    command
        .args([Path::new("-B"), &root().join("tests/suite/terminal.py")])
        .arg(Value::from(steps.to_vec()).to_string())
        .arg(sluice(folder).get_program())
        .args(arguments)
        .current_dir(folder.path())
        .env("TERM", "xterm")
        .env("XDG_CACHE_HOME", folder.at("cache"))
        .env("XDG_STATE_HOME", folder.at("state"));
    let output = ProgramOutput::from_output(command.output().unwrap()).expect(0);
    let output: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output["failed"], Value::Null, "{}", output["output"]);
    assert_eq!(output["restored"], true, "{}", output["output"]);
    Some(output)
}

fn until(text: &str) -> Value {
    json!({ "until": text })
}

fn send(text: &str) -> Value {
    json!({ "send": text })
}

#[test]
fn a_prompt_runs_until_it_is_closed() {
    let folder = drive();
    let steps = [
        until("tables: drive;"),
        until("sluice> "),
        send("select count(*) as n\r"),
        send("from drive where channel = 'POSE';\r"),
        until("1 row in "),
        until("sluice> "),
        // Errors are shown, and the prompt continues.
        send("select nothing from drive;\r"),
        until("no column"),
        until("sluice> "),
        send(".sch\t drive\r"),
        until("sequence +Int64"),
        until("sluice> "),
        // Ctrl-C discards a line.
        send("select rubbish\u{3}"),
        until("sluice> "),
        send(".to out.csv\r"),
        until("sluice> "),
        send("select seq\t from dri\t limit 2;\r"),
        until("2 rows in .*out.csv"),
        until("sluice> "),
        send("\u{4}"),
    ];
    let Some(output) = in_terminal(&folder, &["query", "drive.lcm"], &steps) else { return };
    assert_eq!(output["code"], 0, "{}", output["output"]);
    assert_eq!(folder.read("out.csv"), b"sequence\n0\n1\n");
    let history = String::from_utf8(folder.read("state/sluice/query_history")).unwrap();
    assert!(history.contains("from drive where channel") && history.contains(".to out.csv"));
}

#[test]
fn lines_that_arrive_together_are_executed_one_after_another() {
    let folder = drive();
    for end in ["\n", "\r"] {
        let lines = [
            "select 100 + 11 as a;",
            "select 200 + 22",
            "as b; select 300 + 33 as c;",
            ".format csv",
            "select 'la' || 'st' as d;",
        ];
        let steps = [
            until("sluice> "),
            send(&lines.map(|line| format!("{line}{end}")).concat()),
            until(r"(?s)\b111\b.*\b222\b.*\b333\b.*\blast\b.*sluice> "),
            send(".quit\r"),
        ];
        let Some(output) = in_terminal(&folder, &["query", "drive.lcm"], &steps) else { return };
        assert_eq!(output["code"], 0, "{}", output["output"]);
    }
}

#[test]
fn ctrl_c_stops_a_query_but_not_the_prompt() {
    let folder = drive();
    let endless = "with recursive n as (select 1 as x union all select x + 1 from n) \
                   select count(*) from n where x < 0;\r";
    let steps = [
        until("sluice> "),
        send(endless),
        // When the editor has returned the line.
        until("x < 0;.*2004l"),
        // The terminal is in cooked mode while the query runs: Ctrl-C is a signal.
        json!({ "signal": 2 }),
        until("aborted"),
        until("sluice> "),
        send("select 40 + 2 as answer;\r"),
        until("42"),
        until("sluice> "),
        send(".quit\r"),
    ];
    let Some(output) = in_terminal(&folder, &["query", "drive.lcm"], &steps) else { return };
    assert_eq!(output["code"], 0, "{}", output["output"]);
}

#[test]
fn a_table_fits_the_terminal_and_names_hidden_columns() {
    let folder = drive();
    let wide: Vec<String> = (0..30).map(|n| format!("channel as column_{n}")).collect();
    let query = format!("select {} from drive limit 3", wide.join(", "));
    let Some(output) = in_terminal(&folder, &["query", &query, "drive.lcm"], &[]) else { return };
    let output = output["output"].as_str().unwrap();
    assert!(output.lines().take(5).all(|line| line.trim_end().chars().count() <= 110), "{output}");
    assert!(output.contains("the terminal is too narrow for 21 columns"), "{output}");
    let query = "select sequence from drive";
    let Some(output) = in_terminal(&folder, &["query", query, "drive.lcm"], &[]) else { return };
    let output = output["output"].as_str().unwrap();
    assert!(output.contains("the first 1,000 of "), "{output:.500}");
    let refused = ["query", "select 1", "--to", "-", "--format", "arrow"];
    let Some(output) = in_terminal(&folder, &refused, &[]) else { return };
    assert_eq!(output["code"], 1, "{output}");
}
