use std::sync::{Arc, Mutex};

use arrow_array::{
    ArrayRef, BinaryViewArray, Int64Array, ListArray, RecordBatch, StringViewArray, StructArray,
};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use datafusion::arrow::buffer::{Buffer, OffsetBuffer};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{StreamExt, TryStreamExt, stream};

use super::copied_type;
use crate::functions::octet_length;
use crate::session::SessionOptions;
use crate::session::optimized;
use crate::testing::printed_rows;

const BATCHES: usize = 40;
const ROWS: usize = 50;

/// A log that is read batch by batch, and knows which of its payloads are still in use.
#[derive(Debug, Default)]
struct Log {
    payloads: Arc<Mutex<Vec<Buffer>>>,
}

impl Log {
    fn batch(payloads: &Mutex<Vec<Buffer>>, number: usize) -> RecordBatch {
        let rows = || number * ROWS..(number + 1) * ROWS;
        let payload = |row| (row % 7 != 3).then(|| format!("payload {row:0100}").into_bytes());
        let payload = BinaryViewArray::from_iter(rows().map(payload));
        payloads.lock().unwrap().extend(payload.data_buffers().iter().cloned());
        let channel = rows().map(|row| format!("/channels/of/the/robot/{}", row % 3));
        let sequence = rows().map(|row| i64::try_from(row).unwrap());
        let bytes = StructArray::new(part_fields(), vec![Arc::new(payload.clone())], None);
        let one_per_row = OffsetBuffer::from_repeated_length(1, ROWS);
        let parts = ListArray::new(part(), one_per_row, Arc::new(bytes), None);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(sequence)),
            Arc::new(StringViewArray::from_iter_values(channel)),
            Arc::new(payload),
            Arc::new(parts),
        ];
        RecordBatch::try_new(Arc::clone(schema()), columns).unwrap()
    }

    fn payloads_in_use(payloads: &Mutex<Vec<Buffer>>) -> usize {
        payloads.lock().unwrap().iter().filter(|buffer| buffer.strong_count() > 1).count()
    }
}

fn schema() -> &'static SchemaRef {
    static SCHEMA: std::sync::OnceLock<SchemaRef> = std::sync::OnceLock::new();
    SCHEMA.get_or_init(|| {
        Arc::new(Schema::new(vec![
            Field::new("sequence", DataType::Int64, false),
            Field::new("channel", DataType::Utf8View, false),
            Field::new("payload", DataType::BinaryView, true),
            Field::new("parts", DataType::List(part()), false),
        ]))
    })
}

/// An element of `parts`: a struct with the payload of the row.
fn part() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Struct(part_fields()), true))
}

fn part_fields() -> Fields {
    vec![Field::new("bytes", DataType::BinaryView, true)].into()
}

impl PartitionStream for Log {
    fn schema(&self) -> &SchemaRef {
        schema()
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let payloads = Arc::clone(&self.payloads);
        let batches = (0..BATCHES).map(move |number| Ok(Self::batch(&payloads, number)));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema()), stream::iter(batches)))
    }
}

/// A session with a log, and the log's payloads.
fn session() -> (SessionContext, Arc<Mutex<Vec<Buffer>>>) {
    let log = Log::default();
    let payloads = Arc::clone(&log.payloads);
    let config = SessionConfig::new().with_target_partitions(1);
    let context = SessionContext::new_with_config(config);
    context.register_udf((*octet_length()).clone());
    let table = StreamingTable::try_new(Arc::clone(schema()), vec![Arc::new(log)]).unwrap();
    context.register_table("log", Arc::new(table)).unwrap();
    (context, payloads)
}

async fn plan(context: &SessionContext, sql: &str) -> Result<Arc<dyn ExecutionPlan>> {
    let state = context.state();
    let plan = optimized(&state, &state.create_logical_plan(sql).await?)?;
    state.query_planner().create_physical_plan(&plan, &state).await
}

#[tokio::test]
async fn a_window_drops_payloads_that_its_frames_have_left() {
    for columns in [
        "payload, row_number() over ()",
        "payload, lag(payload) over ()",
        "lead(payload, 2) over ()",
        "parts, row_number() over ()",
        "lag(parts) over ()",
        "lag(parts[1]) over ()",
        "max(parts[1]['bytes']) over (rows between 3 preceding and 2 following)",
        "count(parts) filter (where octet_length(parts[1]['bytes']) > 2) \
         over (rows between 9 preceding and current row)",
        "sequence, sum(octet_length(payload)) over (rows between 9 preceding and current row)",
        "payload, max(payload) over (rows between 3 preceding and 2 following)",
        "count(payload) filter (where octet_length(payload) > 2) \
         over (rows between 9 preceding and current row)",
    ] {
        let (context, payloads) = session();
        let plan = plan(&context, &format!("select {columns} from log")).await.unwrap();
        let mut stream = execute_stream(plan, context.task_ctx()).unwrap();
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            rows += batch.unwrap().num_rows();
            let in_use = Log::payloads_in_use(&payloads);
            assert!(in_use <= 3, "{columns}: after {rows} rows, {in_use} payload buffers in use");
        }
        assert_eq!(rows, BATCHES * ROWS, "{columns}");
        assert!(payloads.lock().unwrap().len() >= BATCHES);
    }
}

#[tokio::test]
async fn windows_without_views_have_the_results_of_windows_with_views() {
    let frames = [
        "over (order by sequence rows between 9 preceding and current row)",
        "over (partition by channel order by sequence rows between 2 preceding and 1 following)",
        "over (partition by upper(channel), octet_length(payload) order by sequence)",
        "over (order by channel, payload, sequence)",
        "over (order by sequence rows between current row and unbounded following)",
        "over (order by sequence range between 60 preceding and 5 preceding)",
        "over (order by sequence rows between unbounded preceding and unbounded following)",
    ];
    let calls = [
        "sum(octet_length(payload))",
        "sum(octet_length(payload)) filter (where payload is not null and channel like '%1')",
        "max(upper(channel)) filter (where channel like '%2')",
        "count(distinct channel)",
        "count(payload)",
        "array_agg(channel)",
        "array_agg(payload)",
        "string_agg(channel, ', ')",
        "string_agg(lower(channel), arrow_cast('+', 'Utf8View'))",
        "approx_distinct(payload)",
        "min(channel)",
        "max(payload)",
        "first_value(payload)",
        "last_value(channel || '!')",
        "nth_value(payload, 2)",
        "row_number()",
        "rank()",
        "ntile(7)",
        "lag(payload)",
        "lag(payload) ignore nulls",
        "lead(payload, 1, arrow_cast(X'00', 'BinaryView'))",
        "lag(channel, 3, 'none')",
        "lag(upper(channel), 2, 'none')",
        "lag(parts)",
        "array_agg(parts)",
        "first_value(parts[1])",
        "max(parts[1]['bytes'])",
        "sum(octet_length(parts[1]['bytes'])) filter (where parts[1]['bytes'] is not null)",
    ];
    let mut compared = 0;
    for call in calls {
        for frame in frames {
            compared += usize::from(is_same(&format!("{call} {frame}")).await);
        }
    }
    assert!(compared > 165, "{compared} of {} were computed", calls.len() * frames.len());
}

/// Compares with the plan of DataFusion. `false` if DataFusion cannot compute this.
async fn is_same(column: &str) -> bool {
    let sql = format!(
        "with l as (select * from log limit 150) select *, {column} as x from l order by sequence"
    );
    let (context, _) = session();
    let expected = context.sql(&sql).await.unwrap();
    let schema = Arc::clone(expected.schema().inner());
    let Ok(expected) = expected.collect().await else { return false };
    let plan = plan(&context, &sql).await.unwrap_or_else(|e| panic!("{column}: {e}"));
    assert_eq!(plan.schema().fields(), schema.fields(), "{column}");
    let found = execute_stream(plan, context.task_ctx()).unwrap().try_collect::<Vec<_>>().await;
    let found = concat_batches(&schema, &found.unwrap_or_else(|e| panic!("{column}: {e}")));
    let found = found.unwrap();
    let expected = concat_batches(&schema, &expected).unwrap();
    assert_eq!(found.num_rows(), 150);
    for (found, expected) in found.columns().iter().zip(expected.columns()) {
        assert_eq!(found, expected, "{column}");
    }
    true
}

#[test]
fn structs_with_equal_names_are_not_cast() {
    let field = |name, kind| Field::new(name, kind, true);
    let number = field("b", DataType::Int64);
    let view = || field("a", DataType::Utf8View);
    let copied = DataType::Struct(vec![field("a", DataType::LargeUtf8), number.clone()].into());
    assert_eq!(copied_type(&DataType::Struct(vec![view(), number.clone()].into())), Some(copied));
    assert_eq!(copied_type(&DataType::Struct(vec![view(), view()].into())), None);
    assert_eq!(copied_type(&DataType::Struct(vec![number].into())), None);
}

#[test]
fn windows_by_the_same_computed_keys_are_one() {
    for (over, expected) in [
        ("partition by x % 2 order by k", ["1 1", "1 2", "2 2"]),
        ("partition by x + 1 order by -k", ["1 1", "1 2", "2 2"]),
        ("order by abs(x) rows between 1 preceding and current row", ["1 1", "2 1", "2 2"]),
    ] {
        let sql = format!(
            "with t(k, x) as (values (1, 1), (2, 2), (3, 2)) \
             select count(*) over ({over}) as n, min(x) over ({over}) as m from t order by n, m"
        );
        let rows = printed_rows(&sql, SessionOptions::default()).unwrap();
        let rows: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
        assert_eq!(rows, expected, "{over}");
    }
}

#[test]
fn calls_do_not_share_volatile_values() {
    let sql = "with t(s) as (select arrow_cast(v, 'Utf8View') from (values ('a'), ('b')) u(v)) \
               select max(s || random()::text) over w <> min(s || random()::text) over w from t \
               window w as (order by s) limit 1";
    let rows = printed_rows(sql, SessionOptions::default());
    assert_eq!(rows, Ok(vec![vec!["true".to_owned()]]));
}
