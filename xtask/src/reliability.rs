//! The table of what the suites reach: each measure, what it should be, and what this run came to.
//!
//! Suites leave their counts in a directory; here they are added up and held beside the targets. A suite that finds a violation
//! fails, so a table that is printed has none. What is only run on demand has a column of its own, and is run with `--full`.
//!
//! Not here: what suites do (`tests/`), what the counts mean in words (`docs/reliability.md`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::tidy;

/// Where the table is kept.
const PAGE: &str = "docs/results/reliability.md";

/// A measure, and where its count comes from.
struct Row {
    number: u32,
    measure: &'static str,
    /// At least so many within CI; 0: only on demand.
    ci: u64,
    /// At least so many on demand; 0: nothing more is asked.
    on_demand: u64,
    /// (suite, count): added up. A count that ends with a star is all that begin so.
    counts: &'static [(&'static str, &'static str)],
    /// Whether the targets are what may be reached at most, and the counts maxima, of which the greatest counts.
    is_limit: bool,
}

const fn row(
    number: u32,
    measure: &'static str,
    ci: u64,
    on_demand: u64,
    counts: &'static [(&'static str, &'static str)],
) -> Row {
    Row { number, measure, ci, on_demand, counts, is_limit: false }
}

/// A row of which no more than `most` may be reached, in CI (`ci`) or on demand.
const fn limit(
    number: u32,
    measure: &'static str,
    (ci, on_demand): (u64, u64),
    counts: &'static [(&'static str, &'static str)],
) -> Row {
    Row { number, measure, ci, on_demand, counts, is_limit: true }
}

const ROWS: &[Row] = &[
    row(
        1,
        "distinct crash images recovered and checked",
        100_000,
        10_000_000,
        &[("crash", "distinct images"), ("crash-threads", "distinct images")],
    ),
    row(
        2,
        "workloads of one or two operations, each with and without a flush",
        220,
        0,
        &[("crash", "short lives")],
    ),
    row(
        3,
        "crashes of recoveries (depth 2)",
        1_000,
        0,
        &[("crash", "crashes of recoveries"), ("peers-opens", "images")],
    ),
    row(
        4,
        "single-fault runs, every call that a script makes",
        10_000,
        0,
        &[("faults", "single-fault runs")],
    ),
    row(
        4,
        "faults followed by a power cut, images",
        8_000,
        0,
        &[("fault-then-crash", "images"), ("fault-then-crash-no-wal", "images")],
    ),
    row(4, "faults in storms", 5_000, 1_000_000, &[("storms", "faults"), ("stress", "faults")]),
    row(
        5,
        "bytes flipped, each file type, three masks",
        100_000,
        2_000_000,
        &[
            ("corruption", "flips in tables"),
            ("corruption", "flips in logs"),
            ("corruption", "flips in manifests"),
            ("sweep", "flips"),
        ],
    ),
    row(6, "truncations, each length of each file", 5_000, 0, &[("corruption", "truncations")]),
    row(
        7,
        "lookups of keys that are there, filters whole, in parts, damaged",
        1_000_000,
        100_000_000,
        &[("membership", "checks")],
    ),
    row(
        8,
        "kill -9 cycles, a worker and the binary",
        12,
        300,
        &[("kill-worker", "kills"), ("kill", "kills")],
    ),
    row(9, "system calls that failed or killed", 0, 500, &[("syscalls", "points reached")]),
    row(10, "operations against the oracle", 1_000_000, 1_000_000_000, &[("model", "operations")]),
    row(10, "option vectors", 500, 0, &[("model", "vectors")]),
    row(
        10,
        "operations beside RocksDB and a sorted map (`cargo xtask peers differential`)",
        0,
        1_000_000,
        &[("differential", "operations")],
    ),
    row(11, "metamorphic runs, 60 scripts under 8 vectors", 480, 0, &[("metamorphic", "runs")]),
    row(
        12,
        "operations beside one another, sums and histories checked",
        0,
        0,
        &[
            ("concurrency-leveling", "transfers"),
            ("concurrency-tiering", "transfers"),
            ("concurrency-lazy-leveling", "transfers"),
            ("stress", "writes acknowledged"),
        ],
    ),
    row(
        13,
        "models of small parts under every schedule with at most three preemptions",
        6,
        0,
        &[
            ("loom-digest_index", "models"),
            ("loom-grace_periods", "models"),
            ("loom-cache_sections", "models"),
            ("loom-cache_pins", "models"),
            ("loom-group_commit", "models"),
            ("loom-snapshots", "models"),
            ("loom-ledger", "models"),
            ("loom-pressure", "models"),
            ("loom-idle_slots", "models"),
            ("loom-fresh_slots", "models"),
            ("loom-views", "models"),
            ("loom-files_of_versions", "models"),
        ],
    ),
    row(
        13,
        "schedules of the whole engine by chance, three scenarios",
        3_000,
        1_000_000,
        &[
            ("schedules-write_flush_and_merge", "schedules"),
            ("schedules-close_beside_writers", "schedules"),
            ("schedules-sums_beside_merges", "schedules"),
        ],
    ),
    row(
        14,
        "hostile files and lives for decoders and recovery",
        300_000,
        1_000_000_000,
        &[("fuzz", "executions, *"), ("fuzz-operations", "executions, *"), ("fuzz-guided", "executions, *")],
    ),
    row(15, "planted defects killed", 0, 40, &[("planted", "killed")]),
    limit(
        16,
        "KiB allocated at a time for hostile bytes, beyond their own size, at most",
        (16_384, 16_384),
        &[("hostile-memory", "max KiB beyond the input")],
    ),
    limit(
        17,
        "KiB resident beyond the budget under ten times the writes for 60 s, at most",
        (0, 65_536),
        &[
            ("overload-16MiB", "max KiB resident beyond the budget"),
            ("overload-64MiB", "max KiB resident beyond the budget"),
            ("overload-512MiB", "max KiB resident beyond the budget"),
        ],
    ),
    row(
        18,
        "seconds of soak: faults, kills and threads, options drawn anew for each life",
        0,
        86_400,
        &[("soak", "seconds")],
    ),
    limit(
        19,
        "ms of an open after a kill, 1 GiB of tables and 64 MiB of log, at most",
        (0, 2_000),
        &[("reopen", "max ms with 64 MiB of log")],
    ),
    limit(
        19,
        "ms more for each further 64 MiB of log, at most",
        (0, 1_000),
        &[("reopen", "max ms of each further 64 MiB of log")],
    ),
    row(20, "seeds whose calls are equal twice", 20, 1_000, &[("determinism", "seeds")]),
];

type Tallies = BTreeMap<String, BTreeMap<String, u64>>;

/// Runs the suites and prints the table; `--full` adds what is run on demand, `--write` keeps the table.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (mut from, mut flags) = (None, Vec::new());
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--from" => from = Some(PathBuf::from(words.next().ok_or("--from needs a directory")?)),
            "--full" | "--write" | "--json" => flags.push(word),
            unknown => return Err(format!("reliability has no option {unknown}")),
        }
    }
    let has = |name: &str| flags.contains(&name);
    let mut seconds = Vec::new();
    let directory = match from {
        Some(directory) => directory,
        None => run_suites(has("--full"), &mut seconds)?,
    };
    let tallies = read(&directory)?;
    let page = page(&tallies, &seconds, has("--full"));
    if has("--json") {
        println!("{}", json(&tallies));
    } else {
        println!("{page}");
    }
    if has("--write") {
        let path = tidy::root().join(PAGE);
        std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let missed: Vec<String> = ROWS
        .iter()
        .filter(|row| is_missed(row, &tallies))
        .map(|row| {
            let count = reached(row, &tallies).map_or_else(|| "not run".to_owned(), |count| count.to_string());
            format!("{}: {count} of {}", row.measure, row.ci.max(if row.is_limit { row.on_demand } else { 0 }))
        })
        .collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("their targets are missed: {}", missed.join("; "))) }
}

/// Runs them; gives the directory in which they leave their counts.
fn run_suites(is_full: bool, seconds: &mut Vec<(String, u64)>) -> Result<PathBuf, String> {
    let directory = tidy::root().join("target/reliability");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut step = |name: &str, words: &[&str]| -> Result<(), String> {
        let begun = Instant::now();
        cargo(words, &directory)?;
        seconds.push((name.to_owned(), begun.elapsed().as_secs()));
        Ok(())
    };
    step("the suites (`cargo test -p shamba-tests`)", &["test", "--package", "shamba-tests"])?;
    let models = ["test", "--package", "shamba-loom", "--package", "shamba-schedules"];
    step("schedules (`cargo test -p shamba-loom -p shamba-schedules`)", &models)?;
    if is_full {
        for name in ["kill", "syscalls", "scarce", "overload", "reopen", "soak", "planted"] {
            step(&format!("`cargo xtask {name}`"), &["xtask", name])?;
        }
        step("`cargo xtask fuzz all --seconds 30`", &["xtask", "fuzz", "all", "--seconds", "30"])?;
    }
    Ok(directory)
}

fn cargo(words: &[&str], tallies: &Path) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    let status = command.args(words).env("SHAMBA_TALLIES", tallies).current_dir(tidy::root()).status();
    let status = status.map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("a violation: {} failed with {status}", words.join(" ")))
    }
}

/// One file a suite; one line a count.
fn read(directory: &PathBuf) -> Result<Tallies, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut tallies = Tallies::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            let (count, name) =
                line.split_once('\t').ok_or_else(|| format!("{}: {line:?}", path.display()))?;
            let count = count.parse().map_err(|_| format!("{}: {line:?}", path.display()))?;
            counts.insert(name.to_owned(), count);
        }
        let suite = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tallies.insert(suite, counts);
    }
    Ok(tallies)
}

/// What was reached; none where nothing of it was run.
fn reached(row: &Row, tallies: &Tallies) -> Option<u64> {
    let is_meant = |wanted: &str, name: &str| match wanted.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == wanted,
    };
    let of = |(suite, wanted): &(&str, &str)| {
        let counts = tallies.get(*suite).into_iter().flatten();
        counts.filter(|(name, _)| is_meant(wanted, name)).map(|(_, count)| *count).collect::<Vec<u64>>()
    };
    let counts: Vec<u64> = row.counts.iter().flat_map(of).collect();
    if row.is_limit { counts.into_iter().max() } else { counts.into_iter().reduce(|sum, count| sum + count) }
}

/// Whether less was reached than CI must, or more than may ever be.
fn is_missed(row: &Row, tallies: &Tallies) -> bool {
    match reached(row, tallies) {
        Some(count) if row.is_limit => count > row.ci.max(row.on_demand),
        Some(count) => count < row.ci,
        None => row.ci > 0,
    }
}

fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn page(tallies: &Tallies, seconds: &[(String, u64)], is_full: bool) -> String {
    let how = if is_full { " --full" } else { "" };
    let mut out = format!(
        "# What the suites reach\n\nWritten by `cargo xtask reliability{how} --write`. A suite that finds a violation fails, and no table \
         is written: violations in this run: 0.\nWhat each suite does and what is not modelled: [reliability](../reliability.md).\n\n\
         | # | measure | CI target | on demand | reached |\n|---|---|---:|---:|---:|\n"
    );
    for row in ROWS {
        let asked = |target: u64| if target == 0 { "".to_owned() } else { grouped(target) };
        let reached = match reached(row, tallies) {
            None => "not run".to_owned(),
            Some(count) if is_missed(row, tallies) => format!("**{}**", grouped(count)),
            Some(count) => grouped(count),
        };
        out += &format!(
            "| {} | {} | {} | {} | {reached} |\n",
            row.number,
            row.measure,
            asked(row.ci),
            asked(row.on_demand)
        );
    }
    out += "\n| run | seconds |\n|---|---:|\n";
    for (name, seconds) in seconds {
        out += &format!("| {name} | {seconds} |\n");
    }
    out += "\n## All counts\n";
    for (suite, counts) in tallies {
        let counts: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
        out += &format!("\n- `{suite}`: {}", counts.join("; "));
    }
    out.push('\n');
    out
}

fn json(tallies: &Tallies) -> String {
    let rows = ROWS.iter().map(|row| {
        format!(
            r#"{{"number":{},"measure":"{}","ci_target":{},"on_demand_target":{},"is_limit":{},"reached":{}}}"#,
            row.number,
            row.measure,
            row.ci,
            row.on_demand,
            row.is_limit,
            reached(row, tallies).map_or_else(|| "null".to_owned(), |count| count.to_string())
        )
    });
    format!(
        r#"{{"schema":"shamba.reliability/1","violations":0,"rows":[{}]}}"#,
        rows.collect::<Vec<_>>().join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tallies(text: &[(&str, &str, u64)]) -> Tallies {
        let mut tallies = Tallies::new();
        for (suite, name, count) in text {
            tallies.entry((*suite).to_owned()).or_default().insert((*name).to_owned(), *count);
        }
        tallies
    }

    #[test]
    fn rows_add_up_and_what_falls_short_is_marked() {
        let tallies = tallies(&[
            ("crash", "distinct images", 90_000),
            ("crash-threads", "distinct images", 20_000),
            ("model", "operations", 999),
            ("fuzz", "executions, log", 5),
            ("fuzz", "executions, table", 6),
            ("fuzz", "corpus files", 7),
            ("fuzz-guided", "executions, log", 600_000),
            ("hostile-memory", "max KiB beyond the input", 4_321),
            ("overload-16MiB", "max KiB resident beyond the budget", 20_000),
            ("overload-64MiB", "max KiB resident beyond the budget", 70_000),
        ]);
        let page = page(&tallies, &[("suites".to_owned(), 5)], false);
        assert!(page.contains("| 100,000 | 10,000,000 | 110,000 |"), "{page}");
        assert!(page.contains("| 600,011 |"), "{page}");
        assert!(page.contains("| 16,384 | 16,384 | 4,321 |"), "{page}");
        assert!(page.contains("| 65,536 | **70,000** |"), "the greatest, which is too much: {page}");
        assert!(page.contains("| **999** |") && page.contains("| not run |"), "{page}");
        assert!(json(&tallies).contains(r#""measure":"operations against the oracle","ci_target":1000000"#));
    }
}
