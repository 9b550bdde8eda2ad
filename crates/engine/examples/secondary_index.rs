//! A secondary index: find people by city, with an index that is never out of step with the data.
//!
//! The index is a keyspace whose keys are `city, 0, id`. Record and index entry change in one
//! transaction: neither a crash nor a reader sees one without the other, and writers do not either.
//!
//! ```text
//! cargo run -p shamba --example secondary_index
//! ```

use std::error::Error;

use shamba::{Db, Keyspace};

/// People by id, and the index of their cities.
struct People {
    db: Db,
    by_id: Keyspace,
    by_city: Keyspace,
}

/// The index key of a person: a city never contains the separator, so that the entries of a city
/// are exactly those with the prefix `city, 0`.
fn index_key(city: &[u8], id: &str) -> Vec<u8> {
    [city, &[0], id.as_bytes()].concat()
}

impl People {
    fn open(db: &Db) -> Result<Self, Box<dyn Error>> {
        Ok(Self { by_id: db.keyspace("people")?, by_city: db.keyspace("people by city")?, db: db.clone() })
    }

    /// Sets the city of a person, and moves the index entry. If another thread writes the same
    /// person meanwhile, the transaction is repeated.
    fn set_city(&self, id: &str, city: &str) -> shamba::Result<()> {
        self.db.transact(|transaction| {
            if let Some(old) = transaction.get_in(&self.by_id, id)? {
                transaction.delete_in(&self.by_city, index_key(&old, id))?;
            }
            transaction.put_in(&self.by_id, id, city)?;
            transaction.put_in(&self.by_city, index_key(city.as_bytes(), id), "")
        })
    }

    /// The ids of everyone in a city, in order.
    fn in_city(&self, city: &str) -> Result<Vec<String>, Box<dyn Error>> {
        let prefix = index_key(city.as_bytes(), "");
        let mut ids = Vec::new();
        for entry in self.by_city.prefix(&prefix) {
            let (key, _) = entry?;
            ids.push(String::from_utf8(key[prefix.len()..].to_vec())?);
        }
        Ok(ids)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let people = People::open(&Db::open(dir.path())?)?;
    people.set_city("asha", "Mombasa")?;
    people.set_city("baraka", "Nairobi")?;
    people.set_city("chidi", "Mombasa")?;
    assert_eq!(people.in_city("Mombasa")?, ["asha", "chidi"]);

    people.set_city("asha", "Nairobi")?;
    assert_eq!(people.in_city("Mombasa")?, ["chidi"]);
    println!("in Nairobi: {}", people.in_city("Nairobi")?.join(", "));
    Ok(())
}
