//! Source `lcm-udp`: receives what is sent to a multicast group, or what a hub hands on.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::options::ByteSize;
use sluice_core::time::TimeLength;
use sluice_core::{Error, Input, Patterns, Query, ReadContext, Reader, Source, Split, SplitStart};

use crate::batcher::{Batcher, Wanted};
use crate::inbox::Inbox;
use crate::intake::Limits;
use crate::options::{self, Address, Interface};
use crate::receive::{FromGroup, FromHub, LiveReader, Receiving, Until};
use crate::udp::{self, Listening};
use crate::url::{TcpUrl, UdpUrl, Url};

/// Receives live LCM: UDP multicast (`udpm://`) or a hub over TCP (`tcpq://`).
///
/// Every message that the system delivers is given; what it did not deliver is counted by reason, and
/// makes the run end with exit code 3. It ends when it is told to: by `duration`, `limit`,
/// `idle_timeout`, or Ctrl-C.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LcmLive {
    /// The address. Without one, that of the environment's LCM_DEFAULT_URL, or else
    /// `udpm://239.255.76.67:7667?ttl=0`.
    url: Option<Address>,
    /// The network interface to receive on, by name or address. Without one, that which the route of
    /// the group leads to. Not for `tcpq`.
    interface: Option<Interface>,
    /// Only channels that match: globs, or `re:` and a regular expression.
    #[serde(default)]
    channels: Patterns,
    /// No channels that match.
    #[serde(default)]
    exclude: Patterns,
    /// Whether to give the messages on `LCM_SELF_TEST`, which every LCM program sends to itself when it
    /// starts.
    #[serde(default)]
    self_test: bool,
    /// Ends after this time.
    duration: Option<TimeLength>,
    /// Ends when nothing has come for this time.
    idle_timeout: Option<TimeLength>,
    /// Ends after so many events.
    limit: Option<u64>,
    /// How much may wait for the pipeline. What comes when it is full is dropped, and counted.
    #[serde(default = "usual_buffer")]
    buffer: ByteSize,
    /// How large a buffer to ask the system for, if the address does not say (`recv_buf_size`). The
    /// system's own would not hold one message of 300 kB.
    #[serde(default = "usual_socket_buffer")]
    socket_buffer: ByteSize,
    /// How much memory messages may take of which some fragments are still missing.
    #[serde(default = "usual_unfinished")]
    unfinished: ByteSize,
}

fn usual_buffer() -> ByteSize {
    ByteSize(128 << 20)
}

fn usual_socket_buffer() -> ByteSize {
    ByteSize(32 << 20)
}

fn usual_unfinished() -> ByteSize {
    ByteSize(Limits::default().bytes as u64)
}

sluice_core::register! {
    source "lcm-udp": LcmLive,
    about: "receives live LCM over UDP multicast or from a hub, and counts what was lost",
    sample: include_str!("../samples/lcm-udp-source.toml"),
    schemes: &["udpm", "tcpq"],
}

impl LcmLive {
    fn until(&self) -> Until {
        let Self { duration, idle_timeout, .. } = self;
        Until {
            duration: duration.map(TimeLength::duration),
            idle: idle_timeout.map(TimeLength::duration),
        }
    }

    fn receiving(&self, context: &ReadContext) -> Receiving {
        let inbox = Arc::new(Inbox::new(usize::try_from(self.buffer.0).unwrap_or(usize::MAX)));
        let batcher = Batcher::new(Arc::clone(&inbox), context, self.limit);
        let wanted = Wanted {
            channels: self.channels.clone(),
            exclude: self.exclude.clone(),
            query: context.query.channels.clone(),
            self_test: self.self_test,
            ..Wanted::default()
        };
        Receiving::new(inbox, batcher, wanted, self.until(), Arc::clone(&context.losses))
    }

    fn listen_to_group(&self, url: UdpUrl, context: &ReadContext) -> Result<LiveReader, Error> {
        let card = options::card(self.interface.as_ref())?;
        let Listening { socket, buffer, advice } = udp::listen(&url, card, self.socket_buffer)?;
        for unknown in &url.unknown {
            context
                .losses
                .note(format!("the address has an option that means nothing: {unknown}"), 0);
        }
        let on = self.interface.as_ref().map(|it| format!(" on {}", it.name())).unwrap_or_default();
        let address = Url::Udp(url.clone());
        context
            .losses
            .note(format!("listening to {address}{on}, with a socket buffer of {buffer}"), 0);
        advice.into_iter().for_each(|advice| context.losses.note(advice, 0));
        let bytes = usize::try_from(self.unfinished.0).unwrap_or(usize::MAX);
        let limits = Limits { bytes, ..Limits::default() };
        let receiving = self.receiving(context);
        let inbox = Arc::clone(&receiving.inbox);
        let group = FromGroup::new(socket, url, card, limits);
        LiveReader::start(inbox, context, move |stop| group.run(receiving, stop))
    }

    fn listen_to_hub(&self, url: TcpUrl, context: &ReadContext) -> Result<LiveReader, Error> {
        options::refuse_interface(self.interface.as_ref())?;
        let note = format!("listening to {url}");
        let hub = FromHub::connect(url, self.regexes())?;
        context.losses.note(note, 0);
        let receiving = self.receiving(context);
        let inbox = Arc::clone(&receiving.inbox);
        LiveReader::start(inbox, context, move |stop| hub.run(receiving, stop))
    }

    /// What a hub is asked for: names that are wanted as they are, or else everything.
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
        let path = options::url(self.url.as_ref())?.to_string().into();
        Ok(vec![Input { path, bytes: None }])
    }

    fn splits(&self, _: u64, _: &Query) -> Result<Vec<Split>, Error> {
        Ok(vec![Split::live(options::url(self.url.as_ref())?.to_string())])
    }

    fn read<'s>(
        &'s self,
        _: &Split,
        _: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        Ok(Box::new(match options::url(self.url.as_ref())? {
            Url::Udp(url) => self.listen_to_group(url, context)?,
            Url::Tcp(url) => self.listen_to_hub(url, context)?,
        }))
    }
}
