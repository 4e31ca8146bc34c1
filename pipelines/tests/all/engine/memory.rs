//! How much stage output exists at one time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use sluice_model::options::ByteSize;
use sluice_model::{Batch, BatchBuilder, Error, Fold, Map, Stage, StageContext};
use sluice_pipeline::run::{self, Options};

use crate::engine::kit::{LineSink, MadeUpSource, chain_of};

const CAP: usize = 64 << 20;

/// The split size under this memory cap.
const PIECE: usize = CAP / 256;

/// Live bytes, and their maximum.
#[derive(Default)]
struct LiveBytes {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Bytes that count as live until dropped.
struct CountedBytes {
    bytes: Vec<u8>,
    alive: Arc<LiveBytes>,
}

impl CountedBytes {
    fn new(len: usize, alive: &Arc<LiveBytes>) -> Self {
        let now = alive.now.fetch_add(len, Ordering::SeqCst) + len;
        alive.most.fetch_max(now, Ordering::SeqCst);
        Self { bytes: vec![0; len], alive: Arc::clone(alive) }
    }
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.alive.now.fetch_sub(self.bytes.len(), Ordering::SeqCst);
    }
}

/// Makes batches this many times as large.
struct SwellingMap(usize, Arc<LiveBytes>);

impl Map for SwellingMap {
    fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
        let mut builder = BatchBuilder::default();
        let large = CountedBytes::new(batch.payload_bytes() as usize * self.0, &self.1);
        let segment = builder.segment(Bytes::from_owner(large));
        for event in batch.iter() {
            let place = sluice_model::PayloadOffset { segment, offset: 0 };
            builder.push(event.timestamp, event.sequence, event.channel, &[0; 64], place);
        }
        Ok(builder.finish())
    }
}

/// Passes events through.
struct PassingFold;

impl Fold for PassingFold {
    fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        Ok(vec![batch])
    }
}

/// The maximum of live bytes, if batches grow this many times.
fn most_alive(times: usize, stage: impl Fn(Stage) -> Stage) -> usize {
    let alive = Arc::<LiveBytes>::default();
    let (seconds, per_second) = (80, 16);
    let payload = PIECE / per_second as usize;
    let made = MadeUpSource { seconds, per_second, payload, ..MadeUpSource::default() };
    let swell = Stage::Map(Box::new(SwellingMap(times, Arc::clone(&alive))));
    let lines = LineSink::default();
    let pipeline = chain_of(&made, vec![("swell", stage(swell))], &lines);
    let memory = Some(ByteSize(CAP as u64));
    run::run(pipeline, &Options { jobs: Some(8), memory, ..Options::default() }).unwrap();
    assert_eq!(lines.lines.lock().unwrap().len() as i64, seconds * per_second);
    assert_eq!(alive.now.load(Ordering::SeqCst), 0);
    alive.most.load(Ordering::SeqCst)
}

#[test]
fn batches_that_swell_while_they_are_read_stay_below_the_cap() {
    let most = most_alive(20, |swell| swell);
    assert!(most < CAP, "{most}");
}

#[test]
fn batches_that_swell_behind_a_fold_stay_below_the_cap() {
    let most =
        most_alive(40, |swell| Stage::Chain(vec![Stage::Fold(Box::new(PassingFold)), swell]));
    assert!(most < CAP, "{most}");
}

#[test]
fn batches_that_swell_before_a_fold_stay_below_the_cap() {
    let most =
        most_alive(20, |swell| Stage::Chain(vec![swell, Stage::Fold(Box::new(PassingFold))]));
    assert!(most < CAP, "{most}");
}
