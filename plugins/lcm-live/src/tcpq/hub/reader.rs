//! The reading thread of a client: relays what it publishes, and keeps its subscriptions.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hashbrown::HashMap;
use sluice_io::escape::printable;

use super::{ConnectedClient, DisconnectReason, Hub, READ_LEN};
use crate::tcpq::frame::{FrameParser, Publish, TcpqFrame};
use crate::tcpq::handshake::HANDSHAKE_LEN;
use crate::tcpq::outbox::EnqueueResult;
use crate::tcpq::subscriptions::readable;

/// Most channels of one publisher in its route cache; beyond that the cache is cleared.
const MAX_ROUTES: usize = 1024;

/// Longest channel name in the route cache.
const ROUTE_NAME_LEN: usize = 256;

/// Most mistakes of one client that are reported.
const MAX_REPORTED_MISTAKES: u32 = 10;

/// The reading thread of a client.
pub(super) struct ClientReader<'s, S> {
    hub: &'s Hub,
    client: &'s ConnectedClient,
    say: &'s S,
    routes: Routes,
    /// Mistakes reported so far.
    mistakes: u32,
}

impl<'s, S: Fn(&str)> ClientReader<'s, S> {
    pub(super) fn new(hub: &'s Hub, client: &'s ConnectedClient, say: &'s S) -> Self {
        Self { hub, client, say, routes: Routes::default(), mistakes: 0 }
    }

    pub(super) fn read(mut self, mut socket: &TcpStream) -> Result<(), DisconnectReason> {
        let mut parser = FrameParser::new(self.hub.limits.frame, HANDSHAKE_LEN as u64);
        let mut buffer = vec![0; READ_LEN];
        loop {
            let mut input = match socket.read(&mut buffer) {
                Ok(0) if parser.pending() > 0 => {
                    return Err(DisconnectReason::LeftInFrame(parser.pending()));
                }
                Ok(0) => return Ok(()),
                Ok(n) => buffer.get(..n).unwrap_or_default(),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            };
            while let Some(frame) = parser.next(&mut input)? {
                match frame {
                    TcpqFrame::Publish(message) => self.relay(&message),
                    TcpqFrame::Subscribe(text) => self.subscribe(text),
                    TcpqFrame::Unsubscribe(text) => self.unsubscribe(&text),
                }
            }
        }
    }

    fn relay(&mut self, message: &Publish) {
        let frame = message.frame();
        let tally = &self.hub.tally;
        tally.messages_in.fetch_add(1, Ordering::Relaxed);
        tally.bytes_in.fetch_add(frame.len() as u64, Ordering::Relaxed);
        for receiver in self.routes.receivers_of(message.channel(), self.hub).iter() {
            if receiver.outbox.add(frame) == EnqueueResult::Dropped {
                receiver.dropped.fetch_add(1, Ordering::Relaxed);
                tally.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn subscribe(&mut self, text: Bytes) {
        let limit = self.hub.limits.subscriptions;
        let added = self.hub.update_subscriptions(self.client, |all| all.add(text.clone(), limit));
        if let Err(why) = added {
            self.report_mistake(&format!("its subscription {} {why}", quoted(&text)));
        }
    }

    fn unsubscribe(&mut self, text: &[u8]) {
        if !self.hub.update_subscriptions(self.client, |all| all.remove(text)) {
            self.report_mistake(&format!(
                "it ends a subscription it does not have: {}",
                quoted(text)
            ));
        }
    }

    /// Reports a mistake; the protocol cannot tell the client.
    fn report_mistake(&mut self, mistake: &str) {
        self.mistakes = self.mistakes.saturating_add(1);
        if self.mistakes <= MAX_REPORTED_MISTAKES {
            let last = if self.mistakes == MAX_REPORTED_MISTAKES {
                "; further mistakes are not reported"
            } else {
                ""
            };
            (self.say)(&format!("{}: {mistake}{last}", self.client.peer));
        }
    }
}

/// Quotes text of a client for the log: shortened, without control characters.
fn quoted(text: &[u8]) -> String {
    const MOST: usize = 80;
    let text = readable(text);
    let mut short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("`{}`", printable(&short))
}

/// The receivers of one client's channels, cached since clients or subscriptions last changed.
#[derive(Default)]
struct Routes {
    generation: u64,
    cache: HashMap<Box<[u8]>, Receivers, foldhash::fast::RandomState>,
}

type Receivers = Arc<[Arc<ConnectedClient>]>;

impl Routes {
    fn receivers_of(&mut self, channel: &[u8], hub: &Hub) -> Receivers {
        let changes = hub.generation.load(Ordering::Acquire);
        if changes != self.generation || self.cache.len() >= MAX_ROUTES {
            self.cache.clear();
            self.generation = changes;
        }
        if let Some(receivers) = self.cache.get(channel) {
            return Arc::clone(receivers);
        }
        let receivers = find_receivers(channel, hub);
        if channel.len() <= ROUTE_NAME_LEN {
            self.cache.insert(channel.into(), Arc::clone(&receivers));
        }
        receivers
    }
}

fn find_receivers(channel: &[u8], hub: &Hub) -> Receivers {
    let name = readable(channel);
    // Matching may take long: it must not block clients that come or go.
    let clients: Vec<_> =
        hub.connections().iter().map(|member| Arc::clone(&member.client)).collect();
    clients.into_iter().filter(|client| client.subscriptions().matches(&name)).collect()
}
