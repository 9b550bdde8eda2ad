//! Check of self-tuning: a workload in four phases on a database that tunes itself, compared with
//! static designs.
//!
//! The phases are writes, empty lookups, found lookups and short ranges. The self-tuning database
//! executes the phases in sequence; so does, with shorter phases, each of a set of static designs,
//! on a copy of the same database that has reached that design's shape before it begins. The best
//! static design of a phase is the reference of that phase: the choice with knowledge of the phase.
//!
//! Requirements ([`Outcome::violations`]): within half of a phase the self-tuning database reaches
//! [`WITHIN`] of the reference and stays there; a redesign writes no more than the data (compaction
//! debt of earlier writes is added); there are at most [`REDESIGNS_MAX`] in a phase and none in its
//! last half; each has its reason, in an event and in the history; the last one can be undone and
//! is then not repeated.
//!
//! Not here: starting it (`shamba-lab check tune-check`). No other load may run on the machine.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shamba::{Builder, Db, Design, Error, Event, EventListener, MergePolicy, Tuning};

use shamba_workload::{KeyShape, Keys, Values};

/// Minimum throughput of the self-tuning database relative to the best static design.
pub const WITHIN: f64 = 0.85;
/// Maximum redesigns in a phase.
pub const REDESIGNS_MAX: usize = 2;
/// Maximum bytes written by a redesign per byte of data; slightly more than 1, because tables at
/// the edges are rewritten whole.
pub const WRITES_MAX: f64 = 1.05;

/// Options of the check.
#[derive(Clone, Debug)]
pub struct Options {
    /// An empty directory.
    pub dir: PathBuf,
    /// Entries of 116 bytes.
    pub entries: u64,
    /// The memory budget of every database.
    pub budget_bytes: u64,
    /// Duration of a phase of the self-tuning database.
    pub phase_seconds: u64,
    /// Duration of a phase of a static design; the second half is measured. Writes run at least
    /// half as long as those of the self-tuning database. 0: no comparison.
    pub static_seconds: u64,
    /// Microseconds added to each read; 0 for the real device.
    pub device_read_us: f64,
    /// Seed of keys and operations.
    pub seed: u64,
}

/// A kind of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Puts of existing keys.
    Writes,
    /// Gets of absent keys.
    EmptyLookups,
    /// Gets of existing keys.
    Hits,
    /// Scans of ten entries.
    ShortRanges,
}

impl Phase {
    /// All phases in their order.
    pub const ALL: [Self; 4] = [Self::Writes, Self::EmptyLookups, Self::Hits, Self::ShortRanges];

    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Writes => "writes",
            Self::EmptyLookups => "empty lookups",
            Self::Hits => "hits",
            Self::ShortRanges => "short ranges",
        }
    }
}

/// A redesign, from its event.
#[derive(Clone, Debug)]
pub struct Redesign {
    /// Seconds since the phases began.
    pub at_s: f64,
    /// Text of the new design.
    pub to: String,
    /// Why.
    pub reason: String,
    /// Bytes that compactions have to write for it.
    pub bytes: u64,
    /// Bytes of the tree.
    pub tree_bytes: u64,
}

/// Outcome of a phase.
#[derive(Clone, Debug)]
pub struct PhaseOutcome {
    /// The phase.
    pub phase: Phase,
    /// Operations per second of each static design.
    pub statics: Vec<(String, f64)>,
    /// Operations in each second of the tuned database.
    pub seconds: Vec<f64>,
    /// Times of redesigns, in seconds since the start of the phase.
    pub redesigns_s: Vec<f64>,
    /// Bytes written by flushes and compactions.
    pub moved_bytes: u64,
    /// Compaction debt when it began.
    pub debt_before_bytes: u64,
}

impl PhaseOutcome {
    /// The best static design.
    pub fn best(&self) -> Option<&(String, f64)> {
        self.statics.iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Operations per second of the self-tuning database in the second half.
    pub fn tuned_per_s(&self) -> f64 {
        mean(self.seconds.get(self.seconds.len() / 2..).unwrap_or_default())
    }

    /// Seconds until the mean of ten seconds (or a fourth of the phase) first reaches the
    /// requirement.
    pub fn adapted_after_s(&self) -> Option<usize> {
        let bar = self.best()?.1 * WITHIN;
        let window = (self.seconds.len() / 4).clamp(1, 10);
        self.seconds.windows(window).position(|seconds| mean(seconds) >= bar)
    }
}

/// Outcome.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes of the tree when the phases began.
    pub data_bytes: u64,
    /// Phase by phase.
    pub phases: Vec<PhaseOutcome>,
    /// All redesigns, in order.
    pub redesigns: Vec<Redesign>,
    /// Other messages of the tuner.
    pub advice: Vec<(f64, String)>,
    /// Violations.
    pub violations: Vec<String>,
}

/// Records the tuner's events.
#[derive(Debug)]
struct Told {
    start: Mutex<Instant>,
    redesigns: Mutex<Vec<Redesign>>,
    advice: Mutex<Vec<(f64, String)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EventListener for Told {
    fn event(&self, event: &Event) {
        let at_s = lock(&self.start).elapsed().as_secs_f64();
        match event {
            Event::Redesign { to, reason, bytes, tree_bytes, .. } => {
                let (to, reason) = (to.clone(), reason.clone());
                lock(&self.redesigns).push(Redesign {
                    at_s,
                    to,
                    reason,
                    bytes: *bytes,
                    tree_bytes: *tree_bytes,
                });
            }
            Event::Advice(text) => lock(&self.advice).push((at_s, text.clone())),
            _ => {}
        }
    }
}

/// The static designs.
fn statics(write_buffer_bytes: u64) -> Vec<Design> {
    let of = |policy, size_ratio| Design::new(policy, size_ratio, write_buffer_bytes, 10.0);
    vec![
        of(MergePolicy::Leveling, 10.0),
        of(MergePolicy::Leveling, 64.0),
        of(MergePolicy::LazyLeveling, 6.0),
        of(MergePolicy::Tiering, 10.0),
    ]
}

/// Runs the check; `tell` gets a line per step.
///
/// # Errors
/// A failure to run it; violations are in the outcome.
pub fn run(options: &Options, tell: &mut dyn FnMut(&str)) -> Result<Outcome, String> {
    let said = |error: Error| error.chain().to_string();
    let work = Work::new(options)?;
    let write_buffer_bytes = options.budget_bytes / 16;
    let open = |dir: &Path| -> Builder {
        Db::builder(dir)
            .memory_budget(options.budget_bytes)
            .write_buffer(write_buffer_bytes)
            .experimental(|e| e.device_read_us(options.device_read_us))
    };
    let base = options.dir.join("base");
    let db = open(&base).open().map_err(said)?;
    work.load(&db).map_err(said)?;
    db.wait_idle().map_err(said)?;
    let tuned_dir = options.dir.join("tuned");
    db.checkpoint(&tuned_dir).map_err(said)?;
    tell(&format!("loaded {} entries: {}", options.entries, shape(&db)));

    let mut by_phase: Vec<Vec<(String, f64)>> = vec![Vec::new(); Phase::ALL.len()];
    let compared = if options.static_seconds > 0 { statics(write_buffer_bytes) } else { Vec::new() };
    for (number, design) in compared.into_iter().enumerate() {
        let dir = options.dir.join(format!("static-{number}"));
        db.checkpoint(&dir).map_err(said)?;
        let one = open(&dir).experimental(|e| e.design(design)).open().map_err(said)?;
        one.wait_idle().map_err(said)?;
        for (at, phase) in Phase::ALL.into_iter().enumerate() {
            // Writers are fast at first, until compactions are behind.
            let seconds = match phase {
                Phase::Writes => options.static_seconds.max(options.phase_seconds / 2),
                _ => options.static_seconds,
            };
            let seconds = work.run(&one, phase, seconds).map_err(said)?;
            let per_s = mean(seconds.get(seconds.len() / 2..).unwrap_or_default());
            tell(&format!("static {design}: {}: {per_s:.0} per second; {}", phase.name(), shape(&one)));
            by_phase[at].push((design.to_string(), per_s));
        }
        one.close().map_err(said)?;
        std::fs::remove_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    drop(db);

    let told = Arc::new(Told {
        start: Mutex::new(Instant::now()),
        redesigns: Mutex::default(),
        advice: Mutex::default(),
    });
    let db =
        open(&tuned_dir).tuning(Tuning::Auto).event_listener(Arc::clone(&told) as Arc<dyn EventListener>);
    let db = db.open().map_err(said)?;
    let data_bytes = db.stats().levels.iter().map(|level| level.bytes).sum();
    let start = Instant::now();
    *lock(&told.start) = start;
    let mut phases = Vec::new();
    for (phase, statics) in Phase::ALL.into_iter().zip(by_phase) {
        let (before, begin_s) = (db.stats(), start.elapsed().as_secs_f64());
        let seconds = work.run(&db, phase, options.phase_seconds).map_err(said)?;
        let after = db.stats();
        let told_so_far = lock(&told.redesigns).clone();
        let redesigns_s = told_so_far.iter().map(|redesign| redesign.at_s - begin_s);
        let outcome = PhaseOutcome {
            phase,
            statics,
            seconds,
            redesigns_s: redesigns_s.filter(|at_s| *at_s >= 0.0).collect(),
            moved_bytes: after.bytes_compacted + after.bytes_flushed
                - before.bytes_compacted
                - before.bytes_flushed,
            debt_before_bytes: before.debt_bytes,
        };
        tell(&format!("tuned: {}; {}", words(&outcome), shape(&db)));
        for (at_s, text) in lock(&told.advice).iter().filter(|(at_s, _)| *at_s >= begin_s) {
            tell(&format!("  {:.0} s: {text}", at_s - begin_s));
        }
        tell(&format!("  advice at the end: {}", db.advise().map_err(said)?));
        phases.push(outcome);
    }
    let redesigns = lock(&told.redesigns).clone();
    for redesign in &redesigns {
        tell(&format!("{redesign:?}"));
    }
    let mut violations = violations(options, &phases, &redesigns);
    let history = db.redesigns();
    if history.len() != redesigns.len() || history.iter().any(|entry| entry.reason.is_empty()) {
        violations.push(format!("{} redesigns, {} in the history", redesigns.len(), history.len()));
    }
    if let Some(last) = history.last() {
        let undone = db.undo_redesign().map_err(said)?;
        work.run(&db, Phase::ShortRanges, (options.phase_seconds / 4).max(8)).map_err(said)?;
        if undone != last.from || db.tree_design() == last.to {
            violations.push(format!("after the undo the design is {}, not {}", db.tree_design(), last.from));
        }
    }
    db.close().map_err(said)?;
    let advice = lock(&told.advice).clone();
    Ok(Outcome { data_bytes, phases, redesigns, advice, violations })
}

fn violations(options: &Options, phases: &[PhaseOutcome], redesigns: &[Redesign]) -> Vec<String> {
    let mut wrong = Vec::new();
    let half_s = options.phase_seconds / 2;
    for outcome in phases {
        let name = outcome.phase.name();
        let (tuned, bar) = (outcome.tuned_per_s(), outcome.best().map_or(0.0, |best| best.1));
        if tuned < bar * WITHIN {
            wrong.push(format!("{name}: {tuned:.0} per second, {bar:.0} with the best static design"));
        }
        let is_late = outcome.adapted_after_s().is_none_or(|seconds| seconds as u64 > half_s);
        if outcome.best().is_some() && is_late {
            wrong.push(format!("{name}: adapted after {:?} s", outcome.adapted_after_s()));
        }
        if outcome.redesigns_s.len() > REDESIGNS_MAX {
            wrong.push(format!("{name}: {} redesigns", outcome.redesigns_s.len()));
        }
        if outcome.redesigns_s.iter().any(|at_s| *at_s > half_s as f64) {
            wrong.push(format!("{name}: a redesign in the last half, at {:?} s", outcome.redesigns_s));
        }
    }
    for Redesign { at_s, bytes, tree_bytes, reason, .. } in redesigns {
        if *bytes as f64 > *tree_bytes as f64 * WRITES_MAX || reason.is_empty() {
            wrong.push(format!("the redesign at {at_s:.0} s writes {bytes} bytes of {tree_bytes}: {reason}"));
        }
    }
    wrong
}

fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

fn words(outcome: &PhaseOutcome) -> String {
    let best = outcome.best().map_or(0.0, |best| best.1);
    format!(
        "{}: {:.0} per second in the second half, {:.2} of the best static design; adapted after {:?} s; redesigns at {:?} s; \
         {} bytes moved",
        outcome.phase.name(),
        outcome.tuned_per_s(),
        outcome.tuned_per_s() / best.max(1.0),
        outcome.adapted_after_s(),
        outcome.redesigns_s,
        outcome.moved_bytes
    )
}

/// Levels with their runs and bytes.
fn shape(db: &Db) -> String {
    let stats = db.stats();
    let levels = stats.levels.iter().filter(|level| level.runs > 0);
    let levels = levels.map(|level| format!("L{} {} runs {} MB", level.level, level.runs, level.bytes >> 20));
    levels.collect::<Vec<_>>().join(", ")
}

/// The operations.
struct Work {
    keys: Keys,
    values: Values,
    entries: u64,
    seed: u64,
}

/// Bytes of a value; keys have 16.
const VALUE_BYTES: usize = 100;

impl Work {
    fn new(options: &Options) -> Result<Self, String> {
        let (shape, entries, seed) = (KeyShape::Random, options.entries, options.seed);
        let keys = Keys::new(shape, shape.default_key_size(), entries * 2)?;
        Ok(Self { keys, values: Values::new(VALUE_BYTES, seed), entries, seed })
    }

    fn load(&self, db: &Db) -> shamba::Result<()> {
        let order = shamba_workload::Permutation::new(self.entries, self.seed);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for number in 0..self.entries {
            let item = order.at(number);
            self.keys.existing(item, &mut key);
            self.values.write(item, &mut value);
            db.put(&key, &value)?;
        }
        db.flush()
    }

    /// Runs operations of one kind for `seconds` seconds; returns the number in each second.
    fn run(&self, db: &Db, phase: Phase, seconds: u64) -> shamba::Result<Vec<f64>> {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ phase as u64);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut counts = Vec::new();
        for _ in 0..seconds {
            let begin = Instant::now();
            let mut count = 0u32;
            while begin.elapsed() < Duration::from_secs(1) {
                for _ in 0..16 {
                    let item = rng.u64(..self.entries);
                    match phase {
                        Phase::EmptyLookups => self.keys.absent(item, &mut key),
                        _ => self.keys.existing(item, &mut key),
                    }
                    match phase {
                        Phase::Writes => {
                            self.values.write(rng.u64(..), &mut value);
                            db.put(&key, &value)?;
                        }
                        Phase::EmptyLookups | Phase::Hits => _ = db.get_with(&key, <[u8]>::len)?,
                        Phase::ShortRanges => {
                            for entry in db.range(key.as_slice()..).take(10) {
                                entry?;
                            }
                        }
                    }
                    count += 1;
                }
            }
            counts.push(f64::from(count) / begin.elapsed().as_secs_f64());
        }
        Ok(counts)
    }
}

impl Outcome {
    /// One JSON object.
    pub fn to_json(&self) -> String {
        let phases = self.phases.iter().map(|outcome| {
            let statics = outcome.statics.iter().map(|(design, per_s)| {
                format!(r#"{{"design":"{}","ops_per_s":{per_s:.0}}}"#, escaped(design))
            });
            let seconds = outcome.seconds.iter().map(|count| format!("{count:.0}"));
            let redesigns = outcome.redesigns_s.iter().map(|at_s| format!("{at_s:.1}"));
            format!(
                r#"{{"phase":"{}","tuned_ops_per_s":{:.0},"best_static_ops_per_s":{:.0},"adapted_after_s":{},"redesigns_s":[{}],"moved_bytes":{},"statics":[{}],"ops_by_second":[{}]}}"#,
                outcome.phase.name(),
                outcome.tuned_per_s(),
                outcome.best().map_or(0.0, |best| best.1),
                outcome.adapted_after_s().map_or("null".to_owned(), |seconds| seconds.to_string()),
                redesigns.collect::<Vec<_>>().join(","),
                outcome.moved_bytes,
                statics.collect::<Vec<_>>().join(","),
                seconds.collect::<Vec<_>>().join(",")
            )
        });
        let redesigns = self.redesigns.iter().map(|redesign| {
            format!(
                r#"{{"at_s":{:.1},"to":"{}","bytes":{},"tree_bytes":{},"reason":"{}"}}"#,
                redesign.at_s,
                escaped(&redesign.to),
                redesign.bytes,
                redesign.tree_bytes,
                escaped(&redesign.reason)
            )
        });
        let advice = self
            .advice
            .iter()
            .map(|(at_s, text)| format!(r#"{{"at_s":{at_s:.1},"text":"{}"}}"#, escaped(text)));
        let violations = self.violations.iter().map(|violation| format!(r#""{}""#, escaped(violation)));
        format!(
            r#"{{"schema":"shamba.tune-check.1","data_bytes":{},"phases":[{}],"redesigns":[{}],"advice":[{}],"violations":[{}]}}"#,
            self.data_bytes,
            phases.collect::<Vec<_>>().join(","),
            redesigns.collect::<Vec<_>>().join(","),
            advice.collect::<Vec<_>>().join(","),
            violations.collect::<Vec<_>>().join(",")
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
