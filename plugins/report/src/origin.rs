//! Where the events of a report come from: inputs, their damage, and the pipeline. Folders are left
//! out, so that the same log gives the same report on any machine.

use std::path::{MAIN_SEPARATOR, Path};

use sluice_io::escape::printable;
use sluice_model::RunOrigin;

use crate::{InputFigures, Provenance};

/// The inputs of a run. Waits for their hashes.
pub(crate) fn inputs(origin: &RunOrigin) -> Vec<InputFigures> {
    let each = origin.inputs.iter().map(|input| InputFigures {
        name: file_name(&input.path.to_string_lossy()).to_owned(),
        bytes: input.bytes,
        blake3: input.blake3.wait().clone(),
        ..InputFigures::default()
    });
    each.collect()
}

/// How a run made its report.
pub(crate) fn provenance(origin: &RunOrigin, title: Option<String>) -> Provenance {
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: origin.name.clone(),
        title,
        pipeline: without_folders(&origin.pipeline),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit([MAIN_SEPARATOR, '/']).find(|part| !part.is_empty()).unwrap_or(path)
}

/// A pipeline file whose absolute paths are only file names.
fn without_folders(pipeline: &str) -> String {
    // A pipeline is written by the program itself.
    let Ok(mut table) = pipeline.parse::<toml::Table>() else { return String::new() };
    shorten(&mut table);
    printable_lines(&table.to_string())
}

fn printable_lines(text: &str) -> String {
    text.lines().map(|line| printable(line).into_owned() + "\n").collect()
}

/// Options whose values are paths.
const PATHS: [&str; 6] = ["path", "types", "files", "folder", "calibration", "expect"];

fn shorten(table: &mut toml::Table) {
    for (key, value) in table.iter_mut() {
        shorten_value(value, PATHS.contains(&key.as_str()));
    }
}

fn shorten_value(value: &mut toml::Value, is_path: bool) {
    match value {
        toml::Value::String(text) if is_path && Path::new(text).is_absolute() => {
            *text = file_name(text).to_owned();
        }
        toml::Value::Array(values) => {
            values.iter_mut().for_each(|value| shorten_value(value, is_path));
        }
        toml::Value::Table(table) => shorten(table),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_have_file_names_only() {
        let pipeline = "[sources.log]\npath = [\"/data/drive/a.lcm\", \"b/c.lcm\"]\n\
                        [stages.s]\nchannels = [\"/odom\"]\n";
        let expected = "[sources.log]\npath = [\"a.lcm\", \"b/c.lcm\"]\n\n\
                        [stages.s]\nchannels = [\"/odom\"]\n";
        assert_eq!(without_folders(pipeline), expected);
    }
}
