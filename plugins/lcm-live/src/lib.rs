//! Live LCM: source and sink `lcm-udp` for `udpm://` (UDP multicast) and `tcpq://` (the TCP queue),
//! and service `lcm-hub`.
//!
//! `url` parses addresses, `wire` reads and writes datagrams, `intake` reassembles messages and
//! accounts for those that are missing, and `tcpq` is the queue over TCP, client and hub.
//!
//! A thread of its own receives (`receive`), makes batches (`batcher`) and sends them over a
//! bounded channel (`inbox`), from which the pipeline takes them. The sink sends events itself when
//! they are due (`send`).

mod batcher;
mod inbox;
mod intake;
mod membership;
mod options;
mod receive;
mod send;
mod service;
mod sink;
mod source;
mod tcpq;
mod udp;
mod url;
mod wire;

pub use service::LcmHub;
pub use sink::LcmLiveSink;
pub use source::LcmLive;

/// Internals for fuzz targets; not part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::intake::{
        Intake, IntakeCounts, IntakeLimits, LiveMessage, LossReason, MessagePayload, SenderStats,
    };
    pub use crate::tcpq::frame::{
        FrameFault, FrameLimits, FrameParser, MalformedFrame, Publish, TcpqFrame, TooLong,
    };
    pub use crate::url::{TcpUrl, UdpUrl, Url};
    pub use crate::wire::{Datagram, Fragment, MAX_CHANNEL_LEN, Reject, parse};
}
