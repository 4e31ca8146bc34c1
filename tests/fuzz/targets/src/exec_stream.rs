//! The standard output of programs, as the plugins of `exec` read it.

use arrow_ipc::root_as_message;
use sluice_exec::fuzzing::{read_answers, read_events, write_stream};
use sluice_model::{Batch, BatchBuilder, Channel, ChannelId, Encoding, Name, ReadContext};

/// Any bytes are a stream of events or refused. The events are the rows of its batches, and
/// round-trip through Sluice's own writer; a stage loses none and invents none.
pub fn exec_stream(bytes: &[u8]) {
    let context = ReadContext::standalone("test");
    let sent = sent(&context);
    let events = read_events(bytes, &context);
    match &events {
        Ok(batches) => {
            let lens: Vec<i64> = batches.iter().map(|batch| batch.len() as i64).collect();
            assert_eq!(lens, rows(bytes), "events are the rows of batches");
            comes_back(batches, &context);
        }
        Err(what) => assert!(!what.is_empty()),
    }
    check_answer(bytes, &sent, events.as_deref().ok(), &context);
}

/// The row counts of the batches of a valid stream.
fn rows(mut stream: &[u8]) -> Vec<i64> {
    let mut rows = Vec::new();
    while let Some((len, rest)) = stream.get(4..).and_then(|rest| rest.split_first_chunk()) {
        let (about, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        if about.is_empty() {
            break;
        }
        let message = root_as_message(about).expect("a message of a stream that was read");
        rows.extend(message.header_as_record_batch().map(|batch| batch.length()));
        stream = &rest[usize::try_from(message.bodyLength()).expect("a body that was read")..];
    }
    rows
}

/// Time, sequence, channel and payload of each event.
fn event_keys(batches: &[Batch]) -> Vec<(i64, i64, ChannelId, &[u8])> {
    let events = batches.iter().flat_map(Batch::iter);
    events.map(|event| (event.timestamp, event.sequence, event.channel, event.payload)).collect()
}

/// What a program receives, it may also return.
fn comes_back(batches: &[Batch], context: &ReadContext) {
    let written =
        write_stream(batches, &context.channels).expect("events that were read are written");
    let again = read_events(&written, context).expect("what was written is read");
    assert_eq!(event_keys(&again), event_keys(batches));
}

/// Five events that a stage has sent, on two channels, one with all metadata.
fn sent(context: &ReadContext) -> [Batch; 1] {
    let mut left = Channel::new(Name::from_text("A"), "left", Encoding::Lcm);
    left.type_name = Some("robot.pose".into());
    left.metadata.insert("frame".to_owned(), "map".to_owned());
    let right = Channel::new(Name::from_text("B"), "right", Encoding::Vel);
    let channels = [left, right].map(|channel| context.channels.intern(channel));
    let mut batch = BatchBuilder::default();
    for n in 0..5 {
        let channel = channels[n % 2].as_ref().expect("there is room for two channels");
        batch.push_copy(n as i64, n as i64, *channel, &[n as u8]);
    }
    [batch.finish()]
}

/// A stage accepts the stream as an answer, or reports what is wrong with it: its events are those
/// that came back and new ones.
fn check_answer(bytes: &[u8], sent: &[Batch], events: Option<&[Batch]>, context: &ReadContext) {
    let answered = match read_answers(bytes, sent, context) {
        Ok(answered) => answered,
        Err(what) => return assert!(!what.is_empty()),
    };
    let events = event_keys(events.expect("what a stage takes a source would take"));
    let given = event_keys(&answered.batches);
    assert_eq!(given.len(), events.len());
    for (given, event) in given.iter().zip(&events) {
        assert_eq!((given.0, given.1, given.3), (event.0, event.1, event.3));
        let name = |channel| context.channels.get(channel).name.clone();
        assert_eq!(name(given.2), name(event.2));
    }
    let back = sent.iter().map(Batch::len).sum::<usize>() - answered.missing as usize;
    assert_eq!(given.len(), back + answered.added.len(), "each event came back or is new");
    let mut origins: Vec<u32> =
        answered.batches.iter().flat_map(|batch| batch.origins().iter().copied()).collect();
    for origin in &answered.added {
        let at = origins.iter().position(|known| known == origin);
        origins.swap_remove(at.expect("new events are among those that are given"));
    }
    let read = |origin: &u32| sent.iter().any(|batch| batch.channels().contains(origin));
    assert!(origins.iter().all(read), "what came back was read where it was sent from");
}
