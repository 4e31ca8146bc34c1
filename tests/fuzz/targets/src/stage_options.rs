//! Options of the stages that select, shift and thin out events: time windows, patterns, numbers.

use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, Map, Name, Stage, StageContext,
};

use crate::inputs;

const STAGES: [&str; 6] = ["filter", "time", "rename", "sample", "gaps", "limit"];
/// The time of the first event.
const ORIGIN: i64 = 1_000_000_000;

/// Any options are refused with a reason, or create a stage that accounts for every event, is
/// independent of batching, and requests all it lets pass from a source.
pub fn stage_options(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let name = STAGES[usize::from(*which) % STAGES.len()];
    let Ok(options) = serde_json::from_slice::<serde_json::Value>(rest) else { return };
    let stage = |options| inputs::stage(name, options);
    let whole = match stage(options.clone()) {
        Ok(stage) => stage_output(stage, usize::MAX),
        Err(refusal) => return assert!(!refusal.message.is_empty()),
    };
    let pieces = stage_output(stage(options).expect("it was made before"), 5);
    assert_eq!(whole, pieces);
}

/// An output event: time, number and channel name.
type OutputEvent = (i64, i64, String);

/// The output of a stage for batches of at most this many events; `None` if it fails.
fn stage_output(mut stage: Stage, most: usize) -> Option<Vec<OutputEvent>> {
    let channels = Channels::default();
    let mut context = StageContext::new(&channels, Some(ORIGIN));
    let (mut out, batches) = (Vec::new(), batches(&channels, most));
    for batch in batches {
        match &mut stage {
            Stage::Map(map) => {
                let made = map.apply(batch.clone(), &mut context).ok()?;
                check_query(&**map, &made, &channels);
                out.push(made);
            }
            Stage::Fold(fold) => out.extend(fold.push(batch, &mut context).ok()?),
            Stage::Chain(_) => panic!("no stage here is a chain"),
        }
    }
    if let Stage::Fold(fold) = &mut stage {
        out.extend(fold.finish(&mut context).ok()?);
    }
    let plain = |batch: &Batch, row: usize| {
        let event = batch.event(row);
        let name = channels.get(event.channel).name.text().to_owned();
        (event.timestamp, event.sequence, name)
    };
    let events = out.iter().flat_map(|batch| (0..batch.len()).map(|row| plain(batch, row)));
    let events: Vec<OutputEvent> = events.collect();
    assert_eq!(
        events.len() as u64 + context.report.filtered,
        EVENTS as u64,
        "every event is accounted for"
    );
    Some(events)
}

/// Checks that what passes a stage that changes neither times nor names matches its query.
fn check_query(map: &dyn Map, made: &Batch, channels: &Channels) {
    let query = map.query();
    if !query.keeps_times || !query.keeps_channels {
        return;
    }
    let [start, end] = [query.start, query.end].map(|when| when.map(|when| when.resolve(ORIGIN)));
    for event in made.iter() {
        let channel = channels.get(event.channel);
        assert!(query.channels.wants(channel.name.text(), &channel.source));
        assert!(start.is_none_or(|start| event.timestamp >= start));
        assert!(end.is_none_or(|end| event.timestamp < end));
    }
}

const EVENTS: usize = 24;

/// Events of three channels; some are late.
fn batches(channels: &Channels, most: usize) -> Vec<Batch> {
    let ids = ["POSE", "CAM_1", "odd \"name\""].map(|name| {
        let channel = Channel::new(Name::from_text(name), "log", Encoding::Lcm);
        channels.intern(channel).expect("few channels")
    });
    let numbers: Vec<usize> = (0..EVENTS).collect();
    let batch = |numbers: &[usize]| {
        let mut builder = BatchBuilder::default();
        for n in numbers {
            let late = if n % 7 == 6 { 25_000_000 } else { 0 };
            let time = ORIGIN + *n as i64 * 10_000_000 - late;
            builder.push_copy(time, *n as i64, ids[n % 3], b"payload");
        }
        builder.finish()
    };
    numbers.chunks(most.min(EVENTS)).map(batch).collect()
}
