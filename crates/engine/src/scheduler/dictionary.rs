//! The dictionary of a compaction's output tables.
//!
//! It is made once for a job, from blocks of all its inputs in proportion to their lengths, before
//! its first slice. There is none if the option is off, if the outputs are too short for it, if it
//! would save too little, or if a sample cannot be read: the slices read the same blocks, and
//! report what is wrong with them.

use shamba_table::{DICTIONARY_SAMPLES, Dictionary};

use super::compact::Compactor;
use super::job::Job;

/// Minimum length of a job's input and of its full tables, as a multiple of the dictionary's: it is
/// a part of each table, and saves a sixteenth at least.
const TABLE_BYTES_PER_DICTIONARY_BYTE_MIN: u64 = 32;

impl Compactor {
    /// The dictionary for the output tables of `job`, whose full length is `table_bytes`.
    pub(super) fn dictionary(&self, job: &Job, table_bytes: u64) -> Option<Dictionary> {
        let overrides = job.keyspace.overrides();
        let dictionary_bytes = overrides.dictionary_bytes_for(job.job.target_level, &self.settings);
        let input_bytes = job.job.input_bytes(&job.version);
        let output_bytes = input_bytes.min(table_bytes);
        if dictionary_bytes == 0
            || output_bytes < TABLE_BYTES_PER_DICTIONARY_BYTE_MIN * dictionary_bytes as u64
        {
            return None;
        }
        let tables: Vec<_> = job.job.uses(&job.version).into_iter().map(|(_, _, table)| table).collect();
        let all_bytes: u64 = tables.iter().map(|table| table.meta.file_bytes).sum();
        let mut samples = Vec::new();
        let mut bytes_before = 0;
        for table in tables {
            bytes_before += table.meta.file_bytes;
            let due = DICTIONARY_SAMPLES as u64 * bytes_before / all_bytes.max(1);
            let wanted = (due as usize).saturating_sub(samples.len());
            if wanted > 0 {
                samples.extend(table.meta.open().and_then(|reader| reader.sample_blocks(wanted)).ok()?);
            }
        }
        Dictionary::from_samples(&samples, dictionary_bytes)
    }
}
