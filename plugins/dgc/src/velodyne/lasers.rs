//! Laser tables: how each laser of a sensor was found to look and to measure, as CSV. Knows no packet.

use std::path::Path;

use sluice_core::{Error, files};

use super::model::Model;

/// What a table says of one laser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Laser {
    /// Radians from the head's direction, counter-clockwise.
    pub(super) turn: f64,
    /// Radians above the level.
    pub(super) rise: f64,
    /// Metres that it lies in front of the head's axis, to be taken off.
    pub(super) ahead: f64,
    /// Metres that its ranges are too short.
    pub(super) range_offset: f64,
    /// How much longer its ranges are, in parts of them.
    pub(super) range_scale: f64,
}

/// The columns that a table must have, in the order in which [`Laser`] has them, after the number.
const COLUMNS: [&str; 6] =
    ["physical_laser", "rcf_rad", "vcf_rad", "hcf_m", "range_offset_m", "range_scale_offset"];
/// How far numbers may lie from zero, column by column; what lies beyond is a slip.
const MOST: [f64; 6] = [f64::INFINITY, 6.3, 1.6, 10.0, 100.0, 1.0];
/// No table is as long.
const LONGEST: usize = 1 << 20;

/// The text of the table at `path`.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    let bytes = files::head(path, LONGEST + 1)?;
    let wrong = |what| Error::invalid(format!("{what}: {}", path.display()));
    if bytes.len() > LONGEST {
        return Err(wrong("no laser table is longer than a megabyte"));
    }
    String::from_utf8(bytes).map_err(|_| wrong("a laser table is text, and this is none"))
}

/// The lasers of a table, by number. `Err` says where it is wrong and what is expected there.
pub(super) fn parse(text: &str, model: Model) -> Result<Vec<Laser>, String> {
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| e.to_string())?.clone();
    let places = COLUMNS.map(|name| header.iter().position(|column| column == name));
    let missing = COLUMNS.iter().zip(&places).find(|(_, place)| place.is_none());
    if let Some((name, _)) = missing {
        return Err(format!("line 1: a column `{name}` is needed; it has {}", list(&header)));
    }
    let places = places.map(Option::unwrap_or_default);
    let mut lasers: Vec<Option<(Laser, u64)>> = vec![None; model.lasers()];
    for row in reader.records() {
        let row = row.map_err(|e| e.to_string())?;
        let line = row.position().map_or(0, csv::Position::line);
        let (number, laser) = laser(&row, line, &places, model)?;
        if let Some((_, first)) = lasers[number].replace((laser, line)) {
            return Err(format!("line {line}: laser {number} stands in line {first} already"));
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

fn list(header: &csv::StringRecord) -> String {
    let names: Vec<String> = header.iter().take(16).map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The laser of a row, and its number.
fn laser(
    row: &csv::StringRecord,
    line: u64,
    places: &[usize; 6],
    model: Model,
) -> Result<(usize, Laser), String> {
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
        let most = MOST[column];
        let value = text(column).parse().ok().filter(|value: &f64| value.abs() <= most);
        value.ok_or_else(|| wrong(column, &format!("a number from {} to {most}", -most)))
    };
    let laser = Laser {
        turn: value(1)?,
        rise: value(2)?,
        ahead: value(3)?,
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
    fn every_built_in_table_is_whole() {
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
        let wanted =
            Laser { turn: 0.0, rise: 0.5, ahead: 5.0, range_offset: 0.125, range_scale: -0.25 };
        assert!(lasers.iter().all(|laser| *laser == wanted));
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
        assert_eq!(refusal("3,0,0,0,0,0\n3,0,0,0,0,0"), "line 3: laser 3 stands in line 2 already");
        assert_eq!(refusal("0,0,0,0,0,0"), "laser 1 is missing: a table of the vlp-16 has 16");
        let no_column = parse("a,b\n", Model::Vlp16).unwrap_err();
        assert_eq!(no_column, "line 1: a column `physical_laser` is needed; it has `a`, `b`");
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
