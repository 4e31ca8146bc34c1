//! Trials of codecs: what they decode comes back byte for byte, and what cannot be decoded leaves nothing.

mod columns;
mod decoding;

use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::contract::overwrite;
use sluice_core::{Channel, Codec, Encoding, Name, Plugin, PluginFactory, PluginKind};

use crate::finding::{Fault, expect_none};
use crate::hostile::{Change, changes};
use crate::isolation::{Cases, Isolation};
use crate::private::registry;
use crate::{Finding, Promise, options};

use decoding::Sound;

/// A codec to be tried.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct CodecTrial {
    plugin: String,
    options: Value,
    payloads: Vec<(Channel, Vec<u8>)>,
}

/// Tries the codec that is registered under this name, with the payloads it is given.
///
/// It is held to this:
///
/// - **Options, Sample**: unknown options are refused, and the sample shows all there are.
/// - **Identity**: each payload decodes, and its row encodes to the same bytes; also by the type that is made from
///   its own description. So does every changed payload that decodes.
/// - **WholeRows**: a changed payload gives a row, or a reason why not; rows of others stay as they are, and columns
///   what they are.
/// - **NoPanic, Memory, Termination**: whatever the payload says, and whatever lies in the columns that it encodes:
///   tables are input. Such a row is refused, or gives a payload that is decoded to it.
pub fn codec(plugin: &str) -> CodecTrial {
    CodecTrial { plugin: plugin.to_owned(), options: json!({}), payloads: Vec::new() }
}

impl CodecTrial {
    /// Options: those that say where types come from.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// A payload of a type that it knows, and the channel it is on.
    pub fn payload(self, channel: &str, encoding: Encoding, bytes: impl Into<Vec<u8>>) -> Self {
        let name = Name::from_text(channel);
        self.payload_on(Channel::new(name, "conformance", encoding), bytes)
    }

    /// The same for channels that say more of themselves.
    pub fn payload_on(mut self, channel: Channel, bytes: impl Into<Vec<u8>>) -> Self {
        self.payloads.push((channel, bytes.into()));
        self
    }

    /// All promises that are not kept.
    pub fn findings(&self) -> Vec<Finding> {
        let registry = registry();
        let Some(plugin) = registry.get(PluginKind::Codec, &self.plugin) else {
            return vec![options::unregistered(PluginKind::Codec, &self.plugin)];
        };
        let codec = match self.made(plugin) {
            Ok(codec) => codec,
            Err(finding) => return vec![finding],
        };
        let isolation = Isolation {
            plugin: &self.plugin,
            patience: Duration::from_secs(30),
            memory: 256 << 20,
        };
        let mut findings = isolation.run(&|cases| self.try_all(plugin, &*codec, cases));
        findings.extend(options::findings(plugin, &self.options, &registry));
        findings
    }

    /// Fails the test if a promise is not kept.
    ///
    /// # Panics
    ///
    /// If one is not, with all that are not.
    #[track_caller]
    pub fn check(self) {
        expect_none(&self.plugin, &self.findings());
    }

    fn made(&self, plugin: &Plugin) -> Result<Box<dyn Codec>, Finding> {
        let unfit = |what: String| {
            Err(Finding::new(Promise::Options, format!("it cannot be made: {what}")))
        };
        let PluginFactory::Codec(make) = plugin.make else {
            return unfit("it is no codec".to_owned());
        };
        match make(self.options.clone()) {
            Err(error) => unfit(error.to_string()),
            Ok(codec) if !codec.mistakes().is_empty() => unfit(codec.mistakes().join("; ")),
            Ok(_) if self.payloads.is_empty() => unfit("there is no payload to try".to_owned()),
            Ok(codec) => Ok(codec),
        }
    }

    fn try_all(&self, plugin: &Plugin, codec: &dyn Codec, cases: &mut Cases) {
        for (number, (channel, bytes)) in self.payloads.iter().enumerate() {
            let name = format!("payload {number}, on `{}`", channel.name.text());
            let mut sound = None;
            cases.case(&name, |_| match Sound::of(codec, channel, bytes) {
                Ok(of) => {
                    let mut faults = of.faults(codec);
                    faults.extend(self.made_again(plugin, &of));
                    sound = Some(of);
                    faults
                }
                Err(fault) => vec![fault],
            });
            // Another process may have tried it before.
            let sound = sound.or_else(|| Sound::of(codec, channel, bytes).ok());
            if let Some(sound) = sound {
                try_changes(&name, &sound, cases);
            }
        }
    }

    /// Whether a codec of the same options has the same columns.
    fn made_again(&self, plugin: &Plugin, sound: &Sound<'_>) -> Option<Fault> {
        let again = self.made(plugin).ok()?;
        let known = again.types().iter().find(|known| known.message_type.key == sound.key)?;
        let is_same =
            known.payload_type.as_ref().is_ok_and(|form| form.schema() == sound.form.schema());
        let kind = "made again of the same options, it has other columns";
        (!is_same).then(|| Fault::new(Promise::WholeRows, kind, String::new()))
    }
}

/// Most places where a payload is cut off, and most changes of each.
const MOST_CUTS: usize = 150;
const MOST_CHANGES: usize = 250;

fn try_changes(name: &str, sound: &Sound<'_>, cases: &mut Cases) {
    for (what, rows) in sound.rows() {
        let what = format!("the row of {name}, with {what}");
        cases.case(&what, |_| sound.encodes(&rows).into_iter().collect());
    }
    let bytes = sound.bytes;
    let stride = bytes.len().div_ceil(MOST_CUTS).max(1);
    let cuts = (0..bytes.len()).step_by(stride).map(|at| Change::cut(at, bytes.len()));
    let places: Vec<usize> = (0..bytes.len()).step_by(32).take(64).collect();
    let changes: Vec<Change> =
        cuts.chain(changes(bytes, &places, MOST_CHANGES, bytes.len() as u64)).collect();
    for change in &changes {
        let changed = change.apply(bytes);
        cases.case(&format!("{name}: {change}"), |cases| {
            // For who looks into a finding.
            drop(overwrite(&cases.folder().join("payload"), &changed));
            sound.beside(&[changed])
        });
    }
    // Many bad ones leave what is between them as it is, too.
    cases.case(&format!("{name}: all changes in one batch"), |_| {
        let changed: Vec<Vec<u8>> = changes.iter().map(|change| change.apply(bytes)).collect();
        sound.beside(&changed)
    });
}
