//! Value files of one output: where long values go, while their tables get references.
//!
//! A value is written to the open value file before its entry is added to its table. A file ends
//! before a value once it has its full size, so it may exceed that by one value. It is written in
//! the order of the entries, so neighbours of one output are adjacent, and a scan reads them at
//! once.
//!
//! The values of input tables stay where they are: a compaction copies the reference and reads
//! nothing. Only values of files that the job *collects* are written again.
//!
//! Files are made durable and checked by the output ([`super::output`]) together with its tables.
//! Those that are unfinished or not installed are removed on drop.
//!
//! Not here: which files a job collects ([`shamba_tree::compaction::schedule`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shamba_key::EntryKind;
use shamba_table::{
    Compression, TableSummary, UnsyncedValueFile, VALUE_WRITER_BYTES, ValueFile, ValueFileId,
    ValueFileSummary, ValueFileWriter, WrittenValues,
};
use shamba_tree::version::{ValueFileMeta, ValueUse, ValueUses, Version};

use super::TableFiles;
use crate::error::{Error, Result};

/// Which values an output stores in value files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueOptions {
    /// Minimum length of the payload of such an entry; `None`: all are in tables.
    pub bytes_min: Option<u32>,
    /// Length of the chunks at which a file ends.
    pub file_bytes: u64,
}

/// The value files that the inputs of a job refer to.
#[derive(Clone, Default, Debug)]
pub(crate) struct InputValues {
    known: Arc<BTreeMap<ValueFileId, Arc<ValueFileMeta>>>,
    /// Files whose values are written again.
    collected: Arc<BTreeSet<ValueFileId>>,
}

impl InputValues {
    /// Those of a tree, of which `collected` are written again.
    pub fn of(version: &Version, collected: Arc<BTreeSet<ValueFileId>>) -> Self {
        let files = version.value_totals().files();
        let known = files.map(|total| (total.file.id, Arc::clone(&total.file))).collect();
        Self { known: Arc::new(known), collected }
    }

    /// Whether values of the file are written again.
    pub fn is_collected(&self, file: ValueFileId) -> bool {
        self.collected.contains(&file)
    }

    /// The file that a reference of the inputs names.
    pub fn get(&self, file: ValueFileId) -> Option<&Arc<ValueFileMeta>> {
        self.known.get(&file)
    }
}

/// The value files of one output under construction.
pub(super) struct SeparatedValues<'a> {
    files: &'a TableFiles,
    options: ValueOptions,
    compression: Compression,
    keyspace: u32,
    pub inputs: InputValues,
    writer: Option<ValueFileWriter>,
    finished: Vec<(ValueFileSummary, WrittenValues)>,
    installed: bool,
}

impl<'a> SeparatedValues<'a> {
    pub fn new(
        files: &'a TableFiles,
        options: ValueOptions,
        (compression, keyspace): (Compression, u32),
    ) -> Self {
        Self {
            files,
            options,
            compression,
            keyspace,
            inputs: InputValues::default(),
            writer: None,
            finished: Vec::new(),
            installed: false,
        }
    }

    /// Whether an entry with a payload of this length has its value in a value file.
    #[inline]
    pub fn takes(&self, kind: EntryKind, payload_bytes: u64) -> bool {
        kind.is_put() && self.options.bytes_min.is_some_and(|min| payload_bytes >= u64::from(min))
    }

    /// The open file; `true` if it was created now.
    ///
    /// # Errors
    /// Of creating a file.
    pub fn writer(&mut self) -> Result<(&mut ValueFileWriter, bool)> {
        let is_new = self.writer.is_none();
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(self.files.create_values(self.keyspace, self.compression)?),
        };
        Ok((writer, is_new))
    }

    /// Ends the open file if it has its full size. Returns it for the sync.
    ///
    /// # Errors
    /// Of writing.
    pub fn end_full(&mut self) -> Result<Option<(u64, UnsyncedValueFile)>> {
        match &self.writer {
            Some(writer) if writer.bytes() >= self.options.file_bytes => self.end(),
            _ => Ok(None),
        }
    }

    /// Ends the open file. Returns its length, and the file for the sync.
    ///
    /// # Errors
    /// Of writing.
    pub fn end(&mut self) -> Result<Option<(u64, UnsyncedValueFile)>> {
        let Some(writer) = self.writer.take() else { return Ok(None) };
        let (summary, written, unsynced) = writer.finish_unsynced()?;
        self.finished.push((summary, written));
        Ok(Some((summary.file_bytes, unsynced)))
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        let finished: u64 = self.finished.iter().map(|(summary, _)| summary.file_bytes).sum();
        finished + self.writer.as_ref().map_or(0, ValueFileWriter::bytes)
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.writer.is_none() && self.finished.is_empty()
    }

    /// Memory of the open file.
    pub fn memory_bytes(&self) -> u64 {
        if self.writer.is_some() { VALUE_WRITER_BYTES } else { 0 }
    }

    /// Opens the finished files, whose bytes and names are durable, and checks each with `verify`.
    ///
    /// # Errors
    /// Of opening; `Corruption` when a file does not read back as written.
    pub fn open(&self, verify: bool) -> Result<BTreeMap<ValueFileId, Arc<ValueFileMeta>>> {
        let mut opened = BTreeMap::new();
        for (summary, written) in &self.finished {
            let file = self.files.open_values(summary.id, summary.birth)?;
            if verify {
                file.check_written(written)?;
            }
            opened.insert(summary.id, meta_of(summary, file));
        }
        Ok(opened)
    }

    /// The references of the table with this summary. `opened` are the files of this output.
    ///
    /// # Errors
    /// `Invalid` if the table refers to a file that is neither of this output nor of its inputs.
    pub fn uses_of(
        &self,
        summary: &TableSummary,
        opened: &BTreeMap<ValueFileId, Arc<ValueFileMeta>>,
    ) -> Result<ValueUses> {
        let uses = summary.value_uses.iter().map(|used| {
            let known = opened.get(&used.file).or_else(|| self.inputs.get(used.file));
            let file = known.cloned().ok_or_else(|| {
                Error::invalid(format!("table {} refers to the unknown value file {}", summary.id, used.file))
            })?;
            Ok(ValueUse { file, values: used.values, bytes: used.bytes })
        });
        Ok(ValueUses::sum(uses.collect::<Result<Vec<_>>>()?))
    }

    /// The files stay: the caller owns them.
    pub fn keep(&mut self) {
        debug_assert!(self.writer.is_none(), "a value file is installed before it is finished");
        self.installed = true;
    }
}

impl Drop for SeparatedValues<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.abandon();
        }
        if !self.installed {
            for (summary, _) in &self.finished {
                self.files.catalog().mark_file_obsolete(self.files.values_path(summary.id));
            }
        }
    }
}

/// Manifest metadata of a value file that was just written.
fn meta_of(summary: &ValueFileSummary, file: Arc<ValueFile>) -> Arc<ValueFileMeta> {
    let ValueFileSummary { id, birth, file_bytes, values, .. } = *summary;
    let meta = ValueFileMeta { id, birth, file_bytes, values, file: Default::default() };
    meta.file.set(file);
    Arc::new(meta)
}
