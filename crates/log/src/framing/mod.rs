//! Framing: how the write-ahead log and the manifest put records into a file so that damage can be told
//! from a torn tail.
//!
//! ```text
//! file   = file header (48 bytes)  frame*
//! frame  = frame header (7 bytes)  payload (0 to 65,529 bytes)
//!
//! frame header, little-endian:
//!   0  4  checksum of everything behind it, payload included; salted with birth id and offset of the frame
//!   4  1  kind                         1 full, 2 first, 3 middle, 4 last, 5 head, 6 end, 7 promise
//!   5  2  payload length
//!
//! payload of a promise:
//!   0  8  everything in this file below this offset was synced before the promise was written
//!   8  4  birth tag                    32 bits that only this life of the file has
//! ```
//!
//! A record is one frame, or a first, any number of middle ones and a last; all of these but the last are
//! full. *Promises* make damage decidable: a bad frame at offset `x` is corruption if some valid promise is
//! of more than `x`, wherever it is, and a torn tail otherwise, even if valid records follow it (page
//! write-back is unordered). [`survey`] finds the highest promise; [`reader`] gives the records up to the
//! first damage; whoever reads the file compares the two.
//!
//! A promise's checksum is salted with the file's number, which its name tells, not with the birth id: it
//! survives the loss of the file header. It is written after a sync and, from then on, again before the first
//! record in each further sector of 512 bytes: a lost sector does not take every promise about it along.
//!
//! Invariants: promises lie between records; a promise is of at most its own offset; nothing is ever
//! appended after a failed append or sync.
//!
//! Not here: what records mean ([`crate::wal`], [`crate::version::manifest`]).

pub mod codec;
pub mod frame;
pub mod header;
pub mod payload;
pub mod reader;
pub mod survey;
#[cfg(test)]
pub mod tests;
pub mod window;
pub mod writer;

pub use codec::{Decoded, Decoder};
pub use header::{FileHeader, FileKind, HEADER_BYTES, HeaderFault};
pub use reader::{FrameReader, Record, RecordKind, Step};
pub use window::Window;
pub use writer::FrameWriter;
