//! Tests of a drop of a keyspace that fails: until it is durable, the keyspace can be used.

use std::sync::{Arc, OnceLock};

use shamba::env::{Clock, Effect, Env, FaultFs, FaultRule, MemFs, OpKind, RealClock};
use shamba::{Db, ErrorKind, Keyspace, Result};

/// A clock that reads from a keyspace instead of waiting: a slow call of the file system reads.
#[derive(Debug, Default)]
struct Asking {
    keyspace: OnceLock<Keyspace>,
    answers: std::sync::Mutex<Vec<std::result::Result<bool, ErrorKind>>>,
}

impl Clock for Asking {
    fn now_us(&self) -> u64 {
        RealClock::new().now_us()
    }

    fn unix_ms(&self) -> u64 {
        RealClock::new().unix_ms()
    }

    fn sleep_us(&self, _us: u64) {
        let answer = self.keyspace.get().expect("set").contains_key("k").map_err(|error| error.kind());
        self.answers.lock().expect("no panic").push(answer);
    }

    fn wait_ns(&self, _ns: u64) {}
}

#[test]
fn a_keyspace_is_there_until_its_drop_is_durable() -> Result<()> {
    let full = FaultFs::new(Arc::new(MemFs::new()), 1);
    let asking = Arc::new(Asking::default());
    let slow = FaultFs::with_clock(Arc::new(full.clone()), 1, Arc::clone(&asking) as Arc<dyn Clock>);
    let env = Env::deterministic(Arc::new(slow.clone()), 1);
    let db = Db::builder("/db").env(env).info_log(false).open()?;
    let users = db.keyspace("users")?;
    users.put("k", "v")?;
    assert!(asking.keyspace.set(users.clone()).is_ok());
    let appended = || FaultRule::nth(0, Effect::LatencyUs(1)).on(&[OpKind::Append]).at_path("MANIFEST");
    slow.add_rule(appended());
    full.add_rule(FaultRule { effect: Effect::Enospc, ..appended() });
    let failed = db.drop_keyspace("users").map_err(|error| error.kind());
    assert_eq!(failed, Err(ErrorKind::NoSpace));
    assert_eq!(*asking.answers.lock().expect("no panic"), [Ok(true)], "a read during the drop that failed");
    assert!(users.contains_key("k")?);
    users.put("k2", "v")?;
    // The next one finds space; during it the keyspace is there, too.
    slow.add_rule(appended());
    db.drop_keyspace("users")?;
    assert_eq!(*asking.answers.lock().expect("no panic"), [Ok(true); 2], "a read during the drop");
    assert_eq!(users.contains_key("k").map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    db.close()
}
