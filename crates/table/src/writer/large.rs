//! Large values in the writer: cut into chunks as they arrive, never held whole.
//!
//! The chunks are written before the block with the entry that refers to them, so the file is
//! written in order. If a source fails before its end, its chunks have no entry: the writer can
//! then only be abandoned.
//!
//! Not here: the format of a chunk ([`crate::values`]).

use shamba_key::{EntryKind, Expiry, KeyDigest, SeqNo};

use super::TableWriter;
use crate::Result;
use crate::block::NewEntry;
use crate::content::ContentDigest;
use crate::values::{REFERENCE_BYTES, ValueRef, ValueSource, wrong_length};

impl TableWriter {
    /// [`Self::add`] for a put whose value comes in pieces from `source`, `value_bytes` in total; a
    /// large value is never held whole. Returns the content digest of the entry.
    ///
    /// # Errors
    /// As [`Self::add`], and errors of `source`; `Invalid` when it provides more or fewer bytes.
    /// The writer can then only be abandoned.
    pub fn add_streamed(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        value_bytes: u64,
        source: &mut ValueSource<'_>,
    ) -> Result<ContentDigest> {
        self.add_large((key, seq, None), None, value_bytes, source)
    }

    /// [`Self::add_streamed`] for a put that expires at `expiry`: `source` provides the stored form
    /// of expiry and value, of `payload_bytes` in total.
    ///
    /// # Errors
    /// As [`Self::add_streamed`].
    pub fn add_streamed_expiring(
        &mut self,
        key: &[u8],
        (seq, expiry): (SeqNo, Expiry),
        payload_bytes: u64,
        source: &mut ValueSource<'_>,
    ) -> Result<ContentDigest> {
        self.add_large((key, seq, Some(expiry)), None, payload_bytes, source)
    }

    /// [`Self::add_streamed`] for a key whose digest the caller may know.
    pub(super) fn add_large(
        &mut self,
        (key, seq, expiry): (&[u8], SeqNo, Option<Expiry>),
        digest: Option<KeyDigest>,
        value_bytes: u64,
        source: &mut ValueSource<'_>,
    ) -> Result<ContentDigest> {
        let whole = if expiry.is_some() { EntryKind::PutWithExpiry } else { EntryKind::Put };
        let order = self.check_entry(key, seq, whole, value_bytes)?;
        let mut content = ContentDigest::of_streamed(key, seq, whole);
        let mut got_bytes = 0u64;
        let mut is_short = |piece: &[u8]| {
            got_bytes += piece.len() as u64;
            content.push(piece);
            if got_bytes > value_bytes { Err(wrong_length(got_bytes, value_bytes)) } else { Ok(()) }
        };
        if value_bytes < self.options.large_values.from_bytes as u64 {
            let mut value = Vec::with_capacity(value_bytes as usize);
            source(&mut |piece| {
                is_short(piece)?;
                value.extend_from_slice(piece);
                Ok(())
            })?;
            if got_bytes < value_bytes {
                return Err(wrong_length(got_bytes, value_bytes));
            }
            self.add_counted(key, digest, seq, whole, &value)?;
            return Ok(content.finish());
        }
        let tag = self.hash(key, digest, order).block_tag();
        // The expiry, if there is one, and room for the reference.
        let mut payload = [0; Expiry::STORED_BYTES + REFERENCE_BYTES];
        let expiry_bytes = expiry.map_or(0, |_| Expiry::STORED_BYTES);
        let payload = &mut payload[..expiry_bytes + REFERENCE_BYTES];
        if let Some(expiry) = expiry {
            payload[..expiry_bytes].copy_from_slice(&expiry.0.to_le_bytes());
        }
        let (kind, shared_bytes) = (whole.large(), order.shared_bytes);
        let entry = NewEntry { key, shared_bytes, seq, kind, value: payload, tag };
        let limit_bytes = self.payload_limit_bytes();
        if !self.block.fits(&entry, limit_bytes) {
            self.cut_block()?;
        }
        let offset = self.out.offset();
        self.is_torn = true;
        let Self { chunks, out, compressor, chunk_compressor, .. } = self;
        let compressor = chunk_compressor.as_mut().unwrap_or(compressor);
        source(&mut |piece| {
            is_short(piece)?;
            chunks.push(piece, &mut |piece| out.chunk(piece, compressor))
        })?;
        chunks.end(&mut |piece| out.chunk(piece, compressor))?;
        if got_bytes < value_bytes {
            return Err(wrong_length(got_bytes, value_bytes));
        }
        assert_eq!(got_bytes, value_bytes, "a value of another length than stated is written");
        self.is_torn = false;
        self.has_values = true;
        let stored_bytes = self.out.offset() - offset;
        assert!(value_bytes > 0, "a large value of no bytes");
        assert!(stored_bytes > 0, "a large value without a chunk");
        debug_assert!(u32::try_from(stored_bytes).is_ok(), "{stored_bytes} bytes of chunks of one value");
        // Values are below 2^28 bytes, and chunks add less than a fifth.
        let reference = ValueRef {
            offset,
            stored_bytes: stored_bytes as u32,
            value_bytes: value_bytes as u32,
            chunk_bytes: self.options.large_values.chunk_bytes as u32,
        };
        let content = content.finish();
        self.content.merge(content);
        self.raw_value_bytes += value_bytes;
        debug_assert_eq!(self.chunks.pending_bytes(), 0, "the value ends in a chunk that is not written");
        payload[expiry_bytes..].copy_from_slice(&reference.encode());
        self.block.push(&NewEntry { key, shared_bytes, seq, kind, value: payload, tag }, limit_bytes);
        self.expiring.add(kind, payload, key.len() as u64 + value_bytes);
        self.count(key, seq, kind, order);
        Ok(content)
    }
}
