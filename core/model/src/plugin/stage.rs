//! The stage traits.

use super::stage_context::{RowsEffect, StageContext};
use super::{ChannelQuery, Fold};
use crate::time::{TimeLength, TimePoint};
use crate::{Batch, Error, FieldPath, Pattern};

/// Turns batches into batches: filters, renames, decodes, sorts.
///
/// The variant decides how the engine may run it:
///
/// | variant | state | threads | order |
/// |---|---|---|---|
/// | [`Map`](Self::Map) | none | any, several at once | any |
/// | [`Fold`](Self::Fold) | yes | one at a time | the order of the events |
/// | [`Chain`](Self::Chain) | that of its parts | that of its parts | that of its parts |
///
/// A stage plugin implements `TryFrom<Options>` for this type, see [`register!`](crate::register).
///
/// ```
/// use sluice_model::{Batch, Error, Map, Stage, StageContext};
///
/// /// Lets every event pass.
/// struct Pass;
///
/// impl Map for Pass {
///     fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
///         Ok(batch)
///     }
/// }
///
/// let stage = Stage::Chain(vec![Stage::Map(Box::new(Pass)), Stage::Map(Box::new(Pass))]);
/// assert_eq!(stage.parts().len(), 2);
/// ```
pub enum Stage {
    /// Processes each batch on its own.
    Map(Box<dyn Map>),
    /// Processes all batches in order, with state.
    Fold(Box<dyn Fold>),
    /// A sequence of stages, run as if they were listed in the pipeline file. Counts and notes are
    /// reported under the name of the whole stage.
    ///
    /// Useful for a fold that attaches state to events, followed by a map that does the work on all
    /// cores. Parts share nothing but the batches: when sources are read again, folds are made
    /// again and maps are not. An empty chain passes everything.
    Chain(Vec<Self>),
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Map(_) => f.write_str("Map"),
            Self::Fold(_) => f.write_str("Fold"),
            Self::Chain(parts) => f.debug_list().entries(parts).finish(),
        }
    }
}

impl Stage {
    /// Its maps and folds in order, with chains flattened.
    pub fn into_parts(self) -> Vec<Self> {
        let (mut parts, mut left) = (Vec::new(), vec![self]);
        while let Some(stage) = left.pop() {
            match stage {
                Self::Chain(chain) => left.extend(chain.into_iter().rev()),
                part => parts.push(part),
            }
        }
        parts
    }

    /// Like [`into_parts`](Self::into_parts), borrowed.
    pub fn parts(&self) -> Vec<&Self> {
        let (mut parts, mut left) = (Vec::new(), vec![self]);
        while let Some(stage) = left.pop() {
            match stage {
                Self::Chain(chain) => left.extend(chain.iter().rev()),
                part => parts.push(part),
            }
        }
        parts
    }

    /// Whether any part needs the time of the first event.
    pub fn needs_origin(&self) -> bool {
        self.parts().into_iter().any(|part| match part {
            Self::Map(map) => map.needs_origin(),
            Self::Fold(fold) => fold.needs_origin(),
            Self::Chain(_) => false,
        })
    }

    /// What it adds to the time of every event: see [`Map::shift`].
    pub fn shift(&self) -> i64 {
        match self {
            Self::Map(map) => map.shift().0,
            Self::Fold(fold) => fold.shift().0,
            Self::Chain(chain) => chain.iter().map(Self::shift).fold(0, i64::saturating_add),
        }
    }

    /// The time of the first event before each of its [parts](Self::parts), and after the last,
    /// given the time before the stage; saturating.
    pub fn origins(&self, before: Option<i64>) -> Vec<Option<i64>> {
        let mut origins = vec![before];
        for (place, part) in self.parts().into_iter().enumerate() {
            origins.push(origins[place].map(|origin| origin.saturating_add(part.shift())));
        }
        origins
    }

    /// The fingerprints of its parts: see [`Map::fingerprint`].
    pub fn fingerprints(&self) -> Vec<String> {
        let of = |part: &Self| match part {
            Self::Map(map) => map.fingerprint(),
            Self::Fold(fold) => fold.fingerprint(),
            Self::Chain(_) => None,
        };
        self.parts().into_iter().filter_map(of).collect()
    }

    /// Notes that do not depend on events: see [`Map::notes`].
    pub fn notes(&self) -> Vec<String> {
        let of = |part: &Self| match part {
            Self::Map(map) => map.notes(),
            Self::Fold(_) | Self::Chain(_) => Vec::new(),
        };
        self.parts().into_iter().flat_map(of).collect()
    }
}

/// A stage without state: each batch is processed on its own.
///
/// [`apply`](Self::apply) is called on any thread, for several batches at the same time and in any
/// order. Its result may depend on the events only, not on how they are cut into batches: the
/// engine cuts them differently from run to run. Use it rather than [`Fold`] whenever possible: it
/// runs on all cores.
///
/// The engine checks that events are conserved. An event that does not come out has to be counted
/// in [`filtered`](crate::StageReport::filtered), one that only comes out in
/// [`added`](crate::StageReport::added); otherwise the run fails. `Err` ends the run.
///
/// Work that depends on the channel only belongs into a [`PerChannel`](crate::PerChannel) table,
/// not into the loop over events.
///
/// ```
/// use sluice_model::{Batch, BatchBuilder, ChannelId, Channels, Error, Map, StageContext};
///
/// /// Drops events without payload.
/// struct DropEmpty;
///
/// impl Map for DropEmpty {
///     fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
///         let kept = batch.retain(|row| batch.payload_len(row) > 0);
///         context.report.filtered += (batch.len() - kept.len()) as u64;
///         Ok(kept)
///     }
/// }
///
/// let channels = Channels::default();
/// let mut context = StageContext::new(&channels, None);
/// let mut batch = BatchBuilder::default();
/// batch.push_copy(1, 0, ChannelId(0), b"");
/// batch.push_copy(2, 1, ChannelId(0), b"payload");
/// let kept = DropEmpty.apply(batch.finish(), &mut context)?;
/// assert_eq!((kept.len(), context.report.filtered), (1, 1));
/// # Ok::<(), Error>(())
/// ```
pub trait Map: Send + Sync {
    /// Processes one batch. How events are cut into batches must not matter.
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error>;

    /// What the stage lets through, as far as that is known without events. Allows sources to skip
    /// the rest.
    fn query(&self) -> MapQuery {
        MapQuery::default()
    }

    /// Whether it needs the time of the first event, which may have to be waited for.
    fn needs_origin(&self) -> bool {
        false
    }

    /// What it adds to the time of every event. Times relative to the first event, in the stages
    /// after it, then count from the shifted one.
    fn shift(&self) -> TimeLength {
        TimeLength::default()
    }

    /// The fields that its expressions need, each with its option. Fields in options of their own
    /// are found by their schema.
    fn named_fields(&self) -> Vec<(&'static str, FieldPath)> {
        Vec::new()
    }

    /// The channels named in expressions, each with its option: a run reports those that never
    /// appear. Channels in options of their own are found by their schema.
    fn named_channels(&self) -> Vec<(&'static str, Pattern)> {
        Vec::new()
    }

    /// The effect on decoded rows, as far as it is known beforehand. Allows checking field names
    /// before the run.
    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Unclear
    }

    /// Whether it uses or changes decoded rows.
    fn uses_rows(&self) -> bool {
        !matches!(self.rows_after(), RowsEffect::Same) || !self.named_fields().is_empty()
    }

    /// One line of text that identifies what determines its result besides options, such as the
    /// contents of files they name. With `--resume`, outputs made with another fingerprint are made
    /// again.
    fn fingerprint(&self) -> Option<String> {
        None
    }

    /// Notes for every run, whatever its events, such as options that have no effect.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a map lets through, in terms of times and channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapQuery {
    /// Only events at or after this time pass.
    pub start: Option<TimePoint>,
    /// Only events before this time pass.
    pub end: Option<TimePoint>,
    /// Only events of these channels pass.
    pub channels: ChannelQuery,
    /// Whether timestamps do not change, so that time windows can be pushed down through the stage.
    pub keeps_times: bool,
    /// Whether channels do not change, so that channel filters can be pushed down.
    pub keeps_channels: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoOpStage(&'static str);

    impl Map for NoOpStage {
        fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
            Ok(batch)
        }

        fn fingerprint(&self) -> Option<String> {
            Some(self.0.to_owned())
        }
    }

    impl Fold for NoOpStage {
        fn push(&mut self, batch: Batch, _: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
            Ok(vec![batch])
        }

        fn needs_origin(&self) -> bool {
            true
        }
    }

    #[test]
    fn nested_chains_are_flattened() {
        let map = |name| Stage::Map(Box::new(NoOpStage(name)));
        let inner = Stage::Chain(vec![Stage::Fold(Box::new(NoOpStage("f"))), map("b")]);
        let chain = Stage::Chain(vec![map("a"), Stage::Chain(Vec::new()), inner, map("c")]);
        assert!(chain.needs_origin());
        assert_eq!(chain.fingerprints(), ["a", "b", "c"]);
        assert_eq!(format!("{:?}", chain.parts()), "[Map, Fold, Map, Map]");
        assert_eq!(format!("{:?}", chain.into_parts()), "[Map, Fold, Map, Map]");
    }

    struct Shift(i64);

    impl Map for Shift {
        fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
            Ok(batch)
        }

        fn shift(&self) -> TimeLength {
            TimeLength(self.0)
        }
    }

    #[test]
    fn the_first_event_is_shifted_by_every_part_of_a_chain() {
        let shift = |nanos| Stage::Map(Box::new(Shift(nanos)));
        let fold = Stage::Fold(Box::new(NoOpStage("f")));
        let chain = Stage::Chain(vec![shift(5), Stage::Chain(vec![fold, shift(-2)])]);
        assert_eq!(chain.origins(Some(10)), [10, 15, 15, 13].map(Some));
        assert_eq!(shift(i64::MAX).origins(Some(1)), [1, i64::MAX].map(Some));
        assert_eq!(shift(1).origins(None), [None, None]);
    }
}
