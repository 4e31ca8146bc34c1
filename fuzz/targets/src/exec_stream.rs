//! What programs write on their standard output, as the plugins of `exec` read it.

use sluice_core::ReadContext;

/// Any bytes are a stream of events or refused; rows stand for events of their own.
pub fn exec_stream(bytes: &[u8]) {
    let context = ReadContext::standalone("test");
    match sluice_exec::events_of(bytes, &context) {
        Ok(batches) => {
            for batch in batches {
                let rows: usize = batch.rows().iter().map(|rows| rows.events.len()).sum();
                assert!(rows <= batch.len());
                assert!(
                    batch
                        .iter()
                        .all(|event| context.channels.get(event.channel).source.len() < 1 << 20)
                );
            }
        }
        Err(what) => assert!(!what.is_empty()),
    }
}
