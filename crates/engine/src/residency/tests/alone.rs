//! Tests of residency alone: over tables of a catalog, without a database.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use shamba_env::{Effect, FaultFs, FaultRule, MemFs, OpKind, Vfs};
use shamba_filter::FilterLayout;
use shamba_key::{EntryKind, KeyspaceId, SeqNo};
use shamba_table::{
    BirthId, Charge, Compression, LedgerPart, Residency, TableId, TableReader, TableWriter, WriterOptions,
};
use shamba_tree::version::{TableMeta, Version};

use super::is_whole;
use crate::catalog::InstallObserver;
use crate::memory::{Consumer, MemoryManager};
use crate::options::settings::Settings;
use crate::residency::ResidencyManager;
use crate::table_files::TableFiles;
use crate::testing::Parts;
use crate::workers::Waker;

const BUDGET_BYTES: u64 = 4 << 20;
const TABLES: u64 = 4;
const ENTRIES: u64 = 20_000;

/// Residency over the tables of a run, and the parts below it.
struct Alone {
    faults: Arc<FaultFs>,
    parts: Parts,
    residency: Arc<ResidencyManager>,
    metas: Vec<Arc<TableMeta>>,
}

fn key(table: u64, number: u64) -> Vec<u8> {
    format!("{table}:{number:08}").into_bytes()
}

/// Table `id` in the notation of versions.
fn table_text(id: u64) -> String {
    format!("{id:06}:{id}..{id}~ 1000000 n={ENTRIES}")
}

/// Writes the file of table `id` with [`ENTRIES`] entries.
fn write_table(parts: &Parts, id: u64, birth: BirthId) {
    let options = WriterOptions {
        id: TableId(id),
        birth,
        digest: parts.reads.digest(),
        compression: Compression::None,
        bits_per_key: 40.0,
        filter_layout: FilterLayout::Blocked,
        prefix: None,
        block_bytes: 4_096,
        block_tags: true,
        large_values: Default::default(),
    };
    let mut writer = TableWriter::create(&parts.env, parts.catalog.dir(), options).expect("created");
    for number in 0..ENTRIES {
        writer.add(&key(id, number), SeqNo(1), EntryKind::Put, b"some value").expect("added");
    }
    writer.finish().expect("finished");
}

impl Alone {
    /// A run of [`TABLES`] tables registered as a consumer of memory.
    fn new(filter_residency: Residency) -> Self {
        let faults = Arc::new(FaultFs::new(Arc::new(MemFs::new()), 1));
        let parts = Parts::over(
            Arc::clone(&faults) as Arc<dyn Vfs>,
            Settings { memory_budget_bytes: BUDGET_BYTES, filter_residency, ..Settings::default() },
        );
        let text = format!("L1: r9@9[{}]\n", (1..=TABLES).map(table_text).collect::<Vec<_>>().join(", "));
        let version: Version = text.parse().expect("notation");
        let metas: Vec<Arc<TableMeta>> =
            version.tables().map(|(_, _, table)| Arc::clone(&table.meta)).collect();
        let files = TableFiles::new(
            &parts.env,
            Arc::clone(&parts.settings),
            (Arc::clone(parts.memory.cache()), Arc::clone(parts.memory.ledger())),
            Arc::clone(&parts.catalog),
            Arc::clone(&parts.telemetry),
        );
        for meta in &metas {
            write_table(&parts, meta.id.0, meta.birth);
            let bounds = (&Bytes::from(key(meta.id.0, 0)), None);
            meta.reader.set(files.open(meta.id, meta.birth, bounds, meta.values.get()).expect("opened"));
        }
        let keyspace = parts.catalog.keyspace(KeyspaceId::DEFAULT).expect("the default one");
        keyspace.publish(|view| view.next(view.memtables.clone(), Arc::new(version)));
        let residency = Arc::new(ResidencyManager::new(
            &parts.env,
            Arc::clone(&parts.settings),
            Arc::clone(&parts.memory),
            (Arc::clone(&parts.catalog), Arc::clone(&parts.reads)),
            Arc::clone(&parts.telemetry),
            Waker::default(),
        ));
        let consumer: Weak<ResidencyManager> = Arc::downgrade(&residency);
        parts.memory.register(consumer);
        Self { faults, parts, residency, metas }
    }

    fn memory(&self) -> &MemoryManager {
        &self.parts.memory
    }

    fn readers(&self) -> Vec<Arc<TableReader>> {
        self.metas.iter().map(|meta| Arc::clone(meta.reader.get().expect("open"))).collect()
    }

    fn whole(&self) -> usize {
        self.readers().iter().filter(|reader| is_whole(reader)).count()
    }
}

#[test]
fn a_smaller_share_evicts_and_a_larger_one_reads_again() {
    let alone = Alone::new(Residency::Budgeted);
    let (residency, memory) = (&alone.residency, alone.memory());
    residency.settle_wholly();
    assert_eq!(alone.whole() as u64, TABLES, "there is memory for all");
    let all_bytes = residency.held();
    assert!(all_bytes > residency.floor());

    // Memtables take a little more than the cache can give. More than that is evicted, so that it
    // is rare.
    memory.balance();
    let mut charge = Charge::new(memory.ledger(), LedgerPart::Memtables, 0);
    memory.charge(&mut charge, memory.cache().capacity_bytes() + (64 << 10));
    assert!(residency.held() < all_bytes && residency.held() > residency.floor(), "some had to go");
    assert!((alone.whole() as u64) < TABLES);
    assert!(memory.ledger().total() + memory.kept_bytes() <= BUDGET_BYTES);

    memory.charge(&mut charge, 16 << 20);
    assert_eq!(residency.held(), residency.floor(), "nothing beyond what cannot be evicted");
    assert_eq!(residency.shrink(0), residency.floor());
    drop(charge);
    // The burst is remembered for some windows.
    for window in 1..200 {
        memory.end_window(window * 1_000_000, 1_000.0, &residency.plan_prices().value);
    }
    residency.settle_wholly();
    assert_eq!((alone.whole() as u64, residency.held()), (TABLES, all_bytes));
    assert_eq!(alone.parts.telemetry.warnings().len(), 1, "that the cache had nothing for a while");
}

#[test]
fn shrinking_reads_no_file_and_does_not_wait_for_a_settlement() {
    let alone = Alone::new(Residency::Budgeted);
    let residency = &alone.residency;
    residency.settle_wholly();
    let held_bytes = residency.held();
    {
        let _settling = residency.state.lock();
        assert_eq!(residency.shrink(0), held_bytes, "another thread settles");
    }
    assert!(residency.wanted.swap(false, Ordering::Relaxed), "it is made up for");
    alone.faults.add_rule(FaultRule::storm(1.0, Effect::Eio).on(&[OpKind::Read]));
    let warnings = || alone.parts.telemetry.warnings();
    assert_eq!(residency.shrink(held_bytes / 2), residency.held());
    assert!(residency.held() <= held_bytes / 2 && warnings().is_empty(), "{:?}", warnings());
    residency.settle_wholly();
    assert!(residency.held() <= held_bytes / 2 && !warnings().is_empty(), "a settlement reads");
    alone.faults.clear_rules();
    residency.settle_wholly();
    assert_eq!((alone.whole() as u64, residency.held()), (TABLES, held_bytes));
}

#[test]
fn pinned_filters_and_indexes_give_nothing_up() {
    let alone = Alone::new(Residency::Pinned);
    let residency = &alone.residency;
    let held_bytes = residency.held();
    assert!(held_bytes > 0 && residency.floor() == held_bytes);
    assert_eq!(residency.shrink(0), held_bytes);
    let mut charge = Charge::new(alone.memory().ledger(), LedgerPart::Memtables, 0);
    alone.memory().charge(&mut charge, 16 << 20);
    residency.settle_wholly();
    assert_eq!(residency.held(), held_bytes);
}

#[test]
fn an_install_charges_the_trees_and_frees_the_tables_that_it_replaced() {
    let alone = Alone::new(Residency::Budgeted);
    let residency = &alone.residency;
    residency.settle_wholly();
    residency.published();
    assert_eq!(alone.memory().tables().count, TABLES);
    // The second half of the tables leaves the tree.
    let dead = alone.metas.split_at(2).1;
    let left = format!("L1: r9@9[{}, {}]\n", table_text(1), table_text(2));
    let keyspace = alone.parts.catalog.keyspace(KeyspaceId::DEFAULT).expect("the default one");
    let version: Version = left.parse().expect("notation");
    for ((_, _, table), meta) in version.tables().zip(&alone.metas) {
        table.meta.reader.set(Arc::clone(meta.reader.get().expect("open")));
    }
    keyspace.publish(|view| view.next(view.memtables.clone(), Arc::new(version)));
    residency.published();
    assert_eq!(alone.memory().tables().count, 2);
    let before = residency.held();
    residency.installed(dead);
    assert!(residency.held() < before);
    let whole: Vec<bool> = alone.readers().iter().map(|reader| is_whole(reader)).collect();
    assert_eq!(whole, [true, true, false, false]);
}

#[test]
fn new_tables_are_held_as_far_as_there_is_memory() {
    let alone = Alone::new(Residency::Budgeted);
    let residency = &alone.residency;
    let readers = alone.readers();
    residency.shrink(0);
    assert_eq!(alone.whole(), 0);
    residency.hold_early(&readers[0]).expect("read");
    assert!(is_whole(&readers[0]), "there is memory for its filter and index");
    let mut charge = Charge::new(alone.memory().ledger(), LedgerPart::Memtables, 0);
    alone.memory().charge(&mut charge, 16 << 20);
    residency.hold_published(&alone.metas);
    assert!(residency.held() <= residency.floor() + BUDGET_BYTES / 32, "{} bytes", residency.held());
    drop(charge);
}

#[test]
fn a_look_after_the_stop_settles_nothing() {
    let alone = Alone::new(Residency::Budgeted);
    alone.residency.look();
    alone.residency.stop();
    alone.residency.request_settlement();
    let held = alone.residency.held();
    alone.residency.look();
    assert_eq!(alone.residency.held(), held);
}
