//! Queries that cannot be planned, or fail.

use serde_json::json;

use super::{StageRun, make, option_error, two_batches};

#[test]
fn a_query_that_datafusion_panics_on_ends_the_run() {
    let of_rows = "select timestamp, panic_on(v) as x from A";
    let of_all = "select channel, timestamp, panic_on(v) as x from A order by x";
    for options in [json!({ "query": of_rows }), json!({ "query": of_all, "memory": "16MiB" })] {
        let mut run = StageRun::from_options(options);
        let events = two_batches(&run);
        let error = run.all(events).unwrap_err().to_string();
        assert!(error.contains("panicked") && error.contains("in another way"), "{error}");
    }
}

#[test]
fn rows_of_many_events_need_a_time_and_a_channel() {
    let query = "select count(*) as n from events";
    let message = option_error(json!({ "query": query, "memory": "16MiB" }));
    assert!(message.contains("no column `timestamp`"), "{message}");
    let query = "select max(timestamp) as timestamp, count(*) as n from events";
    let message = option_error(json!({ "query": query, "memory": "16MiB" }));
    assert!(message.contains("no column `channel`"), "{message}");
}

#[test]
fn mistakes_in_known_columns_are_found_before_reading() {
    let message = option_error(json!({ "query": "select timestmp from events" }));
    assert!(
        message.contains("there is no column `timestmp`") && message.contains("`timestamp`"),
        "{message}"
    );
    let unnamed = "select timestamp, max(v) - min(v) from A group by timestamp";
    let tables = json!({ "A": "v double" });
    let options = json!({ "query": unnamed, "tables": tables, "memory": "16MiB" });
    assert!(option_error(options).contains("a computed column that has no name: `max(A.v)"));
    let declared = json!({ "query": "select w from A", "tables": { "A": "v double" } });
    assert!(option_error(declared).contains("there is no column `w`"));
    let twice = json!({ "query": "select sequence as n, sequence + 1 as n from events" });
    assert!(make(twice).is_err());
    let message =
        option_error(json!({ "query": "select 1 as timestamp, 'x' as sequence from events" }));
    assert!(message.contains("column `sequence`: expected an integer"), "{message}");
    for (tables, what) in [
        (json!({ "B": "v double" }), "tables.B: the query reads no table `B`"),
        (json!({ "A": "v dubble" }), "tables.A: "),
        (json!({ "A": "" }), "tables.A: "),
        (json!({ "A": "v double) as select 1 --" }), "tables.A: "),
        (json!({ "A": "v double, v int" }), "declared twice"),
    ] {
        let message = option_error(json!({ "query": "select v from A", "tables": tables }));
        assert!(message.contains(what), "{message}");
    }
    assert!(
        option_error(json!({ "query": "select v from A", "memory": "1KiB" }))
            .contains("too little")
    );
    assert!(
        option_error(json!({ "query": "select v from A", "quary": 1 })).contains("unknown field")
    );
}

#[test]
fn mistakes_in_discovered_columns_are_reported_with_the_query() {
    let mut run = StageRun::from_query("select w as x from A");
    let events = two_batches(&run);
    let message = run.all(events).unwrap_err().to_string();
    assert!(
        message.contains("the query `select w as x from A`") && message.contains("column `w`"),
        "{message}"
    );
}

#[test]
fn values_that_events_cannot_have_end_the_run() {
    for (query, what) in [
        ("select null::timestamp as timestamp, v from A", "column `timestamp` is null"),
        ("select 'x'::bytea as payload, arrow_cast(null, 'Utf8') as channel, v from A", ""),
        ("select interval '1 day' as i from A", "events cannot have"),
        ("select 9223372036854775807 + (v * 0)::bigint + 1 as n from A", "out of range of Int64"),
    ] {
        let mut run = StageRun::from_query(query);
        let events = two_batches(&run);
        match run.all(events) {
            Ok(_) => assert!(what.is_empty(), "{query}"),
            Err(error) => assert!(!what.is_empty() && error.to_string().contains(what), "{error}"),
        }
    }
}
