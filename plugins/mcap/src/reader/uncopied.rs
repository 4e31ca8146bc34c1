//! Counts what an input has besides messages, and notes that it is lost if no sink copies it.

#![warn(clippy::indexing_slicing)]

use std::path::Path;

use sluice_io::escape::printable;
use sluice_io::files;
use sluice_kit::SinkPlugins;
use sluice_model::{ReadContext, Split};

use crate::index::FileIndex;
use crate::summary::Summary;
use crate::wire::{Head, RecordFields, op};

/// The metadata and attachments of an input, if they are lost.
#[derive(Debug, Default)]
pub(super) struct Uncopied {
    cause: Option<Cause>,
    /// Whether they are counted as they are met: if the file is read as a whole.
    is_counting: bool,
    metadata: u64,
    attachments: u64,
    bytes: u64,
    /// The profile in the header of a stream.
    profile: String,
}

/// Why they are lost.
#[derive(Clone, Copy, Debug)]
enum Cause {
    /// No sink of the run copies them.
    Sinks,
    /// The sink cannot read the input again.
    Stream,
}

impl Uncopied {
    /// Those of an input, of which a split is read.
    pub(super) fn new(
        path: &Path,
        split: &Split,
        index: Option<&FileIndex>,
        context: &ReadContext,
    ) -> Self {
        let cause = if context.run.shared::<SinkPlugins>().lacks("mcap") {
            Some(Cause::Sinks)
        } else {
            files::is_stream(path).then_some(Cause::Stream)
        };
        if split.start == 0 && split.end.is_none() {
            return Self { cause, is_counting: true, ..Self::default() };
        }
        // Of several splits, the first notes those of all.
        match index.and_then(FileIndex::summary).filter(|_| split.start == 0) {
            Some(summary) => Self { cause, ..Self::from_summary(summary) },
            None => Self::default(),
        }
    }

    fn from_summary(Summary { metadata, attachments, statistics, .. }: &Summary) -> Self {
        // Writers may leave indexes out.
        let counted = statistics.as_ref().map(|all| (all.metadata, all.attachments));
        let (least_metadata, least_attachments) = counted.unwrap_or_default();
        let bytes = metadata.iter().chain(attachments).map(|listed| listed.len);
        Self {
            metadata: (metadata.len() as u64).max(least_metadata.into()),
            attachments: (attachments.len() as u64).max(least_attachments.into()),
            bytes: bytes.fold(0, u64::saturating_add),
            ..Self::default()
        }
    }

    /// Counts a record that is passed.
    pub(super) fn count(&mut self, head: Head) {
        let count = match head.opcode {
            op::METADATA => &mut self.metadata,
            op::ATTACHMENT => &mut self.attachments,
            _ => return,
        };
        if self.is_counting {
            *count += 1;
            self.bytes = self.bytes.saturating_add(head.record_len());
        }
    }

    /// The header of a file is passed, given its content. Sinks start a file before a stream is
    /// read.
    pub(super) fn note_header(&mut self, content: &[u8]) {
        if let (Some(Cause::Stream), Some(profile)) = (self.cause, RecordFields(content).text()) {
            self.profile = profile.to_owned();
        }
    }

    /// The note about the profile that is lost, once.
    pub(super) fn take_profile_note(&mut self) -> Option<(String, u64)> {
        let profile = std::mem::take(&mut self.profile);
        (!profile.is_empty()).then(|| {
            let profile = printable(&profile);
            let note = "of a stream is not copied: set the sink's `profile`";
            (format!("the profile `{profile}` {note}"), 0)
        })
    }

    /// The note about what is lost, once.
    pub(super) fn take_note(&mut self, input: &str) -> Option<(String, u64)> {
        let Self { cause, metadata, attachments, bytes, .. } = std::mem::take(self);
        let count = metadata + attachments;
        match cause.filter(|_| count > 0)? {
            Cause::Sinks => Some((
                format!(
                    "{input}: metadata records ({metadata}) and attachments ({attachments}) of \
                     {bytes} bytes are lost: only the sink `mcap` copies them"
                ),
                0,
            )),
            Cause::Stream => Some((UNCOPIED.to_owned(), count)),
        }
    }
}

/// The note about what else a stream has.
const UNCOPIED: &str = "metadata and attachments of a stream are not copied; a file's are, if it \
                        is saved first";
