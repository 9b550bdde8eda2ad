//! Generated workloads with the text format and options of the K-V-Workload-Generator, but with a
//! seed: the same options give the same file.
//!
//! A key is a number in base-62 digits, padded with letters derived from the number: keys are in
//! the order of their numbers. All keys that a mix will insert are drawn in advance. A [`LiveSet`]
//! over them in key order records which are live, so that a lookup can select the k-th live key and
//! no key is stored as text.
//!
//! Differences from the K-V-Workload-Generator:
//! - the share of unique existing keys (`--UE`) and the share of deletes of absent keys (`-z`) are
//!   applied; the original parses but ignores them;
//! - updates go to live keys;
//! - a range with a share of 0 names an absent key twice.
//!
//! Not here: the order of the operations ([`super::interleave`]), and their distribution
//! ([`super::spread`]).

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Write};

use fastrand::Rng;
use shamba::trace::{HEADER, Line, Payload};

use super::interleave::{Class, Left};
use super::live::LiveSet;
use super::options::{Entries, Made, Mix};
use super::reader::TraceReader;
use super::spread::{Drawer, Drawn};
use crate::error::Error;
use crate::mix::mix2;

/// Digits of keys, in ascending order.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Letters of values.
const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Maximum digits for the number of a key: as many as fit in 64 bits.
const NUMBER_DIGITS: usize = 10;
/// The distribution of inserts applies to this many first digits; the others are uniform.
const SPREAD_DIGITS: u32 = 2;
/// Maximum consecutive draws of a number that is already taken.
const TRIES: u32 = 10_000;
/// Size at which gathered text is written.
const CHUNK_BYTES: usize = 256 << 10;

/// Generator of workloads: one mix after the other, over the same keys.
pub struct Generator {
    entries: Entries,
    key_bytes: usize,
    digits: usize,
    seed: u64,
    rng: Rng,
    /// Numbers of all keys that were or will be inserted: ascending, and as a set.
    numbers: Vec<u64>,
    taken: HashSet<u64>,
    live: LiveSet,
}

impl Generator {
    /// A generator without keys. The same seed and mixes give the same text.
    ///
    /// # Errors
    /// [`Error::Options`] with the option and its bounds.
    pub fn new(entries: Entries, seed: u64) -> Result<Self, Error> {
        let refused = |text: String| Err(Error::Options(text));
        let Entries { entry_bytes, key_share, .. } = entries;
        if !(1..=256 << 20).contains(&entry_bytes) {
            return refused(format!("-E must be from 1 byte to 256 MiB, not {entry_bytes}"));
        }
        if !(key_share > 0.0 && key_share <= 1.0) {
            return refused(format!("-L must be above 0 and at most 1, not {key_share}"));
        }
        let key_bytes = entries.key_bytes();
        if key_bytes > 65_535 {
            return refused(format!("-E and -L give keys of {key_bytes} bytes; the maximum is 65535"));
        }
        Ok(Self {
            entries,
            key_bytes,
            digits: key_bytes.min(NUMBER_DIGITS),
            seed,
            rng: Rng::with_seed(seed),
            numbers: Vec::new(),
            taken: HashSet::new(),
            live: LiveSet::default(),
        })
    }

    /// Takes over the live keys at the end of another file of this generator with the same entries.
    ///
    /// # Errors
    /// [`Error::Trace`]: errors of reading, and keys that this generator would not make.
    pub fn preload(&mut self, trace: &mut TraceReader) -> Result<u64, Error> {
        let mut live = self.live_numbers();
        let number_of = |trace: &TraceReader, key: Option<u64>| {
            let entries = "a key that this generator does not make with these -E and -L";
            key.ok_or_else(|| Error::Trace(trace.wrong(entries)))
        };
        loop {
            enum Change {
                Insert(Option<u64>),
                Delete(Option<u64>),
                DeleteRange(Vec<u8>, Vec<u8>),
                Nothing,
            }
            let change = match trace.next_line()? {
                None => break,
                Some(Line::Insert { key, .. } | Line::Update { key, .. }) => {
                    Change::Insert(self.number_of(&key))
                }
                Some(Line::Delete { key }) => Change::Delete(self.number_of(&key)),
                Some(Line::DeleteThrough { from, to }) => {
                    Change::DeleteRange(from.into_owned(), to.into_owned())
                }
                Some(_) => Change::Nothing,
            };
            match change {
                Change::Insert(key) => _ = live.insert(number_of(trace, key)?),
                Change::Delete(key) => _ = live.remove(&number_of(trace, key)?),
                Change::DeleteRange(from, to) => {
                    let mut key = Vec::new();
                    live.retain(|&number| {
                        self.key(number, &mut key);
                        key < from || key > to
                    });
                }
                Change::Nothing => {}
            }
        }
        self.numbers = live.iter().copied().collect();
        self.numbers.sort_unstable();
        self.live = LiveSet::new(vec![true; self.numbers.len()]);
        self.taken = live;
        Ok(self.numbers.len() as u64)
    }

    fn live_numbers(&self) -> HashSet<u64> {
        (0..self.live.len()).map(|rank| self.numbers[self.live.select(rank)]).collect()
    }

    /// Writes the operations of `mix` to `out`, and reports progress as (done, total).
    ///
    /// # Errors
    /// [`Error::Options`]: the mix is impossible; [`Error::File`]: writing failed.
    pub fn make(
        &mut self,
        mix: &Mix,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Made, Error> {
        mix.check().map_err(Error::Options)?;
        let mut left = mix.left();
        let new = self.draw_inserts(mix).map_err(Error::Options)?;
        let absent = self.draw_absent(mix, &left).map_err(Error::Options)?;
        let places = self.numbers.len() as u64;
        let mut run = Run {
            updates: Drawer::new(mix.update_spread, places, self.seed ^ 1),
            existing: Drawer::new(mix.existing_spread, places, self.seed ^ 2),
            empty: Drawer::new(mix.empty_spread, absent.len() as u64, self.seed ^ 3),
            asked: mix.unique_existing.map(|share| Asked {
                places: LiveSet::new(vec![false; self.numbers.len()]),
                left: ((left.of(Class::Lookup) - left.empty_lookups) as f64 * share).round().max(1.0) as u64,
            }),
            new: new.into_iter(),
            absent,
            mix,
            made: Made::default(),
            text: Vec::with_capacity(CHUNK_BYTES + (4 << 10)),
            key: Vec::new(),
            other: Vec::new(),
            value: Vec::new(),
        };
        if self.entries.answers || self.entries.lengths_only {
            run.text.extend_from_slice(HEADER.as_bytes());
            run.text.push(b'\n');
        }
        let total = left.total();
        while left.total() > 0 {
            let Some(class) = left.next(&mut self.rng, self.live.len() as u64) else {
                return Err(Error::Options(
                    "no live keys remain for the rest of the mix: use a larger -I".to_owned(),
                ));
            };
            self.operation(class, &mut left, &mut run);
            left.counts[class as usize] -= 1;
            if run.text.len() >= CHUNK_BYTES {
                run.write(out)?;
                progress(total - left.total(), total);
            }
        }
        run.made.operations = total;
        run.made.live_keys = self.live.len() as u64;
        if self.entries.answers || self.entries.lengths_only {
            Line::End { operations: total }.write(&mut run.text);
        }
        run.write(out)?;
        out.flush().map_err(not_written)?;
        Ok(run.made)
    }

    /// Appends one operation.
    fn operation(&mut self, class: Class, left: &mut Left, run: &mut Run<'_>) {
        match class {
            Class::Insert => {
                run.made.inserts += 1;
                let Some(place) = run.new.next() else { return };
                self.live.insert(place);
                self.put(place, false, run);
            }
            Class::Update => {
                run.made.updates += 1;
                let place = self.draw_live(&run.updates);
                self.put(place, true, run);
            }
            Class::Delete => {
                run.made.deletes += 1;
                let deletes = left.of(Class::Delete);
                let is_empty = left.empty_deletes > 0
                    && (self.live.len() == 0 || self.rng.u64(..deletes) < left.empty_deletes);
                if is_empty {
                    left.empty_deletes -= 1;
                    let number = self.absent_number();
                    self.key(number, &mut run.key);
                } else {
                    let place = self.live.select(self.rng.usize(..self.live.len()));
                    self.live.remove(place);
                    self.key(self.numbers[place], &mut run.key);
                }
                Line::Delete { key: Cow::Borrowed(&run.key) }.write(&mut run.text);
                if !self.entries.answers && !self.entries.lengths_only {
                    // The K-V-Workload-Generator writes the same bytes.
                    run.text.pop();
                    run.text.extend_from_slice(b" \n");
                }
            }
            Class::RangeDelete => {
                run.made.range_deletes += 1;
                if let Some((first, count)) = self.range(run.mix.range_delete_share, run) {
                    for _ in 0..count {
                        self.live.remove(self.live.select(first));
                    }
                }
                let (from, to) = (Cow::Borrowed(&run.key[..]), Cow::Borrowed(&run.other[..]));
                Line::DeleteThrough { from, to }.write(&mut run.text);
            }
            Class::Lookup => {
                run.made.lookups += 1;
                let lookups = left.of(Class::Lookup);
                let is_empty = left.empty_lookups > 0
                    && (self.live.len() == 0 || self.rng.u64(..lookups) < left.empty_lookups);
                if is_empty {
                    left.empty_lookups -= 1;
                    run.made.empty_lookups += 1;
                    let (Drawn::Rank(at) | Drawn::Place(at)) =
                        run.empty.draw(&mut self.rng, run.absent.len() as u64);
                    self.key(run.absent[at as usize], &mut run.key);
                } else {
                    let drawn = self.draw_live(&run.existing);
                    let place = match &mut run.asked {
                        Some(asked) => asked.instead_of(drawn, &self.live),
                        None => drawn,
                    };
                    self.key(self.numbers[place], &mut run.key);
                }
                let found = self.entries.answers.then_some(!is_empty);
                Line::Get { key: Cow::Borrowed(&run.key), found }.write(&mut run.text);
            }
            Class::Scan => {
                run.made.scans += 1;
                self.range(run.mix.scan_share, run);
                let (from, to) = (Cow::Borrowed(&run.key[..]), Cow::Borrowed(&run.other[..]));
                Line::Scan { from, to }.write(&mut run.text);
            }
        }
    }

    fn put(&mut self, place: usize, is_update: bool, run: &mut Run<'_>) {
        self.key(self.numbers[place], &mut run.key);
        let bytes = self.entries.entry_bytes - self.key_bytes;
        let key = Cow::Borrowed(&run.key[..]);
        let value = if self.entries.lengths_only {
            Payload::Length(bytes)
        } else {
            run.value.clear();
            while run.value.len() < bytes {
                let random = self.rng.u64(..).to_le_bytes();
                run.value.extend(random.map(|byte| LETTERS[(usize::from(byte) * LETTERS.len()) >> 8]));
            }
            run.value.truncate(bytes);
            Payload::Bytes(Cow::Borrowed(&run.value))
        };
        if is_update { Line::Update { key, value } } else { Line::Insert { key, value } }
            .write(&mut run.text);
    }

    /// Writes the first and the last key of a range with this share of the live keys into `run`.
    /// Returns the rank of the first and the number of live keys, if the range has any.
    fn range(&mut self, share: f64, run: &mut Run<'_>) -> Option<(usize, usize)> {
        let live = self.live.len();
        if share == 0.0 || live == 0 {
            let number = self.absent_number();
            self.key(number, &mut run.key);
            run.other.clone_from(&run.key);
            return None;
        }
        let count = ((live as f64 * share) as usize).clamp(1, live);
        let first = self.rng.usize(..live).min(live - count);
        self.key(self.numbers[self.live.select(first)], &mut run.key);
        self.key(self.numbers[self.live.select(first + count - 1)], &mut run.other);
        Some((first, count))
    }

    /// Place of a drawn live key.
    fn draw_live(&mut self, drawer: &Drawer) -> usize {
        match drawer.draw(&mut self.rng, self.live.len() as u64) {
            Drawn::Rank(rank) => self.live.select(rank as usize),
            Drawn::Place(place) => self.live.at_or_after(place as usize),
        }
    }

    /// Number of possible keys of this length.
    fn domain(&self) -> u64 {
        62u64.pow(self.digits as u32)
    }

    /// Draws the keys that the mix inserts, adds them to all keys, and returns their places in the
    /// order of insertion.
    fn draw_inserts(&mut self, mix: &Mix) -> Result<Vec<usize>, String> {
        let firsts = 62u64.pow(SPREAD_DIGITS.min(self.digits as u32));
        let drawer = Drawer::new(mix.insert_spread, firsts, self.seed ^ 4);
        let behind = self.domain() / firsts;
        let mut new = Vec::with_capacity(usize::try_from(mix.inserts).unwrap_or(0).min(1 << 24));
        for _ in 0..mix.inserts {
            let number = self.untaken(|rng| {
                let (Drawn::Rank(first) | Drawn::Place(first)) = drawer.draw(rng, firsts);
                first * behind + rng.u64(..behind)
            })?;
            self.taken.insert(number);
            new.push(number);
        }
        let was_live = self.live_numbers();
        self.numbers.extend(&new);
        self.numbers.sort_unstable();
        self.live = LiveSet::new(self.numbers.iter().map(|number| was_live.contains(number)).collect());
        Ok(new.iter().map(|number| self.numbers.partition_point(|other| other < number)).collect())
    }

    /// Draws the absent keys that are requested, ascending.
    fn draw_absent(&mut self, mix: &Mix, left: &Left) -> Result<Vec<u64>, String> {
        let needs_any = left.empty_lookups > 0
            || left.empty_deletes > 0
            || left.of(Class::Scan) + left.of(Class::RangeDelete) > 0;
        if needs_any && self.taken.len() as u64 >= self.domain() {
            return Err(self.too_few());
        }
        if left.empty_lookups == 0 {
            return Ok(Vec::new());
        }
        let count = ((left.empty_lookups as f64 * mix.unique_empty).round() as u64).max(1);
        let mut absent = HashSet::new();
        for _ in 0..count {
            let domain = self.domain();
            let number = self.untaken(|rng| {
                loop {
                    let number = rng.u64(..domain);
                    if !absent.contains(&number) || absent.len() as u64 * 2 > domain {
                        break number;
                    }
                }
            })?;
            absent.insert(number);
        }
        let mut absent: Vec<u64> = absent.into_iter().collect();
        absent.sort_unstable();
        Ok(absent)
    }

    /// A number drawn by `draw` that no key has.
    fn untaken(&mut self, mut draw: impl FnMut(&mut Rng) -> u64) -> Result<u64, String> {
        for _ in 0..TRIES {
            let number = draw(&mut self.rng);
            if !self.taken.contains(&number) {
                return Ok(number);
            }
        }
        Err(self.too_few())
    }

    fn too_few(&self) -> String {
        format!(
            "keys of {} bytes are too short for this number of operations: use a larger -E or -L",
            self.key_bytes
        )
    }

    /// A number that no key has; [`Self::draw_absent`] has checked that one exists.
    fn absent_number(&mut self) -> u64 {
        let domain = self.domain();
        let mut number = self.rng.u64(..domain);
        while self.taken.contains(&number) {
            number = (number + 1) % domain;
        }
        number
    }

    /// Overwrites `key` with the key of `number`.
    fn key(&self, number: u64, key: &mut Vec<u8>) {
        key.clear();
        key.resize(self.digits, DIGITS[0]);
        let mut rest = number;
        for digit in key.iter_mut().rev() {
            *digit = DIGITS[(rest % 62) as usize];
            rest /= 62;
        }
        let mut word = number;
        while key.len() < self.key_bytes {
            word = mix2(word, key.len() as u64);
            key.extend(word.to_le_bytes().map(|byte| DIGITS[(usize::from(byte) * DIGITS.len()) >> 8]));
        }
        key.truncate(self.key_bytes);
    }

    /// The number of a key, if this generator can make it.
    fn number_of(&self, key: &[u8]) -> Option<u64> {
        let mut number = 0;
        for digit in key.get(..self.digits)? {
            number = number * 62 + DIGITS.binary_search(digit).ok()? as u64;
        }
        let mut made = Vec::new();
        self.key(number, &mut made);
        (made == key).then_some(number)
    }
}

/// The state of one mix.
struct Run<'a> {
    mix: &'a Mix,
    updates: Drawer,
    existing: Drawer,
    empty: Drawer,
    /// With a limit on unique keys: the live keys requested so far.
    asked: Option<Asked>,
    /// Places of the keys to be inserted.
    new: std::vec::IntoIter<usize>,
    absent: Vec<u64>,
    made: Made,
    text: Vec<u8>,
    key: Vec<u8>,
    other: Vec<u8>,
    value: Vec<u8>,
}

impl Run<'_> {
    fn write(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        out.write_all(&self.text).map_err(not_written)?;
        self.made.bytes += self.text.len() as u64;
        self.text.clear();
        Ok(())
    }
}

fn not_written(error: io::Error) -> Error {
    Error::File("write the workload".to_owned(), error)
}

/// The live keys requested so far, under a limit on their number.
struct Asked {
    places: LiveSet,
    /// Number of further distinct keys allowed.
    left: u64,
}

impl Asked {
    /// The key at `drawn`, or, at the limit, the next one that was requested before.
    fn instead_of(&mut self, drawn: usize, live: &LiveSet) -> usize {
        while !self.places.contains(drawn) && self.left == 0 && self.places.len() > 0 {
            let place = self.places.at_or_after(drawn);
            if live.contains(place) {
                return place;
            }
            // The key was deleted since.
            self.places.remove(place);
        }
        if !self.places.contains(drawn) {
            self.left = self.left.saturating_sub(1);
            self.places.insert(drawn);
        }
        drawn
    }
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
