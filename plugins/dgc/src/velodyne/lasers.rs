//! Laser tables: the calibration of each laser of a sensor, as CSV. Knows nothing of packets.

use std::path::Path;

use sluice_io::files;
use sluice_model::Error;

use super::model::Model;

/// The calibration of one laser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LaserCalibration {
    /// Angle from the head's direction, counter-clockwise, in radians.
    pub(super) rotation: f64,
    /// Elevation in radians.
    pub(super) elevation: f64,
    /// Horizontal offset in metres, subtracted along the head's direction.
    pub(super) horizontal_offset: f64,
    /// Range correction in metres, added to ranges.
    pub(super) range_offset: f64,
    /// Relative range correction.
    pub(super) range_scale: f64,
}

/// The required columns: the number, then the fields of [`LaserCalibration`] in order.
const COLUMNS: [&str; 6] =
    ["physical_laser", "rcf_rad", "vcf_rad", "hcf_m", "range_offset_m", "range_scale_offset"];
/// Maximum magnitude per column; larger values are mistakes.
const LIMITS: [f64; 6] = [f64::INFINITY, 6.3, 1.6, 10.0, 100.0, 1.0];
/// Longer tables are refused.
const MAX_TABLE_LEN: usize = 1 << 20;

/// The text of the table at `path`.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    let bytes = files::read_small(path, MAX_TABLE_LEN)?;
    let wrong = |what| Error::invalid(format!("{what}: {}", path.display()));
    if bytes.len() > MAX_TABLE_LEN {
        return Err(wrong("expected a laser table, found a file longer than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| wrong("expected a laser table as UTF-8 text"))
}

/// Parses a table into lasers by number. `Err` has the position of the mistake and what is
/// expected.
pub(super) fn parse(text: &str, model: Model) -> Result<Vec<LaserCalibration>, String> {
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| e.to_string())?.clone();
    let places = COLUMNS.map(|name| header.iter().position(|column| column == name));
    let missing = COLUMNS.iter().zip(&places).find(|(_, place)| place.is_none());
    if let Some((name, _)) = missing {
        return Err(format!("line 1: missing column `{name}`, found {}", column_list(&header)));
    }
    let places = places.map(Option::unwrap_or_default);
    let mut lasers: Vec<Option<(LaserCalibration, u64)>> = vec![None; model.lasers()];
    for row in reader.records() {
        let row = row.map_err(|e| e.to_string())?;
        let line = row.position().map_or(0, csv::Position::line);
        let (number, laser) = laser(&row, line, &places, model)?;
        if let Some((_, first)) = lasers[number].replace((laser, line)) {
            return Err(format!("line {line}: laser {number} is already in line {first}"));
        }
    }
    let found = lasers.iter().enumerate().map(|(number, laser)| {
        let laser = laser.map(|(laser, _)| laser);
        laser.ok_or_else(|| {
            format!(
                "laser {number} is missing: a table of the {} has {}",
                model.name(),
                model.lasers()
            )
        })
    });
    found.collect()
}

fn column_list(header: &csv::StringRecord) -> String {
    let names: Vec<String> = header.iter().take(16).map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The laser of a row, and its number.
fn laser(
    row: &csv::StringRecord,
    line: u64,
    places: &[usize; 6],
    model: Model,
) -> Result<(usize, LaserCalibration), String> {
    let wrong = |column: usize, expected: &str| {
        let (name, place) = (COLUMNS[column], places[column]);
        let found = match row.get(place) {
            Some(found) => format!("`{}`", found.chars().take(40).collect::<String>()),
            None => "nothing".to_owned(),
        };
        format!("line {line}, column {} (`{name}`): expected {expected}, found {found}", place + 1)
    };
    let text = |column: usize| row.get(places[column]).unwrap_or_default();
    let number = text(0).parse().ok().filter(|number| *number < model.lasers());
    let number =
        number.ok_or_else(|| wrong(0, &format!("a laser from 0 to {}", model.lasers() - 1)))?;
    let value = |column: usize| {
        let most = LIMITS[column];
        let value = text(column).parse().ok().filter(|value: &f64| value.abs() <= most);
        value.ok_or_else(|| wrong(column, &format!("a number from {} to {most}", -most)))
    };
    let laser = LaserCalibration {
        rotation: value(1)?,
        elevation: value(2)?,
        horizontal_offset: value(3)?,
        range_offset: value(4)?,
        range_scale: value(5)?,
    };
    Ok((number, laser))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = "physical_laser,rcf_rad,vcf_rad,hcf_m,range_offset_m,range_scale_offset";

    fn refusal(rows: &str) -> String {
        parse(&format!("{HEAD}\n{rows}"), Model::Vlp16).unwrap_err()
    }

    #[test]
    fn every_built_in_table_is_complete() {
        for model in [Model::Hdl64e, Model::Hdl32e, Model::Vlp16] {
            assert_eq!(parse(model.table(), model).unwrap().len(), model.lasers(), "{model:?}");
        }
    }

    #[test]
    fn columns_are_found_by_name() {
        let rows: String = (0..16).map(|n| format!("5,0.5,{n},0,-0.25,x,0.125\n")).collect();
        let text = format!(
            "hcf_m,vcf_rad,physical_laser,rcf_rad,range_scale_offset,note,range_offset_m\n{rows}"
        );
        let lasers = parse(&text, Model::Vlp16).unwrap();
        let expected = LaserCalibration {
            rotation: 0.0,
            elevation: 0.5,
            horizontal_offset: 5.0,
            range_offset: 0.125,
            range_scale: -0.25,
        };
        assert!(lasers.iter().all(|laser| *laser == expected));
    }

    #[test]
    fn mistakes_say_line_and_column() {
        let refused = refusal("0,0,0,0,0,0\n1,0,steep,0,0,0\n");
        assert_eq!(
            refused,
            "line 3, column 3 (`vcf_rad`): expected a number from -1.6 to 1.6, found `steep`"
        );
        assert!(
            refusal("16,0,0,0,0,0")
                .contains("line 2, column 1 (`physical_laser`): expected a laser from 0 to 15")
        );
        assert!(
            refusal("0,0,0")
                .contains("column 4 (`hcf_m`): expected a number from -10 to 10, found nothing")
        );
        assert!(refusal("0,0,0,0,nan,0").contains("column 5"));
        assert_eq!(refusal("3,0,0,0,0,0\n3,0,0,0,0,0"), "line 3: laser 3 is already in line 2");
        assert_eq!(refusal("0,0,0,0,0,0"), "laser 1 is missing: a table of the vlp-16 has 16");
        let no_column = parse("a,b\n", Model::Vlp16).unwrap_err();
        assert_eq!(no_column, "line 1: missing column `physical_laser`, found `a`, `b`");
    }

    proptest! {
        #[test]
        fn any_text_is_a_table_or_a_mistake(text in "[ -~\n\"]{0,200}") {
            for text in [text.clone(), format!("{HEAD}\n{text}")] {
                if let Err(mistake) = parse(&text, Model::Hdl32e) {
                    prop_assert!(!mistake.is_empty());
                }
            }
        }
    }
}
