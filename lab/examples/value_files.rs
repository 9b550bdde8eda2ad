//! Simulation of the collection of value files, as decision 42 plans it: how much space the files
//! take, and how much a put costs in relocated values and in rewritten key entries.
//!
//! The model has one keyspace, whose keys are in one last run and in the flushes above it. Each
//! flush writes its values to a value file. When the flushes hold more than 1/16 of the entries, a
//! job merges them into the last run, deletes the files without references, and relocates the
//! values of the emptiest files until the files take at most 15/16 of the allowed space.
//!
//! Limits of the model: all values have the same length and all puts overwrite; keys take no space;
//! there are no deletes, levels in between, snapshots or crashes; flushes wait for the job; and a
//! job may relocate all values that its victims hold, since it merges the whole last run.
//!
//! The program prints Markdown tables, and fails if the space exceeds a bound of the decision.
//!
//! ```text
//! cargo run --release -p shamba-lab --example value_files -- 42
//! ```
//!
//! The argument is the seed of the random keys; without it, it is 42.

use std::collections::BTreeMap;

use fastrand::Rng;
use shamba_model::values::{HIDDEN_SHARE_MAX, relocations};

/// Keys of the keyspace.
const KEYS: usize = 160_000;
/// Puts before the measured ones: the space has reached its limit, and jobs collect.
const WARM_UP_PUTS: usize = 4 * KEYS;
const MEASURED_PUTS: usize = 6 * KEYS;

/// Header of the table. Space (S) is a multiple of the live data (L); values and key entries are
/// those that were written for each put.
const HEADER: &str = "\
| A | keys | flushes of data | moved at most | S / L between jobs | S / L in a job \
| relocated per put | values per put | key entries per put | jobs | files |
|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|";

/// Number of a value file.
type FileNo = u32;

/// Values of one value file, in numbers of values.
struct ValueFile {
    stored: usize,
    referenced: usize,
}

/// The keys that puts overwrite.
#[derive(Clone, Copy, PartialEq)]
enum Skew {
    Uniform,
    /// Zipf with exponent 0.99.
    Zipf,
}

/// Conditions of one simulation.
#[derive(Clone, Copy)]
struct Scenario {
    /// Allowed space: bytes of the value files for each live byte.
    space: f64,
    skew: Skew,
    /// Size of the data, in flushes.
    flushes: usize,
    /// Values that one job relocates at most, as a share of the keys.
    moved_max: f64,
    /// Size of a file of relocated values, in flushes.
    file_flushes: usize,
}

impl Scenario {
    fn of(space: f64, skew: Skew) -> Self {
        Self { space, skew, flushes: 160, moved_max: 0.25, file_flushes: 4 }
    }

    fn flush_puts(&self) -> usize {
        KEYS / self.flushes
    }

    /// Stored values down to which a job collects.
    fn target(&self) -> f64 {
        (1.0 - HIDDEN_SHARE_MAX) * self.space * KEYS as f64
    }
}

/// Value files, and the references to them.
struct Store {
    scenario: Scenario,
    files: BTreeMap<FileNo, ValueFile>,
    last_file: FileNo,
    /// The file that has the value of each key of the last run.
    last_run: Vec<FileNo>,
    /// Keys of each flush above the last run, with their file.
    flushed: Vec<(Vec<usize>, FileNo)>,
    flushed_entries: usize,
    measured: Measured,
}

/// Space, as multiples of the live data, and work.
#[derive(Default)]
struct Measured {
    space_max: f64,
    space_max_in_job: f64,
    flushed: usize,
    relocated: usize,
    key_entries: usize,
    jobs: usize,
}

impl Store {
    /// Data that was loaded in the order of `keys`.
    fn load(scenario: Scenario, keys: &[usize]) -> Self {
        let mut store = Self {
            scenario,
            files: BTreeMap::new(),
            last_file: 0,
            last_run: vec![0; KEYS],
            flushed: Vec::new(),
            flushed_entries: 0,
            measured: Measured::default(),
        };
        for loaded in keys.chunks(scenario.flush_puts()) {
            let file = store.add_file(loaded.len());
            loaded.iter().for_each(|key| store.last_run[*key] = file);
        }
        store
    }

    fn add_file(&mut self, values: usize) -> FileNo {
        self.last_file += 1;
        self.files.insert(self.last_file, ValueFile { stored: values, referenced: values });
        self.last_file
    }

    fn stored(&self) -> usize {
        self.files.values().map(|file| file.stored).sum()
    }

    /// Flushes the newest values of these keys.
    fn flush(&mut self, mut keys: Vec<usize>) {
        keys.sort_unstable();
        keys.dedup();
        self.measured.flushed += keys.len();
        self.flushed_entries += keys.len();
        let file = self.add_file(keys.len());
        self.flushed.push((keys, file));
        self.measured.space_max = self.measured.space_max.max(self.stored() as f64 / KEYS as f64);
    }

    fn is_job_due(&self) -> bool {
        self.flushed_entries as f64 > HIDDEN_SHARE_MAX * KEYS as f64
    }

    /// Merges the flushes into the last run, and collects, in more than one job if one may not move
    /// enough values.
    fn run_jobs(&mut self) {
        self.begin_job();
        for (keys, file) in self.flushed.drain(..) {
            for key in keys {
                let before = std::mem::replace(&mut self.last_run[key], file);
                let hidden = self.files.get_mut(&before).expect("a referenced file exists");
                hidden.referenced -= 1;
            }
        }
        self.flushed_entries = 0;
        // Files without references are deleted at the end of the job, together with the victims.
        let mut in_job = self.stored();
        self.files.retain(|_, file| file.referenced > 0);
        let mut is_first = true;
        while self.stored() as f64 > self.scenario.target() {
            let (victims, moved) = self.victims();
            if !is_first {
                self.begin_job();
                in_job = self.stored();
            }
            let space = (in_job + moved) as f64 / KEYS as f64;
            self.measured.space_max_in_job = self.measured.space_max_in_job.max(space);
            self.relocate(&victims);
            is_first = false;
        }
    }

    /// Counts a job, which rewrites all keys.
    fn begin_job(&mut self) {
        self.measured.jobs += 1;
        self.measured.key_entries += KEYS;
    }

    /// The emptiest files, as many as the target needs and one job may move, and their live values.
    fn victims(&self) -> (Vec<FileNo>, usize) {
        let share = |file: &ValueFile| file.referenced as f64 / file.stored as f64;
        let mut emptiest: Vec<_> = self.files.iter().collect();
        emptiest.sort_by(|(_, a), (_, b)| share(a).total_cmp(&share(b)));
        let (mut victims, mut moved) = (Vec::new(), 0);
        let mut stored = self.stored();
        for (number, file) in emptiest {
            let is_too_long = (moved + file.referenced) as f64 > self.scenario.moved_max * KEYS as f64;
            if stored as f64 <= self.scenario.target() || (is_too_long && !victims.is_empty()) {
                break;
            }
            victims.push(*number);
            moved += file.referenced;
            stored -= file.stored - file.referenced;
        }
        (victims, moved)
    }

    /// Writes the live values of the victims to new files in the order of keys.
    fn relocate(&mut self, victims: &[FileNo]) {
        let mut is_victim = vec![false; self.last_file as usize + 1];
        victims.iter().for_each(|number| is_victim[*number as usize] = true);
        let moved: Vec<usize> = (0..KEYS).filter(|key| is_victim[self.last_run[*key] as usize]).collect();
        self.measured.relocated += moved.len();
        for keys in moved.chunks(self.scenario.file_flushes * self.scenario.flush_puts()) {
            let file = self.add_file(keys.len());
            keys.iter().for_each(|key| self.last_run[*key] = file);
        }
        self.files.retain(|number, _| !victims.contains(number));
    }
}

/// Cumulative probabilities of ranks, the most frequent first.
fn zipf() -> Vec<f64> {
    let mut sum = 0.0;
    let add = |rank: usize| {
        sum += 1.0 / (rank as f64).powf(0.99);
        sum
    };
    let sums: Vec<f64> = (1..=KEYS).map(add).collect();
    sums.iter().map(|partial| partial / sum).collect()
}

/// Runs a scenario, prints its row, and returns the bounds that it exceeds.
fn run(scenario: Scenario, ranks: &[f64], seed: u64) -> Option<String> {
    let mut rng = Rng::with_seed(seed);
    let mut keys: Vec<usize> = (0..KEYS).collect();
    rng.shuffle(&mut keys);
    let mut store = Store::load(scenario, &keys);
    let mut put = |store: &mut Store, puts: usize| {
        for _ in (0..puts).step_by(scenario.flush_puts()) {
            let key = || match scenario.skew {
                Skew::Uniform => rng.usize(..KEYS),
                Skew::Zipf => {
                    let point = rng.f64();
                    keys[ranks.partition_point(|sum| *sum < point).min(KEYS - 1)]
                }
            };
            store.flush(std::iter::repeat_with(key).take(scenario.flush_puts()).collect());
            if store.is_job_due() {
                store.run_jobs();
            }
        }
    };
    put(&mut store, WARM_UP_PUTS);
    store.measured = Measured::default();
    put(&mut store, MEASURED_PUTS);
    let measured = &store.measured;
    let per_put = |count: usize| count as f64 / MEASURED_PUTS as f64;
    println!(
        "| {} | {} | {} | {} | {:.3} | {:.3} | {:.2} | {:.2} | {:.1} | {} | {} |",
        scenario.space,
        if scenario.skew == Skew::Zipf { "zipf" } else { "uniform" },
        scenario.flushes,
        scenario.moved_max,
        measured.space_max,
        measured.space_max_in_job,
        per_put(measured.relocated),
        per_put(measured.flushed + measured.relocated),
        per_put(measured.key_entries),
        measured.jobs,
        store.files.len(),
    );
    let bound = scenario.space + 1.0 / scenario.flushes as f64;
    let in_job = bound + scenario.moved_max;
    (measured.space_max > bound || measured.space_max_in_job > in_job)
        .then(|| format!("the last scenario exceeds {bound:.3}, or {in_job:.3} in a job"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seed = std::env::args().nth(1).map_or(Ok(42), |text| text.parse())?;
    println!("seed {seed}, {KEYS} keys, {MEASURED_PUTS} measured puts\n");
    println!("{HEADER}");
    let spaces = [1.15, 1.2, 1.25, 1.5, 2.0];
    let by_space = [Skew::Uniform, Skew::Zipf]
        .into_iter()
        .flat_map(|skew| spaces.into_iter().map(move |space| Scenario::of(space, skew)));
    let usual = Scenario::of(1.25, Skew::Uniform);
    let others = [
        Scenario { moved_max: 0.125, ..usual },
        Scenario { moved_max: 1.0, ..usual },
        Scenario { flushes: 64, ..usual },
        Scenario { flushes: 16, file_flushes: 1, ..usual },
    ];
    let ranks = zipf();
    let exceeded = by_space.chain(others).find_map(|scenario| run(scenario, &ranks, seed));
    println!("\n| A | relocated per overwritten value, if files are collected in turn |");
    println!("|---:|---:|");
    for space in spaces {
        // An upper bound for jobs that choose the emptiest files.
        println!("| {space} | {:.2} |", relocations(space).expect("a space above 1"));
    }
    exceeded.map_or(Ok(()), |text| Err(text.into()))
}
