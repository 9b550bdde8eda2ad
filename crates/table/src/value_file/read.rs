//! Reading a value file: opening it, and reading the values that references name.
//!
//! [`ValueFile::open`] reads header and footer. A value is then read with one read of its stored
//! bytes if these fit into one chunk of maximum length, and in reads of about a chunk otherwise. A
//! reference is checked against the file before anything is read or allocated for it.
//!
//! The open file is limited by [`OpenFiles`], like the tables: it may be closed, and is reopened by
//! name. It is not checked again then; the checksum of every chunk is salted with the birth id.
//!
//! Not here: the check of whole files ([`super::check`]).

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use shamba_env::Env;
use shamba_key::{EntryKind, SeqNo};

use super::format::{FIXED_BYTES, FOOTER, FOOTER_BYTES, Footer, HEADER, HEADER_BYTES, Header, chunks_of};
use super::{Fingerprint, ValueFileRef, fingerprint_of, fingerprint_seed};
use crate::Result;
use crate::counters::Reads;
use crate::file::TableFile;
use crate::files::OpenFiles;
use crate::format::Section;
use crate::id::{BirthId, ValueFileId, value_file_name};
use crate::ledger::{Charge, Ledger, LedgerPart};
use crate::values::{self, READ_BYTES, VALUE_CHUNK, VALUE_REFERENCE, ValueRef};

/// Bytes of an open value file: the object, its path, its entry in the list of open files, and the
/// allocator's overhead.
const OPEN_BYTES: usize = size_of::<ValueFile>() + 256;

/// Options for opening a value file.
#[derive(Clone, Debug)]
pub struct ValueFileOptions {
    /// Number of the file.
    pub id: ValueFileId,
    /// The birth id in the manifest: a file with another one was swapped.
    pub birth: BirthId,
    /// The ledger that the open file is charged to.
    pub ledger: Arc<Ledger>,
    /// Limits the number of open files; shared with the tables.
    pub files: Arc<OpenFiles>,
    /// Whether to bypass the operating system's cache, if the file system supports it.
    pub direct_io: bool,
}

/// An open value file. Can be shared between threads.
#[derive(Debug)]
pub struct ValueFile {
    id: ValueFileId,
    pub(super) file: TableFile,
    pub(super) header: Header,
    pub(super) footer: Footer,
    /// The part of the file that has the chunks.
    pub(super) chunks: Section,
    _charge: Charge,
}

impl ValueFile {
    /// Opens `dir/NNNNNN.values`: reads and checks header and footer.
    ///
    /// # Errors
    /// `Io` when the file is missing or cannot be read; `Unsupported` for a newer version or
    /// unknown required feature; `Corruption` for damage to header or footer, and for another birth
    /// id than expected.
    pub fn open(env: &Env, dir: &Path, options: ValueFileOptions) -> Result<Arc<Self>> {
        let path = dir.join(value_file_name(options.id));
        let file = TableFile::open(&env.vfs, &path, options.direct_io, &options.files)?;
        let (file, header, footer) = load(file, Some(options.birth))?;
        let chunks = chunks_of(file.bytes);
        Ok(Arc::new(Self::of_parts(&options, file, (header, footer), chunks)))
    }

    pub(super) fn of_parts(
        options: &ValueFileOptions,
        file: TableFile,
        (header, footer): (Header, Footer),
        chunks: Section,
    ) -> Self {
        let charge = Charge::new(&options.ledger, LedgerPart::TableMeta, OPEN_BYTES as u64);
        Self { id: options.id, file, header, footer, chunks, _charge: charge }
    }

    /// Number of the file.
    pub fn id(&self) -> ValueFileId {
        self.id
    }

    /// Random id of the file.
    pub fn birth(&self) -> BirthId {
        self.file.birth
    }

    /// The keyspace for which the file was written.
    pub fn keyspace(&self) -> u32 {
        self.header.keyspace
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Length of the file when it was opened.
    pub fn file_bytes(&self) -> u64 {
        self.file.bytes
    }

    /// Number of values that were written to the file, referenced or not.
    pub fn values(&self) -> u64 {
        self.footer.values
    }

    /// Length of the chunks of all values.
    pub fn stored_bytes(&self) -> u64 {
        self.footer.stored_bytes
    }

    /// Whether reads bypass the operating system's cache: requested, and supported by the file
    /// system.
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// Checks that `reference` names this file, and chunks that can lie in it. Reads nothing.
    ///
    /// # Errors
    /// `Corruption` if it does not.
    pub fn check_reference(&self, reference: ValueFileRef) -> Result<()> {
        self.locate(reference).map(|_| ())
    }

    /// Place of the value that `reference` names.
    fn locate(&self, reference: ValueFileRef) -> Result<ValueRef> {
        let ValueFileRef { file, offset, stored_bytes, value_bytes, .. } = reference;
        let place = ValueRef { offset, stored_bytes, value_bytes, chunk_bytes: self.header.chunk_bytes };
        let checked = match file == self.id {
            true => place.check(self.chunks),
            false => Err(format!("it names the value file {file}")),
        };
        checked.map_err(|detail| self.file.damaged(offset, VALUE_REFERENCE, detail))?;
        Ok(place)
    }

    /// Reads the payload that `reference` names: with one read if its stored bytes are at most
    /// those of a chunk of maximum length. `cost` counts the reads. Does not compare the
    /// fingerprint.
    ///
    /// # Errors
    /// `Io` when reading fails; `Corruption` for damage to the chunks, or a reference that cannot
    /// be of this file.
    pub fn read(&self, reference: ValueFileRef, cost: &mut Reads) -> Result<Vec<u8>> {
        let place = self.locate(reference)?;
        if place.stored_bytes as usize <= READ_BYTES {
            return self.read_briefly(place, cost, |value| Ok(value.into_owned()));
        }
        // An uncompressed value fits into the file; for a compressed one the buffer grows.
        let room = u64::from(place.value_bytes.min(place.stored_bytes));
        let mut value = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
        self.read_into(reference, cost, &mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(value)
    }

    /// Reads the payload at `place` with one read, and passes it to `look`.
    fn read_briefly<T>(
        &self,
        place: ValueRef,
        cost: &mut Reads,
        look: impl FnOnce(Cow<'_, [u8]>) -> Result<T>,
    ) -> Result<T> {
        cost.note(place.offset, place.stored_bytes.into());
        let stored_bytes = place.stored_bytes as usize;
        self.file.read_briefly(place.offset, stored_bytes, VALUE_CHUNK, |stored| {
            look(values::decode(&self.file, place, stored)?)
        })?
    }

    /// Passes the payload that `reference` names to `sink` in pieces: it is never held whole.
    ///
    /// # Errors
    /// As [`Self::read`], or the error of `sink`; `sink` then got only a part of the payload.
    pub fn read_into(
        &self,
        reference: ValueFileRef,
        cost: &mut Reads,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let place = self.locate(reference)?;
        values::read(&self.file, place, cost, &mut |piece| sink(piece?))
    }

    /// [`Self::read_into`], and compares the fingerprint with that of the entry (key, sequence
    /// number, kind) and the payload: at the end, if the payload comes in several pieces.
    ///
    /// # Errors
    /// As [`Self::read_into`]; `Corruption` if the reference belongs to another value.
    pub fn read_checked(
        &self,
        reference: ValueFileRef,
        (key, seq, kind): (&[u8], SeqNo, EntryKind),
        cost: &mut Reads,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.read_seeded(reference, fingerprint_seed(key, seq, kind), cost, sink)
    }

    /// [`Self::read_checked`] of an entry with this seed.
    pub(super) fn read_seeded(
        &self,
        reference: ValueFileRef,
        seed: u64,
        cost: &mut Reads,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let place = self.locate(reference)?;
        if place.stored_bytes as usize <= READ_BYTES {
            return self.read_briefly(place, cost, |value| {
                self.check_fingerprint(reference, fingerprint_of(seed, &value))?;
                sink(&value)
            });
        }
        let mut fingerprint = Fingerprint::new(seed);
        self.read_into(reference, cost, &mut |piece| {
            fingerprint.push(piece);
            sink(piece)
        })?;
        self.check_fingerprint(reference, fingerprint.finish())
    }

    /// Compares the fingerprint of an entry and its payload with that of its reference.
    fn check_fingerprint(&self, reference: ValueFileRef, found: u64) -> Result<()> {
        let stated = reference.fingerprint;
        if found == stated {
            return Ok(());
        }
        let detail = format!("fingerprint {found:016x} of entry and value, expected {stated:016x}");
        Err(self.file.damaged(reference.offset, VALUE_REFERENCE, detail))
    }

    /// The stored bytes from `start` to `end`, for [`Self::decode`]: for a read of several adjacent
    /// values at once.
    ///
    /// # Errors
    /// `Io` when reading fails; `Corruption` if the file ends before `end`.
    pub fn read_stored(&self, start: u64, end: u64, cost: &mut Reads) -> Result<Vec<u8>> {
        let bytes = end.saturating_sub(start);
        cost.note(start, bytes);
        self.file.read(start, bytes, VALUE_CHUNK)
    }

    /// Decodes the payload that `reference` names from `stored`, its stored bytes. Borrows from
    /// them if the payload is one uncompressed chunk. The fingerprint is not compared.
    ///
    /// # Errors
    /// `Corruption` for damage, or a reference that cannot be of this file.
    pub fn decode<'b>(&self, reference: ValueFileRef, stored: &'b [u8]) -> Result<Cow<'b, [u8]>> {
        values::decode(&self.file, self.locate(reference)?, stored)
    }
}

/// Reads header and footer of `file`, whose birth id must be `birth` if one is given.
pub(super) fn load(mut file: TableFile, birth: Option<BirthId>) -> Result<(TableFile, Header, Footer)> {
    let header = load_header(&file, birth)?;
    file.birth = header.birth;
    let footer = load_footer(&file)?;
    Ok((file, header, footer))
}

pub(super) fn load_header(file: &TableFile, birth: Option<BirthId>) -> Result<Header> {
    let bytes = file.read(0, file.bytes.min(HEADER_BYTES as u64), HEADER)?;
    let header = Header::decode(&file.path, &bytes)?;
    birth.map_or(Ok(()), |birth| check_birth(file, &header, birth))?;
    Ok(header)
}

pub(super) fn check_birth(file: &TableFile, header: &Header, expected: BirthId) -> Result<()> {
    if header.birth == expected {
        return Ok(());
    }
    let detail = format!("birth id {}, expected {expected}: the file was swapped for another", header.birth);
    Err(file.damaged(0, HEADER, detail))
}

pub(super) fn load_footer(file: &TableFile) -> Result<Footer> {
    let offset = file.bytes.saturating_sub(FOOTER_BYTES as u64);
    if file.bytes < FIXED_BYTES {
        return Err(file.damaged(offset, FOOTER, format!("the file ends after {} bytes", file.bytes)));
    }
    let bytes = file.read(offset, FOOTER_BYTES as u64, FOOTER)?;
    Footer::decode(&file.path, file.birth, offset, &bytes)
}
