//! Messages about mistakes, and refusals.

use super::drive;
use crate::kit::run_sluice;

#[test]
fn mistakes_in_queries_are_shown_with_position_and_help() {
    let folder = drive();
    let wrong: [(&str, &[&str]); 6] = [
        ("select chanel from drive", &["query:1:8", "no column `chanel`", "`channel`", "^^^^^^"]),
        ("select *\nfrom drvie", &["query:2:6", "no table `drvie`", "`drive`", "^^^^^"]),
        ("selec * from drive", &["query:1:1", "not valid SQL", "^^^^^"]),
        ("select nosuch(1) from drive", &["nosuch"]),
        ("select * from drive where", &["query:1:26", "not valid SQL"]),
        ("select * from drive; select pay_load from drive", &["query:1:29", "`payload`"]),
    ];
    for (query, expected) in wrong {
        let mut message = run_sluice(&folder, &["query", query, "drive.lcm"]).expect(2);
        for what in expected {
            message = message.expect_stderr(what);
        }
    }
    folder.write("wrong.sql", "-- two lines\nselect channel, frm drive;");
    let arguments = ["query", "--file", "wrong.sql", "drive.lcm"];
    run_sluice(&folder, &arguments).expect(2).expect_stderr("wrong.sql:2:");
}

#[test]
fn references_to_the_outer_query_that_are_not_answered_are_explained() {
    let folder = drive();
    for query in [
        "select (select max(sequence) from drive b where b.sequence < a.sequence) from drive a",
        "select 1 from drive a where sequence > (select avg(sequence) from drive b where \
         b.channel <> a.channel)",
        "select m from drive a, lateral (select max(sequence) m from drive b where b.sequence < \
         a.sequence) q",
    ] {
        run_sluice(&folder, &["query", query, "drive.lcm"])
            .expect(2)
            .expect_stderr("this reference to the outer query is not supported: only conditions")
            .expect_stderr("join the tables");
    }
}

#[test]
fn constants_that_are_no_values_of_their_type_are_wrong_sql() {
    let folder = drive();
    for (condition, expected) in [
        ("timestamp < 'rubbish'", "'rubbish'"),
        ("timestamp < '2300-01-01T00:00:00Z'", "`2300-01-01 00:00:00` is out of range"),
        ("timestamp between '1500-01-01' and '2020-01-01'", "between 1677-09-21 and 2262-04-11"),
        ("sequence < cast('x' as int)", "'x'"),
    ] {
        let query = format!("select count(*) from drive where {condition}");
        let ran = run_sluice(&folder, &["query", &query, "drive.lcm"]).expect(2);
        assert!(!ran.expect_stderr(expected).stderr.contains("arrow"), "{condition}");
    }
}

#[test]
fn other_statements_are_refused_and_write_nothing() {
    let folder = drive();
    let before = folder.names();
    for statement in [
        "create table x as select 1",
        "copy drive to 'x.parquet'",
        "insert into drive select * from drive",
        "set datafusion.execution.batch_size = 1",
        "create external table x stored as csv location '/etc/passwd'",
        "drop table drive",
    ] {
        run_sluice(&folder, &["query", statement, "drive.lcm"])
            .expect(2)
            .expect_stderr("not a query");
    }
    folder.write("secret.csv", "a,b\n1,2\n");
    for query in ["select * from 'secret.csv'", "select * from \"secret.csv\""] {
        run_sluice(&folder, &["query", query, "drive.lcm"]).expect(2);
    }
    std::fs::remove_file(folder.at("secret.csv")).unwrap();
    assert_eq!(folder.names(), before);
}
