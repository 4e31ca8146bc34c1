//! What ORDER BY cannot sort by.

use super::{answers, refused};

#[test]
fn constants_in_order_by_are_refused_except_places_of_columns() {
    for constant in ["3.0", "1.5", "1e0", "-1", "'n'", "NULL", "true", "(1)", "(-'n')"] {
        for sql in [
            format!("select n from t order by {constant}"),
            format!("select n from t order by n, {constant} desc"),
            format!("select 1 union select n from t order by {constant}"),
            format!("select * from (select n from t order by {constant} limit 1)"),
            format!("from t |> order by {constant}"),
        ] {
            refused(&sql, &format!("`{constant}` in ORDER BY is a constant"));
        }
    }
    refused("select n from t order by 0", "starts at 1");
    answers("select n from t order by 1 desc", &["4", "3", "2", "1"]);
    answers("select n from t order by \"n\" desc limit 1", &["4"]);
    answers("select row_number() over (order by null) from t limit 1", &["1"]);
}
