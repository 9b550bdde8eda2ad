//! Options of the engine on the command line, made from the engine's table ([`shamba::options`]).
//!
//! There are two sets: [`EngineOptions`] for commands that write, [`ReaderOptions`] for those that
//! only read, with the options that affect a reader. An option that is not given keeps the value
//! recorded in the database. Main options are flags; the others are given with `--experimental
//! NAME=VALUE`. Those of them that were flags in version 0.1 still are, hidden from `--help`.
//!
//! An option that the engine does not have is an error, never ignored. Forms and ranges are checked
//! while the command line is parsed.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use shamba::options::{OptionInfo, Range, all, find};
use shamba::{Builder, Modules};

use crate::sizes::parse_size;

/// A switch of a command that is not an option of the engine: `on` or `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// One heading, because clap groups arguments by heading.
const HEADING: &str = "Engine options (for this run; a new database records its tree and format options; --record-options \
                       records all given options; defaults apply to a new database)";
/// The flag for options that have none of their own.
const EXPERIMENTAL: &str = "experimental";
/// The flag that takes no value.
const RECORD: &str = "record-options";
/// A hidden short form of `--filter-layout modular:D`.
const MODULES: &str = "modules";

/// Options of commands that write.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    given: Given,
}

/// Options of commands that read.
#[derive(Clone, Debug, Default)]
pub struct ReaderOptions {
    given: Given,
}

/// Names and values, checked, in the order in which they are applied.
#[derive(Clone, Debug, Default)]
struct Given(Vec<(String, String)>);

impl ReaderOptions {
    /// Applies the given options to the builder.
    ///
    /// # Errors
    /// None for options of a parsed command line, whose values have been checked.
    pub fn apply(&self, builder: Builder) -> shamba::Result<Builder> {
        self.given.apply(builder)
    }
}

impl EngineOptions {
    /// The same options, to be recorded in the database.
    #[must_use]
    pub fn recorded(&self) -> Self {
        let mut recorded = self.clone();
        recorded.given.0.push((RECORD.into(), "on".into()));
        recorded
    }

    /// The same options for an open that only reads.
    pub fn for_reading(&self) -> ReaderOptions {
        ReaderOptions { given: self.given.clone() }
    }

    /// Whether an option of this name, without the dashes, exists.
    pub fn has(name: &str) -> bool {
        find(name).is_some_and(|option| option.has_flag)
    }

    /// Applies the given options to the builder.
    ///
    /// # Errors
    /// None for options of a parsed command line, whose values have been checked.
    pub fn apply(&self, builder: Builder) -> shamba::Result<Builder> {
        self.given.apply(builder)
    }
}

impl Given {
    fn apply(&self, builder: Builder) -> shamba::Result<Builder> {
        self.0.iter().try_fold(builder, |builder, (name, value)| builder.set_option(name, value))
    }

    /// The options in parsed arguments. Options of `--experimental` come last.
    fn from_matches(matches: &ArgMatches) -> Self {
        let mut given = Vec::new();
        for option in all().iter().filter(|option| option.has_flag) {
            if option.name == RECORD {
                if matches.try_get_one::<bool>(RECORD).is_ok_and(|on| on.copied().unwrap_or(false)) {
                    given.push((RECORD.to_owned(), "on".to_owned()));
                }
            } else if let Ok(Some(value)) = matches.try_get_one::<String>(option.name) {
                given.push((option.name.to_owned(), value.clone()));
            }
        }
        if let Ok(Some(layout)) = matches.try_get_one::<String>(MODULES) {
            given.push(("filter-layout".to_owned(), layout.clone()));
        }
        if let Ok(Some(pairs)) = matches.try_get_many::<(String, String)>(EXPERIMENTAL) {
            given.extend(pairs.cloned());
        }
        Self(given)
    }
}

/// Both sets are arguments in the same way; they differ in the options that they offer.
macro_rules! args {
    ($set:ty, $offers:expr) => {
        impl FromArgMatches for $set {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self { given: Given::from_matches(matches) })
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                self.given.0.extend(Given::from_matches(matches).0);
                Ok(())
            }
        }

        impl Args for $set {
            fn augment_args(command: Command) -> Command {
                augment(command, $offers)
            }

            fn augment_args_for_update(command: Command) -> Command {
                augment(command, $offers)
            }
        }
    };
}

args!(EngineOptions, |_| true);
args!(ReaderOptions, |option| option.for_readers);

/// Adds the flags of all options that the command offers.
fn augment(command: Command, offers: fn(&OptionInfo) -> bool) -> Command {
    let flags = all().iter().filter(|option| option.has_flag && offers(option));
    let command = command.args(flags.map(flag));
    let command = match find("filter-layout").is_some_and(offers) {
        true => command.arg(modules_flag()),
        false => command,
    };
    let names = all().iter().filter(|option| option.is_experimental && offers(option));
    let names = names.map(|option| option.name).collect::<Vec<_>>().join(", ");
    command.arg(
        Arg::new(EXPERIMENTAL)
            .long(EXPERIMENTAL)
            .value_name("NAME=VALUE")
            .action(ArgAction::Append)
            .value_parser(move |text: &str| experimental(text, offers))
            .help(format!("Experimental option for this run, repeatable (docs/options.md): {names}"))
            .help_heading(HEADING),
    )
}

/// The flag of one option.
fn flag(option: &'static OptionInfo) -> Arg {
    let arg = Arg::new(option.name).long(option.name).help_heading(HEADING).hide(option.is_experimental);
    if option.name == RECORD {
        return arg.action(ArgAction::SetTrue).help(help(option));
    }
    let arg = arg
        .help(help(option))
        .value_name(option.value)
        .allow_negative_numbers(matches!(option.range, Range::Real(..)))
        .value_parser(move |text: &str| value(option, text));
    match option.excludes {
        Some(other) => arg.conflicts_with(other),
        None => arg,
    }
}

/// The help text of an option, with its default.
fn help(option: &OptionInfo) -> String {
    format!("{} (default: {})", option.summary().replace('`', ""), option.default())
}

/// Checks a value; sizes may have suffixes, which are resolved.
fn value(option: &OptionInfo, text: &str) -> Result<String, String> {
    let value = resolved(option, text)?;
    option.check(&value)?;
    Ok(value)
}

/// The value with the suffix of a size resolved.
pub fn resolved(option: &OptionInfo, text: &str) -> Result<String, String> {
    // Or one of the words that an option of sizes allows: auto, off.
    let is_word = option.value.split('|').any(|word| word == text);
    let is_size = option.value.starts_with("SIZE") && !is_word;
    if is_size { parse_size(text).map(|bytes| bytes.to_string()) } else { Ok(text.to_owned()) }
}

/// Parses the argument of `--experimental`.
fn experimental(text: &str, offers: fn(&OptionInfo) -> bool) -> Result<(String, String), String> {
    let (name, given) = text.split_once('=').unwrap_or((text, ""));
    let option = find(name)
        .filter(|option| option.is_experimental && offers(option))
        .ok_or_else(|| format!("there is no experimental option {name:?} of this command"))?;
    value(option, given).map(|value| (name.to_owned(), value)).map_err(|error| format!("{name} {error}"))
}

fn modules_flag() -> Arg {
    let parse = |text: &str| -> Result<String, String> {
        let modules = text.parse().ok().and_then(Modules::equal);
        modules.map(|_| format!("modular:{text}")).ok_or_else(|| "must be from 1 to 7".into())
    };
    Arg::new(MODULES)
        .long(MODULES)
        .hide(true)
        .value_name("D")
        .conflicts_with("filter-layout")
        .value_parser(parse)
        .help("Short for --filter-layout modular:D, from 1 to 7")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command<T: Args>() -> Command {
        T::augment_args(Command::new("test").no_binary_name(true))
    }

    fn given<T: Args>(words: &[&str]) -> Result<T, String> {
        let matches = command::<T>().try_get_matches_from(words).map_err(|error| error.to_string())?;
        T::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    fn pairs(options: &EngineOptions) -> Vec<(&str, &str)> {
        options.given.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    #[test]
    fn flags_and_help_agree_with_the_table() {
        for (command, is_reader) in [(command::<EngineOptions>(), false), (command::<ReaderOptions>(), true)]
        {
            let mut wanted: Vec<&str> = all()
                .iter()
                .filter(|option| option.has_flag && (option.for_readers || !is_reader))
                .map(|option| option.name)
                .collect();
            wanted.push(EXPERIMENTAL);
            wanted.extend((!is_reader).then_some(MODULES));
            wanted.sort_unstable();
            let mut flags: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
            flags.sort_unstable();
            assert_eq!(flags, wanted);
            for option in all().iter().filter(|option| wanted.contains(&option.name)) {
                let arg =
                    command.get_arguments().find(|arg| arg.get_long() == Some(option.name)).expect("a flag");
                let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(text.starts_with(&option.summary().replace('`', "")), "{}: {text}", option.name);
                assert!(text.ends_with(&format!("(default: {})", option.default())), "{text}");
                assert_eq!(arg.is_hide_set(), option.is_experimental, "{}", option.name);
            }
            let experimental = command.get_arguments().find(|arg| arg.get_long() == Some(EXPERIMENTAL));
            let listed = experimental.and_then(Arg::get_help).map(ToString::to_string).unwrap_or_default();
            for option in all().iter().filter(|option| option.is_experimental) {
                let is_listed = listed.split([' ', ',']).any(|word| word == option.name);
                assert_eq!(is_listed, option.for_readers || !is_reader, "{}", option.name);
            }
        }
    }

    #[test]
    fn a_default_given_as_a_flag_or_as_an_experiment_is_accepted() {
        for option in all().iter().filter(|option| option.default_note.is_empty() && option.name != RECORD) {
            let default = option.default();
            if option.has_flag {
                let flag = format!("--{}={default}", option.name);
                let options = given::<EngineOptions>(&[&flag]).expect(&flag);
                assert_eq!(pairs(&options).len(), 1, "{flag}");
            }
            let experiment = format!("{}={default}", option.name);
            let parsed = given::<EngineOptions>(&["--experimental", &experiment]);
            assert_eq!(parsed.is_ok(), option.is_experimental, "{experiment}");
        }
    }

    #[test]
    fn sizes_short_forms_and_repeated_experiments() {
        let options = given::<EngineOptions>(&[
            "--memory-budget=8MiB",
            "--modules=4",
            "--record-options",
            "--experimental=cache-limit=1KiB",
            "--experimental=file-size=auto",
        ]);
        assert_eq!(
            pairs(&options.expect("valid")),
            [
                ("memory-budget", "8388608"),
                ("record-options", "on"),
                ("filter-layout", "modular:4"),
                ("cache-limit", "1024"),
                ("file-size", "auto"),
            ]
        );
        for (words, named) in [
            (["--experimental", "size-ratio=4"], "size-ratio"),
            (["--experimental", "file-size=lots"], "file-size"),
            (["--experimental", "file-size=1"], "from 1 KiB to 1 TiB"),
            (["--modules", "8"], "from 1 to 7"),
            (["--sync", "0"], "always, never, buffered or a number of milliseconds"),
            (["--sync", "-5"], "-5"),
            (["--compression", "none,,zstd"], "none, lz4, zstd"),
        ] {
            let error = given::<EngineOptions>(&words).expect_err(named);
            assert!(error.contains(named), "{error}");
        }
        assert!(given::<ReaderOptions>(&["--experimental", "file-size=8MiB"]).is_err(), "not of a reader");
    }
}
