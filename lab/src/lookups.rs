//! Lookups of several openings of a tree in turns: baseline and idea, on the same keys, at the same time.
//!
//! Keys are made before the clock starts, [`BATCH`] at a time; each side looks all of them up, the first side another one each time.
//! So whatever else the machine does meets all sides alike. Every answer is checked, inside the clock: one comparison of
//! eight bytes on every side.
//!
//! Batches in which the thread waited for a processor, as the system tells, are left out on all sides, as long as half of
//! them are left: what others did in that time says nothing about a lookup.
//!
//! A repeat is as many batches as wanted; what a side needed for a lookup is told by the median of the repeats, with the least
//! and the most.

use std::fs::File;
use std::time::{Duration, Instant};

use shamba::{Db, Stats};

use super::experiment::{Lab, Scale};
use super::table::Cell;
use super::tree::Tree;
use crate::items::Items;
use shamba_workload::{Distribution, Picker};

/// Keys that are made, and looked up, at a time.
const BATCH: usize = 128;
/// What a repeat takes at most, all sides together, unless a batch takes longer. The paper's scale asks for all that the paper asked.
fn repeat_most(scale: Scale) -> Duration {
    const MOST: Duration = Duration::from_secs(4);
    scale.pick(MOST, MOST, Duration::MAX)
}

/// A batch in which the thread waited longer for a processor was disturbed.
pub(super) const WAITED_MOST_NS: u64 = 20_000;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Questions {
    /// The share of lookups for absent keys.
    pub empty_fraction: f64,
    /// How requests spread over items.
    pub distribution: Distribution,
    /// Only these of the items that are there; all if there are none.
    pub among: Vec<u64>,
    /// Lookups of a repeat, on each side.
    pub lookups: u64,
    /// The side, if there is one, that is asked for so many keys in a call.
    pub in_one_call: Option<(usize, usize)>,
}

impl Questions {
    /// Uniform over all keys.
    pub fn uniform(empty_fraction: f64, lookups: u64) -> Self {
        let (distribution, among) = (Distribution::Uniform, Vec::new());
        Self { empty_fraction, distribution, among, lookups, in_one_call: None }
    }
}

/// The median of some values, and what they lay between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// What one of `each` things takes in nanoseconds, if `batch` does so many and is called `batches` times: the median batch, as others may have the
    /// processor in some.
    pub fn median_ns(batches: usize, each: usize, mut batch: impl FnMut(usize)) -> f64 {
        let of_batch = |number| {
            let since = Instant::now();
            batch(number);
            since.elapsed().as_nanos() as f64 / each.max(1) as f64
        };
        Self::of((0..batches).map(of_batch).collect()).median
    }

    /// The share that the idea spares the baseline, pair by pair: repeats that were measured in turns.
    pub fn of_gains(idea: &[f64], baseline: &[f64]) -> Self {
        Self::of(idea.iter().zip(baseline).map(|(idea, baseline)| 1.0 - idea / baseline).collect())
    }

    /// Of values in any order; of none it is 0.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or_default();
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { at(middle) } else { (at(middle.wrapping_sub(1)) + at(middle)) / 2.0 };
        Self { median, least: at(0), most: at(values.len().wrapping_sub(1)) }
    }
}

/// What can be asked for. The value of an item begins with its number.
pub(super) trait Keys {
    /// How many items there are.
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

/// What lookups on one side took.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// Nanoseconds a lookup, over the repeats.
    pub ns: Spread,
    /// The same of each repeat, in order.
    pub repeats_ns: Vec<f64>,
    /// Counters over all repeats.
    pub stats: Stats,
}

impl Side {
    /// A counter, per lookup.
    pub fn per_lookup(&self, count: u64) -> f64 {
        count as f64 / self.stats.lookups.max(1) as f64
    }

    /// The share of time that `self` spares `baseline`: of each repeat, then the median.
    pub fn gain_over(&self, baseline: &Self) -> Spread {
        Spread::of_gains(&self.repeats_ns, &baseline.repeats_ns)
    }

    /// The last four cells of a measured row, `levels`, `runs`, `comparable`, `emulated`: the tree as it was, and whether it has
    /// at least the levels and runs that it should have.
    pub fn shape(&self, levels: u32, runs: u64) -> [Cell; 4] {
        let stats = &self.stats;
        let is_comparable = stats.deepest_level >= levels && stats.runs >= runs;
        [stats.deepest_level.into(), stats.runs.into(), is_comparable.into(), stats.emulated.into()]
    }
}

/// What lookups spend their time with, in parts of all of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    /// Nanoseconds of a lookup that hashing takes.
    pub hash_ns: f64,
    pub hash: f64,
    pub probe: f64,
    pub index: f64,
    pub data: f64,
    pub other: f64,
}

/// Looks the same keys up on all sides, in turns.
///
/// # Errors
/// What the engine says, and a wrong answer.
pub(super) fn compare(
    lab: &mut Lab<'_>,
    keys: &dyn Keys,
    sides: &[&Db],
    questions: &Questions,
) -> Result<Vec<Side>, String> {
    let mut asker = Asker::new(keys, questions, lab.seed, repeat_most(lab.scale));
    let warm = (questions.lookups / 10).clamp(1, 4 * BATCH as u64);
    asker.rounds(sides, warm)?;
    let before: Vec<Stats> = sides.iter().map(|db| db.stats()).collect();
    let mut repeats: Vec<Vec<f64>> = vec![Vec::new(); sides.len()];
    for _ in 0..lab.repeats.max(1) {
        let (lookups, ns) = asker.rounds(sides, questions.lookups)?;
        for (all, ns) in repeats.iter_mut().zip(ns) {
            all.push(ns as f64 / lookups as f64);
        }
    }
    let side = |((db, before), repeats_ns): ((&&Db, &Stats), Vec<f64>)| Side {
        ns: Spread::of(repeats_ns.clone()),
        repeats_ns,
        stats: db.stats().since(before),
    };
    Ok(sides.iter().zip(&before).zip(repeats).map(side).collect())
}

/// Looks keys up on all sides until caches are warm: all that `questions` asks for, however long that takes, and none of the stream that
/// [`compare`] asks.
///
/// # Errors
/// As [`compare`].
pub(super) fn warm(lab: &Lab<'_>, tree: &Tree, sides: &[&Db], questions: &Questions) -> Result<(), String> {
    let mut asker = Asker::new(tree, questions, lab.seed ^ 4, Duration::MAX);
    asker.rounds(sides, questions.lookups).map(|_| ())
}

/// What the lookups of `db` spend their time with, by the engine's timers, which take time themselves, some of it for every filter. Disturbed batches
/// are left out as long as an eighth is left: this is one side's alone.
///
/// # Errors
/// As [`compare`].
pub(super) fn parts(lab: &Lab<'_>, tree: &Tree, db: &Db, questions: &Questions) -> Result<Parts, String> {
    let mut asker = Asker::new(tree, questions, lab.seed ^ 2, repeat_most(lab.scale));
    let (mut quiet, mut disturbed) = (Timed::default(), Timed::default());
    let waiting = Waiting::of_this_thread();
    let begin = Instant::now();
    let mut done = 0;
    db.set_timers(true);
    while done < questions.lookups && (done == 0 || begin.elapsed() < asker.repeat_most) {
        let batch = (BATCH as u64).min(questions.lookups - done);
        let (before, waited_before_ns) = (db.stats(), waiting.ns());
        asker.rounds(&[db], batch)?;
        let is_quiet = waiting.ns().saturating_sub(waited_before_ns) <= WAITED_MOST_NS;
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

/// Lookups, and what they took on each side.
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

/// How long this thread has waited for a processor.
pub(super) struct Waiting {
    /// Run time, waiting time and time slices; none where the system does not tell.
    schedule: Option<File>,
}

impl Waiting {
    pub fn of_this_thread() -> Self {
        Self { schedule: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// In nanoseconds, since the thread began; 0 where the system does not tell.
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

/// Draws items and makes batches of their keys.
struct Asker<'a> {
    of: &'a dyn Keys,
    questions: &'a Questions,
    picker: Picker,
    /// How many items are drawn from.
    items: u64,
    keys: Vec<Vec<u8>>,
    /// The item that must be found; none for an absent key.
    expected: Vec<Option<u64>>,
    turn: usize,
    repeat_most: Duration,
}

impl<'a> Asker<'a> {
    fn new(of: &'a dyn Keys, questions: &'a Questions, seed: u64, repeat_most: Duration) -> Self {
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
            repeat_most,
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

    /// So many lookups on each side, fewer if time is up; how many of them count, and what these took on each.
    fn rounds(&mut self, sides: &[&Db], lookups: u64) -> Result<(u64, Vec<u64>), String> {
        let begin = Instant::now();
        let waiting = Waiting::of_this_thread();
        let mut quiet = Counted::new(sides.len());
        let mut disturbed = Counted::new(sides.len());
        let mut done = 0;
        while done < lookups && (done == 0 || begin.elapsed() < self.repeat_most) {
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
            let is_quiet = waiting.ns().saturating_sub(waited_before_ns) <= WAITED_MOST_NS;
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

    /// What it took, in nanoseconds.
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

    /// The same, for so many keys in each call.
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
    fn a_spread_is_the_middle_and_both_ends() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0]), Spread { median: 2.5, least: 1.0, most: 4.0 });
        assert_eq!(Spread::of(Vec::new()).median, 0.0);
    }

    #[test]
    fn both_sides_are_asked_the_same_and_only_one_hashes_for_every_filter() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut progress = |_: &str| {};
        let mut lab = Lab::new(scratch.path().to_path_buf(), Scale::Quick, 3, &mut progress);
        let spec = Spec::leveled(11_110, (16, 64), 10.0, 4);
        let tree = Tree::lay(&mut lab, "sides", spec, Device::Memory).expect("laid down");
        let shared = tree.open(Device::Memory, &[]).expect("open");
        let unshared = tree.open(Device::Memory, &[("hash-sharing", "off")]).expect("open");
        let questions = Questions::uniform(1.0, 2_000);
        let sides = compare(&mut lab, &tree, &[&unshared, &shared], &questions).expect("right answers");
        let [baseline, idea] = &sides[..] else { panic!("two sides") };
        assert_eq!(baseline.stats.lookups, idea.stats.lookups);
        assert_eq!(baseline.stats.false_positives, idea.stats.false_positives);
        assert_eq!(idea.per_lookup(idea.stats.hashes), 1.0);
        // A lookup that consulted no filter hashed once all the same.
        let consulted = baseline.stats.filters_consulted;
        assert!((consulted..consulted + baseline.stats.lookups / 10).contains(&baseline.stats.hashes));
        assert!(idea.gain_over(baseline).median < 1.0);
        let before = shared.stats().lookups;
        warm(&lab, &tree, &[&shared], &questions).expect("right answers");
        assert_eq!(shared.stats().lookups - before, questions.lookups);
        let many = Questions { in_one_call: Some((1, 32)), ..Questions::uniform(0.5, 2_000) };
        let sides = compare(&mut lab, &tree, &[&shared, &shared], &many).expect("right answers");
        assert!(sides.iter().all(|side| side.ns.least > 0.0));
        let found = Questions { among: tree.items_of(1, 5), ..Questions::uniform(0.0, 500) };
        let sides = compare(&mut lab, &tree, &[&shared], &found).expect("right answers");
        assert_eq!(sides[0].stats.found, sides[0].stats.lookups);
        let parts = parts(&lab, &tree, &unshared, &questions).expect("timed");
        let all = parts.hash + parts.probe + parts.index + parts.data + parts.other;
        assert!((all - 1.0).abs() < 1e-9 && parts.hash > 0.0, "{parts:?}");
    }
}
