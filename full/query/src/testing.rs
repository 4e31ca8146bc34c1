//! Runs the queries of tests.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow_schema::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

use crate::session::{Session, SessionOptions};

/// The cells of the result as they are printed, row by row, or the message.
pub(crate) fn printed_rows(sql: &str, options: SessionOptions) -> Result<Vec<Vec<String>>, String> {
    let session = Session::new(options).unwrap();
    let format = FormatOptions::default();
    let mut rows = Vec::new();
    let ended = session.run(sql, &AtomicBool::new(false), &mut |batch| {
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &format));
        let columns: Vec<_> = columns.collect::<Result<_, _>>().unwrap();
        let row = |row| columns.iter().map(|column| column.value(row).to_string()).collect();
        rows.extend((0..batch.num_rows()).map(row));
        Ok(())
    });
    ended.map(|()| rows).map_err(|error| error.to_string())
}

/// `panic_on(x)`, which panics, as DataFusion does on some queries.
pub(crate) fn panic_on() -> Arc<ScalarUDF> {
    let (number, volatility) = (DataType::Float64, Volatility::Immutable);
    let panic = |_: &[ColumnarValue]| panic!("the function panics");
    Arc::new(create_udf("panic_on", vec![number.clone()], number, volatility, Arc::new(panic)))
}
