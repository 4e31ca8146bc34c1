//! Goes on behind damage of compressed data, of which an unknown number of bytes is missing. Knows
//! no format, and reports nothing.

use sluice_io::files::LogFile;
use sluice_model::Error;

/// Where reading goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapEnd {
    /// The end of what is passed.
    pub at: u64,
    /// Whether something is there to read.
    pub is_found: bool,
}

/// Goes on behind damage that ended a compressed log at `at`.
///
/// `resume` goes on with the next frame and returns where that begins, anywhere in a record; `None`
/// if there is none. `search` then looks for something to read from there on. What follows may be
/// damaged as well before that is found.
pub fn pass_gap<L>(
    log: &mut L,
    at: u64,
    resume: impl Fn(&mut L) -> Result<Option<u64>, Error>,
    search: impl Fn(&mut L, u64) -> Result<GapEnd, Error>,
) -> Result<GapEnd, Error> {
    let mut end = GapEnd { at, is_found: false };
    while !end.is_found
        && let Some(from) = resume(log)?
    {
        let found = search(log, from)?;
        // The byte between is none of the log.
        if found.is_found || found.at > from {
            end = found;
        }
    }
    Ok(end)
}

/// What is wrong with a log that was resumed behind damage of its compressed bytes: the `reason`,
/// and where they are. The position of the damage itself is one of the decompressed log.
pub fn reason_with_place(reason: String, log: &mut LogFile) -> String {
    match log.take_passed() {
        Some(passed) if !passed.is_empty() => {
            let (start, end) = (passed.start, passed.end);
            format!("{reason}; the compressed data from byte {start} to {end} is left out")
        }
        _ => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes a gap at 10, behind which these frames are left: where each begins, and where the
    /// search of it ends.
    fn pass(frames: &[(u64, GapEnd)]) -> (GapEnd, usize) {
        let mut log = (frames.iter(), None);
        let end = pass_gap(
            &mut log,
            10,
            |(frames, found)| {
                let next = frames.next();
                *found = next.map(|(_, end)| *end);
                Ok(next.map(|(from, _)| *from))
            },
            |(_, found), _| Ok(found.unwrap()),
        );
        (end.unwrap(), log.0.len())
    }

    #[test]
    fn frames_are_searched_until_something_is_found() {
        let end = |at, is_found| GapEnd { at, is_found };
        assert_eq!(pass(&[]), (end(10, false), 0));
        assert_eq!(pass(&[(11, end(11, false))]), (end(10, false), 0));
        assert_eq!(pass(&[(11, end(11, true)), (12, end(20, true))]), (end(11, true), 1));
        assert_eq!(pass(&[(11, end(15, false)), (16, end(20, true))]), (end(20, true), 0));
        assert_eq!(pass(&[(11, end(15, false)), (16, end(16, false))]), (end(15, false), 0));
    }
}
