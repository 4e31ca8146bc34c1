//! Source `lcm-udp`: receives from a multicast group or a hub.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::options::ByteSize;
use sluice_model::time::TimeSpan;
use sluice_model::{
    Error, Input, LiveBatches, Patterns, Query, ReadContext, Reader, Source, Split, SplitStart,
};

use crate::batcher::{Batcher, LiveChannelFilter};
use crate::inbox::Inbox;
use crate::intake::IntakeLimits;
use crate::options::{self, Address, Interface};
use crate::receive::{self, GroupReceiver, HubReceiver, ReceiveSession, StopConditions};
use crate::udp::{self, GroupSocket};
use crate::url::{TcpUrl, UdpUrl, Url};

/// Receives live LCM: UDP multicast (`udpm://`) or a hub over TCP (`tcpq://`).
///
/// Reads every message that the system delivers. Lost messages are counted by reason and make the
/// run end with exit code 3. It ends by `duration`, `limit`, `idle_timeout`, or Ctrl-C.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LcmLive {
    /// The address. Default: LCM_DEFAULT_URL in the environment, or else
    /// `udpm://239.255.76.67:7667?ttl=0`.
    url: Option<Address>,
    /// The network interface to receive on, by name or address. Default: the interface of the route
    /// to the group. Not for `tcpq`.
    interface: Option<Interface>,
    /// Reads only matching channels: globs, or `re:` and a regular expression.
    #[serde(default)]
    channels: Patterns,
    /// Leaves out matching channels.
    #[serde(default)]
    exclude: Patterns,
    /// Also reads the messages on `LCM_SELF_TEST`, which every LCM program sends to itself when it
    /// starts.
    #[serde(default)]
    self_test: bool,
    /// Ends after this time.
    duration: Option<TimeSpan>,
    /// Ends when nothing has arrived for this time.
    idle_timeout: Option<TimeSpan>,
    /// Ends after this many events.
    limit: Option<u64>,
    /// Most bytes that wait for the pipeline. Messages beyond that are dropped and counted.
    #[serde(default = "default_buffer")]
    buffer: ByteSize,
    /// Socket buffer to request from the system, unless the address has `recv_buf_size`. The
    /// system's default does not hold one message of 300 kB.
    #[serde(default = "default_socket_buffer")]
    socket_buffer: ByteSize,
    /// Most memory for messages with missing fragments.
    #[serde(default = "default_unfinished")]
    unfinished: ByteSize,
}

fn default_buffer() -> ByteSize {
    ByteSize(128 << 20)
}

fn default_socket_buffer() -> ByteSize {
    ByteSize(32 << 20)
}

fn default_unfinished() -> ByteSize {
    ByteSize(IntakeLimits::default().bytes as u64)
}

sluice_model::register! {
    source "lcm-udp": LcmLive,
    about: "receives live LCM over UDP multicast or from a hub, and counts lost messages",
    sample: include_str!("../samples/lcm-udp-source.toml"),
    default_for: &[sluice_model::DefaultRole::Live],
    schemes: &["udpm", "tcpq"],
}

impl LcmLive {
    fn stop_conditions(&self) -> StopConditions {
        let Self { duration, idle_timeout, .. } = self;
        StopConditions {
            duration: duration.map(TimeSpan::duration),
            idle: idle_timeout.map(TimeSpan::duration),
        }
    }

    fn session(&self, context: &ReadContext) -> (ReceiveSession, LiveBatches) {
        let (inbox, batches) = Inbox::new(usize::try_from(self.buffer.0).unwrap_or(usize::MAX));
        let batcher = Batcher::new(inbox, context, self.limit);
        let filter = LiveChannelFilter {
            channels: self.channels.clone(),
            exclude: self.exclude.clone(),
            query: context.query.channels.clone(),
            self_test: self.self_test,
            ..LiveChannelFilter::default()
        };
        (ReceiveSession::new(batcher, filter, self.stop_conditions(), context), batches)
    }

    fn open_group(&self, url: UdpUrl, context: &ReadContext) -> Result<LiveBatches, Error> {
        let interface = options::resolve_interface(self.interface.as_ref())?;
        let GroupSocket { socket, buffer, advice } =
            udp::open_receiver(&url, interface, self.socket_buffer)?;
        for unknown in &url.unknown_options {
            context
                .losses
                .note(format!("the address has an unknown option, which is ignored: {unknown}"), 0);
        }
        let on = self.interface.as_ref().map(|it| format!(" on {}", it.name())).unwrap_or_default();
        let address = Url::Udp(url.clone());
        context
            .losses
            .note(format!("listening to {address}{on}, with a socket buffer of {buffer}"), 0);
        advice.into_iter().for_each(|advice| context.losses.note(advice, 0));
        let bytes = usize::try_from(self.unfinished.0).unwrap_or(usize::MAX);
        let limits = IntakeLimits { bytes, ..IntakeLimits::default() };
        let (session, batches) = self.session(context);
        let interface = (self.interface.clone(), interface);
        let group = GroupReceiver::new(socket, url, interface, limits);
        receive::start(session, move |session| group.run(session))?;
        Ok(batches)
    }

    fn open_hub(&self, url: TcpUrl, context: &ReadContext) -> Result<LiveBatches, Error> {
        options::refuse_interface(self.interface.as_ref())?;
        let note = format!("listening to {url}");
        let hub = HubReceiver::connect(url, self.regexes())?;
        context.losses.note(note, 0);
        let (session, batches) = self.session(context);
        receive::start(session, move |session| hub.run(session))?;
        Ok(batches)
    }

    /// The subscriptions for a hub: channel names if all patterns are names, or else everything.
    fn regexes(&self) -> Vec<String> {
        let names = self.channels.0.iter().map(|pattern| pattern.as_name().map(regex::escape));
        let names: Option<Vec<String>> = names.collect();
        names.filter(|names| !names.is_empty()).unwrap_or_else(|| vec![".*".to_owned()])
    }
}

impl Source for LcmLive {
    fn is_undecoded(&self) -> bool {
        true
    }

    fn inputs(&self) -> Result<Vec<Input>, Error> {
        let path = options::url_or_default(self.url.as_ref())?.to_string().into();
        Ok(vec![Input { path, bytes: None }])
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Ok(vec![Split::live(options::url_or_default(self.url.as_ref())?.to_string())])
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(self.listen(split, context)?))
    }

    fn listen(&self, _: &Split, context: &ReadContext) -> Result<LiveBatches, Error> {
        match options::url_or_default(self.url.as_ref())? {
            Url::Udp(url) => self.open_group(url, context),
            Url::Tcp(url) => self.open_hub(url, context),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_model::{PluginKind, Registry};

    #[test]
    fn durations_below_0_and_a_rate_of_0_are_refused() {
        for (kind, key, value) in [
            (PluginKind::Source, "duration", json!(-1)),
            (PluginKind::Source, "idle_timeout", json!("-5s")),
            (PluginKind::Sink, "max_gap", json!("-5s")),
            (PluginKind::Sink, "max_bandwidth", json!(0)),
        ] {
            let (registry, options) = (Registry::linked(), json!({ key: value }));
            let error = match kind {
                PluginKind::Source => registry.source("lcm-udp", options).err(),
                _ => registry.sink("lcm-udp", options).err(),
            };
            assert_eq!(error.unwrap().path, [key]);
        }
    }
}
