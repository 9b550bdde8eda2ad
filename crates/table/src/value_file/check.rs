//! Checks of whole value files: after writing, before anything refers to the file, and at any age.
//!
//! Both read every byte. A file has no keys, so a value can only be compared with its fingerprint
//! by the one who knows its entry: after writing, by samples that the writer took; later, by the
//! check of the table that refers to it.

use super::format::{FOOTER, FOOTER_BYTES, HEADER};
use super::read::{load_footer, load_header};
use super::{ValueFile, ValueFileRef};
use crate::counters::Reads;
use crate::values::{self, Chunk, VALUE_CHUNK};
use crate::{Error, Result};

/// One value in this many is compared with its fingerprint. Builds with debug assertions, as in
/// tests, compare every value, up to [`SAMPLES_MAX`] of a file.
const SAMPLE_EVERY_VALUES: u64 = if cfg!(debug_assertions) { 1 } else { 16 };
/// Maximum number of samples of a file, which bounds their memory to 40 KiB.
pub(super) const SAMPLES_MAX: usize = 1_024;
const _: () = assert!(SAMPLES_MAX % 2 == 0, "every second one of the samples is dropped");

/// Samples of a file's values that its writer took for the check of the file.
#[derive(Clone, Debug)]
pub struct WrittenValues {
    samples: Vec<Sample>,
    /// One value in this many is a sample.
    every: u64,
}

/// One value that was written.
#[derive(Clone, Copy, Debug)]
struct Sample {
    reference: ValueFileRef,
    /// Seed of its fingerprint.
    seed: u64,
}

impl Default for WrittenValues {
    fn default() -> Self {
        Self { samples: Vec::new(), every: SAMPLE_EVERY_VALUES }
    }
}

impl WrittenValues {
    /// Memory of one sample.
    pub(super) const SAMPLE_BYTES: usize = size_of::<Sample>();

    /// Takes value `number` of the file, counted from 0, as a sample if it is one.
    pub(super) fn remember(&mut self, number: u64, reference: ValueFileRef, seed: u64) {
        if number % self.every != 0 {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            // Half as many, still evenly spread: this one is among them.
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.every *= 2;
        }
        debug_assert!(self.samples.last().is_none_or(|last| last.reference.end() <= reference.offset));
        if self.samples.capacity() == 0 {
            self.samples.reserve_exact(SAMPLES_MAX);
        }
        self.samples.push(Sample { reference, seed });
    }

    /// Offsets of the samples.
    #[cfg(test)]
    pub(super) fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        self.samples.iter().map(|sample| sample.reference.offset)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.samples.capacity() * size_of::<Sample>()) as u64
    }
}

/// Sums over the chunks of a file.
#[derive(Clone, Copy, Default)]
struct Totals {
    chunks: u64,
    /// Chunks whose piece is shorter than a full one: each ends a value.
    short: u64,
    payload_bytes: u64,
}

impl ValueFile {
    /// Reads back all chunks of a file that was written with the samples `written`, and compares
    /// the fingerprints of these.
    ///
    /// # Errors
    /// `Corruption` for the first chunk with a wrong checksum, or sample with another value than
    /// was written; `Io` when reading fails.
    pub fn check_written(&self, written: &WrittenValues) -> Result<()> {
        let mut damage = None;
        let end = self.walk(&mut |chunk| {
            if let (None, Err(error)) = (&damage, chunk) {
                damage = Some(error);
            }
        })?;
        if let Some(error) = damage {
            return Err(error);
        }
        self.check_end(end)?;
        let mut cost = Reads::default();
        for Sample { reference, seed } in &written.samples {
            self.read_seeded(*reference, *seed, &mut cost, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    /// Reads every byte of the file and reports all damage; empty if there is none. It checks
    /// header, footer, length, each chunk, and the sums of the footer except that of the
    /// fingerprints.
    pub fn verify(&self) -> Vec<Error> {
        let file = &self.file;
        let mut damage = Vec::new();
        let footer_at = file.bytes.saturating_sub(FOOTER_BYTES as u64);
        match file.length_now() {
            Ok(bytes) if bytes != file.bytes => damage.push(file.damaged(
                bytes.min(file.bytes),
                "file",
                format!("{bytes} bytes long, expected {}", file.bytes),
            )),
            Ok(_) => {}
            Err(error) => damage.push(error),
        }
        let changed =
            |offset, structure| file.damaged(offset, structure, "it changed since the file was opened");
        match load_header(file, Some(file.birth)) {
            Ok(header) if header != self.header => damage.push(changed(0, HEADER)),
            header => damage.extend(header.err()),
        }
        match load_footer(file) {
            Ok(footer) if footer != self.footer => damage.push(changed(footer_at, FOOTER)),
            footer => damage.extend(footer.err()),
        }
        let before = damage.len();
        let mut totals = Totals::default();
        let mut found = Vec::new();
        let walked =
            self.walk(&mut |chunk| found.extend(chunk.and_then(|chunk| self.add(chunk, &mut totals)).err()));
        damage.append(&mut found);
        if let Err(error) = walked.and_then(|end| match end {
            // The damage that hides the end was reported.
            None => Ok(()),
            end => self.check_end(end),
        }) {
            damage.push(error);
        }
        if damage.len() == before {
            if let Err(detail) = self.check_totals(totals) {
                damage.push(file.damaged(footer_at, FOOTER, detail));
            }
        }
        damage
    }

    /// Passes each chunk, or its damage, to `seen`; returns the end of the chunks.
    pub(super) fn walk(&self, seen: &mut dyn FnMut(Result<Chunk<'_>>)) -> Result<Option<u64>> {
        values::walk_chunks(&self.file, self.chunks.offset, self.chunks.end(), seen)
    }

    /// Checks that the chunks, which end at `end`, fill the file.
    fn check_end(&self, end: Option<u64>) -> Result<()> {
        let expected = self.chunks.end();
        match end {
            Some(end) if end == expected => Ok(()),
            end => {
                let at = end.unwrap_or(expected);
                Err(self.file.damaged(at, VALUE_CHUNK, format!("no chunk, they go on to {expected}")))
            }
        }
    }

    /// Adds a chunk to the totals.
    fn add(&self, chunk: Chunk<'_>, totals: &mut Totals) -> Result<()> {
        let damaged = |detail: String| self.file.damaged(chunk.offset, VALUE_CHUNK, detail);
        let (piece_bytes, full) =
            (chunk.piece_bytes().map_err(damaged)? as u64, u64::from(self.header.chunk_bytes));
        if piece_bytes == 0 || piece_bytes > full {
            return Err(damaged(format!("a piece of {piece_bytes} bytes, expected 1 to {full}")));
        }
        totals.chunks += 1;
        totals.short += u64::from(piece_bytes < full);
        totals.payload_bytes += piece_bytes;
        Ok(())
    }

    /// Compares the sums of the footer with those of the chunks. The number of values is only
    /// bounded by them: a value ends at the latest with a chunk that is not full, and perhaps with
    /// one that is.
    fn check_totals(&self, totals: Totals) -> std::result::Result<(), String> {
        let Totals { chunks, short, payload_bytes } = totals;
        let footer = &self.footer;
        if footer.payload_bytes != payload_bytes {
            return Err(format!("values of {} bytes, found {payload_bytes}", footer.payload_bytes));
        }
        if footer.values < short || footer.values > chunks {
            return Err(format!("{} values, found {chunks} chunks, {short} of them short", footer.values));
        }
        Ok(())
    }
}
