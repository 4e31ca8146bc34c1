//! Koblenz VEL DataLog files, source and sink `vel`.
//!
//! [`wire`] is the bytes of the file's head and of one message, [`shape`] what described payloads say of
//! their own length, [`hash`] how a message's name becomes its type, [`time`] its milliseconds; [`scan`]
//! decides what is a message where damage makes that a question; [`reader`] goes through a log block by
//! block; [`source`] and [`sink`] are the plugins; [`index`] is the table of seconds in front of the
//! messages. [`format`](mod@format) is the log as a byte format, which archives hold; [`codec`] is messages
//! as columns.

pub mod codec;
pub mod format;
pub mod hash;
pub mod index;
pub mod reader;
pub mod scan;
pub mod shape;
pub mod sink;
pub mod source;
pub mod time;
pub mod wire;

mod channels;
mod kind;
mod original;
mod probe;
