//! The command line of the laboratory: arguments, output, exit codes.
//!
//! Every command writes to standard output through [`Out`] and returns a [`Failure`], which decides
//! the message on standard error and the exit code. A closed pipe ends the process quietly.
//!
//! Not here: experiments and reports (the library).

mod checks;
mod experiments;
mod generate;
mod navigator;
mod navigator_figure;

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use shamba_workload::trace::TraceError;

/// Runs the papers' experiments on Shamba: baseline and idea in one run, with the paper's claim and
/// the measurements
///
/// Exit codes: 0 success, 1 a check failed, 3 I/O or a failed experiment, 64 usage, 65 bad input
/// data.
#[derive(Parser)]
#[command(name = "shamba-lab", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List all experiments with their claims
    List(experiments::ListArgs),
    /// Run experiments by name
    Run(experiments::RunArgs),
    /// Run every experiment
    All(experiments::AllArgs),
    /// Render pages of the results in a folder
    Report(experiments::ReportArgs),
    /// Write a workload as text, with the options of the K-V-Workload-Generator, for `shamba bench
    /// DB replay`
    Generate(Box<generate::GenerateArgs>),
    /// Run one of the engine's own experiments in a separate process; it prints JSON lines and
    /// fails on a violation
    Check(checks::CheckArgs),
}

/// Runs the command that this process was started with.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A failure to print the help text is ignored.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    let mut out = Out::new();
    let result = match cli.command {
        Command::List(args) => experiments::list(&args, &mut out),
        Command::Run(args) => experiments::run(&args, &mut out),
        Command::All(args) => experiments::all(&args, &mut out),
        Command::Report(args) => experiments::report(&args, &mut out),
        Command::Generate(args) => generate::run(&args, &mut out),
        Command::Check(args) => checks::run(&args),
    };
    match result.and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (code, message) = failure.told();
            if let Some(message) = message {
                eprintln!("shamba-lab: {message}");
            }
            ExitCode::from(code)
        }
    }
}

/// The reason why a command ended without success.
#[derive(Debug)]
pub enum Failure {
    /// Invalid arguments; exit 64.
    Usage(String),
    /// Input data that cannot be read; exit 65.
    Data(String),
    /// A failed check: its violations; exit 1.
    Check(String),
    /// Everything else; exit 3.
    Failed(String),
    /// A failure that was already printed; exit 3.
    Reported,
    /// Standard output is closed; exit 0.
    PipeClosed,
}

impl Failure {
    /// An I/O error with its operation.
    fn io(what: impl std::fmt::Display, error: &io::Error) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }

    fn told(self) -> (u8, Option<String>) {
        match self {
            Self::Usage(text) => (64, Some(text)),
            Self::Data(text) => (65, Some(text)),
            Self::Check(text) => (1, Some(text)),
            Self::Failed(text) => (3, Some(text)),
            Self::Reported => (3, None),
            Self::PipeClosed => (0, None),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::PipeClosed
        } else {
            Self::io("standard output", &error)
        }
    }
}

impl From<shamba_workload::Error> for Failure {
    fn from(error: shamba_workload::Error) -> Self {
        match error {
            shamba_workload::Error::Options(text) => Self::Usage(text),
            shamba_workload::Error::Engine(error) => Self::Failed(error.chain().to_string()),
            shamba_workload::Error::Trace(TraceError::Io(path, error)) => Self::io(path.display(), &error),
            shamba_workload::Error::Trace(error) => Self::Data(error.to_string()),
            shamba_workload::Error::File(what, error) => Self::io(what, &error),
        }
    }
}

/// Standard output, buffered.
pub struct Out {
    writer: BufWriter<Stdout>,
    is_styled: bool,
}

impl Out {
    fn new() -> Self {
        let is_styled = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { writer: BufWriter::new(io::stdout()), is_styled }
    }

    fn line(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        Ok(writeln!(self.writer, "{}", text.as_ref())?)
    }

    fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(value.to_string())
    }

    /// An empty line and a heading, bold on a terminal.
    fn heading(&mut self, text: &str) -> Result<(), Failure> {
        let (begin, end) = if self.is_styled { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        self.line(format!("\n{begin}{text}{end}"))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.writer.flush()?)
    }
}

/// A progress bar on standard error, if that is a terminal, with the time left.
fn progress_bar(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    // A template that does not parse leaves the default one.
    if let Ok(style) = ProgressStyle::with_template("[{bar:24}] {pos}/{len}, {eta} left  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
