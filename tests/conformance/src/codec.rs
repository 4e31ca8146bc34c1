//! Trials of codecs: decoded payloads encode back byte for byte, and undecodable ones leave nothing
//! behind.

mod columns;
mod decoding;

use std::time::Duration;

use serde_json::{Value, json};
use sluice_kit::contract::overwrite;
use sluice_model::{Channel, Codec, Encoding, Name, Plugin, PluginKind};

use crate::finding::{Fault, expect_none};
use crate::hostile::{ByteChange, changes};
use crate::isolation::{Cases, Isolation};
use crate::kit_plugins::registry;
use crate::{Finding, Promise, options};

use decoding::ValidPayload;

/// A codec under test.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct CodecTrial {
    plugin: String,
    options: Value,
    payloads: Vec<(Channel, Vec<u8>)>,
}

/// Tests the codec registered under this name, with the payloads it is given.
///
/// It checks these promises:
///
/// - **Options, Sample**: unknown options are refused, and the sample shows all there are.
/// - **Identity**: each payload decodes, and its row encodes to the same bytes; also with the type
///   made from its own description. The same holds for every changed payload that decodes.
/// - **WholeRows**: a changed payload yields a row or a reason; the rows of other payloads, and the
///   columns, stay the same.
/// - **NoPanic, Memory, Termination**: hold for any payload, and for any content of columns to
///   encode, because tables are input. Such a row is refused, or encodes to a payload that decodes
///   to it.
pub fn codec(plugin: &str) -> CodecTrial {
    CodecTrial { plugin: plugin.to_owned(), options: json!({}), payloads: Vec::new() }
}

impl CodecTrial {
    /// Sets the options, which say where types come from.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// Adds a payload of a known type, and its channel.
    pub fn payload(self, channel: &str, encoding: Encoding, bytes: impl Into<Vec<u8>>) -> Self {
        let name = Name::from_text(channel);
        self.payload_on(Channel::new(name, "conformance", encoding), bytes)
    }

    /// Adds a payload on a channel with metadata, or one that declares its type itself.
    pub fn payload_on(mut self, channel: Channel, bytes: impl Into<Vec<u8>>) -> Self {
        self.payloads.push((channel, bytes.into()));
        self
    }

    /// Lists all broken promises.
    pub fn findings(&self) -> Vec<Finding> {
        let registry = registry();
        let Some(plugin) = registry.get(PluginKind::Codec, &self.plugin) else {
            return vec![options::unregistered(PluginKind::Codec, &self.plugin)];
        };
        let codec = match self.make_codec(plugin) {
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

    /// Fails the test if a promise is broken.
    ///
    /// # Panics
    ///
    /// If any promise is broken, with the list of all of them.
    #[track_caller]
    pub fn check(self) {
        expect_none(&self.plugin, &self.findings());
    }

    fn make_codec(&self, plugin: &Plugin) -> Result<Box<dyn Codec>, Finding> {
        let unfit = |what: String| {
            Err(Finding::new(Promise::Options, format!("it cannot be made: {what}")))
        };
        match registry().codec(plugin.name, self.options.clone()) {
            Err(error) => unfit(error.to_string()),
            Ok(codec) if !codec.mistakes().is_empty() => unfit(codec.mistakes().join("; ")),
            Ok(_) if self.payloads.is_empty() => unfit("there is no payload to try".to_owned()),
            Ok(codec) => Ok(codec),
        }
    }

    fn try_all(&self, plugin: &Plugin, codec: &dyn Codec, cases: &mut Cases) {
        for (number, (channel, bytes)) in self.payloads.iter().enumerate() {
            let name = format!("payload {number}, on `{}`", channel.name.text());
            let mut valid = None;
            cases.case(&name, |_| match ValidPayload::decode(codec, channel, bytes) {
                Ok(of) => {
                    let mut faults = of.faults(codec);
                    faults.extend(self.remake_fault(plugin, &of));
                    valid = Some(of);
                    faults
                }
                Err(fault) => vec![fault],
            });
            // Another process may have tested it before.
            let valid = valid.or_else(|| ValidPayload::decode(codec, channel, bytes).ok());
            if let Some(valid) = valid {
                try_changes(&name, &valid, cases);
            }
        }
    }

    /// Checks that a codec with the same options has the same columns.
    fn remake_fault(&self, plugin: &Plugin, valid: &ValidPayload<'_>) -> Option<Fault> {
        let again = self.make_codec(plugin).ok()?;
        let known = again.types().iter().find(|known| known.message_type.key == valid.key)?;
        let is_same =
            known.payload_type.as_ref().is_ok_and(|form| form.schema() == valid.form.schema());
        let kind = "created again with the same options, it has other columns";
        (!is_same).then(|| Fault::new(Promise::WholeRows, kind, String::new()))
    }
}

/// The maximum numbers of truncations and of other changes per payload.
const MAX_CUTS: usize = 150;
const MAX_CHANGES: usize = 330;

fn try_changes(name: &str, valid: &ValidPayload<'_>, cases: &mut Cases) {
    for (what, rows) in valid.rows() {
        let what = format!("the row of {name}, with {what}");
        cases.case(&what, |_| valid.encode_fault(&rows).into_iter().collect());
    }
    let bytes = valid.bytes;
    let stride = bytes.len().div_ceil(MAX_CUTS).max(1);
    let cuts = (0..bytes.len()).step_by(stride).map(|at| ByteChange::cut(at, bytes.len()));
    let places: Vec<usize> = (0..bytes.len()).step_by(32).take(64).collect();
    let changes: Vec<ByteChange> =
        cuts.chain(changes(bytes, &places, MAX_CHANGES, bytes.len() as u64)).collect();
    for change in &changes {
        let changed = change.apply(bytes);
        cases.case(&format!("{name}: {change}"), |cases| {
            // Kept for inspecting a finding.
            drop(overwrite(&cases.folder().join("payload"), &changed));
            valid.faults_beside(&[changed])
        });
    }
    // Many bad payloads leave the ones between them intact.
    cases.case(&format!("{name}: all changes in one batch"), |_| {
        let changed: Vec<Vec<u8>> = changes.iter().map(|change| change.apply(bytes)).collect();
        valid.faults_beside(&changed)
    });
}
