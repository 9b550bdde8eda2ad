//! The check of a table just written, before its inputs may be deleted.
//!
//! Every frame of the data is read back in long reads and its checksum compared. In addition, one
//! in [`SAMPLE_EVERY_BLOCKS`] blocks is decoded, and the digest of its entries compared with the
//! digest of the entries that were written. The first check finds bytes that changed on their way
//! to the file and back, the second an encoder that does not reproduce its input. The index's
//! partitions are checked on the way, and all other parts were when the table was opened. A damaged
//! filter, which an old table is used without, is an error here.
//!
//! Not here: the check of a table of any age ([`super::verify`]).

use super::filter::TableFilter;
use super::load::{DATA_BLOCK, Loaded};
use super::verify::{check_padding, chunks_end};
use super::walked::{ListedBlock, WholePartition};
use crate::Result;
use crate::block::DataBlock;
use crate::block::frame::check;
use crate::content::ContentDigest;
use crate::counters::Reads;
use crate::format::SectionKind;
use crate::index::{Handle, TOP};
use crate::values;
use crate::written::WrittenBlocks;

/// Bytes per read.
const READ_BYTES: u64 = 256 << 10;

/// Reads back all data of the table in `loaded`, which was written with the samples `blocks`.
/// `warnings` are those of its filter.
///
/// # Errors
/// `Corruption` for the first frame with a wrong checksum, sample with other entries than were
/// written, or another number of entries in all; `Io` when reading fails.
pub(super) fn check_written(
    loaded: &Loaded,
    filter: Option<&TableFilter>,
    warnings: Vec<String>,
    blocks: &WrittenBlocks,
) -> Result<()> {
    let file = &loaded.file;
    // Resident slices were checked when they were read; damage to the others would be found too
    // late.
    let damage = match (warnings.into_iter().next(), filter) {
        (None, Some(filter)) => filter.verify(file)?.first().map(ToString::to_string),
        (warning, _) => warning,
    };
    if let Some(damage) = damage {
        let offset = loaded.footer.section(SectionKind::Filter).map_or(0, |section| section.offset);
        return Err(file.damaged(offset, "filter", damage));
    }
    let data_end = loaded.footer.section(SectionKind::Data).map_or(0, |data| data.offset + data.bytes);
    let mut samples = blocks.samples().iter().peekable();
    // Read into again and again: fresh memory for each piece would cost as much as the read.
    let (mut buffer, mut piece_at, mut piece_bytes) = (Vec::new(), 0u64, 0);
    let mut next = loaded.header.end();
    let mut entries = 0u64;
    for number in 0..loaded.index.partitions() {
        // What is in memory proves nothing about the file.
        let partition = WholePartition::Read(loaded.index.read_whole(file, number)?);
        for ListedBlock { handle, .. } in loaded.blocks_of(number, &partition) {
            entries = entries.saturating_add(u64::from(handle.entries));
            let damaged = |detail: String| file.damaged(handle.offset, DATA_BLOCK, detail);
            if handle.end() > piece_at + piece_bytes as u64 {
                let bytes = READ_BYTES.min(data_end.saturating_sub(handle.offset));
                // Below 4 GiB: the length of a block, or that of a piece.
                (piece_at, piece_bytes) = (handle.offset, bytes.max(u64::from(handle.bytes)) as usize);
                if piece_bytes > buffer.len() {
                    buffer.resize(piece_bytes, 0);
                }
                file.read_into(piece_at, piece_bytes, &mut buffer, DATA_BLOCK)?;
            }
            let piece = buffer.get(..piece_bytes).unwrap_or_default();
            debug_assert!(
                handle.offset >= piece_at,
                "the block at {} lies before the piece read",
                handle.offset
            );
            let from = usize::try_from(handle.offset - piece_at).unwrap_or(usize::MAX);
            let frame = piece.get(from..).and_then(|rest| rest.get(..handle.bytes as usize));
            let frame = frame.ok_or_else(|| damaged("it ends beyond the data".to_owned()))?;
            if loaded.has_values() {
                check_chunks(loaded, next, handle, frame)?;
            }
            next = handle.end();
            match samples.next_if(|sample| sample.offset == handle.offset) {
                Some(sample) if content_of(loaded, handle, frame)? != sample.content => {
                    return Err(damaged("its entries are not those that were written".to_owned()));
                }
                Some(_) => {}
                None => _ = check(file.birth, handle.offset, frame).map_err(damaged)?,
            }
        }
    }
    let stated = loaded.properties.entries;
    if entries != stated {
        let offset = loaded.footer.section(SectionKind::IndexTop).map_or(0, |top| top.offset);
        let detail = format!("{entries} entries in its blocks, the properties say {stated}");
        return Err(file.damaged(offset, TOP, detail));
    }
    match samples.next() {
        None => Ok(()),
        Some(sample) => {
            Err(file.damaged(sample.offset, DATA_BLOCK, "it was written and is not in the index"))
        }
    }
}

/// Reads the chunks of the values that a block refers to. They are contiguous from `start` on,
/// and only padding lies between them and the block.
fn check_chunks(loaded: &Loaded, start: u64, handle: Handle, frame: &[u8]) -> Result<()> {
    let damaged = |detail: String| loaded.file.damaged(handle.offset, DATA_BLOCK, detail);
    let (payload, _) = loaded.decode_block(handle, frame.to_vec())?;
    let block = DataBlock::view(&payload).map_err(damaged)?;
    let chunks_end = chunks_end(loaded, block, handle, start)?;
    let mut damage = Vec::new();
    let end = values::walk(&loaded.file, start, chunks_end, &mut damage)?;
    if let Some(error) = damage.pop() {
        return Err(error);
    }
    if end != Some(chunks_end) {
        return Err(damaged(format!("chunks of its values before {chunks_end} are missing")));
    }
    check_padding(loaded, chunks_end, handle)
}

/// The digest of a block's entries, with large values read from their chunks. Values in value files
/// are checked with their file.
fn content_of(loaded: &Loaded, handle: Handle, frame: &[u8]) -> Result<ContentDigest> {
    let damaged = |detail: String| loaded.file.damaged(handle.offset, DATA_BLOCK, detail);
    let (payload, _) = loaded.decode_block(handle, frame.to_vec())?;
    let block = DataBlock::view(&payload).map_err(damaged)?;
    block.check().map_err(damaged)?;
    let mut content = ContentDigest::new();
    let mut key = Vec::new();
    for place in 0..block.len() {
        let entry = block.entry(place, &mut key).map_err(damaged)?;
        if !entry.kind.is_large() {
            content.add(&key, entry.seq, entry.kind, entry.value);
            continue;
        }
        if entry.kind.in_value_file() {
            let reference = loaded.file_ref(entry.kind.location(entry.value))?;
            content.merge(reference.content(&key, entry.seq, entry.kind));
            continue;
        }
        let mut streamed = ContentDigest::of_streamed(&key, entry.seq, entry.kind.whole());
        let reference = loaded.value_ref(entry.kind.location(entry.value))?;
        values::read(&loaded.file, reference, &mut Reads::default(), &mut |piece| {
            streamed.push(piece?);
            Ok(())
        })?;
        content.merge(streamed.finish());
    }
    Ok(content)
}
