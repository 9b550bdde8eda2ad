//! The read operations of a keyspace, at a snapshot or at the newest state, with options.
//!
//! All read methods of the handles are built on [`ReadAt`]. Without a snapshot each call reads at
//! the newest sequence number. The view is loaded *first* and the number second, so that nothing
//! visible at that number is missing from the view. The record cache is entered before both
//! ([`shamba_tree::records`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shamba_key::{Expiry, SeqNo, hashes_on_this_thread};
use shamba_table::{Value, ValueMode};

use super::cursor::{Cursor, Iter, Keys};
use super::options::{HashedKey, ReadOptions};
use super::{Keeper, Reads};
use crate::catalog::KeyspaceCore;
use crate::error::{Error, Result};
use crate::key_range::{KeyRange, check_key, half_open, prefix_range};
use crate::trace::Moment;
use shamba_tree::counters::LookupCounts;
use shamba_tree::expiry::ReadTime;
use shamba_tree::iter::scan::{Scan, ScanSource};
use shamba_tree::lookup::expires::FoundExpiry;
use shamba_tree::lookup::explain::{Explanation, Silent, Trace};
use shamba_tree::lookup::explain_prefix::PrefixExplanation;
use shamba_tree::lookup::get::{Lookup, LookupSettings};
use shamba_tree::lookup::multi_get::{KeySampling, ReadingThreads, multi_get};
use shamba_tree::lookup::opened::OpenedTables;
use shamba_tree::lookup::sampler::Sampler;
use shamba_tree::slice::Slice;
use shamba_tree::snapshot::SnapshotGuard;
use shamba_tree::version::KeyRange as Span;
use shamba_tree::view::View;
use shamba_tree::view::estimate::Estimate;

/// A keyspace at a snapshot or at the newest state, with options. It borrows from a handle, so that
/// a lookup touches no reference count that other threads touch.
#[derive(Clone, Copy)]
pub(crate) struct ReadAt<'a> {
    pub reads: &'a Reads,
    /// Scans keep the database open with it while they live.
    pub keeper: &'a dyn Keeper,
    pub keyspace: &'a Arc<KeyspaceCore>,
    /// `None`: the newest state at each call.
    pub snapshot: Option<&'a Arc<SnapshotGuard>>,
    pub options: &'a ReadOptions,
}

impl ReadAt<'_> {
    /// Runs `body`, one lookup (`alone`) or several, with the view and sequence number to read at,
    /// and counts its work. The counted hashes, and with a timer the time, are those of the whole
    /// body.
    #[inline]
    fn look_up<T>(
        &self,
        alone: bool,
        body: impl FnOnce(&View, SeqNo, &LookupSettings<'_>, &mut LookupCounts) -> Result<T>,
    ) -> Result<T> {
        let records = self.reads.records.access(self.snapshot.is_none());
        let view = self.keyspace.load();
        // After the view: a drop sets its mark before it publishes an empty one.
        self.keyspace.check_usable()?;
        let seq = self.snapshot.map_or_else(|| self.reads.visible(), |snapshot| snapshot.seq());
        debug_assert!(
            self.snapshot.is_none_or(|snapshot| snapshot.seq() <= self.reads.visible()),
            "a snapshot reads what is not visible"
        );
        let (opened, time) = (OpenedTables::default(), self.time());
        let is_timed = self.reads.telemetry.times_lookups();
        let settings = self.reads.lookup_settings(is_timed, (&opened, &time), records);
        let mut counts = LookupCounts::default();
        let begin_ns = settings.now_ns();
        let hashes_before = hashes_on_this_thread();
        let outcome = body(&view, seq, &settings, &mut counts);
        counts.hashes = hashes_on_this_thread().wrapping_sub(hashes_before);
        if settings.timer.is_some() {
            counts.rare().total_ns = settings.elapsed_ns(begin_ns, settings.now_ns());
        }
        self.reads.telemetry.lookups().add(&counts, alone);
        outcome
    }

    /// The time by which lookups judge expiry: that of the snapshot, or of the first entry that has
    /// an expiry.
    #[inline]
    fn time(&self) -> ReadTime<'_> {
        let fixed_ms = self.snapshot.map_or(0, |snapshot| snapshot.time_ms());
        ReadTime::new(self.reads.expiry(), fixed_ms)
    }

    #[inline]
    fn get_value(&self, key: &[u8], mode: ValueMode) -> Result<Option<Value>> {
        if self.reads.recorder.is_on() {
            return self.noted(key, || self.find_value(key, mode));
        }
        self.find_value(key, mode)
    }

    /// Runs a lookup and records it in the trace.
    #[cold]
    #[inline(never)]
    fn noted<T>(&self, key: &[u8], look_up: impl FnOnce() -> Result<Option<T>>) -> Result<Option<T>> {
        let asked = self.asked();
        let outcome = look_up();
        if let Ok(value) = &outcome {
            self.reads.recorder.note_lookups(
                (self.keyspace.id, &self.keyspace.name),
                asked,
                std::iter::once((key, value.is_some())),
            );
        }
        outcome
    }

    /// The position in the recorded trace at which a lookup of the newest state begins.
    fn asked(&self) -> Option<Moment> {
        if self.snapshot.is_none() { self.reads.recorder.moment() } else { None }
    }

    #[inline]
    fn find_value(&self, key: &[u8], mode: ValueMode) -> Result<Option<Value>> {
        check_key(key)?;
        self.look_up(true, |view, seq, settings, counts| {
            let digest = settings.digest_of(key, counts); // The only hash of this lookup.
            self.run(&Lookup { view, settings, key, digest, seq, mode }, counts)
        })
    }

    /// Runs a lookup, which may be sampled.
    #[inline]
    fn run(&self, lookup: &Lookup<'_>, counts: &mut LookupCounts) -> Result<Option<Value>> {
        if self.reads.telemetry.lookups().is_next_sampled() && self.reads.settings.statistics {
            return self.run_sampled(lookup, counts);
        }
        Ok(lookup.run(counts, &mut Silent)?)
    }

    #[cold]
    fn run_sampled(&self, lookup: &Lookup<'_>, counts: &mut LookupCounts) -> Result<Option<Value>> {
        let mut sampler = Sampler::default();
        let outcome = lookup.run(counts, &mut sampler);
        if counts.memtable_hits == 0 {
            self.finish_sample(sampler, lookup.view);
        }
        Ok(outcome?)
    }

    /// Adds a sampled lookup, which no memtable answered, to the statistics of the tree.
    fn finish_sample(&self, sampler: Sampler, view: &View) {
        let now_us = || self.reads.clock.now_us();
        self.keyspace.statistics().add_sample(sampler.found(), &view.version, now_us);
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        Ok(self.get_value(key, ValueMode::Copy)?.map(Slice::from_value))
    }

    pub fn get_with<T>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        Ok(self.get_value(key, ValueMode::Pin)?.map(|value| read(&value)))
    }

    pub fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        let value = self.get_value(key, ValueMode::Pin)?;
        buffer.clear();
        buffer.extend_from_slice(value.as_deref().unwrap_or_default());
        Ok(value.is_some())
    }

    pub fn contains_key(&self, key: &[u8]) -> Result<bool> {
        Ok(self.get_value(key, ValueMode::Absent)?.is_some())
    }

    /// The time for which the value of `key` still lives; `Duration::MAX` if it lasts.
    pub fn time_to_live_of(&self, key: &[u8]) -> Result<Option<Duration>> {
        self.look_up_expiry(key, time_left)
    }

    /// The time at which the value of `key` expires; `None` if it lasts, or there is none.
    pub fn expiry_ms_of(&self, key: &[u8]) -> Result<Option<u64>> {
        if !self.reads.expiry().is_used() {
            self.keyspace.check_usable()?;
            return check_key(key).map(|()| None);
        }
        Ok(self.look_up_expiry(key, |expiry, _| expiry.map(|expiry| expiry.0))?.flatten())
    }

    /// Looks up the expiry of a value; `of` judges it at the time of this reader.
    fn look_up_expiry<T>(
        &self,
        key: &[u8],
        of: impl Fn(Option<Expiry>, &ReadTime) -> T,
    ) -> Result<Option<T>> {
        check_key(key)?;
        let look_up = || {
            self.look_up(true, |view, seq, settings, counts| {
                let digest = settings.digest_of(key, counts);
                let lookup = Lookup { view, settings, key, digest, seq, mode: ValueMode::Absent };
                let mut found = FoundExpiry::default();
                let value = lookup.run(counts, &mut found)?;
                Ok(value.map(|_| of(found.get(), settings.time)))
            })
        };
        if self.reads.recorder.is_on() { self.noted(key, look_up) } else { look_up() }
    }

    /// The value of a key, and the time at which that changes without a write: the value expires,
    /// or the base that its operands apply to. Both by one lookup, at one time.
    pub fn get_until(&self, key: &HashedKey) -> Result<(Option<Slice>, Option<Expiry>)> {
        if !self.reads.expiry().is_used() {
            return Ok((self.get_hashed(key)?, None));
        }
        let mut found = FoundExpiry::default();
        let value = self.look_up_hashed(key, |lookup, counts| Ok(lookup.run(counts, &mut found)?))?;
        Ok((value, found.get()))
    }

    /// The time that is left to what this reader sees and what expires then.
    pub fn time_left(&self, expiry: Option<Expiry>) -> Duration {
        time_left(expiry, &self.time())
    }

    pub fn get_hashed(&self, key: &HashedKey) -> Result<Option<Slice>> {
        self.look_up_hashed(key, |lookup, counts| self.run(lookup, counts))
    }

    /// Looks up a key whose digest is known; `run` does the lookup.
    fn look_up_hashed(
        &self,
        key: &HashedKey,
        run: impl FnOnce(&Lookup<'_>, &mut LookupCounts) -> Result<Option<Value>>,
    ) -> Result<Option<Slice>> {
        if key.made_by != self.reads.digest {
            return Err(Error::invalid("the hashed key was made by a database with another digest or seed"));
        }
        check_key(&key.key)?;
        let look_up = || {
            self.look_up(true, |view, seq, settings, counts| {
                let HashedKey { key, digest, .. } = key;
                run(&Lookup { view, settings, key, digest: *digest, seq, mode: ValueMode::Copy }, counts)
            })
        };
        let value = if self.reads.recorder.is_on() { self.noted(&key.key, look_up) } else { look_up() };
        Ok(value?.map(Slice::from_value))
    }

    /// Looks up all keys at one sequence number.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Slice>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        keys.iter().try_for_each(|key| check_key(key.as_ref()))?;
        let noted = self.reads.recorder.is_on().then(|| self.asked());
        let values = self.look_up(false, |view, seq, settings, counts| {
            let threads = ReadingThreads {
                blocks: self.reads.reading_threads(),
                values: Some(self.reads.value_threads()),
            };
            let samples = |keys| {
                self.reads.settings.statistics.then(|| self.reads.telemetry.lookups().next_sampled(keys))?
            };
            let finish = |sampler| self.finish_sample(sampler, view);
            let samples = KeySampling { next: &samples, finish: &finish };
            Ok(multi_get(view, *settings, seq, &keys, threads, &samples, counts)?)
        })?;
        debug_assert_eq!(values.len(), keys.len(), "a key has no answer");
        if let Some(asked) = noted {
            let lookups = keys.iter().map(AsRef::as_ref).zip(values.iter().map(Option::is_some));
            self.reads.recorder.note_lookups((self.keyspace.id, &self.keyspace.name), asked, lookups);
        }
        Ok(values)
    }

    pub fn explain(&self, key: &[u8]) -> Result<Explanation> {
        check_key(key)?;
        self.keeper.finish_open();
        let records = self.reads.records.access(self.snapshot.is_none());
        let view = self.keyspace.load();
        self.keyspace.check_usable()?;
        let seq = self.snapshot.map_or_else(|| self.reads.visible(), |snapshot| snapshot.seq());
        let (opened, time) = (OpenedTables::default(), self.time());
        let settings = self.reads.lookup_settings(true, (&opened, &time), records);
        let mut counts = LookupCounts::default();
        let mut trace = Trace::default();
        let begin_ns = settings.now_ns();
        let hashes_before = hashes_on_this_thread();
        let digest = settings.digest.digest(key);
        let lookup = Lookup { view: &view, settings: &settings, key, digest, seq, mode: ValueMode::Copy };
        let value = lookup.run(&mut counts, &mut trace)?;
        counts.hashes = hashes_on_this_thread().wrapping_sub(hashes_before);
        counts.rare().total_ns = settings.now_ns().saturating_sub(begin_ns);
        Ok(Explanation::new(&lookup, trace, &counts, value))
    }

    pub fn explain_prefix(&self, prefix: &[u8]) -> Result<PrefixExplanation> {
        self.keeper.finish_open();
        let view = self.keyspace.load();
        self.keyspace.check_usable()?;
        let seq = self.snapshot.map_or_else(|| self.reads.visible(), |snapshot| snapshot.seq());
        Ok(PrefixExplanation::of(&view, seq, prefix, &self.bounded(prefix_range(prefix))))
    }

    /// The source of a scan, at the snapshot or at the present newest sequence number.
    fn scan_source(&self) -> ScanSource {
        let seq = match self.snapshot {
            Some(snapshot) => Arc::clone(snapshot),
            None => self.reads.snapshot(),
        };
        debug_assert!(seq.seq() <= self.reads.visible(), "a scan reads what is not visible");
        ScanSource {
            views: self.keyspace.views(),
            owner: self.keeper.owner(),
            seq,
            walk: self.options.walk(self.reads.settings.budget_bytes()),
            reads_values: true,
            samples: self.reads.settings.statistics,
            notes: if self.reads.recorder.is_on() { self.reads.scan_notes(self.keyspace) } else { None },
        }
    }

    /// The intersection of `range` and the options' bounds; an empty range if they are disjoint.
    fn bounded(&self, range: Span) -> Span {
        if self.options.lower_bound.is_none() && self.options.upper_bound.is_none() {
            return range;
        }
        let lower = self.options.lower_bound.clone().unwrap_or_default();
        let bounds = Span { lower: lower.into(), upper: self.options.upper_bound.clone().map(Bytes::from) };
        let bounded = range.intersection(&bounds).unwrap_or_else(Span::nothing);
        debug_assert!(bounded.is_empty() || range.hull(&bounded) == range, "bounds widen a range");
        bounded
    }

    pub fn range(&self, range: impl KeyRange) -> Iter {
        Iter::new(self.scan_source(), self.bounded(half_open(&range)))
    }

    pub fn prefix(&self, prefix: &[u8]) -> Iter {
        Iter::new(self.scan_source(), self.bounded(prefix_range(prefix)))
    }

    pub fn keys(&self, range: impl KeyRange) -> Keys {
        Keys::new(self.key_source(), self.bounded(half_open(&range)))
    }

    /// A scan of all keys within the options' bounds, which reads no values.
    pub fn key_scan(&self) -> Scan {
        Scan::new(self.key_source(), self.bounded(Span::everything()))
    }

    fn key_source(&self) -> ScanSource {
        ScanSource { reads_values: false, ..self.scan_source() }
    }

    pub fn estimate(&self, range: impl KeyRange) -> Result<Estimate> {
        let view = self.keyspace.load();
        self.keyspace.check_usable()?;
        Ok(view.estimate(&self.bounded(half_open(&range)))?)
    }

    pub fn split_points(&self, range: impl KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
        let view = self.keyspace.load();
        self.keyspace.check_usable()?;
        let points = view.split_points(&self.bounded(half_open(&range)), parts)?;
        Ok(points.into_iter().map(Vec::from).collect())
    }

    pub fn cursor(&self) -> Cursor {
        self.cursor_in(Span::everything())
    }

    pub fn cursor_in(&self, range: Span) -> Cursor {
        Cursor::new(self.scan_source(), self.bounded(range))
    }
}

fn time_left(expiry: Option<Expiry>, now: &ReadTime<'_>) -> Duration {
    expiry.map_or(Duration::MAX, |Expiry(ms)| Duration::from_millis(ms.saturating_sub(now.ms())))
}

#[cfg(test)]
mod tests;
