//! What a plugin says of itself when it is registered, and `register!`. Looks nothing up.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Registry;
use crate::programs::Program;
use crate::{
    ByteFormat, Codec, DynSink, Encoding, Error, OptionsError, Service, Sink, Source, Stage,
    options,
};

/// The kinds of plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PluginKind {
    /// Reads events.
    Source,
    /// Changes events.
    Stage,
    /// Decodes and encodes payloads.
    Codec,
    /// Writes events.
    Sink,
    /// Serves other programs, independently of any pipeline.
    Service,
}

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Stage => "stage",
            Self::Codec => "codec",
            Self::Sink => "sink",
            Self::Service => "service",
        })
    }
}

/// Constructs a plugin from its options and the registry of the program that makes it. Most ignore
/// the registry; plugins that use other plugins get those of their own program by it.
pub type Constructor<T> = fn(Value, &Registry) -> Result<T, OptionsError>;

/// The constructor of a plugin.
#[derive(Clone, Copy)]
pub enum PluginFactory {
    /// Constructs a source.
    Source(Constructor<Box<dyn Source>>),
    /// Constructs a stage.
    Stage(Constructor<Stage>),
    /// Constructs a codec.
    Codec(Constructor<Box<dyn Codec>>),
    /// Constructs a sink.
    Sink(Constructor<DynSink>),
    /// Constructs a service.
    Service(Constructor<Box<dyn Service>>),
}

/// How certain a plugin is that bytes have its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SniffResult {
    /// They do not, or it cannot be recognized.
    No,
    /// They may: a weak magic, or the format after damage.
    Maybe,
    /// They start like its format.
    Yes,
}

/// A job for which programs use a plugin that nobody has named. At most one plugin of a kind has a
/// job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultRole {
    /// Receives, sends or relays live events.
    Live,
    /// Writes logs.
    Log,
    /// Compresses logs, and holds any format that has a [`Plugin::byte_format`].
    Archive,
    /// Writes tables into a folder.
    Tables,
    /// Prints events for people.
    Print,
    /// Prints events for programs.
    PrintJson,
    /// Shows what is in a log.
    Report,
    /// Writes what a good log leads to expect of others.
    Expectations,
}

impl fmt::Display for DefaultRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "live events",
            Self::Log => "logs",
            Self::Archive => "compressed logs",
            Self::Tables => "folders of tables",
            Self::Print => "text",
            Self::PrintJson => "JSON",
            Self::Report => "reports",
            Self::Expectations => "expectations",
        })
    }
}

/// A stage of generated pipelines: see [`Plugin::conversion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionStage {
    /// The name of its plugin.
    pub plugin: &'static str,
    /// Its options, as TOML values.
    pub options: Vec<(&'static str, String)>,
    /// Further options for pipelines that read channels by name, which has to explain what it does
    /// not pass.
    pub with_named_channels: Vec<(&'static str, String)>,
}

impl ConversionStage {
    /// A stage with default options.
    pub fn named(plugin: &'static str) -> Self {
        Self { plugin, options: Vec::new(), with_named_channels: Vec::new() }
    }
}

/// A sink of generated pipelines beside that of the output: see [`Plugin::conversion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompanionSink {
    /// The name of its plugin. It writes one file, its option `path`.
    pub plugin: &'static str,
    /// The extension of the file, in the place of the output's own: `.foxglove.json`.
    pub extension: &'static str,
}

/// What conversions from a source or to a sink add to a pipeline: see [`Plugin::conversion`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversionNodes {
    /// The stages behind the source, or in front of the sink.
    pub stages: Vec<ConversionStage>,
    /// Further sinks for the events of these stages; only those of a sink are used.
    pub sinks: Vec<CompanionSink>,
}

/// What a log tells of its payloads before any event is read: see [`Plugin::payloads`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPayloads {
    /// Whether channels may declare their types themselves.
    pub declare_types: bool,
    /// How payloads are encoded, as far as the log tells.
    pub encodings: BTreeSet<Encoding>,
}

/// Finds out what a log tells of its payloads.
pub type PayloadProbe = fn(&Path) -> Result<LogPayloads, Error>;

/// A registered plugin. Made by [`register!`](crate::register).
#[derive(Clone, Copy)]
pub struct Plugin {
    /// The name that pipeline files use.
    pub name: &'static str,
    /// The Rust module that registers it.
    pub module: &'static str,
    /// One sentence about what it does.
    pub about: &'static str,
    /// A commented excerpt of a pipeline file with every option.
    pub sample: &'static str,
    /// File extensions of its format, without the dot; used to choose a sink by path. No two sinks
    /// of a program may have the same.
    pub extensions: &'static [&'static str],
    /// Extensions before the one of compression that select a value of its option `format`: `arrow`
    /// as in `a.arrow.zst`.
    pub inner_extensions: &'static [&'static str],
    /// The jobs it has by default.
    pub default_for: &'static [DefaultRole],
    /// The URL schemes it accepts in its option `url`.
    pub schemes: &'static [&'static str],
    /// Recognizes its format by the first bytes of a file.
    pub sniff: fn(&[u8]) -> SniffResult,
    /// Recognizes a file or folder by more than its first bytes, such as its end or contents.
    /// Called before `sniff`.
    pub sniff_path: fn(&Path) -> Result<SniffResult, Error>,
    /// The index that names a file which is only a part of a log, or the one in a folder, for a
    /// source that reads logs by their index. Asked about files that no source is certain to read,
    /// and folders that none reads. Reads no events.
    pub index_of: fn(&Path) -> Option<PathBuf>,
    /// Why a file that begins like this is none that it reads back, although its sink may have
    /// written it, and what to write instead. Shown if no source recognizes the file.
    pub refusal: fn(&[u8]) -> Option<&'static str>,
    /// Its format, if that can be stored in an archive. Set on the source, for both directions.
    pub byte_format: Option<&'static dyn ByteFormat>,
    /// Whether it is a source that may return events with decoded rows but no payload.
    pub gives_rows: bool,
    /// The built-in type sets of its payloads; such a source needs no others.
    pub types: &'static [&'static str],
    /// For a source whose channels may be those of any other format: what a log tells of its
    /// payloads. Reads no events.
    pub payloads: Option<PayloadProbe>,
    /// Whether it is a source whose channels may have the same name and differ only in their
    /// source.
    pub sensors_share_names: bool,
    /// Whether it is a sink that stores only the names of channels, so that channels of the same
    /// name are merged.
    pub keeps_names_only: bool,
    /// Defaults of options, as TOML values, for a source whose events are played.
    pub when_played: &'static [(&'static str, &'static str)],
    /// Defaults of options, as TOML values, for a sink that records what is received live. What it
    /// leaves out of a message is lost.
    pub when_recorded: &'static [(&'static str, &'static str)],
    /// Whether it is a sink whose files no source reads back as the events that they were.
    pub is_for_reading_only: bool,
    /// Defaults of options, as TOML values, for a sink that writes the rows of one channel to a
    /// file.
    pub for_one_channel: &'static [(&'static str, &'static str)],
    /// The option for the number of rows per second, if it is a sink that has one.
    pub rate_option: Option<&'static str>,
    /// The stages that conversions go through behind this source, or in front of this sink, given
    /// its options, and the sinks beside this one. They stand in pipelines that the program
    /// generates, where users see them; a conversion from a format to itself without types has
    /// none. A sink's stages need decoded messages.
    ///
    /// Options that are only for these nodes are removed: they do not reach the plugin. `Err` if
    /// one of them has no such value.
    pub conversion:
        fn(&mut serde_json::Map<String, Value>) -> Result<ConversionNodes, OptionsError>,
    /// The program it runs with these options, if any. Such a plugin takes the working directory
    /// from its option `folder`, which defaults to the folder of the pipeline file.
    pub program: Option<fn(&Value) -> Program>,
    /// The JSON Schema of its options.
    pub schema: fn() -> Schema,
    /// The constructor.
    pub make: PluginFactory,
}

impl Plugin {
    /// A plugin with defaults. `register!` fills in the rest.
    pub const fn new(name: &'static str, make: PluginFactory, schema: fn() -> Schema) -> Self {
        let sniff = |_: &[u8]| SniffResult::No;
        let sniff_path = |_: &Path| Ok(SniffResult::No);
        Self {
            name,
            module: "",
            about: "",
            sample: "",
            extensions: &[],
            inner_extensions: &[],
            default_for: &[],
            schemes: &[],
            sniff,
            sniff_path,
            index_of: |_| None,
            refusal: |_| None,
            byte_format: None,
            gives_rows: false,
            types: &[],
            payloads: None,
            sensors_share_names: false,
            keeps_names_only: false,
            when_played: &[],
            when_recorded: &[],
            is_for_reading_only: false,
            for_one_channel: &[],
            rate_option: None,
            conversion: |_| Ok(ConversionNodes::default()),
            program: None,
            schema,
            make,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> PluginKind {
        match self.make {
            PluginFactory::Source(_) => PluginKind::Source,
            PluginFactory::Stage(_) => PluginKind::Stage,
            PluginFactory::Codec(_) => PluginKind::Codec,
            PluginFactory::Sink(_) => PluginKind::Sink,
            PluginFactory::Service(_) => PluginKind::Service,
        }
    }

    /// The names of its options, from its schema.
    pub fn option_names(&self) -> Vec<String> {
        let schema = (self.schema)();
        let properties = schema.get("properties").and_then(Value::as_object);
        properties.map(|all| all.keys().cloned().collect()).unwrap_or_default()
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name)
    }
}

inventory::collect!(Plugin);

/// A built-in set of types, whose name can be used instead of files.
#[derive(Clone, Debug)]
pub struct TypeSet {
    /// The name.
    pub name: &'static str,
    /// One sentence about the types.
    pub about: &'static str,
    /// The codec that parses the files. Made of this set alone and without options, it is shared by
    /// all runs of the process: what it decodes must not depend on what it has decoded before.
    pub codec: &'static str,
    /// The encoding whose payloads are of these types, whatever log they are in, unless others are
    /// given.
    pub encoding: Option<Encoding>,
    /// The files, as name and text.
    pub files: &'static [(&'static str, &'static str)],
}

inventory::collect!(TypeSet);

/// All built-in sets of types, by name.
pub fn type_sets() -> Vec<&'static TypeSet> {
    let mut sets: Vec<_> = inventory::iter::<TypeSet>.into_iter().collect();
    sets.sort_by_key(|set| set.name);
    sets
}

/// The built-in set of types of this name.
pub fn type_set(name: &Path) -> Option<&'static TypeSet> {
    type_sets().into_iter().find(|set| Path::new(set.name) == name)
}

/// Reads options as `T` and boxes it as a source.
#[doc(hidden)]
pub fn make_source<T: Source + DeserializeOwned + 'static>(
    value: Value,
    _: &Registry,
) -> Result<Box<dyn Source>, OptionsError> {
    options::read::<T>(value).map(|source| Box::new(source) as _)
}

/// Reads options as `T` and makes it a sink.
#[doc(hidden)]
pub fn make_sink<T: Sink + DeserializeOwned>(
    value: Value,
    _: &Registry,
) -> Result<DynSink, OptionsError> {
    options::read::<T>(value).map(|sink: T| DynSink::new(sink))
}

/// Reads options as `T` and boxes it as a service.
#[doc(hidden)]
pub fn make_service<T: Service + DeserializeOwned + 'static>(
    value: Value,
    _: &Registry,
) -> Result<Box<dyn Service>, OptionsError> {
    options::read::<T>(value).map(|service| Box::new(service) as _)
}

/// Reads options as `T` and turns it into a codec.
#[doc(hidden)]
pub fn make_codec<T>(value: Value, _: &Registry) -> Result<Box<dyn Codec>, OptionsError>
where
    T: DeserializeOwned + TryInto<Box<dyn Codec>, Error = OptionsError>,
{
    options::read::<T>(value)?.try_into()
}

/// Reads options as `T` and turns it into a stage.
#[doc(hidden)]
pub fn make_stage<T>(value: Value, _: &Registry) -> Result<Stage, OptionsError>
where
    T: DeserializeOwned + TryInto<Stage, Error = OptionsError>,
{
    options::read::<T>(value)?.try_into()
}

/// The schema of an options type.
#[doc(hidden)]
pub fn schema_of<T: JsonSchema>() -> Schema {
    schemars::SchemaGenerator::default().into_root_schema_for::<T>()
}

/// Registers a plugin with the program its crate is linked into.
///
/// The type holds the options: it is `Deserialize` (with `deny_unknown_fields`) and `JsonSchema`,
/// and it implements [`Source`], [`Sink`] or [`Service`]; options of a stage or codec turn into
/// one: they implement `TryFrom<Options, Error = OptionsError>` for [`Stage`] or `Box<dyn Codec>`.
///
/// A plugin that uses other plugins needs the [`Registry`]: it names its own [`Constructor`] right
/// after the type, as in `stage "x": Options, make: PluginFactory::Stage(make), …`.
///
/// `register! { types "name": FILES, codec: "lcm", about: "…" }` gives a set of types a name
/// (`encoding:`, before `about:`, sets [`TypeSet::encoding`](crate::registry::TypeSet)), and
/// `register! { store ["scheme"]: &STORE }` the addresses of a
/// [`Store`](sluice_io::store::Store) their scheme.
///
/// ```
/// # use sluice_model::{*, error::OptionsError};
/// /// Lets every event pass.
/// #[derive(serde::Deserialize, sluice_model::schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// #[schemars(crate = "sluice_model::schemars")]
/// struct Pass {}
/// impl Map for Pass {
///     fn apply(&self, batch: Batch, _: &mut StageContext<'_>) -> Result<Batch, Error> {
///         Ok(batch)
///     }
/// }
/// impl TryFrom<Pass> for Stage {
///     type Error = OptionsError;
///     fn try_from(pass: Pass) -> Result<Self, OptionsError> { Ok(Stage::Map(Box::new(pass))) }
/// }
/// sluice_model::register! { stage "pass": Pass, about: "lets every event pass", sample: "" }
/// # fn main() { assert!(Registry::linked().get(PluginKind::Stage, "pass").is_some()); }
/// ```
#[macro_export]
macro_rules! register {
    (@make source $type:ty) => {
        $crate::PluginFactory::Source($crate::registry::make_source::<$type>)
    };
    (@make stage $type:ty) => {
        $crate::PluginFactory::Stage($crate::registry::make_stage::<$type>)
    };
    (@make codec $type:ty) => {
        $crate::PluginFactory::Codec($crate::registry::make_codec::<$type>)
    };
    (@make sink $type:ty) => {
        $crate::PluginFactory::Sink($crate::registry::make_sink::<$type>)
    };
    (@make service $type:ty) => {
        $crate::PluginFactory::Service($crate::registry::make_service::<$type>)
    };
    (types $name:literal : $files:expr, codec: $codec:literal, about: $about:literal $(,)?) => {
        $crate::register!(@types $name, $files, $codec, None, $about);
    };
    (
        types $name:literal : $files:expr, codec: $codec:literal, encoding: $encoding:expr,
        about: $about:literal $(,)?
    ) => {
        $crate::register!(@types $name, $files, $codec, Some($encoding), $about);
    };
    (@types $name:literal, $files:expr, $codec:literal, $encoding:expr, $about:literal) => {
        $crate::inventory::submit! {
            $crate::registry::TypeSet {
                name: $name,
                about: $about,
                codec: $codec,
                encoding: $encoding,
                files: $files,
            }
        }
    };
    (store [$($scheme:literal),+] : $store:expr) => {
        $crate::inventory::submit! {
            $crate::LinkedStore { schemes: &[$($scheme),+], store: $store }
        }
    };
    (
        $kind:ident $name:literal : $type:ty, make: $make:expr
        $(, $field:ident : $value:expr)* $(,)?
    ) => {
        $crate::inventory::submit! {
            $crate::Plugin {
                module: module_path!(),
                $($field: $value,)*
                ..$crate::Plugin::new($name, $make, $crate::registry::schema_of::<$type>)
            }
        }
    };
    ($kind:ident $name:literal : $type:ty $(, $field:ident : $value:expr)* $(,)?) => {
        $crate::register! {
            $kind $name: $type, make: $crate::register!(@make $kind $type)
            $(, $field: $value)*
        }
    };
}
