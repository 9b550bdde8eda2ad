//! The table of the suites' coverage: each measure, its target, and the count of this run.
//!
//! Each step leaves one file with its counts and its result; here the counts are added up and
//! compared with the targets. Where two steps ran the same suite, the greater count is used. A
//! suite that finds a violation fails, so a printed table has none. On-demand runs have their own
//! column and run with `--full`; a step that must reach a target on demand has missed it if its own
//! counts do not reach it.
//!
//! The runs together take some ten hours, so the files of the published table are kept next to it:
//! a step can run again by itself, on another day, and its row names the commit that it ran on.
//!
//! Not here: the work of the suites (`tests/`), and the meaning of the counts
//! (`docs/reliability.md`).

mod rows;
mod steps;

use std::collections::BTreeMap;
use std::path::PathBuf;

use self::rows::{ROWS, Row};
use self::steps::{Ended, STEPS, Step, file_of, read_steps, step};
use crate::tidy;

/// Counts by suite and name.
type Tallies = BTreeMap<String, BTreeMap<String, u64>>;

/// Counts of each step, by its name.
type OfSteps = BTreeMap<String, Tallies>;

/// Path of the published table.
const PAGE: &str = "docs/results/reliability.md";

/// Folder with the files of the steps that the published table is written from.
const KEPT: &str = "docs/results/raw/reliability";

/// Runs the suites and prints the table; `--full` adds the on-demand runs, `--write` keeps the
/// results and publishes the table.
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
    let target = tidy::root().join("target/reliability");
    let directory = match from {
        Some(directory) => std::path::absolute(directory).map_err(|error| error.to_string())?,
        None if has("--write") => tidy::root().join(KEPT),
        None => {
            // Not the counts, which another run may be writing.
            for step in STEPS {
                let _ = std::fs::remove_file(file_of(&target, step.name));
            }
            target.clone()
        }
    };
    if !has("--counted") {
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        steps.iter().try_for_each(|step| step.run(&directory, &target.join("counts")))?;
    }
    let (of_steps, ended) = read_steps(&directory)?;
    let tallies = merged(&of_steps);
    let page = page(&tallies, &of_steps, &ended);
    if has("--json") {
        println!("{}", json(&tallies, &ended));
    } else {
        println!("{page}");
    }
    if has("--write") {
        let path = tidy::root().join(PAGE);
        std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    // Others may run at the same time.
    let is_asked = |name: &str| only.is_none() || steps.iter().any(|step| step.name == name);
    let violated: Vec<&str> =
        ended.iter().filter(|of| !of.is_well() && is_asked(&of.name)).map(|step| &step.name[..]).collect();
    if !violated.is_empty() {
        return Err(format!("violations: these did not end well: {}", violated.join(", ")));
    }
    let missed: Vec<String> = ROWS
        .iter()
        // If only some steps ran, measures of the others are not checked.
        .filter(|row| !(only.is_some() && reached(row, &tallies).is_none()))
        .filter_map(|row| missed(row, &tallies, &of_steps))
        .collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("their targets are missed: {}", missed.join("; "))) }
}

/// Counts of all steps; where two steps counted the same, the greater one.
fn merged(of_steps: &OfSteps) -> Tallies {
    let mut all = Tallies::new();
    for (suite, counts) in of_steps.values().flatten() {
        let of_suite = all.entry(suite.clone()).or_default();
        for (name, count) in counts {
            let most = of_suite.entry(name.clone()).or_default();
            *most = (*most).max(*count);
        }
    }
    all
}

/// The count of a row; `None` if none of its suites ran.
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

/// The missed target of a row, in words; `None` if it is met, or does not apply.
fn missed(row: &Row, tallies: &Tallies, of_steps: &OfSteps) -> Option<String> {
    let Row { measure, ci, on_demand, by, is_limit, .. } = row;
    let reached_by_all = reached(row, tallies);
    if *is_limit {
        let most = (*ci).max(*on_demand);
        return match reached_by_all {
            Some(count) if count > most => Some(format!("{measure}: {count}, at most {most}")),
            None if *ci > 0 => Some(format!("{measure}: not run")),
            _ => None,
        };
    }
    let count = reached_by_all.unwrap_or(0);
    if count < *ci {
        return Some(format!("{measure}: {count} of {ci}"));
    }
    if by.is_empty() {
        // No step is required to reach it.
        return None;
    }
    let of_step = reached(row, of_steps.get(*by)?).unwrap_or(0);
    (of_step < *on_demand).then(|| format!("{measure}: {of_step} of {on_demand} by {by}"))
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

/// The number of steps that did not succeed.
fn violations(ended: &[Ended]) -> usize {
    ended.iter().filter(|step| !step.is_well()).count()
}

fn page(tallies: &Tallies, of_steps: &OfSteps, ended: &[Ended]) -> String {
    let violations = violations(ended);
    let mut out = format!(
        "# What the suites reach\n\nWritten by `cargo xtask reliability --write`, with `--full` or `--only` for what is run on demand. A suite \
         that finds a violation ends with it. Violations: {violations} of the runs below did not end well.\nWhat each suite does, and what is \
         not modelled: [reliability](../reliability.md).\n\n\
         | # | measure | CI target | on demand | reached |\n|---|---|---:|---:|---:|\n"
    );
    for row in ROWS {
        let asked = |target: u64| if target == 0 { "".to_owned() } else { grouped(target) };
        let reached = match reached(row, tallies) {
            None => "not run".to_owned(),
            Some(count) if missed(row, tallies, of_steps).is_some() => format!("**{}**", grouped(count)),
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
    out += "\n| run | commit | seconds | ended |\n|---|---|---:|---|\n";
    for step in ended {
        let how = if step.is_well() { step.how.clone() } else { format!("**{}**", step.how) };
        out += &format!("| `{}` | {} | {} | {how} |\n", step.command, step.build, step.seconds);
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
        violations(ended),
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
        let ended = |how: &str| Ended {
            name: "kill".to_owned(),
            command: "cargo xtask kill".to_owned(),
            build: "0a1b2c3d".to_owned(),
            seconds: 5,
            how: how.to_owned(),
        };
        let page = page(&tallies, &OfSteps::new(), &[ended("well"), ended("not well")]);
        assert!(page.contains("Violations: 1 of"), "{page}");
        assert!(page.contains("| `cargo xtask kill` | 0a1b2c3d | 5 | **not well** |"), "{page}");
        assert!(page.contains("| 100,000 | 10,000,000 | 110,000 |"), "{page}");
        assert!(page.contains("| 600,011 |"), "{page}");
        assert!(page.contains("| 16,384 | 16,384 | 4,321 |"), "{page}");
        assert!(page.contains("| 65,536 | **70,000** |"), "the greatest, which is too much: {page}");
        assert!(page.contains("| **999** |") && page.contains("| not run |"), "{page}");
        assert!(
            json(&tallies, &[]).contains(r#""measure":"operations against the oracle","ci_target":1000000"#)
        );
    }

    const LIVES: &str = "lives with two faults";

    #[test]
    fn of_a_suite_that_ran_twice_the_longer_run_counts_and_a_step_answers_for_its_own() {
        let (short, long) =
            (tallies(&[("fault-pairs", LIVES, 1_762)]), tallies(&[("fault-pairs", LIVES, 99_000)]));
        let row = ROWS.iter().find(|row| row.measure == LIVES).expect("there");
        let of = |steps: &[(&str, &Tallies)]| -> OfSteps {
            steps.iter().map(|(name, tallies)| ((*name).to_owned(), (*tallies).clone())).collect()
        };
        let missed = |of_steps: OfSteps| missed(row, &merged(&of_steps), &of_steps);
        assert_eq!(missed(of(&[("suites", &short)])), None, "the step was not run");
        let both = of(&[("pairs", &long), ("suites", &short)]);
        assert_eq!(merged(&both)["fault-pairs"][LIVES], 99_000);
        assert_eq!(missed(both), Some("lives with two faults: 99000 of 100000 by pairs".to_owned()));
        let elsewhere = of(&[("pairs", &Tallies::new()), ("suites", &long)]);
        assert_eq!(missed(elsewhere), Some("lives with two faults: 0 of 100000 by pairs".to_owned()));
        assert!(missed(of(&[])).is_some_and(|missed| missed.ends_with("0 of 1000")), "CI asks 1,000");
    }

    #[test]
    fn a_run_that_reaches_what_ci_asks_has_missed_nothing() {
        let directory = std::env::temp_dir().join(format!("shamba-reliability-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("made");
        let counts = ROWS.iter().filter(|row| row.ci > 0).map(|row| {
            let (suite, count) = row.counts[0];
            format!("{}\t{suite}\t{}\n", row.ci, count.replace('*', "x"))
        });
        let ended = "cargo test\t0a1b2c3d\t5\twell\n";
        let suites = ended.to_owned() + &counts.collect::<String>();
        std::fs::write(directory.join("suites.tsv"), suites).expect("written");
        let (of_steps, _) = read_steps(&directory).expect("read");
        let tallies = merged(&of_steps);
        for row in ROWS {
            assert_eq!(missed(row, &tallies, &of_steps), None);
        }
        let overload = ended.to_owned() + "70000\toverload-64MiB\tmax KiB resident beyond the budget\n";
        std::fs::write(directory.join("overload.tsv"), overload).expect("written");
        let (of_steps, ended) = read_steps(&directory).expect("read");
        assert_eq!(ended.len(), 2);
        let missed = ROWS.iter().filter_map(|row| missed(row, &merged(&of_steps), &of_steps));
        assert_eq!(missed.count(), 1, "a limit holds for whoever measured it");
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn every_step_that_a_row_names_is_there() {
        for row in ROWS {
            assert!(row.by.is_empty() || step(row.by).is_ok(), "{}", row.by);
        }
    }
}
