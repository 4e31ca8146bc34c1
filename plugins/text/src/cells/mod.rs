//! Source `csv`: reads tables of text. Each row is an event, each column a field.
//!
//! The syntax is RFC 4180. Types of columns are guessed from the first rows unless options give
//! them; a row with a cell of another type is damage.

mod advice;
mod cell_type;
mod columns;
mod options;
mod reader;
mod scan;

use serde_json::Value;
use sluice_io::files::{self, InputContent};
use sluice_model::{
    Error, Input, OptionsError, PluginFactory, Query, ReadContext, Reader, Registry, Source, Split,
    SplitStart, options as core_options,
};

use options::CsvSource;

use reader::CellReader;

sluice_model::register! {
    source "csv": CsvSource,
    make: PluginFactory::Source(make),
    about: "reads tables of text with typed columns, one row per event",
    sample: include_str!("../../samples/csv-source.toml"),
    extensions: &["csv"],
}

fn make(options: Value, _: &Registry) -> Result<Box<dyn Source>, OptionsError> {
    let source: CsvSource = core_options::read(options)?;
    if !source.header && source.columns.is_none() {
        let columns = advice::text_setting("columns", "t,x,y");
        let what = format!("without a header, `columns` has to name all columns, as in {columns}");
        return Err(OptionsError::at("header", what));
    }
    if source.channel.is_some() && source.channel_column.is_some() {
        let what = "expected either `channel` or `channel_column`, found both";
        return Err(OptionsError::at("channel_column", what));
    }
    Ok(Box::new(source))
}

impl Source for CsvSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        files::expand(&self.path.0)
    }

    fn has_own_rows(&self) -> bool {
        true
    }

    fn splits(&self, target: u64, _: &Query) -> Result<Vec<Split>, Error> {
        let inputs = self.inputs()?;
        files::refuse_foreign(&inputs, InputContent::Marked, "a CSV file")?;
        Split::from_files(inputs, target, |_, len| Ok(0..len))
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(CellReader::open(self, split, entry, context)?))
    }
}

#[cfg(test)]
mod tests;
