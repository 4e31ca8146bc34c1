//! What statements may contain: names, and what is refused.

use std::sync::atomic::AtomicBool;

use sluice_query::session::QueryError;

use super::{error_of, number, rows, run_query, session, text};
use crate::kit::{BEGIN, Folder, LcmEvent, drive, log};

#[test]
fn queries_that_are_too_deep_are_refused_and_others_fit_on_the_stack() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(14, 10)));
    let session = session("lcm-log", &path, &[]);
    let chain =
        |count: usize| format!("select channel{} from drive limit 1", "||'a'".repeat(count));
    assert_eq!(rows(&session, &chain(1_900)).len(), 1);
    let many = |count: usize, part: &str, between: &str| vec![part; count].join(between);
    for query in [
        chain(2_100),
        chain(200_000),
        format!("explain {}", chain(2_100)),
        format!("create table x as {}", chain(200_000)),
        format!("select {}", many(300_000, "1", "+")),
        format!("select * from drive where {}", many(3_000, "sequence = 1", " or ")),
        many(2_500, "select 1", " union all "),
        many(40_000, "values (1)", " union all "),
        format!("select * from {}", many(2_500, "drive", ",")),
        format!("select 1 {}", many(2_500, "|> select 1", " ")),
        format!("select make_array(1){}", "[1]".repeat(200_000)),
    ] {
        let Err(QueryError::Invalid(invalid)) = session.plan(&query, &AtomicBool::new(false))
        else {
            panic!("{query:.60} was planned")
        };
        let short = query.get(..60).unwrap_or(&query);
        assert!(invalid.message.contains("more than 2000"), "{short}: {invalid}");
    }
    let list = format!("select count(*) from drive where sequence in ({})", many(50_000, "1", ","));
    assert_eq!(number(&session, &list), 1);
}

#[test]
fn statements_other_than_queries_are_refused_and_write_nothing() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(15, 10)));
    let session = session("lcm-log", &path, &[]);
    let out = folder.at("out.parquet").display().to_string();
    for sql in [
        format!("copy (select * from drive) to '{out}'"),
        format!("explain analyze copy (select * from drive) to '{out}'"),
        format!("create external table t stored as csv location '{out}'"),
        "create table t as select * from drive".to_owned(),
        "create view v as select 1".to_owned(),
        "insert into drive select * from drive".to_owned(),
        "delete from drive".to_owned(),
        "drop table drive".to_owned(),
        "set datafusion.execution.batch_size = 1".to_owned(),
        "prepare p as select 1".to_owned(),
        "explain insert into drive select * from drive".to_owned(),
        "begin".to_owned(),
    ] {
        let message = error_of(&session, &sql);
        assert!(message.contains("is not a query"), "{sql}: {message}");
    }
    for sql in [
        format!("select * from '{}'", path.display()),
        format!("select * from read_csv('{}')", path.display()),
        format!("select * from \"{}\"", path.display()),
    ] {
        error_of(&session, &sql);
    }
    assert_eq!(folder.names(), ["drive.lcm"]);
}

#[test]
fn mistakes_are_reported_with_position_and_suggestions() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(16, 50)));
    let session = session("lcm-log", &path, &[]);
    for (sql, says) in [
        ("select chanel from drive", "there is no column `chanel`; there is `channel`"),
        ("select *\nfrom drive wher x", "this is not valid SQL"),
        ("select * from drives", "there is no table `drives`; there is `drive`"),
        ("select * from other.A", "there is no log `other`"),
        ("select * from drive.AA", "there is no channel in `drive` called `AA`"),
        ("select nosuch(1) from drive", "nosuch"),
        ("select 1; select 2", "one statement"),
        ("", "there is no query"),
        ("select (((", "this is not valid SQL"),
    ] {
        let message = error_of(&session, sql);
        assert!(message.contains(says), "{sql}: {message}");
    }
    let fields = "fields of messages are in the tables of channels, which `show tables` lists";
    for sql in ["select pos from drive", "select d.pos from drive d", "select pos from drive.A"] {
        let message = error_of(&session, sql);
        assert!(message.contains("; there are: ") && message.contains(fields), "{message}");
    }
    for sql in ["select chanel from drive", "select pos from (select payload as p from drive)"] {
        assert!(!error_of(&session, sql).contains(fields), "{sql}");
    }
    let Err(QueryError::Invalid(wrong)) = run_query(&session, "select 1,\n  chanel from drive")
    else {
        panic!()
    };
    let place = wrong.position.unwrap();
    assert_eq!((place.line, place.column), (2, 3));
    let deep = format!("select {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(error_of(&session, &deep).contains("nested too deeply"));
    let long = format!("select '{}'", "x".repeat(2 << 20));
    assert!(error_of(&session, &long).contains("1048576"));
}

#[test]
fn names_match_exactly_or_else_ignoring_case() {
    let folder = Folder::new();
    let channel = |n: i64, name: &str| LcmEvent::new(n, BEGIN + n, name, b"x");
    let odd = r#"a"b; drop"#;
    let all = [
        channel(0, "POSE"),
        channel(1, "Twin"),
        channel(2, "TWIN"),
        channel(3, odd),
        channel(4, "a b"),
    ];
    let path = folder.write("drive.lcm", log(&all));
    let session = session("lcm-log", &path, &[]);
    for (name, sequence) in [
        ("drive.POSE", 0),
        ("drive.pose", 0),
        ("DRIVE.\"Pose\"", 0),
        ("drive.Twin", 1),
        ("drive.TWIN", 2),
        (r#"drive."a""b; drop""#, 3),
        ("Drive.\"A B\"", 4),
    ] {
        assert_eq!(number(&session, &format!("select SEQUENCE from {name}")), sequence, "{name}");
    }
    assert!(error_of(&session, "select * from drive.twin").contains("no channel"));
    for (column, from) in [
        ("DRIVE.Pose.Sequence", "drive.POSE"),
        ("drive.pose.sequence", "DRIVE.POSE"),
        ("Drive.POSE.sequence", "Drive.pose"),
    ] {
        assert_eq!(number(&session, &format!("select {column} from {from}")), 0, "{from}");
    }
    // It would have to be two names.
    let sql = "select foo from (select 1 as Foo) a union all select foo from (select 2 as FOO) b";
    assert!(error_of(&session, sql).contains("there is no column `"), "{sql}");
    for (sql, says) in [
        ("select X.* from drive.POSE x", "no table `X` here; write it as in FROM"),
        (
            "select count(*) over W from drive window w as ()",
            "no window `W`; write it as in WINDOW",
        ),
        ("select named_struct('x', sequence)['X'] from drive", "the struct has no field `X`"),
    ] {
        assert!(error_of(&session, sql).contains(says), "{sql}: {}", error_of(&session, sql));
    }
    assert_eq!(
        number(
            &session,
            "select count(*) from drive where Channel = 'POSE' or Drive.CHANNEL = 'x'"
        ),
        1
    );
    assert_eq!(
        session.log("drive").unwrap().channels().unwrap(),
        ["POSE", "TWIN", "Twin", "a b", odd]
    );
    let listed =
        text(&rows(&session, "select table_schema, table_name from information_schema.tables"));
    assert!(listed.contains("POSE") && listed.contains(odd), "{listed}");
}
