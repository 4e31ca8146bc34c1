//! Images of cameras, as the stage `undistort` reads them.

use std::sync::{Arc, LazyLock};

use arrow_array::{ArrayRef, BinaryArray, Int16Array, Int64Array, RecordBatch};
use serde_json::json;
use sluice_model::{
    BatchBuilder, Channel, Channels, Encoding, Map, MessageType, Name, Payloads, Rows, Stage,
    StageContext, TypeKey,
};

use crate::inputs;

static STAGE: LazyLock<Box<dyn Map>> =
    LazyLock::new(|| match inputs::stage("undistort", json!({ "quality": 30 })) {
        Ok(Stage::Map(map)) => map,
        other => panic!("a stage without memory: {other:?}"),
    });

/// Any bytes are an image that is undistorted, or that is unchanged and reported.
pub fn picture(bytes: &[u8]) {
    let channels = Channels::default();
    let channel = Channel::new(Name::from_text("CAM_THUMB_RFC"), "log", Encoding::Lcm);
    let mut builder = BatchBuilder::default();
    builder.push_copy(5, 0, channels.intern(channel).expect("few channels"), b"payload");
    let columns: [(&str, ArrayRef); 4] = [
        ("utime", Arc::new(Int64Array::from(vec![5]))),
        ("width", Arc::new(Int16Array::from(vec![376]))),
        ("height", Arc::new(Int16Array::from(vec![240]))),
        ("image", Arc::new(BinaryArray::from(vec![bytes]))),
    ];
    let columns = RecordBatch::try_from_iter(columns).expect("as long as each other");
    let message = MessageType::named("image", TypeKey(1)).into();
    let rows = Rows { message, payloads: Payloads::Kept, events: vec![0], columns };
    let batch = builder.finish().with_rows(vec![rows]);
    let mut context = StageContext::new(&channels, None);
    let out = STAGE.apply(batch, &mut context).expect("no image is an error");
    let [rows] = out.rows() else { panic!("{:?}", out.rows()) };
    let is_straight = rows.payloads == Payloads::Gone;
    assert_eq!((out.len(), rows.events.len()), (1, 1));
    assert_eq!(is_straight, context.report.notes.is_empty(), "{:?}", context.report.notes);
}
