//! Time windows without events.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_model::time::TimePoint;
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelQuery, DynSink, Encoding, Error, Input, Map, MapQuery,
    Name, Pattern, Patterns, Query, ReadContext, Reader, Source, Split, SplitStart, Stage,
    StageContext,
};
use sluice_pipeline::names::{NameOption, SearchedName};
use sluice_pipeline::{Pipeline, PluginInstance};

use crate::engine::kit::{LineSink, SECOND, node, run};

/// A log of an event A every second, which has to be read from its start. Does not skip channels.
#[derive(Clone, Default)]
struct CompressedLog {
    /// How often it was read to its end.
    read: Arc<AtomicUsize>,
}

impl Source for CompressedLog {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Ok(vec![Input { path: "Cargo.toml".into(), bytes: Some(1) }])
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Ok(vec![Split::whole("Cargo.toml", None)])
    }

    fn read<'s>(
        &'s self,
        _: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        let channel = Channel::new(Name::from_text("A"), "made", Encoding::Unknown);
        let (channel, window) = (context.channels.intern(channel)?, context.query.window());
        let events = (0..10).map(move |second| {
            let mut batch = BatchBuilder::default();
            if window.wants_time(second * SECOND) {
                batch.push_copy(second * SECOND, 0, channel, b"");
            }
            Ok(batch.finish())
        });
        let end = || {
            self.read.fetch_add(1, Ordering::Relaxed);
            None
        };
        Ok(Box::new(events.chain(iter::from_fn(end))))
    }
}

/// Lets nothing pass: all events are before its window, or of other channels.
struct LateWindow;

impl Map for LateWindow {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        context.report.filtered += batch.len() as u64;
        Ok(batch.slice(0, 0))
    }

    fn query(&self) -> MapQuery {
        let names = Patterns(vec![Pattern::parse("B").unwrap()]);
        let none = Patterns::default();
        MapQuery {
            start: Some(TimePoint::parse("1970-01-01T00:01:00Z").unwrap()),
            channels: ChannelQuery::from_patterns(&names, &none, &none),
            keeps_times: true,
            keeps_channels: true,
            ..MapQuery::default()
        }
    }
}

#[test]
fn a_log_is_not_read_again_for_a_window_without_events_if_no_channel_was_skipped() {
    let log = CompressedLog::default();
    let mut window =
        node("late", &[0], PluginInstance::Stage(Stage::Map(Box::new(LateWindow))), None);
    window.names.push(NameOption {
        option: "start".to_owned(),
        name: SearchedName::Window("1970-01-01T00:01:00Z".to_owned()),
        span: 0..0,
    });
    let nodes = vec![
        node("log", &[], PluginInstance::Source(Box::new(log.clone())), None),
        window,
        node("out", &[1], PluginInstance::Sink(DynSink::new(LineSink::default())), None),
    ];
    let report = run(Pipeline { nodes, ..Pipeline::default() }, 2);
    let unmatched: Vec<_> = report.unmatched().map(|name| name.sentence().unwrap()).collect();
    assert_eq!(
        unmatched,
        ["no event is in the time window; the first is at 1970-01-01T00:00:00.000000000Z"]
    );
    assert_eq!(log.read.load(Ordering::Relaxed), 1);
}
