//! Tests of `tune`: the history names a caller who followed advice, and an undone design is not
//! advised again.

use std::sync::Arc;

use serde_json::Value;
use shamba::env::{Env, RealFs};
use shamba::{Db, MergePolicy};

use crate::support::{Dir, run};

/// Makes a tiered tree with recent lookups, in simulated time: a design with fewer runs suits them
/// better.
fn tiered_and_read(path: &str) {
    let env = Env::deterministic(Arc::new(RealFs::new()), 7);
    let tiny = Db::builder(path).env(env.clone()).experimental(|e| e.file_size(1 << 20).block_bytes(512));
    let tiny = tiny.memory_budget(4 << 20).write_buffer(32 << 10);
    let db = tiny.size_ratio(8.0).merge_policy(MergePolicy::Tiering).open().expect("a new database");
    let mut rng = fastrand::Rng::with_seed(5);
    for number in 0..30_000u32 {
        let key = format!("key {:06}", rng.u32(..20_000));
        db.put(key, format!("a value of some length: {number:060}")).expect("room");
    }
    db.wait_idle().expect("merged");
    env.clock.sleep_us(60_000_000);
    // A window of writing has ended.
    db.workload();
    for _ in 0..12 {
        for _ in 0..2_000 {
            db.get(format!("absent {:06}", rng.u32(..20_000))).expect("readable");
            db.get(format!("key {:06}", rng.u32(..20_000))).expect("readable");
        }
        env.clock.sleep_us(2_000_000);
        db.advise().expect("judged");
    }
    db.close().expect("closed");
}

fn tune(args: &[&str]) -> Value {
    run([&["tune"], args, &["--json"]].concat()).json()
}

#[test]
fn advice_is_followed_by_name_and_not_offered_again_when_it_was_undone() {
    let dir = Dir::new();
    let db = dir.path("db");
    tiered_and_read(&db);
    let offered = tune(&[&db, "--dry-run"]);
    let design = |told: &Value| {
        let design = &told["advice"]["better"]["design"];
        (design["policy"].clone(), design["size_ratio"].clone())
    };
    assert!(!offered["advice"]["better"].is_null(), "{offered}");
    assert_eq!(offered["redesigns"], serde_json::json!([]), "a dry run changes nothing");

    let followed = tune(&[&db]);
    assert_eq!(followed["moved"], true, "{followed}");
    assert_eq!(followed["redesigns"][0]["by"], "follow", "{followed}");
    let undone = tune(&[&db, "--undo"]);
    assert_eq!((&undone["moved"], &undone["redesigns"][1]["by"]), (&true.into(), &"undo".into()), "{undone}");

    let text = run(["tune", &db, "--dry-run"]).ok();
    for said in ["by follow: to", "by undo: to", "was undone and is not advised for another"] {
        assert!(text.contains(said), "{said} in {text}");
    }
    for args in [&[&db[..], "--dry-run"][..], &[&db]] {
        let again = tune(args);
        assert_ne!(design(&again), design(&followed), "{again}");
        let reason = again["advice"]["reason"].as_str().expect("a reason");
        assert!(reason.contains("was undone and is not advised for another"), "{reason}");
    }
}
