//! Calls of plugins outside of a run, in which a panic is an error. What a run calls it guards
//! itself, as it knows which node is at fault.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::{
    Error, Input, LiveBatches, OptionsError, Query, ReadContext, Reader, Source, Split, SplitStart,
};

/// Makes a plugin. `Err` also if it panics, of which the panic hook has given the message.
pub(super) fn made<T>(make: impl FnOnce() -> Result<T, OptionsError>) -> Result<T, OptionsError> {
    let message = "the plugin panicked, which is a bug in it; its message is above";
    catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| Err(OptionsError::at("", message)))
}

/// A source whose panics are errors, except while it reads.
pub(super) struct GuardedSource(pub(super) Box<dyn Source>);

#[deny(clippy::missing_trait_methods)]
impl Source for GuardedSource {
    fn inputs(&self) -> Result<Vec<Input>, Error> {
        Error::catching(|| self.0.inputs())
    }

    fn logs(&self) -> Result<Vec<Input>, Error> {
        Error::catching(|| self.0.logs())
    }

    fn files(&self) -> Result<Vec<Input>, Error> {
        Error::catching(|| self.0.files())
    }

    fn is_undecoded(&self) -> bool {
        self.0.is_undecoded()
    }

    fn has_own_rows(&self) -> bool {
        self.0.has_own_rows()
    }

    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        Error::catching(|| self.0.splits(target, query))
    }

    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        Error::catching(|| self.0.events_in(input))
    }

    fn findings(&self, input: &Path) -> Result<Vec<String>, Error> {
        Error::catching(|| self.0.findings(input))
    }

    fn faults(&self, input: &Path) -> Result<Vec<String>, Error> {
        Error::catching(|| self.0.faults(input))
    }

    fn read<'s>(
        &'s self,
        split: &Split,
        entry: SplitStart,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error> {
        self.0.read(split, entry, context)
    }

    fn listen(&self, split: &Split, context: &ReadContext) -> Result<LiveBatches, Error> {
        self.0.listen(split, context)
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::registry::{make_source, schema_of};
    use crate::{Plugin, PluginFactory, Registry};

    /// Panics when it is made or asked.
    #[derive(Deserialize, JsonSchema)]
    #[serde(try_from = "PanicOptions")]
    struct Panics;

    #[derive(Deserialize, JsonSchema)]
    struct PanicOptions {
        at_once: bool,
    }

    impl TryFrom<PanicOptions> for Panics {
        type Error = OptionsError;

        fn try_from(options: PanicOptions) -> Result<Self, OptionsError> {
            assert!(!options.at_once, "not made");
            Ok(Self)
        }
    }

    impl Source for Panics {
        fn inputs(&self) -> Result<Vec<Input>, Error> {
            panic!("no inputs")
        }

        fn read<'s>(
            &'s self,
            _: &Split,
            _: SplitStart,
            _: &ReadContext,
        ) -> Result<Box<dyn Reader + 's>, Error> {
            Ok(Box::new(std::iter::empty()))
        }
    }

    #[test]
    fn a_plugin_that_panics_while_it_is_made_or_asked_for_its_inputs_fails() {
        let factory = PluginFactory::Source(make_source::<Panics>);
        let registry =
            Registry::from_plugins([Plugin::new("panics", factory, schema_of::<Panics>)]);
        let made = |at_once| registry.source("panics", json!({ "at_once": at_once }));
        let error = made(true).err().map(|error| error.to_string());
        assert!(error.as_deref().is_some_and(|error| error.contains("panicked")), "{error:?}");
        let source = made(false).unwrap();
        let asked = [source.inputs().err(), source.logs().err(), source.files().err()];
        for error in asked {
            let error = error.unwrap().to_string();
            assert!(error.contains("a task panicked: no inputs"), "{error}");
        }
        assert!(source.splits(1, &Query::default()).is_err());
    }
}
