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
        "distinct crash images recovered and checked, those of recoveries among them",
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
        "lookups through filters whole and in parts, half of them of keys that are there",
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
    row(11, "operations of these runs", 200_000, 2_400_000, &[("metamorphic", "operations")]),
    row(
        12,
        "operations beside one another, held to sums or to one order of all",
        1_000_000,
        2_000_000,
        &[
            ("concurrency-leveling", "operations"),
            ("concurrency-tiering", "operations"),
            ("histories-leveling", "operations"),
            ("histories-tiering", "operations"),
            ("histories-lazy-leveling", "operations"),
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
    let (mut from, mut only, mut flags) = (None, None, Vec::new());
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--from" => from = Some(PathBuf::from(words.next().ok_or("--from needs a directory")?)),
            "--only" => only = Some(words.next().ok_or("--only needs the names of steps")?),
            "--full" | "--counted" | "--write" | "--json" => flags.push(word),
            unknown => return Err(format!("reliability has no option {unknown}")),
        }
    }
    let has = |name: &str| flags.contains(&name);
    let steps: Vec<&Step> = match (only, has("--full")) {
        (Some(names), _) => names.split(',').map(step).collect::<Result<_, _>>()?,
        (None, true) => STEPS.iter().collect(),
        (None, false) => STEPS.iter().filter(|step| step.is_of_ci).collect(),
    };
    let directory = match from {
        Some(directory) => std::path::absolute(directory).map_err(|error| error.to_string())?,
        None => {
            let directory = tidy::root().join("target/reliability");
            let _ = std::fs::remove_dir_all(&directory);
            directory
        }
    };
    if !has("--counted") {
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        steps.iter().try_for_each(|step| step.run(&directory))?;
    }
    let (tallies, ended) = (read(&directory)?, read_steps(&directory)?);
    let page = page(&tallies, &ended);
    if has("--json") {
        println!("{}", json(&tallies, &ended));
    } else {
        println!("{page}");
    }
    let violated: Vec<&str> = ended.iter().filter(|step| !step.is_well).map(|step| &step.name[..]).collect();
    if !violated.is_empty() {
        return Err(format!("violations: these did not end well: {}", violated.join(", ")));
    }
    if has("--write") {
        let path = tidy::root().join(PAGE);
        std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let missed: Vec<String> = ROWS
        .iter()
        // Of some steps alone what the others would reach is not asked.
        .filter(|row| is_missed(row, &tallies) && !(only.is_some() && reached(row, &tallies).is_none()))
        .map(|row| {
            let count =
                reached(row, &tallies).map_or_else(|| "not run".to_owned(), |count| count.to_string());
            format!(
                "{}: {count} of {}",
                row.measure,
                row.ci.max(if row.is_limit { row.on_demand } else { 0 })
            )
        })
        .collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("their targets are missed: {}", missed.join("; "))) }
}

/// A command that leaves counts.
struct Step {
    name: &'static str,
    words: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    is_of_ci: bool,
}

const fn on_demand(name: &'static str, words: &'static [&'static str]) -> Step {
    Step { name, words, variables: &[], is_of_ci: false }
}

const STEPS: &[Step] = &[
    Step { name: "suites", words: &["test", "--package", "shamba-tests"], variables: &[], is_of_ci: true },
    Step {
        name: "schedules",
        words: &["test", "--package", "shamba-loom", "--package", "shamba-schedules"],
        variables: &[],
        is_of_ci: true,
    },
    Step {
        name: "sweep",
        words: &["test", "--package", "shamba-tests", "--test", "suites", "sweep::"],
        variables: &[("SHAMBA_SWEEP", "1")],
        is_of_ci: false,
    },
    Step {
        name: "metamorphic",
        words: &["test", "--package", "shamba-tests", "--test", "suites", "metamorphic::"],
        variables: &[("SHAMBA_METAMORPHIC_OPS", "5000")],
        is_of_ci: false,
    },
    Step {
        name: "schedules-10000",
        words: &["test", "--package", "shamba-schedules"],
        variables: &[("SHAMBA_SCHEDULES", "10000")],
        is_of_ci: false,
    },
    on_demand("kill", &["xtask", "kill"]),
    on_demand("syscalls", &["xtask", "syscalls"]),
    on_demand("scarce", &["xtask", "scarce"]),
    on_demand("overload", &["xtask", "overload"]),
    on_demand("reopen", &["xtask", "reopen"]),
    on_demand("soak", &["xtask", "soak", "--seconds", "600"]),
    on_demand("planted", &["xtask", "planted"]),
    on_demand("fuzz", &["xtask", "fuzz", "all", "--seconds", "30"]),
];

fn step(name: &str) -> Result<&'static Step, String> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        format!("there is no step {name:?}: {}", known.join(", "))
    })
}

/// How a step ended, as it is kept beside the counts.
struct Ended {
    name: String,
    command: String,
    seconds: u64,
    is_well: bool,
}

/// The folder of [`Ended`] steps, beside the counts.
const STEPS_FOLDER: &str = "steps";

impl Step {
    fn command(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}cargo {}", variables.collect::<String>(), self.words.join(" "))
    }

    /// Runs it, and notes how it ended.
    fn run(&self, tallies: &Path) -> Result<(), String> {
        let begun = Instant::now();
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.args(self.words).envs(self.variables.iter().copied()).env("SHAMBA_TALLIES", tallies);
        let status = command.current_dir(tidy::root()).status();
        let status = status.map_err(|error| format!("cargo did not start: {error}"))?;
        let (seconds, how) = (begun.elapsed().as_secs(), if status.success() { "well" } else { "not well" });
        let folder = tallies.join(STEPS_FOLDER);
        let path = folder.join(self.name);
        let written = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, format!("{}\t{seconds}\t{how}\n", self.command())));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The steps that left their counts in `directory`, in order.
fn read_steps(directory: &Path) -> Result<Vec<Ended>, String> {
    let mut ended = Vec::new();
    for step in STEPS {
        let path = directory.join(STEPS_FOLDER).join(step.name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let [command, seconds, how] = text.trim_end().split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("{}: {text:?}", path.display()));
        };
        ended.push(Ended {
            name: step.name.to_owned(),
            command: command.to_owned(),
            seconds: seconds.parse().map_err(|_| format!("{}: {text:?}", path.display()))?,
            is_well: how == "well",
        });
    }
    Ok(ended)
}

/// One file a suite; one line a count.
fn read(directory: &PathBuf) -> Result<Tallies, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut tallies = Tallies::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            continue; // How steps ended.
        }
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

/// What is said of violations: of steps that were run, how many did not end well; a count that came otherwise says nothing of it.
fn violations(ended: &[Ended]) -> Option<usize> {
    (!ended.is_empty()).then(|| ended.iter().filter(|step| !step.is_well).count())
}

fn page(tallies: &Tallies, ended: &[Ended]) -> String {
    let violations = violations(ended).map_or_else(
        || "not known here, for these counts were left by runs of their own".to_owned(),
        |count| format!("{count} of the runs below did not end well"),
    );
    let mut out = format!(
        "# What the suites reach\n\nWritten by `cargo xtask reliability --write`, with `--full` or `--only` for what is run on demand. A suite \
         that finds a violation ends with it. Violations: {violations}.\nWhat each suite does, which targets were moved and why, and what is \
         not modelled: [reliability](../reliability.md).\n\n\
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
    out += "\n| run | seconds | ended |\n|---|---:|---|\n";
    for Ended { command, seconds, is_well, .. } in ended {
        let how = if *is_well { "well" } else { "**not well**" };
        out += &format!("| `{command}` | {seconds} | {how} |\n");
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

fn json(tallies: &Tallies, ended: &[Ended]) -> String {
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
        r#"{{"schema":"shamba.reliability/1","violations":{},"rows":[{}]}}"#,
        violations(ended).map_or_else(|| "null".to_owned(), |count| count.to_string()),
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
        let ended = |is_well| Ended {
            name: "kill".to_owned(),
            command: "cargo xtask kill".to_owned(),
            seconds: 5,
            is_well,
        };
        let page = page(&tallies, &[ended(true), ended(false)]);
        assert!(page.contains("Violations: 1 of"), "{page}");
        assert!(page.contains("| `cargo xtask kill` | 5 | **not well** |"), "{page}");
        assert!(page.contains("| 100,000 | 10,000,000 | 110,000 |"), "{page}");
        assert!(page.contains("| 600,011 |"), "{page}");
        assert!(page.contains("| 16,384 | 16,384 | 4,321 |"), "{page}");
        assert!(page.contains("| 65,536 | **70,000** |"), "the greatest, which is too much: {page}");
        assert!(page.contains("| **999** |") && page.contains("| not run |"), "{page}");
        assert!(
            json(&tallies, &[]).contains(r#""measure":"operations against the oracle","ci_target":1000000"#)
        );
    }
}
