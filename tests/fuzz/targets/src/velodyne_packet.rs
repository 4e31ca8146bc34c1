//! Packets of Velodyne sensors.

use std::sync::LazyLock;

use serde_json::json;
use sluice_dgc::fuzzing::Points;
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, Map, Name, Stage, StageContext,
};

use crate::inputs;

const MODELS: [&str; 3] = ["hdl-64e", "hdl-32e", "vlp-16"];

static STAGES: LazyLock<Vec<Box<dyn Map>>> = LazyLock::new(|| {
    let options = MODELS.into_iter().flat_map(|model| {
        [
            json!({ "model": model }),
            json!({
                "model": model, "drop_zero_returns": true, "min_range": 1.5, "max_range": 90.0,
            }),
        ]
    });
    let made = options.map(|options| match inputs::stage("velodyne", options) {
        Ok(Stage::Map(map)) => map,
        other => panic!("a stage without memory: {other:?}"),
    });
    made.collect()
});

fn applied(stage: &dyn Map, payloads: &[Vec<u8>]) -> (Batch, usize) {
    let channels = Channels::default();
    let channel = Channel::new(Name::from_text("VELODYNE"), "log", Encoding::Lcm);
    let id = channels.intern(channel).expect("one channel is not too many");
    let mut batch = BatchBuilder::default();
    for payload in payloads {
        batch.push_copy(0, 0, id, payload);
    }
    let mut context = StageContext::new(&channels, None);
    let out = stage.apply(batch.finish(), &mut context).expect("no payload is an error");
    assert!(context.report.notes.iter().all(|(what, count)| !what.is_empty() && *count > 0));
    (out, context.report.undecoded.len())
}

fn points(batch: &Batch) -> Vec<Points> {
    batch.rows().iter().filter_map(Points::from_rows).collect()
}

/// Any bytes on a Velodyne channel are points or reported: nothing panics, no event is lost, no
/// coordinate is NaN, and a packet yields the same points with and without a message around it.
pub fn velodyne_packet(input: &[u8]) {
    let Some((which, rest)) = input.split_first() else { return };
    let stage = &*STAGES[usize::from(*which) % STAGES.len()];
    // Packets are long and differ in few bytes: the input is the difference.
    let payload = match which >> 5 {
        0..4 => rest.to_vec(),
        _ => {
            let mut packet = vec![0xFF; 1206];
            for number in 0..12 {
                packet[number * 100 + 1] = if number % 2 == 0 { 0xEE } else { 0xDD };
                packet[number * 100 + 2..][..2].copy_from_slice(&[number as u8, 0]);
            }
            for change in rest.chunks_exact(3) {
                let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % packet.len();
                packet[at] = change[2];
            }
            packet
        }
    };
    let message = [
        &0x6d7d_fc11_eda8_2da7_u64.to_be_bytes()[..],
        &[0; 8],
        &(payload.len() as i32).to_be_bytes(),
        &payload,
    ];
    let (out, undecoded) = applied(stage, &[payload.clone(), message.concat()]);
    let made = points(&out);
    assert_eq!(
        (out.len(), made.iter().map(|points| points.events().len()).sum::<usize>() + undecoded),
        (2, 2)
    );
    for points in &made {
        assert!(points.len() <= 2 * 384);
        assert!(points.xyz().iter().all(|axis| axis.iter().all(|value| value.is_finite())));
        if payload.len() == 1206 && points.events().len() == 2 {
            let (raw, in_message) = (points.range(0), points.range(1));
            assert!(points.xyz().iter().all(|axis| axis[raw.clone()] == axis[in_message.clone()]));
        }
    }
}
