//! Parser of JSON objects, one per line.

use serde_json::{Map, Value};

use super::{Parsed, raw};

/// Parses the record on `line`; its key is the field `key_field`.
pub fn record(line: &[u8], key_field: &str, hex: bool) -> Parsed {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Err("empty line".into());
    }
    let object: Map<String, Value> = serde_json::from_slice(line).map_err(|error| {
        // The caller adds the line number; the message keeps the position within the line.
        let text = error.to_string();
        let reason = text.split(" at line ").next().unwrap_or(&text);
        // Columns count from 1; an error of the whole line comes with column 0.
        format!("not a JSON object: {reason} (column {})", error.column().max(1))
    })?;
    let key = match object.get(key_field) {
        None => return Err(format!("no field {key_field:?}")),
        Some(Value::String(text)) => raw("key", text.as_bytes(), hex)?,
        // Others were rounded, so that two of them could be the same key.
        Some(Value::Number(number)) if !hex && !number.is_f64() => number.to_string().into_bytes(),
        Some(Value::Number(_)) if !hex => {
            return Err(format!("field {key_field:?} is not a whole number of 64 bits; quote it"));
        }
        Some(_) => return Err(format!("field {key_field:?} is neither a string nor a number")),
    };
    let value = match object.get("value") {
        Some(Value::String(text)) if object.len() == 2 && key_field != "value" => {
            raw("value", text.as_bytes(), hex)?
        }
        _ if hex => return Err("with --hex each record needs a key and a string field \"value\"".into()),
        _ => line.trim_ascii().to_vec(),
    };
    Ok((key, value))
}
