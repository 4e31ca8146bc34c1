use super::*;
use crate::channels::{TYPE_KEY, VERSION_KEY};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{BinaryArray, RecordBatch};
use proptest::prelude::*;
use serde_json::json;
use sluice_model::{Batch, BatchBuilder, ChannelId, Clock, Name, Rows};

fn codec(options: serde_json::Value) -> Box<dyn Codec> {
    sluice_model::options::read::<VelTypes>(options).unwrap().try_into().unwrap()
}

fn built_in() -> Box<dyn Codec> {
    codec(json!({ "types": "vel" }))
}

fn channel(name: &str, version: i32) -> Channel {
    let mut channel = Channel::new(Name::from_text(name), "sensor", Encoding::Vel);
    channel.clock = Clock::Relative;
    channel.metadata.insert(TYPE_KEY.into(), hash::hex(hash::simple_hash(name.as_bytes())));
    channel.metadata.insert(VERSION_KEY.into(), version.to_string());
    channel
}

fn batch(payloads: &[&[u8]]) -> Batch {
    let mut batch = BatchBuilder::default();
    payloads.iter().for_each(|payload| batch.push_copy(0, 0, ChannelId(0), payload));
    batch.finish()
}

/// Decodes payloads by their channel's type, and encodes them again.
fn there_and_back(codec: &dyn Codec, channel: &Channel, payloads: &[&[u8]]) -> Rows {
    let key = codec.keys(channel).unwrap()(payloads[0]).unwrap();
    let known = codec.types().iter().find(|known| known.message_type.key == key).unwrap();
    let (form, mut bad) = (known.payload_type.clone().unwrap(), Vec::new());
    let events: Vec<u32> = (0..payloads.len() as u32).collect();
    let rows = form.decode(&batch(payloads), &events, &mut bad).unwrap();
    assert_eq!((rows.events.len(), bad), (payloads.len(), vec![]));
    let again = codec.adopt(&rows.message, &rows.columns.schema()).unwrap();
    let made = again.encode(&rows.columns, &mut Vec::new()).unwrap();
    assert_eq!(made.iter().flatten().collect::<Vec<_>>(), payloads);
    rows
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    let words = numbers.iter().flat_map(|number| number.to_le_bytes());
    (numbers.len() as u32).to_le_bytes().into_iter().chain(words).collect()
}

fn scan() -> Vec<u8> {
    [text("SICK"), text("laser_front"), numbers(&[5, 0]), numbers(&[7]), vec![1, 2, 0, 0]].concat()
}

#[test]
fn every_described_message_has_proper_columns() {
    let codec = built_in();
    assert!(codec.mistakes().is_empty(), "{:?}", codec.mistakes());
    let floats = |n: usize| vec![0; 4 * n];
    let image = [text("a"), text("cam"), vec![1, 0, 0, 0], floats(2), numbers(&[])].concat();
    let imu = [text("XSens_MTi"), text("imu"), floats(7)].concat();
    let config = [text("SICK"), text("l"), floats(3 + 7)].concat();
    for (name, version, payload, columns) in [
        ("ImageM", 102, image, "sensor_type sensor compressed width height image"),
        ("IMUStateM", 102, imu, "sensor_type sensor quaternion acceleration"),
        ("LaserRange2DDataM", 100, numbers(&[1, 2]), "ranges"),
        (
            "LaserRange2DDataM",
            101,
            [text(""), text("l"), numbers(&[])].concat(),
            "sensor_type sensor ranges",
        ),
        (
            "LaserRange2DDataM",
            102,
            scan(),
            "sensor_type sensor ranges intensities sensor_timestamp",
        ),
        (
            "LaserRange2DConfigM",
            100,
            config,
            "sensor_type sensor beams max_range field_of_view quaternion position",
        ),
    ] {
        let rows = there_and_back(&*codec, &channel(name, version), &[&payload, &payload]);
        assert_eq!(&*rows.message.name, format!("{name}.v{version}"));
        let schema = rows.columns.schema();
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names.join(" "), columns);
    }
}

#[test]
fn ranges_and_intensities_need_not_be_as_many() {
    let rows = there_and_back(&*built_in(), &channel("LaserRange2DDataM", 102), &[&scan()]);
    let list = |name: &str| rows.columns.column_by_name(name).unwrap().as_list::<i32>().value(0);
    assert_eq!(list("ranges").as_primitive::<UInt32Type>().values(), &[5, 0]);
    assert_eq!(list("intensities").as_primitive::<UInt32Type>().values(), &[7]);
}

#[test]
fn a_newer_version_is_decoded_as_far_as_it_is_known() {
    let codec = built_in();
    let longer = [scan(), b"more".to_vec()].concat();
    let rows = there_and_back(&*codec, &channel("LaserRange2DDataM", 105), &[&longer, &scan()]);
    assert_eq!(&*rows.message.name, "LaserRange2DDataM.v102+");
    let tails: Vec<_> = rows.columns.column(5).as_binary::<i32>().iter().flatten().collect();
    assert_eq!(tails, [&b"more"[..], b""]);
    // An older one than any that is known may be laid out in any way.
    let key = codec.keys(&channel("LaserRange2DDataM", 99)).unwrap()(&scan()).unwrap();
    assert!(!codec.types().iter().any(|known| known.message_type.key == key));
}

#[test]
fn payloads_that_are_wrong_stay_payloads() {
    let codec = built_in();
    let key = type_key(hash::IMAGE, 102, Versions::This).unwrap();
    let known = codec.types().iter().find(|known| known.message_type.key == key).unwrap();
    let image = |compressed: u8, bytes: u32| {
        let size = bytes.to_le_bytes().to_vec();
        [text("a"), text("b"), vec![compressed, 0, 0, 0], vec![0; 8], size, b"xy".to_vec()].concat()
    };
    let payloads = [image(1, 2), image(2, 2), image(1, 3), image(1, u32::MAX), image(0, 1)];
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let mut bad = Vec::new();
    let form = known.payload_type.clone().unwrap();
    let rows = form.decode(&batch(&payloads), &[0, 1, 2, 3, 4], &mut bad).unwrap();
    assert_eq!(rows.events, [0]);
    assert_eq!(bad.iter().map(|(event, _)| *event).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn booleans_of_any_bytes_are_read_and_come_back() {
    let codec = built_in();
    let key = type_key(hash::IMAGE, 102, Versions::This).unwrap();
    let known = codec.types().iter().find(|known| known.message_type.key == key).unwrap();
    let image = |compressed: [u8; 4]| {
        let size = 2_u32.to_le_bytes().to_vec();
        [text("a"), text("b"), compressed.to_vec(), vec![0; 8], size, b"xy".to_vec()].concat()
    };
    let written = [[1, 0, 0, 0], [1, 0xcc, 0xcc, 0xcc], [2, 0, 0, 0], [0, 7, 0, 0], [0; 4]];
    let payloads = written.map(image);
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let (form, mut bad) = (known.payload_type.clone().unwrap(), Vec::new());
    let rows = form.decode_all(&batch(&payloads), &[0, 1, 2, 3, 4], &mut bad).unwrap();
    let [plain, raw] = rows.as_slice() else { panic!("{rows:?}") };
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!((plain.events.as_slice(), raw.events.as_slice()), (&[0, 4][..], &[1, 2, 3][..]));
    assert_eq!(plain.columns.schema(), *form.schema());
    assert!(raw.columns["compressed"].as_boolean().values().iter().all(|value| value));
    assert_eq!(type_of_key(raw.message.key), (hash::IMAGE, 102));
    let adopted = codec.adopt(&raw.message, &raw.columns.schema()).unwrap();
    let made = adopted.encode(&raw.columns, &mut bad).unwrap();
    assert_eq!(made.iter().flatten().collect::<Vec<_>>(), payloads[1..4]);
    // Bytes for other values are not restored, nor those of another number of booleans.
    let other = |bytes: &[u8]| {
        let mut arrays = raw.columns.slice(0, 1).columns().to_vec();
        *arrays.last_mut().unwrap() = Arc::new(BinaryArray::from(vec![bytes]));
        let columns = RecordBatch::try_new(raw.columns.schema(), arrays).unwrap();
        adopted.encode(&columns, &mut Vec::new()).unwrap().value(0)[10..14].to_vec()
    };
    assert_eq!(other(&[9, 0, 0, 0]), [9, 0, 0, 0]);
    for bytes in [&[0; 4][..], &[9; 3], &[9; 5], b""] {
        assert_eq!(other(bytes), [1, 0, 0, 0]);
    }
}

#[test]
fn messages_of_ones_own_are_lists_of_fields() {
    let codec = codec(json!({ "messages": [{ "name": "OdometryM", "version": 3, "fields": [
        { "name": "pose", "type": "f64", "count": 2 },
        { "name": "ok", "type": "bool" },
        { "name": "n", "type": "u16" },
        { "name": "wheels", "count": "n", "fields": [
            { "name": "ticks", "type": "i8" },
            { "name": "names", "type": "string", "count": "*" },
        ] },
    ] }] }));
    let wheel = [vec![255], 1u32.to_le_bytes().to_vec(), text("left")].concat();
    let payload = [vec![0; 16], vec![1, 0, 0, 0], vec![1, 0], wheel].concat();
    let rows = there_and_back(&*codec, &channel("OdometryM", 3), &[&payload]);
    let wheels = rows.columns.column(3).as_list::<i32>().value(0);
    assert_eq!(wheels.as_struct().column(0).as_primitive::<Int8Type>().value(0), -1);
}

#[test]
fn mistakes_say_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let mistakes = |text: &str| {
        let path = folder.path().join("my.veltypes");
        std::fs::write(&path, text).unwrap();
        codec(json!({ "types": [path] })).mistakes().join("\n")
    };
    let message = |fields: &str| {
        format!("# mine\n[[messages]]\nname = \"AM\"\nversion = 1\nfields = [{fields}]\n")
    };
    assert_eq!(mistakes(&message("")), "");
    for (text, says) in [
        (message("{ name = \"a\", type = \"u65\" }"), "unknown variant `u65`"),
        (message("{ name = \"a\", type = \"u8\", count = \"n\" }"), "no earlier field `n`"),
        (message("{ name = \"a\" }"), "neither a type nor fields"),
        (message("{ name = \"a\", type = \"u8\", size = 3 }"), "unknown field `size`"),
        ("[[message]]".to_owned(), "unknown field `message`"),
        (
            "[[messages]]\nname = \"bab\"\nversion = 1\nfields = []\n\
             [[messages]]\nname = \"aca\"\nversion = 2\nfields = []"
                .to_owned(),
            "the same number",
        ),
        (
            format!("{}{}", message(""), message("{ name = \"a\", type = \"u8\" }")),
            "conflicting declarations",
        ),
        (message("").replace("version = 1", "version = -1"), "from 0 to 1073741823"),
    ] {
        let found = mistakes(&text);
        assert!(found.contains(says) && found.contains("my.veltypes:"), "{text}: {found}");
    }
    assert!(mistakes(&message("{ name = \"a\" }")).contains("my.veltypes:2"));
}

#[test]
fn a_wrong_option_is_reported_with_its_place() {
    let wrong = |messages: serde_json::Value| {
        let read = sluice_model::options::read::<VelTypes>(json!({ "messages": messages }));
        read.and_then(|options| Box::<dyn Codec>::try_from(options).map(drop)).unwrap_err()
    };
    let error =
        wrong(json!([{ "name": "AM", "version": 1, "fields": [{ "name": "a", "typ": "u8" }] }]));
    assert_eq!(error.path, ["messages", "0", "fields", "0", "typ"]);
    let error = wrong(json!([{ "name": "AM", "version": 1, "fields": [{ "name": "a" }] }]));
    assert_eq!(error.path, ["messages", "0"]);
}

#[test]
fn descriptions_that_are_of_something_else_are_refused() {
    let codec = built_in();
    let known = codec.types()[0].message_type.clone();
    let adopt =
        |message: MessageType| codec.adopt(&message, &Schema::empty()).map(drop).unwrap_err();
    let MessageType { name, key, codec: of, text } = MessageType::clone(&known);
    let with = |text: String, key| MessageType {
        name: name.clone(),
        key,
        codec: of.clone(),
        text: text.into(),
    };
    assert!(adopt(with("{".into(), key)).contains("cannot be parsed"));
    assert!(adopt(with(text.to_string(), TypeKey(1))).contains("another message"));
    assert!(adopt(with(" ".repeat(2 << 20), key)).contains("longer"));
}

#[test]
fn other_payloads_are_left_to_other_codecs() {
    let lcm = Channel::new(Name::from_text("ImageM"), "log", Encoding::Lcm);
    assert!(built_in().keys(&lcm).is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_are_not(bytes in proptest::collection::vec(0u8..20, 0..200)) {
        for known in built_in().types() {
            let form = known.payload_type.clone().unwrap();
            let rows = form.decode(&batch(&[&bytes]), &[0], &mut Vec::new()).unwrap();
            let made = form.encode(&rows.columns, &mut Vec::new()).unwrap();
            prop_assert!(made.iter().flatten().all(|made| made == bytes));
        }
    }
}
