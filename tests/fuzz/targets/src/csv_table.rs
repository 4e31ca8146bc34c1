//! Tables of text, as the source `csv` reads them.

use serde_json::json;

use crate::{inputs, pieces};

/// Any bytes are a table or refused, with the options that the first byte selects; splits yield the
/// same as the whole, and damage lies in the file.
pub fn csv_table(bytes: &[u8]) {
    let Some((which, table)) = bytes.split_first() else { return };
    let path = inputs::file("table.csv", table);
    let mut options = json!({ "path": path, "max_row": 512 });
    let more = [
        json!({}),
        json!({ "delimiter": ";", "comment": "#", "skip": 1, "clock": "relative" }),
        json!({
            "header": false, "columns": ["t", "n", "x", "s"], "unit": "ms",
            "types": { "n": "i64", "s": "text" },
        }),
        json!({
            "channel_column": "c", "sequence": "n", "timestamp": "t", "unit": "us",
            "delimiter": "\t",
        }),
    ];
    for (key, value) in more[usize::from(which % 4)].as_object().into_iter().flatten() {
        options[key] = value.clone();
    }
    pieces::read(&*inputs::source("csv", options), table.len());
}
