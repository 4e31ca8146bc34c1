//! Conformance tests of the codecs.

use std::fs;
use std::path::Path;

use serde_json::json;
use sluice_conformance::{CodecTrial, codec};
use sluice_model::{Channel, EmbeddedSchema, Encoding, Name};

use crate::kit::{Folder, events, root, run};

/// The codecs tested here.
pub(super) const NAMES: &[&str] = &["ice", "json", "lcm", "protobuf", "ros1", "ros2", "vel"];

/// A channel of the demo drive for each type.
const CHANNELS: [&str; 5] = ["POSE", "GPS_TO_LOCAL", "VELODYNE", "SKIRT_FC", "CAM_THUMB_RFC"];

/// The first message of each channel.
fn messages() -> Vec<(String, Vec<u8>)> {
    let folder = Folder::new();
    let copy = "[sources.drive]\nplugin = \"demo\"\nseconds = 0.5\n\
        [sinks.out]\nplugin = \"lcm-log\"\nfrom = \"drive\"\npath = \"${DIR}/out.lcm\"\n";
    run(copy, folder.path(), 2).unwrap();
    let mut firsts: Vec<(String, Vec<u8>)> = Vec::new();
    for event in events(&folder.read("out.lcm")) {
        let channel = String::from_utf8(event.channel).unwrap();
        let is_known = firsts.iter().any(|(known, _)| *known == channel);
        if !is_known && CHANNELS.contains(&&*channel) {
            firsts.push((channel, event.payload));
        }
    }
    firsts
}

#[test]
fn lcm() {
    let messages = messages();
    assert_eq!(messages.len(), CHANNELS.len());
    let trial = codec("lcm").options(json!({ "types": ["mit-dgc"] }));
    let with = |trial: CodecTrial, (channel, payload): (String, Vec<u8>)| {
        trial.payload(&channel, Encoding::Lcm, payload)
    };
    messages.into_iter().fold(trial, with).check();
}

fn read_hex(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).unwrap();
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// A channel of VEL messages.
fn vel_channel(name: &str, version: i32) -> Channel {
    let mut channel = Channel::new(Name::from_text(name), "robot", Encoding::Vel);
    // The checksum of a name in this format weighs byte `i` by 119 + i.
    let sum: u32 = name.bytes().zip(119..).map(|(byte, times)| u32::from(byte) * times).sum();
    channel.metadata.insert("vel.type".to_owned(), format!("0x{sum:08X}"));
    channel.metadata.insert("vel.version".to_owned(), version.to_string());
    channel
}

#[test]
fn vel() {
    let messages = json!([{ "name": "OdometryM", "version": 100, "fields": [
        { "name": "sensor_type", "type": "string" },
        { "name": "pose", "type": "f64", "count": 3 },
        { "name": "ticks", "type": "i32", "count": "*" },
        { "name": "n", "type": "u16" },
        { "name": "wheels", "count": "n", "fields": [
            { "name": "turns", "type": "f32" },
            { "name": "slips", "type": "bool" },
        ] },
    ] }]);
    let mut payload = [&4u32.to_le_bytes()[..], b"left"].concat();
    payload.extend([1.5f64, -0.0, f64::NAN].iter().flat_map(|number| number.to_le_bytes()));
    payload.extend([&2u32.to_le_bytes()[..], &[7; 8]].concat());
    payload.extend(
        [&2u16.to_le_bytes()[..], &[0, 0, 128, 63, 1, 0, 0, 0], &[0, 0, 0, 64, 0, 0, 0, 0]]
            .concat(),
    );
    let trial = codec("vel").options(json!({ "types": ["vel"], "messages": messages }));
    trial.payload_on(vel_channel("OdometryM", 100), payload).check();
}

#[test]
fn ice() {
    let folder = root().join("plugins/ice/testdata");
    let types = json!({ "types": [folder.join("types.ice")] });
    let mut trial = codec("ice").options(types);
    for case in ["two-leaves", "null-references", "no-beams"] {
        let record = read_hex(&folder.join(case).join("record.hex"));
        let channel = Channel::new(Name::from_text("laser0"), "robot", Encoding::Ice);
        trial = trial.payload_on(channel, record);
    }
    trial.check();
}

#[test]
fn json() {
    let schema = json!({ "properties": {
        "id": { "type": "integer" }, "x": { "type": "number" }, "on": { "type": "boolean" },
        "data": { "type": "string", "contentEncoding": "base64" }, "more": {},
        "points": { "type": "array", "items": { "properties": {
            "x": { "type": "number" }, "label": { "type": ["string", "null"] } } } },
    } });
    let channel = Channel {
        type_name: Some("Status".into()),
        schema: Some(EmbeddedSchema {
            encoding: "jsonschema".into(),
            data: schema.to_string().into_bytes().into(),
        }),
        ..Channel::new(Name::from_text("STATUS"), "robot", Encoding::Json)
    };
    let compact = r#"{"id":-7,"x":0.5,"on":true,"data":"AAE=","points":[{"x":1.0,"label":"a"}]}"#;
    let spaced = r#"{ "points": [{"x": 1, "y": 2}, {}], "more": [1e3], "id": 9 }"#;
    let trial = codec("json").payload_on(channel.clone(), compact);
    trial.payload_on(channel, spaced).check();
}

#[test]
fn protobuf() {
    // Declares the message `M` with `int32 a = 1` and `repeated uint32 b = 2`.
    let set = b"\x0a\x2d\x22\x23\x0a\x01M\x12\x0e\x0a\x06number\x18\x01\x20\x01\x28\x05\
        \x12\x0e\x0a\x06values\x18\x02\x20\x03\x28\x0d\x62\x06proto3";
    let channel = Channel {
        type_name: Some("M".into()),
        schema: Some(EmbeddedSchema { encoding: "protobuf".into(), data: set[..].into() }),
        ..Channel::new(Name::from_text("STATUS"), "robot", Encoding::Protobuf)
    };
    let trial = codec("protobuf").payload_on(channel.clone(), *b"\x08\x07\x12\x02\x01\x02");
    trial.payload_on(channel, *b"\x10\x01\x08\x00\x18\x05").check();
}

/// A channel that declares the type of its ROS messages.
fn ros_channel(encoding: Encoding, language: &str, text: &str) -> Channel {
    Channel {
        type_name: Some("pkg/msg/Status".into()),
        schema: Some(EmbeddedSchema { encoding: language.into(), data: text.as_bytes().into() }),
        ..Channel::new(Name::from_text("/status"), "robot", encoding)
    }
}

/// A type with members of every kind.
const STATUS: &str = "uint8 id\nfloat64 x\nstring name\nbool[] flags\nPart[] parts\nint16[3] codes\n\
    ================================================================================\n\
    MSG: pkg/msg/Part\nint32 a\nuint8[] data\n";

#[test]
fn ros2() {
    let channel = ros_channel(Encoding::Cdr, "ros2msg", STATUS);
    let payload = [
        &[0, 1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0][..],
        &1.5f64.to_le_bytes(),
        &[3, 0, 0, 0, b'h', b'i', 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0],
        &[9, 0, 0, 0, 2, 0, 0, 0, 1, 2, 1, 0, 2, 0, 3, 0],
    ]
    .concat();
    let mut padded = payload.clone();
    padded[5] = 0xcc;
    let big_endian = [
        &[0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0][..],
        &1.5f64.to_be_bytes(),
        &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3],
    ];
    let trial = codec("ros2").payload_on(channel.clone(), payload);
    let trial = trial.payload_on(channel.clone(), padded);
    trial.payload_on(channel, big_endian.concat()).check();
}

#[test]
fn ros1() {
    let channel = ros_channel(Encoding::Ros1, "ros1msg", STATUS);
    let payload = [
        &[7][..],
        &1.5f64.to_le_bytes(),
        &[2, 0, 0, 0, b'h', b'i', 2, 0, 0, 0, 1, 0, 1, 0, 0, 0],
        &[9, 0, 0, 0, 2, 0, 0, 0, 1, 2, 1, 0, 2, 0, 3, 0],
    ];
    codec("ros1").payload_on(channel, payload.concat()).check();
}
