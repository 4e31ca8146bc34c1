//! What bytes are: a record, too few to tell, or none, and why. Looks at one place only, and reads nothing.

#![warn(clippy::indexing_slicing)]

use std::fmt;

use crate::format::{Extent, Format, Kind, Spot, Sums};
use crate::literal::spelled;
use crate::options::Counts;
use crate::walk::Walked;
use crate::wire::Word;

/// What bytes begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// A record, as far as it alone can tell.
    Record {
        /// Its bytes.
        len: usize,
        /// Its kind.
        kind: usize,
    },
    /// So many bytes are needed to tell.
    Needs(usize),
    /// No record.
    Wrong(Wrong),
}

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// There is no sync word.
    Sync,
    /// It is of no kind that is described; what stands where the kind should.
    Kind(Vec<u8>),
    /// Its length is what none can be.
    Length {
        /// What it would be.
        len: i128,
        /// The shortest that can be.
        least: usize,
        /// The longest that is believed.
        longest: usize,
    },
    /// No sync word follows.
    Endless(usize),
    /// Its fields do not end where it does.
    Unfit(usize),
    /// It is sound, but for its fields, which are not what the description says: in words.
    Misfit(String),
    /// Something that is always the same is not: where in the record.
    Constant(usize),
    /// Its checksum is wrong.
    Checksum(Sums),
    /// The log ends in it.
    CutOff(u64),
    /// Nothing that can be believed follows it.
    Unconfirmed(usize),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("there is no sync word where a record should begin"),
            Self::Kind(found) => {
                write!(f, "a record of kind {}, which is not described", spelled(found))
            }
            Self::Length { len, least, longest } => {
                write!(
                    f,
                    "its length would be {len} bytes, and {least} to {longest} are believed (`max_record`)"
                )
            }
            Self::Endless(longest) => {
                write!(f, "no record begins within {longest} bytes, the longest that is believed")
            }
            Self::Unfit(len) => write!(f, "its fields do not end where its {len} bytes do"),
            Self::Misfit(words) => f.write_str(words),
            Self::Constant(at) => {
                write!(f, "byte {at} of the record is not what is always there")
            }
            Self::Checksum(Sums { said, found }) => {
                write!(f, "its checksum is {found:#x}, and it says {said:#x}")
            }
            Self::CutOff(len) => write!(f, "the log ends {len} bytes into a record"),
            Self::Unconfirmed(len) => {
                write!(f, "no record follows its {len} bytes, so that these cannot be believed")
            }
        }
    }
}

impl Format {
    /// The kind of the record that `bytes` begin with; nothing if it is none that is described, or they are too few.
    #[inline]
    pub fn kind_of(&self, bytes: &[u8]) -> Option<usize> {
        let Some(key) = &self.key else { return Some(0) };
        key.kind(bytes.get(key.at..key.at.checked_add(key.len)?)?)
    }

    /// What `bytes` begin with. `is_all` says that the log ends with them.
    #[inline]
    pub fn look(&self, bytes: &[u8], is_all: bool) -> Look {
        let sync = self.sync.needle();
        // To compare nothing is slow: some processors take their time over a vector's address that is none.
        if !sync.is_empty() && !bytes.starts_with(sync) {
            let may_be = bytes.len() < sync.len() && sync.starts_with(bytes);
            return if may_be { Look::Needs(self.reach) } else { Look::Wrong(Wrong::Sync) };
        }
        if bytes.len() < self.reach {
            return Look::Needs(self.reach);
        }
        let Some((number, kind)) = self.kind_of(bytes).and_then(|n| Some((n, self.kinds.get(n)?)))
        else {
            return Look::Wrong(Wrong::Kind(self.key_of(bytes)));
        };
        let len = match self.len(kind, bytes, is_all) {
            Ok(len) => len,
            Err(look) => return look,
        };
        if let Err(wrong) = self.check_len(kind, len) {
            return Look::Wrong(wrong);
        }
        let len = len as usize;
        match bytes.get(..len) {
            None => Look::Needs(len),
            Some(record) => match self.check(kind, record) {
                Ok(()) => Look::Record { len, kind: number },
                Err(wrong) => Look::Wrong(wrong),
            },
        }
    }

    /// How long the record claims to be that `bytes` begin with, if that is more than `least`, can be, and is to be
    /// told by a checksum.
    #[inline]
    pub fn claim(&self, bytes: &[u8], least: usize) -> Option<usize> {
        let Extent::Length { at, word, counts, plus } = self.extent else { return None };
        let len = self.said_len((at, word), counts, plus, bytes)?;
        if len <= least as i128 {
            return None;
        }
        let sync = self.sync.needle();
        let kind = self.kinds.get(self.kind_of(bytes)?)?;
        let can_be = bytes.starts_with(sync) && self.check_len(kind, len).is_ok();
        (can_be && kind.checksum.is_some()).then_some(len as usize)
    }

    /// Whether a record may begin with `bytes`, as far as they go.
    pub fn may_begin(&self, bytes: &[u8]) -> bool {
        let sync = self.sync.needle();
        let len = sync.len().min(bytes.len());
        if bytes.get(..len) != sync.get(..len) {
            return false;
        }
        if bytes.len() < self.reach {
            return true;
        }
        let Some(kind) = self.kind_of(bytes).and_then(|kind| self.kinds.get(kind)) else {
            return false;
        };
        if let Extent::Length { at, word, counts, plus } = self.extent {
            let len = self.said_len((at, word), counts, plus, bytes);
            if len.is_none_or(|len| !self.may_have(kind, len)) {
                return false;
            }
        }
        kind.constants.iter().all(|(spot, value)| match spot {
            Spot::Start(at) => {
                let there = bytes.get(*at..).unwrap_or_default();
                there.iter().zip(value).all(|(found, wanted)| found == wanted)
            }
            Spot::End(_) => true,
        })
    }

    #[cold]
    pub(crate) fn key_of(&self, bytes: &[u8]) -> Vec<u8> {
        let key = self.key.as_ref().and_then(|key| bytes.get(key.at..key.at + key.len));
        key.unwrap_or_default().to_vec()
    }

    /// How long the record is that `bytes` begin with; not checked yet.
    #[inline]
    fn len(&self, kind: &Kind, bytes: &[u8], is_all: bool) -> Result<i128, Look> {
        match (self.extent, kind.fixed) {
            (Extent::Length { at, word, counts, plus }, _) => {
                let said = self.said_len((at, word), counts, plus, bytes);
                said.ok_or(Look::Needs(self.reach))
            }
            (Extent::Fields, Some(fixed)) => Ok(fixed as i128),
            (Extent::Fields, None) => self.walked_len(kind, bytes),
            (Extent::Sync, _) => self.len_to_sync(bytes, is_all),
        }
    }

    #[inline]
    fn said_len(
        &self,
        (at, word): (usize, Word),
        counts: Counts,
        plus: i64,
        bytes: &[u8],
    ) -> Option<i128> {
        let said = word.whole(bytes.get(at..)?)? + i128::from(plus);
        let beside = match counts {
            Counts::Payload => self.head_len + self.tail_len,
            Counts::Record => 0,
            Counts::Follows => at + word.number.width(),
        };
        Some(said + beside as i128)
    }

    fn walked_len(&self, kind: &Kind, bytes: &[u8]) -> Result<i128, Look> {
        let walk = kind.walk.as_ref().ok_or(Look::Needs(kind.least))?;
        match walk.go(bytes, self.head_len, None, self.longest, |_, _| ()) {
            Walked::To(end) => Ok((end + self.tail_len) as i128),
            Walked::Needs(more) => Err(Look::Needs(more)),
            Walked::Unfit => Err(Look::Wrong(self.too_long(kind))),
        }
    }

    #[cold]
    fn too_long(&self, kind: &Kind) -> Wrong {
        let (least, longest) = (kind.least, self.longest);
        Wrong::Length { len: longest as i128 + 1, least, longest }
    }

    fn len_to_sync(&self, bytes: &[u8], is_all: bool) -> Result<i128, Look> {
        let sync = self.sync.needle().len();
        let most = self.longest.saturating_add(sync);
        let searched = bytes.get(..most).unwrap_or(bytes);
        let found = searched.get(sync..).and_then(|behind| self.sync.find(behind));
        match found {
            Some(at) => Ok((at + sync) as i128),
            None if bytes.len() >= most => Err(Look::Wrong(Wrong::Endless(self.longest))),
            None if is_all => Ok(bytes.len() as i128),
            None => Err(Look::Needs(bytes.len().saturating_mul(2).max(FIRST_LOOK).min(most))),
        }
    }

    #[inline]
    fn check_len(&self, kind: &Kind, len: i128) -> Result<(), Wrong> {
        let (least, longest) = (kind.least, self.longest);
        if len < least as i128 || len > longest as i128 {
            return Err(Wrong::Length { len, least, longest });
        }
        match kind.fixed {
            Some(fixed) if fixed as i128 != len => Err(Wrong::Unfit(len as usize)),
            _ => Ok(()),
        }
    }

    /// Whether what may be a record of this kind may have this length. Where there is a sync word, that speaks for it.
    #[inline]
    fn may_have(&self, kind: &Kind, len: i128) -> bool {
        if self.sync.needle().is_empty() {
            return self.check_len(kind, len).is_ok();
        }
        len >= (self.head_len + self.tail_len) as i128 && len <= self.longest as i128
    }

    /// How long a record is that is wrong in that only.
    #[cold]
    pub(crate) fn len_at_odds(&self, wrong: &Wrong) -> Option<usize> {
        let len = match wrong {
            Wrong::Length { len, .. } => usize::try_from(*len).ok()?,
            Wrong::Unfit(len) => *len,
            _ => return None,
        };
        let is_whole = len >= self.head_len + self.tail_len && len <= self.longest;
        (is_whole && !matches!(self.extent, Extent::Fields)).then_some(len)
    }

    /// In which way the description does not fit this record, of whose kind the length is not, if all else that it
    /// says of itself is right.
    #[cold]
    pub(crate) fn misfit(&self, record: &[u8]) -> Option<(&Kind, Wrong)> {
        let number = self.kind_of(record)?;
        let is_other = self.key.as_ref().is_some_and(|key| key.other == Some(number));
        let kind = self.kinds.get(number).filter(|_| !is_other)?;
        let lies_in_head = |spot: &Spot, value: &[u8]| match spot {
            Spot::Start(at) => at + value.len() <= self.head_len,
            Spot::End(before) => *before <= self.tail_len,
        };
        let mut constants = kind.constants.iter().filter(|(spot, value)| lies_in_head(spot, value));
        if !constants.all(|(spot, value)| spot.of(record).starts_with(value)) {
            return None;
        }
        if let Some(checksum) = &kind.checksum {
            checksum.sums(record).filter(|sums| sums.said == sums.found)?;
        }
        Some((kind, Wrong::Misfit(self.misfit_words(kind, record))))
    }

    fn misfit_words(&self, kind: &Kind, record: &[u8]) -> String {
        let (name, beside) = (&kind.name, self.head_len + self.tail_len);
        let has = record.len().saturating_sub(beside);
        let walked = kind.walk.as_ref().map(|walk| {
            let body = record.get(..self.head_len + has).unwrap_or_default();
            walk.go(body, self.head_len, None, self.longest, |_, _| ())
        });
        let needs = match walked {
            None => kind.fixed.map(|fixed| fixed.saturating_sub(beside).to_string()),
            Some(Walked::To(end)) => Some(end.saturating_sub(self.head_len).to_string()),
            Some(Walked::Needs(_) | Walked::Unfit) if kind.least > record.len() => {
                Some(format!("at least {}", kind.least.saturating_sub(beside)))
            }
            Some(_) => None,
        };
        match needs {
            Some(needs) => format!("{name}: its fields need {needs} bytes, its payload has {has}"),
            None => {
                format!("{name}: its fields do not take up the {has} bytes of its payload evenly")
            }
        }
    }

    /// Whether a record of this length is what its kind says.
    #[inline]
    fn check(&self, kind: &Kind, record: &[u8]) -> Result<(), Wrong> {
        for (spot, value) in &kind.constants {
            if !spot.of(record).starts_with(value) {
                return Err(Wrong::Constant(spot.in_record(record.len()).unwrap_or_default()));
            }
        }
        if let Some(checksum) = &kind.checksum {
            match checksum.sums(record) {
                Some(sums) if sums.said == sums.found => {}
                Some(sums) => return Err(Wrong::Checksum(sums)),
                None => return Err(Wrong::Unfit(record.len())),
            }
        }
        let Some(walk) = &kind.walk else { return Ok(()) };
        let Some(end) = record.len().checked_sub(self.tail_len) else {
            return Err(Wrong::Unfit(record.len()));
        };
        match walk.go(record, self.head_len, Some(end), record.len(), |_, _| ()) {
            Walked::To(found) if found == end => Ok(()),
            _ => Err(Wrong::Unfit(record.len())),
        }
    }
}

/// How many bytes a sync word is looked for in at first.
const FIRST_LOOK: usize = 256;
