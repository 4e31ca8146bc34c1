//! The key by which events are assigned to subfiles, and the metadata that header lines and
//! comments hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_model::{Channel, Clock, Encoding};

use crate::master::encoded_word;

/// The maximum bytes of remaining metadata in a comment, which must fit into a line even if every
/// byte is escaped as three.
pub(super) const MAX_METADATA: usize = 16 << 10;

/// The suffix of a configuration channel, after the name of the objects' channel.
pub(super) const CONFIG_SUFFIX: &[u8] = b".config";

/// The metadata keys that header lines and comments hold outside of [`WriterComment::metadata`].
pub(crate) const RESERVED_KEYS: [&str; 8] = [
    "ice.interface",
    "ice.config",
    "orca.file",
    "orca.id",
    "orca.proxy",
    "orca.enabled",
    // These describe the log that was read; the one being written has its own.
    "orca.dialect",
    "orca.encoding",
];

/// What identifies a subfile, and goes into its header line and comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SubfileKey {
    pub(super) channel: Vec<u8>,
    pub(super) source: Arc<str>,
    pub(super) encoding: &'static str,
    pub(super) type_name: Option<Arc<str>>,
    pub(super) is_relative: bool,
    /// The interface, without the dialect's module.
    pub(super) interface: String,
    /// The interface in the channel's metadata.
    pub(super) channel_interface: Option<String>,
    /// The name of the subfile it was read from.
    pub(super) file: Option<String>,
    pub(super) proxy: Option<String>,
    pub(super) is_enabled: bool,
    /// The remaining metadata of the channel.
    pub(super) metadata: BTreeMap<String, String>,
}

impl SubfileKey {
    pub(super) fn from_channel(channel: &Channel) -> Self {
        let value = |key: &str| channel.metadata.get(key).cloned();
        let name = base_name(channel);
        let said_interface = value("ice.interface");
        Self {
            interface: encoded_word(said_interface.as_deref().map_or(name, str::as_bytes)),
            channel_interface: said_interface,
            channel: name.to_owned(),
            source: Arc::clone(&channel.source),
            encoding: channel.encoding.as_str(),
            type_name: channel.type_name.clone(),
            is_relative: channel.clock == Clock::Relative,
            file: value("orca.file"),
            proxy: value("orca.proxy").filter(|proxy| is_proxy(proxy)),
            is_enabled: value("orca.enabled").as_deref() != Some("0"),
            metadata: comment_metadata(channel).unwrap_or_default(),
        }
    }

    /// The interface, unless the header line has it.
    pub(super) fn comment_interface(&self) -> Option<String> {
        let is_object = self.encoding == Encoding::Ice.as_str();
        let is_in_header = |value: &String| is_object && *value == self.interface;
        self.channel_interface.clone().filter(|value| !is_in_header(value))
    }
}

/// All subfile keys, numbered. Numbers depend on timing and never reach the output.
#[derive(Debug, Default)]
pub(super) struct SubfileKeys {
    pub(super) list: Vec<Arc<SubfileKey>>,
    pub(super) numbers: BTreeMap<Arc<SubfileKey>, u32>,
}

impl SubfileKeys {
    pub(super) fn number(&mut self, key: SubfileKey) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        // There are no more keys than channels, whose number fits.
        let (number, key) = (self.list.len() as u32, Arc::new(key));
        self.list.push(Arc::clone(&key));
        self.numbers.insert(key, number);
        number
    }
}

/// The metadata of a channel that only our comments can hold. `None` if they cannot: it is too
/// long, or it belongs to objects, whose configuration it would separate from the data.
pub(super) fn comment_metadata(channel: &Channel) -> Option<BTreeMap<String, String>> {
    let others = channel.metadata.iter().filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str()));
    let others: BTreeMap<_, _> = others.map(|(key, value)| (key.clone(), value.clone())).collect();
    if channel.encoding == Encoding::Ice && !others.is_empty() {
        return None;
    }
    let bytes: usize = others.iter().map(|(key, value)| key.len() + value.len() + 16).sum();
    (bytes <= MAX_METADATA).then_some(others)
}

pub(super) fn is_proxy(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()) && text.contains('@')
}

pub(super) fn is_config(channel: &Channel) -> bool {
    channel.metadata.get("ice.config").is_some_and(|value| value == "true")
        && channel.name.as_bytes().ends_with(CONFIG_SUFFIX)
}

/// The name of the objects' channel: without the suffix for a configuration channel.
pub(super) fn base_name(channel: &Channel) -> &[u8] {
    let name = channel.name.as_bytes();
    if is_config(channel) { name.strip_suffix(CONFIG_SUFFIX).unwrap_or(name) } else { name }
}
