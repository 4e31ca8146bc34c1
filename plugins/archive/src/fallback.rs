//! Reads inputs that are not archives with the source that recognises them: plain logs, logs
//! compressed in one piece, pipes.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::json;
use sluice_io::files;
use sluice_model::{
    Error, PluginKind, ReadContext, Reader, Registry, SniffResult, Source, Split, SplitStart,
};

use crate::arrow;
use crate::format::DEFAULT_FORMAT;

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
        registry: &Registry,
    ) -> Result<Option<Box<dyn Reader + 's>>, Error> {
        let Some(name) = find_source(path, context, registry)? else { return Ok(None) };
        let source = self.source(name, paths, registry)?;
        source.read(&Split::whole(path, None), SplitStart::At(0), context).map(Some)
    }

    fn source(
        &self,
        name: &'static str,
        paths: &[PathBuf],
        registry: &Registry,
    ) -> Result<&dyn Source, Error> {
        let slots = self.0.get_or_init(|| {
            let names = registry.names(PluginKind::Source);
            names.into_iter().map(|name| FallbackSlot { name, source: OnceLock::new() }).collect()
        });
        let broken = || Error::internal(format!("the source `{name}` is gone"));
        let slot = slots.iter().find(|slot| slot.name == name).ok_or_else(broken)?;
        if let Some(source) = slot.source.get() {
            return Ok(&**source);
        }
        let source = registry.source(name, json!({ "path": paths })).map_err(|e| {
            Error::invalid(format!("the source `{name}` needs options besides `path`: {e}"))
        })?;
        Ok(&**slot.source.get_or_init(|| source))
    }
}

/// The name of the source that reads a file.
fn find_source(
    path: &Path,
    context: &ReadContext,
    registry: &Registry,
) -> Result<Option<&'static str>, Error> {
    let is_enough = |head: &[u8]| {
        let is_sure = matches!(registry.sniff_best(head), Some((SniffResult::Yes, _)));
        is_sure || context.run.is_cancelled()
    };
    let is_stream = files::is_stream(path);
    let in_stream = match is_stream {
        true => files::stream_head(path, HEAD, is_enough)?,
        false => None,
    };
    let head = match &in_stream {
        Some(head) if arrow::sniff(head) == SniffResult::Yes => {
            return Err(Error::refused(format!(
                "an archive of `{}` cannot be read from a pipe: save it compressed, as .arrow.zst, \
                 and read that: {}",
                arrow::NAME,
                path.display()
            )));
        }
        Some(head) => head,
        None => &files::head(path, HEAD)?,
    };
    let mut sniffed = registry.sniff(head).into_iter().map(|plugin| plugin.name);
    let found = sniffed.find(|name| *name != NAME);
    // Damage at the start of a pipe must not hide the events behind it.
    let default = || registry.get(PluginKind::Source, DEFAULT_FORMAT).map(|plugin| plugin.name);
    Ok(if is_stream { found.or_else(default) } else { found })
}
