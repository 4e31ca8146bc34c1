//! The five thumbnail cameras: a rendered road, encoded once per view and varied from frame to
//! frame.
//!
//! The view repeats every few frames and ignores the course; the bytes never repeat.

use std::sync::OnceLock;

use jpeg_encoder::{ColorType, Encoder};

use super::encode::{self, PayloadEncoder};
use super::jpeg::JpegTemplate;
use super::noise::Noise;

const WIDTH: u16 = 376;
const HEIGHT: u16 = 240;
/// The FourCC "MJPG".
const PIXEL_FORMAT: i32 = 0x4750_4a4d;
const QUALITY: u8 = 80;

/// Frames until the view repeats: the time to drive from one lane mark to the next.
const VIEWS: u64 = 8;
/// Noise amplitude of each view. It determines the size of the JPEG, as foliage and dust do in a
/// real one.
const GRAIN: [u64; VIEWS as usize] = [6, 14, 11, 18, 9, 15, 33, 12];

/// A camera and the geometry of its picture.
struct Camera {
    channel: &'static str,
    /// Row of the horizon.
    horizon: i64,
    /// Column at which the road vanishes.
    vanishing: i64,
    /// Pixels of road width per row below the horizon, in eighths.
    road_width: i64,
    /// Whether lane marks recede, as they do behind the vehicle.
    recedes: bool,
}

/// The rear camera, whose channel stops before the drive ends.
pub(super) const REAR: &str = "CAM_THUMB_RRC";

const CAMERAS: [Camera; 5] = [
    Camera { channel: "CAM_THUMB_RFC", horizon: 96, vanishing: 188, road_width: 8, recedes: false },
    Camera {
        channel: "CAM_THUMB_RFL",
        horizon: 90,
        vanishing: 330,
        road_width: 10,
        recedes: false,
    },
    Camera { channel: "CAM_THUMB_RFR", horizon: 92, vanishing: 46, road_width: 10, recedes: false },
    Camera { channel: REAR, horizon: 84, vanishing: 190, road_width: 9, recedes: true },
    Camera {
        channel: "CAM_THUMB_RFC_6mm",
        horizon: 110,
        vanishing: 186,
        road_width: 16,
        recedes: false,
    },
];

/// The channels of the cameras.
pub(super) fn channels() -> impl Iterator<Item = &'static str> {
    CAMERAS.iter().map(|camera| camera.channel)
}

/// The cameras of one drive and the views rendered so far.
#[derive(Debug)]
pub(super) struct Cameras {
    seed: u64,
    views: Vec<OnceLock<JpegTemplate>>,
}

impl Cameras {
    pub(super) fn new(seed: u64) -> Self {
        let views = (0..CAMERAS.len() * VIEWS as usize).map(|_| OnceLock::new()).collect();
        Self { seed, views }
    }

    /// Appends frame `index` of camera `number` as an `image_t`.
    ///
    /// The first call for each view of a camera renders and encodes it, which takes milliseconds.
    pub(super) fn append(
        &self,
        number: usize,
        index: u64,
        utime: i64,
        noise: Noise,
        out: &mut Vec<u8>,
    ) {
        let view = index % VIEWS;
        let view_index = number * VIEWS as usize + view as usize;
        let template =
            self.views[view_index].get_or_init(|| self.paint(&CAMERAS[number], view_index, view));
        let mut payload = PayloadEncoder::new(out, encode::IMAGE, utime);
        payload.int16(WIDTH as i16);
        payload.int16(HEIGHT as i16);
        payload.int16(WIDTH as i16);
        payload.int32(PIXEL_FORMAT);
        payload.count(template.len());
        template.append_varied(noise, out);
    }

    fn paint(&self, camera: &Camera, view_index: usize, view: u64) -> JpegTemplate {
        let grain = GRAIN[(view_index * 3 + view_index / VIEWS as usize) % GRAIN.len()];
        let noise = Noise::new(self.seed, PAINT_STREAM, view_index as u64);
        let pixels = camera.picture(view as i64, grain, noise);
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, QUALITY)
            .encode(&pixels, WIDTH, HEIGHT, ColorType::Rgb)
            .expect("writing to a Vec does not fail and the pixels match the picture size");
        JpegTemplate::new(bytes)
    }
}

/// Distinct from the noise streams of the channels.
const PAINT_STREAM: u64 = 1000;

/// Metres between lane marks times rows below the horizon; the scale of depth.
const DEPTH: i64 = 2600;
/// Depth units from one lane mark to the next.
const MARK_SPACING: i64 = 64;

impl Camera {
    /// The picture as RGB bytes, top row first.
    fn picture(&self, view: i64, grain: u64, mut noise: Noise) -> Vec<u8> {
        let mut pixels = Vec::with_capacity(usize::from(WIDTH) * usize::from(HEIGHT) * 3);
        for row in 0..i64::from(HEIGHT) {
            for column in 0..i64::from(WIDTH) {
                let colour = self.colour(row, column, view);
                let speckle = noise.below(grain);
                pixels.extend(colour.map(|part| (part + speckle as i64).clamp(0, 255) as u8));
            }
        }
        pixels
    }

    fn colour(&self, row: i64, column: i64, view: i64) -> [i64; 3] {
        let below = row - self.horizon;
        if below <= 0 {
            return [150 + row / 2, 170 + row / 2, 205 + row / 8];
        }
        let aside = (column - self.vanishing).abs() * 8;
        let edge = below * self.road_width;
        let travelled = view * MARK_SPACING / VIEWS as i64;
        let depth = DEPTH / below + if self.recedes { -travelled } else { travelled };
        if aside > edge {
            [132 - below / 8, 116 - below / 8, 84 - below / 16]
        } else if aside > edge - below / 2 {
            [196, 196, 190]
        } else if aside < below / 3 && depth.rem_euclid(MARK_SPACING) < MARK_SPACING / 2 {
            [210, 190, 70]
        } else {
            [78 + below / 8, 78 + below / 8, 82 + below / 8]
        }
    }
}
