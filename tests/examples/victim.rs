//! The tests of the real binary (kills, injected system call faults, scarce resources) and the
//! soak, on demand: `cargo xtask kill`, `syscalls`, `scarce` and `soak` start it.
//!
//! Progress goes to standard error, one JSON object to standard output at the end. The first
//! violation ends the run with a failure and the command that reproduces it. The binary is the one
//! in this program's own build directory.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use shamba_tests::seed;
use shamba_tests::soak::{Soak, steady};
use shamba_tests::tally::Tally;
use shamba_tests::victim::life::beside_this_program;
use shamba_tests::victim::syscalls::{self, sweeps};
use shamba_tests::victim::{kill, place, scarce};

/// Minimum mean number of acknowledged commits per life. The observed number is 400.
const ACKED_PER_KILL: u64 = 50;

const USAGE: &str = "usage: victim kill [--cycles N] [--seed N]
       victim syscalls [--points N] [--only N] [--sweep WORD] [--seed N]
       victim scarce [--rounds N]
       victim soak [--seconds N | --hours N] [--seed N] [--only N]
       victim steady [--seconds N | --hours N] [--seed N]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("violation: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<String, String> {
    let known = ["--cycles", "--points", "--only", "--sweep", "--seed", "--rounds", "--seconds", "--hours"];
    if let Some(unknown) = words.iter().find(|word| word.starts_with("--") && !known.contains(&word.as_str()))
    {
        return Err(format!("no option {unknown}\n{USAGE}"));
    }
    let number = |name: &str, usual: u64| match option(words, name) {
        Some(text) => text.parse::<u64>().map_err(|_| format!("{name} {text:?} is no number")),
        None => Ok(usual),
    };
    let binary = beside_this_program()?;
    let place = place("victim")?;
    let seed = number("--seed", seed::base(0xdead))?;
    let begun = Instant::now();
    match words.first().map(String::as_str) {
        Some("kill") => {
            let cycles = number("--cycles", 300)?;
            let tally = kill::cycles(&binary, place.path(), seed, cycles)?;
            let acked = tally.get("commits acknowledged");
            if acked < cycles * ACKED_PER_KILL {
                return Err(format!("{cycles} lives acknowledged {acked} commits: too few to tell anything"));
            }
            eprint!("{tally}");
            tally.keep("kill");
            Ok(report("kill", seed, begun, &format!("\"counts\":{}", tally.json())))
        }
        Some("syscalls") => {
            syscalls::tracer().map_err(|reason| format!("nothing can be tried: {reason}"))?;
            let most = number("--points", 500)?;
            let numbers = match option(words, "--only") {
                Some(_) => vec![number("--only", 1)?],
                None => (1..=most).collect(),
            };
            sweep_all(&binary, place.path(), seed, &numbers, most, option(words, "--sweep"))
                .map(|sweeps| report("syscalls", seed, begun, &sweeps))
        }
        Some("scarce") => {
            let mut tally = scarce::few_descriptors(&binary, place.path(), 64)?;
            let disk = scarce::SmallDisk::mount().map_err(|reason| format!("a full disk: {reason}"))?;
            tally.merge(&scarce::full_disk(&binary, &disk, number("--rounds", 12)? as u32)?);
            eprint!("{tally}");
            tally.keep("scarce");
            Ok(report("scarce", seed, begun, &format!("\"counts\":{}", tally.json())))
        }
        Some("steady") => {
            let seconds = number("--seconds", 60)?.max(number("--hours", 0)?.saturating_mul(3_600));
            let tally = steady::run(place.path(), seed, Duration::from_secs(seconds), true)?;
            eprint!("{tally}");
            tally.keep("steady");
            Ok(report("steady", seed, begun, &format!("\"counts\":{}", tally.json())))
        }
        Some("soak") => {
            let soak = Soak { binary: &binary, dir: place.path(), seed };
            let seconds = number("--seconds", 60)?.max(number("--hours", 0)?.saturating_mul(3_600));
            let tally = match option(words, "--only") {
                Some(_) => soak.life(number("--only", 0)?)?,
                None => soak.run(Duration::from_secs(seconds))?,
            };
            eprint!("{tally}");
            tally.keep("soak");
            Ok(report("soak", seed, begun, &format!("\"counts\":{}", tally.json())))
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn sweep_all(
    binary: &Path,
    dir: &Path,
    seed: u64,
    numbers: &[u64],
    most: u64,
    only: Option<&str>,
) -> Result<String, String> {
    let mut sum = Tally::default();
    let mut parts = Vec::new();
    let wanted = sweeps().into_iter().filter(|sweep| only.is_none_or(|word| sweep.name().contains(word)));
    for sweep in wanted {
        let begun = Instant::now();
        let tally = sweep.run(binary, dir, seed, numbers, most)?;
        eprintln!("{} ({:.0} s)\n{tally}", sweep.name(), begun.elapsed().as_secs_f64());
        parts.push(format!("{:?}:{}", sweep.name(), tally.json()));
        sum.merge(&tally);
    }
    eprintln!("all together\n{sum}");
    sum.keep("syscalls");
    Ok(format!("\"sweeps\":{{{}}},\"counts\":{}", parts.join(","), sum.json()))
}

fn report(name: &str, seed: u64, begun: Instant, rest: &str) -> String {
    let seconds = begun.elapsed().as_secs_f64();
    format!(
        "{{\"schema\":\"shamba.reliability.{name}/1\",\"seed\":{seed},\"seconds\":{seconds:.1},\"violations\":0,{rest}}}"
    )
}

/// The value after the option `name`, if there is one.
fn option<'w>(words: &'w [String], name: &str) -> Option<&'w str> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1).map(String::as_str)
}
