//! Faults at the n-th system call of the unmodified binary, by tracing: an error of a sync, a full
//! disk, an interrupted call, a kill.
//!
//! The tool is `strace -e inject=CALLS:WHAT:when=n`. Three of its properties determine the form of
//! a sweep:
//!
//! - With `-f` each *thread* has its own count: `when=n` hits the n-th call of every thread with
//!   that many calls. A kill ends all threads at the first one. So a sweep selects the files whose
//!   calls count (`-P`), and uses scripts in which one thread makes most of those calls: the log is
//!   written by the committing thread, tables and value files by the flush worker. If two threads
//!   reach the count, a run has two faults, which the checks allow.
//! - `-P` takes whole paths, not patterns; it is given the names of all files that a life can have.
//! - The call into which a kill is injected is not executed.
//!
//! A point is one fresh database, one script, one n. The guarantees: acknowledged commits are
//! present after a reopen, others are present as a whole or absent, reads before and after are
//! correct, no unneeded file remains, and the errors are of the kinds that the contract names, with
//! their exit code. A trace tells which file was hit. A point whose n was not reached is counted
//! separately. It is an error where every life makes that many calls, so that a sweep cannot pass
//! by hitting nothing.
//!
//! Not here: short writes (`strace` can only report one), which the simulated file systems provide.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use shamba::env::{RealFs, Vfs};

use crate::crash::orphans;
use crate::pool;
use crate::seed::mixed;
use crate::tally::Tally;
use crate::victim::book::{Book, Outcome};
use crate::victim::life::{End, Ended, Victim};
use crate::victim::options::Options;
use crate::victim::script::{Ask, Mix, Script};

/// Maximum file number of a life.
const FILE_NUMBERS: u64 = 6_000;

/// Percentage of the points that a script is made for which must be reached. The observed one is
/// 100 or more.
const DUE_PER_CENT: u64 = 70;

/// The fault injected into a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A sync fails.
    SyncFails,
    /// A write finds no space.
    NoSpace,
    /// Every write from then on finds no space.
    DiskFull,
    /// The process is killed on entry to a call that changes files.
    Killed,
    /// The call is interrupted.
    Interrupted,
}

/// The files whose calls count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// Write-ahead logs, written with a call for each record.
    Log,
    /// The same, mapped: calls make room for records.
    MappedLog,
    /// Tables.
    Tables,
    /// Value files.
    Values,
    /// The manifest and what names it.
    Manifest,
    /// The directory, whose syncs make names durable.
    Directory,
    /// All files, including those outside the database.
    All,
}

/// One fault at successive calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sweep {
    /// The fault.
    pub fault: Fault,
    /// The files.
    pub files: Files,
}

/// All sweeps.
pub fn sweeps() -> Vec<Sweep> {
    let faults = [Fault::SyncFails, Fault::NoSpace, Fault::DiskFull, Fault::Killed];
    let files = [Files::Log, Files::Tables, Files::Values, Files::Manifest];
    let mut all: Vec<Sweep> =
        faults.into_iter().flat_map(|fault| files.map(|files| Sweep { fault, files })).collect();
    let of_mapped = [Fault::NoSpace, Fault::DiskFull, Fault::Killed];
    all.extend(of_mapped.map(|fault| Sweep { fault, files: Files::MappedLog }));
    all.push(Sweep { fault: Fault::SyncFails, files: Files::Directory });
    all.push(Sweep { fault: Fault::Killed, files: Files::All });
    // Not for all files: the program loader need not handle it.
    all.extend(
        [Files::Log, Files::Tables, Files::Values].map(|files| Sweep { fault: Fault::Interrupted, files }),
    );
    all
}

/// Checks that a tracer exists and may trace.
///
/// # Errors
/// The reason why it does not.
pub fn tracer() -> Result<(), String> {
    let tried = Command::new("strace")
        .args(["-f", "-q", "-o", "/dev/null", "-e", "trace=write", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match tried {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("strace may not trace here".to_owned()),
        Err(error) => Err(format!("strace: {error}")),
    }
}

impl Sweep {
    /// The name in reports.
    pub fn name(self) -> String {
        let fault = match self.fault {
            Fault::SyncFails => "EIO of a sync",
            Fault::NoSpace => "ENOSPC of a write",
            Fault::DiskFull => "ENOSPC of all writes",
            Fault::Killed => "SIGKILL",
            Fault::Interrupted => "EINTR",
        };
        let files = match self.files {
            Files::Log => "logs",
            Files::MappedLog => "mapped logs",
            Files::Tables => "tables",
            Files::Values => "value files",
            Files::Manifest => "the manifest",
            Files::Directory => "the directory",
            Files::All => "all files",
        };
        format!("{fault}, {files}")
    }

    /// Runs the points `numbers`, none above `most`, in parallel. The script is as long as `most`
    /// requires. Databases are created in `dir`.
    ///
    /// # Errors
    /// The first violation, with the seed and the point.
    pub fn run(
        self,
        binary: &Path,
        dir: &Path,
        seed: u64,
        numbers: &[u64],
        most: u64,
    ) -> Result<Tally, String> {
        let script = self.script(seed, most);
        let tallies = pool::run(numbers.len(), |index| {
            let mut tally = Tally::default();
            let (n, is_due) = (numbers[index], numbers[index] * 100 <= most * DUE_PER_CENT);
            self.point(binary, dir, &script, n, is_due, &mut tally).map_err(|error| {
                format!(
                    "{}, n = {n}, seed {seed}: {error}\n  rerun: cargo xtask syscalls --seed {seed} --points {most} --only {n}",
                    self.name()
                )
            })?;
            Ok(tally)
        })?;
        let total = Tally::sum(&tallies);
        Ok(total)
    }

    /// A script with many calls of the kind that counts.
    fn script(self, seed: u64, most: u64) -> (Options, Vec<Ask>) {
        let small = Mix { keys: 300, value_bytes: 60, large_one_in: 300, ..Mix::USUAL };
        let flushing = Mix { flush_every: 2, ..small };
        let (mix, per_call, sync) = match (self.files, self.fault) {
            (Files::Log, _) => (Mix { flush_every: 120, ..small }, 1.4, "always"),
            (Files::All, _) => (Mix { flush_every: 120, value_bytes: 120, ..small }, 1.4, "always"),
            // Each flush begins a log, and a log makes room with four calls.
            (Files::MappedLog, _) => (flushing, 0.8, "never"),
            // Flushes and compactions change it in two threads, each with one sync.
            (Files::Manifest, Fault::SyncFails) => (flushing, 3.6, "never"),
            // Some flushes have no value that is long enough.
            (Files::Values, _) => (Mix { value_bytes: 200, ..flushing }, 2.4, "never"),
            (Files::Tables | Files::Manifest | Files::Directory, _) => (flushing, 1.8, "never"),
        };
        let count = (most as f64 * per_call) as usize + 50;
        let value_threshold = if matches!(self.files, Files::Values | Files::All) { "64" } else { "off" };
        let map_log = if self.files == Files::Log { "off" } else { "on" };
        let options = Options::fixed(&[
            "--map-log",
            map_log,
            "--sync",
            sync,
            "--no-wal",
            "off",
            "--value-threshold",
            value_threshold,
            "--write-buffer",
            "16KiB",
            "--file-size",
            "16KiB",
            "--size-ratio",
            "3",
            "--memory-budget",
            "8MiB",
            "--background-threads",
            "1",
            "--filter-layout",
            "modular:3",
        ]);
        (options, Script::new(mixed(seed, self.files as u64), 0, mix).asks(count))
    }

    /// The command line of the tracer.
    fn through(self, db: &Path, n: u64, trace: &Path) -> Vec<OsString> {
        let changes = "write,pwrite64,writev,fdatasync,fsync,ftruncate,openat,rename,renameat,renameat2,unlink,\
                       unlinkat,link,linkat,mkdir,mkdirat";
        let (calls, what) = match self.fault {
            Fault::SyncFails => ("fdatasync,fsync", format!("error=EIO:when={n}")),
            Fault::NoSpace => ("write,pwrite64,writev", format!("error=ENOSPC:when={n}")),
            Fault::DiskFull => ("write,pwrite64,writev", format!("error=ENOSPC:when={n}+")),
            Fault::Killed => (changes, format!("signal=SIGKILL:when={n}")),
            Fault::Interrupted => {
                ("write,pread64,openat,fdatasync,fsync,ftruncate", format!("error=EINTR:when={n}"))
            }
        };
        let mut words: Vec<OsString> =
            ["strace", "-f", "-q", "-y", "-s", "0", "-o"].map(OsString::from).to_vec();
        words.push(trace.as_os_str().to_owned());
        if self.fault != Fault::Killed {
            // Stops at no other calls. A stop of this kind cannot send a signal.
            words.push("--seccomp-bpf".into());
        }
        words.extend(["-e".into(), format!("trace={calls}").into()]);
        words.extend(["-e".into(), format!("inject={calls}:{what}").into()]);
        let mut counted = |name: String| words.extend(["-P".into(), db.join(name).into_os_string()]);
        match self.files {
            Files::Log | Files::MappedLog => {
                (1..FILE_NUMBERS).for_each(|number| counted(format!("{number:06}.log")))
            }
            Files::Tables => (1..FILE_NUMBERS).for_each(|number| counted(format!("{number:06}.sst"))),
            Files::Values => (1..FILE_NUMBERS).for_each(|number| counted(format!("{number:06}.values"))),
            Files::Manifest => {
                (1..FILE_NUMBERS).for_each(|number| counted(format!("MANIFEST-{number:06}")));
                ["CURRENT", "CURRENT.tmp"].map(String::from).into_iter().for_each(&mut counted);
            }
            Files::Directory => words.extend(["-P".into(), db.as_os_str().to_owned()]),
            Files::All => {}
        }
        words
    }

    fn point(
        self,
        binary: &Path,
        dir: &Path,
        script: &(Options, Vec<Ask>),
        n: u64,
        is_due: bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let home = dir.join(format!("{:?}-{:?}-{n}", self.fault, self.files));
        std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
        let (db, trace) = (home.join("db"), home.join("trace"));
        let through = self.through(&db, n, &trace);
        let victim = Victim { binary: binary.to_path_buf(), db, through };
        let (options, asks) = script;
        let mut book = Book::new();
        let ended = victim.live(&book, options, asks, End::Input)?;
        tally.add("points", 1);
        let Some(hit) = hit(&trace) else {
            tally.add("outcome: not reached", 1);
            if !ended.status.success() || !ended.errors.is_empty() {
                return Err(format!("nothing was hit, yet it ended with {}: {}", ended.status, ended.stderr));
            }
            if is_due {
                return Err("the life made fewer such calls than any should".to_owned());
            }
            return clean(&home);
        };
        tally.add("points reached", 1);
        tally.add(&format!("hit: {hit}"), 1);
        tally.add("commits acknowledged", ended.count(Outcome::Acked) as u64);
        tally.add(&format!("outcome: {}", self.judge(&ended)?), 1);
        let found = victim.look().map_err(|error| format!("a look after it: {error}"))?;
        book.reconcile(&ended.sent, ended.floor, &found)?;
        let recovered = victim.recover().map_err(|error| format!("recovery after it: {error}"))?;
        if recovered != found {
            return Err("recovery found another state than a look before it".to_owned());
        }
        nothing_left_over(&victim.db)?;
        clean(&home)
    }

    /// Checks the end of a life against the contract for its fault; returns it as text.
    fn judge(self, ended: &Ended) -> Result<String, String> {
        if self.fault == Fault::Killed {
            return match ended.is_killed() {
                true => Ok("killed".to_owned()),
                false => Err(format!("it was killed and ended with {}", ended.status)),
            };
        }
        // A failed sync of the log, the manifest or the directory makes the database read-only; a
        // failed sync of a table or value file, or a lack of space, does not.
        let allowed: &[&str] = match (self.fault, self.files) {
            (Fault::Interrupted, _) => &[],
            (Fault::SyncFails, Files::Tables | Files::Values) => &["Io"],
            (Fault::SyncFails, _) => &["Io", "ReadOnly"],
            _ => &["NoSpace"],
        };
        if let Some((kind, text)) = ended.errors.iter().find(|(kind, _)| !allowed.contains(&kind.as_str())) {
            return Err(format!("it answered {kind}: {text}"));
        }
        let code = ended.status.code().ok_or_else(|| format!("it ended with {}", ended.status))?;
        // The directory sync is not retried by a later call: even the last such failure is
        // reported, by the close.
        let harmless = (self.files != Files::Directory).then_some(0);
        let codes: Vec<i32> = match ended.errors.first() {
            Some((kind, _)) => code_of(kind).into_iter().collect(),
            None => harmless.into_iter().chain(allowed.iter().filter_map(|kind| code_of(kind))).collect(),
        };
        if !codes.contains(&code) {
            return Err(format!(
                "it ended with {code} after {:?}: {}",
                ended.errors.first().map(|(kind, _)| kind),
                ended.stderr
            ));
        }
        if code != 0 && ended.errors.is_empty() && ended.stderr.trim().is_empty() {
            return Err(format!("it ended with {code} and said nothing"));
        }
        Ok(match code {
            0 => "taken care of, exit 0".to_owned(),
            code => format!("reported, exit {code}"),
        })
    }
}

/// The exit code of a kind of error, by the command's table.
fn code_of(kind: &str) -> Option<i32> {
    [("Io", 3), ("NoSpace", 6), ("ReadOnly", 7)].iter().find(|(name, _)| *name == kind).map(|(_, code)| *code)
}

/// The sort of file of the injected call, by the trace; `None` if there was none.
fn hit(trace: &Path) -> Option<&'static str> {
    let text = std::fs::read(trace).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).ok()?;
    let was_killed = text.contains("+++ killed by SIGKILL +++");
    // For a kill the trace shows a call that never returned.
    let call = text.lines().find(|line| line.contains("(INJECTED)") || (was_killed && line.ends_with("= ?")));
    let Some(call) = call else { return was_killed.then_some("between calls") };
    let sorts = [
        (".log", "a log"),
        (".sst", "a table"),
        (".values", "a value file"),
        ("MANIFEST", "the manifest"),
        ("CURRENT", "CURRENT"),
        ("STATISTICS", "statistics"),
        ("/LOG", "the info log"),
        ("/db", "the directory"),
        ("pipe:", "replies"),
    ];
    Some(sorts.iter().find(|(mark, _)| call.contains(mark)).map_or("something else", |(_, sort)| sort))
}

/// Checks that no obsolete file remains after a recovery and a clean close.
fn nothing_left_over(db: &Path) -> Result<(), String> {
    let env_files = RealFs::new().list(db).map_err(|error| format!("list: {error}"))?;
    let opened =
        shamba::Db::builder(db).read_only(true).open().map_err(|error| format!("open: {error:?}"))?;
    let report = opened.verify().map_err(|error| format!("verify: {error:?}"))?;
    orphans(&env_files, &report)
}

fn clean(home: &Path) -> Result<(), String> {
    std::fs::remove_dir_all(home).map_err(|error| format!("{}: {error}", home.display()))
}
