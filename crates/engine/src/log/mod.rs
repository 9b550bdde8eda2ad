//! Framing: how the write-ahead log and the manifest put records into a file so that damage can be told
//! from a torn tail.
//!
//! ```text
//! file   = file header (48 bytes)  frame*
//! frame  = frame header (32 bytes)  payload (0 to 65,504 bytes)
//!
//! frame header, little-endian:
//!   0  4  checksum of bytes 4..32      salted with file number and offset of the frame
//!   4  4  checksum of the payload      salted with birth id and offset of the payload
//!   8  8  file number                  a stale frame of another file does not have it
//!  16  8  promise                      all of this file below it was synced before the frame was written
//!  24  4  birth tag                    32 bits that only this file's frames have
//!  28  2  payload length
//!  30  1  kind                         1 full, 2 first, 3 middle, 4 last, 5 head, 6 end, 7 promise
//!  31  1  zero
//! ```
//!
//! A record is one frame, or a first, any number of middle ones and a last. The *promise* is what makes
//! damage decidable: a bad frame at offset `x` is corruption if some valid frame promises more than `x`,
//! wherever that frame is, and a torn tail otherwise, even if valid records follow it (page write-back is
//! unordered). [`survey`] finds the highest promise; [`reader`] gives the records up to the first damage;
//! whoever reads the file compares the two.
//!
//! A frame header is checked without its payload and without the file header (its checksum is salted with
//! numbers that are known from the file name), so that a promise survives damage to either, and the search
//! for it is linear on any bytes.
//!
//! Invariants: promises lie on record boundaries; a frame's promise is at most its own offset; nothing is
//! ever appended after a failed append or sync.
//!
//! Not here: what records mean ([`crate::wal`], [`crate::version::manifest`]).

pub(crate) mod codec;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod reader;
pub(crate) mod survey;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod window;
pub(crate) mod writer;

pub(crate) use header::{FileHeader, FileKind, HEADER_BYTES, HeaderFault};
pub(crate) use reader::{FrameReader, Record, RecordKind, Step};
pub(crate) use window::Window;
pub(crate) use writer::FrameWriter;
