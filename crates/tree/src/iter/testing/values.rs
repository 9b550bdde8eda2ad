//! Value files of a [`Store`]: written with the tables of one output, read when tables are merged,
//! and damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::{append_all, read_file};
use shamba_key::EntryKind;
use shamba_table::{
    BirthId, Compression, EntryIter, OpenFiles, ValueFile, ValueFileId, ValueFileOptions, ValueFileRef,
    ValueFileWriter, ValueFileWriterOptions, value_file_name,
};
use shamba_testkit::Row;

use super::{DIR, Store};
use crate::version::ValueFileMeta;

/// The value file of some tables, which is created for its first value.
pub(super) struct OutputValues {
    from_bytes: Option<usize>,
    writer: Option<ValueFileWriter>,
}

impl OutputValues {
    /// Separates values from this length on.
    pub(super) fn new(from_bytes: Option<usize>) -> Self {
        Self { from_bytes, writer: None }
    }

    /// Writes the value of a row, if it is long enough; returns the reference to it, and the birth
    /// id of its file.
    pub(super) fn add(&mut self, store: &Store, row: &Row) -> Option<(ValueFileRef, BirthId)> {
        let is_put = matches!(row.kind, EntryKind::Put | EntryKind::PutWithExpiry);
        if !is_put || self.from_bytes.is_none_or(|bytes| row.value.len() < bytes.max(1)) {
            return None;
        }
        let writer = self.writer.get_or_insert_with(|| {
            let (id, birth) = (ValueFileId(store.id()), BirthId(store.id()));
            let (compression, chunk_bytes) = (Compression::None, 64 << 10);
            let options = ValueFileWriterOptions { id, birth, keyspace: 0, compression, chunk_bytes };
            ValueFileWriter::create(&store.env, Path::new(DIR), options).expect("memory")
        });
        let reference = writer.add(&row.key, row.seq, row.kind, &row.value).expect("memory");
        Some((reference, writer.birth()))
    }

    /// Ends the file, if there is one, and opens it.
    pub(super) fn finish(self, store: &Store) -> Option<ValueFileMeta> {
        let (summary, _, unsynced) = self.writer?.finish_unsynced().expect("memory");
        unsynced.sync().expect("memory");
        let (ledger, files) = (Arc::clone(&store.ledger), Arc::new(OpenFiles::new(1)));
        let options =
            ValueFileOptions { id: summary.id, birth: summary.birth, ledger, files, direct_io: false };
        let file = ValueFile::open(&store.env, Path::new(DIR), options).expect("just written");
        let meta = ValueFileMeta {
            id: summary.id,
            birth: summary.birth,
            file_bytes: summary.file_bytes,
            values: summary.values,
            file: Default::default(),
        };
        meta.file.set(file);
        Some(meta)
    }
}

impl Store {
    /// Replaces these bytes, which are in one value, of all value files by others of the same
    /// length.
    pub fn replace_in_values(&self, from: &[u8], to: &[u8]) {
        assert_eq!(from.len(), to.len(), "values keep their places");
        let view = self.newest_view();
        for total in view.version.value_totals().files() {
            let path: PathBuf = Path::new(DIR).join(value_file_name(total.file.id));
            let mut bytes = read_file(self.env.vfs.as_ref(), &path).expect("memory");
            let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
            places.iter().for_each(|at| bytes[*at..*at + to.len()].copy_from_slice(to));
            let mut file = self.env.vfs.open_append(&path).expect("memory");
            file.truncate(0).expect("memory");
            append_all(file.as_mut(), &bytes).expect("memory");
        }
    }
}

/// All entries of a source, with their values wherever these are.
pub(super) fn collect_whole(iter: &mut dyn EntryIter) -> Vec<Row> {
    let mut rows = Vec::new();
    iter.seek_to_first().expect("memory");
    while iter.valid() {
        let mut value = Vec::new();
        let read = iter.read_value(&mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        });
        read.expect("memory");
        rows.push(Row { key: iter.key().to_vec(), seq: iter.seq(), kind: iter.kind().whole(), value });
        iter.next().expect("memory");
    }
    rows
}
