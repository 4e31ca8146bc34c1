//! The file names of the sink `files`.

use serde_json::json;
use sluice_io::tasks::TaskPool;
use sluice_model::{BatchBuilder, BlockPool, Channel, Encoding, Name, PrepareContext, SinkContext};

use crate::inputs;

/// Files of any name for events of any channel are in their folder, one per event, with its bytes.
pub fn files_sink(bytes: &[u8]) {
    let (template, rest) = inputs::cut_at(bytes, 0);
    let (channel, payload) = inputs::cut_at(rest, 0);
    let folder = inputs::empty_folder("files");
    let path = format!("{}/out/", folder.display());
    let options =
        json!({ "path": path, "name": inputs::text(template), "index": "none", "empty": "keep" });
    let Ok(sink) = inputs::registry().sink("files", options) else { return };
    let (context, buffers) = (SinkContext::standalone(), BlockPool::new(1 << 10, 4));
    let channel = Channel::new(Name::from_bytes(channel), inputs::text(channel), Encoding::Unknown);
    let mut batch = BatchBuilder::default();
    let id = context.channels.intern(channel).expect("few channels");
    batch.push_copy(1, 2, id, payload);
    batch.push_copy(1, 2, id, payload);
    let mut output = sink.open(&context, &TaskPool::default()).expect("it opens");
    let block = sink.prepare(batch.finish(), &mut PrepareContext::new(&context.channels, &buffers));
    output.push(block.expect("it is prepared")).expect("it is written");
    output.finish().expect("it finishes");
    context.outputs.publish(|_, _| Ok("manifest".to_owned())).expect("it is published");
    let manifest = folder.join("out/_manifest.json");
    let files = inputs::files_below(&folder).into_iter().filter(|path| *path != manifest);
    let files: Vec<_> = files.collect();
    assert!(files.len() == 2 || files.is_empty(), "{files:?}");
    for file in files {
        assert!(file.starts_with(folder.join("out")), "{}", file.display());
        assert_eq!(std::fs::read(&file).expect("it is there"), payload);
    }
}
