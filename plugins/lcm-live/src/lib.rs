//! Live LCM: source and sink `lcm-udp`, for `udpm://` (UDP multicast) and `tcpq://` (the TCP queue), and
//! service `lcm-hub`.
//!
//! [`url`] reads addresses; [`wire`] is the bytes of one datagram; [`intake`] makes messages of datagrams
//! and keeps the books of what is missing; [`tcpq`] is the queue over TCP, client and hub. Receiving is a
//! thread of its own (`receive`) that makes batches (`batcher`) and puts them into a bounded `inbox`,
//! from which the pipeline takes them. Sending (`send`) is done by the sink itself, when events are due.

pub mod intake;
pub mod options;
pub mod service;
pub mod sink;
pub mod source;
pub mod tcpq;
pub mod url;
pub mod wire;

mod batcher;
mod inbox;
mod receive;
mod send;
mod udp;
