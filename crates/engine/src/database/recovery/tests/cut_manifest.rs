//! Tests of databases whose manifest has lost its last edits, as if they had never been: its
//! promises are lost with them. Logs and tables still show what is missing.

use shamba_env::read_file;

use super::*;
use crate::{Durability, RepairReport, repair};

const OUT: &str = "/out";

fn manifest(env: &Env) -> String {
    let mut names = names(env, "");
    names.retain(|name| parse_manifest_file_name(name).is_some());
    assert_eq!(names.len(), 1, "{names:?}");
    names.remove(0)
}

fn content(env: &Env, name: &str) -> Vec<u8> {
    read_file(env.vfs.as_ref(), &path(name)).expect("read")
}

fn replace(env: &Env, name: &str, bytes: &[u8]) {
    env.vfs.unlink(&path(name)).expect("it is there");
    write_file_synced(env.vfs.as_ref(), &path(name), bytes).expect("written");
}

/// Repairs the database, and opens the result.
fn repaired(env: &Env) -> (Db, RepairReport) {
    let report = repair(env, Path::new(DIR), Path::new(OUT)).expect("repaired");
    let db = Db::builder(OUT).env(env.clone()).info_log(false).open().expect("opened");
    (db, report)
}

#[test]
fn a_write_to_a_keyspace_that_the_manifest_has_lost_is_not_dropped() {
    let env = memory(1);
    let mut bytes = 0;
    killed_after(&env, |db| {
        db.put("first", "1").expect("put");
        bytes = content(&env, &manifest(&env)).len();
        let users = db.keyspace("users").expect("created");
        users.put_with("key", "value", Durability::Sync).expect("put");
    });
    let (name, whole) = (manifest(&env), content(&env, &manifest(&env)));
    assert!(bytes < whole.len());
    replace(&env, &name, &whole[..bytes]);
    let log = names(&env, ".log");
    let error = open(builder(&env)).map(|_| ()).expect_err("a keyspace is missing");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("a log has a write to keyspace"), "{error}");
    assert!(log.iter().all(|log| names(&env, ".log").contains(log)), "the log is still there");
    let (db, report) = repaired(&env);
    assert_eq!(db.get("first").expect("read").as_deref(), Some(&b"1"[..]));
    let name = db.keyspaces().into_iter().find(|name| name.starts_with("keyspace-")).expect("it has a name");
    let lost = db.keyspace(&name).expect("opened");
    assert_eq!(lost.get("key").expect("read").as_deref(), Some(&b"value"[..]));
    assert!(!report.lost.is_empty(), "its name is lost");
}

#[test]
fn a_keyspace_that_was_only_announced_is_no_damage() {
    let env = memory(1);
    let mut bytes = 0;
    killed_after(&env, |db| {
        db.put("first", "1").expect("put");
        bytes = content(&env, &manifest(&env)).len();
        db.keyspace("users").expect("created");
    });
    // As after a crash between the announcement and the edit.
    let (name, whole) = (manifest(&env), content(&env, &manifest(&env)));
    replace(&env, &name, &whole[..bytes]);
    assert!(repaired(&env).1.lost.is_empty());
    let core = open(builder(&env)).expect("opened");
    assert!(core.catalog.named("users").is_none());
}

#[test]
fn a_repair_uses_the_tables_that_an_outdated_manifest_does_not_name() {
    let env = memory(1);
    let mut bytes = 0;
    killed_after(&env, |db| {
        db.put("a", "1").expect("put");
        db.flush().expect("flushed");
        bytes = content(&env, &manifest(&env)).len();
        db.put("b", "2").expect("put");
        db.flush().expect("flushed");
        db.put("c", "3").expect("put");
    });
    let (name, whole) = (manifest(&env), content(&env, &manifest(&env)));
    replace(&env, &name, &whole[..bytes]);
    assert!(open(builder(&env)).is_err(), "its first log is missing");
    let (db, report) = repaired(&env);
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        assert_eq!(db.get(key).expect("read").as_deref(), Some(value.as_bytes()), "{key}");
    }
    assert!(!report.manifest && !report.lost.is_empty());
}

#[test]
fn of_two_keyspaces_of_one_name_the_newer_keeps_it_in_a_repair() {
    let env = memory(1);
    let mut bytes = 0;
    killed_after(&env, |db| {
        let write = |value: &str| {
            let users = db.keyspace("users").expect("created");
            users.put("key", value).expect("put");
            db.flush().expect("flushed");
        };
        write("old");
        bytes = content(&env, &manifest(&env)).len();
        db.drop_keyspace("users").expect("dropped");
        write("new");
    });
    let (name, mut damaged) = (manifest(&env), content(&env, &manifest(&env)));
    damaged[bytes + 20] ^= 1;
    replace(&env, &name, &damaged);
    let (db, report) = repaired(&env);
    let users = db.keyspace("users").expect("opened");
    assert_eq!(users.get("key").expect("read").as_deref(), Some(&b"new"[..]));
    let of = |name: &str| report.lost.iter().any(|lost| lost.keyspace.as_deref() == Some(name));
    assert!(of("users"), "{:?}", report.lost);
}
