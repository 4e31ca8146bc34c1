//! Gathers the packets of spinning lasers to revolutions. Computes no points.

use crate::points::PointLayout;

/// A revolution that is being gathered.
#[derive(Debug)]
pub(crate) struct Revolution {
    /// The map that made its packets.
    pub(crate) map: u16,
    /// The time of its first packet.
    pub(crate) time: i64,
    /// Time and number of the event of its last packet.
    pub(crate) last: (i64, i64),
    pub(crate) layout: PointLayout,
    pub(crate) points: Vec<u8>,
    azimuth: f32,
}

/// A packet of points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'p> {
    pub(crate) map: u16,
    pub(crate) time: i64,
    /// Time and number of its event.
    pub(crate) event: (i64, i64),
    pub(crate) layout: PointLayout,
    /// Of its first point, in degrees.
    pub(crate) azimuth: f32,
    pub(crate) points: &'p [u8],
}

/// A head that turns slower than this is not turning: its points are shown as they come.
const LONGEST: i64 = 1_000_000_000;
/// Revolutions have at most so many bytes, whatever the packets say.
const MAX_BYTES: usize = 32 << 20;
/// Those of all channels together.
pub(crate) const MAX_TOTAL_BYTES: usize = 64 << 20;

impl Revolution {
    pub(crate) fn start(packet: Packet<'_>) -> Self {
        let Packet { map, time, event, layout, azimuth, points } = packet;
        Self { map, time, last: event, layout, points: points.to_vec(), azimuth }
    }

    /// Whether a packet is the first of the next revolution: the azimuth wraps around, or too much
    /// time has passed.
    pub(crate) fn ends_before(&self, packet: &Packet<'_>) -> bool {
        let has_wrapped = packet.azimuth + 180.0 < self.azimuth;
        let age = packet.time.saturating_sub(self.time);
        has_wrapped
            || !(0..LONGEST).contains(&age)
            || packet.layout != self.layout
            || packet.map != self.map
            || self.points.len() + packet.points.len() > MAX_BYTES
    }

    pub(crate) fn push(&mut self, packet: Packet<'_>) {
        let start = self.points.len();
        self.points.extend_from_slice(packet.points);
        let seconds = packet.time.saturating_sub(self.time) as f64 / 1e9;
        if let Some(points) = self.points.get_mut(start..) {
            self.layout.shift_times(points, seconds as f32);
        }
        (self.last, self.azimuth) = (packet.event, packet.azimuth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(time: i64, azimuth: f32) -> Packet<'static> {
        // x, y, z and t.
        let points = &[0; 16];
        Packet { map: 0, time, event: (time, 0), layout: PointLayout(1), azimuth, points }
    }

    #[test]
    fn a_revolution_ends_where_the_azimuth_wraps() {
        let mut revolution = Revolution::start(packet(0, 10.0));
        for (time, azimuth) in [(1, 100.0), (2, 99.5), (3, 359.0)] {
            assert!(!revolution.ends_before(&packet(time, azimuth)));
            revolution.push(packet(time, azimuth));
        }
        assert!(revolution.ends_before(&packet(4, 0.5)));
        assert_eq!((revolution.points.len(), revolution.last), (64, (3, 0)));
    }

    #[test]
    fn a_head_that_stands_still_ends_its_revolution_after_a_second() {
        let revolution = Revolution::start(packet(5, 10.0));
        assert!(!revolution.ends_before(&packet(1_000_000_004, 10.0)));
        assert!(revolution.ends_before(&packet(1_000_000_005, 10.0)));
        assert!(revolution.ends_before(&packet(4, 10.0)), "time went back");
    }

    #[test]
    fn times_of_points_count_from_the_first_packet() {
        let mut revolution = Revolution::start(packet(0, 10.0));
        revolution.push(packet(250_000_000, 20.0));
        let time = |at: usize| revolution.points[at + 12..at + 16].to_vec();
        assert_eq!((time(0), time(16)), (0f32.to_le_bytes().into(), 0.25f32.to_le_bytes().into()));
    }
}
