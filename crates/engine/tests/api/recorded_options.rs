//! Tests of the options that a database records, and of the lifetime of the others.

use std::sync::Arc;
use std::time::Duration;

use shamba::{Builder, Compression, Db, Design, Durability, MergePolicy, TreeDesign};
use shamba_env::{Env, MemFs};

fn env() -> Env {
    Env::deterministic(Arc::new(MemFs::new()), 1)
}

fn builder(env: &Env) -> Builder {
    Db::builder("/db").env(env.clone())
}

/// The current value of the option.
fn option(db: &Db, name: &str) -> String {
    let options = db.settings();
    let found = options.iter().find(|(other, _)| other == name);
    found.unwrap_or_else(|| panic!("there is no option {name}")).1.clone()
}

fn values(db: &Db) -> [String; 5] {
    ["size_ratio", "compression", "sync", "memory-budget", "hash-sharing"].map(|name| option(db, name))
}

#[test]
fn a_time_without_an_end_is_recorded_and_read_again() -> shamba::Result<()> {
    let env = env();
    let for_ever = || builder(&env).keep_log(1 << 30, Duration::MAX).tombstone_age_max(Duration::MAX);
    for_ever().record().open()?.close()?;
    let db = builder(&env).open()?;
    let ms = u64::MAX.to_string();
    assert_eq!(option(&db, "keep-log"), format!("{}:{ms}", 1 << 30));
    assert_eq!(option(&db, "tombstone-age-max"), ms);
    db.close()?;
    for_ever().open()?.close()
}

#[test]
fn creation_records_what_makes_the_tree_and_nothing_else() -> shamba::Result<()> {
    let env = env();
    let db = builder(&env)
        .size_ratio(4.0)
        .compression(Compression::Lz4)
        .durability(Durability::Sync)
        .memory_budget(8 << 20)
        .experimental(|e| e.hash_sharing(false))
        .open()?;
    assert_eq!(values(&db), ["4", "lz4", "always", "8388608", "off"]);
    db.close()?;
    let db = builder(&env).open()?;
    assert_eq!(values(&db), ["4", "lz4", "never", "268435456", "on"]);
    db.close()
}

#[test]
fn what_a_later_open_is_given_holds_for_that_open() -> shamba::Result<()> {
    let env = env();
    builder(&env).size_ratio(4.0).compression(Compression::Lz4).open()?.close()?;
    let db = builder(&env)
        .size_ratio(6.0)
        .compression(Compression::None)
        .durability(Durability::Sync)
        .memory_budget(16 << 20)
        .open()?;
    assert_eq!(values(&db), ["6", "none", "always", "16777216", "on"]);
    // A checkpoint contains the recorded options.
    db.checkpoint("/copy")?;
    db.close()?;
    for path in ["/db", "/copy"] {
        let db = Db::builder(path).env(env.clone()).open()?;
        assert_eq!(values(&db), ["4", "lz4", "never", "268435456", "on"], "{path}");
        db.close()?;
    }
    Ok(())
}

#[test]
fn an_open_that_records_does_so_for_all_that_it_is_given() -> shamba::Result<()> {
    let env = env();
    builder(&env).size_ratio(4.0).open()?.close()?;
    let given =
        |builder: Builder| builder.size_ratio(6.0).durability(Durability::Sync).memory_budget(16 << 20);
    given(builder(&env)).record().open()?.close()?;
    let db = builder(&env).open()?;
    assert_eq!(values(&db), ["6", "none", "always", "16777216", "on"]);
    db.close()?;
    // A recorded option can be changed again.
    builder(&env).durability(Durability::NoSync).record().open()?.close()?;
    let db = builder(&env).experimental(|e| e.hash_sharing(false)).open()?;
    assert_eq!(values(&db), ["6", "none", "never", "16777216", "off"]);
    db.close()?;
    // Options can also be recorded at creation.
    let new = || Db::builder("/new").env(env.clone());
    given(new()).record().open()?.close()?;
    let db = new().open()?;
    assert_eq!(values(&db), ["6", "none", "always", "16777216", "on"]);
    db.close()
}

#[test]
fn a_redesign_is_recorded_and_takes_nothing_else_along() -> shamba::Result<()> {
    let env = env();
    builder(&env).size_ratio(4.0).open()?.close()?;
    let db = builder(&env).durability(Durability::Sync).compression(Compression::Lz4).open()?;
    let design = Design::new(MergePolicy::Tiering, 3.0, 1 << 20, 5.0);
    db.redesign(&TreeDesign { design, ..db.tree_design() })?;
    db.close()?;
    let db = builder(&env).open()?;
    assert_eq!(db.design(), design);
    assert_eq!(values(&db), ["3", "none", "never", "268435456", "on"]);
    db.close()
}

#[test]
fn a_crash_does_not_lose_what_creation_recorded() -> shamba::Result<()> {
    let env = env();
    drop(builder(&env).size_ratio(4.0).open()?);
    drop(builder(&env).size_ratio(7.0).record().open()?);
    let db = builder(&env).open()?;
    assert_eq!(option(&db, "size_ratio"), "7");
    db.close()
}
