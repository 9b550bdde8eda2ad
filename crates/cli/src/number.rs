//! `--number`: operands and values of the merge operators of numbers, as decimal numbers.

/// The operand of the merge operator `operator` that is written as `text`.
///
/// # Errors
/// A message, for another text and for an operator whose operands are no numbers.
pub fn operand(operator: &str, text: &str) -> Result<Vec<u8>, String> {
    fn range(text: &str, least: impl std::fmt::Display, most: impl std::fmt::Display) -> String {
        format!("{text:?} is not a whole number from {least} to {most}")
    }
    match operator {
        "shamba.add-u64" => match text.parse::<u64>() {
            Ok(number) => Ok(number.to_le_bytes().to_vec()),
            Err(_) => Err(range(text, u64::MIN, u64::MAX)),
        },
        "shamba.add-i64" => match text.parse::<i64>() {
            Ok(number) => Ok(number.to_le_bytes().to_vec()),
            Err(_) => Err(range(text, i64::MIN, i64::MAX)),
        },
        "shamba.set-bit" => match text.parse::<u32>() {
            Ok(bit) => Ok(bit.to_le_bytes().to_vec()),
            Err(_) => Err(range(text, u32::MIN, u32::MAX)),
        },
        _ => Err(format!(
            "--number is for shamba.add-u64, shamba.add-i64 and shamba.set-bit; the keyspace has the merge operator \
             {operator:?}"
        )),
    }
}

/// The number in a value of a keyspace with the merge operator `operator`: signed if the operator
/// adds signed numbers.
///
/// # Errors
/// A message, for a value that has not 8 bytes.
pub fn value(operator: Option<&str>, value: &[u8]) -> Result<String, String> {
    let bytes: [u8; 8] = value.try_into().map_err(|_| {
        let bytes = value.len();
        format!("the value has {bytes} byte{}; --number needs one of 8", if bytes == 1 { "" } else { "s" })
    })?;
    Ok(match operator {
        Some("shamba.add-i64") => i64::from_le_bytes(bytes).to_string(),
        _ => u64::from_le_bytes(bytes).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_their_bounds_are_stated() {
        for (operator, number) in [
            ("shamba.add-u64", "0"),
            ("shamba.add-u64", "18446744073709551615"),
            ("shamba.add-i64", "-9223372036854775808"),
            ("shamba.add-i64", "9223372036854775807"),
        ] {
            let bytes = operand(operator, number).expect(number);
            assert_eq!(value(Some(operator), &bytes).as_deref(), Ok(number), "{operator}");
        }
        assert_eq!(operand("shamba.set-bit", "258"), Ok(vec![2, 1, 0, 0]));
        for (operator, text, message) in [
            ("shamba.add-u64", "-1", "\"-1\" is not a whole number from 0 to 18446744073709551615"),
            ("shamba.add-i64", "9223372036854775808", "to 9223372036854775807"),
            ("shamba.set-bit", "1.5", "from 0 to 4294967295"),
            ("shamba.max", "1", "the merge operator \"shamba.max\""),
        ] {
            let error = operand(operator, text).expect_err(text);
            assert!(error.contains(message), "{error}");
        }
        assert!(value(None, b"1").is_err() && value(None, &[0; 9]).is_err());
        assert_eq!(value(None, &[255; 8]).as_deref(), Ok("18446744073709551615"));
    }
}
