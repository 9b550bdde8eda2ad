//! Tests of filters and indexes that are cached as a whole: one read each, the same answers, damage
//! found, no more memory than the cache's capacity.

use shamba_key::KeyDigest;

use super::*;

const ROWS: u32 = 70_000;
const VALUE: &[u8] = b"a value that fills blocks";

fn rig() -> Rig {
    let mut rig = Rig::new(Compression::None, 4096);
    (rig.filter, rig.hold) = (Residency::Cached, Residency::Cached);
    let rows: Vec<Row> = (0..ROWS).map(|number| row(key(number), 1, VALUE)).collect();
    rig.write(&rows, &[]);
    rig
}

fn key(number: u32) -> String {
    format!("{number:08}")
}

/// Looks up every 997th key through the first module and the index; returns the counters.
fn look(rig: &Rig, table: &TableReader) -> Vec<ReadCounters> {
    let modules = table.filter_geometry().expect("a filter").modules().len();
    let of_key = |number: u32| {
        let mut io = ReadCounters::default();
        let digest: KeyDigest = rig.options.digest.digest(key(number).as_bytes());
        for module in 0..modules {
            assert!(table.fetch_module(digest, module, &mut io).expect("read"), "key {number} is there");
        }
        let found = table.get(key(number).as_bytes(), SeqNo(9), digest, ValueMode::Copy, &mut io);
        assert_eq!(found.expect("read").map(|entry| entry.value.to_vec()), Some(VALUE.to_vec()));
        io
    };
    (0..ROWS).step_by(997).map(of_key).collect()
}

fn totals(all: &[ReadCounters]) -> [(u64, u64); 2] {
    let sum = |of: fn(&ReadCounters) -> &Reads| {
        all.iter().fold((0, 0), |(count, pages), io| (count + of(io).count, pages + of(io).pages))
    };
    [sum(|io| &io.filter), sum(|io| &io.index)]
}

#[test]
fn a_whole_filter_and_a_whole_index_are_one_read_each() {
    for layout in ["blocked", "modular:2", "modular:3", "ribbon:3"] {
        let mut rig = rig();
        rig.options.filter_layout = layout.parse().expect("a layout");
        let rows: Vec<Row> = (0..ROWS).map(|number| row(key(number), 1, VALUE)).collect();
        rig.env.vfs.unlink(&rig.path()).expect("removed");
        rig.write(&rows, &[]);
        let sliced = rig.open().expect("open");
        let [filters, indexes] = totals(&look(&rig, &sliced));
        let modules = sliced.filter_geometry().expect("a filter").modules().len() as u64;
        let partitions = sliced.index_partitions() as u64;
        assert!(partitions > 2 && filters.0 >= modules && indexes.0 == partitions, "{filters:?} {indexes:?}");
        drop(sliced);
        rig.units = CacheUnits { filter: CacheUnit::Whole, index: CacheUnit::Whole };
        let whole = rig.open().expect("open");
        let read = look(&rig, &whole);
        let bytes: u64 = whole.filter_module_bytes().iter().map(|(bytes, _)| bytes).sum();
        let [whole_filters, whole_indexes] = totals(&read);
        assert_eq!(whole_filters.0, modules, "{layout}: a module is read once, and found in the cache then");
        assert!(whole_filters.1 >= bytes / 4096 && whole_filters.1 <= bytes / 4096 + 2 * modules, "{layout}");
        assert_eq!(whole_indexes.0, 1, "{layout}");
        assert!(whole_indexes.1 >= partitions - 2, "{layout}: {whole_indexes:?} of {partitions} partitions");
        assert_eq!(read[0].filter.count, modules, "the first lookup reads all of it");
    }
}

#[test]
fn a_unit_that_the_cache_cannot_hold_is_read_again_and_answers() {
    let mut rig = rig();
    rig.cache = Arc::new(BlockCache::new(48 << 10, Arc::clone(&rig.ledger)));
    rig.units = CacheUnits { filter: CacheUnit::Whole, index: CacheUnit::Whole };
    let table = rig.open().expect("open");
    let read = look(&rig, &table);
    let [filters, _] = totals(&read);
    assert_eq!(filters.0, read.len() as u64, "no lookup finds the filter in the cache");
    assert!(rig.cache.bytes() <= rig.cache.capacity_bytes(), "{} bytes", rig.cache.bytes());
}

#[test]
fn damage_in_a_unit_is_found_and_the_other_pieces_answer() {
    let mut rig = rig();
    rig.units = CacheUnits { filter: CacheUnit::Whole, index: CacheUnit::Whole };
    let good = rig.bytes();
    let table = rig.open().expect("open");
    let geometry = table.filter_geometry().expect("a filter");
    assert!(geometry.slices() > 1, "a filter of several slices");
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let is_filter = |section: &&crate::format::Section| section.kind == crate::format::SectionKind::Filter;
    let filter = described.sections.iter().find(is_filter).expect("a filter");
    drop(table);
    let mut bytes = good;
    // Before the last checksum: in the last slice.
    let at = (filter.offset + filter.bytes) as usize - 8;
    bytes[at] ^= 0x40;
    rig.replace(&bytes);
    let table = rig.open().expect("a damaged slice is no damage to the table");
    for io in look(&rig, &table) {
        assert_eq!(io.filter_hits, 0, "a unit with damage is not cached");
    }
    let warnings = table.filter_warnings();
    assert_eq!(warnings.iter().filter(|text| text.contains("filter slice")).count(), 1, "{warnings:?}");
}
