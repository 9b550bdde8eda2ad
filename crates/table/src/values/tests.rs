//! Tests of chunks: values are read back for all sizes, and damage is located.

use std::path::Path;
use std::sync::Arc;

use shamba_env::{Env, MemFs, append_all};

use super::*;
use crate::compression::{Compression, Compressor};
use crate::counters::Reads;
use crate::file::TableFile;
use crate::format::SectionKind;
use crate::id::BirthId;
use crate::{Error, Result};

const DATA: Section = Section { kind: SectionKind::Data, offset: 4_096, bytes: 100_000 };
const BIRTH: BirthId = BirthId(77);
/// Offset of the chunks in the tests: not 0, because the checksum is salted with the offset.
const AT: u64 = 10;

#[test]
fn a_reference_round_trips_and_what_cannot_be_is_refused() {
    let good = ValueRef { offset: 5_000, stored_bytes: 70_018, value_bytes: 70_000, chunk_bytes: 65_536 };
    assert_eq!(ValueRef::decode(&good.encode(), DATA), Ok(good));
    let whole = ValueRef { offset: 4_096, stored_bytes: 100_000, value_bytes: 99_982, chunk_bytes: 65_536 };
    assert_eq!(ValueRef::decode(&whole.encode(), DATA), Ok(whole));
    for bad in [
        ValueRef { offset: 4_095, ..good },
        ValueRef { offset: 4_096 + 100_000 - 70_017, ..good },
        ValueRef { offset: u64::MAX, ..good },
        ValueRef { stored_bytes: 70_019, ..good },
        ValueRef { stored_bytes: 18, ..good },
        ValueRef { stored_bytes: 0, ..good },
        ValueRef { value_bytes: 0, ..good },
        ValueRef { value_bytes: (256 << 20) + 1, stored_bytes: 60_000, ..good },
        ValueRef { chunk_bytes: 0, ..good },
        ValueRef { chunk_bytes: 63, ..good },
        ValueRef { chunk_bytes: 65_537, ..good },
    ] {
        assert!(ValueRef::decode(&bad.encode(), DATA).is_err(), "{bad:?}");
    }
    for bytes in [&good.encode()[..19], b"", &[7; 21]] {
        assert!(ValueRef::decode(bytes, DATA).is_err());
    }
    // Without a data section no reference is valid.
    assert!(ValueRef::decode(&good.encode(), Section { offset: 0, bytes: 0, ..DATA }).is_err());
}

fn some_bytes(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| if at % 512 < 300 { 7 } else { (at * 31 / 7) as u8 }).collect()
}

/// The chunks of `value` as they lie at [`AT`], and their reference.
fn chunks_of(
    value: &[u8],
    chunk_bytes: usize,
    compression: Compression,
    pieces: usize,
) -> (Vec<u8>, ValueRef) {
    let mut compressor = Compressor::new(compression).expect("a codec");
    let mut cutter = ChunkCutter::new(LargeValues { from_bytes: 1, chunk_bytes });
    let mut out = Vec::new();
    let mut write = |piece: &[u8]| {
        let (stored, used) = compressor.compress(piece).expect("compressed");
        let offset = AT + out.len() as u64;
        seal(&mut out, BIRTH, offset, stored, used);
        Ok(())
    };
    value.chunks(pieces).for_each(|piece| cutter.push(piece, &mut write).expect("taken"));
    cutter.end(&mut write).expect("ended");
    let (stored_bytes, value_bytes) = (out.len() as u32, value.len() as u32);
    (out, ValueRef { offset: AT, stored_bytes, value_bytes, chunk_bytes: chunk_bytes as u32 })
}

/// A file with these bytes at [`AT`], and zeros after them.
fn file_of(chunks: &[u8]) -> TableFile {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let path = Path::new("/values");
    let mut file = env.vfs.create(path).expect("created");
    append_all(file.as_mut(), &[&[0xaa; AT as usize], chunks, &[0; 50]].concat()).expect("written");
    TableFile::for_tests(&env, path, BIRTH)
}

/// The value and the offsets of all damage.
fn read_all(file: &TableFile, reference: ValueRef) -> (Vec<u8>, Vec<u64>) {
    let (mut value, mut damage) = (Vec::new(), Vec::new());
    let done = read(file, reference, &mut Reads::default(), &mut |piece| {
        match piece {
            Ok(piece) => value.extend_from_slice(piece),
            Err(error) => damage.push(place(&error)),
        }
        Ok(())
    });
    done.expect("read");
    (value, damage)
}

fn place(error: &Error) -> u64 {
    match error {
        Error::Corruption { offset, structure: VALUE_CHUNK, .. } => *offset,
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_of_every_length_come_back_whatever_pieces_they_came_in() {
    let value = some_bytes(200_000);
    for compression in Compression::ALL {
        for (chunk_bytes, lengths) in [
            (64, &[1, 63, 64, 65, 127, 128, 129, 1_000, 70_000][..]),
            (65_536, &[1, 16_384, 65_535, 65_536, 65_537, 131_072, 131_073, 200_000]),
        ] {
            for &length in lengths {
                for pieces in [1.max(length / 300), 64, 65_504, 200_000] {
                    let (chunks, reference) = chunks_of(&value[..length], chunk_bytes, compression, pieces);
                    let file = file_of(&chunks);
                    let what = format!("{compression}: {length} in chunks of {chunk_bytes}");
                    let (found, damage) = read_all(&file, reference);
                    assert!(found == value[..length] && damage.is_empty(), "{what}: {damage:?}");
                    let mut damage = Vec::new();
                    let end = walk(&file, AT, file.bytes, &mut damage).expect("walked");
                    assert_eq!((end, damage.len()), (Some(AT + chunks.len() as u64), 0), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_damaged_chunk_is_named_and_those_around_it_are_still_read() {
    let value = some_bytes(1_000);
    for compression in Compression::ALL {
        let (chunks, reference) = chunks_of(&value, 200, compression, 1_000);
        let mut starts = Vec::new();
        let mut at = 0;
        while at < chunks.len() {
            starts.push(AT + at as u64);
            at += 9 + u32::from_le_bytes(chunks[at..at + 4].try_into().expect("a length")) as usize;
        }
        assert_eq!(starts.len(), 5, "{compression}");
        for at in 0..chunks.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut bytes = chunks.clone();
                bytes[at] ^= mask;
                let file = file_of(&bytes);
                let struck = starts.iter().rposition(|start| *start <= AT + at as u64).expect("a chunk");
                let what = format!("{compression}: byte {at} ^ {mask:#04x}");
                let (found, damage) = read_all(&file, reference);
                assert_eq!(damage, [starts[struck]], "{what}");
                let in_length = at + AT as usize - (starts[struck] as usize) < 4;
                let expected = if in_length { struck * 200 } else { 800 };
                assert_eq!(found.len(), expected, "{what}");
                assert_eq!(found[..struck * 200], value[..struck * 200], "{what}");
                let mut damage = Vec::new();
                walk(&file, AT, AT + chunks.len() as u64, &mut damage).expect("walked");
                let all_zero = bytes[at..].starts_with(&[0; 4]);
                assert!(all_zero || damage.iter().map(place).eq([starts[struck]]), "{what}: {damage:?}");
            }
        }
    }
}

#[test]
fn a_sink_that_fails_ends_the_reading() {
    let (chunks, reference) = chunks_of(&some_bytes(1_000), 100, Compression::None, 1_000);
    let file = file_of(&chunks);
    let mut pieces = 0;
    let failed: Result<()> = read(&file, reference, &mut Reads::default(), &mut |_| {
        pieces += 1;
        if pieces == 3 { Err(Error::Invalid("enough".to_owned())) } else { Ok(()) }
    });
    assert!(matches!(failed, Err(Error::Invalid(_))));
    assert_eq!(pieces, 3);
}
