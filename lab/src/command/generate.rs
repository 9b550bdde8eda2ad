//! `shamba-lab generate`: workloads as text, by the options of the K-V-Workload-Generator, but with
//! a seed.
//!
//! Not here: the generator ([`shamba_workload::trace`]), replay (`shamba bench DB replay --trace
//! FILE`).

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use shamba_workload::trace::{Entries, Generator, Made, Mix, Phase, Preset, Spread, TraceReader};

use super::{Failure, Out, progress_bar};

const ABOUT: &str = "\
    One operation a line: I KEY VALUE, U KEY VALUE, D KEY, R FROM TO, Q KEY, S FROM TO; the last key of a range belongs to \
    it. Options and text are those of the K-V-Workload-Generator. The same options give the same file.";

/// Arguments of `generate`.
#[derive(Args)]
#[command(after_help = ABOUT)]
pub struct GenerateArgs {
    /// The new file; with --workload the prefix of several names
    #[arg(long, alias = "OP", value_name = "FILE")]
    out: PathBuf,
    /// A workload of the papers: type-1, type-2, bits-per-key or shifting; each part is written to
    /// a separate file
    #[arg(long, value_name = "NAME", value_parser = str::parse::<Preset>, conflicts_with_all = ["inserts", "preload"])]
    workload: Option<Preset>,
    /// Divide the counts of --workload
    #[arg(long, value_name = "N", default_value_t = 1, requires = "workload", value_parser = clap::value_parser!(u64).range(1..))]
    divide: u64,
    /// A file of this command, with the same -E and -L, whose keys exist before
    #[arg(long, alias = "PL", value_name = "FILE")]
    preload: Option<PathBuf>,
    /// Random seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write after each lookup whether it finds a value (supported only by this project's replay)
    #[arg(long)]
    answers: bool,
    /// Write values as their lengths (supported only by this project's replay)
    #[arg(long)]
    lengths: bool,
    /// Puts of new keys
    #[arg(short = 'I', long, value_name = "COUNT", default_value_t = 0)]
    inserts: u64,
    /// Puts of existing keys
    #[arg(short = 'U', long, value_name = "COUNT", default_value_t = 0, conflicts_with = "workload")]
    updates: u64,
    /// Deletes
    #[arg(short = 'D', long, value_name = "COUNT", default_value_t = 0, conflicts_with = "workload")]
    deletes: u64,
    /// Range deletes
    #[arg(short = 'R', long, value_name = "COUNT", default_value_t = 0, conflicts_with = "workload")]
    range_deletes: u64,
    /// Share of the keys that a range delete covers
    #[arg(short = 'y', long, value_name = "SHARE", default_value_t = 0.0)]
    range_delete_share: f64,
    /// Lookups
    #[arg(short = 'Q', long, value_name = "COUNT", default_value_t = 0, conflicts_with = "workload")]
    lookups: u64,
    /// Range queries
    #[arg(short = 'S', long, value_name = "COUNT", default_value_t = 0, conflicts_with = "workload")]
    scans: u64,
    /// Share of the keys that a range query reads
    #[arg(short = 'Y', long, value_name = "SHARE", default_value_t = 0.0)]
    scan_share: f64,
    /// Share of absent keys in the lookups (default: 0; of a workload that does not state it, 0.5)
    #[arg(short = 'Z', long, value_name = "SHARE")]
    empty_lookups: Option<f64>,
    /// Share of absent keys in the deletes
    #[arg(short = 'z', long, value_name = "SHARE", default_value_t = 0.0)]
    empty_deletes: f64,
    /// Distinct absent keys, as a share of the lookups of absent keys
    #[arg(long, alias = "UZ", value_name = "SHARE", default_value_t = 0.5)]
    unique_empty: f64,
    /// Maximum distinct existing keys, as a share of the lookups of existing keys (default: no
    /// limit)
    #[arg(long, alias = "UE", value_name = "SHARE")]
    unique_existing: Option<f64>,
    /// Bytes of an entry (default: 8; of a workload, as the paper states)
    #[arg(short = 'E', long, value_name = "BYTES")]
    entry_bytes: Option<usize>,
    /// The key's share of an entry (default: 0.5; of a workload, as the paper states)
    #[arg(short = 'L', long, value_name = "SHARE")]
    key_share: Option<f64>,
    /// Print one JSON object per file and line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    insert_spread: InsertSpread,
    #[command(flatten)]
    update_spread: UpdateSpread,
    #[command(flatten)]
    existing_spread: ExistingSpread,
    #[command(flatten)]
    empty_spread: EmptySpread,
}

/// The options of one distribution, with the names of the K-V-Workload-Generator.
macro_rules! spread_options {
    ($name:ident, $prefix:literal, $of:literal) => {
        #[derive(Args)]
        struct $name {
            #[doc = concat!("Distribution of ", $of, " over keys: 0 uniform, 1 normal, 2 beta, 3 Zipf")]
            #[arg(id = $prefix, long = $prefix, value_name = "KIND", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
            kind: u8,
            /// Mean of the normal distribution, as a part of all keys
            #[arg(id = concat!($prefix, "_NMP"), long = concat!($prefix, "_NMP"), value_name = "PART", default_value_t = 0.5, hide_short_help = true)]
            mean: f64,
            /// Standard deviation of the normal distribution, in 62nds of all keys
            #[arg(id = concat!($prefix, "_NDEV"), long = concat!($prefix, "_NDEV"), value_name = "PARTS", default_value_t = 1.0, hide_short_help = true)]
            deviation: f64,
            /// First shape of the beta distribution
            #[arg(id = concat!($prefix, "_BALPHA"), long = concat!($prefix, "_BALPHA"), value_name = "ALPHA", default_value_t = 1.0, hide_short_help = true)]
            alpha: f64,
            /// Second shape of the beta distribution
            #[arg(id = concat!($prefix, "_BBETA"), long = concat!($prefix, "_BBETA"), value_name = "BETA", default_value_t = 1.0, hide_short_help = true)]
            beta: f64,
            /// Exponent of the Zipf distribution
            #[arg(id = concat!($prefix, "_ZALPHA"), long = concat!($prefix, "_ZALPHA"), value_name = "ALPHA", default_value_t = 1.0, hide_short_help = true)]
            zipf: f64,
        }

        impl $name {
            fn spread(&self) -> Spread {
                let Self { kind, mean, deviation, alpha, beta, zipf } = *self;
                match kind {
                    0 => Spread::Uniform,
                    1 => Spread::Normal { mean, deviation },
                    2 => Spread::Beta { alpha, beta },
                    _ => Spread::Zipf { alpha: zipf },
                }
            }
        }
    };
}

spread_options!(InsertSpread, "ID", "inserts");
spread_options!(UpdateSpread, "UD", "updates");
spread_options!(ExistingSpread, "ED", "lookups of existing keys");
spread_options!(EmptySpread, "ZD", "lookups of absent keys");

impl GenerateArgs {
    fn entries(&self) -> Entries {
        let defaults = self.workload.map_or_else(Entries::default, Preset::entries);
        Entries {
            entry_bytes: self.entry_bytes.unwrap_or(defaults.entry_bytes),
            key_share: self.key_share.unwrap_or(defaults.key_share),
            lengths_only: self.lengths,
            answers: self.answers,
        }
    }

    /// The files with their contents.
    fn files(&self) -> Vec<(PathBuf, Mix)> {
        let Some(workload) = self.workload else { return vec![(self.out.clone(), self.mix())] };
        let phases =
            workload.phases(self.divide, self.empty_lookups.unwrap_or(0.5), self.existing_spread.spread());
        let named = |Phase { name, mix }: Phase| {
            let mut path = self.out.clone().into_os_string();
            path.push(format!(".{name}"));
            let (update_spread, empty_spread) = (self.update_spread.spread(), self.empty_spread.spread());
            let insert_spread = self.insert_spread.spread();
            let Self { unique_empty, unique_existing, .. } = *self;
            let mix =
                Mix { insert_spread, update_spread, empty_spread, unique_empty, unique_existing, ..mix };
            (path.into(), mix)
        };
        phases.into_iter().map(named).collect()
    }

    fn mix(&self) -> Mix {
        Mix {
            inserts: self.inserts,
            updates: self.updates,
            deletes: self.deletes,
            range_deletes: self.range_deletes,
            lookups: self.lookups,
            scans: self.scans,
            range_delete_share: self.range_delete_share,
            scan_share: self.scan_share,
            empty_lookups: self.empty_lookups.unwrap_or(0.0),
            empty_deletes: self.empty_deletes,
            unique_empty: self.unique_empty,
            unique_existing: self.unique_existing,
            insert_spread: self.insert_spread.spread(),
            update_spread: self.update_spread.spread(),
            existing_spread: self.existing_spread.spread(),
            empty_spread: self.empty_spread.spread(),
        }
    }
}

pub fn run(args: &GenerateArgs, out: &mut Out) -> Result<(), Failure> {
    let mut generator = Generator::new(args.entries(), args.seed)?;
    if let Some(path) = &args.preload {
        let mut trace = TraceReader::open(path).map_err(shamba_workload::Error::from)?;
        generator.preload(&mut trace)?;
    }
    for (path, mix) in args.files() {
        let made = write(&mut generator, &path, &mix)?;
        if args.json {
            out.json(&object(&path, &made))?;
        } else {
            let Made { operations, bytes, live_keys, .. } = made;
            let file = path.display();
            out.line(format!("{file}: {operations} operations, {bytes} bytes; {live_keys} keys at its end"))?;
        }
        out.flush()?;
    }
    Ok(())
}

/// Writes one file, and removes it after a failure.
fn write(generator: &mut Generator, path: &Path, mix: &Mix) -> Result<Made, Failure> {
    let failed = |error| Failure::io(path.display(), &error);
    let mut file = BufWriter::new(File::create_new(path).map_err(failed)?);
    let bar = progress_bar("generate", 0);
    let made = generator.make(mix, &mut file, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    if made.is_err() {
        drop(file);
        // The error of the write is reported, not that of the removal.
        let _ = std::fs::remove_file(path);
    }
    Ok(made?)
}

fn object(path: &Path, made: &Made) -> Value {
    json!({
        "schema": "shamba.generate/1",
        "file": path.display().to_string(),
        "operations": made.operations,
        "inserts": made.inserts,
        "updates": made.updates,
        "deletes": made.deletes,
        "range_deletes": made.range_deletes,
        "lookups": made.lookups,
        "empty_lookups": made.empty_lookups,
        "scans": made.scans,
        "live_keys": made.live_keys,
        "bytes": made.bytes,
    })
}
