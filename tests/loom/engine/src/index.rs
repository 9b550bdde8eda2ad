//! The only part of a table's index that the block cache uses.

#[path = "../../../../crates/table/src/slot.rs"]
mod slot;

pub(crate) use slot::FrameSlot;
