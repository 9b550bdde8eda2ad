//! Tests of the checks of an open: files that are damaged, missing, or not those that the manifest
//! means.

use shamba_env::read_file;
use shamba_tree::version::Version;
use shamba_tree::version::manifest::ManifestWriter;

use super::*;

fn replace(env: &Env, name: &str, bytes: &[u8]) {
    env.vfs.unlink(&path(name)).expect("it is there");
    write_file_synced(env.vfs.as_ref(), &path(name), bytes).expect("written");
}

fn content(env: &Env, name: &str) -> Vec<u8> {
    read_file(env.vfs.as_ref(), &path(name)).expect("read")
}

fn only(env: &Env, ending: &str) -> String {
    let names = names(env, ending);
    assert_eq!(names.len(), 1, "{names:?}");
    names[0].clone()
}

/// The structure that an open finds damaged, and its message.
fn refused(env: &Env) -> (&'static str, String) {
    let error = open(builder(env)).map(|_| ()).expect_err("it is damaged");
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    (error.damage().expect("a place").structure, error.to_string())
}

/// A database of one table, whose only value is of this length. All random numbers in it are the
/// same for every length.
fn with_value(bytes: usize) -> Env {
    let env = memory(1);
    let separated = builder(&env).experimental(|e| e.value_threshold(2_000));
    let db = separated.open().expect("opened");
    db.put("key", vec![b'v'; bytes]).expect("put");
    db.flush().expect("flushed");
    drop(db);
    env
}

#[test]
fn a_table_of_another_length_than_the_manifest_states_is_refused() {
    let (env, other) = (with_value(100), with_value(1_500));
    replace(&env, &only(&env, ".sst"), &content(&other, &only(&other, ".sst")));
    let (structure, message) = refused(&env);
    assert!(structure == "table" && message.contains("the manifest states 1 entries in"), "{message}");
}

#[test]
fn a_value_file_of_another_length_than_the_manifest_states_is_refused_and_a_missing_one() {
    let (env, other) = (with_value(3_000), with_value(5_000));
    let name = names(&env, "").into_iter().find(|name| parse_value_file_name(name).is_some());
    let name = name.expect("a value file");
    replace(&env, &name, &content(&other, &name));
    let (structure, message) = refused(&env);
    assert!(structure == "value file" && message.contains("the manifest states 1 values in"), "{message}");
    env.vfs.unlink(&path(&name)).expect("removed");
    assert!(open(builder(&env)).is_err(), "it is missing");
}

#[test]
fn references_to_value_files_are_those_of_the_manifest_in_number_and_in_each_part() {
    let tree = "L1: r3@3[000002:a..z 40 val=31:1:10 val=32:2:20]\nV: 000031 100 n=1, 000032 100 n=2\n";
    let version: Version = tree.parse().expect("notation");
    let (_, _, table) = version.tables().next().expect("a table");
    let found = |uses: &[(u64, u64, u64)]| -> Vec<TableValueUse> {
        let birth = table.meta.values.get().files()[0].file.birth;
        let found = uses.iter().map(|&(file, values, bytes)| TableValueUse {
            file: ValueFileId(file),
            birth,
            values,
            bytes,
        });
        found.collect()
    };
    let differs = |uses: &[(u64, u64, u64)]| other_values(&table.meta, &found(uses)).is_some();
    assert!(!differs(&[(31, 1, 10), (32, 2, 20)]));
    for uses in [
        &[(31, 1, 10)][..],
        &[(31, 1, 10), (32, 2, 20), (33, 1, 10)],
        &[],
        &[(31, 1, 10), (33, 2, 20)],
        &[(31, 1, 10), (32, 3, 20)],
        &[(31, 1, 10), (32, 2, 21)],
    ] {
        assert!(differs(uses), "{uses:?}");
    }
}

#[test]
fn an_open_warns_of_a_damaged_filter_and_goes_on() {
    let env = memory(1);
    killed_after(&env, |db| {
        (0..200u8).for_each(|key| db.put([key], "value").expect("put"));
        db.flush().expect("flushed");
    });
    let name = only(&env, ".sst");
    let intact = content(&env, &name);
    let read_only = || open(builder(&env).read_only(true));
    assert_eq!(read_only().expect("opened").telemetry.warnings(), Vec::<String>::new());
    let mut warned = 0;
    for at in (0..intact.len()).step_by(20) {
        let mut damaged = intact.clone();
        damaged[at] ^= 1;
        replace(&env, &name, &damaged);
        // Damage of any other section is refused.
        let Ok(core) = read_only() else { continue };
        let warnings = core.telemetry.warnings();
        for (_, _, table) in core.catalog.keyspaces()[&KeyspaceId(0)].load().version.tables() {
            let found = table.meta.reader.get().map_or_else(Vec::new, |reader| reader.filter_warnings());
            assert!(found.iter().all(|damage| warnings.contains(damage)), "{found:?} in {warnings:?}");
            warned += found.len();
        }
    }
    assert!(warned > 0, "no damage of the filter was found");
}

/// Calls `check` with the manifest cut by more and more bytes, as long as only its last edits are
/// torn. Returns how often.
fn with_torn_manifests(env: &Env, mut check: impl FnMut(&Env)) -> usize {
    let name = manifest_file_name(
        names(env, "").iter().filter_map(|name| parse_manifest_file_name(name)).max().expect("a manifest"),
    );
    let whole = content(env, &name);
    let mut torn = 0;
    for bytes in (0..whole.len()).rev() {
        replace(env, &name, &whole[..bytes]);
        match ManifestReader::load(env, Path::new(DIR)) {
            Ok(Some(loaded)) if loaded.torn.is_some() => check(env),
            Ok(_) => continue,
            Err(_) => break, // What was promised is missing.
        }
        torn += 1;
    }
    torn
}

#[test]
fn a_file_that_lost_edits_have_replaced_is_damage_of_the_manifest() {
    let env = memory(1);
    killed_after(&env, |db| {
        db.put("key", "value").expect("put");
        db.flush().expect("flushed");
    });
    env.vfs.unlink(&path(&only(&env, ".sst"))).expect("removed");
    let (mut of_manifest, mut others) = (0, 0);
    let torn = with_torn_manifests(&env, |env| {
        let names_a_table = recorded(env).keyspaces.values().any(|it| it.version.tables().count() > 0);
        if names_a_table {
            assert_eq!(refused(env).0, "manifest edit");
            of_manifest += 1;
        } else {
            others += 1;
        }
    });
    assert!(of_manifest > 0, "{torn} torn manifests, {others} of which name no table");
}

#[test]
fn a_damaged_file_that_is_there_is_no_damage_of_a_torn_manifest() {
    let env = memory(1);
    killed_after(&env, |db| {
        db.put("key", "value").expect("put");
        db.flush().expect("flushed");
    });
    replace(&env, &only(&env, ".sst"), b"no table");
    let mut of_table = 0;
    with_torn_manifests(&env, |env| {
        if recorded(env).keyspaces.values().any(|it| it.version.tables().count() > 0) {
            assert_ne!(refused(env).0, "manifest edit");
            of_table += 1;
        }
    });
    assert!(of_table > 0, "no torn manifest names the table");
}

/// Numbers of later writes would not fit where entries keep them.
#[test]
fn sequence_numbers_that_are_used_up_are_refused_before_a_write() {
    let env = with_value(100);
    let mut state = recorded(&env);
    for (last_seq, is_refused) in [(SeqNo::MAX.0 >> 1, false), (SeqNo::MAX.0 - 5, true)] {
        state.last_seq = SeqNo(last_seq);
        state.next_id += 1;
        let draft = ManifestWriter::draft(&env, Path::new(DIR), state.next_id - 1, &state).expect("written");
        drop(draft.put_in_force(&env, Path::new(DIR)).expect("in force"));
        if is_refused {
            let (structure, message) = refused(&env);
            assert!(structure == "sequence number" && message.contains(&last_seq.to_string()), "{message}");
            let db = builder(&env).read_only(true).open().expect("it can be read");
            assert_eq!(db.get("key").expect("read").map(|value| value.len()), Some(100));
        } else {
            let db = builder(&env).open().expect("opened");
            db.put("later", "value").expect("put");
            db.flush().expect("flushed");
            drop(db);
            state = recorded(&env);
        }
    }
}
