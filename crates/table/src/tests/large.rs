//! Tests of large values: chunks outside the blocks, streamed in and out, checked and reported one
//! by one.

use super::*;

/// Values from 300 bytes on are stored in chunks of 200.
fn small_rig(compression: Compression) -> Rig {
    let mut rig = Rig::new(compression, 256);
    rig.options.large_values = LargeValues { from_bytes: 300, chunk_bytes: 200 };
    rig
}

/// Bytes that compress slightly.
fn some_bytes(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|at| if at % 64 < 40 { salt as u8 } else { (at * 31 / 7 + salt) as u8 }).collect()
}

/// Small and large values alternately, including versions of one key, and more large values than
/// one block refers to.
fn mixed() -> Vec<Row> {
    let mut rows = Vec::new();
    for i in 0..40usize {
        let bytes = [0, 20, 299, 300, 301, 400, 401, 1_000, 40][i % 9];
        rows.push(row(format!("key{:02}", i / 2), 50 - i as u64, some_bytes(bytes, i)));
    }
    for i in 0..30 {
        rows.push(row(format!("many{i:02}"), 1, some_bytes(300, i)));
    }
    rows[4].kind = EntryKind::Delete;
    rows[4].value.clear();
    sorted(rows)
}

#[test]
fn values_around_every_boundary_come_back_by_every_way() {
    for compression in Compression::ALL {
        let rig = Rig::new(compression, 4_096);
        let lengths = [0, 1, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 131_072, 131_073, 1 << 20];
        let rows: Vec<Row> = lengths
            .iter()
            .enumerate()
            .map(|(i, bytes)| row(format!("key{i:02}"), i as u64 + 1, some_bytes(*bytes, i)))
            .collect();
        let summary = rig.write(&rows, &[]);
        assert_eq!(summary.raw_value_bytes, lengths.iter().sum::<usize>() as u64);
        let mut content = ContentDigest::new();
        rows.iter().for_each(|row| content.add(&row.key, row.seq, row.kind, &row.value));
        assert_eq!(summary.content, content, "as if they lay in their entries");
        let table = rig.open().expect("opened");
        for row in &rows {
            let found = rig.get(&table, &row.key, SeqNo::MAX).expect("a get").expect("there");
            assert!(found.value == row.value && found.kind == EntryKind::Put);
        }
        let mut iter = table.iter(true);
        iter.seek_to_first().expect("first");
        for row in &rows {
            assert_eq!(iter.is_large(), row.value.len() >= 16_384);
            assert!(current(&iter).as_ref() == Some(row));
            iter.next().expect("next");
        }
        assert_eq!(table.verify().iter().map(Error::to_string).collect::<Vec<_>>(), [""; 0]);
        assert_eq!(table.bytes_between(b"key00", None), summary.file_bytes);
        // The blocks themselves stay small, and a cut falls between large values.
        let described = describe(&rig.env, &rig.path(), None).expect("described");
        assert!(described.blocks.iter().all(|block| block.entries == 1 || block.payload_bytes < 4_096));
        assert_eq!(described.large_values, 8);
        assert!(described.large_value_bytes > 0 && described.to_string().contains("large values      8 in "));
    }
}

#[test]
fn streamed_values_make_the_same_file_as_whole_ones() {
    for compression in Compression::ALL {
        let rig = small_rig(compression);
        let rows = mixed();
        rig.write(&rows, &[]);
        let whole = rig.bytes();
        rig.env.vfs.unlink(&rig.path()).expect("unlinked");
        for pieces in [1, 7, 200, 5_000] {
            let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
            for row in &rows {
                if row.kind != EntryKind::Put {
                    writer.add(&row.key, row.seq, row.kind, &row.value).expect("added");
                    continue;
                }
                let source = &mut |sink: &mut dyn FnMut(&[u8]) -> Result<()>| {
                    row.value.chunks(pieces).try_for_each(&mut *sink)
                };
                let bytes = row.value.len() as u64;
                let digest = writer.add_streamed(&row.key, row.seq, bytes, source).expect("added");
                let mut expected = ContentDigest::new();
                expected.add(&row.key, row.seq, row.kind, &row.value);
                assert_eq!(digest, expected);
            }
            writer.finish().expect("finished");
            assert!(rig.bytes() == whole, "{compression} in pieces of {pieces}");
            rig.env.vfs.unlink(&rig.path()).expect("unlinked");
        }
    }
}

#[test]
fn a_source_that_fails_or_gives_another_length_leaves_no_table() {
    let rig = small_rig(Compression::None);
    type Source = fn(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
    let fails: Source = |sink| {
        sink(&[1; 250])?;
        Err(Error::Invalid("the source failed".to_owned()))
    };
    let short: Source = |sink| sink(&[1; 399]);
    let long: Source = |sink| sink(&[1; 401]);
    for mut source in [fails, short, long] {
        for bytes in [400, 200] {
            let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
            writer.add(b"a", SeqNo(1), EntryKind::Put, b"1").expect("added");
            let failed = writer.add_streamed(b"b", SeqNo(1), bytes, &mut source);
            assert!(matches!(failed, Err(Error::Invalid(_))), "{failed:?}");
            if bytes == 400 {
                assert!(matches!(writer.finish(), Err(Error::Invalid(_))), "chunks that nothing refers to");
            }
            assert!(bytes == 200 || !rig.env.vfs.exists(&rig.path()).expect("asked"));
        }
    }
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    assert!(matches!(writer.add(b"b", SeqNo(1), EntryKind::ValueRef, &[0; 20]), Err(Error::Invalid(_))));
    let too_large = shamba_key::MAX_VALUE_BYTES as u64 + 1;
    let refused = writer.add_streamed(b"b", SeqNo(1), too_large, &mut |_| Ok(()));
    assert!(matches!(refused, Err(Error::Invalid(_))));
    for values in [
        LargeValues { from_bytes: 0, chunk_bytes: 100 },
        LargeValues { from_bytes: 1, chunk_bytes: 63 },
        LargeValues { from_bytes: 1, chunk_bytes: 65_537 },
    ] {
        let options = WriterOptions { large_values: values, ..rig.options };
        assert!(matches!(TableWriter::create(&rig.env, Path::new(DIR), options), Err(Error::Invalid(_))));
    }
}

#[test]
fn every_flipped_byte_is_found_and_spares_the_other_entries() {
    let rows = mixed();
    for compression in Compression::ALL {
        let rig = small_rig(compression);
        rig.write(&rows, &[]);
        let intact = rig.bytes();
        let data =
            4_096..describe(&rig.env, &rig.path(), None).expect("described").sections[0].end() as usize;
        for at in data {
            let mut bytes = intact.clone();
            bytes[at] ^= [0x01, 0x80, 0xff][at % 3];
            rig.replace(&bytes);
            let what = format!("{compression}: byte {at}");
            let table = rig.open().expect("only data is damaged");
            let damage = table.verify();
            assert_eq!(damage.len(), 1, "{what}: {damage:?}");
            let structure = match &damage[0] {
                Error::Corruption { file, offset, structure, .. } => {
                    assert!(*file == rig.path() && *offset <= at as u64, "{what}");
                    *structure
                }
                other => panic!("{what}: {other:?}"),
            };
            let mut lost = 0;
            for wanted in &rows {
                match rig.get(&table, &wanted.key, wanted.seq) {
                    Ok(found) => {
                        let found = found.expect("a key is missing without an error");
                        assert!((found.seq, &found.value[..]) == (wanted.seq, &wanted.value[..]), "{what}");
                    }
                    Err(error) => {
                        assert!(error.is_corruption(), "{what}: {error}");
                        lost += 1;
                    }
                }
            }
            match structure {
                "value chunk" => assert_eq!(lost, 1, "{what}: one value is lost, and no other entry"),
                "padding" => assert_eq!(lost, 0, "{what}"),
                _ => assert!(structure == "data block" && lost >= 1, "{what}: {structure}"),
            }
        }
    }
}

#[test]
fn no_byte_under_a_right_checksum_makes_a_reader_panic() {
    let rows = sorted(vec![
        row("a", 1, some_bytes(500, 1)),
        row("b", 2, some_bytes(300, 2)),
        row("c", 3, "short"),
        row("d", 3, some_bytes(900, 3)),
    ]);
    for compression in Compression::ALL {
        let rig = small_rig(compression);
        rig.write(&rows, &[]);
        let intact = rig.bytes();
        // Every chunk and the only block: ranges with a checksum at their end.
        let described = describe(&rig.env, &rig.path(), None).expect("described");
        let block = described.blocks[0].offset as usize;
        assert_eq!(described.blocks.len(), 1);
        let mut sealed = Vec::new();
        let mut at = 4_096;
        while at + 4 < block && intact[at..at + 4] != [0; 4] {
            let end = at + 9 + u32::from_le_bytes(intact[at..at + 4].try_into().expect("a length")) as usize;
            sealed.push(at..end);
            at = end;
        }
        assert_eq!(sealed.len(), 3 + 2 + 5);
        sealed.push(block..block + described.blocks[0].bytes as usize);
        for stretch in sealed {
            for at in stretch.start..stretch.end - 4 {
                for mask in [0x01, 0x04, 0x80, 0xff] {
                    let mut forged = intact.clone();
                    forged[at] ^= mask;
                    let covered = stretch.start..stretch.end - 4;
                    let sum = checksum(rig.options.birth, stretch.start as u64, &forged[covered]);
                    forged[stretch.end - 4..stretch.end].copy_from_slice(&sum.to_le_bytes());
                    rig.replace(&forged);
                    let Ok(table) = rig.open() else { continue };
                    for key in [&b"a"[..], b"b", b"c", b"d"] {
                        let _ = rig.get(&table, key, SeqNo::MAX);
                    }
                    let mut iter = table.iter(false);
                    let _ = iter.seek_to_first();
                    while iter.valid() {
                        let _ = try_current(&iter);
                        if iter.next().is_err() {
                            break;
                        }
                    }
                    let _ = describe(&rig.env, &rig.path(), None).map(|described| described.to_string());
                    let damage = table.verify();
                    // A change in compressed bytes may decode to the same value.
                    let same = at >= block || compression != Compression::None;
                    assert!(!damage.is_empty() || same, "{compression}: byte {at} ^ {mask:#04x}");
                }
            }
        }
    }
}

#[test]
fn damage_to_a_block_does_not_hide_damage_to_the_chunks_before_it() {
    let rig = small_rig(Compression::None);
    rig.write(&mixed(), &[]);
    let table = rig.open().expect("opened");
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let mut bytes = rig.bytes();
    // The first chunk lies directly after a block, because the blocks before it refer to none.
    let starts = described.blocks.iter().map(|block| (block.offset + block.bytes) as usize);
    let first = starts.filter(|at| bytes[*at..at + 4] == [200, 0, 0, 0]).min().expect("a chunk");
    let mut expected = vec![first as u64];
    bytes[first + 30] ^= 1;
    for block in &described.blocks {
        bytes[block.offset as usize + 9] ^= 1;
        expected.push(block.offset);
    }
    rig.damage_in_place(&bytes);
    expected.sort_unstable();
    assert_eq!(damaged_offsets(&table), expected);
}

#[test]
fn a_table_says_that_it_has_values_only_when_it_has() {
    let required = |rig: &Rig| {
        let bytes = rig.bytes();
        bytes[bytes.len() - 256 + 196]
    };
    let rig = small_rig(Compression::None);
    rig.write(&[row("k", 1, "v")], &[]);
    assert_eq!(required(&rig), 0);
    let rig = small_rig(Compression::None);
    rig.write(&[row("k", 1, [7; 300])], &[]);
    assert_eq!(required(&rig), 1);
    // A reference in a table without the feature bit is damage; an unknown bit is unsupported.
    for (bits, expected) in [(0, "value reference"), (16, "unknown required table features 0x10")] {
        let mut bytes = rig.bytes();
        let footer = bytes.len() - 256;
        bytes[footer + 196] = bits;
        let sum = checksum(rig.options.birth, footer as u64, &bytes[footer..footer + 244]);
        bytes[footer + 244..footer + 248].copy_from_slice(&sum.to_le_bytes());
        let other = small_rig(Compression::None);
        other.replace(&bytes);
        let error = other.open().and_then(|table| other.get(&table, b"k", SeqNo::MAX)).expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn the_largest_value_passes_through_little_memory() {
    let rig = Rig::new(Compression::Lz4, 4_096);
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    let piece = vec![0x5a; 65_504];
    let bytes = shamba_key::MAX_VALUE_BYTES;
    let mut left = bytes;
    let source = &mut |sink: &mut dyn FnMut(&[u8]) -> Result<()>| {
        while left > 0 {
            let taken = left.min(piece.len());
            sink(&piece[..taken])?;
            left -= taken;
        }
        Ok(())
    };
    writer.add_streamed(b"k", SeqNo(1), bytes as u64, source).expect("added");
    assert!(writer.memory_bytes() < 1 << 20, "{}", writer.memory_bytes());
    writer.finish().expect("finished");
    let table = rig.open().expect("opened");
    let mut iter = table.iter(false);
    iter.seek_to_first().expect("first");
    let (mut got, mut longest) = (0, 0);
    let done = iter.read_value(&mut |piece| {
        assert!(piece.iter().all(|byte| *byte == 0x5a));
        (got, longest) = (got + piece.len(), longest.max(piece.len()));
        Ok(())
    });
    done.expect("read");
    assert_eq!((got, iter.value_bytes_len().expect("a length")), (bytes, bytes as u64));
    assert!(longest <= 65_536);
}
