//! Offsets in records.

/// An offset in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordOffset {
    /// From its start.
    Start(usize),
    /// From its end.
    End(usize),
}

impl RecordOffset {
    /// The offset from the start of a record of this length.
    #[inline]
    pub(crate) fn in_record(self, len: usize) -> Option<usize> {
        match self {
            Self::Start(at) => Some(at),
            Self::End(before) => len.checked_sub(before),
        }
    }

    /// The bytes of `record` from this offset on.
    #[inline]
    pub(crate) fn bytes_in(self, record: &[u8]) -> &[u8] {
        self.in_record(record.len()).and_then(|at| record.get(at..)).unwrap_or_default()
    }
}
