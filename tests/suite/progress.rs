//! Progress on a terminal: with unknown sizes, and that nothing of it remains.

use serde_json::{Value, json};
use sluice_io::escape::is_unprintable;

use crate::kit::{BEGIN, Folder, LcmEvent, log, run_sluice, sluice};
use crate::playing::Session;

/// A demo drive longer than any test.
const ENDLESS: &str = "[sources.drive]\nplugin = \"demo\"\nseconds = 360000\n\
    [sinks.none]\nplugin = \"null\"\nfrom = \"drive\"\n";

/// The columns of the terminal that sessions run in.
const COLUMNS: usize = 110;

/// The screen of a terminal after this output.
fn screen(output: &str) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![Vec::<char>::new()], 0, 0);
    let mut rest = output.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\x1b' if rest.peek() == Some(&'[') => {
                let mut sequence = String::new();
                for c in rest.by_ref() {
                    sequence.push(c);
                    if c.is_ascii_alphabetic() {
                        break;
                    }
                }
                // A bar of one line only clears the line.
                if ["[K", "[2K"].contains(&sequence.as_str()) {
                    lines[row].clear();
                }
            }
            c => {
                // The cursor stays after the last column until another character is written.
                if column == COLUMNS {
                    (row, column) = (row + 1, 0);
                }
                while lines.len() <= row {
                    lines.push(Vec::new());
                }
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        while lines.len() <= row {
            lines.push(Vec::new());
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}

#[test]
fn generated_events_show_counts_and_time_and_no_bar_after_an_interrupt() {
    let folder = Folder::new();
    folder.write("endless.toml", ENDLESS);
    let mut command = sluice(&folder);
    command.args(["run", "endless.toml"]);
    let steps = [
        json!({ "until": r"%, [0-9,]+ events, [0-9,]+ events/s, [0-9hms:]+, .* left" }),
        json!({ "send": "\u{3}" }),
    ];
    let Some(session) = Session::run(&command, &steps) else { return };
    session.expect(130);
    let output = session.output();
    let bar = output.split("warning:").next().unwrap();
    assert!(!bar.contains(" of 1") && !bar.contains("B/s"), "{output}");
    let screen = screen(output);
    assert!(screen.iter().any(|line| line.contains("stopping")), "{screen:#?}");
    assert!(
        !screen.iter().any(|line| line.contains(" left") || line.contains("=>")),
        "{screen:#?}"
    );
}

#[test]
fn progress_lines_of_generated_events_have_no_bytes() {
    let folder = Folder::new();
    folder.write("endless.toml", ENDLESS.replace("360000", "1"));
    let ran =
        crate::kit::run_sluice(&folder, &["run", "endless.toml", "--progress", "json"]).expect(0);
    let last: Value = serde_json::from_str(ran.stderr.lines().next_back().unwrap()).unwrap();
    assert_eq!((&last["bytes"], &last["done"]), (&last["total_bytes"], &true.into()));
}

#[test]
fn the_total_of_compressed_inputs_is_the_length_of_their_files() {
    let folder = Folder::new();
    let event = |n: i64| LcmEvent::new(n, BEGIN + n, ["A", "B"][n as usize % 2], &[b'x'; 2000]);
    folder.write("in.lcm", log(&(1..6000).map(event).collect::<Vec<_>>()));
    let convert = |input: &str, to: &str, more: &[&str]| {
        let arguments = ["convert", input, "--to", to, "--overwrite"];
        run_sluice(&folder, &[&arguments[..], more].concat()).expect(0)
    };
    let tables = ["A", "B"].map(|name| format!("tables/channel={name}/part-00000.parquet"));
    for (log, files) in [("in.mcap", &["in.mcap".to_owned()][..]), ("tables/", &tables)] {
        convert("in.lcm", log, &[]);
        let ran = convert(log, "out.lcm", &["--progress", "json"]);
        let last: Value = serde_json::from_str(ran.stderr.lines().next_back().unwrap()).unwrap();
        let bytes: usize = files.iter().map(|file| folder.read(file).len()).sum();
        assert_eq!(last["total_bytes"], bytes, "{log}");
    }
}

#[test]
fn notes_warnings_and_errors_have_colours_of_their_own() {
    let folder = Folder::new();
    folder.write("torn.lcm", [&[0; 20][..], b"no log"].concat());
    let colored = |arguments: &[&str]| {
        crate::kit::run_sluice(&folder, &[arguments, &["--color", "always"][..]].concat()).stderr
    };
    let convert = ["convert", "torn.lcm", "--to", "a.lcm", "--from", "lcm-log"];
    assert!(colored(&convert).contains("\u{1b}[33mwarning:\u{1b}[0m "));
    let missing = colored(&["cat", "missing.lcm"]);
    assert!(missing.contains("\u{1b}[1;31merror:\u{1b}[0m "), "{missing}");
}

#[test]
fn a_terminal_gets_data_without_a_bar_and_without_characters_that_control_it() {
    let folder = Folder::new();
    let names = ["\u{1b}[31mRED\u{1b}]0;title\u{7}", "c1\u{9b}31mX", "rtl\u{202e}abc", "del\u{7f}"];
    let events = names.iter().zip(1..).map(|(name, n)| LcmEvent::new(n, BEGIN + n, name, b"x"));
    folder.write("esc.lcm", log(&events.collect::<Vec<_>>()));
    let to_stdout = |form| ["convert", "esc.lcm", "--to", "-", "--as", form];
    let to_terminal = ["convert", "esc.lcm", "--to", "/dev/tty", "--as", "csv"];
    let report = ["report", "esc.lcm", "--json"];
    for arguments in [&to_stdout("csv")[..], &to_stdout("jsonl"), &to_terminal, &report] {
        let mut command = sluice(&folder);
        command.args(arguments).args(["--color", "never"]);
        let Some(session) = Session::run(&command, &[]) else { return };
        let shown = session.expect(0).output();
        let is_control = |c: char| is_unprintable(c) && !matches!(c, '\r' | '\n');
        assert!(!shown.contains(is_control), "{arguments:?}: {shown:?}");
        assert!(shown.contains("RED") && !shown.contains(" left"), "{arguments:?}: {shown:?}");
    }
    // Files and pipes have them as they are, and figures as JSON writes them.
    let piped = run_sluice(&folder, &to_stdout("csv")).expect(0).text();
    run_sluice(&folder, &["convert", "esc.lcm", "--to", "esc.csv"]).expect(0);
    assert_eq!(piped.as_bytes(), folder.read("esc.csv"));
    assert!(names.iter().all(|name| piped.contains(name)), "{piped:?}");
    let figures = run_sluice(&folder, &["report", "esc.lcm", "--json"]).expect(0).text();
    assert!(!figures.trim_end().contains(is_unprintable), "{figures:?}");
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert!(figures.to_string().contains(names[1]), "{figures}");
}
