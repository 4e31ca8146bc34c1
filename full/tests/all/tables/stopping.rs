//! Queries that are stopped or panic: the session answers the next one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use sluice_model::ErrorKind;
use sluice_query::session::{QueryError, Session, SessionOptions};

use super::{error_of, number, session, small, tables_of};
use crate::kit::{Folder, drive, log};

#[test]
fn a_query_can_be_stopped() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(14, 20_000)));
    let session = session("lcm-log", &path, &[]);
    let stop = AtomicBool::new(false);
    let ended = session.run("select * from drive", &stop, &mut |_| {
        stop.store(true, Ordering::Relaxed);
        Ok(())
    });
    let Err(QueryError::Failed(error)) = ended else { panic!("{ended:?}") };
    assert!(matches!(error.kind(), ErrorKind::Aborted), "{error}");
    assert_eq!(
        number(&session, "select count(*) from drive"),
        20_000,
        "the next query is answered"
    );
}

/// Adds a function `hook(x)`, which calls this for a batch of rows, and returns `x`.
fn add_hook(session: &Session, call: impl Fn() + Send + Sync + 'static) {
    add_function(session, Volatility::Volatile, call);
}

fn add_function(
    session: &Session,
    volatility: Volatility,
    call: impl Fn() + Send + Sync + 'static,
) {
    let hook = move |values: &[ColumnarValue]| {
        call();
        Ok(values[0].clone())
    };
    let int = DataType::Int64;
    let hook = create_udf("hook", vec![int.clone()], int, volatility, Arc::new(hook));
    session.context().register_udf(hook);
}

#[test]
fn a_join_of_rows_that_it_has_read_can_be_stopped() {
    // More rows than anybody can wait for.
    let query = "with n as (select unnest(range(1, 100000)) as v) select count(*) \
                 from (select hook(v) as v from n) a join n b on a.v % 2 = b.v % 2 \
                 join n c on a.v % 2 = c.v % 2";
    for jobs in [1, 2] {
        let session = Session::new(SessionOptions { jobs: Some(jobs), ..small() }).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let hooked = Arc::clone(&stop);
        add_hook(&session, move || hooked.store(true, Ordering::Relaxed));
        let ended = session.run(query, &stop, &mut |_| Ok(()));
        let Err(QueryError::Failed(error)) = ended else { panic!("{ended:?}") };
        assert!(matches!(error.kind(), ErrorKind::Aborted), "{error}");
        assert_eq!(number(&session, "select 1"), 1, "the next query is answered");
    }
}

#[test]
fn a_join_that_rejects_what_it_compares_ends_when_it_is_stopped() {
    let rejects = "hook(a.v + b.v) < 0";
    let equal = "a.v % 2 = b.v % 2";
    for rest in [
        format!("join n b on {equal} and {rejects}"),
        format!("join n b on {rejects}"),
        format!("left join n b on {equal} and {rejects}"),
        format!("full join n b on {rejects}"),
        format!("left anti join n b on {equal} and {rejects}"),
        format!("where exists (select 1 from n b where {equal} and {rejects})"),
        format!("where not exists (select 1 from n b where {rejects})"),
        format!("cross join n b where {rejects} and a.v % 3 <> b.v % 5"),
        format!("join lateral (select v from n b where {equal} and {rejects}) on true"),
    ] {
        let query = format!(
            "with n as (select unnest(range(1, 200000)) as v) select count(*) from n a {rest}"
        );
        // The only thread cannot answer the next query while it computes this one.
        let session = Session::new(SessionOptions { jobs: Some(1), ..small() }).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let hooked = Arc::clone(&stop);
        add_hook(&session, move || hooked.store(true, Ordering::Relaxed));
        let ended = session.run(&query, &stop, &mut |_| Ok(()));
        let Err(QueryError::Failed(error)) = ended else { panic!("{rest}: {ended:?}") };
        assert!(matches!(error.kind(), ErrorKind::Aborted), "{rest}: {error}");
        assert_eq!(number(&session, "select 1"), 1, "the next query is answered");
    }
}

#[test]
fn a_panic_fails_its_query_only() {
    let session = Session::new(small()).unwrap();
    add_hook(&session, || panic!("offset overflow"));
    let query = "select hook(1)";
    let error = error_of(&session, query);
    assert_eq!(error, "a column of a batch has more than 2 GiB: compute shorter values");
    add_hook(&session, || panic!("it broke"));
    assert!(error_of(&session, query).contains("DataFusion panicked (it broke)"));
    assert_eq!(number(&session, "select 1"), 1, "the next query is answered");
}

#[test]
fn planning_can_be_stopped() {
    let session = Session::new(small()).unwrap();
    let stop = Arc::<AtomicBool>::default();
    let hooked = Arc::clone(&stop);
    let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
    let released = Mutex::new(released);
    // The planner computes constants.
    add_function(&session, Volatility::Immutable, move || {
        hooked.store(true, Ordering::Relaxed);
        let released = released.lock().unwrap().recv();
        assert!(released.is_err(), "it only waits for the end of the test");
    });
    let ended = session.plan("select hook(1)", &stop);
    let Err(QueryError::Failed(error)) = ended else { panic!("{ended:?}") };
    assert!(matches!(error.kind(), ErrorKind::Aborted), "{error}");
    assert_eq!(number(&session, "select 1"), 1, "the next query is answered");
    stop.store(false, Ordering::Relaxed);
    assert!(session.plan("select hook(2)", &stop).is_err());
    let refused = error_of(&session, "select 1");
    assert!(refused.contains("2 stopped queries still compute"), "{refused}");
    drop(release);
}

#[test]
fn a_panic_while_planning_fails_its_query_only() {
    let session = Session::new(small()).unwrap();
    add_function(&session, Volatility::Immutable, || panic!("it broke"));
    assert!(error_of(&session, "select hook(1)").contains("DataFusion panicked (it broke)"));
    assert_eq!(number(&session, "select 1"), 1, "the next query is answered");
}

#[test]
fn discovery_of_channels_can_be_stopped() {
    let folder = Folder::new();
    let path = folder.write("drive.lcm", log(&drive(16, 3_000)));
    let tables = tables_of("lcm-log", &path, &[]);
    let ended = tables.channels_until(&AtomicBool::new(true)).unwrap_err();
    assert!(matches!(ended.kind(), ErrorKind::Aborted), "{ended}");
    assert_eq!(tables.channels().unwrap(), ["A", "B", "C", "D", "E"]);
}
