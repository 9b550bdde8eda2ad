//! Timed lookups in several instances of a tree, alternating: baseline and idea, on the same keys.
//!
//! Keys are generated before the clock starts, [`BATCH`] at a time; each side looks up all of them,
//! with a different side first each time. Other load on the machine therefore affects all sides
//! alike. Every answer is checked within the timed part: one comparison of eight bytes on every
//! side.
//!
//! Batches in which the thread waited for a CPU, as the system reports, are discarded on all sides,
//! as long as half of the batches remain.

use std::fs::File;
use std::time::{Duration, Instant};

use shamba::{Db, Stats};
use shamba_workload::{Distribution, Picker};

use crate::items::Items;
use crate::lab::Lab;
use crate::rows::{Row, row};
use crate::scale::Scale;
use crate::tree::Tree;

/// Keys that are generated and looked up at a time.
const BATCH: usize = 128;
/// Maximum time of all sides' lookups together, unless a batch takes longer. At the paper's scale
/// there is no limit.
fn time_max(scale: Scale) -> Duration {
    scale.pick(Duration::from_secs(1), Duration::from_secs(4), Duration::MAX)
}

/// Nanoseconds of waiting for a processor above which a batch was disturbed.
pub(crate) const WAIT_NS_MAX: u64 = 20_000;

/// Lookups to be done.
#[derive(Clone, Debug)]
pub(crate) struct Questions {
    /// Share of lookups for absent keys.
    pub empty_fraction: f64,
    /// Distribution of requests over items.
    pub distribution: Distribution,
    /// Only these of the existing items; all if there are none.
    pub among: Vec<u64>,
    /// Lookups on each side.
    pub lookups: u64,
    /// The side that looks up this number of keys per call, if any.
    pub in_one_call: Option<(usize, usize)>,
}

impl Questions {
    /// Uniform over all keys.
    pub fn uniform(empty_fraction: f64, lookups: u64) -> Self {
        let (distribution, among) = (Distribution::Uniform, Vec::new());
        Self { empty_fraction, distribution, among, lookups, in_one_call: None }
    }
}

/// The median time of one operation in nanoseconds, over batches of `each` operations.
pub(crate) fn median_ns(batches: usize, each: usize, mut batch: impl FnMut(usize)) -> f64 {
    let of_batch = |number| {
        let since = Instant::now();
        batch(number);
        since.elapsed().as_nanos() as f64 / each.max(1) as f64
    };
    median((0..batches).map(of_batch).collect())
}

/// The middle of some values; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len() / 2, values.len() % 2) {
        (0, 0) => 0.0,
        (middle, 0) => f64::midpoint(values[middle - 1], values[middle]),
        (middle, _) => values[middle],
    }
}

/// Keys to look up. The value of an item begins with its number.
pub(crate) trait Keys {
    /// The number of items.
    fn count(&self) -> u64;
    /// The key of an item, or the absent one behind it.
    fn key(&self, item: u64, absent: bool, key: &mut Vec<u8>);
}

impl Keys for Tree {
    fn count(&self) -> u64 {
        self.spec.entries
    }

    fn key(&self, item: u64, absent: bool, key: &mut Vec<u8>) {
        self.key(item, absent, key);
    }
}

impl Keys for Items {
    fn count(&self) -> u64 {
        self.count
    }

    fn key(&self, item: u64, absent: bool, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&(*self).key(item, absent));
    }
}

/// The lookups of one side.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// Nanoseconds of a lookup.
    pub ns: f64,
    /// Counters of the timed lookups.
    pub stats: Stats,
}

impl Side {
    /// A counter, per lookup.
    pub fn per_lookup(&self, count: u64) -> f64 {
        count as f64 / self.stats.lookups.max(1) as f64
    }

    /// Reads, pages and bytes of a lookup from files of tables, as cells.
    pub fn io(&self) -> Row {
        io(&self.stats)
    }

    /// The cells `levels`, `runs`, `comparable` and `emulated`: the shape of the tree, and whether
    /// it has at least the levels and runs that it should have.
    pub fn shape(&self, levels: u32, runs: u64) -> Row {
        let stats = &self.stats;
        row! {
            levels: stats.deepest_level,
            runs: stats.runs,
            comparable: stats.deepest_level >= levels && stats.runs >= runs,
            emulated: stats.emulated,
        }
    }
}

/// Per lookup: reads, pages (of 4 KiB, each read rounded up), pages of the files that they touch,
/// and bytes, in total; and pages by kind.
pub(crate) fn io(stats: &Stats) -> Row {
    let reads = &stats.reads;
    let per_lookup = |count: u64| count as f64 / stats.lookups.max(1) as f64;
    let all = reads.all();
    row! {
        reads: per_lookup(all.count),
        pages: per_lookup(all.pages),
        pages_touched: per_lookup(all.pages_touched),
        read_bytes: per_lookup(all.bytes),
        filter_pages: per_lookup(reads.filter.pages),
        index_pages: per_lookup(reads.index.pages),
        data_pages: per_lookup(reads.data.pages),
        value_pages: per_lookup(reads.value.pages),
    }
}

/// Shares of a lookup's time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    /// Hashing time of a lookup in nanoseconds.
    pub hash_ns: f64,
    pub hash: f64,
    pub probe: f64,
    pub index: f64,
    pub data: f64,
    pub other: f64,
}

/// Looks up the same keys on all sides, alternating, after a warm-up of a tenth as many lookups.
///
/// # Errors
/// Errors of the engine, and a wrong answer.
pub(crate) fn compare(
    lab: &Lab<'_>,
    keys: &dyn Keys,
    sides: &[&Db],
    questions: &Questions,
) -> Result<Vec<Side>, String> {
    let mut asker = Asker::new(keys, questions, lab.seed, time_max(lab.scale));
    let warm = (questions.lookups / 10).clamp(1, 4 * BATCH as u64);
    asker.rounds(sides, warm)?;
    let before: Vec<Stats> = sides.iter().map(|db| db.stats()).collect();
    let (lookups, ns) = asker.rounds(sides, questions.lookups)?;
    let side = |((db, before), ns): ((&&Db, &Stats), u64)| Side {
        ns: ns as f64 / lookups as f64,
        stats: db.stats().since(before),
    };
    Ok(sides.iter().zip(&before).zip(ns).map(side).collect())
}

/// Looks up keys on all sides until caches are warm: the distribution of `questions`, but none of
/// the stream of [`compare`]. Each round has its own stream.
///
/// # Errors
/// As [`compare`].
pub(crate) fn warm(
    lab: &Lab<'_>,
    (keys, round): (&dyn Keys, u64),
    sides: &[&Db],
    questions: &Questions,
) -> Result<(), String> {
    let seed = lab.seed ^ 4 ^ (round + 1) << 32;
    let mut asker = Asker::new(keys, questions, seed, Duration::MAX);
    asker.rounds(sides, questions.lookups).map(|_| ())
}

/// Counters of all lookups of `questions`, without a time limit.
///
/// # Errors
/// As [`compare`].
pub(crate) fn count(lab: &Lab<'_>, keys: &dyn Keys, db: &Db, questions: &Questions) -> Result<Stats, String> {
    let mut asker = Asker::new(keys, questions, lab.seed, Duration::MAX);
    let before = db.stats();
    asker.rounds(&[db], questions.lookups)?;
    Ok(db.stats().since(&before))
}

/// Phases of the lookups of `db`, by the engine's timers, which take time themselves. Disturbed
/// batches are discarded as long as an eighth remains: only one side is measured.
///
/// # Errors
/// As [`compare`].
pub(crate) fn parts(lab: &Lab<'_>, keys: &dyn Keys, db: &Db, questions: &Questions) -> Result<Parts, String> {
    let mut asker = Asker::new(keys, questions, lab.seed ^ 2, time_max(lab.scale));
    let (mut quiet, mut disturbed) = (Timed::default(), Timed::default());
    let waiting = Waiting::of_this_thread();
    let begin = Instant::now();
    let mut done = 0;
    db.set_timers(true);
    while done < questions.lookups && (done == 0 || begin.elapsed() < asker.time_max) {
        let batch = (BATCH as u64).min(questions.lookups - done);
        let (before, waited_before_ns) = (db.stats(), waiting.ns());
        asker.rounds(&[db], batch)?;
        let is_quiet = waiting.ns().saturating_sub(waited_before_ns) <= WAIT_NS_MAX;
        if is_quiet { &mut quiet } else { &mut disturbed }.add(&db.stats().since(&before));
        done += batch;
    }
    db.set_timers(false);
    Ok(if 8 * quiet.lookups < disturbed.lookups { disturbed } else { quiet }.parts())
}

/// The engine's timers, over some batches.
#[derive(Default)]
struct Timed {
    lookups: u64,
    hash_ns: u64,
    probe_ns: u64,
    index_ns: u64,
    data_ns: u64,
    other_ns: u64,
}

impl Timed {
    fn add(&mut self, stats: &Stats) {
        self.lookups += stats.lookups;
        self.hash_ns += stats.hash_ns;
        self.probe_ns += stats.probe_ns;
        self.index_ns += stats.index_ns;
        self.data_ns += stats.data_ns;
        self.other_ns += stats.other_ns;
    }

    fn parts(&self) -> Parts {
        let all = self.hash_ns + self.probe_ns + self.index_ns + self.data_ns + self.other_ns;
        let part = |ns: u64| ns as f64 / all.max(1) as f64;
        Parts {
            hash_ns: self.hash_ns as f64 / self.lookups.max(1) as f64,
            hash: part(self.hash_ns),
            probe: part(self.probe_ns),
            index: part(self.index_ns),
            data: part(self.data_ns),
            other: part(self.other_ns),
        }
    }
}

/// Lookups and the nanoseconds of each side.
struct Counted {
    lookups: u64,
    ns: Vec<u64>,
}

impl Counted {
    fn new(sides: usize) -> Self {
        Self { lookups: 0, ns: vec![0; sides] }
    }

    fn add(&mut self, lookups: u64, ns: &[u64]) {
        self.lookups += lookups;
        self.ns.iter_mut().zip(ns).for_each(|(all, ns)| *all += ns);
    }
}

/// Time that this thread has waited for a CPU.
pub(crate) struct Waiting {
    /// Run time, waiting time and time slices; `None` if the system does not report them.
    schedule: Option<File>,
}

impl Waiting {
    pub fn of_this_thread() -> Self {
        Self { schedule: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// Nanoseconds since the thread began; 0 if the system does not report it.
    pub fn ns(&self) -> u64 {
        let mut text = [0; 96];
        let read = self
            .schedule
            .as_ref()
            .and_then(|file| shamba_workload::read_from_start(file, &mut text).ok())
            .unwrap_or(0);
        let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
        text.split_ascii_whitespace().nth(1).and_then(|waited| waited.parse().ok()).unwrap_or(0)
    }
}

/// Draws items and generates batches of their keys.
struct Asker<'a> {
    of: &'a dyn Keys,
    questions: &'a Questions,
    picker: Picker,
    /// Number of items to draw from.
    items: u64,
    keys: Vec<Vec<u8>>,
    /// The item that must be found; none for an absent key.
    expected: Vec<Option<u64>>,
    turn: usize,
    time_max: Duration,
}

impl<'a> Asker<'a> {
    fn new(of: &'a dyn Keys, questions: &'a Questions, seed: u64, time_max: Duration) -> Self {
        let among = questions.among.len() as u64;
        let items = if among > 0 { among } else { of.count() };
        Self {
            of,
            questions,
            picker: Picker::new(questions.distribution, items, seed ^ 0x61_736b, seed),
            items,
            keys: vec![Vec::new(); BATCH],
            expected: vec![None; BATCH],
            turn: 0,
            time_max,
        }
    }

    fn draw(&mut self, lookups: usize) {
        let empty_fraction = self.questions.empty_fraction;
        for (key, expected) in self.keys.iter_mut().zip(&mut self.expected).take(lookups) {
            let drawn = self.picker.pick(self.items);
            let item = self.questions.among.get(drawn as usize).copied().unwrap_or(drawn);
            let absent = empty_fraction >= 1.0 || self.picker.rng().f64() < empty_fraction;
            self.of.key(item, absent, key);
            *expected = (!absent).then_some(item);
        }
    }

    /// Runs `lookups` lookups on each side, fewer if time is up; returns the number of counted
    /// ones, and their time on each side.
    fn rounds(&mut self, sides: &[&Db], lookups: u64) -> Result<(u64, Vec<u64>), String> {
        let begin = Instant::now();
        let waiting = Waiting::of_this_thread();
        let mut quiet = Counted::new(sides.len());
        let mut disturbed = Counted::new(sides.len());
        let mut done = 0;
        while done < lookups && (done == 0 || begin.elapsed() < self.time_max) {
            let batch = BATCH.min((lookups - done) as usize);
            self.draw(batch);
            let waited_before_ns = waiting.ns();
            let mut ns = vec![0; sides.len()];
            for turn in 0..sides.len() {
                let side = (self.turn + turn) % sides.len();
                ns[side] = match self.questions.in_one_call {
                    Some((many, keys)) if many == side => self.look_many_up(sides[side], batch, keys)?,
                    _ => self.look_up(sides[side], batch)?,
                };
            }
            let is_quiet = waiting.ns().saturating_sub(waited_before_ns) <= WAIT_NS_MAX;
            if is_quiet { &mut quiet } else { &mut disturbed }.add(batch as u64, &ns);
            self.turn += 1;
            done += batch as u64;
        }
        if quiet.lookups < disturbed.lookups {
            let Counted { lookups, ns } = disturbed;
            quiet.add(lookups, &ns);
        }
        Ok((quiet.lookups.max(1), quiet.ns))
    }

    /// Runs the lookups and returns their time in nanoseconds.
    fn look_up(&self, db: &Db, lookups: usize) -> Result<u64, String> {
        let number = |value: &[u8]| value.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
        let since = Instant::now();
        for (key, expected) in self.keys.iter().zip(&self.expected).take(lookups) {
            let found = db.get_with(key, number).map_err(|error| error.chain().to_string())?.flatten();
            if found != *expected {
                return Err(format!("a wrong answer: {found:?} for the key of {expected:?}"));
            }
        }
        Ok(since.elapsed().as_nanos() as u64)
    }

    /// The same, with `in_one_call` keys per call.
    fn look_many_up(&self, db: &Db, lookups: usize, in_one_call: usize) -> Result<u64, String> {
        let number = |value: &[u8]| value.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
        let (keys, expected) = (&self.keys[..lookups], &self.expected[..lookups]);
        let since = Instant::now();
        for (keys, expected) in keys.chunks(in_one_call).zip(expected.chunks(in_one_call)) {
            let found = db.multi_get(keys).map_err(|error| error.chain().to_string())?;
            for (found, expected) in found.iter().zip(expected) {
                let found = found.as_ref().and_then(|value| number(value));
                if found != *expected {
                    return Err(format!("a wrong answer: {found:?} for the key of {expected:?}"));
                }
            }
        }
        Ok(since.elapsed().as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::tree::Spec;

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!([vec![3.0, 1.0, 2.0], vec![4.0, 1.0], Vec::new()].map(median), [2.0, 2.5, 0.0]);
    }

    #[test]
    fn both_sides_are_asked_the_same_and_only_one_hashes_for_every_filter() {
        let scratch = tempfile::tempdir().expect("a directory");
        let lab = Lab::new(scratch.path().to_path_buf(), Scale::Quick, 3, &|_| {});
        let spec = Spec::leveled(11_110, (16, 64), 10.0, 4);
        let tree = Tree::lay(&lab, "sides", spec, Device::Memory).expect("laid down");
        let shared = tree.open(Device::Memory, &[]).expect("open");
        let unshared = tree.open(Device::Memory, &[("hash-sharing", "off")]).expect("open");
        let questions = Questions::uniform(1.0, 2_000);
        let sides = compare(&lab, &tree, &[&unshared, &shared], &questions).expect("right answers");
        let [baseline, idea] = &sides[..] else { panic!("two sides") };
        assert_eq!(baseline.stats.lookups, idea.stats.lookups);
        assert_eq!(baseline.stats.false_positives, idea.stats.false_positives);
        assert_eq!(idea.per_lookup(idea.stats.hashes), 1.0);
        assert_eq!(baseline.io().number("pages"), idea.io().number("pages"));
        // A lookup that consulted no filter still hashed once.
        let consulted = baseline.stats.filters_consulted;
        assert!((consulted..consulted + baseline.stats.lookups / 10).contains(&baseline.stats.hashes));
        let before = shared.stats().lookups;
        warm(&lab, (&tree, 0), &[&shared], &questions).expect("right answers");
        assert_eq!(shared.stats().lookups - before, questions.lookups);
        let many = Questions { in_one_call: Some((1, 32)), ..Questions::uniform(0.5, 2_000) };
        let sides = compare(&lab, &tree, &[&shared, &shared], &many).expect("right answers");
        assert!(sides.iter().all(|side| side.ns > 0.0));
        let found = Questions { among: tree.items_of(1, 5), ..Questions::uniform(0.0, 500) };
        let sides = compare(&lab, &tree, &[&shared], &found).expect("right answers");
        assert_eq!(sides[0].stats.found, sides[0].stats.lookups);
        let parts = parts(&lab, &tree, &unshared, &questions).expect("timed");
        let all = parts.hash + parts.probe + parts.index + parts.data + parts.other;
        assert!((all - 1.0).abs() < 1e-9 && parts.hash > 0.0, "{parts:?}");
    }
}
