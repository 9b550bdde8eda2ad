//! One random trace, carried out by Shamba, RocksDB and a sorted map side by side
//! ([`crate::differential`]).
//!
//! Reopens divide a trace into sessions; snapshots and cursors live within one. The map is shared
//! by reference until the next write, so a frozen view of it costs nothing until then.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::rc::Rc;

use fastrand::Rng;
use rust_rocksdb::{
    BlockBasedOptions, DB, DBRawIterator, Options, ReadOptions, SnapshotWithThreadMode, WriteBatch,
};
use shamba::{Cursor, Db, MergePolicy, Sizing, Snapshot};
use shamba_tests::tally::Tally;

use crate::peer::Result;

type Model = BTreeMap<Vec<u8>, Rc<[u8]>>;
type TheirSnapshot<'a> = SnapshotWithThreadMode<'a, DB>;

/// Distinct keys, about.
const KEYS: u32 = 1_500;
/// Snapshots and cursors that live at once, each.
const HELD_MAX: usize = 6;
/// Operations between two reopens, on average.
const SESSION_OPS: u64 = 1_500;

/// A random trace.
pub struct Trace {
    seed: u64,
    ops: u64,
    rng: Rng,
    done: u64,
}

/// A view that was taken, by each of the three.
struct Frozen<'a> {
    model: Rc<Model>,
    ours: Snapshot,
    theirs: TheirSnapshot<'a>,
}

/// A cursor over a frozen moment, by each of the three.
struct Walker<'a> {
    model: Rc<Model>,
    at: Option<Vec<u8>>,
    ours: Cursor,
    theirs: DBRawIterator<'a>,
}

fn told(what: &str, error: impl std::fmt::Display) -> String {
    format!("{what}: {error}")
}

impl Trace {
    /// The trace that a seed gives.
    pub fn new(seed: u64, ops: u64) -> Self {
        Self { seed, ops, rng: Rng::with_seed(seed), done: 0 }
    }

    /// Carries it out in a new directory.
    ///
    /// # Errors
    /// The first difference.
    pub fn run(mut self, tally: &mut Tally) -> Result<()> {
        let dir = tempfile::tempdir().map_err(|error| told("a directory", error))?;
        let mut model = Rc::new(Model::new());
        while self.done < self.ops {
            let ours = self.open_ours(&dir.path().join("ours"))?;
            let theirs = self.open_theirs(&dir.path().join("theirs"))?;
            self.session(&ours, &theirs, &mut model, tally)
                .map_err(|difference| format!("seed {}, operation {}: {difference}", self.seed, self.done))?;
            // Dropped without a close, as a process ends; or closed.
            if self.rng.bool() {
                ours.close().map_err(|error| told("close", error))?;
            }
            tally.add("reopens", 1);
        }
        tally.add("traces", 1);
        Ok(())
    }

    /// Options of the file's shape hold as created; what may change at an open is drawn anew.
    fn open_ours(&mut self, dir: &Path) -> Result<Db> {
        let mut fixed = Rng::with_seed(self.seed);
        let policies = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
        let sizings = [Sizing::Auto, Sizing::Manual];
        Db::builder(dir)
            .memory_budget(4 << 20)
            .write_buffer(1 << fixed.u32(13..17))
            .merge_policy(policies[fixed.usize(..policies.len())])
            .experimental(|e| e.sizing(sizings[fixed.usize(..sizings.len())]))
            .size_ratio(f64::from(fixed.u32(2..7)))
            .experimental(|e| e.block_bytes(1 << fixed.u32(8..13)).file_size(1 << fixed.u32(13..18)))
            .bits_per_key(f64::from(fixed.u32(0..13)))
            .open()
            .map_err(|error| told("open", error))
    }

    fn open_theirs(&mut self, dir: &Path) -> Result<DB> {
        let mut table = BlockBasedOptions::default();
        table.set_bloom_filter(10.0, false);
        table.set_block_size(512);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(64 << 10);
        options.set_target_file_size_base(32 << 10);
        options.set_max_bytes_for_level_base(128 << 10);
        options.set_max_bytes_for_level_multiplier(4.0);
        options.set_block_based_table_factory(&table);
        DB::open(&options, dir).map_err(|error| told("RocksDB's open", error))
    }

    fn session<'a>(
        &mut self,
        ours: &Db,
        theirs: &'a DB,
        model: &mut Rc<Model>,
        tally: &mut Tally,
    ) -> Result<()> {
        let (mut frozen, mut walkers): (Vec<Frozen<'a>>, Vec<Walker<'a>>) = (Vec::new(), Vec::new());
        self.compare_all(ours, theirs, model, tally)?;
        let end = (self.done + self.rng.u64(1..2 * SESSION_OPS)).min(self.ops);
        while self.done < end {
            self.done += 1;
            tally.add("operations", 1);
            match self.rng.u32(0..1000) {
                0..480 => self.write(ours, theirs, model, tally)?,
                480..700 => self.get(ours, theirs, model, tally)?,
                700..760 => self.multi_get(ours, theirs, model, tally)?,
                760..800 => self.scan(ours, theirs, model, tally)?,
                800..820 => {
                    if frozen.len() == HELD_MAX {
                        frozen.swap_remove(self.rng.usize(..frozen.len()));
                    }
                    frozen.push(Frozen {
                        model: Rc::clone(model),
                        ours: ours.snapshot(),
                        theirs: theirs.snapshot(),
                    });
                    tally.add("snapshots", 1);
                }
                820..860 => self.read_frozen(&frozen, tally)?,
                860..875 => {
                    if walkers.len() == HELD_MAX {
                        walkers.swap_remove(self.rng.usize(..walkers.len()));
                    }
                    let theirs = theirs.raw_iterator();
                    walkers.push(Walker { model: Rc::clone(model), at: None, ours: ours.cursor(), theirs });
                    tally.add("cursors", 1);
                }
                875..995 => {
                    if let Some(place) =
                        self.rng.usize(..=HELD_MAX).checked_sub(1).filter(|at| *at < walkers.len())
                    {
                        self.walk(&mut walkers[place], tally)?;
                    }
                }
                995..999 => {
                    ours.flush().map_err(|error| told("flush", error))?;
                    theirs.flush().map_err(|error| told("RocksDB's flush", error))?;
                    tally.add("flushes", 1);
                }
                _ => {
                    ours.compact().map_err(|error| told("compact", error))?;
                    theirs.compact_range(None::<&[u8]>, None::<&[u8]>);
                    tally.add("compactions", 1);
                }
            }
        }
        drop((frozen, walkers));
        self.compare_all(ours, theirs, model, tally)
    }

    /// Keys that share long beginnings, and a few awkward ones.
    fn key(&mut self) -> Vec<u8> {
        match self.rng.u32(0..200) {
            0 => Vec::new(),
            1 => vec![0],
            2 => vec![0xff; self.rng.usize(1..20)],
            3 => vec![b'k'; self.rng.usize(1..6_000)],
            4..40 => {
                let number = self.rng.u64(0..u64::from(KEYS));
                number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
            }
            _ => {
                let number = self.rng.u32(0..KEYS);
                format!("/users/{:02}/documents/{number:06}", number % 37).into_bytes()
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.rng.u32(0..300) {
            0 => self.rng.usize(0..40_000),
            1..10 => 0,
            _ => self.rng.usize(1..200),
        };
        let fill = self.rng.u8(..);
        let mut value = vec![fill; length];
        let mark = self.rng.u64(..).to_le_bytes();
        value.iter_mut().zip(mark).for_each(|(to, from)| *to = from);
        value
    }

    /// A range with a beginning before its end.
    fn span(&mut self) -> (Vec<u8>, Vec<u8>) {
        loop {
            let (a, b) = (self.key(), self.key());
            match a.cmp(&b) {
                std::cmp::Ordering::Less => return (a, b),
                std::cmp::Ordering::Greater => return (b, a),
                std::cmp::Ordering::Equal => {}
            }
        }
    }

    /// A narrow range: wide ones leave nothing to compare.
    fn narrow(&mut self, model: &Model) -> (Vec<u8>, Vec<u8>) {
        let from = self.key();
        let reach = self.rng.usize(1..12);
        let to = model.range::<Vec<u8>, _>((Bound::Excluded(&from), Bound::Unbounded)).nth(reach);
        to.map_or_else(
            || (from.clone(), [from.as_slice(), &[0]].concat()),
            |(to, _)| (from.clone(), to.clone()),
        )
    }

    fn write(&mut self, ours: &Db, theirs: &DB, shared: &mut Rc<Model>, tally: &mut Tally) -> Result<()> {
        let changes = if self.rng.u32(0..6) == 0 { self.rng.usize(2..20) } else { 1 };
        let (mut batch, mut their_batch) = (ours.batch(), WriteBatch::new());
        for _ in 0..changes {
            match self.rng.u32(0..100) {
                0..75 => {
                    let (key, value) = (self.key(), self.value());
                    batch.put(&key, &value);
                    their_batch.put(&key, &value);
                    Rc::make_mut(shared).insert(key, value.into());
                }
                75..95 => {
                    let key = self.key();
                    batch.delete(&key);
                    their_batch.delete(&key);
                    Rc::make_mut(shared).remove(&key);
                    tally.add("deletes", 1);
                }
                _ => {
                    let is_wide = self.rng.u32(0..40) == 0;
                    let (from, to) = if is_wide { self.span() } else { self.narrow(shared) };
                    batch.delete_range(from.as_slice()..to.as_slice());
                    their_batch.delete_range(&from, &to);
                    let model = Rc::make_mut(shared);
                    let gone: Vec<Vec<u8>> = model.range(from..to).map(|(key, _)| key.clone()).collect();
                    gone.iter().for_each(|key| drop(model.remove(key)));
                    tally.add("range deletes", 1);
                }
            }
        }
        tally.add("changes", changes as u64);
        batch.commit().map_err(|error| told("commit", error))?;
        theirs.write(&their_batch).map_err(|error| told("RocksDB's write", error))
    }

    fn get(&mut self, ours: &Db, theirs: &DB, model: &Model, tally: &mut Tally) -> Result<()> {
        let key = self.key();
        let found = ours.get(&key).map_err(|error| told("get", error))?;
        let their_found = theirs.get(&key).map_err(|error| told("RocksDB's get", error))?;
        tally.add("gets", 1);
        same("get", &key, model.get(&key).map(|value| &**value), found.as_deref(), their_found.as_deref())
    }

    fn multi_get(&mut self, ours: &Db, theirs: &DB, model: &Model, tally: &mut Tally) -> Result<()> {
        let keys: Vec<Vec<u8>> = (0..self.rng.usize(1..40)).map(|_| self.key()).collect();
        let found = ours.multi_get(&keys).map_err(|error| told("multi_get", error))?;
        let their_found = theirs.multi_get(&keys);
        for ((key, ours), theirs) in keys.iter().zip(found).zip(their_found) {
            let theirs = theirs.map_err(|error| told("RocksDB's multi_get", error))?;
            let wanted = model.get(key).map(|value| &**value);
            same("multi_get", key, wanted, ours.as_deref(), theirs.as_deref())?;
        }
        tally.add("multi_get keys", keys.len() as u64);
        Ok(())
    }

    fn scan(&mut self, ours: &Db, theirs: &DB, model: &Model, tally: &mut Tally) -> Result<()> {
        let (from, to) = if self.rng.u32(0..4) == 0 { self.span() } else { self.narrow(model) };
        let is_backward = self.rng.bool();
        tally.add(if is_backward { "scans, backward" } else { "scans, forward" }, 1);
        let range = ours.range(from.as_slice()..to.as_slice());
        let their_range = theirs.raw_iterator_opt(bounded(&from, &to));
        let wanted = model.range(from.clone()..to);
        compare_walks(range, their_range, wanted, is_backward, tally)
    }

    fn read_frozen(&mut self, frozen: &[Frozen<'_>], tally: &mut Tally) -> Result<()> {
        if frozen.is_empty() {
            return Ok(());
        }
        let of = &frozen[self.rng.usize(..frozen.len())];
        let key = self.key();
        let found = of.ours.get(&key).map_err(|error| told("a snapshot's get", error))?;
        let their_found = of.theirs.get(&key).map_err(|error| told("RocksDB's snapshot's get", error))?;
        let wanted = of.model.get(&key).map(|value| &**value);
        same("a snapshot's get", &key, wanted, found.as_deref(), their_found.as_deref())?;
        tally.add("snapshot reads", 1);
        if self.rng.u32(0..4) > 0 {
            return Ok(());
        }
        let (from, to) = self.span();
        let their_range = of.theirs.raw_iterator_opt(bounded(&from, &to));
        let range = of.ours.range(from.as_slice()..to.as_slice());
        compare_walks(range, their_range, of.model.range(from..to), self.rng.bool(), tally)
    }

    /// A few moves of a cursor, which may turn.
    fn walk(&mut self, walker: &mut Walker<'_>, tally: &mut Tally) -> Result<()> {
        for _ in 0..self.rng.usize(1..12) {
            let key = self.key();
            // Where no entry is, only a seek goes on.
            let choice = if walker.at.is_some() { self.rng.u32(0..12) } else { self.rng.u32(0..4) };
            let model = &walker.model;
            let failed = |error| told("a cursor's move", error);
            let entry = match choice {
                0 => {
                    walker.ours.seek(&key).map_err(failed)?;
                    walker.theirs.seek(&key);
                    model.range::<Vec<u8>, _>(&key..).next()
                }
                1 => {
                    walker.ours.seek_for_prev(&key).map_err(failed)?;
                    walker.theirs.seek_for_prev(&key);
                    model.range::<Vec<u8>, _>(..=&key).next_back()
                }
                2 => {
                    walker.ours.seek_to_first().map_err(failed)?;
                    walker.theirs.seek_to_first();
                    model.first_key_value()
                }
                3 => {
                    walker.ours.seek_to_last().map_err(failed)?;
                    walker.theirs.seek_to_last();
                    model.last_key_value()
                }
                turn => {
                    let at = walker.at.take().unwrap_or_default();
                    if turn < 8 {
                        walker.ours.next().map_err(failed)?;
                        walker.theirs.next();
                        model.range::<Vec<u8>, _>((Bound::Excluded(&at), Bound::Unbounded)).next()
                    } else {
                        walker.ours.prev().map_err(failed)?;
                        walker.theirs.prev();
                        model.range::<Vec<u8>, _>(..&at).next_back()
                    }
                }
            };
            tally.add("cursor moves", 1);
            let wanted = entry.map(|(key, value)| (key.as_slice(), &**value));
            let (ours, theirs) = (walker.ours.entry(), walker.theirs.item());
            if ours != wanted || theirs != wanted {
                return Err(format!(
                    "a cursor's move {choice}: the map {}, Shamba {}, RocksDB {}",
                    brief(wanted),
                    brief(ours),
                    brief(theirs)
                ));
            }
            walker.at = wanted.map(|(key, _)| key.to_vec());
        }
        Ok(())
    }

    fn compare_all(&mut self, ours: &Db, theirs: &DB, model: &Model, tally: &mut Tally) -> Result<()> {
        tally.add("whole comparisons", 1);
        compare_walks(
            ours.range(..),
            theirs.raw_iterator(),
            model.range::<Vec<u8>, _>(..),
            self.rng.bool(),
            tally,
        )
    }
}

fn bounded(from: &[u8], to: &[u8]) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    options
}

/// The three walks over a range, entry by entry.
fn compare_walks<'m>(
    mut ours: shamba::Iter,
    mut theirs: DBRawIterator<'_>,
    mut wanted: impl DoubleEndedIterator<Item = (&'m Vec<u8>, &'m Rc<[u8]>)>,
    is_backward: bool,
    tally: &mut Tally,
) -> Result<()> {
    if is_backward {
        theirs.seek_to_last();
    } else {
        theirs.seek_to_first();
    }
    loop {
        let want = if is_backward { wanted.next_back() } else { wanted.next() };
        let want = want.map(|(key, value)| (key.as_slice(), &**value));
        let our = if is_backward { ours.next_back() } else { ours.next() };
        let our = our.transpose().map_err(|error| told("a scan", error))?;
        let our = our.as_ref().map(|(key, value)| (&**key, &**value));
        let their = theirs.item();
        if our != want || their != want {
            return Err(format!(
                "a scan, {}: the map {}, Shamba {}, RocksDB {}",
                if is_backward { "backward" } else { "forward" },
                brief(want),
                brief(our),
                brief(their)
            ));
        }
        if want.is_none() {
            return theirs.status().map_err(|error| told("RocksDB's scan", error));
        }
        tally.add("entries scanned", 1);
        if is_backward {
            theirs.prev();
        } else {
            theirs.next();
        }
    }
}

fn same(
    what: &str,
    key: &[u8],
    wanted: Option<&[u8]>,
    ours: Option<&[u8]>,
    theirs: Option<&[u8]>,
) -> Result<()> {
    if ours == wanted && theirs == wanted {
        return Ok(());
    }
    let entry =
        |value: Option<&[u8]>| value.map_or_else(|| "nothing".to_owned(), |value| brief(Some((key, value))));
    Err(format!("{what}: the map {}, Shamba {}, RocksDB {}", entry(wanted), entry(ours), entry(theirs)))
}

fn brief(entry: Option<(&[u8], &[u8])>) -> String {
    entry.map_or_else(
        || "nothing".to_owned(),
        |(key, value)| {
            let shown = &key[..key.len().min(60)];
            format!(
                "{:?}={} bytes {:02x?}",
                String::from_utf8_lossy(shown),
                value.len(),
                &value[..value.len().min(8)]
            )
        },
    )
}
