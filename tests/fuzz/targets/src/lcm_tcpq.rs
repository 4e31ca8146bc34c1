//! LCM over TCP: the frames of a connection.

use sluice_lcm_live::fuzzing::{FrameLimits, FrameParser, MalformedFrame, TcpqFrame};

use crate::inputs;

// Small, so that the fuzzer meets the limits.
const LIMITS: FrameLimits = FrameLimits { name: 40, payload: 3000 };

fn frames(
    stream: &[u8],
    mut piece_len: impl FnMut() -> usize,
) -> (Vec<TcpqFrame>, Option<MalformedFrame>) {
    let (mut parser, mut found, mut rest) = (FrameParser::new(LIMITS, 0), Vec::new(), stream);
    while !rest.is_empty() {
        let (mut piece, behind) = rest.split_at(piece_len().clamp(1, rest.len()));
        rest = behind;
        loop {
            match parser.next(&mut piece) {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(e) => {
                    assert!(!e.to_string().is_empty());
                    assert_eq!(parser.next(&mut piece), Err(e));
                    return (found, Some(e));
                }
            }
        }
        assert!(piece.is_empty());
        assert_eq!(parser.at() + parser.pending() as u64 + rest.len() as u64, stream.len() as u64);
    }
    (found, None)
}

/// Any bytes are frames of the TCP queue and then an end, however they are split.
pub fn lcm_tcpq(bytes: &[u8]) {
    let Some((pieces, stream)) = inputs::split_two(bytes) else { return };
    let (whole, end) = frames(stream, || usize::MAX);
    let mut lengths = pieces.iter().cycle();
    let cut = frames(stream, || lengths.next().map_or(1, |&len| len.into()));
    assert_eq!(cut, (whole.clone(), end));
    let mut rest = stream;
    for frame in whole {
        rest = rest.strip_prefix(&*frame.to_bytes()).expect("frames tile the stream");
    }
}
