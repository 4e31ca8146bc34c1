//! Which channels of each input a run needs, for sinks that copy more of inputs than events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sluice_model::ChannelQuery;

/// The channels that a run needs of its inputs. The run shares them with its sinks; of inputs that
/// are not known here, such as outside of a run, every channel is needed.
#[derive(Debug, Default)]
pub struct WantedChannels(Mutex<BTreeMap<PathBuf, ChannelQuery>>);

impl WantedChannels {
    /// The run needs these channels of an input, besides those that were added before.
    pub fn add(&self, input: &Path, channels: &ChannelQuery) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = match all.remove(input) {
            Some(others) => others.or(channels.clone()),
            None => channels.clone(),
        };
        all.insert(input.to_owned(), wanted);
    }

    /// Which channels the run needs of an input.
    pub fn of(&self, input: &Path) -> ChannelQuery {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(input).cloned().unwrap_or_default()
    }
}
