//! The commands, one per file.

mod batch;
mod bench;
mod check;
mod checkpoint;
mod compact;
mod delete;
mod dump;
mod explain;
mod get;
mod load;
mod manifest;
mod memory;
mod put;
mod repair;
mod scan;
mod stats;
mod table;
mod tree;
mod tune;
mod wal;

pub(crate) use self::batch::Session;

use std::ffi::OsStr;

use clap::Subcommand;

use crate::exit::Failure;
use crate::output::Out;
use crate::text::Notation;

/// One command.
#[derive(Subcommand)]
pub enum Command {
    /// Fill three databases with the paths of a directory tree, look everything up, and show what
    /// happened
    Demo(crate::demo::DemoArgs),
    /// Load a file of records
    Load(load::LoadArgs),
    /// Store a value
    Put(put::PutArgs),
    /// Print the value of a key
    Get(get::GetArgs),
    /// Delete a key
    Delete(delete::DeleteArgs),
    /// Print entries in key order
    Scan(scan::ScanArgs),
    /// Print every live entry as hex, tab, hex
    Dump(dump::DumpArgs),
    /// Show what a lookup of a key touches and skips, why, and at what cost
    Explain(explain::ExplainArgs),
    /// Show the tree: levels, runs, tables
    Tree(tree::TreeArgs),
    /// Show counters and levels
    Stats(stats::StatsArgs),
    /// Show where memory is
    Memory(memory::MemoryArgs),
    /// Read every byte of a database and report all damage
    Check(check::CheckArgs),
    /// Make a new database of everything that a damaged one still holds
    Repair(repair::RepairArgs),
    /// Make an independent database in another directory from the present state
    Checkpoint(checkpoint::CheckpointArgs),
    /// Merge everything into one run
    Compact(compact::CompactArgs),
    /// Describe a table file
    Table(table::TableArgs),
    /// Describe a write-ahead log file
    Wal(wal::WalArgs),
    /// Describe the manifest of a database
    Manifest(manifest::ManifestArgs),
    /// Run operations from standard input, with one reply a line
    Batch(batch::BatchArgs),
    /// Measure workloads
    Bench(bench::BenchArgs),
    /// Move a database to the design that suits what was asked of it lately
    Tune(tune::TuneArgs),
    /// The command that the papers' experiments had until 0.2; it names its successor
    #[command(hide = true)]
    Lab(MovedArgs),
    /// What a design would cost, and which would be best: no database needed
    Plan(crate::plan::PlanArgs),
}

/// Whatever was given to a command that has moved.
#[derive(clap::Args)]
pub struct MovedArgs {
    #[arg(num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<String>,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// Any [`Failure`].
    pub fn run(self, out: &mut Out) -> Result<(), Failure> {
        match self {
            Self::Demo(args) => crate::demo::run(&args, out),
            Self::Load(args) => load::run(&args, out),
            Self::Put(args) => put::run(&args),
            Self::Get(args) => get::run(&args, out),
            Self::Delete(args) => delete::run(&args),
            Self::Scan(args) => scan::run(&args, out),
            Self::Dump(args) => dump::run(&args, out),
            Self::Explain(args) => explain::run(&args, out),
            Self::Tree(args) => tree::run(&args, out),
            Self::Stats(args) => stats::run(&args, out),
            Self::Memory(args) => memory::run(&args, out),
            Self::Check(args) => check::run(&args, out),
            Self::Repair(args) => repair::run(&args, out),
            Self::Checkpoint(args) => checkpoint::run(&args),
            Self::Compact(args) => compact::run(&args),
            Self::Table(args) => table::run(&args, out),
            Self::Wal(args) => wal::run(&args, out),
            Self::Manifest(args) => manifest::run(&args, out),
            Self::Batch(args) => batch::run(&args, out),
            Self::Bench(args) => bench::run(&args, out),
            Self::Tune(args) => tune::run(&args, out),
            Self::Lab(_) => Err(Failure::Usage(
                "the papers' experiments are a command of their own now, in the source repository: \
                 cargo run --release -p shamba-lab -- list"
                    .to_owned(),
            )),
            Self::Plan(args) => crate::plan::run(&args, out),
        }
    }
}

/// Parses a key or value given on the command line.
fn argument(what: &str, text: &OsStr, notation: Notation) -> Result<Vec<u8>, Failure> {
    match notation.parse(text.as_encoded_bytes()) {
        Ok(bytes) => Ok(bytes.into_owned()),
        Err(reason) if notation == Notation::Text => {
            Err(Failure::Usage(format!("{what}: {reason} (\\x5c is a backslash)")))
        }
        Err(reason) => Err(Failure::Usage(format!("{what}: {reason}"))),
    }
}
