//! Tests of value files: values come back by every way, and what is no value is refused.

mod damage;
mod faults;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::{Env, MemFs, append_all, read_file};
use shamba_key::Expiry;

use super::format::{FIXED_BYTES, FOOTER_BYTES};
use super::*;
use crate::compression::Compression;
use crate::counters::Reads;
use crate::id::{BirthId, value_file_name};
use crate::{Error, Ledger, OpenFiles, Result};

const DIR: &str = "/db";
const ID: ValueFileId = ValueFileId(31);
const BIRTH: BirthId = BirthId(0x0123_4567_89ab_cdef);

/// A directory, and the options of one value file.
struct Rig {
    env: Env,
    options: ValueFileWriterOptions,
    ledger: Arc<Ledger>,
    files: Arc<OpenFiles>,
    direct_io: bool,
}

impl Rig {
    fn new(compression: Compression, chunk_bytes: usize) -> Self {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        env.vfs.create_dir_all(Path::new(DIR)).expect("a directory");
        let options = ValueFileWriterOptions { id: ID, birth: BIRTH, keyspace: 3, compression, chunk_bytes };
        let (ledger, files) = (Arc::new(Ledger::new()), Arc::new(OpenFiles::new(10)));
        Self { env, options, ledger, files, direct_io: false }
    }

    fn writer(&self) -> ValueFileWriter {
        ValueFileWriter::create(&self.env, Path::new(DIR), self.options).expect("created")
    }

    /// Writes a file of these entries; returns their references.
    fn write(&self, entries: &[Entry]) -> (Vec<ValueFileRef>, WrittenValues) {
        let mut writer = self.writer();
        let add = |entry: &Entry| writer.add(&entry.key, entry.seq, entry.kind, &entry.payload);
        let references: Vec<_> = entries.iter().map(add).map(|added| added.expect("added")).collect();
        assert!(writer.memory_bytes() <= VALUE_WRITER_BYTES, "{}", writer.memory_bytes());
        let (bytes, values) = (writer.bytes(), writer.values());
        let (summary, written, unsynced) = writer.finish_unsynced().expect("finished");
        unsynced.sync().expect("synced");
        assert_eq!((summary.id, summary.birth), (ID, self.options.birth));
        assert_eq!((summary.values, summary.stored_bytes), (entries.len() as u64, bytes));
        assert_eq!((summary.values, summary.file_bytes), (values, bytes + FIXED_BYTES));
        let payload_bytes = entries.iter().map(|entry| entry.payload.len() as u64).sum();
        assert_eq!(summary.payload_bytes, payload_bytes);
        assert_eq!(self.bytes().len() as u64, summary.file_bytes);
        (references, written)
    }

    fn open(&self) -> Result<Arc<ValueFile>> {
        ValueFile::open(&self.env, Path::new(DIR), self.options_of(BIRTH))
    }

    fn options_of(&self, birth: BirthId) -> ValueFileOptions {
        let (ledger, files, direct_io) = (Arc::clone(&self.ledger), Arc::clone(&self.files), self.direct_io);
        ValueFileOptions { id: ID, birth, ledger, files, direct_io }
    }

    fn path(&self) -> std::path::PathBuf {
        Path::new(DIR).join(value_file_name(ID))
    }

    fn bytes(&self) -> Vec<u8> {
        read_file(self.env.vfs.as_ref(), &self.path()).expect("read")
    }

    /// Replaces the file by a new one with other bytes.
    fn replace(&self, bytes: &[u8]) {
        if self.env.vfs.exists(&self.path()).expect("asked") {
            self.env.vfs.unlink(&self.path()).expect("unlinked");
        }
        let mut file = self.env.vfs.create(&self.path()).expect("created");
        append_all(file.as_mut(), bytes).expect("written");
    }

    /// Overwrites the bytes of the file, so that open readers see the change.
    fn damage_in_place(&self, bytes: &[u8]) {
        let mut file = self.env.vfs.open_append(&self.path()).expect("opened");
        file.truncate(0).expect("emptied");
        append_all(file.as_mut(), bytes).expect("written");
    }
}

/// One entry whose payload is in the file.
struct Entry {
    key: Vec<u8>,
    seq: SeqNo,
    kind: EntryKind,
    payload: Vec<u8>,
}

fn entry(number: usize, payload: Vec<u8>) -> Entry {
    let kind = if number % 3 == 1 && payload.len() > 8 { EntryKind::PutWithExpiry } else { EntryKind::Put };
    Entry { key: format!("key{number:05}").into_bytes(), seq: SeqNo(number as u64 + 7), kind, payload }
}

/// Entries of these lengths.
fn entries(lengths: &[usize]) -> Vec<Entry> {
    lengths.iter().enumerate().map(|(number, bytes)| entry(number, some_bytes(*bytes, number))).collect()
}

/// Bytes that compress slightly.
fn some_bytes(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|at| if at % 64 < 40 { salt as u8 } else { (at * 31 / 7 + salt) as u8 }).collect()
}

/// The value by each way of reading it; all must agree, also about an error.
fn read(file: &ValueFile, reference: ValueFileRef) -> Result<Vec<u8>> {
    let mut cost = Reads::default();
    let whole = file.read(reference, &mut cost);
    if whole.is_ok() && reference.stored_bytes as usize <= crate::values::READ_BYTES {
        assert_eq!((cost.count, cost.bytes), (1, reference.stored_bytes.into()));
    }
    let mut pieces = Vec::new();
    let streamed = file.read_into(reference, &mut Reads::default(), &mut |piece| {
        assert!(piece.len() <= file.header.chunk_bytes as usize);
        pieces.extend_from_slice(piece);
        Ok(())
    });
    let decoded = file.read_stored(reference.offset, reference.end(), &mut Reads::default());
    let decoded = decoded.and_then(|stored| {
        let stored = Bytes::from(stored);
        Ok(match file.decode(reference, &stored)? {
            // A part of the buffer.
            std::borrow::Cow::Borrowed(part) => stored.slice_ref(part).to_vec(),
            std::borrow::Cow::Owned(value) => value,
        })
    });
    match (whole, streamed, decoded) {
        (Ok(whole), Ok(()), Ok(decoded)) => {
            assert!(whole == pieces && whole == decoded);
            Ok(whole)
        }
        (Err(whole), Err(streamed), Err(_)) => {
            assert_eq!(whole.is_corruption(), streamed.is_corruption());
            Err(whole)
        }
        differing => panic!("{differing:?}"),
    }
}

/// Reads the value of an entry and compares its fingerprint.
fn read_checked(file: &ValueFile, reference: ValueFileRef, entry: &Entry) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let of = (&entry.key[..], entry.seq, entry.kind);
    file.read_checked(reference, of, &mut Reads::default(), &mut |piece| {
        value.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(value)
}

fn assert_corrupt<T: std::fmt::Debug>(rig: &Rig, result: Result<T>, what: &str) -> (u64, &'static str) {
    match result {
        Err(Error::Corruption { file, offset, structure, .. }) => {
            assert_eq!(file, rig.path(), "{what}");
            (offset, structure)
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_reference_round_trips_and_what_cannot_be_is_refused() {
    let good = ValueFileRef {
        file: ValueFileId(u64::MAX),
        offset: 64,
        stored_bytes: 70_018,
        value_bytes: 70_000,
        fingerprint: 0x0123_4567_89ab_cdef,
    };
    assert_eq!(ValueFileRef::decode(&good.encode()), Ok(good));
    for edge in [
        ValueFileRef { offset: u64::MAX - 70_018, ..good },
        ValueFileRef { stored_bytes: 19, ..good },
        ValueFileRef { stored_bytes: 70_000 + 9 * 1_094, ..good },
        ValueFileRef { value_bytes: 1, stored_bytes: 10, ..good },
        ValueFileRef { value_bytes: 256 << 20, stored_bytes: (256 << 20) + 9 * 4_096, ..good },
    ] {
        assert_eq!(ValueFileRef::decode(&edge.encode()), Ok(edge));
    }
    for bad in [
        ValueFileRef { offset: 63, ..good },
        ValueFileRef { offset: u64::MAX - 70_017, ..good },
        ValueFileRef { stored_bytes: 0, ..good },
        ValueFileRef { stored_bytes: 18, ..good },
        ValueFileRef { stored_bytes: 70_001 + 9 * 1_094, ..good },
        ValueFileRef { value_bytes: 0, ..good },
        ValueFileRef { value_bytes: 1, stored_bytes: 11, ..good },
        ValueFileRef { value_bytes: (256 << 20) + 1, stored_bytes: 1 << 20, ..good },
    ] {
        assert!(ValueFileRef::decode(&bad.encode()).is_err(), "{bad:?}");
    }
    let bytes = [good.encode().to_vec(), vec![0]].concat();
    for length in [0, 1, 20, 31, 33] {
        assert!(ValueFileRef::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn the_content_of_a_reference_does_not_depend_on_its_place() {
    let rig = Rig::new(Compression::None, 65_536);
    let (references, _) = rig.write(&entries(&[100, 100]));
    let [first, second] = references[..] else { panic!("two references") };
    let kind = EntryKind::ValueFileRef;
    let of = |reference: ValueFileRef| reference.content(b"k", SeqNo(1), kind);
    assert_ne!(of(first), of(second));
    let moved = ValueFileRef { file: ValueFileId(99), offset: 4_000, stored_bytes: 50, ..first };
    assert_eq!(of(first), of(moved));
    for other in [
        ValueFileRef { value_bytes: 101, ..first },
        ValueFileRef { fingerprint: first.fingerprint ^ 1, ..first },
    ] {
        assert_ne!(of(first), of(other));
    }
    assert_ne!(of(first), first.content(b"k", SeqNo(1), EntryKind::ValueFileRefWithExpiry));
}

#[test]
fn values_of_every_length_come_back_by_every_way() {
    for compression in Compression::ALL {
        for (chunk_bytes, lengths) in [
            (64, &[1, 2, 63, 64, 65, 127, 128, 129, 1_000, 70_000][..]),
            (65_536, &[1, 9, 4_096, 65_535, 65_536, 65_537, 131_072, 131_073, 1 << 20]),
        ] {
            for direct_io in [false, true] {
                let rig = Rig { direct_io, ..Rig::new(compression, chunk_bytes) };
                let entries = entries(lengths);
                let (references, written) = rig.write(&entries);
                let file = rig.open().expect("opened");
                assert_eq!((file.id(), file.birth(), file.keyspace()), (ID, BIRTH, 3));
                assert_eq!((file.values(), file.path()), (entries.len() as u64, &*rig.path()));
                assert_eq!(file.file_bytes(), file.stored_bytes() + FIXED_BYTES);
                for (reference, entry) in references.iter().zip(&entries) {
                    let what = format!("{compression}, chunks of {chunk_bytes}: {reference:?}");
                    assert!(read(&file, *reference).expect("read") == entry.payload, "{what}");
                    assert!(read_checked(&file, *reference, entry).expect("read") == entry.payload, "{what}");
                    assert!(reference.is_of(&entry.key, entry.seq, entry.kind, &entry.payload), "{what}");
                    let separated = entry.kind.separated();
                    assert!(reference.is_of(&entry.key, entry.seq, separated, &entry.payload), "{what}");
                    assert_eq!(ValueFileRef::decode(&reference.encode()), Ok(*reference), "{what}");
                }
                assert!(references.windows(2).all(|pair| pair[0].end() == pair[1].offset));
                assert_eq!(file.verify().iter().map(Error::to_string).collect::<Vec<_>>(), [""; 0]);
                file.check_written(&written).expect("checked");
                let described = describe_value_file(&rig.env, &rig.path(), None).expect("described");
                assert_eq!(described.values, file.values());
                let pieces: u64 = described.chunks.iter().map(|chunk| chunk.piece_bytes).sum();
                assert_eq!(pieces, described.payload_bytes);
            }
        }
    }
}

#[test]
fn an_entry_and_its_value_are_bound_by_every_field() {
    let rig = Rig::new(Compression::Lz4, 65_536);
    let (references, _) = rig.write(&[entry(0, vec![7; 100])]);
    let (reference, payload) = (references[0], [7; 100]);
    let seq = SeqNo(7);
    assert!(reference.is_of(b"key00000", seq, EntryKind::Put, &payload));
    assert!(reference.is_of(b"key00000", seq, EntryKind::ValueRef, &payload));
    assert!(!reference.is_of(b"key00001", seq, EntryKind::Put, &payload));
    assert!(!reference.is_of(b"key00000", SeqNo(8), EntryKind::Put, &payload));
    assert!(!reference.is_of(b"key00000", seq, EntryKind::PutWithExpiry, &payload));
    assert!(!reference.is_of(b"key00000", seq, EntryKind::Put, &payload[1..]));
    assert!(!reference.is_of(b"key00000", seq, EntryKind::Put, &[8; 100]));
}

#[test]
fn streamed_values_make_the_same_file_as_whole_ones() {
    for compression in Compression::ALL {
        let rig = Rig::new(compression, 200);
        let entries = entries(&[1, 199, 200, 201, 399, 400, 401, 5_000]);
        let (references, _) = rig.write(&entries);
        let whole = rig.bytes();
        for pieces in [1, 7, 200, 5_000] {
            rig.env.vfs.unlink(&rig.path()).expect("unlinked");
            let mut writer = rig.writer();
            for (entry, expected) in entries.iter().zip(&references) {
                let source = &mut |sink: &mut dyn FnMut(&[u8]) -> Result<()>| {
                    entry.payload.chunks(pieces).try_for_each(&mut *sink)
                };
                let bytes = entry.payload.len() as u64;
                // The kind of the entry with a reference is as good.
                let kind = entry.kind.separated();
                let reference = writer.add_streamed(&entry.key, entry.seq, kind, bytes, source);
                assert_eq!(reference.expect("added"), *expected);
            }
            writer.finish_unsynced().expect("finished").2.sync().expect("synced");
            assert!(rig.bytes() == whole, "{compression} in pieces of {pieces}");
        }
    }
}

#[test]
fn what_is_no_value_is_refused_and_an_unfinished_file_is_removed() {
    let rig = Rig::new(Compression::None, 64);
    let exists = || rig.env.vfs.exists(&rig.path()).expect("asked");
    let is_invalid = |result: Result<ValueFileRef>| matches!(result, Err(Error::Invalid(_)));
    let mut writer = rig.writer();
    for kind in [EntryKind::Delete, EntryKind::Merge, EntryKind::RangeDelete] {
        assert!(is_invalid(writer.add(b"k", SeqNo(1), kind, b"v")), "{kind:?}");
    }
    assert!(is_invalid(writer.add(b"k", SeqNo(1), EntryKind::Put, b"")));
    let too_long = MAX_VALUE_BYTES as u64 + 1;
    assert!(is_invalid(writer.add_streamed(b"k", SeqNo(1), EntryKind::Put, too_long, &mut |_| Ok(()))));
    assert!(exists());
    assert!(matches!(writer.finish_unsynced(), Err(Error::Invalid(_))), "a file without values");
    assert!(!exists());

    type Source = fn(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
    let fails: Source = |sink| {
        sink(&[1; 250])?;
        Err(Error::Invalid("the source failed".to_owned()))
    };
    let short: Source = |sink| sink(&[1; 399]);
    let long: Source = |sink| sink(&[1; 401]);
    for mut source in [fails, short, long] {
        let mut writer = rig.writer();
        writer.add(b"a", SeqNo(1), EntryKind::Put, b"1").expect("added");
        assert!(is_invalid(writer.add_streamed(b"b", SeqNo(1), EntryKind::Put, 400, &mut source)));
        assert!(is_invalid(writer.add(b"c", SeqNo(1), EntryKind::Put, b"1")), "part of a value");
        assert!(matches!(writer.finish_unsynced(), Err(Error::Invalid(_))), "part of a value");
        assert!(!exists());
    }
    rig.writer().abandon();
    assert!(!exists());
    let mut writer = rig.writer();
    writer.add(b"a", SeqNo(1), EntryKind::Put, b"1").expect("added");
    drop(writer.finish_unsynced().expect("finished"));
    assert!(!exists(), "it was not synced");
    for chunk_bytes in [0, 63, 65_537] {
        let options = ValueFileWriterOptions { chunk_bytes, ..rig.options };
        let refused = ValueFileWriter::create(&rig.env, Path::new(DIR), options);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{chunk_bytes}");
    }
    rig.write(&[entry(0, vec![1])]);
    let taken = ValueFileWriter::create(&rig.env, Path::new(DIR), rig.options);
    assert!(matches!(taken, Err(Error::Io { .. })));
    assert!(exists(), "a writer that was not created removes nothing");
}

#[test]
fn a_large_file_has_a_bounded_number_of_samples_from_all_of_it() {
    let rig = Rig::new(Compression::None, 64);
    let count = 5_000;
    let mut writer = rig.writer();
    for number in 0..count {
        let added = entry(number, vec![number as u8; 3]);
        writer.add(&added.key, added.seq, added.kind, &added.payload).expect("added");
        assert!(writer.memory_bytes() <= VALUE_WRITER_BYTES);
    }
    let (_, written, unsynced) = writer.finish_unsynced().expect("finished");
    unsynced.sync().expect("synced");
    let file = rig.open().expect("opened");
    file.check_written(&written).expect("checked");
    // Each of the sixteenths of the file has some.
    let part_bytes = file.file_bytes() / 16;
    let parts: std::collections::BTreeSet<u64> =
        written.offsets().map(|offset| offset / part_bytes).collect();
    assert_eq!(parts.len(), 16);
    assert!((512..=1_024).contains(&written.offsets().count()), "{}", written.offsets().count());
}

#[test]
fn the_largest_value_passes_through_little_memory() {
    let rig = Rig::new(Compression::Lz4, 65_536);
    let mut writer = rig.writer();
    let piece = vec![0x5a; 65_504];
    let mut left = MAX_VALUE_BYTES;
    let source = &mut |sink: &mut dyn FnMut(&[u8]) -> Result<()>| {
        while left > 0 {
            let taken = left.min(piece.len());
            sink(&piece[..taken])?;
            left -= taken;
        }
        Ok(())
    };
    let reference =
        writer.add_streamed(b"k", SeqNo(1), EntryKind::Put, MAX_VALUE_BYTES as u64, source).expect("added");
    assert!(writer.memory_bytes() <= VALUE_WRITER_BYTES, "{}", writer.memory_bytes());
    writer.finish_unsynced().expect("finished").2.sync().expect("synced");
    let file = rig.open().expect("opened");
    let mut got = 0;
    let done = file.read_into(reference, &mut Reads::default(), &mut |piece| {
        assert!(piece.len() <= 65_536 && piece.iter().all(|byte| *byte == 0x5a));
        got += piece.len();
        Ok(())
    });
    done.expect("read");
    assert_eq!(got, MAX_VALUE_BYTES);
}

#[test]
fn an_expiry_is_part_of_the_stored_payload() {
    let rig = Rig::new(Compression::None, 65_536);
    let mut payload = Expiry(1_704_067_260_000).0.to_le_bytes().to_vec();
    payload.extend_from_slice(b"asha");
    let stored = Entry { key: b"sid".to_vec(), seq: SeqNo(4), kind: EntryKind::PutWithExpiry, payload };
    let (references, _) = rig.write(std::slice::from_ref(&stored));
    let file = rig.open().expect("opened");
    assert_eq!(references[0].value_bytes, 12);
    assert_eq!(read_checked(&file, references[0], &stored).expect("read"), stored.payload);
    let other = Entry { kind: EntryKind::Put, ..stored };
    assert_corrupt(&rig, read_checked(&file, references[0], &other), "another kind");
}
