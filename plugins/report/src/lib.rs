//! Sink `report` and stage `expect`: the figures of a log, as a page to look at, as JSON, and as
//! expectations that it must meet.

mod collect;
pub mod expect;
mod figures;
mod findings;
mod origin;
mod page;
mod sink;
mod thumbnail;

pub use figures::{
    ChannelFigures, CloudFigures, DamagedRange, FieldFigures, Figures, Finding, FindingKind,
    FixFigures, GapFigures, Histogram, HistogramBin, InputFigures, LatencyFigures, NamedType,
    PictureFigures, Point, Provenance, RateFigures, Thinned, Thumbnail, TimeGrid, TrackFigures,
};
