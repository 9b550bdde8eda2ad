//! One keyspace: its name, its state, and the view that its readers load.
//!
//! Invariant: a view holds every entry up to the sequence number that was visible when the view was
//! loaded. A reader therefore loads the view *first* and the sequence number second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use shamba_env::Shares;
use shamba_key::{KeyspaceId, Operand, Prefix};
use shamba_memtable::{ChunkedMemtable, Memtable};
use shamba_table::ValueFileId;
use shamba_tree::compaction::filter::Filtering;
use shamba_tree::compaction::policy::ValueRules;
use shamba_tree::merging::Merging;
use shamba_tree::sampling::TreeStatistics;
use shamba_tree::version::Version;
use shamba_tree::view::{View, ViewSource};

use crate::catalog::published::Published;
use crate::catalog::readable::Readable;
use crate::error::{Error, ErrorKind, Result};
use crate::lock_order;
use crate::options::fifo::FifoState;
use crate::options::overrides::Overrides;
use crate::options::settings::Settings;
use crate::ranked::Ranked;
use crate::swap::Guard;

/// The time to live of what never expires.
const FOR_EVER: u64 = u64::MAX;

/// State of the collection of value files.
#[derive(Default)]
struct CollectionState {
    is_stopped: AtomicBool,
    /// Value files after the last collection.
    files_left: AtomicU64,
    /// The last value file that a compaction could not read, and how often it could not.
    unread: (AtomicU64, AtomicU32),
}

/// Its settings, and the rules by which its compactions drop entries that are not superseded.
#[derive(Default)]
struct Rules {
    prefix: Option<Prefix>,
    overrides: Arc<Overrides>,
    filtering: Option<Arc<Filtering>>,
    fifo: Option<Arc<FifoState>>,
}

/// One keyspace: its name and the view that its readers load.
pub(crate) struct KeyspaceCore {
    pub id: KeyspaceId,
    pub name: String,
    readable: Shares<Readable>,
    /// Milliseconds that entries live unless their write says otherwise; [`FOR_EVER`] without a
    /// limit.
    time_to_live_ms: AtomicU64,
    rules: Ranked<Rules>,
    collection: CollectionState,
    /// Tables of this many bytes are not small here, whatever the settings say.
    small_bytes_max: AtomicU64,
}

impl KeyspaceCore {
    pub fn new(
        id: KeyspaceId,
        name: String,
        version: Arc<Version>,
        memtable: ChunkedMemtable,
        merging: Option<Arc<Merging>>,
        closed: Arc<AtomicBool>,
    ) -> Self {
        let memtables: Vec<Arc<dyn Memtable>> = vec![Arc::new(memtable)];
        let readable = Shares::new(Readable {
            name: name.clone(),
            view: Published::new(View::new(id, memtables, version).with_merging(merging)),
            dropped: AtomicBool::new(false),
            closed,
            statistics: TreeStatistics::default(),
        });
        Self {
            id,
            name,
            readable,
            time_to_live_ms: AtomicU64::new(FOR_EVER),
            rules: Ranked::new(lock_order::KEYSPACE_RULES, Rules::default()),
            collection: CollectionState::default(),
            small_bytes_max: AtomicU64::new(u64::MAX),
        }
    }

    /// The prefix extractor of tables that are written from now on.
    pub fn prefix(&self) -> Option<Prefix> {
        self.rules.lock().prefix
    }

    /// Sets the prefix extractor.
    pub fn set_prefix(&self, prefix: Option<Prefix>) {
        self.rules.lock().prefix = prefix;
    }

    /// The settings of its tree that replace those of the database.
    pub fn overrides(&self) -> Arc<Overrides> {
        Arc::clone(&self.rules.lock().overrides)
    }

    /// Sets them, for tables that are written from now on.
    pub fn set_overrides(&self, overrides: Overrides) {
        self.rules.lock().overrides = Arc::new(overrides);
    }

    /// A placeholder for a keyspace of another database: every use fails with an error that says
    /// so.
    pub fn foreign(other: &Self) -> Arc<Self> {
        let name = format!("{} of another database", other.name);
        let memtable = ChunkedMemtable::new(false);
        let foreign = Self::new(other.id, name, Arc::default(), memtable, None, Arc::default());
        foreign.set_dropped();
        Arc::new(foreign)
    }

    /// The newest view, without touching a shared reference count.
    pub fn load(&self) -> Guard<Arc<View>> {
        self.readable.view.load()
    }

    /// The newest view, with a reference count.
    pub fn load_full(&self) -> Arc<View> {
        self.readable.view.load_full()
    }

    /// Replaces the view by one made from it.
    pub fn publish(&self, change: impl FnOnce(&View) -> View) {
        self.readable.view.replace(|view| {
            let next = change(view);
            debug_assert_eq!(next.keyspace, self.id, "a view of another keyspace is published");
            debug_assert!(!next.memtables.is_empty(), "a view without a memtable is published");
            next
        });
    }

    /// The merge operator, without the view that it belongs to: a long job would keep memtables and
    /// files alive with that.
    pub fn merging(&self) -> Option<Arc<Merging>> {
        self.load().merging_shared()
    }

    /// Sets the merge operator.
    pub fn set_merging(&self, merging: Arc<Merging>) {
        self.publish(|view| {
            view.next(view.memtables.clone(), Arc::clone(&view.version)).with_merging(Some(merging))
        });
    }

    /// How long entries live unless their write says otherwise; `None` without a limit.
    #[inline]
    pub fn time_to_live(&self) -> Option<Duration> {
        match self.time_to_live_ms.load(Ordering::Relaxed) {
            FOR_EVER => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// Sets how long entries that are written from now on live.
    pub fn set_time_to_live(&self, time_to_live: Option<Duration>) {
        let ms = time_to_live.and_then(|it| u64::try_from(it.as_millis()).ok()).unwrap_or(FOR_EVER);
        self.time_to_live_ms.store(ms, Ordering::Relaxed);
    }

    /// The compaction filter.
    pub fn filtering(&self) -> Option<Arc<Filtering>> {
        self.rules.lock().filtering.clone()
    }

    /// Sets the compaction filter.
    pub fn set_filtering(&self, filtering: Option<Arc<Filtering>>) {
        // The user's code is dropped without the lock.
        let _last = std::mem::replace(&mut self.rules.lock().filtering, filtering);
    }

    /// Whether compactions may run: not without the code of a filter that is recorded.
    pub fn may_compact(&self) -> bool {
        self.rules.lock().filtering.as_ref().is_none_or(|filtering| filtering.is_given())
    }

    /// The limits of a FIFO keyspace.
    pub fn fifo(&self) -> Option<Arc<FifoState>> {
        self.rules.lock().fifo.clone()
    }

    /// Sets the limits of a FIFO keyspace. Those that an open database records are set with the
    /// edit that records them.
    pub fn set_fifo(&self, fifo: Option<Arc<FifoState>>) {
        self.rules.lock().fifo = fifo;
    }

    /// The rules by which its value files are collected; `None` if it has none, or collects none.
    pub fn value_rules(&self, settings: &Settings) -> Option<ValueRules> {
        if self.collection.is_stopped.load(Ordering::Relaxed) || self.rules.lock().fifo.is_some() {
            return None;
        }
        let rules = self.overrides().value_rules(settings, &self.load().version)?;
        // A collection that could not make fewer files is not repeated before there are many more.
        let files_left = self.collection.files_left.load(Ordering::Relaxed);
        let files_max = rules.files_max.max(files_left.saturating_add(files_left / 2));
        Some(ValueRules { files_max, ..rules })
    }

    /// Tables of this many bytes or more are not combined with their neighbours.
    pub fn small_bytes_max(&self) -> u64 {
        self.small_bytes_max.load(Ordering::Relaxed)
    }

    /// Combines tables of this many bytes or more no longer, until the next open.
    pub fn limit_small_bytes(&self, bytes: u64) {
        self.small_bytes_max.fetch_min(bytes, Ordering::Relaxed);
    }

    /// Notes that a collection of value files has ended.
    pub fn note_collected(&self) {
        let files = self.load().version.value_totals().files().len() as u64;
        self.collection.files_left.store(files, Ordering::Relaxed);
    }

    /// Notes that a compaction could not read a value file. Returns how often for this file, since
    /// another one.
    pub fn note_unread(&self, file: ValueFileId) -> u32 {
        let (last, times) = &self.collection.unread;
        if last.swap(file.0, Ordering::Relaxed) != file.0 {
            times.store(0, Ordering::Relaxed);
        }
        times.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Collects no value files any more, until the next open: one of them cannot be read, and would
    /// be tried again and again. Returns whether it did until now.
    pub fn stop_collection(&self) -> bool {
        !self.collection.is_stopped.swap(true, Ordering::Relaxed)
    }

    /// Whether compactions keep level 0 small, and the tree in its shape.
    pub fn has_levels(&self) -> bool {
        self.may_compact() && self.rules.lock().fifo.is_none()
    }

    /// The error of an operation that needs the code of the compaction filter.
    pub fn no_filter(&self) -> Error {
        let filter = self.filtering().map(|filtering| filtering.name().to_owned()).unwrap_or_default();
        let context = format!(
            "keyspace {:?} is not compacted: this open was not given its compaction filter {filter:?}",
            self.name
        );
        Error::new(ErrorKind::Unsupported, context)
    }

    /// The stored form of an operand, if it is one that the keyspace's merge operator takes.
    ///
    /// # Errors
    /// `Invalid` without an operator, and for an operand that it refuses or that is too long.
    pub fn operand(&self, key: &[u8], operand: &[u8]) -> Result<Vec<u8>> {
        let view = self.load();
        let merging = view.merging().ok_or_else(|| {
            Error::invalid(format!(
                "keyspace {:?} has no merge operator (KeyspaceOptions::merge_operator)",
                self.name
            ))
        })?;
        merging.check(key, operand)?;
        Ok(Operand::single(operand).encode())
    }

    /// Applies operands, oldest first, to a value by the merge operator.
    ///
    /// # Errors
    /// `Unsupported` without the operator's code; `Invalid` if it fails. Both name the key.
    pub fn fold(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        match self.load().merging() {
            Some(merging) => Ok(merging.fold(key, base, operands)?),
            None => Err(Error::invalid(format!("keyspace {:?} has no merge operator", self.name))),
        }
    }

    /// The views of the keyspace, for a scan of this thread.
    pub fn views(&self) -> Arc<dyn ViewSource> {
        self.readable.share()
    }

    /// Statistics of sampled lookups and seeks in this keyspace.
    pub fn statistics(&self) -> &TreeStatistics {
        &self.readable.statistics
    }

    /// Whether the keyspace was dropped, durably.
    pub fn is_dropped(&self) -> bool {
        self.readable.dropped.load(Ordering::Acquire)
    }

    /// Refuses every use from now on: the drop of the keyspace is durable.
    pub fn set_dropped(&self) {
        self.readable.dropped.store(true, Ordering::Release);
    }

    /// Whether the keyspace can be used.
    pub fn check_usable(&self) -> Result<()> {
        Ok(self.readable.check()?)
    }
}

#[cfg(test)]
mod tests {
    use shamba_key::SeqNo;

    use super::*;
    use crate::options::fifo::Fifo;

    /// A keyspace whose one table refers to `files` value files.
    fn with_value_files(files: u64) -> KeyspaceCore {
        let (mut uses, mut totals) = (String::new(), Vec::new());
        for file in 100..100 + files {
            uses.push_str(&format!(" val={file}:1:10"));
            totals.push(format!("{file:06} 100 n=1"));
        }
        let version: Version = if files == 0 {
            Version::default()
        } else {
            format!("L1: r3@3[000002:a..z 40{uses}]\nV: {}\n", totals.join(", ")).parse().expect("notation")
        };
        let memtable = ChunkedMemtable::new(false);
        let name = "values".to_owned();
        KeyspaceCore::new(KeyspaceId(1), name, Arc::new(version), memtable, None, Arc::default())
    }

    fn files_max(keyspace: &KeyspaceCore) -> Option<u64> {
        keyspace.value_rules(&Settings::default()).map(|rules| rules.files_max)
    }

    #[test]
    fn a_collection_that_left_many_files_waits_for_half_as_many_more() {
        let few = with_value_files(1);
        let most = files_max(&few).expect("it has a value file");
        few.note_collected();
        assert_eq!(files_max(&few), Some(most), "fewer files than the maximum change nothing");
        let many = with_value_files(most + 2);
        assert_eq!(files_max(&many), Some(most));
        many.note_collected();
        // The maximum is even.
        assert_eq!(files_max(&many), Some(most + 2 + most / 2 + 1));
    }

    #[test]
    fn value_files_are_not_collected_without_any_or_after_a_stop() {
        assert_eq!(files_max(&with_value_files(0)), None);
        let keyspace = with_value_files(1);
        assert!(keyspace.stop_collection(), "it was collected until now");
        assert!(!keyspace.stop_collection());
        assert_eq!(files_max(&keyspace), None);
    }

    #[test]
    fn a_sampled_lookup_is_counted() {
        let keyspace = with_value_files(0);
        let before = keyspace.statistics().sampled();
        keyspace.views().note_lookup(true);
        assert_eq!(keyspace.statistics().sampled(), before + 1);
    }

    #[test]
    fn a_sampled_seek_is_counted_and_is_no_lookup() {
        let keyspace = with_value_files(0);
        keyspace.views().note_seek();
        keyspace.views().note_seek();
        let window = keyspace.statistics().window(1);
        assert_eq!((window.seeks.round(), window.lookups), (2.0, 0.0));
    }

    #[test]
    fn a_tree_has_levels_unless_it_is_fifo_or_lacks_the_code_of_its_filter() {
        let keyspace = with_value_files(0);
        assert!(keyspace.has_levels());
        keyspace.set_filtering(Some(Arc::new(Filtering::recorded("theirs"))));
        assert!(!keyspace.may_compact() && !keyspace.has_levels());
        keyspace.set_filtering(None);
        keyspace.set_fifo(Some(Arc::new(FifoState::new(Fifo::bytes(1 << 20), SeqNo::ZERO, 0))));
        assert!(keyspace.may_compact() && !keyspace.has_levels());
        keyspace.set_fifo(None);
        assert!(keyspace.has_levels());
    }
}
