//! The reference page of options (`docs/options.md`) is made from the table of options. A
//! difference fails; `UPDATE_EXPECT=1 cargo test -p shamba --test api options` writes the page.
//! [`Db::options`] has every option of the table.

use std::sync::Arc;

use shamba::options::{OptionInfo, Range, Recorded, all};
use shamba::{Compression, Db};
use shamba_env::{Env, MemFs};

const HEAD: &str = "\
# Options

This page is made from the table in `crates/engine/src/options/table.rs` by `UPDATE_EXPECT=1 cargo test -p shamba --test api options`.

An option applies to the open that it is given to: by its method of `Builder`, by `Builder::set_option(NAME, VALUE)` with the name and
text of this page, or on the command line: a main option by `--NAME VALUE` (except `create-if-missing`, `read-only` and `info-log`, which
have no flag), another one by `--experimental NAME=VALUE`. The column *recorded* says whether the database remembers it
for later opens that do not give it: *at creation*, *on request* (`Builder::record()`, `--record-options`) or *never*. Options marked
*live* change in an open database through `Db::redesign` and `shamba tune`. `Db::options()` and `shamba stats DB --json` show the values
in force.

`set_option` takes sizes in bytes; the command also takes suffixes such as `64MiB`.

## Main options
";

const EXPERIMENTAL: &str = "
## Experimental options

Options that few programs need: baselines of the papers, limits for tests and measurements. They are methods of `Experimental`
(`builder.experimental(|e| e.file_size(8 << 20))`), and `--experimental NAME=VALUE` on the command line, as often as needed. Names and
meanings may change in any version. Those marked *flag* are also hidden flags `--NAME VALUE`, as in version 0.1.
";

const TABLE: &str = "
| option | method | value | default | range | recorded | what it is |
|---|---|---|---|---|---|---|
";

fn row(option: &OptionInfo) -> String {
    let value = option.value.replace('|', "\\|");
    let unit = if option.unit.is_empty() { String::new() } else { format!(" ({})", option.unit) };
    let range = match option.range {
        Range::Any => String::new(),
        range => range.to_string().replace("from ", ""),
    };
    let mut recorded = option.recorded.to_string();
    if option.recorded != Recorded::Never && option.recorded.key() != Some(option.name) {
        recorded += &format!(" as `{}`", option.recorded.key().unwrap_or_default());
    }
    if option.is_live {
        recorded += ", live";
    }
    let flag = if option.is_experimental && option.has_flag { " (flag)" } else { "" };
    format!(
        "| `{}`{flag} | `{}` | `{value}`{unit} | {} | {range} | {recorded} | {} |\n",
        option.name,
        if option.method == "record_options" { "record" } else { option.method },
        option.default(),
        option.summary(),
    )
}

fn page() -> String {
    let rows = |is_experimental: bool| -> String {
        all().iter().filter(|option| option.is_experimental == is_experimental).map(row).collect()
    };
    format!("{HEAD}{TABLE}{}{EXPERIMENTAL}{TABLE}{}", rows(false), rows(true))
}

#[test]
fn the_reference_page_is_that_of_the_table() {
    expect_test::expect_file!["../../../../docs/options.md"].assert_eq(&page());
}

#[test]
fn main_options_are_fewer_than_twenty() {
    let main = all().iter().filter(|option| !option.is_experimental).count();
    assert!((12..=19).contains(&main), "{main} main options");
}

#[test]
fn an_open_database_shows_every_option() -> shamba::Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = Db::builder("/db")
        .env(env)
        .memory_budget(8 << 20)
        .compression([Compression::None, Compression::Lz4])
        .experimental(|e| e.cache_limit(1 << 20).timers(true))
        .open()?;
    let options = db.options();
    let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, all().iter().map(|option| option.name).collect::<Vec<_>>());
    for (name, value) in &options {
        let info = shamba::options::find(name).expect("of the table");
        assert_eq!(info.check(value), Ok(()), "{name}={value}");
    }
    for given in [
        ("memory-budget", "8388608"),
        ("compression", "none,lz4"),
        ("cache-limit", "1048576"),
        ("timers", "on"),
        ("file-size", "auto"),
    ] {
        assert!(options.contains(&(given.0, given.1.to_owned())), "{given:?}");
    }
    // The recorded settings are the same values under their recorded keys.
    for (key, value) in db.settings() {
        let of_key = all().iter().find(|option| option.recorded.key() == Some(key.as_str()));
        let Some(option) = of_key else {
            assert_eq!(key, "comparator");
            continue;
        };
        assert!(options.contains(&(option.name, value)), "{key}");
    }
    db.close()
}
