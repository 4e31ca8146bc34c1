//! Reassembles LCM messages from datagrams in memory, on one thread, and prints what a datagram
//! costs: the best of many short rounds, which other work on the machine disturbs little.
//!
//! It checks that every message arrives. It has no socket: `run.py --only live` measures all of
//! receiving.

use std::hint::black_box;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use anyhow::ensure;
use sluice_lcm_live::fuzzing::{Intake, IntakeLimits};

/// Bytes of a datagram after its header, as LCM's library sends them.
const SHORT_BODY: usize = 65_499;
const FRAGMENT_BODY: usize = 65_487;
const CHANNEL: &[u8] = b"CHANNEL\0";

/// Bytes that a receiver takes with one call: they stay in the core's own cache.
const CACHE_BYTES: usize = 512 << 10;
const ROUNDS: u32 = 60;
const ROUND_TIME: Duration = Duration::from_millis(3);

/// Messages of one size, and who sends the n-th one with which sequence number.
struct Traffic {
    what: &'static str,
    size: usize,
    sender_and_number: fn(u32) -> (u32, u32),
}

const TRAFFIC: [Traffic; 8] = [
    Traffic { what: "144 B", size: 144, sender_and_number: |n| (0, n) },
    Traffic { what: "1226 B", size: 1226, sender_and_number: |n| (0, n) },
    Traffic { what: "17.7 kB", size: 17_700, sender_and_number: |n| (0, n) },
    Traffic { what: "3 MB", size: 3_000_000, sender_and_number: |n| (0, n) },
    Traffic {
        what: "144 B, 20 senders in turn",
        size: 144,
        sender_and_number: |n| (n % 20, n / 20),
    },
    Traffic { what: "144 B, every second one late", size: 144, sender_and_number: |n| (0, n ^ 1) },
    Traffic {
        what: "144 B, two numberings far from each other",
        size: 144,
        sender_and_number: |n| (0, 100_000_000 * (n % 2) + n / 2),
    },
    Traffic { what: "144 B, a new sender each", size: 144, sender_and_number: |n| (n, 0) },
];

fn main() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for traffic in TRAFFIC {
        writeln!(out, "{}: {:.1} ns a datagram", traffic.what, traffic.measure()?)?;
    }
    Ok(())
}

impl Traffic {
    /// The time of a datagram, in nanoseconds.
    fn measure(&self) -> anyhow::Result<f64> {
        let message = datagrams(self.size);
        let len = message.iter().map(Vec::len).sum::<usize>();
        let mut messages = vec![message; (CACHE_BYTES / len).clamp(1, 64)];
        let mut intake = Intake::new(IntakeLimits::default());
        let (mut next, mut delivered, mut best) = (0, 0, f64::MAX);
        for _ in 0..ROUNDS {
            let (start, first) = (Instant::now(), next);
            while start.elapsed() < ROUND_TIME {
                for datagrams in &mut messages {
                    let (sender, number) = (self.sender_and_number)(next);
                    let from = SocketAddrV4::new(Ipv4Addr::from_bits(sender), 7667);
                    for datagram in datagrams {
                        datagram[4..8].copy_from_slice(&number.to_be_bytes());
                        let wants = |_: &[u8]| true;
                        intake.take(black_box(datagram), from, 0, wants, |message| {
                            delivered += u32::from(message.payload.len() == self.size);
                            black_box(message);
                        });
                    }
                    next += 1;
                }
            }
            let datagrams = f64::from(next - first) * messages[0].len() as f64;
            best = best.min(start.elapsed().as_nanos() as f64 / datagrams);
        }
        ensure!(delivered == next, "{}: {delivered} of {next} messages arrived", self.what);
        Ok(best)
    }
}

/// The datagrams of a message with a payload of this size.
fn datagrams(size: usize) -> Vec<Vec<u8>> {
    let body: Vec<u8> = CHANNEL.iter().copied().chain((0..size).map(|at| at as u8)).collect();
    if body.len() <= SHORT_BODY {
        return vec![[b"LC02\0\0\0\0", body.as_slice()].concat()];
    }
    let pieces = body.chunks(FRAGMENT_BODY);
    let (size, count) = (size as u32, pieces.len() as u16);
    let fragment = |(number, data): (usize, &[u8])| {
        let offset = (number * FRAGMENT_BODY).saturating_sub(CHANNEL.len()) as u32;
        let place = [(number as u16).to_be_bytes(), count.to_be_bytes()].concat();
        let header = [&size.to_be_bytes()[..], &offset.to_be_bytes(), &place].concat();
        [b"LC03\0\0\0\0", header.as_slice(), data].concat()
    };
    pieces.enumerate().map(fragment).collect()
}
