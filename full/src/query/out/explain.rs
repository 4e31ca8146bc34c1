//! Writes the result of EXPLAIN for people: every line of a plan, uncut.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use sluice_io::escape::printable;
use sluice_model::{Error, OutputFile};

use super::RowWriter;
use super::cells::{Binary, Cells};

pub(super) struct PlanWriter {
    file: OutputFile,
    out: String,
}

/// Whether these are the columns of EXPLAIN.
pub(super) fn is_plan(schema: &SchemaRef) -> bool {
    schema.fields().iter().map(|field| field.name().as_str()).eq(["plan_type", "plan"])
}

impl PlanWriter {
    pub(super) fn new(file: OutputFile, separator: &str) -> Self {
        Self { file, out: separator.to_owned() }
    }
}

impl RowWriter for PlanWriter {
    fn append(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let cells = rows.columns().iter().map(|column| Cells::new(column, Binary::Preview));
        let cells: Vec<Cells> = cells.collect::<Result<_, _>>()?;
        let formatters: Vec<_> = cells.iter().map(Cells::formatter).collect::<Result<_, _>>()?;
        let [kind, plan] = formatters.as_slice() else { return Ok(()) };
        for row in 0..rows.num_rows() {
            let text = |format: &dyn Fn(usize, &mut Vec<u8>)| {
                let mut text = Vec::new();
                format(row, &mut text);
                String::from_utf8_lossy(&text).into_owned()
            };
            self.out += &format!("{}\n", printable(&text(kind)));
            for line in text(plan).lines() {
                self.out += &format!("  {}\n", printable(line));
            }
        }
        self.file.write(self.out.as_bytes())?;
        self.out.clear();
        Ok(())
    }

    fn finish(self: Box<Self>, count: u64) -> Result<Vec<String>, Error> {
        self.file.finish(count)?;
        Ok(Vec::new())
    }
}
