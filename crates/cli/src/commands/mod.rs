//! The commands, one per file.

mod batch;
mod bench;
mod changes;
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
mod merge;
mod put;
mod repair;
mod scan;
mod span;
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
    /// Store the paths of a directory tree in three databases, look all of them up, and report the
    /// results
    Demo(crate::demo::DemoArgs),
    /// Load a file of records
    Load(load::LoadArgs),
    /// Store a value
    Put(put::PutArgs),
    /// Write an operand, from which the keyspace's merge operator makes the value of a key
    Merge(merge::MergeArgs),
    /// Print the value of a key
    Get(get::GetArgs),
    /// Delete a key
    Delete(delete::DeleteArgs),
    /// Print entries in key order
    Scan(scan::ScanArgs),
    /// Print every live entry as hex, tab, hex
    Dump(dump::DumpArgs),
    /// Show each step of a lookup: filters, blocks, reads and times
    Explain(explain::ExplainArgs),
    /// Show the tree: levels, runs, tables
    Tree(tree::TreeArgs),
    /// Show counters and levels
    Stats(stats::StatsArgs),
    /// Show memory use by part
    Memory(memory::MemoryArgs),
    /// Read every byte of a database and report all damage
    Check(check::CheckArgs),
    /// Copy the readable data of a damaged database to a new one
    Repair(repair::RepairArgs),
    /// Write a checkpoint: an independent copy of the database in another directory
    Checkpoint(checkpoint::CheckpointArgs),
    /// Compact each keyspace into one run
    Compact(compact::CompactArgs),
    /// Print the changes that the logs still have, oldest first
    Changes(changes::ChangesArgs),
    /// Describe a table file or a value file
    Table(table::TableArgs),
    /// Describe a write-ahead log file
    Wal(wal::WalArgs),
    /// Describe the manifest of a database
    Manifest(manifest::ManifestArgs),
    /// Run operations from standard input, with one reply per line
    Batch(batch::BatchArgs),
    /// Run benchmark workloads
    Bench(bench::BenchArgs),
    /// Find a better design for the recent workload, and move the database to it
    Tune(tune::TuneArgs),
    /// Moved: the papers' experiments are in shamba-lab
    #[command(hide = true)]
    Lab(MovedArgs),
    /// Predict the costs of a design, or find the best one; needs no database
    Plan(Box<crate::plan::PlanArgs>),
}

/// Arguments of a command that has moved; they are ignored.
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
            Self::Merge(args) => merge::run(&args),
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
            Self::Changes(args) => changes::run(&args, out),
            Self::Table(args) => table::run(&args, out),
            Self::Wal(args) => wal::run(&args, out),
            Self::Manifest(args) => manifest::run(&args, out),
            Self::Batch(args) => batch::run(&args, out),
            Self::Bench(args) => bench::run(&args, out),
            Self::Tune(args) => tune::run(&args, out),
            Self::Lab(_) => Err(Failure::Usage(
                "the papers' experiments have moved to a separate command in the source repository: \
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
