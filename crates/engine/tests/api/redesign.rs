//! Tests of redesigns of live databases: the current design, the recorded one, and the state after
//! a crash at any call.
//!
//! Random redesigns among all other operations are in the suites (`Op::Redesign`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shamba::env::{CrashPolicy, Env, MemFs, SimFs};
use shamba::{Allocation, Builder, Db, Design, ErrorKind, MergePolicy, RedesignedBy, Sizing, TreeDesign};

/// Tiny limits, so that a few hundred writes create several levels.
fn builder(env: &Env) -> Builder {
    Db::builder("/db")
        .env(env.clone())
        .info_log(false)
        .experimental(|e| e.file_size(4 << 10).block_bytes(512))
}

fn first(builder: Builder) -> Builder {
    builder
        .experimental(|e| e.sizing(Sizing::Manual))
        .size_ratio(3.0)
        .write_buffer(1 << 10)
        .merge_policy(MergePolicy::Leveling)
}

fn target(policy: MergePolicy, size_ratio: f64, buffer_bytes: u64) -> TreeDesign {
    let design = Design::new(policy, size_ratio, buffer_bytes, 6.5);
    TreeDesign { design, allocation: Allocation::Uniform, ..TreeDesign::default() }
}

#[test]
fn a_design_is_in_force_at_once_and_recorded() -> shamba::Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 7);
    let db = first(builder(&env)).open()?;
    for number in 0..600u32 {
        db.put(format!("key {:03}", number * 7 % 400), format!("value {number}"))?;
    }
    let before = db.tree_design();
    let wanted = target(MergePolicy::Tiering, 4.0, 2 << 10);
    db.redesign(&wanted)?;
    assert_eq!((db.tree_design(), db.design(), db.stats().redesigns), (wanted, wanted.design, 1));
    db.redesign(&wanted)?;
    assert_eq!(db.stats().redesigns, 1, "it is in force already");
    let bad = TreeDesign { design: Design { size_ratio: 1.0, ..wanted.design }, ..wanted };
    assert_eq!(db.redesign(&bad).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    assert_eq!(db.tree_design(), wanted);
    db.close()?;

    // Options not given at an open keep their recorded values. A policy determines the number of
    // runs from the size ratio T.
    let db = builder(&env).open()?;
    assert_eq!(db.tree_design(), wanted);
    db.close()?;
    let db = builder(&env).size_ratio(6.0).open()?;
    assert_eq!((db.design().inner_runs, db.design().last_runs), (5, 5));
    db.redesign(&before)?;
    db.compact()?;
    assert_eq!(db.stats().runs, 1);
    db.close()?;
    let read_only = builder(&env).read_only(true).open()?;
    assert_eq!(read_only.tree_design(), before);
    assert_eq!(read_only.redesign(&wanted).map_err(|error| error.kind()), Err(ErrorKind::ReadOnly));
    Ok(())
}

/// Compactions move a tiered tree to leveling, step by step, until it has the new shape. No data is
/// lost, and readers of old versions see unchanged data.
#[test]
fn trees_take_the_new_shape_by_ordinary_merges() -> shamba::Result<()> {
    for sizing in Sizing::ALL {
        let env = Env::deterministic(Arc::new(MemFs::new()), 7);
        let db = first(builder(&env))
            .experimental(|e| e.file_size(64 << 10).sizing(sizing))
            .size_ratio(6.0)
            .merge_policy(MergePolicy::Tiering)
            .open()?;
        let mut model = BTreeMap::new();
        for number in 0..3_300u32 {
            let (key, value) = (format!("key {:04}", number * 37 % 2_000), format!("value {number}"));
            db.put(&key, &value)?;
            model.insert(key, value);
        }
        db.wait_idle()?;
        let iter = db.iter();
        let (runs, merged) = (db.stats().runs, db.stats().bytes_compacted);
        assert!(runs > 1, "{sizing}: {}", db.describe());
        db.redesign(&target(MergePolicy::Leveling, 6.0, 1 << 10))?;
        db.wait_idle()?;
        let stats = db.stats();
        assert!(stats.levels.iter().all(|level| level.runs <= 1), "{sizing}: {}", db.describe());
        assert_eq!(stats.debt_bytes, 0);
        let bytes: u64 = stats.levels.iter().map(|level| level.bytes).sum();
        let written = stats.bytes_compacted - merged;
        assert!(0 < written && written <= bytes * 2, "{sizing}: {written} bytes for a tree of {bytes}");
        db.check_invariants().unwrap_or_else(|why| panic!("{why}"));
        for pairs in [iter, db.iter()] {
            let pairs = pairs.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
            let pairs = pairs.collect::<shamba::Result<Vec<_>>>()?;
            let wanted =
                model.iter().map(|(key, value)| (key.clone().into_bytes(), value.clone().into_bytes()));
            assert_eq!(pairs, wanted.collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// Threads write and read while the design changes every few milliseconds.
#[test]
fn redesigns_run_beside_reads_and_writes() {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let db = first(builder(&env)).experimental(|e| e.sizing(Sizing::Auto)).open().expect("open");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let (db, done) = (db.clone(), &done);
            scope.spawn(move || {
                for number in 0..6_000u32 {
                    let key = format!("{thread} {:04}", number * 31 % 3_000);
                    db.put(&key, number.to_string()).expect("put");
                    let value = db.get(&key).expect("get");
                    assert_eq!(value.as_deref(), Some(number.to_string().as_bytes()), "{key}");
                }
                done.store(true, Ordering::Release);
            });
        }
        let mut rng = fastrand::Rng::with_seed(3);
        while !done.load(Ordering::Acquire) {
            let policy = MergePolicy::ALL[rng.usize(..3)];
            let wanted = target(policy, 2.0 + f64::from(rng.u8(..4)), 1 << rng.u32(10..15));
            db.redesign(&wanted).expect("redesign");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    });
    db.wait_idle().expect("idle");
    db.check_invariants().unwrap_or_else(|why| panic!("{why}"));
    for thread in 0..2u32 {
        for key in 0..3_000u32 {
            // Each key was written twice: by a number below 3,000, and by that number plus 3,000.
            let value = db.get(format!("{thread} {key:04}")).expect("get").expect("written");
            let number: u32 = std::str::from_utf8(&value).expect("text").parse().expect("a number");
            assert!(number >= 3_000 && number * 31 % 3_000 == key, "{key}: {number}");
        }
    }
    assert!(db.verify().expect("verify").is_clean());
}

/// A crash after any call of a redesign or of the compactions that follow leaves the old design or
/// the new one; once `redesign` has returned, it leaves the new one. The tree is valid under
/// either.
#[test]
fn a_crash_at_any_call_leaves_one_of_both_designs() -> shamba::Result<()> {
    let sim = SimFs::new();
    let env = Env::deterministic(Arc::new(sim.clone()), 5);
    let db = first(builder(&env)).open()?;
    let mut model = BTreeMap::new();
    for number in 0..400u32 {
        let (key, value) = (format!("key {:03}", number * 7 % 150), format!("value {number:20}"));
        db.put(&key, &value)?;
        model.insert(key, value);
    }
    db.flush()?;
    let mut designs = vec![db.tree_design()];
    let mut marks = vec![sim.op_count()];
    let targets = [
        target(MergePolicy::Tiering, 4.0, 1 << 10),
        target(MergePolicy::LazyLeveling, 3.0, 4 << 10),
        target(MergePolicy::Leveling, 2.0, 1 << 10),
    ];
    for wanted in targets {
        db.redesign(&wanted)?;
        designs.push(wanted);
        marks.push(sim.op_count());
    }
    drop(db);
    let mut seen = [0u32; 4];
    for k in marks[0]..=sim.op_count() {
        let policies = sim.policies_for(k, k);
        for policy in [&CrashPolicy::None, &CrashPolicy::All].into_iter().chain(policies.iter().take(3)) {
            let disk = Env::deterministic(Arc::new(sim.crash(k, policy)), k);
            let db = builder(&disk).open()?;
            let found = designs.iter().position(|design| *design == db.tree_design());
            let found = found.unwrap_or_else(|| panic!("call {k}, {policy:?}: {}", db.tree_design()));
            let acknowledged = marks.iter().filter(|mark| **mark <= k).count() - 1;
            assert!(
                (acknowledged..=acknowledged + 1).contains(&found),
                "call {k}, {policy:?}: design {found}, {acknowledged} were acknowledged"
            );
            seen[found] += 1;
            db.wait_idle()?;
            db.check_invariants().unwrap_or_else(|why| panic!("call {k}, {policy:?}: {why}"));
            for (key, value) in &model {
                assert_eq!(db.get(key)?.as_deref(), Some(value.as_bytes()), "call {k}, {policy:?}: {key}");
            }
            assert!(db.verify()?.is_clean(), "call {k}, {policy:?}");
        }
    }
    println!("{} calls; designs found: {seen:?}", sim.op_count() - marks[0]);
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    Ok(())
}

/// The observed workload persists across a reopen, and scans are counted with their start and the
/// entries read.
#[test]
fn the_workload_is_observed_and_outlives_the_process() -> shamba::Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 7);
    let db = builder(&env).open()?;
    for number in 0..500u32 {
        db.put(format!("key {number:03}"), "value")?;
    }
    for number in 0..300u32 {
        db.get(format!("key {number:03}"))?;
        db.get(format!("absent {number:03}"))?;
        assert_eq!(db.range(format!("key {number:03}")..).take(5).count(), 5);
    }
    db.flush()?;
    env.clock.sleep_us(3_000_000);
    let seen = db.workload();
    let counts = [seen.puts, seen.found_lookups, seen.empty_lookups, seen.ranges, seen.seconds];
    assert_eq!(counts, [500.0, 300.0, 300.0, 300.0, 3.0]);
    let entries = seen.entries_per_range();
    assert!((5.0..16.0).contains(&entries), "{entries}: the steps of a scan find a little ahead");
    assert!(seen.moved_bytes > 0.0);
    db.close()?;
    let db = builder(&env).open()?;
    let known = db.workload();
    assert_eq!((known.puts, known.ranges, known.seconds), (seen.puts, seen.ranges, seen.seconds));
    Ok(())
}

/// For a tiered tree that is only read, the advice is fewer runs. The redesign is executed,
/// reported, recorded and undone.
#[test]
fn advice_is_followed_remembered_and_undone() -> shamba::Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 7);
    let tiered = || {
        let builder = builder(&env)
            .experimental(|e| e.file_size(1 << 20))
            .memory_budget(4 << 20)
            .write_buffer(32 << 10);
        builder.size_ratio(8.0).merge_policy(MergePolicy::Tiering)
    };
    let db = tiered().open()?;
    let advice = db.advise()?;
    assert!(advice.better.is_none() && advice.now.is_none() && advice.reason.contains("too few"), "{advice}");
    let mut rng = fastrand::Rng::with_seed(5);
    let mut write_then_read = |db: &Db| -> shamba::Result<()> {
        for number in 0..30_000u32 {
            db.put(format!("key {:06}", rng.u32(..20_000)), format!("a value of some length: {number:060}"))?;
        }
        db.wait_idle()?;
        env.clock.sleep_us(60_000_000);
        // Ends a window of writes.
        db.workload();
        for _ in 0..12 {
            for _ in 0..2_000 {
                db.get(format!("absent {:06}", rng.u32(..20_000)))?;
                db.get(format!("key {:06}", rng.u32(..20_000)))?;
            }
            env.clock.sleep_us(2_000_000);
            db.advise()?;
        }
        Ok(())
    };
    write_then_read(&db)?;
    let runs = db.stats().runs;
    assert!(runs > 2, "{}", db.describe());
    let (advice, before) = (db.advise()?, db.tree_design());
    let better = advice.better.clone().unwrap_or_else(|| panic!("{advice}"));
    assert_eq!(db.tree_design(), before, "advice changes nothing");
    let (now, then) = (advice.now.expect("judged"), better.then);
    assert!(better.gain >= 0.1 && then.operation_ns < now.operation_ns && then.runs < now.runs, "{advice}");
    let bytes: u64 = db.stats().levels.iter().map(|level| level.bytes).sum();
    assert!(better.written_bytes <= bytes + bytes / 50, "{advice}");
    let merged = db.stats().bytes_compacted;
    db.follow(&advice)?;
    db.wait_idle()?;
    assert_eq!(db.tree_design(), better.design);
    assert!(db.stats().runs < runs, "{}", db.describe());
    // Files have a header and an index in addition to the bytes that the forecast counts.
    let written = db.stats().bytes_compacted - merged;
    assert!(written <= better.written_bytes * 5 / 4, "{written} bytes, {} foreseen", better.written_bytes);
    let told = db.redesigns();
    assert_eq!(
        (told.len(), &told[0].reason, told[0].from, told[0].to),
        (1, &advice.reason, before, better.design)
    );
    assert_eq!(told[0].by, RedesignedBy::Follow, "whoever follows advice is not the tuner");
    assert!(db.advise()?.better.is_none(), "{}", db.advise()?);
    db.close()?;

    let db = builder(&env).experimental(|e| e.file_size(1 << 20)).memory_budget(4 << 20).open()?;
    assert_eq!(db.redesigns(), told);
    assert_eq!(db.undo_redesign()?, before);
    assert_eq!((db.tree_design(), db.redesigns().len()), (before, 2));
    assert_eq!(db.undo_redesign().map_err(|error| error.kind()), Err(ErrorKind::Invalid), "once is enough");
    db.wait_idle()?;
    // The same workload again: the undone design would be the best, but is not proposed for an
    // hour.
    write_then_read(&db)?;
    let again = db.advise()?;
    let is_near = |other: &shamba::Better| {
        let (a, b) = (other.design.design, better.design.design);
        (a.inner_runs, a.last_runs) == (b.inner_runs, b.last_runs) && a.size_ratio == b.size_ratio
    };
    assert!(!again.better.as_ref().is_some_and(is_near), "{again}");
    assert!(again.reason.contains("was undone and is not advised for another"), "{again}");
    assert!(again.reason.contains(&better.design.to_string()), "{again}");
    env.clock.sleep_us(3_600_000_000);
    let later = db.advise()?;
    assert!(later.better.is_some() && !later.reason.contains("undone"), "{later}");
    db.close()?;
    // A design set by an open is no redesign, so it cannot be undone.
    let db = tiered().size_ratio(3.0).open()?;
    assert_eq!(db.undo_redesign().map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    Ok(())
}
