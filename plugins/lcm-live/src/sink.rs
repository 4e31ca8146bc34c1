//! Sink `lcm-udp`: plays events to a multicast group or a hub, when they are due.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::options::{ByteSize, above_zero};
use sluice_core::playback::{PlaybackClock, PlaybackSpeed, PlaybackTurn};
use sluice_core::time::TimeLength;
use sluice_core::{Batch, EncodeContext, Encoding, Error, PerChannel, Sink, SinkContext};

use crate::options::{self, Address, Interface};
use crate::send::{Limiter, Outgoing, ToGroup, ToHub, Transport, without_nul};
use crate::url::Url;
use crate::wire;

/// Sends events as live LCM: UDP multicast (`udpm://`) or to a hub over TCP (`tcpq://`), with the
/// pauses between them that they were recorded with.
///
/// What is sent is byte for byte what LCM's own library sends. UDP does not say whether anything
/// arrived: a receiver with the system's usual buffer (208 KiB) loses every message of 300 kB.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LcmLiveSink {
    /// The address. Without one, that of the environment's LCM_DEFAULT_URL, or else
    /// `udpm://239.255.76.67:7667?ttl=0`. A `ttl` of 0 keeps messages on this computer.
    url: Option<Address>,
    /// The network interface to send through, by name or address. Without one, that which the route of
    /// the group leads to. Not for `tcpq`.
    interface: Option<Interface>,
    /// How fast: 1 is as recorded, 2 twice as fast, 0 as fast as possible.
    #[serde(default = "as_recorded", deserialize_with = "speed")]
    speed: f64,
    /// Silences longer than this are cut to it.
    max_gap: Option<TimeLength>,
    /// How often everything is sent; 0 means until somebody stops it.
    #[serde(default = "once", rename = "loop")]
    rounds: u64,
    /// Most messages a second, so that receivers can keep up.
    #[serde(default, deserialize_with = "above_zero")]
    max_rate: Option<f64>,
    /// Most bytes a second.
    max_bandwidth: Option<ByteSize>,
    #[serde(skip)]
    names: PerChannel<Arc<[u8]>>,
}

fn as_recorded() -> f64 {
    1.0
}

fn once() -> u64 {
    1
}

fn speed<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let speed = f64::deserialize(deserializer)?;
    if speed == 0.0 || (1e-6..=1e9).contains(&speed) {
        return Ok(speed);
    }
    Err(serde::de::Error::custom("expected 0 (as fast as possible), or a number from 0.000001 on"))
}

sluice_core::register! {
    sink "lcm-udp": LcmLiveSink,
    about: "sends live LCM over UDP multicast or to a hub, when events are due",
    sample: include_str!("../samples/lcm-udp-sink.toml"),
    schemes: &["udpm", "tcpq"],
    keeps_names_only: true,
}

/// Events that LCM can send.
pub struct Sendable {
    batch: Batch,
    names: Arc<Vec<Arc<[u8]>>>,
}

/// Where events go, and when.
pub struct Sending {
    transport: Transport,
    pace: PlaybackClock,
    limiter: Limiter,
    left_out: Vec<u32>,
}

/// Messages that are put together before they are sent.
const TOGETHER: usize = 64;
/// Bytes after which they are sent, however few they are.
const TOGETHER_BYTES: usize = 1 << 20;

impl LcmLiveSink {
    fn transport(&self) -> Result<Transport, Error> {
        Ok(match options::url(self.url.as_ref())? {
            Url::Udp(url) => {
                Transport::Group(ToGroup::open(url, options::card(self.interface.as_ref())?)?)
            }
            Url::Tcp(url) => {
                options::refuse_interface(self.interface.as_ref())?;
                Transport::Hub(ToHub::open(url)?)
            }
        })
    }
}

impl Sink for LcmLiveSink {
    type Block = Sendable;
    type Output = Sending;

    fn targets(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn rounds(&self) -> u64 {
        if self.rounds == 0 { u64::MAX } else { self.rounds }
    }

    /// Messages have no times. Those of events that 64 bits cannot hold are no times to wait for.
    fn accepts_wide_times(&self) -> bool {
        true
    }

    fn open(&self, context: &SinkContext) -> Result<Sending, Error> {
        let tempo =
            PlaybackSpeed { speed: self.speed, max_gap: self.max_gap.map(TimeLength::duration) };
        let cancelled = Arc::clone(&context.cancelled);
        let bytes = self.max_bandwidth.map(|bytes| bytes.0.max(1) as f64);
        Ok(Sending {
            transport: self.transport()?,
            pace: PlaybackClock::new(Arc::clone(&context.playback), Arc::clone(&cancelled), tempo),
            limiter: Limiter::new(self.max_rate, bytes, (Arc::clone(&context.playback), cancelled)),
            left_out: Vec::new(),
        })
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Sendable, Error> {
        context.note_names_only(&batch, &Encoding::Lcm);
        let named =
            |channel: &sluice_core::Channel| Ok([channel.name.as_bytes(), &[0]].concat().into());
        let names = self.names.table(context.channels, |channel| named(channel))?;
        let mut fits = vec![true; batch.len()];
        for (row, fits) in fits.iter_mut().enumerate() {
            let name = without_nul(&names[batch.channels()[row] as usize]);
            if let Err(unfit) = wire::cut(name, batch.payload_len(row)) {
                *fits = false;
                context.refused.push((row as u32, unfit.to_string()));
            }
        }
        let batch = if context.refused.is_empty() { batch } else { batch.retain(|row| fits[row]) };
        Ok(Sendable { batch, names })
    }

    fn append(&self, sending: &mut Sending, block: Sendable) -> Result<u64, Error> {
        let Sendable { batch, names } = &block;
        let Sending { transport, pace, limiter, left_out } = sending;
        let mut next: Vec<Outgoing<'_>> = Vec::with_capacity(TOGETHER);
        let (mut bytes, mut sent) = (0, 0);
        // Who holds messages back is to be asked for each whether it is still wanted.
        let together = if limiter.is_free() { TOGETHER } else { 1 };
        for (row, event) in batch.iter().enumerate() {
            let time = batch.wide_time(row).is_none().then_some(event.timestamp);
            let mut turn = pace.poll(time);
            if turn == PlaybackTurn::Later {
                transport.send(&next, limiter)?;
                (sent, bytes) = (sent + next.len() as u64, 0);
                next.clear();
                turn = pace.wait(time);
            }
            if turn == PlaybackTurn::Never {
                left_out.push(batch.origins()[row]);
                continue;
            }
            next.push(Outgoing { channel: &names[event.channel.index()], payload: event.payload });
            bytes += event.payload.len();
            if next.len() == together || bytes >= TOGETHER_BYTES {
                transport.send(&next, limiter)?;
                (sent, bytes) = (sent + next.len() as u64, 0);
                next.clear();
            }
        }
        transport.send(&next, limiter)?;
        Ok(sent + next.len() as u64)
    }

    fn take_skipped(&self, sending: &mut Sending) -> Vec<u32> {
        std::mem::take(&mut sending.left_out)
    }

    fn notes(&self, sending: &Sending) -> Vec<(String, u64)> {
        sending.transport.notes()
    }

    fn finish(&self, _: Sending) -> Result<u64, Error> {
        Ok(0)
    }
}
