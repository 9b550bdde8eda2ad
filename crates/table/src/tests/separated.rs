//! Tests of tables whose values are in value files: written with references, read by every way,
//! refused if anything does not agree.

use super::*;
use crate::format::FEATURE_VALUE_FILES;
use shamba_key::Expiry;

/// Payloads from this length on go into value files.
const FROM_BYTES: usize = 100;

fn birth_of(id: ValueFileId) -> BirthId {
    BirthId(id.0 ^ 0xffff)
}

fn create_values(rig: &Rig, id: ValueFileId) -> ValueFileWriter {
    let (birth, compression) = (birth_of(id), rig.options.compression);
    let options = ValueFileWriterOptions { id, birth, keyspace: 0, compression, chunk_bytes: 200 };
    ValueFileWriter::create(&rig.env, Path::new(DIR), options).expect("created")
}

fn open_values(rig: &Rig, id: ValueFileId) -> Result<Arc<ValueFile>> {
    let (ledger, files, birth) = (Arc::clone(&rig.ledger), Arc::clone(&rig.files), birth_of(id));
    let options = ValueFileOptions { id, birth, ledger, files, direct_io: rig.direct_io };
    ValueFile::open(&rig.env, Path::new(DIR), options)
}

/// Adds the row, whose long value is in the file with this birth id by now.
fn refer(
    writer: &mut TableWriter,
    row: &Row,
    reference: ValueFileRef,
    birth: BirthId,
) -> Result<ContentDigest> {
    let expiry = Expiry::of(row.kind, &row.value);
    writer.add_reference(&row.key, None, (row.seq, expiry), reference, birth)
}

/// Writes a table of these rows with long values in `files` value files in turn, and keeps these
/// for readers. Returns the references, by row.
pub(super) fn write(
    rig: &mut Rig,
    rows: &[Row],
    files: u64,
) -> (TableSummary, WrittenBlocks, Vec<Option<ValueFileRef>>) {
    let mut values: Vec<ValueFileWriter> = Vec::new();
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    let mut references = Vec::new();
    let mut content = ContentDigest::new();
    for (number, row) in rows.iter().enumerate() {
        if !row.kind.is_put() || row.value.len() < FROM_BYTES {
            let added = writer.add_counted(&row.key, None, row.seq, row.kind, &row.value);
            content.merge(added.expect("added"));
            references.push(None);
            continue;
        }
        let place = number % files as usize;
        while values.len() <= place {
            values.push(create_values(rig, ValueFileId(20 + values.len() as u64)));
        }
        let added = values[place].add(&row.key, row.seq, row.kind, &row.value);
        let reference = added.expect("added");
        let birth = values[place].birth();
        content.merge(refer(&mut writer, row, reference, birth).expect("added"));
        references.push(Some(reference));
    }
    rig.values.clear();
    // In descending order: the reader sorts them.
    for file in values.into_iter().rev() {
        let id = file.id();
        let (_, written, unsynced) = file.finish_unsynced().expect("finished");
        unsynced.sync().expect("synced");
        let file = open_values(rig, id).expect("opened");
        file.check_written(&written).expect("checked");
        rig.values.push(file);
    }
    let (summary, written) = writer.finish_written().expect("finished");
    assert_eq!(summary.content, content);
    (summary, written, references)
}

/// Short and long values, with and without expiry, several versions of a key, deletes, operands.
pub(super) fn mixed() -> Vec<Row> {
    let mut rows = Vec::new();
    for i in 0..120usize {
        let bytes = [0, 20, 99, 100, 101, 200, 201, 1_000, 40][i % 9];
        let mut one = row(format!("key{:02}", i / 2), 200 - i as u64, vec![i as u8; bytes]);
        one.kind = match i % 7 {
            2 | 5 => EntryKind::PutWithExpiry,
            3 => EntryKind::Delete,
            4 if bytes < FROM_BYTES => EntryKind::Merge,
            _ => EntryKind::Put,
        };
        one.value = match one.kind {
            EntryKind::Delete => Vec::new(),
            EntryKind::Merge => Operand::single(&one.value).encode(),
            EntryKind::PutWithExpiry => Expiry(1_000 + i as u64).encode(&one.value),
            _ => one.value,
        };
        rows.push(one);
    }
    sorted(rows)
}

/// The uses that these references add up to.
fn uses_of(references: &[Option<ValueFileRef>]) -> Vec<TableValueUse> {
    let mut uses: Vec<TableValueUse> = Vec::new();
    for reference in references.iter().flatten() {
        let file = reference.file;
        if !uses.iter().any(|one| one.file == file) {
            uses.push(TableValueUse { file, birth: birth_of(file), values: 0, bytes: 0 });
        }
        let one = uses.iter_mut().find(|one| one.file == file).expect("a use");
        one.values += 1;
        one.bytes += u64::from(reference.stored_bytes);
    }
    uses.sort_by_key(|one| one.file);
    uses
}

#[test]
fn separated_values_come_back_by_every_way() {
    let rows = mixed();
    for compression in Compression::ALL {
        for (files, direct_io) in [(1, false), (3, true)] {
            let mut rig = Rig { direct_io, ..Rig::new(compression, 256) };
            let (summary, written, references) = write(&mut rig, &rows, files);
            let raw: usize = rows.iter().map(|row| row.value.len()).sum();
            assert_eq!(summary.raw_value_bytes, raw as u64);
            assert_eq!(summary.value_uses[..], uses_of(&references));
            assert_eq!(summary.value_uses.len(), files as usize);
            let table = rig.open().expect("opened");
            assert_eq!(*table.summary(), summary);
            for row in &rows {
                let found = rig.get(&table, &row.key, row.seq).expect("a get").expect("there");
                assert_eq!((found.seq, found.kind), (row.seq, row.kind));
                assert_eq!(found.value, row.value);
            }
            let mut iter = table.iter(true);
            iter.seek_to_first().expect("first");
            for (row, reference) in rows.iter().zip(&references) {
                assert_eq!(current(&iter).as_ref(), Some(row));
                let separated = iter.separated().expect("decoded");
                assert_eq!(separated.map(|(_, found)| found), *reference);
                if let Some((file, reference)) = separated {
                    assert_eq!((file.id(), file.birth()), (reference.file, birth_of(reference.file)));
                    assert!(reference.is_of(iter.key(), iter.seq(), iter.kind(), &row.value));
                    assert_eq!(Expiry::of(iter.kind(), iter.value()), Expiry::of(row.kind, &row.value));
                }
                iter.next().expect("next");
            }
            iter.seek_to_last().expect("last");
            for row in rows.iter().rev() {
                assert_eq!(current(&iter).as_ref(), Some(row));
                iter.prev().expect("prev");
            }
            table.check_written(&written).expect("checked");
            assert_eq!(table.verify().iter().map(Error::to_string).collect::<Vec<_>>(), [""; 0]);
            // Carried into another table, the entries and the content are the same.
            let carried = TableId(8);
            let options = WriterOptions { id: carried, ..rig.options };
            let mut writer = TableWriter::create(&rig.env, Path::new(DIR), options).expect("created");
            iter.seek_to_first().expect("first");
            while iter.valid() {
                let view = iter.view();
                match iter.separated().expect("decoded") {
                    Some((file, reference)) => {
                        let time = (view.seq, Expiry::of(view.kind, view.value));
                        writer.add_reference(view.key, None, time, reference, file.birth()).map(|_| ())
                    }
                    None => writer.add(view.key, view.seq, view.kind, view.value),
                }
                .expect("added");
                iter.next().expect("next");
            }
            let copy = writer.finish().expect("finished");
            assert_eq!(copy, TableSummary { id: carried, file_bytes: copy.file_bytes, ..summary });
        }
    }
}

#[test]
fn a_get_reads_a_value_of_one_chunk_with_one_read() {
    let mut rig = Rig::new(Compression::None, 4_096);
    let rows = [row("k", 1, [7; 150])];
    let (_, _, references) = write(&mut rig, &rows, 1);
    let table = rig.open().expect("opened");
    let (digest, mut cost) = (rig.options.digest.digest(b"k"), ReadCounters::default());
    let entry =
        table.get(b"k", SeqNo::MAX, digest, ValueMode::Copy, &mut cost).expect("a get").expect("there");
    assert_eq!((entry.kind, cost.value.count), (EntryKind::ValueFileRef, 0));
    assert_eq!(table.read_large(entry.kind, &entry.value, &mut cost).expect("read"), rows[0].value);
    let stored_bytes = references[0].expect("a reference").stored_bytes;
    assert_eq!((cost.value.count, cost.value.bytes), (1, stored_bytes.into()));
}

#[test]
fn a_tool_without_the_value_files_decodes_references_only() {
    let rows = mixed();
    let mut rig = Rig::new(Compression::Lz4, 256);
    let (summary, _, references) = write(&mut rig, &rows, 2);
    let values = std::mem::take(&mut rig.values);
    let table = rig.open().expect("opened");
    let mut iter = table.iter(false);
    iter.seek_to_first().expect("first");
    for (row, reference) in rows.iter().zip(&references) {
        assert_eq!(iter.value_bytes_len().expect("a length"), row.value.len() as u64);
        let read = iter.read_value(&mut |_| Ok(()));
        match reference {
            Some(reference) => {
                assert_eq!(ValueFileRef::decode(iter.kind().location(iter.value())), Ok(*reference));
                assert!(matches!(read, Err(Error::Invalid(_))), "{read:?}");
                assert!(matches!(iter.separated(), Err(Error::Invalid(_))));
            }
            None => read.expect("in the table"),
        }
        iter.next().expect("next");
    }
    assert!(table.verify().is_empty());
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    assert_eq!(described.large_values, 0);
    assert_eq!(described.summary.value_uses, summary.value_uses);
    for one in uses_of(&references) {
        let line = format!("value file        {}: {} values of {} bytes", one.file, one.values, one.bytes);
        assert!(described.to_string().contains(&line), "{line}");
    }
    // A list that is not empty has to be whole.
    rig.values = values[..1].to_vec();
    let error = rig.open().expect_err("a file is missing").to_string();
    assert!(error.contains("properties") && error.contains("is not known"), "{error}");
}

#[test]
fn value_files_of_another_birth_are_refused_and_other_files_ignored() {
    let rows = mixed();
    let mut rig = Rig::new(Compression::None, 256);
    write(&mut rig, &rows, 2);
    let other = {
        let mut writer = create_values(&rig, ValueFileId(5));
        writer.add(b"k", SeqNo(1), EntryKind::Put, b"v").expect("added");
        writer.finish_unsynced().expect("finished").2.sync().expect("synced");
        open_values(&rig, ValueFileId(5)).expect("opened")
    };
    rig.values.push(other);
    assert!(rig.open().expect("opened").verify().is_empty());
    // The same number with other bytes.
    let swapped = ValueFileId(20);
    let path = Path::new(DIR).join(value_file_name(swapped));
    rig.env.vfs.unlink(&path).expect("unlinked");
    let options = ValueFileWriterOptions {
        id: swapped,
        birth: BirthId(1),
        keyspace: 0,
        compression: Compression::None,
        chunk_bytes: 200,
    };
    let mut writer = ValueFileWriter::create(&rig.env, Path::new(DIR), options).expect("created");
    writer.add(b"k", SeqNo(1), EntryKind::Put, b"v").expect("added");
    writer.finish_unsynced().expect("finished").2.sync().expect("synced");
    let (ledger, files) = (Arc::clone(&rig.ledger), Arc::clone(&rig.files));
    let options = ValueFileOptions { id: swapped, birth: BirthId(1), ledger, files, direct_io: false };
    let file = ValueFile::open(&rig.env, Path::new(DIR), options).expect("opened");
    rig.values.retain(|file| file.id() != swapped);
    rig.values.push(file);
    let error = rig.open().expect_err("another birth id").to_string();
    assert!(error.contains("properties") && error.contains("birth id"), "{error}");
}

#[test]
fn verification_reads_every_value_and_reports_each_damaged_one() {
    let rows = mixed();
    let mut rig = Rig::new(Compression::None, 256);
    let (_, _, references) = write(&mut rig, &rows, 1);
    let table = rig.open().expect("opened");
    let path = rig.values[0].path().to_path_buf();
    let intact = shamba_env::read_file(rig.env.vfs.as_ref(), &path).expect("read");
    let damaged: Vec<ValueFileRef> = references.iter().flatten().copied().step_by(5).collect();
    let mut bytes = intact.clone();
    damaged.iter().for_each(|one| bytes[one.offset as usize + 30] ^= 1);
    let overwrite = |bytes: &[u8]| {
        let mut file = rig.env.vfs.open_append(&path).expect("opened");
        file.truncate(0).expect("emptied");
        append_all(file.as_mut(), bytes).expect("written");
    };
    overwrite(&bytes);
    let found: Vec<(std::path::PathBuf, u64)> = table
        .verify()
        .into_iter()
        .map(|error| match error {
            Error::Corruption { file, offset, .. } => (file, offset),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected: Vec<_> = damaged.iter().map(|one| (path.clone(), one.offset)).collect();
    assert_eq!(found, expected);
    // The other values can still be read.
    for (row, reference) in rows.iter().zip(&references) {
        let is_damaged = reference.is_some_and(|one| damaged.contains(&one));
        match rig.get(&table, &row.key, row.seq) {
            Ok(found) => assert!(!is_damaged && found.expect("there").value == row.value),
            Err(error) => assert!(is_damaged && error.is_corruption(), "{error}"),
        }
    }
    overwrite(&intact);
    assert!(table.verify().is_empty());
}

/// Writes a table of one put whose reference, instead of its own, is that of another value of the
/// same length.
#[test]
fn a_reference_to_another_value_of_the_same_length_is_found_by_verification() {
    let mut rig = Rig::new(Compression::None, 256);
    let rows = [row("a", 1, [1; 150]), row("b", 1, [2; 150])];
    let (_, _, references) = write(&mut rig, &rows, 1);
    let moved = ValueFileRef {
        offset: references[1].expect("a reference").offset,
        ..references[0].expect("a reference")
    };
    rig.options.id = TableId(9);
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    refer(&mut writer, &rows[0], moved, birth_of(moved.file)).expect("added");
    writer.finish().expect("finished");
    let table = rig.open().expect("opened");
    let damage = table.verify();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].to_string().contains("fingerprint"), "{}", damage[0]);
}

/// The table's bytes with another footer, or with other properties of the same length.
fn with_required(rig: &Rig, required: u64) -> Vec<u8> {
    let mut bytes = rig.bytes();
    let footer = bytes.len() - 256;
    bytes[footer + 196..footer + 204].copy_from_slice(&required.to_le_bytes());
    let sum = checksum(rig.options.birth, footer as u64, &bytes[footer..footer + 244]);
    bytes[footer + 244..footer + 248].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn the_feature_bit_the_property_and_the_entries_must_agree() {
    let mut rig = Rig::new(Compression::None, 256);
    write(&mut rig, &[row("a", 1, [1; 150])], 1);
    let required = rig.bytes()[rig.bytes().len() - 256 + 196];
    assert_eq!(u64::from(required), FEATURE_VALUE_FILES);
    // The property without the bit: a build that does not know references would open the table.
    rig.replace(&with_required(&rig, 0));
    let error = rig.open().expect_err("refused").to_string();
    assert!(error.contains("properties") && error.contains("value_files"), "{error}");
    // The bit without the property.
    let mut plain = Rig::new(Compression::None, 256);
    plain.write(&[row("a", 1, [1; 150])], &[]);
    plain.replace(&with_required(&plain, FEATURE_VALUE_FILES));
    assert!(plain.open().expect_err("refused").to_string().contains("value_files"));
    // An entry with a reference in a table that states none.
    plain.options.id = TableId(8);
    let kind = EntryKind::ValueFileRef;
    let reference = ValueFileRef {
        file: ValueFileId(20),
        offset: 64,
        stored_bytes: 159,
        value_bytes: 150,
        fingerprint: 1,
    };
    let entries = [("k", kind, &reference.encode()[..]), ("l", EntryKind::Put, b"v")];
    plain.write_any(&entries);
    let table = plain.open().expect("opened");
    let is_refused = |error: &Error| error.is_corruption() && error.to_string().contains("states none");
    let error = plain.get(&table, b"k", SeqNo::MAX).expect_err("refused");
    assert!(is_refused(&error), "{error}");
    assert!(plain.get(&table, b"l", SeqNo::MAX).expect("a get").is_some());
    let mut iter = table.iter(false);
    iter.seek_to_first().expect("first");
    assert!(iter.separated().is_err_and(|error| is_refused(&error)));
    assert!(iter.value_bytes_len().is_err_and(|error| is_refused(&error)));
    let damage = table.verify();
    assert!(damage.len() == 1 && is_refused(&damage[0]), "{damage:?}");
    assert!(table.check_written(&WrittenBlocks::default()).is_ok(), "no sample has the entry");
}

#[test]
fn what_is_no_reference_is_refused_by_the_writer() {
    let rig = Rig::new(Compression::None, 256);
    let good = ValueFileRef {
        file: ValueFileId(20),
        offset: 64,
        stored_bytes: 109,
        value_bytes: 100,
        fingerprint: 1,
    };
    let birth = BirthId(1);
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    let mut add = |key: &[u8], seq, reference, birth| {
        writer.add_reference(key, None, (SeqNo(seq), None), reference, birth).map(|_| ())
    };
    add(b"b", 5, good, birth).expect("added");
    add(b"b", 4, good, birth).expect("added");
    let is_invalid = |result: Result<()>| matches!(result, Err(Error::Invalid(_)));
    for bad in [
        ValueFileRef { offset: 63, ..good },
        ValueFileRef { value_bytes: 0, ..good },
        ValueFileRef { stored_bytes: 9, ..good },
    ] {
        assert!(is_invalid(add(b"c", 1, bad, birth)), "{bad:?}");
    }
    assert!(is_invalid(add(b"c", 1, good, BirthId(2))), "another birth id than before");
    assert!(is_invalid(add(b"b", 4, good, birth)), "the same entry");
    assert!(is_invalid(add(b"a", 9, good, birth)), "out of order");
    assert!(is_invalid(add(b"c", u64::MAX, good, birth)), "no sequence number");
    add(b"c", 1, good, birth).expect("added");
    assert!(is_invalid(writer.add(b"d", SeqNo(1), EntryKind::ValueFileRef, &good.encode())));
    let summary = writer.finish().expect("finished");
    assert_eq!(summary.entries, 3);
    let one = TableValueUse { file: good.file, birth, values: 3, bytes: 3 * 109 };
    assert_eq!(summary.value_uses[..], [one]);
}

#[test]
fn every_flipped_byte_of_the_table_is_found() {
    let rows = mixed();
    for compression in [Compression::None, Compression::Lz4] {
        let mut rig = Rig::new(compression, 256);
        write(&mut rig, &rows[..20], 2);
        let intact = rig.bytes();
        for at in (0..intact.len()).filter(|at| *at < 100 || *at >= 4_000) {
            let mut bytes = intact.clone();
            bytes[at] ^= [0x01, 0x80, 0xff][at % 3];
            rig.replace(&bytes);
            let what = format!("{compression}: byte {at}");
            let Ok(table) = rig.open() else { continue };
            // Damage to a filter may make it a warning only.
            assert!(!table.verify().is_empty(), "{what}");
            for wanted in &rows[..20] {
                match rig.get(&table, &wanted.key, wanted.seq) {
                    Ok(found) => {
                        let found = found.expect("a key is missing without an error");
                        assert!((found.seq, &found.value[..]) == (wanted.seq, &wanted.value[..]), "{what}");
                    }
                    Err(error) => assert!(error.is_corruption(), "{what}: {error}"),
                }
            }
        }
    }
}

#[test]
fn salvage_returns_references_and_the_files_that_they_name() {
    let rows = mixed();
    let mut rig = Rig::new(Compression::None, 256);
    let (summary, _, references) = write(&mut rig, &rows, 2);
    let table = Arc::new(Salvage::open(&rig.env, &rig.path(), &rig.files, None).expect("opened"));
    assert_eq!(*table.value_uses(), summary.value_uses[..]);
    let mut walk = table.walk();
    for (row, reference) in rows.iter().zip(&references) {
        let entry = walk.next_entry().expect("read").expect("an entry");
        assert_eq!((&entry.key, entry.seq, entry.kind.whole()), (&row.key, row.seq, row.kind));
        match reference {
            Some(reference) => {
                assert_eq!(ValueFileRef::decode(entry.kind.location(&entry.value)), Ok(*reference));
            }
            None => assert_eq!(entry.value, row.value),
        }
    }
    assert_eq!(walk.next_entry().expect("read"), None);
    assert!(walk.take_gaps().is_empty());
    assert_eq!(survey_damage(&rig.env, &rig.path(), &rig.files, None).expect("surveyed").0.len(), 0);
    // A block with something else in place of a reference is damaged as a whole.
    let mut forged = Rig::new(Compression::None, 256);
    forged.options.id = TableId(8);
    forged.write_any(&[("k", EntryKind::ValueFileRefWithExpiry, &[0; 7]), ("l", EntryKind::Put, b"v")]);
    let (damage, entries) =
        survey_damage(&forged.env, &forged.path(), &forged.files, None).expect("surveyed");
    assert_eq!((damage.len(), entries), (1, 0), "{damage:?}");
}

impl Rig {
    /// Writes a table with these entries at sequence number 1, whatever their kinds, as only a
    /// defective writer would: those of other kinds than puts are forged in the bytes.
    fn write_any(&self, entries: &[(&str, EntryKind, &[u8])]) {
        // Tables of uncompressed blocks: the payload of the only block is built anew.
        // A delete in place of each forged entry, so that there is a kind for each entry, too.
        let base = |kind| if kind == EntryKind::Put { kind } else { EntryKind::Delete };
        let rows: Vec<Row> = entries
            .iter()
            .map(|(key, kind, value)| Row { kind: base(*kind), ..row(key, 1, value) })
            .collect();
        self.write(&rows, &[]);
        let mut bytes = self.bytes();
        let described = describe(&self.env, &self.path(), None).expect("described");
        let [block] = &described.blocks[..] else { panic!("one block") };
        let mut builder = crate::block::DataBlockBuilder::new(true);
        for (key, kind, value) in entries {
            let tag = self.options.digest.digest(key.as_bytes()).block_tag();
            let new = crate::block::NewEntry {
                key: key.as_bytes(),
                shared_bytes: 0,
                seq: SeqNo(1),
                kind: *kind,
                value,
                tag,
            };
            assert!(builder.push(&new, 4_096));
        }
        let mut payload = Vec::new();
        builder.finish_into(&mut payload);
        let mut frame = Vec::new();
        crate::block::frame::seal(&mut frame, self.options.birth, block.offset, &payload, Compression::None);
        let (from, to) = (block.offset as usize, (block.offset + block.bytes) as usize);
        assert_eq!(frame.len(), to - from, "the kinds need as many bytes as before");
        bytes[from..to].copy_from_slice(&frame);
        self.replace(&bytes);
    }
}
