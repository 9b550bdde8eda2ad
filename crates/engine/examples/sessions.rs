//! Expiry: sessions that last as long as they are used, and a cache whose entries live for a short
//! time.
//!
//! ```text
//! cargo run --release -p shamba --example sessions
//! ```

use std::time::Duration;

use shamba::{Db, Keyspace, KeyspaceOptions, WriteOptions};

/// Time without use after which a session ends.
const IDLE: Duration = Duration::from_millis(600);
/// Time after which a page is rendered again.
const FRESH: Duration = Duration::from_millis(200);

/// The user of a session, which is renewed by the call.
fn user(sessions: &Keyspace, id: &str) -> shamba::Result<Option<String>> {
    let mut user = None;
    sessions.update_with(
        id,
        |current| {
            user = current.map(|current| String::from_utf8_lossy(current).into_owned());
            user.clone()
        },
        WriteOptions::new().time_to_live(IDLE),
    )?;
    Ok(user)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("shamba-sessions-{}", std::process::id()));
    let db = Db::builder(&directory).keyspace("pages", KeyspaceOptions::new().time_to_live(FRESH)).open()?;
    let (sessions, pages) = (db.keyspace("sessions")?, db.keyspace("pages")?);
    sessions.put_with("a7", "asha", WriteOptions::new().time_to_live(IDLE))?;
    sessions.put_with("b3", "baraka", WriteOptions::new().time_to_live(IDLE))?;
    let mut rendered = 0;
    for _ in 0..10 {
        if pages.put_if_absent("/home", "<html>")?.is_done() {
            rendered += 1;
        }
        user(&sessions, "a7")?;
        std::thread::sleep(IDLE / 6);
    }
    println!("after a second: asha is {:?}, baraka is {:?}", user(&sessions, "a7")?, user(&sessions, "b3")?);
    println!("the page was rendered {rendered} times");
    assert_eq!(user(&sessions, "b3")?, None);
    assert!(rendered >= 2, "a page older than a fifth of a second was shown");
    db.close()?;
    Ok(std::fs::remove_dir_all(&directory)?)
}
