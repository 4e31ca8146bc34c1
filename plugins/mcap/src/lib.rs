//! MCAP files: source and sink `mcap`, the container only. What messages mean is left to codecs.
//!
//! `wire` has the records, `chunk` packs and unpacks chunks. To read, `walk` steps from record to
//! record and searches for the next one after damage, `summary` and `index` find the chunks that
//! splits start at, `table` knows the channels and `before_damage` which of them may be of another
//! file, and `reader` turns messages into events. To write, `declare` numbers schemas and channels,
//! `encode` makes chunks in jobs, and `finish` writes the summary. `carry` copies metadata and
//! attachments of inputs.

mod before_damage;
mod carry;
mod channel;
mod checksums;
mod chunk;
mod declare;
mod encode;
mod finish;
mod index;
mod inspect;
mod reader;
mod salvage;
mod sink;
mod skip;
mod source;
mod summary;
mod table;
mod unit;
mod walk;
mod wire;

pub use sink::McapSink;
pub use source::McapSource;
