//! Mutants: does some test fail when one place of the sources is changed?
//!
//! `cargo-mutants` lists the changes. All of them are woven into one copy of the sources
//! (`mutants/weave.rs`), which is built once; a variable of the environment selects the mutant.
//! Each test runs once without a mutant, to learn which functions it reaches. Then each mutant runs
//! with the tests that reach its function, the shortest first, until one fails
//! (`mutants/trial.rs`). Tests run with `SHAMBA_BRIEF`, so the gate, which runs more, notices at
//! least as much.
//!
//! A mutant is missed if all tests that reach it pass, or none reaches it. It is open if its time
//! ended before. An equivalent mutant changes nothing that a caller, a file or another thread could
//! see: `tests/mutants/equivalent.txt` names it and says why. Results are kept in
//! `target/mutants/results`, each for the text of its function, so that a run goes on where another
//! ended; `--again` repeats those that were missed or are open.

mod build;
mod known;
mod list;
mod results;
mod trial;
mod weave;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::copy::Copy;
use crate::tidy;
use known::Known;
use list::Mutant;
use results::{Outcome, Results};
use trial::{End, Test};

/// The folder of the copy, its builds and the results.
const HOME: &str = "target/mutants";
/// Lines of a mutant's key, a tab, and the reason why it is equivalent.
const EQUIVALENT: &str = "tests/mutants/equivalent.txt";
/// The parts that hold what was acknowledged: writers, the log, the tree's state, memtables.
const PARTS: [&str; 11] = [
    "crates/memtable/src/**",
    "crates/log/src/**",
    "crates/tree/src/version/**",
    "crates/tree/src/view.rs",
    "crates/tree/src/view/**",
    "crates/tree/src/compaction/retention.rs",
    "crates/tree/src/snapshot.rs",
    "crates/engine/src/writer/**",
    "crates/engine/src/catalog/**",
    "crates/engine/src/database/recovery.rs",
    "crates/engine/src/database/recovery/**",
];
/// The packages whose tests run, in addition to those of the changed sources.
const PACKAGES: [&str; 3] = ["shamba", "shamba-tests", "shamba-cli"];

const USAGE: &str = "usage: cargo xtask mutants [--file GLOB]... [--only TEXT] [--jobs N] [--seconds N] [--again]\n    \
                     [--one-in N]   (a sample: every N-th mutant)";

struct Options {
    globs: Vec<String>,
    only: Option<String>,
    jobs: usize,
    /// Time for the tests of one mutant.
    limit: Duration,
    again: bool,
    /// Every mutant whose number this divides is run.
    one_in: usize,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            globs: Vec::new(),
            only: None,
            jobs: 2,
            limit: Duration::from_secs(120),
            again: false,
            one_in: 1,
        };
        let mut words = arguments.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            let number =
                |text: &str| text.parse::<u64>().map_err(|_| format!("{word} {text:?} is no number"));
            match word {
                "--file" => options.globs.push(value()?.to_owned()),
                "--only" => options.only = Some(value()?.to_owned()),
                "--jobs" => options.jobs = number(value()?)?.clamp(1, 64) as usize,
                "--seconds" => options.limit = Duration::from_secs(number(value()?)?.max(1)),
                "--again" => options.again = true,
                "--one-in" => options.one_in = number(value()?)?.max(1) as usize,
                _ => return Err(USAGE.to_owned()),
            }
        }
        if options.globs.is_empty() {
            options.globs = PARTS.map(str::to_owned).to_vec();
        }
        Ok(options)
    }
}

/// Builds the mutants, runs those without a result, and prints a table and those that are missed.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    let mutants = list::of_files(&tidy::root(), &options.globs)?;
    let keys = keys(&mutants);
    let equivalent = equivalent()?;
    let results = Results::open()?;
    eprintln!("{} mutants", mutants.len());

    // What is woven stays as the last run left it, and need not be compiled again.
    let copy = Copy::make_except(HOME, &build::woven_files(&mutants))?;
    let rejected_path = tidy::root().join(HOME).join("rejected");
    let known = fs::read_to_string(&rejected_path).unwrap_or_default();
    let known: BTreeSet<&str> = known.lines().collect();
    let is_known = |number: &usize| known.contains(mutants[*number].name.as_str());
    let rejected = (0..mutants.len()).filter(is_known).collect();
    let built = build::build(&copy, &mutants, &PACKAGES.map(str::to_owned), rejected)?;
    let names: String = built.rejected.iter().map(|number| format!("{}\n", mutants[*number].name)).collect();
    fs::write(&rejected_path, names).map_err(|error| format!("{}: {error}", rejected_path.display()))?;
    let is_due = |mutant: &usize| {
        let key = &keys[*mutant];
        let is_chosen = mutant.is_multiple_of(options.one_in)
            && options.only.as_ref().is_none_or(|text| key.contains(text.as_str()));
        let is_open = match results.get(&mutants[*mutant], key) {
            None => true,
            Some(result) => options.again && !result.is_caught(),
        };
        is_chosen && is_open && !equivalent.contains_key(key)
    };
    let due: Vec<usize> = built.functions.keys().copied().filter(is_due).collect();
    eprintln!("{} built, {} to be run", built.functions.len(), due.len());
    if !due.is_empty() {
        let tests = unchanged_tests(&built.executables, options.jobs)?;
        let functions: Vec<(usize, usize)> =
            due.iter().map(|mutant| (*mutant, built.functions[mutant])).collect();
        run_all(&functions, &tests, (&mutants, &keys), &options, &results)?;
    }
    let unbuilt = |number: usize| built.rejected.contains(&number) || built.left_out.contains(&number);
    print(&mutants, &keys, &equivalent, &results, &unbuilt);
    let known: BTreeSet<&String> = keys.iter().collect();
    let unknown: Vec<&str> =
        equivalent.keys().filter(|key| !known.contains(key)).map(String::as_str).collect();
    if unknown.is_empty() || options.globs != PARTS {
        return Ok(());
    }
    Err(format!("{EQUIVALENT} names mutants that do not exist:\n{}", unknown.join("\n")))
}

/// Runs every test once without a mutant.
fn unchanged_tests(executables: &[build::Executable], jobs: usize) -> Result<Vec<Test>, String> {
    let mut names = Vec::new();
    for executable in executables {
        names.extend(trial::tests_of(executable)?.into_iter().map(|name| (executable, name)));
    }
    let known = Known::open();
    let tests = Mutex::new(Vec::new());
    let begin = Instant::now();
    each(jobs, names.len(), |number, folder| {
        let (executable, name) = &names[number];
        let test = match known.get(executable, name) {
            Some(test) => test,
            None => {
                let test = trial::unchanged(executable, name, folder)?;
                known.keep(executable, name, test.as_ref())?;
                test
            }
        };
        match test {
            Some(test) => locked(&tests).push(test),
            None => eprintln!("not run with mutants, it fails or takes long: {} {name}", executable.name),
        }
        Ok(())
    })?;
    let mut tests = tests.into_inner().unwrap_or_default();
    tests.sort_by_key(weight);
    eprintln!("{} tests took {:.0} s without a mutant", tests.len(), begin.elapsed().as_secs_f64());
    Ok(tests)
}

/// The order in which tests run: first those that are short and reach few functions, whose checks
/// are close to the mutant, then the suites, which check more than other long tests.
fn weight(test: &Test) -> u128 {
    let sum = test.took.as_micros() + 500 * test.reaches.len() as u128;
    if test.executable.name == "suites" { sum / 8 } else { sum }
}

/// Runs mutants, each given with its function.
fn run_all(
    due: &[(usize, usize)],
    tests: &[Test],
    (mutants, keys): (&[Mutant], &[String]),
    options: &Options,
    results: &Results,
) -> Result<(), String> {
    // The tests that noticed an earlier mutant of a function are the first to be asked.
    let noticed: Mutex<HashMap<usize, Vec<usize>>> = Mutex::new(HashMap::new());
    let (begin, done, missed) = (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0));
    each(options.jobs, due.len(), |number, folder| {
        let (mutant, function) = due[number];
        let first = locked(&noticed).get(&function).cloned().unwrap_or_default();
        let others = (0..tests.len()).filter(|test| !first.contains(test));
        let reaching = others.filter(|test| tests[*test].reaches.contains(&function));
        let asked: Vec<usize> = first.iter().copied().chain(reaching).collect();
        let mut result = Outcome::Unreached;
        let start = Instant::now();
        for (done, test) in asked.iter().copied().enumerate() {
            if start.elapsed() > options.limit {
                result = Outcome::Open(format!("{done} of {}", asked.len()));
                break;
            }
            let name = format!("{}: {}", tests[test].executable.name, tests[test].name);
            match trial::with_mutant(&tests[test], mutant, folder)? {
                End::Passed => result = Outcome::Missed,
                End::Failed => result = Outcome::Caught(name),
                End::TimedOut => result = Outcome::TimedOut(name),
            }
            if result.is_caught() {
                let mut noticed = locked(&noticed);
                let of_function = noticed.entry(function).or_default();
                if !of_function.contains(&test) {
                    of_function.push(test);
                }
                break;
            }
        }
        missed.fetch_add(usize::from(!result.is_caught()), Ordering::Relaxed);
        results.keep(&mutants[mutant], &keys[mutant], result)?;
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(100) {
            let missed = missed.load(Ordering::Relaxed);
            eprintln!("{done} of {} run, {missed} missed, {:.0} s", due.len(), begin.elapsed().as_secs_f64());
        }
        Ok(())
    })
}

/// Calls `work` for each number below `count` on `jobs` threads, each with a folder of its own.
fn each(
    jobs: usize,
    count: usize,
    work: impl Fn(usize, &Path) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let (next, error) = (AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let folder = tidy::root().join(HOME).join(format!("job{job}"));
            let (next, error, work) = (&next, &error, &work);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || locked(error).is_some() {
                        break;
                    }
                    let made =
                        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()));
                    if let Err(what) = made.and_then(|()| work(number, &folder)) {
                        *locked(error) = Some(what);
                    }
                }
            });
        }
    });
    error.into_inner().ok().flatten().map_or(Ok(()), Err)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Adds a line to a file of [`HOME`], which is created if it is missing.
fn append_line(path: &Path, line: &str) -> Result<(), String> {
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Names that stay when lines move: the file and the change, and a number where they repeat.
fn keys(mutants: &[Mutant]) -> Vec<String> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    let key = |mutant: &Mutant| {
        let change = mutant.name.split_once(": ").map_or(mutant.name.as_str(), |(_, change)| change);
        let name = format!("{}: {change}", mutant.file);
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name} #{count}") }
    };
    mutants.iter().map(key).collect()
}

/// The reasons why mutants are equivalent, by their keys.
fn equivalent() -> Result<BTreeMap<String, String>, String> {
    let path = tidy::root().join(EQUIVALENT);
    let text = fs::read_to_string(&path).map_err(|error| format!("{EQUIVALENT}: {error}"))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split_once('\t') {
            Some((key, reason)) if !reason.trim().is_empty() => Ok((key.to_owned(), reason.to_owned())),
            _ => Err(format!("{EQUIVALENT}: no reason in {line:?}")),
        })
        .collect()
}

/// Prints the mutants that nothing noticed, a table of the parts, and one of the suites.
fn print(
    mutants: &[Mutant],
    keys: &[String],
    equivalent: &BTreeMap<String, String>,
    results: &Results,
    unbuilt: &dyn Fn(usize) -> bool,
) {
    #[derive(Default)]
    struct Row {
        mutants: usize,
        unbuilt: usize,
        failed: usize,
        timed_out: usize,
        equivalent: usize,
        missed: usize,
        open: usize,
        unknown: usize,
    }
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut missed = BTreeSet::new();
    let mut suites: BTreeMap<String, usize> = BTreeMap::new();
    for (number, mutant) in mutants.iter().enumerate() {
        let row = rows.entry(part(&mutant.file)).or_default();
        row.mutants += 1;
        if equivalent.contains_key(&keys[number]) {
            row.equivalent += 1;
            continue;
        }
        let outcome = results.get(mutant, &keys[number]);
        if let Some(Outcome::Caught(test) | Outcome::TimedOut(test)) = &outcome {
            *suites.entry(suite(test)).or_default() += 1;
        }
        match &outcome {
            _ if unbuilt(number) => row.unbuilt += 1,
            Some(Outcome::Caught(_)) => row.failed += 1,
            Some(Outcome::TimedOut(_)) => row.timed_out += 1,
            Some(Outcome::Open(_)) => row.open += 1,
            Some(Outcome::Missed | Outcome::Unreached) => row.missed += 1,
            None => row.unknown += 1,
        }
        if let Some(outcome) = outcome.filter(|outcome| !outcome.is_caught() && !unbuilt(number)) {
            let place = mutant.name.split(' ').next().unwrap_or_default();
            missed.insert(format!("{}\t{place}\t{}", keys[number], outcome.line()));
        }
    }
    for line in missed {
        println!("{line}");
    }
    println!(
        "| part | mutants | not built | a test fails | a test hangs | equivalent | missed | open | not run | noticed |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (part, row) in &rows {
        let Row { mutants, unbuilt, failed, timed_out, equivalent, missed, open, unknown } = row;
        let noticed = failed + timed_out;
        let percent = 100.0 * noticed as f64 / (noticed + missed + open).max(1) as f64;
        println!(
            "| `{part}` | {mutants} | {unbuilt} | {failed} | {timed_out} | {equivalent} | {missed} | {open} | {unknown} | {percent:.1} % |"
        );
    }
    println!("\n| noticed first by | mutants |\n|---|---:|");
    for (suite, noticed) in &suites {
        println!("| `{suite}` | {noticed} |");
    }
}

/// The suite of a test: its executable, and the module of those with many suites.
fn suite(test: &str) -> String {
    let (executable, name) = test.split_once(": ").unwrap_or((test, ""));
    match name.split_once("::") {
        Some((module, _)) if executable == "suites" => format!("{executable} {module}"),
        _ => executable.to_owned(),
    }
}

/// The part of a file: its folder below `src`, or its name.
fn part(file: &str) -> String {
    let (crate_folder, inner) = file.split_once("/src/").unwrap_or(("", file));
    let name = crate_folder.rsplit('/').next().unwrap_or_default();
    match inner.split_once('/') {
        Some((folder, _)) => format!("{name}/{folder}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_no_line_and_counts_repetitions() {
        let mutant = |name: &str| Mutant {
            file: "a.rs".into(),
            name: name.into(),
            place: 0..0,
            replacement: String::new(),
            function: None,
            text_hash: 0,
        };
        let keys = keys(&[mutant("a.rs:1:2: replace + in f"), mutant("a.rs:9:2: replace + in f")]);
        assert_eq!(keys, ["a.rs: replace + in f", "a.rs: replace + in f #2"]);
    }

    #[test]
    fn a_suite_is_an_executable_or_a_module_of_one() {
        assert_eq!(suite("suites: crash::every_crash"), "suites crash");
        assert_eq!(suite("shamba: writer::tests::group"), "shamba");
    }

    #[test]
    fn each_equivalent_mutant_has_a_reason() {
        equivalent().unwrap_or_else(|error| panic!("{error}"));
    }
}
