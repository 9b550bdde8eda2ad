//! Better settings as edits of the file's text, each with its reason in a comment before it.
//!
//! A setting in the file gets its new value in place. A missing setting goes to the end of its
//! section, and a missing section to the end of the file. A filter policy keeps its kind (Bloom or
//! ribbon) with other bits.

use super::advice::{Advice, Change};
use super::file::Edit;
use super::settings::Family;

/// The whole text of the patched file.
///
/// # Errors
/// The filters are to change, and the braces around the filter policy do not match.
pub fn patched(family: &Family<'_>, advice: &Advice, heading: &[String]) -> Result<String, String> {
    let edits = advice
        .changes
        .iter()
        .map(|change| edit(family, change, change.why(&advice.present.costs)))
        .collect::<Result<Vec<Edit>, String>>()?;
    Ok(family.file.patched(heading, &edits))
}

fn edit(family: &Family<'_>, change: &Change, why: String) -> Result<Edit, String> {
    if change.setting == "filter_policy" {
        return filter_edit(family, &change.to, why);
    }
    Ok(match family.place(change.setting) {
        Some(place) => Edit::Replace { place, value: change.to.clone(), why },
        None => Edit::Insert {
            section: family.options,
            name: change.setting.into(),
            value: change.to.clone(),
            why,
        },
    })
}

fn filter_edit(family: &Family<'_>, bits: &str, why: String) -> Result<Edit, String> {
    let file = family.file;
    let policy = |value: &str| match bits {
        "0" => "nullptr".to_owned(),
        bits => filter_policy(value, bits),
    };
    let Some(place) = family.table_place("filter_policy")? else {
        let name = "filter_policy".to_owned();
        let value = policy("");
        return Ok(match family.table {
            Some(section) => Edit::Insert { section, name, value, why },
            None => {
                let family = &file.sections()[family.options].argument;
                let section = format!("TableOptions/BlockBasedTable \"{}\"", family.escape_default());
                Edit::Append { section, name, value, why }
            }
        });
    };
    let inside = match file.raw(&place).starts_with('{') {
        // Without filters the whole value is replaced.
        true if bits != "0" => file.find_inside(&place, "id")?,
        _ => None,
    };
    let place = inside.unwrap_or(place);
    let value = policy(&file.value(&place));
    Ok(Edit::Replace { place, value, why })
}

/// A filter policy of the kind of `old` with `bits`.
fn filter_policy(old: &str, bits: &str) -> String {
    let mut parts: Vec<&str> = old.split(':').collect();
    let keeps =
        matches!(parts[0], "bloomfilter" | "ribbonfilter") || parts[0].starts_with("rocksdb.internal.");
    if keeps && parts.len() > 1 {
        parts[1] = bits;
        return parts.join(":");
    }
    // All versions since filter policies have names read this: whole-table filters, not one per
    // block.
    format!("bloomfilter:{bits}:false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_policies_keep_their_kind() {
        for (old, new) in [
            ("bloomfilter:10:false", "bloomfilter:7.5:false"),
            ("bloomfilter:10", "bloomfilter:7.5"),
            ("ribbonfilter:10:3", "ribbonfilter:7.5:3"),
            ("rocksdb.internal.FastLocalBloomFilter:8", "rocksdb.internal.FastLocalBloomFilter:7.5"),
            ("rocksdb.BuiltinBloomFilter", "bloomfilter:7.5:false"),
            ("nullptr", "bloomfilter:7.5:false"),
            ("", "bloomfilter:7.5:false"),
        ] {
            assert_eq!(filter_policy(old, "7.5"), new, "{old}");
        }
    }
}
