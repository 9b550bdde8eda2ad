//! Tests of files with the names of database files, and numbers that the database has not assigned.

use super::*;
use crate::{check_files, repair};

/// Files of another program. The numbers of keyspaces have 32 bits, those of files 64.
const STRAY: [&str; 7] = [
    "4294967295.val",
    "5000000000.log",
    "5000000000.sst",
    "5000000000.values",
    "18446744073709551614.log",
    "18446744073709551615.sst",
    "MANIFEST-18446744073709551615",
];

#[test]
fn stray_numbers_are_not_counted_on_from_and_their_files_stay() {
    let env = memory(1);
    killed_after(&env, |db| db.put("first", "1").expect("put"));
    STRAY.iter().for_each(|name| make(&env, name));
    env.vfs.create_dir_all(&path("6000000000.sst")).expect("created");
    for round in 0..2 {
        let db = builder(&env).open().unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(db.warnings(), Vec::<String>::new());
        assert_eq!(db.get("first").expect("read").as_deref(), Some(&b"1"[..]));
        db.keyspace(&format!("made in round {round}")).expect("numbers are left").put("k", "v").expect("put");
        db.flush().expect("a rotation, and tables");
        let report = db.verify().expect("checked");
        assert!(report.is_clean() && report.warnings.is_empty(), "{report:?}");
        db.close().expect("closed");
        assert!(recorded(&env).next_id < 1_000, "{}", recorded(&env).next_id);
        assert!(STRAY.iter().all(|name| names(&env, "").contains(&(*name).to_owned())), "they stay");
    }
    let report = check_files(&env, Path::new(DIR)).expect("checked");
    assert!(report.is_clean() && report.warnings.is_empty(), "{report:?}");
    // The last manifest was current before another file had a higher number.
    for current in ["kept", "lost"] {
        if current == "lost" {
            env.vfs.unlink(&path(shamba_tree::version::current::CURRENT)).expect("removed");
        }
        let out = Path::new("/out").join(current);
        let report = repair(&env, Path::new(DIR), &out).expect("repaired");
        assert!(report.manifest && report.is_complete(), "CURRENT {current}: {report:?}");
        let db = Db::builder(&out).env(env.clone()).info_log(false).open().expect("opened");
        db.keyspace("made after the repair").expect("numbers are left");
    }
}

#[test]
fn files_that_a_killed_process_has_numbered_are_counted_on_from() {
    let env = memory(1);
    killed_after(&env, |db| db.put("first", "1").expect("put"));
    let farthest = recorded(&env).next_id + crate::directory::NUMBERS_AHEAD_MAX;
    make(&env, &table_file_name(TableId(farthest)));
    make(&env, &table_file_name(TableId(farthest + 1)));
    let core = open(builder(&env)).expect("opened");
    assert!(core.catalog.next_id() > farthest);
    assert_eq!(names(&env, ".sst"), [table_file_name(TableId(farthest + 1))]);
}
