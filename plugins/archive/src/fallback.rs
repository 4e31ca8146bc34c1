//! Reads inputs that are not archives with the source that recognises them: plain logs, logs
//! compressed in one piece, pipes.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::json;
use sluice_io::files;
use sluice_model::{
    Error, PluginFactory, PluginKind, ReadContext, Reader, Registry, Source, Split, SplitStart,
};

use crate::format::FormatOption;

/// The name of the source and the sink.
const NAME: &str = "archive";

/// The other sources, each created on first use.
#[derive(Default)]
pub(crate) struct FallbackSources(OnceLock<Vec<FallbackSlot>>);

struct FallbackSlot {
    name: &'static str,
    source: OnceLock<Box<dyn Source>>,
}

/// The number of bytes that sources are shown to recognise a file.
const HEAD: usize = 256 << 10;

impl FallbackSources {
    /// Reads a file with the source that recognises it; `None` if there is none. `paths` are all
    /// paths of the archive source.
    pub(crate) fn read<'s>(
        &'s self,
        path: &Path,
        paths: &[PathBuf],
        context: &ReadContext,
    ) -> Result<Option<Box<dyn Reader + 's>>, Error> {
        let Some(name) = find_source(path)? else { return Ok(None) };
        let source = self.source(name, paths)?;
        source.read(&Split::whole(path, None), SplitStart::At(0), context).map(Some)
    }

    fn source(&self, name: &'static str, paths: &[PathBuf]) -> Result<&dyn Source, Error> {
        let slots = self.0.get_or_init(|| {
            let names = Registry::linked().names(PluginKind::Source);
            names.into_iter().map(|name| FallbackSlot { name, source: OnceLock::new() }).collect()
        });
        let broken = || Error::internal(format!("the source `{name}` is gone"));
        let slot = slots.iter().find(|slot| slot.name == name).ok_or_else(broken)?;
        if let Some(source) = slot.source.get() {
            return Ok(&**source);
        }
        let source = make(name, paths)?;
        Ok(&**slot.source.get_or_init(|| source))
    }
}

fn make(name: &'static str, paths: &[PathBuf]) -> Result<Box<dyn Source>, Error> {
    let registry = Registry::linked();
    let Some(PluginFactory::Source(make)) =
        registry.get(PluginKind::Source, name).map(|plugin| plugin.make)
    else {
        return Err(Error::internal(format!("there is no source `{name}`")));
    };
    make(json!({ "path": paths })).map_err(|e| {
        Error::invalid(format!("the source `{name}` needs options besides `path`: {e}"))
    })
}

/// The name of the source that reads a file.
fn find_source(path: &Path) -> Result<Option<&'static str>, Error> {
    let registry = Registry::linked();
    if path == Path::new("-") || files::is_special(path) {
        // Peeking into a pipe would consume it: assume the default format of archives.
        let usual = FormatOption::default();
        return Ok(registry.get(PluginKind::Source, usual.name()).map(|plugin| plugin.name));
    }
    let head = files::head(path, HEAD)?;
    let mut knows = registry.sniff(&head).into_iter().map(|plugin| plugin.name);
    Ok(knows.find(|name| *name != NAME))
}
