//! Stage `decode`: turns payloads into columns that travel with their events. Codecs know the
//! formats.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sluice_kit::suggestion::nearest;
use sluice_kit::{CodecOptions, Codecs, TypeChoice, TypePaths, TypesByKey};
use sluice_model::options::CHANNELS_FORMAT;
use sluice_model::{
    Batch, Channel, ChannelId, ChannelQuery, DeclaredColumns, Error, KeyOf, KnownType, Map,
    MapQuery, OptionsError, Pattern, Patterns, PerChannel, PluginFactory, Registry, RowsEffect,
    Stage, StageContext, TypeKey, UndecodedPolicy,
};

/// Options of `decode`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DecodeOptions {
    /// Files that declare types: files, globs, folders, or names of built-in type sets.
    pub(crate) types: TypePaths,
    /// The channels to decode. Default: all.
    pub(crate) channels: Patterns,
    /// The type of a channel whose fingerprint several types share: by channel, or pattern of
    /// channels.
    #[schemars(extend("propertyNames" = { "type": "string", "format": CHANNELS_FORMAT }))]
    pub(crate) channel_types: BTreeMap<String, String>,
    /// How many levels of a type inside itself become columns; deeper ones stay bytes. Default: 1.
    pub(crate) depth: Option<u8>,
    /// Messages that no file declares, as lists of their fields: see the codec `vel`.
    pub(crate) messages: Vec<Value>,
    /// What happens to events that cannot be decoded.
    pub(crate) undecoded: UndecodedPolicy,
}

sluice_model::register! {
    stage "decode": DecodeOptions,
    make: PluginFactory::Stage(|value, registry| stage(sluice_model::options::read(value)?, registry)),
    about: "turns payloads into columns, by declared types",
    sample: include_str!("../samples/decode.toml"),
}

struct Decode {
    codecs: Codecs,
    types: TypesByKey,
    channels: Patterns,
    channel_types: ChannelTypes,
    undecoded: UndecodedPolicy,
    plans: PerChannel<Option<Arc<ChannelPlan>>>,
}

/// The plans of all channels, by their numbers; none for those that are not decoded.
type ChannelPlans = [Option<Arc<ChannelPlan>>];

/// How to decode the events of a channel.
struct ChannelPlan {
    /// The codecs that may know its payloads, and how each finds a payload's type.
    codecs: Vec<(usize, KeyOf)>,
    /// The type to choose if several match.
    preferred_type: Option<String>,
    /// The type that the channel declares itself.
    embedded: Option<KnownType>,
    /// The channel's name.
    channel: String,
}

impl ChannelPlan {
    /// The preferred type, if messages are of another.
    fn overruled_preference(&self, name: &str) -> Option<&str> {
        self.preferred_type.as_deref().filter(|preferred| *preferred != name)
    }
}

fn stage(options: DecodeOptions, registry: &Registry) -> Result<Stage, OptionsError> {
    let DecodeOptions { types, depth, messages, .. } = &options;
    let codec_options = CodecOptions { depth: *depth, messages: messages.clone() };
    let codecs = load_codecs(types, &codec_options, registry)?;
    let types = TypesByKey::from_codecs(&codecs);
    if types.types().is_empty() && !codecs.has_embedded() {
        let message = "no types are declared: name files, folders or sets that declare some";
        return Err(OptionsError::at("types", message));
    }
    let channel_types = ChannelTypes::new(options.channel_types, types.types())?;
    let DecodeOptions { channels, undecoded, .. } = options;
    let plans = PerChannel::default();
    let decode = Decode { codecs, types, channels, channel_types, undecoded, plans };
    Ok(Stage::Map(Box::new(decode)))
}

/// The codecs of these types; `Err` lists every mistake in the files if they cannot be used.
pub(crate) fn load_codecs(
    types: &TypePaths,
    options: &CodecOptions,
    registry: &Registry,
) -> Result<Codecs, OptionsError> {
    let codecs = Codecs::from_paths(registry, types, options)?;
    match codecs.refusal() {
        None => Ok(codecs),
        Some(message) => Err(OptionsError::at("types", message)),
    }
}

/// The message for an undeclared type, with the most similar name.
fn undeclared_type(name: &str, types: &[KnownType]) -> String {
    let names: Vec<&str> = types.iter().map(|known| &*known.message_type.name).collect();
    // The package is easily forgotten.
    let is_same = |full: &&&str| full.rsplit('.').next() == Some(name);
    let meant = names.iter().find(is_same).copied().or_else(|| nearest(name, &names));
    let hint = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
    format!("no type `{name}` is declared{hint}")
}

/// The types that options assign to channels, by pattern.
pub(crate) struct ChannelTypes(Vec<(Pattern, String)>);

impl ChannelTypes {
    /// `Err` for invalid patterns and undeclared types.
    pub(crate) fn new(
        types_by_pattern: BTreeMap<String, String>,
        types: &[KnownType],
    ) -> Result<Self, OptionsError> {
        let checked = types_by_pattern.into_iter().map(|(channels, name)| {
            let wrong =
                |message: String| OptionsError::in_entry("channel_types", &channels, message);
            let pattern = Pattern::parse(&channels).map_err(wrong)?;
            if !types.iter().any(|known| *known.message_type.name == *name) {
                return Err(wrong(undeclared_type(&name, types)));
            }
            Ok((pattern, name))
        });
        checked.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The type assigned to a channel.
    pub(crate) fn type_of(&self, channel: &Channel) -> Option<&str> {
        let name = channel.name.text();
        let found = self.0.iter().find(|(pattern, _)| pattern.matches(name));
        found.map(|(_, preferred_type)| preferred_type.as_str())
    }
}

fn type_name(known: &KnownType) -> &str {
    &known.message_type.name
}

/// The note on messages of another type than the options assign to their channel.
fn not_preferred(channel: &str, preferred: &str, known: &KnownType, why: &str) -> String {
    let end = if known.payload_type.is_ok() { ", and are decoded as that" } else { "" };
    format!(
        "{channel}: the option `channel_types` says `{preferred}`, but messages are `{}`{why}{end}",
        type_name(known)
    )
}

/// A line that identifies the codecs and types, which decide the result in addition to options.
pub(crate) fn made_from(codecs: &Codecs) -> Option<String> {
    let with_types = codecs.iter().filter(|codec| !codec.types().is_empty());
    let lines: Vec<&str> = with_types.map(|codec| codec.declared().fingerprint.as_str()).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Where a type is found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TypeSource {
    /// Among the declared types, at this index.
    Declared(usize),
    /// It is the one that the channel of this number declares itself.
    Embedded(u32),
}

/// How to decode an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TypeDecision {
    /// As this type.
    Type(TypeSource),
    /// Not at all; the index of the reason in [`REASONS`].
    Undecodable(usize),
    /// It is not selected.
    Skipped,
}

/// How many channels have their last decision at hand.
const RECENT_CHANNELS: usize = 64;

const REASONS: [&str; 3] = [
    "payload of no declared type",
    "payload does not identify its type",
    "payload matches several declared types with different fields: give the files of one of them",
];
const UNKNOWN: TypeDecision = TypeDecision::Undecodable(0);
const NO_KEY: TypeDecision = TypeDecision::Undecodable(1);
const SEVERAL: TypeDecision = TypeDecision::Undecodable(2);

impl Decode {
    /// `None` for channels that are not selected, not needed after the stage, or expected to have
    /// no type.
    fn plan(&self, channel: &Channel, needed: Option<&ChannelQuery>) -> Option<Arc<ChannelPlan>> {
        let name = channel.name.text();
        if needed.is_some_and(|needed| !needed.wants(name, &channel.source)) {
            return None;
        }
        if !self.channels.is_empty() && !self.channels.matches(name) {
            return None;
        }
        if self.codecs.expects_none(channel) {
            return None;
        }
        let codecs = self.codecs.iter().enumerate();
        let codecs = codecs.filter_map(|(at, codec)| Some((at, codec.keys(channel)?))).collect();
        let preferred_type = self.channel_types.type_of(channel).map(str::to_owned);
        let (embedded, channel) = (self.codecs.embedded(channel), name.to_owned());
        Some(Arc::new(ChannelPlan { codecs, preferred_type, embedded, channel }))
    }

    /// How to decode payloads with this key on a channel. Called once per batch, channel and key.
    fn choose(
        &self,
        plan: &ChannelPlan,
        codec: usize,
        key: TypeKey,
        context: &mut StageContext<'_>,
    ) -> TypeDecision {
        let (at, other) = match self.types.choose(codec, key, plan.preferred_type.as_deref()) {
            TypeChoice::Type(at, other) => (at, other),
            TypeChoice::Unknown => return UNKNOWN,
            TypeChoice::Several => return SEVERAL,
        };
        let name = |at| self.known(TypeSource::Declared(at), &[]).map_or("", type_name);
        if let Some(other) = other {
            let (first, other) = (name(at), name(other));
            context.note(
                format!(
                    "{}: messages may be `{first}` or `{other}` (fingerprint {key}), and are \
                     decoded as the first; the option `channel_types` selects one",
                    plan.channel
                ),
                0,
            );
        }
        if let Some(known) = self.known(TypeSource::Declared(at), &[])
            && let Some(preferred) = plan.overruled_preference(type_name(known))
        {
            let why = format!(" (fingerprint {key})");
            context.note(not_preferred(&plan.channel, preferred, known, &why), 0);
        }
        TypeDecision::Type(TypeSource::Declared(at))
    }

    /// How to decode each event.
    fn decide_types(
        &self,
        batch: &Batch,
        plans: &ChannelPlans,
        context: &mut StageContext<'_>,
    ) -> Vec<TypeDecision> {
        let mut decisions = vec![TypeDecision::Skipped; batch.len()];
        let has_rows = batch.decoded_mask();
        let mut known: HashMap<(u32, usize, TypeKey), TypeDecision> = HashMap::new();
        let mut overruled = BTreeSet::new();
        // Of a few channels the last one: most have one type.
        let mut recent = [None; RECENT_CHANNELS];
        for (row, channel) in batch.channels().iter().enumerate() {
            let Some(plan) = plans[*channel as usize].as_deref() else { continue };
            if has_rows[row] {
                continue;
            }
            if let Some(embedded) = &plan.embedded {
                let preferred = plan.overruled_preference(type_name(embedded));
                if let Some(preferred) = preferred.filter(|_| overruled.insert(*channel)) {
                    let why = ", as the log declares";
                    context.note(not_preferred(&plan.channel, preferred, embedded, why), 0);
                }
                decisions[row] = TypeDecision::Type(TypeSource::Embedded(*channel));
                continue;
            }
            let payload = batch.payload(row);
            decisions[row] = if plan.codecs.is_empty() { UNKNOWN } else { NO_KEY };
            for (codec, key_of) in &plan.codecs {
                let Some(key) = key_of(payload) else { continue };
                let asked = (*channel, *codec, key);
                let recent = &mut recent[*channel as usize % RECENT_CHANNELS];
                let decision = match *recent {
                    Some((same, decision)) if same == asked => decision,
                    _ => *known
                        .entry(asked)
                        .or_insert_with(|| self.choose(plan, *codec, key, context)),
                };
                *recent = Some((asked, decision));
                decisions[row] = decision;
                if decision != UNKNOWN {
                    break;
                }
            }
        }
        decisions
    }

    fn known<'d>(&'d self, source: TypeSource, plans: &'d ChannelPlans) -> Option<&'d KnownType> {
        match source {
            TypeSource::Declared(at) => self.types.types().get(at),
            TypeSource::Embedded(channel) => {
                plans.get(channel as usize)?.as_ref()?.embedded.as_ref()
            }
        }
    }

    fn decode(
        &self,
        batch: Batch,
        plans: &ChannelPlans,
        decisions: &[TypeDecision],
        failed: &mut FailureLog,
    ) -> Result<Batch, Error> {
        let mut groups: BTreeMap<TypeSource, Vec<u32>> = BTreeMap::new();
        let channel = |event: u32| batch.channels()[event as usize];
        for (row, decision) in decisions.iter().enumerate() {
            match decision {
                TypeDecision::Type(at) => groups.entry(*at).or_default().push(row as u32),
                TypeDecision::Undecodable(why) => {
                    failed.add(row as u32, channel(row as u32), FailureReason::NoType(*why));
                }
                TypeDecision::Skipped => {}
            }
        }
        let mut all = batch.rows().to_vec();
        for (at, events) in groups {
            let Some(Ok(form)) = self.known(at, plans).map(|known| &known.payload_type) else {
                events.iter().for_each(|event| {
                    failed.add(*event, channel(*event), FailureReason::Unusable(at))
                });
                continue;
            };
            let mut bad = Vec::new();
            all.extend(form.decode_all(&batch, &events, &mut bad)?);
            for (event, why) in bad {
                failed.add(event, channel(event), FailureReason::Invalid(at, why));
            }
        }
        Ok(batch.with_rows(all))
    }

    /// The message of a failure. Built once per batch, channel and reason.
    fn message(&self, why: FailureReason, plans: &ChannelPlans) -> String {
        let name = |at| self.known(at, plans).map_or("", type_name);
        match why {
            FailureReason::NoType(at) => REASONS[at].to_owned(),
            FailureReason::Unusable(at) => {
                let why = self.known(at, plans).and_then(|known| known.payload_type.as_ref().err());
                format!("`{}` cannot be decoded: {}", name(at), why.map_or("", String::as_str))
            }
            FailureReason::Invalid(at, why) => {
                format!("payload is not a valid `{}`: {why}", name(at))
            }
        }
    }
}

/// Why an event could not be decoded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FailureReason {
    /// For one of the [`REASONS`].
    NoType(usize),
    /// Its type cannot be decoded.
    Unusable(TypeSource),
    /// Its payload is not valid for its type.
    Invalid(TypeSource, &'static str),
}

/// Events that could not be decoded.
#[derive(Default)]
struct FailureLog {
    events: Vec<u32>,
    /// How often each reason occurred on each channel.
    reasons: BTreeMap<(u32, FailureReason), u64>,
    /// The first event in the batch, and the reason.
    first: Option<(u32, FailureReason)>,
}

impl FailureLog {
    fn add(&mut self, event: u32, channel: u32, why: FailureReason) {
        self.events.push(event);
        if self.first.is_none_or(|(first, _)| event < first) {
            self.first = Some((event, why));
        }
        *self.reasons.entry((channel, why)).or_default() += 1;
    }
}

impl Map for Decode {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let plans = self
            .plans
            .table(context.channels, |channel| Ok(self.plan(channel, context.needed_channels)))?;
        if plans.iter().all(Option::is_none) {
            return Ok(batch);
        }
        let decisions = self.decide_types(&batch, &plans, context);
        let mut failed = FailureLog::default();
        let batch = self.decode(batch, &plans, &decisions, &mut failed)?;
        let Some((first, why)) = failed.first else { return Ok(batch) };
        if self.undecoded == UndecodedPolicy::Stop {
            let why = self.message(why, &plans);
            return Err(UndecodedPolicy::refusal(&batch.event(first as usize), context, why));
        }
        for ((channel, why), count) in failed.reasons {
            let plan = plans.get(channel as usize).and_then(Option::as_deref);
            let preferred = plan.and_then(|plan| plan.preferred_type.as_deref());
            let preferred = preferred.filter(|_| matches!(why, FailureReason::NoType(_)));
            let unused = preferred.map(|name| {
                format!("; the option `channel_types` selects among types that match, not `{name}`")
            });
            let (why, unused) = (self.message(why, &plans), unused.unwrap_or_default());
            let channel = context.channels.get(ChannelId(channel));
            context.note(format!("{}: {why}{unused}", channel.name.text()), count);
        }
        Ok(self.undecoded.apply(batch, failed.events, context))
    }

    fn rows_after(&self) -> RowsEffect {
        // Channels are known only once events are read.
        if self.codecs.has_embedded() {
            return RowsEffect::Unclear;
        }
        let forms = self.types.types().iter().filter_map(|known| known.payload_type.as_ref().ok());
        let schemas = forms.map(|form| Arc::clone(form.schema())).collect();
        RowsEffect::Decoded(DeclaredColumns::from_schemas(schemas))
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn fingerprint(&self) -> Option<String> {
        made_from(&self.codecs)
    }

    fn notes(&self) -> Vec<String> {
        self.codecs.unusable()
    }
}
