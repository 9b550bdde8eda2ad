//! The one part of a table's index that the block cache knows.

#[path = "../../../../crates/table/src/slot.rs"]
mod slot;

pub(crate) use slot::FrameSlot;
