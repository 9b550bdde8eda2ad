//! Framing: the record format shared by the write-ahead log and the manifest, with which a reader
//! distinguishes corruption from a torn tail.
//!
//! ```text
//! file   = file header (48 bytes)  frame*
//! frame  = frame header (7 bytes)  payload (0 to 65,529 bytes)
//!
//! frame header, little-endian:
//!   0  4  checksum of kind, length and payload; salted with the birth id and the frame's offset
//!   4  1  kind                         1 full, 2 first, 3 middle, 4 last, 5 head, 6 end, 7 promise
//!   5  2  payload length
//!
//! payload of a promise:
//!   0  8  synced offset: every byte below it was synced before the promise was written
//!   8  4  birth tag                    32 bits derived from the birth id and the file number
//! ```
//!
//! A record is one full frame, or a first frame, any number of middle frames and a last frame. All
//! frames of a record except the last have the maximum length.
//!
//! A *promise* records a durable watermark: all bytes below the offset that it states were synced
//! before it was written. Promises decide whether damage is corruption. A bad frame at offset `x`
//! is corruption if any valid promise about the file, in whatever file it is stored, states an
//! offset above `x`. Otherwise it is a torn tail, even if valid records follow it, because page
//! write-back is unordered. [`survey`] finds the highest promise in a file. [`reader`] returns the
//! records up to the first damage. The caller compares the two.
//!
//! The checksum of a promise is salted with the file number, which the file name states, and not
//! with the birth id. So a promise stays readable when the file header is lost. A promise is
//! written after each sync. It is repeated before the first record in each further 512-byte sector,
//! so that the loss of one sector does not destroy every promise about it.
//!
//! Invariants:
//! - Promises lie between records.
//! - A promise states at most its own offset.
//! - Nothing is appended after a failed append or sync.
//!
//! Not here: the meaning of records ([`crate::wal`], and the manifest in crate `shamba-tree`).

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
pub use reader::{FrameReader, FrameStep, Record, RecordKind};
pub use window::FileWindow;
pub use writer::FrameWriter;
