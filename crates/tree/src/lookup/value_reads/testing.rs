//! Value files in memory, for tests: written with given payloads, and damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::{Env, append_all, read_file};
use shamba_key::{EntryKind, SeqNo};
use shamba_table::{
    BirthId, Compression, Ledger, OpenFiles, ValueFile, ValueFileId, ValueFileOptions, ValueFileWriter,
    ValueFileWriterOptions, value_file_name,
};
use shamba_testkit::memory_env;

use super::WantedValue;

const DIR: &str = "/values";

/// A directory of value files.
pub struct ValueRig {
    env: Env,
    files: u64,
}

impl ValueRig {
    pub fn new() -> Self {
        let env = memory_env(1);
        env.vfs.create_dir_all(Path::new(DIR)).expect("memory");
        Self { env, files: 0 }
    }

    /// Writes a file of these payloads, of puts; returns the place of each.
    pub fn write(&mut self, payloads: &[Vec<u8>], compression: Compression) -> Vec<WantedValue> {
        self.files += 1;
        let (id, birth) = (ValueFileId(self.files), BirthId(1_000 + self.files));
        let options = ValueFileWriterOptions { id, birth, keyspace: 0, compression, chunk_bytes: 64 << 10 };
        let mut writer = ValueFileWriter::create(&self.env, Path::new(DIR), options).expect("created");
        let mut references = Vec::new();
        for payload in payloads {
            references.push(writer.add(b"key", SeqNo(7), EntryKind::Put, payload).expect("added"));
        }
        let (_, _, unsynced) = writer.finish_unsynced().expect("finished");
        unsynced.sync().expect("synced");
        let (ledger, files) = (Arc::new(Ledger::new()), Arc::new(OpenFiles::new(10)));
        let options = ValueFileOptions { id, birth, ledger, files, direct_io: false };
        let file = ValueFile::open(&self.env, Path::new(DIR), options).expect("opened");
        references.into_iter().map(|reference| WantedValue { file: Arc::clone(&file), reference }).collect()
    }

    fn path(file: &ValueFile) -> PathBuf {
        Path::new(DIR).join(value_file_name(file.id()))
    }

    /// Changes the bytes of an open file.
    fn change(&self, file: &ValueFile, change: impl FnOnce(&mut Vec<u8>)) {
        let path = Self::path(file);
        let mut bytes = read_file(self.env.vfs.as_ref(), &path).expect("read");
        change(&mut bytes);
        let mut file = self.env.vfs.open_append(&path).expect("opened");
        file.truncate(0).expect("emptied");
        append_all(file.as_mut(), &bytes).expect("written");
    }

    /// Flips a bit of a value.
    pub fn damage(&self, value: &WantedValue) {
        let at = value.reference.offset as usize + 5;
        self.change(&value.file, |bytes| bytes[at] ^= 1);
    }

    /// Cuts the file off in the middle of a value.
    pub fn cut_in(&self, value: &WantedValue) {
        let at = value.reference.end() as usize - 2;
        self.change(&value.file, |bytes| bytes.truncate(at));
    }
}

/// A payload of this length.
pub fn payload(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|at| if at % 64 < 40 { salt as u8 } else { (at * 31 / 7 + salt) as u8 }).collect()
}
