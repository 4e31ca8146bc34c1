//! Sink `lcm-udp`: sends events to a multicast group or a hub when they are due.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_kit::Playback;
use sluice_kit::playback::{PlaybackClock, PlaybackSpeed, PlaybackTurn};
use sluice_model::options::{ByteSize, above_zero};
use sluice_model::time::TimeSpan;
use sluice_model::{
    Batch, Encoding, Error, PerChannel, PrepareContext, Sink, SinkContext, SinkTraits, Written,
};

use crate::options::{self, Address, Interface};
use crate::send::{GroupSender, HubSender, Outgoing, RateLimiter, Transport, without_nul};
use crate::url::Url;
use crate::wire;

/// Sends events as live LCM, by UDP multicast (`udpm://`) or to a hub over TCP (`tcpq://`), with
/// the pauses between them as recorded.
///
/// The bytes sent are the same as those of LCM's own library. UDP does not report whether anything
/// arrived: a receiver with the system's default buffer (208 KiB) loses every message of 300 kB.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LcmLiveSink {
    /// The address. Default: LCM_DEFAULT_URL in the environment, or else
    /// `udpm://239.255.76.67:7667?ttl=0`. A `ttl` of 0 keeps messages on this computer.
    url: Option<Address>,
    /// The network interface to send through, by name or address. Default: the interface of the
    /// route to the group. Not for `tcpq`.
    interface: Option<Interface>,
    /// Playback speed: 1 is as recorded, 2 twice as fast, 0 as fast as possible.
    #[serde(default = "as_recorded", deserialize_with = "speed")]
    speed: f64,
    /// Shortens longer silences to this.
    max_gap: Option<TimeSpan>,
    /// How often to send everything; 0 repeats until interrupted.
    #[serde(default = "once", rename = "loop")]
    rounds: u64,
    /// Most messages per second, so that receivers can keep up.
    #[serde(default, deserialize_with = "above_zero")]
    max_rate: Option<f64>,
    /// Most bytes per second.
    #[serde(default, deserialize_with = "ByteSize::above_zero")]
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
    Err(serde::de::Error::custom(
        "expected 0 (as fast as possible) or a number of at least 0.000001",
    ))
}

sluice_model::register! {
    sink "lcm-udp": LcmLiveSink,
    about: "sends live LCM over UDP multicast or to a hub, at the recorded pace",
    sample: include_str!("../samples/lcm-udp-sink.toml"),
    default_for: &[sluice_model::DefaultRole::Live],
    schemes: &["udpm", "tcpq"],
    keeps_names_only: true,
}

/// Events that LCM can send.
pub struct SendableEvents {
    batch: Batch,
    names: Arc<Vec<Arc<[u8]>>>,
}

/// The transport, the playback clock and the rate limit.
pub struct LiveOutput {
    transport: Transport,
    clock: PlaybackClock,
    limiter: RateLimiter,
    /// What is still to be noted of messages that come back.
    returning: Option<String>,
}

/// Messages collected before they are sent.
const SEND_BATCH: usize = 64;
/// Bytes after which fewer messages are sent.
const SEND_BATCH_BYTES: usize = 1 << 20;

impl LcmLiveSink {
    /// What to note if the run receives from the same address.
    fn returning(&self, context: &SinkContext) -> Result<Option<String>, Error> {
        // Between two networks, the address may be the same.
        if self.interface.is_some() {
            return Ok(None);
        }
        let to = options::url_or_default(self.url.as_ref())?;
        let inputs = context.origin.inputs.iter().filter_map(|input| input.path.to_str());
        let same = inputs.filter_map(|path| Url::parse(path).ok()).find(|from| from.is_same(&to));
        Ok(same.map(|from| {
            format!(
                "{to} is also what is received from ({from}): a message circulates without end if \
                 its channel is among those received; filter or rename channels, or, between two \
                 networks, name the `interface` to send through"
            )
        }))
    }

    fn transport(&self) -> Result<Transport, Error> {
        Ok(match options::url_or_default(self.url.as_ref())? {
            Url::Udp(url) => Transport::Group(GroupSender::open(url, self.interface.clone())?),
            Url::Tcp(url) => {
                options::refuse_interface(self.interface.as_ref())?;
                Transport::Hub(HubSender::open(url)?)
            }
        })
    }
}

impl Sink for LcmLiveSink {
    type Block = SendableEvents;
    type Unit = SendableEvents;
    type Output = LiveOutput;

    fn traits(&self) -> SinkTraits {
        SinkTraits {
            // LCM messages have no time. Times beyond 64 bits are not waited for.
            accepts_wide_times: true,
            is_live: true,
            rounds: if self.rounds == 0 { u64::MAX } else { self.rounds },
            ..SinkTraits::default()
        }
    }

    fn open(&self, context: &SinkContext) -> Result<LiveOutput, Error> {
        let tempo =
            PlaybackSpeed { speed: self.speed, max_gap: self.max_gap.map(TimeSpan::duration) };
        let playback = context.run.shared::<Playback>();
        let bytes = self.max_bandwidth.map(|bytes| bytes.0 as f64);
        Ok(LiveOutput {
            transport: self.transport()?,
            returning: self.returning(context)?,
            clock: PlaybackClock::new(Arc::clone(&playback), context.run.clone(), tempo),
            limiter: RateLimiter::new(self.max_rate, bytes, (playback, context.run.clone())),
        })
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<SendableEvents, Error> {
        context.note_names_only(&batch, &Encoding::Lcm);
        let named =
            |channel: &sluice_model::Channel| Ok([channel.name.as_bytes(), &[0]].concat().into());
        let names = self.names.table(context.channels, |channel| named(channel))?;
        let mut fits = vec![true; batch.len()];
        for (row, fits) in fits.iter_mut().enumerate() {
            let name = without_nul(&names[batch.channels()[row] as usize]);
            if let Err(unfit) = wire::split_message(name, batch.payload_len(row)) {
                *fits = false;
                context.report.refused.push((row as u32, unfit.to_string()));
            }
        }
        let batch =
            if context.report.refused.is_empty() { batch } else { batch.retain(|row| fits[row]) };
        Ok(SendableEvents { batch, names })
    }

    fn write(&self, sending: &mut LiveOutput, block: SendableEvents) -> Result<Written, Error> {
        let SendableEvents { batch, names } = &block;
        let LiveOutput { transport, clock: pace, limiter, returning } = sending;
        let mut next: Vec<Outgoing<'_>> = Vec::with_capacity(SEND_BATCH);
        let (mut bytes, mut written) = (0, Written::default());
        written.notes.extend(returning.take().map(|note| (note, 0)));
        // With a rate limit, each message needs its own check whether it is still due.
        let together = if limiter.is_unlimited() { SEND_BATCH } else { 1 };
        for (row, event) in batch.iter().enumerate() {
            let time = batch.wide_time(row).is_none().then_some(event.timestamp);
            let mut turn = pace.poll(time);
            if turn == PlaybackTurn::Later {
                transport.send(&next, limiter)?;
                written.events += next.len() as u64;
                bytes = 0;
                next.clear();
                turn = pace.wait(time);
            }
            if turn == PlaybackTurn::Never {
                written.skipped.push(batch.origins()[row]);
                continue;
            }
            next.push(Outgoing { channel: &names[event.channel.index()], payload: event.payload });
            bytes += event.payload.len();
            if next.len() == together || bytes >= SEND_BATCH_BYTES {
                transport.send(&next, limiter)?;
                written.events += next.len() as u64;
                bytes = 0;
                next.clear();
            }
        }
        transport.send(&next, limiter)?;
        written.events += next.len() as u64;
        Ok(written)
    }

    fn finish(&self, sending: LiveOutput) -> Result<Written, Error> {
        Ok(Written { notes: sending.transport.notes(), ..Written::default() })
    }
}
