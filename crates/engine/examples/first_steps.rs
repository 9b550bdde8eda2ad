//! First steps: open a database, write, read, iterate, delete, close.
//!
//! ```text
//! cargo run -p shamba --example first_steps
//! ```

use std::error::Error;

use shamba::{Db, Durability};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    // A database is a directory. `Db::open` creates it if it is missing.
    let db = Db::open(dir.path().join("users.db"))?;

    // A write is durable as far as it asks for: by default it survives the process, not a power
    // failure.
    db.put("user:1", "Asha")?;
    db.put_with("user:2", "Baraka", Durability::Sync)?;
    db.put("user:3", "Chidi")?;

    assert_eq!(db.get("user:1")?.as_deref(), Some(&b"Asha"[..]));
    assert_eq!(db.get("user:9")?, None);

    // Keys are bytes in byte order; a prefix or any range of them can be read in order.
    for entry in db.prefix("user:") {
        let (key, value) = entry?;
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }
    let from_the_end = db.range("user:".."user;").next_back().transpose()?;
    assert_eq!(from_the_end.as_ref().map(|(key, _)| &key[..]), Some(&b"user:3"[..]));

    db.delete("user:1")?;
    db.delete_range("user:2".."user:3")?;
    assert_eq!(db.iter().count(), 1);

    // Closing writes everything to the log and syncs it. Dropping the handle does not.
    db.close()?;
    println!("closed");
    Ok(())
}
